"""VOC and JSON annotations: round trips, VOC's pixel convention, hostile files."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bagwise.detection import (
    Annotation,
    AnnotationError,
    Box,
    Detection,
    read_boxes_json,
    read_voc,
    write_boxes_json,
    write_voc,
)

VOC = """<annotation>
  <folder>VOC2007</folder><filename>000005.jpg</filename>
  <size><width>500</width><height>375</height><depth>3</depth></size>
  <object><name>chair</name><pose>Rear</pose><difficult>0</difficult>
    <bndbox><xmin>263</xmin><ymin>211</ymin><xmax>324</xmax><ymax>339</ymax></bndbox></object>
  <object><name>sofa</name><difficult>1</difficult>
    <bndbox><xmin>1</xmin><ymin>1</ymin><xmax>1</xmax><ymax>2</ymax></bndbox></object>
</annotation>"""


def test_reads_voc_with_its_pixel_convention(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text(VOC)
    got = read_voc(path)
    assert (got.filename, got.width, got.height) == ("000005.jpg", 500, 375)
    # VOC counts from 1 and includes the last pixel: 62 x 129 pixels.
    assert got.boxes[0] == Box("chair", (262, 210, 324, 339))
    assert got.boxes[1] == Box("sofa", (0, 0, 1, 2), difficult=True)
    assert got.classes == {"chair", "sofa"}


def test_voc_round_trip(tmp_path: Path) -> None:
    annotation = Annotation(
        "ä & <b>.jpg", 64, 48, (Box("dog", (0, 3, 10, 20)), Box("cat", (5, 5, 6, 6), True))
    )
    write_voc(tmp_path / "a.xml", annotation)
    assert read_voc(tmp_path / "a.xml") == annotation


def test_json_round_trip(tmp_path: Path) -> None:
    images = {
        "a.png": [Box("dog", (0.5, 1, 2, 3.25)), Box(3, (0, 0, 1, 1), True)],
        "b.png": [Detection("dog", (0, 0, 1, 1), 0.75, 0.125)],
        "c.png": [],
    }
    write_boxes_json(tmp_path / "a.json", images)
    assert read_boxes_json(tmp_path / "a.json") == images


BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY lol "lol">
 <!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
 <!ENTITY lol3 "&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;">]>
<annotation><filename>&lol3;</filename></annotation>"""
OUTSIDE = """<?xml version="1.0"?>
<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><annotation>&x;</annotation>"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "document type or entities"),
        (OUTSIDE, "document type or entities"),
        ('<!DOCTYPE a SYSTEM "http://x/y.dtd"><annotation/>', "document type or entities"),
        ("<annotation>" + "<a>" * 60 + "</a>" * 60 + "</annotation>", "nested more than"),
        (VOC[:200], "damaged or cut off"),
        ("", "damaged or cut off"),
        ("<html/>", "begins with <annotation>"),
        (VOC.replace("263", "many"), "could not convert"),
        (VOC.replace("263", "400"), "x1 > x0"),
        (VOC.replace("263", "nan"), "finite"),
        (VOC.replace("<name>chair</name>", ""), "no <name>"),
    ],
)
def test_hostile_xml_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text(text)
    with pytest.raises(AnnotationError, match=message):
        read_voc(path)


def test_huge_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    with path.open("wb") as file:
        file.truncate(17 * 2**20)
    with pytest.raises(AnnotationError, match="bytes, more than"):
        read_voc(path)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        json.dumps({"format": "bagwise-boxes"}),
        json.dumps({"format": "bagwise-boxes", "images": {"a": [{"label": "x", "box": [1]}]}}),
        "[" * 100_000,
    ],
)
def test_hostile_json_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(AnnotationError):
        read_boxes_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    "annotation",
    [
        Annotation("a.jpg", 9, 9, (Box("c\x00t", (0, 0, 1, 1)),)),
        Annotation("a.jpg", 9, 9, (Box(" cat", (0, 0, 1, 1)),)),
        Annotation("a.jpg", 9, 9, (Box("", (0, 0, 1, 1)),)),
        Annotation("a.jpg", 9, 9, (Box("cat\r", (0, 0, 1, 1)),)),
        Annotation("a.jpg\x1b", 9, 9, ()),
        Annotation("a.jpg", 9, None, ()),
        Annotation("a.jpg", 9, 9, (Box("cat", (2**53 + 2, 0, 2**53 + 10, 1)),)),
    ],
)
def test_what_would_not_come_back_is_not_written(annotation: Annotation, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="would not give back"):
        write_voc(tmp_path / "a.xml", annotation)
    assert not list(tmp_path.iterdir())


@given(
    st.text(max_size=5),
    st.text(max_size=5),
    st.tuples(*[st.floats(-1e18, 1e18)] * 2, *[st.floats(1e-3, 1e18)] * 2),
)
def test_what_is_written_comes_back(name: str, label: str, place: tuple[float, ...]) -> None:
    x, y, width, height = place
    assume(x + width > x and y + height > y)
    annotation = Annotation(name, 4, 4, (Box(label, (x, y, x + width, y + height)),))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.xml"
        try:
            write_voc(path, annotation)
        except ValueError:
            return
        back = read_voc(path)
    assert (back.filename, back.boxes[0].label) == (name, label)
    np.testing.assert_allclose(back.boxes[0].box, annotation.boxes[0].box, atol=1.01)


def test_encodings_that_do_not_exist_and_numbers_without_end(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    write_voc(path, Annotation("a.jpg", 9, 9, (Box("cat", (0, 0, 1, 1)),)))
    text = path.read_text(encoding="utf-8")
    for old, new in (("utf-8", "utf-9"), (">9<", f">{'9' * 5000}<"), ("<xmax>1", "<xmax>1e999")):
        path.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(AnnotationError):
            read_voc(path)
