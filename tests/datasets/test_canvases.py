"""Digit canvases: boxes are where the digits are, labels say which occur."""

from __future__ import annotations

import numpy as np
import pytest

from bagwise.bags.boxes import iou
from bagwise.datasets import make_digit_canvases


def test_labels_agree_with_boxes() -> None:
    canvases = make_digit_canvases(40, (3, 6), random_state=0)
    for row, boxes in zip(canvases.y, canvases.boxes, strict=True):
        assert sorted(b.label for b in boxes) == [
            c for c, held in zip((3, 6), row, strict=True) if held
        ]
    assert canvases.images.min() >= 0 and canvases.images.max() <= 1
    assert 0.2 < canvases.y.mean() < 0.6


def test_boxes_hold_ink_and_do_not_overlap() -> None:
    canvases = make_digit_canvases(30, (3, 6), fragments=0, distractors=0, noise=0, random_state=1)
    for image, boxes in zip(canvases.images, canvases.boxes, strict=True):
        outside = image.copy()
        for b in boxes:
            x0, y0, x1, y1 = (int(v) for v in b.box)
            assert image[y0:y1, x0:x1].max() > 0.5 and (x1 - x0) in (16, 20, 24)
            outside[y0:y1, x0:x1] = 0
        assert np.all(outside == 0), "there is ink outside the boxes"
        if len(boxes) == 2:
            assert iou([boxes[0].box], [boxes[1].box])[0, 0] == 0


def test_seeds_and_subsets() -> None:
    a, b = (make_digit_canvases(5, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(a.images, b.images)
    other = make_digit_canvases(5, subset="test", random_state=7)
    assert not np.array_equal(a.images, other.images)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": (3, 3)}, "different digits"),
        ({"classes": (11,)}, "digits 0..9"),
        ({"share": 1.0}, "between 0 and 1"),
        ({"sizes": (4,)}, "between 8 and side"),
        ({"side": 26, "distractors": 3}, "no free place"),
        ({"subset": "all"}, "subset must be one of"),
    ],
)
def test_settings_that_are_wrong(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_digit_canvases(3, random_state=0, **settings)
