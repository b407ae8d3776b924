"""[V17, Table 3 and Fig. 4]: detection from image labels, on canvases or on a VOC folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.boxes import Box
from bagwise.benchmark.registry import Problem
from bagwise.benchmark.reproduce.figures import Curves, Picture
from bagwise.benchmark.reproduce.table import Figures, Plan, Published, Table, trials
from bagwise.datasets import make_digit_canvases
from bagwise.detection import (
    GradientHistograms,
    SlidingWindows,
    WeaklySupervisedDetector,
    average_precision,
    corloc,
    reproduce_voc,
)
from bagwise.models import VGPMIL, LargeMarginVGPMIL, ProbitVGPMIL

CLASSES = (0, 6)
BOXED = (0, 10, 50, 100)
VOC2007 = "VOC 2007"
COLUMNS = ("mAP", "CorLoc")


def detection_table(plan: Plan) -> Table:
    """Table 3 and Figure 4: mAP and CorLoc, without boxes and with some."""
    folder = voc_folder(plan)
    n_train, n_test = plan.pick((300, 150), (60, 40), (12, 8))
    if folder is None:
        problem = Problem("digit canvases", _described(n_train, n_test))
        measure = partial(on_canvases, n_train=n_train, n_test=n_test)
    else:
        problem = Problem(f"{VOC2007}, given folder", _described(n_train, n_test))
        limit = plan.pick(None, 200, 20)
        measure = partial(on_voc, folder=str(folder), limit=limit)
    shares = plan.pick(BOXED, BOXED, (0, 100))
    rows = [
        trial
        for share in shares
        for trial in trials(
            "detection",
            [problem],
            {boxed(name, share): model for name, model in _models().items()},
            partial(measure, share=share),
        )
    ]
    published = [
        Published(VOC2007, "VGPMIL", {"mAP": 0.461, "CorLoc": 0.660}),
        Published(VOC2007, "LM-VGPMIL", {"mAP": 0.431, "CorLoc": 0.625}),
        Published("VOC 2012", "VGPMIL", {"mAP": 0.346, "CorLoc": 0.583}),
        Published("VOC 2012", "LM-VGPMIL", {"mAP": 0.378, "CorLoc": 0.608}),
    ]
    title = "Table 3 and Figure 4: object detection"
    picture = Picture(
        "detection",
        "mAP on test images and CorLoc on training images by the share of boxed images",
        [_curves(measure, shares) for measure in COLUMNS],
    )
    notes = _notes(folder)
    return Table("detection", title, COLUMNS, rows, published, notes, pictures=[picture])


def boxed(name: str, share: int) -> str:
    """The setting of a model that is told the boxes of so many percent of the images."""
    return f"{name}, {share} % of images boxed"


def _curves(measure: str, shares: tuple[int, ...]) -> Curves:
    series = {name: [(boxed(name, share), measure) for share in shares] for name in _models()}
    return Curves("images with boxes, %", measure, shares, series)


def _notes(folder: Path | None) -> tuple[str, ...]:
    what = (
        "VOC cannot be fetched here. Stand-in: canvases of scikit-learn's digits, classes 0 and 6."
        if folder is None
        else f"Images and splits of {folder.name}; trainval for training and CorLoc, test for mAP."
    )
    return (
        what,
        "The paper has proposals and features of a Faster R-CNN; here they are sliding windows "
        "and histograms of gradients, so the figures are not comparable with it.",
        "`--data FOLDER` takes a folder with VOCdevkit/VOC2007 or VOC2007 (Annotations, "
        "ImageSets/Main, JPEGImages).",
    )


def _models() -> dict[str, Any]:
    return {
        "VGPMIL": VGPMIL(n_inducing=50, bag_score="max"),
        "LM-VGPMIL": LargeMarginVGPMIL(n_inducing=50, bag_score="max"),
        "bagwise's ProbitVGPMIL": ProbitVGPMIL(n_inducing=50, bag_score="max"),
    }


def _described(n_train: int, n_test: int) -> Bags:
    """Bags that only say which data are meant: images are made or read in the trial."""
    return Bags.from_list([[[float(n_train)]], [[float(n_test)]]], y=[0, 1])


def voc_folder(plan: Plan) -> Path | None:
    """The folder VOC2007 in one of the data folders."""
    for home in plan.source.homes():
        for path in (Path(home), Path(home) / "VOC2007", Path(home) / "VOCdevkit" / "VOC2007"):
            named = path.resolve().name == "VOC2007"
            if named and (path / "Annotations").is_dir() and (path / "ImageSets" / "Main").is_dir():
                return path
    return None


def on_canvases(
    problem: Problem, model: Any, seed: int, *, n_train: int, n_test: int, share: int
) -> Figures:
    """mAP on test canvases and CorLoc on training canvases."""
    train = make_digit_canvases(n_train, CLASSES, random_state=seed)
    test = make_digit_canvases(n_test, CLASSES, subset="test", random_state=seed + 1)
    detector = WeaklySupervisedDetector(
        model,
        proposals=SlidingWindows((16, 20, 24), top=40),
        class_names=CLASSES,
        random_state=seed,
    )
    both = (train.images, train.boxes), (test.images, test.boxes)
    return detected(detector, train.y, *both, share, CLASSES)


def on_voc(
    problem: Problem, model: Any, seed: int, *, folder: str, limit: int | None, share: int
) -> Figures:
    """The same on a folder of VOC, at most `limit` images of each part."""
    detector = WeaklySupervisedDetector(
        model, proposals=SlidingWindows(top=50), encoder=GradientHistograms(), random_state=seed
    )
    how: dict[str, Any] = {"detector": detector, "max_images": limit, "random_state": seed}
    (found,) = reproduce_voc(Path(folder).resolve().parent, shares=[share / 100], **how)
    mean_precision, _, located = found.means
    return {"mAP": mean_precision, "CorLoc": located}


def detected(
    detector: WeaklySupervisedDetector,
    y: Any,
    train: tuple[Any, list[list[Box]]],
    test: tuple[Any, list[list[Box]]],
    share: int,
    classes: tuple[Any, ...],
) -> Figures:
    """Fit with so many percent of the images boxed, and score."""
    n = len(train[1])
    boxed = np.random.default_rng(0).permutation(n)[: round(share / 100 * n)]
    known = [b if i in boxed else None for i, b in enumerate(train[1])] if share else None
    detector.fit(train[0], y, boxes=known)
    on_train, on_test = detector.detect(train[0]), detector.detect(test[0])
    return {
        "mAP": float(np.nanmean([average_precision(test[1], on_test, c) for c in classes])),
        "CorLoc": float(np.nanmean([corloc(train[1], on_train, c) for c in classes])),
    }
