"""The detection experiment of [V17, 4.3] on PASCAL VOC: mAP and CorLoc over the share of boxes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.boxes import Detection
from bagwise.core.parameters import check_integer, check_number
from bagwise.detection.detector import WeaklySupervisedDetector
from bagwise.detection.devkit import VocSplit, read_voc_split
from bagwise.detection.encoders import GradientHistograms
from bagwise.detection.metrics import average_precision, corloc
from bagwise.detection.proposals import SlidingWindows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class VocScores:
    """Scores of a detector by class, for one share of training images whose boxes it was told."""

    share: float
    average_precision: dict[str, float]  # VOC 2010 and later: area under the curve, test images
    eleven_point: dict[str, float]  # VOC 2007's average precision
    corloc: dict[str, float]  # training images

    @property
    def means(self) -> tuple[float, float, float]:
        """mAP, 11-point mAP and CorLoc: means over the classes."""
        each = (self.average_precision, self.eleven_point, self.corloc)
        ap, eleven, located = (float(np.mean(list(scores.values()))) for scores in each)
        return ap, eleven, located


def reproduce_voc(
    data: str | os.PathLike[str],
    *,
    year: int = 2007,
    train: str = "trainval",
    test: str = "test",
    shares: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    classes: Sequence[str] | None = None,
    detector: WeaklySupervisedDetector | None = None,
    max_images: int | None = None,
    random_state: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> list[VocScores]:
    """Train on image labels and on the boxes of a growing share of images; score each detector.

    Parameters
    ----------
    data : the folder VOCdevkit.
    year, train, test : official splits; those of 2012 have "train" and "val" with annotations.
    shares : of training images whose boxes are told, each from 0 (image labels only) to 1; larger
        shares contain the images of smaller ones.
    classes : some of VOC's; default all that training and test images show.
    detector : an unfitted detector, of which copies are fitted, with its proposals, encoder (such
        as `torchvision_features`) and model; default `WeaklySupervisedDetector()`. Features of each
        box are computed once, and kept in single precision: 4 D bytes for each box.
    max_images : only so many of the first images of either split, for a quick look.
    random_state : seed of the order in which images are boxed, and of models.
    progress : is told what is being done.
    """
    for share in shares:
        if check_number("a share of boxed images", share, at_least=0) > 1:
            raise ValueError(f"shares are between 0 and 1, got {share}")
    if max_images is not None:
        check_integer("max_images", max_images, at_least=2)
    parts = [read_voc_split(data, year, name).first(max_images) for name in (train, test)]
    names = _classes(parts, classes)
    start = WeaklySupervisedDetector() if detector is None else detector
    order = np.random.default_rng(random_state).permutation(len(parts[0]))
    known = [Regions(part, start.proposals, start.encoder) for part in parts]
    results = []
    for share in shares:
        progress(f"{share:.0%} of {len(order)} training images boxed")
        boxed = order[: round(share * len(order))]
        results.append(_scored(start, parts, known, names, share, boxed, random_state))
    return results


def voc_table(results: Sequence[VocScores]) -> str:
    """Markdown tables of what `reproduce_voc` found: means over shares, and each class.

    >>> one = VocScores(0.0, {"dog": 0.25}, {"dog": 0.5}, {"dog": 0.75})
    >>> print(voc_table([one]).splitlines()[2])
    | 0 % | 0.250 | 0.500 | 0.750 |
    """
    lines = ["| images boxed | mAP | mAP, 11-point | CorLoc |", "|---|---|---|---|"]
    for r in results:
        lines.append(f"| {r.share:.0%} | ".replace("%", " %") + _cells(r.means) + " |")
    lines += ["", "| class | images boxed | AP | AP, 11-point | CorLoc |", "|---|---|---|---|---|"]
    for r in results:
        for name, ap in r.average_precision.items():
            scores = (ap, r.eleven_point[name], r.corloc[name])
            lines.append(f"| {name} | {r.share:.0%} | ".replace("%", " %") + _cells(scores) + " |")
    return "\n".join(lines) + "\n"


def _cells(scores: Sequence[float]) -> str:
    return " | ".join(f"{s:.3f}" for s in scores)


class Regions:
    """Proposals and features of the images of a split, each computed once.

    Stands in for an encoder where images are given by their names.
    """

    def __init__(self, split: VocSplit, propose: Any, encoder: Any) -> None:
        self.split = split
        self._propose = SlidingWindows() if propose is None else propose
        self._encoder = GradientHistograms() if encoder is None else encoder
        self._rows: dict[str, dict[tuple[float, ...], NDArray[np.float32]]] = {}
        self._proposals: dict[str, Floats] = {}

    def proposals(self, name: str) -> Floats:
        """(n, 4) boxes of an image."""
        if name not in self._proposals:
            boxes = np.asarray(self._propose(self.split.image(name)), dtype=np.float64)
            self._proposals[name] = boxes
        return self._proposals[name]

    def __call__(self, name: str, boxes: Any) -> NDArray[np.float32]:
        """(n, D) features of boxes of an image."""
        known = self._rows.setdefault(name, {})
        keys = [tuple(box) for box in np.asarray(boxes, dtype=np.float64).tolist()]
        new = list(dict.fromkeys(key for key in keys if key not in known))
        if new:
            features = np.asarray(self._encoder(self.split.image(name), np.array(new)))
            known.update(zip(new, features.astype(np.float32), strict=True))
        return np.stack([known[key] for key in keys])


def _classes(parts: Sequence[VocSplit], asked: Sequence[str] | None) -> list[str]:
    """Classes that some of the training images show, not all, and that the test can judge."""
    train, test = parts
    boxed = {b.label for objects in test.boxes for b in objects if not b.difficult}
    located = {b.label for objects in train.boxes for b in objects if not b.difficult}
    found = sorted(boxed & located) if asked is None else list(asked)
    shown = [c for c in found if 0 < sum(c in held for held in train.labels) < len(train)]
    missing = sorted(set(found) - set(shown) | (set(found) - (boxed & located)))
    if (asked is not None and missing) or not shown:
        raise ValueError(
            f"classes {missing} cannot be trained and scored: some training images must show a "
            "class and others not, and test images have boxes of it; choose others, or more images"
        )
    return shown


def _scored(
    start: WeaklySupervisedDetector,
    parts: Sequence[VocSplit],
    known: Sequence[Regions],
    names: list[str],
    share: float,
    boxed: NDArray[np.intp],
    seed: int,
) -> VocScores:
    train, test = parts
    wanted = set(names)
    y = [held & wanted for held in train.labels]
    told = set(boxed.tolist())
    boxes = [b if i in told else None for i, b in enumerate(train.boxes)] if told else None
    # A clone would copy the network of an encoder, too.
    own = {"encoder": known[0], "class_names": names, "random_state": seed}
    detector = WeaklySupervisedDetector(**(start.get_params(deep=False) | own))
    given = [known[0].proposals(name) for name in train.ids]
    detector.fit(train.ids, y, boxes=boxes, proposals=given)
    on_train = detector.detect(train.ids, proposals=given)
    detector.set_params(encoder=known[1])
    on_test = detector.detect(test.ids, proposals=[known[1].proposals(name) for name in test.ids])

    def precision(name: str, method: str, found: list[list[Detection]] = on_test) -> float:
        return average_precision(test.boxes, found, name, method=method)

    return VocScores(
        float(share),
        {name: precision(name, "continuous") for name in names},
        {name: precision(name, "11-point") for name in names},
        {name: corloc(train.boxes, on_train, name) for name in names},
    )
