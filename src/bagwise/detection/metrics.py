"""Scores of detections against known boxes, as PASCAL VOC defines them.

`truth` is a list with the `Box` objects of each image, `detections` a list with the `Detection`
objects of each image, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.boxes import Box, Detection, boxes_of, iou
from bagwise.core.parameters import check_choice, check_number

Floats = NDArray[np.float64]
Truth = Sequence[Sequence[Box]]
Detections = Sequence[Sequence[Detection]]


def average_precision(
    truth: Truth,
    detections: Detections,
    label: Any,
    *,
    overlap: float = 0.5,
    method: str = "continuous",
) -> float:
    """Area under the precision-recall curve of one class.

    From the best score down, a detection is right if the true box that it overlaps most does so
    by at least `overlap` and has not been found yet, and wrong otherwise; those on `difficult`
    boxes are not counted. `method` is "continuous" (VOC 2010 and later: the area under the
    precision made monotone) or "11-point" (VOC 2007: its mean at recalls 0, 0.1, ..., 1).

    >>> truth = [[Box("dog", (0, 0, 10, 10))], [Box("dog", (0, 0, 10, 10))]]
    >>> found = [[Detection("dog", (0, 0, 10, 9), 0.9, 0.1)],
    ...          [Detection("dog", (5, 5, 15, 15), 0.8, 0.1)]]
    >>> average_precision(truth, found, "dog")
    0.5
    """
    check_choice("method", method, ("continuous", "11-point"))
    recall, precision = precision_recall(truth, detections, label, overlap=overlap)
    return _eleven_point(recall, precision) if method == "11-point" else _area(recall, precision)


def mean_average_precision(
    truth: Truth, detections: Detections, *, overlap: float = 0.5, method: str = "continuous"
) -> float:
    """Mean of `average_precision` over the classes that occur in `truth`.

    >>> truth = [[Box("dog", (0, 0, 10, 10)), Box("cat", (0, 0, 5, 5))]]
    >>> mean_average_precision(truth, [[Detection("dog", (0, 0, 10, 10), 0.9, 0.1)]])
    0.5
    """
    labels = {o.label: None for objects in truth for o in objects if not o.difficult}
    if not labels:
        raise ValueError("truth has no box (or difficult ones only); give some")
    each = [
        average_precision(truth, detections, label, overlap=overlap, method=method)
        for label in labels
    ]
    return float(np.mean(each))


def precision_recall(
    truth: Truth, detections: Detections, label: Any, *, overlap: float = 0.5
) -> tuple[Floats, Floats]:
    """Recall and precision after each detection of one class, best score first.

    >>> truth = [[Box("dog", (0, 0, 10, 10))]]
    >>> first = Detection("dog", (0, 0, 10, 9), score=0.9, std=0.1)
    >>> again = Detection("dog", (0, 0, 9, 9), score=0.8, std=0.1)
    >>> precision_recall(truth, [[first, again]], "dog")
    (array([1., 1.]), array([1. , 0.5]))
    """
    _check_images(truth, detections, overlap)
    total = sum(o.label == label and not o.difficult for objects in truth for o in objects)
    if total == 0:
        raise ValueError(f"truth has no box of class {label!r}, so its recall is not defined")
    verdicts = [
        pair
        for objects, found in zip(truth, detections, strict=True)
        for pair in _judge(objects, found, label, overlap)
    ]
    # Stable: of equal scores the detection of the earlier image comes first.
    ranked = sorted(verdicts, key=lambda pair: -pair[0])
    right = np.array([good for _, good in ranked], dtype=np.float64)
    hits = np.cumsum(right)
    return hits / total, hits / np.arange(1, len(hits) + 1)


def _judge(
    objects: Sequence[Box], found: Sequence[Detection], label: Any, overlap: float
) -> list[tuple[float, bool]]:
    """Score and verdict of each detection of an image; those on difficult boxes are left out."""
    known = [o for o in objects if o.label == label]
    mine = sorted((d for d in found if d.label == label), key=lambda d: -d.score)
    if not known:
        return [(d.score, False) for d in mine]
    overlaps = iou(boxes_of(mine), boxes_of(known))
    taken: set[int] = set()
    verdicts = []
    for d, row in zip(mine, overlaps, strict=True):
        best = int(np.argmax(row))
        if row[best] >= overlap and known[best].difficult:
            continue
        good = bool(row[best] >= overlap) and best not in taken
        verdicts.append((d.score, good))
        if good:
            taken.add(best)
    return verdicts


def corloc(truth: Truth, detections: Detections, label: Any, *, overlap: float = 0.5) -> float:
    """Share of the images with the class whose best detection of it lies on a true box.

    An image without any detection of the class counts as wrong (CorLoc, Deselaers et al. 2012).

    >>> truth = [[Box("dog", (0, 0, 10, 10))], [Box("dog", (0, 0, 10, 10))]]
    >>> corloc(truth, [[Detection("dog", (0, 0, 10, 9), 0.9, 0.1)], []], "dog")
    0.5
    """
    _check_images(truth, detections, overlap)
    right = []
    for objects, found in zip(truth, detections, strict=True):
        known = boxes_of([o for o in objects if not o.difficult], label)
        if len(known) == 0:
            continue
        mine = [d for d in found if d.label == label]
        best = [max(mine, key=lambda d: d.score)] if mine else []
        right.append(bool(np.any(iou(boxes_of(best), known) >= overlap)))
    if not right:
        raise ValueError(f"no image has a true box of class {label!r}, so CorLoc is not defined")
    return float(np.mean(right))


def _check_images(truth: Truth, detections: Detections, overlap: float) -> None:
    check_number("overlap", overlap, above=0)
    if len(truth) != len(detections):
        raise ValueError(
            "truth and detections must have one list per image; got "
            f"{len(truth)} and {len(detections)}"
        )


def _area(recall: Floats, precision: Floats) -> float:
    """Area under the precision that is the best at this recall or a larger one."""
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * envelope))


def _eleven_point(recall: Floats, precision: Floats) -> float:
    """Mean over recalls 0, 0.1, ..., 1 of the best precision at this recall or a larger one."""
    levels = np.arange(11) / 10
    return float(np.mean([np.max(precision[recall >= r - 1e-12], initial=0.0) for r in levels]))
