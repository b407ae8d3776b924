"""Handwritten digits scattered over cluttered canvases, with known boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits

from bagwise.bags.boxes import Box, iou
from bagwise.core.parameters import check_choice, check_integer, check_number

Floats = NDArray[np.float64]

# The digits file is sorted by writer: its last third is written by other people than the rest.
TEST_SHARE = 1 / 3
PLACEMENTS = 2_000  # layouts that are tried


@dataclass(frozen=True)
class Canvases:
    """Images, which classes each of them shows, and where.

    images : (n, side, side) grey values from 0 to 1.
    y : (n, K) 1 where the image shows the class: all that training needs.
    boxes : for each image the list of its `Box` objects, for evaluation.
    classes : the K digits.
    """

    images: Floats
    y: NDArray[np.int64]
    boxes: list[list[Box]]
    classes: tuple[int, ...]


def make_digit_canvases(
    n_images: int = 300,
    classes: tuple[int, ...] = (0, 6),
    *,
    side: int = 64,
    sizes: tuple[int, ...] = (16, 20, 24),
    share: float = 0.4,
    distractors: int = 1,
    fragments: int = 6,
    noise: float = 0.05,
    subset: str = "train",
    random_state: Any = None,
) -> Canvases:
    """Scatter scikit-learn's digits over canvases with clutter between them.

    Each class occurs in a canvas with probability `share`, once; `distractors` digits of other
    classes and `fragments` pieces of digits (quarters, turned at random) lie around it. Digits do
    not overlap each other. A digit's box is the square of its `sizes` that it was drawn in.
    `subset="train"` and `"test"` draw on digits written by different people.

    >>> canvases = make_digit_canvases(5, random_state=0)
    >>> canvases.images.shape, canvases.y.shape, len(canvases.boxes)
    ((5, 64, 64), (5, 2), 5)
    """
    check_integer("n_images", n_images, at_least=1)
    check_integer("distractors", distractors, at_least=0)
    check_integer("fragments", fragments, at_least=0)
    check_number("noise", noise, at_least=0)
    check_choice("subset", subset, ("train", "test"))
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share!r}")
    if not sizes or max(sizes) > side or min(sizes) < 8:
        raise ValueError(f"sizes must lie between 8 and side={side}, got {sizes!r}")
    pools = _pools(classes, subset)
    rng = np.random.default_rng(random_state)
    y = (rng.random((n_images, len(classes))) < share).astype(np.int64)
    drawn = [
        _draw_canvas(
            rng, [c for c, held in zip(classes, row, strict=True) if held], pools,
            side=side, sizes=sizes, distractors=distractors, fragments=fragments, noise=noise,
        )
        for row in y
    ]  # fmt: skip
    images = np.stack([image for image, _ in drawn])
    return Canvases(images, y, [boxes for _, boxes in drawn], tuple(classes))


def _pools(classes: tuple[int, ...], subset: str) -> dict[int | None, Floats]:
    """Digit images of each class, and under None those of all other digits."""
    known = all(isinstance(c, int | np.integer) and 0 <= c <= 9 for c in classes)
    if not known or not 1 <= len(set(classes)) == len(classes) <= 9:
        raise ValueError(f"classes must be one to nine different digits 0..9, got {classes!r}")
    images, digits = load_digits(return_X_y=True)
    cut = round(len(images) * (1 - TEST_SHARE))
    part = slice(cut) if subset == "train" else slice(cut, None)
    images, digits = images[part].reshape(-1, 8, 8) / 16.0, digits[part]
    pools: dict[int | None, Floats] = {c: images[digits == c] for c in classes}
    return pools | {None: images[~np.isin(digits, classes)]}


def _draw_canvas(
    rng: np.random.Generator,
    held: list[int],
    pools: dict[int | None, Floats],
    *,
    side: int,
    sizes: tuple[int, ...],
    distractors: int,
    fragments: int,
    noise: float,
) -> tuple[Floats, list[Box]]:
    """One canvas that shows the digits `held`, and their boxes."""
    wanted: list[int | None] = [*held, *[None] * distractors]
    extents = [int(rng.choice(sizes)) for _ in wanted]
    corners = _places(rng, extents, side)
    canvas = np.zeros((side, side))
    for _ in range(fragments):
        _add_fragment(canvas, pools[None], rng, int(rng.choice(sizes)) // 2)
    boxes = []
    for digit, size, (x, y) in zip(wanted, extents, corners, strict=True):
        pool = pools[digit]
        # A digit hides the clutter behind it: pieces would make it another digit.
        canvas[y : y + size, x : x + size] = _resized(pool[rng.integers(len(pool))], size)
        if digit is not None:
            boxes.append(Box(int(digit), (x, y, x + size, y + size)))
    canvas += noise * rng.normal(size=canvas.shape)
    return np.clip(canvas, 0.0, 1.0), boxes


def _places(rng: np.random.Generator, extents: list[int], side: int) -> list[tuple[int, int]]:
    """Upper left corners of squares that do not overlap; all are drawn anew until they do not."""
    room = side - np.array(extents, dtype=np.int64)
    for _ in range(PLACEMENTS):
        corners = rng.integers(0, room[:, None] + 1, (len(extents), 2))
        squares = np.column_stack([corners, corners + np.array(extents, dtype=np.int64)[:, None]])
        overlap = iou(squares, squares)
        if np.all(overlap[~np.eye(len(extents), dtype=bool)] == 0):
            return [(int(x), int(y)) for x, y in corners]
    raise ValueError(
        f"{len(extents)} digits of sizes {extents} found no free place on a canvas of side {side}; "
        "make side larger, or sizes or distractors smaller"
    )


def _add_fragment(canvas: Floats, pool: Floats, rng: np.random.Generator, size: int) -> None:
    """Lay a quarter of a digit, turned at random, somewhere on the canvas."""
    digit = pool[rng.integers(len(pool))]
    i, j = rng.integers(0, 5, 2)
    piece = np.rot90(digit[i : i + 4, j : j + 4], int(rng.integers(4)))
    x, y = rng.integers(0, len(canvas) - size + 1, 2)
    here = canvas[y : y + size, x : x + size]
    np.maximum(here, _resized(piece, size), out=here)


def _resized(image: Floats, size: int) -> Floats:
    """The image interpolated to size x size pixels."""
    zoomed = ndimage.zoom(image, size / len(image), order=1, mode="nearest", grid_mode=True)
    return np.asarray(zoomed)
