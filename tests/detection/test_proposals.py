"""Proposals and encoders."""

from __future__ import annotations

import numpy as np
import pytest

from bagwise.bags.boxes import iou
from bagwise.datasets import make_digit_canvases
from bagwise.detection import (
    GradientHistograms,
    Pixels,
    SelectiveSearch,
    SlidingWindows,
    crops,
    objectness,
    sliding_windows,
)


@pytest.mark.parametrize("size", [5, 8, 16])
def test_windows_cover_the_image_to_its_border(size: int) -> None:
    windows = sliding_windows((30, 41), [size], stride=0.5)
    covered = np.zeros((30, 41), dtype=bool)
    for x0, y0, x1, y1 in windows.astype(int):
        assert 0 <= x0 < x1 <= 41 and 0 <= y0 < y1 <= 30 and x1 - x0 == y1 - y0 == size
        covered[y0:y1, x0:x1] = True
    assert covered.all()
    assert len(np.unique(windows, axis=0)) == len(windows)


def test_aspects_keep_the_area() -> None:
    wide = sliding_windows((40, 40), [10], aspects=[4.0])[0]
    assert (wide[2] - wide[0], wide[3] - wide[1]) == (20, 5)


def test_sizes_that_do_not_fit() -> None:
    assert len(sliding_windows((10, 10), [10, 50])) == 1
    with pytest.raises(ValueError, match="no window of sizes"):
        sliding_windows((10, 10), [50])


def test_most_digits_have_a_proposal() -> None:
    canvases = make_digit_canvases(30, random_state=3)
    propose = SlidingWindows((16, 20, 24), top=60)
    best = [
        iou([b.box], propose(image)).max()
        for image, boxes in zip(canvases.images, canvases.boxes, strict=True)
        for b in boxes
    ]
    assert len(best) > 10 and np.mean(np.array(best) >= 0.5) > 0.9


def test_objectness_prefers_whole_objects() -> None:
    image = np.zeros((30, 30))
    image[10:18, 10:18] = 1.0
    whole, cut, empty = objectness(image, [[8, 8, 20, 20], [13, 8, 25, 20], [19, 19, 29, 29]])
    assert whole > max(cut, empty)
    colour = np.repeat(image[:, :, None], 3, axis=2)
    assert objectness(colour, [[8, 8, 20, 20]])[0] == pytest.approx(whole)


def test_crops_are_exact_means() -> None:
    image = np.arange(48.0).reshape(6, 8)
    got = crops(image, [[1, 2, 5, 6], [0.5, 0, 1.5, 1]], 2)
    blocks = image[2:6, 1:5].reshape(2, 2, 2, 2)
    np.testing.assert_allclose(got[0], blocks.mean(axis=(1, 3)))
    np.testing.assert_allclose(got[1], [[0, 1], [0, 1]])


@pytest.mark.parametrize("encoder", [GradientHistograms(), Pixels()])
def test_encoders_ignore_contrast_and_place(encoder: object) -> None:
    rng = np.random.default_rng(0)
    digit = rng.random((12, 12))
    image = np.zeros((40, 40))
    image[2:14, 3:15] = digit
    image[20:32, 22:34] = 0.5 * digit
    a, b = encoder(image, [[3, 2, 15, 14], [22, 20, 34, 32]])
    np.testing.assert_allclose(a, b, atol=1e-12)
    assert np.linalg.norm(a) == pytest.approx(1)
    assert np.all(encoder(np.zeros((20, 20)), [[0, 0, 9, 9]]) == 0)


@pytest.mark.parametrize("image", [np.zeros((4, 4, 7)), np.zeros(5), np.full((5, 5), np.nan)])
def test_images_that_are_none(image: np.ndarray) -> None:
    with pytest.raises(ValueError, match="image"):
        crops(image, [[0, 0, 2, 2]], 2)


def test_selective_search() -> None:
    pytest.importorskip("cv2.ximgproc", reason='selective search needs: pip install ".[detection]"')
    image = np.zeros((64, 64))
    image[20:40, 10:30] = 1.0
    boxes = SelectiveSearch()(image)
    assert boxes.shape[1] == 4 and iou([[10, 20, 30, 40]], boxes).max() > 0.8
