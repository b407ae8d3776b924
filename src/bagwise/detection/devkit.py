"""PASCAL VOC's development kit: images, annotations and the official splits of a year.

VOCdevkit/VOC2007/Annotations/000005.xml, ImageSets/Main/trainval.txt, JPEGImages/000005.jpg
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.boxes import Box
from bagwise.core.files.reading import check_regular
from bagwise.detection.voc import Annotation, read_voc
from bagwise.io.annotations import AnnotationError
from bagwise.io.images import read_image

YEARS = (2007, 2008, 2009, 2010, 2011, 2012)
MAX_LIST_BYTES = 16 * 2**20
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class VocSplit:
    """The images of an official split with their annotations; pixels are read when asked for."""

    folder: Path  # VOCdevkit/VOC2007
    ids: tuple[str, ...]
    annotations: tuple[Annotation, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def classes(self) -> list[str]:
        """All classes that occur, sorted."""
        return sorted({str(c) for a in self.annotations for c in a.classes})

    @property
    def labels(self) -> list[set[str]]:
        """The classes that each image shows; objects that are marked difficult count too."""
        return [{str(c) for c in a.classes} for a in self.annotations]

    @property
    def boxes(self) -> list[list[Box]]:
        """The objects of each image, with their difficult flags."""
        return [list(a.boxes) for a in self.annotations]

    def image(self, name: str) -> NDArray[np.float32]:
        """(height, width, 3) values from 0 to 1 of one of the images."""
        pixels = read_image(self.folder / "JPEGImages" / f"{name}.jpg")
        return np.ascontiguousarray(pixels.transpose(1, 2, 0))

    def first(self, n: int | None) -> VocSplit:
        """The first n images, or all."""
        return VocSplit(self.folder, self.ids[:n], self.annotations[:n])


def read_voc_split(
    devkit: str | os.PathLike[str], year: int = 2007, split: str = "trainval"
) -> VocSplit:
    """Read one of VOC's official splits: "train", "val", "trainval" or "test".

    `devkit` is the folder VOCdevkit as its archives unpack to. The annotations of VOC2012's test
    images were never published.
    """
    if year not in YEARS:
        raise ValueError(f"year must be one of {YEARS}, got {year!r}")
    folder = Path(devkit) / f"VOC{year}"
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is no folder; give the folder VOCdevkit that holds VOC{year}, as the "
            "archive of that year unpacks to"
        )
    ids = _listed(folder / "ImageSets" / "Main" / f"{_checked_name(split, 'split')}.txt")
    annotations = tuple(_annotation(folder, name) for name in ids)
    return VocSplit(folder, ids, annotations)


def _listed(path: Path) -> tuple[str, ...]:
    """Names of images, one per line; a second column, of class lists, is not read."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing; the development kit of that year has no such split, or its "
            "archive was not unpacked"
        )
    check_regular(path, AnnotationError)
    if path.stat().st_size > MAX_LIST_BYTES:
        raise AnnotationError(f"{path} has more than {MAX_LIST_BYTES} bytes, which no list needs")
    try:
        lines = path.read_text("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise AnnotationError(f"{path} is no list of images: {error}") from error
    names = [_checked_name(line.split()[0], str(path)) for line in lines if line.strip()]
    if not names:
        raise AnnotationError(f"{path} lists no image")
    if len(set(names)) < len(names):
        raise AnnotationError(f"{path} lists an image twice")
    return tuple(names)


def _annotation(folder: Path, name: str) -> Annotation:
    path = folder / "Annotations" / f"{name}.xml"
    if not path.exists():
        raise AnnotationError(
            f"{path} is missing: the split lists an image without annotation (those of VOC2012's "
            "test images were never published); use another split"
        )
    return read_voc(path)


def _checked_name(name: Any, where: str) -> str:
    """A name that stays within its folder."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise AnnotationError(f"{where}: {name!r:.80} is no name of VOC's")
    return name
