"""Region proposals: the boxes of an image that may hold an object [V17, 3.3]."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.boxes import as_boxes
from bagwise.core.parameters import check_integer, check_number
from bagwise.io.requirements import install_line

Floats = NDArray[np.float64]


def sliding_windows(
    shape: tuple[int, ...],
    sizes: Sequence[float],
    *,
    aspects: Sequence[float] = (1.0,),
    stride: float = 0.25,
) -> Floats:
    """(n, 4) windows of several sizes and aspect ratios at regular steps over an image.

    Parameters
    ----------
    shape : (height, width, ...) of the image.
    sizes : square roots of the windows' areas, in pixels. Windows larger than the image are left
        out.
    aspects : width / height.
    stride : step as a share of the window's width and height. The last window of a row touches
        the border.

    >>> sliding_windows((8, 8), [8, 6], stride=0.5)
    array([[0., 0., 8., 8.],
           [0., 0., 6., 6.],
           [2., 0., 8., 6.],
           [0., 2., 6., 8.],
           [2., 2., 8., 8.]])
    """
    height, width = shape[:2]
    check_number("stride", stride, above=0)
    windows = []
    for size, aspect in itertools.product(sizes, aspects):
        check_number("sizes", size, above=0)
        check_number("aspects", aspect, above=0)
        w, h = (round(size * aspect**0.5), round(size / aspect**0.5))
        if not (1 <= w <= width and 1 <= h <= height):
            continue
        xs, ys = _steps(width - w, stride * w), _steps(height - h, stride * h)
        x, y = (grid.ravel() for grid in np.meshgrid(xs, ys))
        windows.append(np.column_stack([x, y, x + w, y + h]))
    if not windows:
        raise ValueError(
            f"no window of sizes {list(sizes)} fits into an image of {height} x {width} pixels; "
            "give smaller sizes"
        )
    return np.concatenate(windows).astype(np.float64)


def _steps(room: float, step: float) -> Floats:
    """Whole numbers from 0 to `room`, both included, not farther than `step` from each other."""
    n = int(np.ceil(room / max(step, 1.0)))
    return np.unique(np.rint(np.linspace(0.0, room, n + 1)))


@dataclass(frozen=True)
class SlidingWindows:
    """Propose windows of several sizes, the `top` ones whose content does not run over the border.

    See `sliding_windows` for `sizes`, `aspects`, `stride` and `objectness` for the order. With
    `top=None` all windows are proposed.

    >>> image = np.zeros((32, 32)); image[8:16, 8:16] = 1.0
    >>> SlidingWindows(sizes=(12,), top=1)(image)
    array([[ 6.,  6., 18., 18.]])
    """

    sizes: tuple[float, ...] = (16, 24, 32)
    aspects: tuple[float, ...] = (1.0,)
    stride: float = 0.25
    top: int | None = 60

    def __call__(self, image: Any) -> Floats:
        """(n, 4) boxes, best first if `top` is given."""
        image = np.asarray(image)
        windows = sliding_windows(image.shape, self.sizes, aspects=self.aspects, stride=self.stride)
        if self.top is None:
            return windows
        check_integer("top", self.top, at_least=1)
        order = np.argsort(-objectness(image, windows), kind="stable")
        return windows[order[: self.top]]


def objectness(image: Any, boxes: Any) -> Floats:
    """(n,) how much contour lies inside each box, less what crosses its border.

    Contour is the strength of the image's gradient. A box that encloses an object has contours
    inside and none on its rim (one pixel wide): score = (sum inside - 3 x sum on the rim) /
    perimeter.

    >>> image = np.zeros((20, 20)); image[5:10, 5:10] = 1.0
    >>> whole, cut, empty = objectness(image, [[2, 2, 13, 13], [7, 2, 18, 13], [11, 11, 19, 19]])
    >>> bool(whole > max(cut, empty))
    True
    """
    grey = grey_values(image)
    strength = np.hypot(*np.gradient(grey))
    sums = np.pad(np.cumsum(np.cumsum(strength, axis=0), axis=1), ((1, 0), (1, 0)))
    outer = _clipped(as_boxes(boxes), grey.shape)
    shrink = np.array([1, 1, -1, -1])
    roomy = np.all(outer[:, 2:] - outer[:, :2] > 2, axis=1, keepdims=True)
    inner = np.where(roomy, outer + shrink, outer)
    inside = _box_sums(sums, inner)
    rim = _box_sums(sums, outer) - inside
    perimeter = 2 * np.sum(outer[:, 2:] - outer[:, :2], axis=1)
    return (inside - 3 * rim) / perimeter


def _clipped(boxes: Floats, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Boxes in whole pixels, cut at the border of the image."""
    height, width = shape[:2]
    return np.clip(np.rint(boxes), 0, [width, height, width, height]).astype(np.int64)


def _box_sums(sums: Floats, boxes: NDArray[np.int64]) -> Floats:
    """Sum over each box from cumulated sums."""
    x0, y0, x1, y1 = boxes.T
    return np.asarray(sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0])


def grey_values(image: Any) -> Floats:
    """(height, width) grey values of a grey or a colour image, channels last.

    >>> grey_values(np.ones((2, 3, 3))).shape
    (2, 3)
    """
    array = np.asarray(image, dtype=np.float64)
    if array.ndim == 3 and array.shape[2] in (1, 3, 4):
        array = array[:, :, :3].mean(axis=2)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            "an image is a (height, width) or (height, width, 3) array; got shape "
            f"{np.shape(image)}"
        )
    if not np.all(np.isfinite(array)):
        raise ValueError("an image must be finite; got NaN or infinity; fill such pixels in")
    return array


@dataclass(frozen=True)
class SelectiveSearch:
    """Propose boxes by OpenCV's selective search; needs opencv-contrib-python.

    `fast` is OpenCV's quick mode. At most `top` boxes are kept, in OpenCV's order; those smaller
    than `min_side` pixels on a side are left out.
    """

    fast: bool = True
    top: int = 200
    min_side: int = 8

    def __call__(self, image: Any) -> Floats:
        """(n, 4) boxes."""
        cv2 = _require_ximgproc()
        check_integer("top", self.top, at_least=1)
        grey_values(image)
        search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
        search.setBaseImage(_as_bgr(np.asarray(image)))
        if self.fast:
            search.switchToSelectiveSearchFast()
        else:
            search.switchToSelectiveSearchQuality()
        found = np.asarray(search.process(), dtype=np.float64).reshape(-1, 4)
        found = found[np.all(found[:, 2:] >= self.min_side, axis=1)][: self.top]
        return np.column_stack([found[:, :2], found[:, :2] + found[:, 2:]])


def _as_bgr(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Bytes with three channels, in OpenCV's order; grey values 0..1 are stretched to 0..255."""
    stretched = image if image.dtype == np.uint8 else image * (255.0 if image.max() <= 1 else 1.0)
    colour = np.repeat(stretched[:, :, None], 3, axis=2) if image.ndim == 2 else stretched[:, :, :3]
    return np.ascontiguousarray(np.clip(colour, 0, 255).astype(np.uint8)[:, :, ::-1])


def _require_ximgproc() -> Any:
    try:
        import cv2
        import cv2.ximgproc.segmentation
    except ImportError as error:
        raise ImportError(
            "selective search needs OpenCV with its contrib modules, which is not installed; run: "
            f"{install_line('detection')}, or use SlidingWindows()"
        ) from error
    return cv2
