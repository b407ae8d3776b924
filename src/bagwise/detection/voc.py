"""Annotations of images: PASCAL VOC's XML, one file per image, and one JSON file for many.

VOC counts pixels from 1 and includes the last one; here boxes count from 0 and leave the end out,
so x0 = xmin - 1 and x1 = xmax. XML is read without document types and entities: files that have
them, as "billion laughs" bombs do, are refused before anything is expanded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

from bagwise.bags.boxes import Box, Detection
from bagwise.core.files.atomic import atomic_file
from bagwise.core.files.reading import check_regular, one_error
from bagwise.io.annotations import AnnotationError

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 50


@dataclass(frozen=True)
class Annotation:
    """An image's file name, its size in pixels where known, and the objects in it.

    >>> Annotation("cat.jpg", 640, 480, (Box("cat", (10, 10, 50, 60)),)).classes
    {'cat'}
    """

    filename: str
    width: int | None
    height: int | None
    boxes: tuple[Box, ...]

    @property
    def classes(self) -> set[Any]:
        """The classes that the image shows."""
        return {b.label for b in self.boxes}


def read_voc(path: str | os.PathLike[str]) -> Annotation:
    """Read the annotation of one image from a VOC XML file."""
    return _annotation(_read_bytes(path), os.fspath(path))


def _annotation(data: bytes, name: str) -> Annotation:
    root = _parse(data, name)
    if root.tag != "annotation":
        raise AnnotationError(f"{name}: a VOC file begins with <annotation>, not <{root.tag[:80]}>")
    try:
        boxes = tuple(_read_object(element) for element in root.findall("object"))
        size = root.find("size")
        width = None if size is None else int(_text(size, "width"))
        height = None if size is None else int(_text(size, "height"))
        return Annotation((root.findtext("filename") or "").strip(), width, height, boxes)
    except (ValueError, OverflowError) as error:
        raise AnnotationError(f"{name}: {str(error)[:200]}") from error


def write_voc(path: str | os.PathLike[str], annotation: Annotation) -> None:
    """Write the annotation of one image as VOC XML; boxes are rounded to whole pixels.

    Labels become text. What `read_voc` would not give back is refused: control characters, blanks
    at the ends of texts, a width without a height, boxes beyond 2**53 pixels.
    """
    root = ElementTree.Element("annotation")
    ElementTree.SubElement(root, "filename").text = annotation.filename
    if annotation.width is not None and annotation.height is not None:
        size = ElementTree.SubElement(root, "size")
        ElementTree.SubElement(size, "width").text = str(annotation.width)
        ElementTree.SubElement(size, "height").text = str(annotation.height)
    for box in annotation.boxes:
        item = ElementTree.SubElement(root, "object")
        ElementTree.SubElement(item, "name").text = str(box.label)
        ElementTree.SubElement(item, "difficult").text = str(int(box.difficult))
        corners = ElementTree.SubElement(item, "bndbox")
        x0, y0, x1, y1 = _whole(box)
        for name, value in {"xmin": x0 + 1, "ymin": y0 + 1, "xmax": x1, "ymax": y1}.items():
            ElementTree.SubElement(corners, name).text = str(value)
    ElementTree.indent(root)
    data = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    _check_same(data, annotation, os.fspath(path))
    _write(path, data)


def _whole(box: Box) -> tuple[int, int, int, int]:
    """A box in whole pixels, at least one wide and high."""
    x0, y0, x1, y1 = (round(v) for v in box.box)
    return x0, y0, max(x1, x0 + 1), max(y1, y0 + 1)


def _check_same(data: bytes, annotation: Annotation, name: str) -> None:
    """Raise where a file would not give back what is written to it."""
    try:
        boxes = (Box(str(b.label), _whole(b), bool(b.difficult)) for b in annotation.boxes)
        written = replace(annotation, boxes=tuple(boxes))
        same = _annotation(data, name) == written
    except ValueError:
        same = False
    if not same:
        raise ValueError(
            f"{name} would not give back {annotation!r:.200}; texts must have no control "
            "characters and no blanks at their ends, sizes both numbers, and boxes lie within "
            "2**53 pixels"
        )


def write_boxes_json(
    path: str | os.PathLike[str], images: Mapping[str, Sequence[Box | Detection]]
) -> None:
    """Write the known or detected boxes of many images, by the images' names, as JSON."""
    content = {name: [_as_json(o) for o in objects] for name, objects in images.items()}
    _write(path, json.dumps({"format": "bagwise-boxes", "images": content}, indent=1).encode())


def read_boxes_json(path: str | os.PathLike[str]) -> dict[str, list[Any]]:
    """Read what `write_boxes_json` wrote: lists of `Box` or `Detection` by image."""
    try:
        content = json.loads(_read_bytes(path))
        if not isinstance(content, dict) or content.get("format") != "bagwise-boxes":
            raise AnnotationError(f"{path} is not a file of boxes that bagwise wrote")
        return {
            str(name): [_from_json(o) for o in objects]
            for name, objects in content["images"].items()
        }
    except AnnotationError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise AnnotationError(
            f"cannot read {path}: it is damaged or cut off ({error}); write it again"
        ) from error


def _as_json(o: Box | Detection) -> dict[str, Any]:
    common = {"label": o.label, "box": list(o.box)}
    if isinstance(o, Box):
        return common | {"difficult": o.difficult}
    return common | {"score": o.score, "std": o.std}


def _from_json(o: dict[str, Any]) -> Box | Detection:
    box = tuple(float(v) for v in o["box"])
    if "score" in o:
        return Detection(o["label"], box, float(o["score"]), float(o["std"]))  # type: ignore[arg-type]
    return Box(o["label"], box, bool(o["difficult"]))  # type: ignore[arg-type]


def _read_bytes(path: str | os.PathLike[str]) -> bytes:
    check_regular(path, AnnotationError)
    size = os.path.getsize(path)
    if size > MAX_BYTES:
        raise AnnotationError(
            f"{path} has {size} bytes, more than the {MAX_BYTES} that annotations may have"
        )
    return Path(path).read_bytes()


def _write(path: str | os.PathLike[str], data: bytes) -> None:
    with atomic_file(Path(os.path.realpath(path))) as file:
        file.write(data)


def _parse(data: bytes, name: str) -> ElementTree.Element:
    """The tree of an XML text that declares no document type and no entities."""
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise AnnotationError(f"{name}: elements are nested more than {MAX_DEPTH} deep")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def forbidden(*_: Any) -> NoReturn:
        raise AnnotationError(
            f"{name} declares a document type or entities, which annotations need not and which "
            "can blow up or reach out to other files; it is refused; remove the declaration"
        )

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = forbidden
    parser.EntityDeclHandler = forbidden
    parser.ExternalEntityRefHandler = forbidden
    with one_error(name, AnnotationError, "it is no XML, or damaged or cut off; write it again"):
        parser.Parse(data, True)
        return builder.close()


def _read_object(element: ElementTree.Element) -> Box:
    corners = element.find("bndbox")
    if corners is None:
        raise ValueError("an <object> has no <bndbox>")
    xmin, ymin, xmax, ymax = (float(_text(corners, k)) for k in ("xmin", "ymin", "xmax", "ymax"))
    difficult = (element.findtext("difficult") or "0").strip() == "1"
    return Box(_text(element, "name"), (xmin - 1, ymin - 1, xmax, ymax), difficult)


def _text(element: ElementTree.Element, tag: str) -> str:
    text = element.findtext(tag)
    if text is None or not text.strip():
        raise ValueError(f"an element <{element.tag}> has no <{tag}>")
    return text.strip()
