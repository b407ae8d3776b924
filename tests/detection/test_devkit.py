"""VOC's development kit and the experiment on it, on a small tree that the test writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bagwise as bw
from bagwise.detection import (
    Annotation,
    AnnotationError,
    Box,
    SlidingWindows,
    WeaklySupervisedDetector,
    read_voc_split,
    reproduce_voc,
    voc_table,
    write_voc,
)

image_module = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
SIDE = 36


def draw(label: str | None, rng: np.random.Generator) -> tuple[np.ndarray, tuple[Box, ...]]:
    """A noisy picture with a disk or a cross, or neither."""
    pixels = rng.integers(0, 40, size=(SIDE, SIDE, 3))
    if label is None:
        return pixels.astype(np.uint8), ()
    x, y = rng.integers(0, SIDE - 16, size=2)
    i, j = np.mgrid[:16, :16] - 7.5
    mask = (i**2 + j**2 < 60) if label == "disk" else (np.abs(i) < 2.5) | (np.abs(j) < 2.5)
    pixels[y : y + 16, x : x + 16][mask] = 230
    box = (float(x), float(y), float(x + 16), float(y + 16))
    return pixels.astype(np.uint8), (Box(label, box),)


def write_devkit(root: Path, year: int, splits: dict[str, int]) -> None:
    folder = root / f"VOC{year}"
    for part in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (folder / part).mkdir(parents=True)
    rng, number = np.random.default_rng(0), 0
    for split, n in splits.items():
        names = []
        for k in range(n):
            number += 1
            name = f"{year}_{number:06d}"
            pixels, boxes = draw(("disk", "cross", None)[k % 3], rng)
            image_module.fromarray(pixels).save(folder / "JPEGImages" / f"{name}.jpg", quality=95)
            annotation = Annotation(f"{name}.jpg", SIDE, SIDE, boxes)
            write_voc(folder / "Annotations" / f"{name}.xml", annotation)
            names.append(name)
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(names) + "\n")


@pytest.fixture(scope="module")
def devkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("VOCdevkit")
    write_devkit(root, 2007, {"trainval": 24, "test": 9})
    write_devkit(root, 2012, {"train": 3, "val": 3})
    return root


def test_splits_of_both_years(devkit: Path) -> None:
    split = read_voc_split(devkit, 2007, "test")
    assert len(split) == 9 and split.ids[0] == "2007_000025"
    assert split.classes == ["cross", "disk"]
    assert split.labels[:3] == [{"disk"}, {"cross"}, set()]
    assert split.image(split.ids[0]).shape == (SIDE, SIDE, 3)
    assert [len(b) for b in split.boxes[:3]] == [1, 1, 0]
    assert len(read_voc_split(devkit, 2012, "val")) == 3
    assert len(split.first(2)) == 2


def test_difficult_flags_are_kept(devkit: Path, tmp_path: Path) -> None:
    write_devkit(tmp_path, 2008, {"val": 1})
    path = tmp_path / "VOC2008" / "Annotations" / "2008_000001.xml"
    hard = Annotation("a.jpg", SIDE, SIDE, (Box("disk", (0, 0, 5, 5), difficult=True),))
    write_voc(path, hard)
    split = read_voc_split(tmp_path, 2008, "val")
    assert split.boxes[0][0].difficult and split.labels == [{"disk"}]


def test_what_is_missing_is_named(devkit: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="VOC2010 is no folder"):
        read_voc_split(devkit, 2010)
    with pytest.raises(FileNotFoundError, match=r"test\.txt is missing"):
        read_voc_split(devkit, 2012, "test")
    with pytest.raises(ValueError, match="year must be one of"):
        read_voc_split(devkit, 1999)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lists no image"),
        ("../../etc/passwd\n", "no name of VOC's"),
        ("a\na\n", "lists an image twice"),
        ("nothing_there\n", "is missing: the split lists an image without annotation"),
        ("\u00e4\n", "no list of images"),
    ],
)
def test_hostile_lists_are_refused(tmp_path: Path, text: str, message: str) -> None:
    write_devkit(tmp_path, 2007, {"val": 1})
    (tmp_path / "VOC2007/ImageSets/Main/val.txt").write_text(text, "utf-8")
    with pytest.raises(AnnotationError, match=message):
        read_voc_split(tmp_path, 2007, "val")
    with pytest.raises(AnnotationError, match="no name of VOC's"):
        read_voc_split(tmp_path, 2007, "../val")


def small_detector() -> WeaklySupervisedDetector:
    kernel = bw.kernels.RBF(4.0, 0.8)
    model = bw.ProbitVGPMIL(
        kernel=kernel, n_inducing=20, learn_hyperparameters=False, instance_score="posterior"
    )
    return WeaklySupervisedDetector(model, proposals=SlidingWindows((16,), top=9), n_components=8)


def test_the_curve_over_the_share_of_boxes(devkit: Path) -> None:
    heard: list[str] = []
    results = reproduce_voc(
        devkit, shares=(0.0, 1.0), detector=small_detector(), progress=heard.append
    )
    assert [r.share for r in results] == [0.0, 1.0]
    assert heard == ["0% of 24 training images boxed", "100% of 24 training images boxed"]
    for r in results:
        assert set(r.corloc) == {"cross", "disk"} == set(r.average_precision)
        scores = [*r.average_precision.values(), *r.eleven_point.values(), *r.corloc.values()]
        assert np.all((np.array(scores) >= 0) & (np.array(scores) <= 1))
    # Told boxes are proposals of the training images too, so that all are found.
    assert results[1].means[2] >= results[0].means[2]
    table = voc_table(results)
    assert "| 100 % |" in table and "| disk | 0 % |" in table


def test_classes_that_cannot_be_scored_are_refused(devkit: Path) -> None:
    with pytest.raises(ValueError, match=r"classes \['zebra'\] cannot be trained"):
        reproduce_voc(devkit, classes=["disk", "zebra"], detector=small_detector())
    with pytest.raises(ValueError, match="between 0 and 1"):
        reproduce_voc(devkit, shares=(2.0,))
