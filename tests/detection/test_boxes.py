"""Boxes, overlaps and non-maximum suppression against counting pixels and brute force."""

from __future__ import annotations

import numpy as np
import pytest

from bagwise.bags.boxes import Box, as_boxes, boxes_of, iou
from bagwise.detection import non_maximum_suppression


def random_boxes(rng: np.random.Generator, n: int, side: int = 20) -> np.ndarray:
    corner = rng.integers(0, side - 1, (n, 2))
    return np.column_stack([corner, corner + rng.integers(1, side // 2, (n, 2))]).astype(float)


def pixels(box: np.ndarray, side: int = 40) -> np.ndarray:
    x0, y0, x1, y1 = box.astype(int)
    mask = np.zeros((side, side), dtype=bool)
    mask[y0:y1, x0:x1] = True
    return mask


@pytest.mark.parametrize("seed", range(3))
def test_iou_counts_pixels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_boxes(rng, 12), random_boxes(rng, 9)
    counted = [
        [(pixels(p) & pixels(q)).sum() / (pixels(p) | pixels(q)).sum() for q in b] for p in a
    ]
    np.testing.assert_allclose(iou(a, b), counted)


def test_iou_by_hand() -> None:
    # 10 x 10 boxes shifted by (5, 5): 25 of 175 in common.
    assert iou([[0, 0, 10, 10]], [[5, 5, 15, 15]])[0, 0] == pytest.approx(25 / 175)
    assert iou([[0, 0, 10, 10]], [[10, 0, 20, 10]])[0, 0] == 0
    assert iou(np.zeros((0, 4)), [[0, 0, 1, 1]]).shape == (0, 1)


def slow_nms(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> list[int]:
    """Drop a box if any better box that itself was not dropped overlaps it too much."""
    order = sorted(range(len(boxes)), key=lambda i: (-scores[i], i))
    kept: list[int] = []
    for i in order:
        if all(iou(boxes[[i]], boxes[[j]])[0, 0] <= threshold for j in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_nms_equals_brute_force(seed: int, threshold: float) -> None:
    rng = np.random.default_rng(seed)
    boxes = random_boxes(rng, 60)
    scores = rng.integers(0, 20, 60) / 20  # with ties
    found = non_maximum_suppression(boxes, scores, threshold)
    assert found.tolist() == slow_nms(boxes, scores, threshold)


def test_nms_of_nothing() -> None:
    assert non_maximum_suppression(np.zeros((0, 4)), []).shape == (0,)


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ([[0, 0, 1]], r"\(n, 4\)"),
        ([[0, 0, 0, 1]], r"x1 > x0 and y1 > y0; box 0 is"),
        ([[0, 0, np.nan, 1]], "finite"),
    ],
)
def test_boxes_that_are_none(boxes: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_boxes(boxes)
    with pytest.raises((ValueError, TypeError)):
        Box("dog", boxes[0])


def test_objects_must_be_boxes() -> None:
    with pytest.raises(TypeError, match=r"bagwise\.detection\.Box"):
        boxes_of([(0, 0, 1, 1)])
