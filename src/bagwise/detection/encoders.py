"""Features of the regions of an image; any callable (image, boxes) -> (n, D) will do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from bagwise.bags.boxes import as_boxes
from bagwise.detection.proposals import grey_values

Floats = NDArray[np.float64]


def crops(image: Any, boxes: Any, side: int) -> Floats:
    """(n, side, side) grey values of the boxes, each resampled to a square.

    Pixels are averaged over the width of a sample where a box is larger than the square.

    >>> crops(np.eye(4), [[0, 0, 4, 4], [0, 0, 2, 2]], 2).round(2)
    array([[[0.5, 0. ],
            [0. , 0.5]],
    <BLANKLINE>
           [[1. , 0. ],
            [0. , 1. ]]])
    """
    grey, boxes = grey_values(image), as_boxes(boxes)
    # Sums up to any point, also between pixels, are the integral of the image as a function that
    # is constant on each pixel: differences give exact means over any rectangle.
    sums = np.pad(np.cumsum(np.cumsum(grey, axis=0), axis=1), ((1, 0), (1, 0)))
    share = np.linspace(0.0, 1.0, side + 1)
    x = boxes[:, 0, None] + share * (boxes[:, 2] - boxes[:, 0])[:, None]  # (n, side + 1)
    y = boxes[:, 1, None] + share * (boxes[:, 3] - boxes[:, 1])[:, None]
    points = np.broadcast_arrays(y[:, :, None], x[:, None, :])
    total = ndimage.map_coordinates(sums, points, order=1, mode="nearest")
    mass = np.diff(np.diff(total, axis=1), axis=2)
    area = np.diff(y, axis=1)[:, :, None] * np.diff(x, axis=1)[:, None, :]
    return np.asarray(mass / area)


@dataclass(frozen=True)
class GradientHistograms:
    """Histograms of gradient directions over a grid of cells: shape without exact position.

    Each box becomes a square of `side` pixels; the gradient's strength is collected by its
    direction (`bins` of them) in `cells` x `cells` cells, each shared smoothly with its
    neighbours. The square roots of these sums, scaled to length 1, are the features.

    >>> GradientHistograms()(np.eye(20), [[0, 0, 20, 20], [5, 5, 15, 15]]).shape
    (2, 128)
    """

    side: int = 16
    cells: int = 4
    bins: int = 8

    def __call__(self, image: Any, boxes: Any) -> Floats:
        """(n, cells * cells * bins) features."""
        squares = crops(image, boxes, self.side)
        dy, dx = np.gradient(squares, axis=(1, 2))
        strength, turn = np.hypot(dx, dy), np.arctan2(dy, dx) / (2 * np.pi) * self.bins
        lower = np.floor(turn)
        upper_share = turn - lower
        histogram = np.zeros((*squares.shape, self.bins))
        place = np.ix_(*(range(s) for s in squares.shape))
        histogram[(*place, (lower.astype(int)) % self.bins)] += strength * (1 - upper_share)
        histogram[(*place, (lower.astype(int) + 1) % self.bins)] += strength * upper_share
        weights = self._cell_weights()  # (cells, side)
        pooled = np.einsum("ci,dj,nijb->ncdb", weights, weights, histogram, optimize=True)
        flat = np.sqrt(pooled.reshape(len(squares), -1))
        length = np.linalg.norm(flat, axis=1, keepdims=True)
        return flat / np.where(length > 0, length, 1.0)

    def _cell_weights(self) -> Floats:
        """(cells, side) triangular weight of each pixel in each cell along one axis."""
        pixel = (np.arange(self.side) + 0.5) / self.side * self.cells
        centre = np.arange(self.cells) + 0.5
        return np.maximum(0.0, 1.0 - np.abs(pixel[None, :] - centre[:, None]))


@dataclass(frozen=True)
class Pixels:
    """The grey values of each box, resampled to `side` x `side`, with mean 0 and length 1.

    >>> Pixels(4)(np.eye(20), [[0, 0, 20, 20]]).shape
    (1, 16)
    """

    side: int = 8

    def __call__(self, image: Any, boxes: Any) -> Floats:
        """(n, side * side) features."""
        flat = crops(image, boxes, self.side).reshape(-1, self.side**2)
        flat = flat - flat.mean(axis=1, keepdims=True)
        length = np.linalg.norm(flat, axis=1, keepdims=True)
        return flat / np.where(length > 1e-12, length, 1.0)
