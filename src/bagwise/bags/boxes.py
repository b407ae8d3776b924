"""Boxes in images: where they are, what they hold, how much two of them overlap.

A box is (x0, y0, x1, y1) in pixels from the upper left corner of the image, x to the right, y
down, without the end: pixel columns x0..x1-1. Its area is (x1 - x0)(y1 - y0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags.messages import show

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Box:
    """A known object in an image; `difficult` ones count neither as found nor as missed.

    >>> Box("dog", (10, 20, 50, 60)).box
    (10.0, 20.0, 50.0, 60.0)
    """

    label: Any
    box: tuple[float, float, float, float]
    difficult: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "box", tuple(as_boxes([self.box])[0].tolist()))


@dataclass(frozen=True)
class Detection:
    """A box that a detector reports, with the probability of its class and how sure it is of it.

    `score` is the posterior probability that the box shows an object of class `label`, `std` the
    posterior standard deviation of that probability.

    >>> Detection("dog", (10, 20, 50, 60), score=0.9, std=0.05).score
    0.9
    """

    label: Any
    box: tuple[float, float, float, float]
    score: float
    std: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "box", tuple(as_boxes([self.box])[0].tolist()))


def as_boxes(boxes: ArrayLike, name: str = "boxes") -> Floats:
    """(n, 4) finite boxes of positive width and height, or an error.

    >>> as_boxes([[0, 0, 2, 3]])
    array([[0., 0., 2., 3.]])
    """
    array = np.asarray(boxes, dtype=np.float64)
    if array.size == 0:
        return np.zeros((0, 4))
    if array.ndim != 2 or array.shape[1] != 4:
        raise ValueError(
            f"{name} must be an (n, 4) array of (x0, y0, x1, y1); got shape {array.shape}"
        )
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite; got NaN or infinity; leave such boxes out")
    flat = (array[:, 2] <= array[:, 0]) | (array[:, 3] <= array[:, 1])
    if np.any(flat):
        raise ValueError(
            f"{name} must have x1 > x0 and y1 > y0; box {int(np.argmax(flat))} is "
            f"{array[np.argmax(flat)].tolist()}; the order is x0, y0, x1, y1, the end not included"
        )
    return array


def areas(boxes: Floats) -> Floats:
    """(n,) width times height.

    >>> areas(np.array([[0.0, 0.0, 2.0, 3.0]]))
    array([6.])
    """
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def iou(a: ArrayLike, b: ArrayLike) -> Floats:
    """(n, m) overlap of each box of `a` with each of `b`: area in common / area of both together.

    >>> iou([[0, 0, 2, 2]], [[0, 0, 2, 2], [1, 0, 3, 2], [5, 5, 6, 6]]).round(3)
    array([[1.   , 0.333, 0.   ]])
    """
    a, b = as_boxes(a, "a"), as_boxes(b, "b")
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    common = np.prod(np.maximum(high - low, 0.0), axis=2)
    return common / (areas(a)[:, None] + areas(b)[None, :] - common)


def boxes_of(objects: Any, label: Any = None) -> Floats:
    """(n, 4) boxes of `Box` or `Detection` objects, of one class if a label is given.

    >>> boxes_of([Box("dog", (0, 0, 1, 1)), Box("cat", (0, 0, 2, 2))], "cat")
    array([[0., 0., 2., 2.]])
    """
    for o in objects:
        if not isinstance(o, Box | Detection):
            raise TypeError(
                "objects in images are given as bagwise.detection.Box(label, (x0, y0, x1, y1)); "
                f"got {show(o)}"
            )
    chosen = [o.box for o in objects if label is None or o.label == label]
    return np.array(chosen, dtype=np.float64).reshape(-1, 4)
