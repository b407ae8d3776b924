"""What a detector learns from: classes of images, and boxes where they are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.boxes import Box, boxes_of

Array = NDArray[Any]
Flags = NDArray[np.bool_]


def image_targets(
    images: Sequence[Any], y: Any, names: Sequence[Any] | None
) -> tuple[Array, Flags]:
    """Classes (K,) and which images show each, (n, K).

    >>> image_targets([0, 1], [{"dog", "cat"}, set()], None)[1]
    array([[ True,  True],
           [False, False]])
    """
    if len(y) != len(images):
        raise ValueError(f"y must have one entry per image, {len(images)}; got {len(y)}")
    matrix = isinstance(y, np.ndarray) and y.ndim == 2
    classes, T = _from_matrix(y, names) if matrix else _from_sets(y, names)
    for name, count in zip(classes.tolist(), T.sum(axis=0), strict=True):
        if count in (0, len(T)):
            which, other = ("no", "with") if count == 0 else ("every", "without")
            raise ValueError(
                f"{which} image shows class {name!r}, so it cannot be told from the rest; add "
                f"images {other} it, or leave the class out"
            )
    return classes, T


def _from_matrix(y: Array, names: Sequence[Any] | None) -> tuple[Array, Flags]:
    if not np.all(np.isin(y, (0, 1))):
        raise ValueError("a label matrix holds 0 and 1 only; give a set of classes per image")
    classes = np.arange(y.shape[1]) if names is None else np.asarray(names)
    if classes.shape != (y.shape[1],) or len(np.unique(classes)) < len(classes):
        raise ValueError(
            f"class_names must be {y.shape[1]} different names, one per column of y; got {names!r}"
        )
    return classes, y == 1


def _from_sets(y: Sequence[Any], names: Sequence[Any] | None) -> tuple[Array, Flags]:
    for i, held in enumerate(y):
        if isinstance(held, str) or not isinstance(held, set | frozenset | list | tuple):
            raise TypeError(
                "y must have the collection of classes that each image shows, e.g. "
                f"[{{'dog'}}, set()], or be an (n, K) array of 0 and 1; entry {i} is {held!r}"
            )
    found = sorted({c for held in y for c in held})
    if not found:
        raise ValueError("no image shows any class; label some")
    if names is not None and set(found) - set(names):
        raise ValueError(f"y has classes that class_names lacks: {sorted(set(found) - set(names))}")
    classes = np.asarray(found if names is None else list(names))
    return classes, np.array([[c in held for c in classes.tolist()] for held in y], dtype=bool)


def check_boxed_images(
    boxes: Sequence[Sequence[Box] | None] | None, classes: Array, T: Flags
) -> list[Sequence[Box] | None]:
    """Known boxes of each image, which must agree with the labels of the images.

    >>> check_boxed_images(None, np.array(["dog"]), np.array([[True], [False]]))
    [None, None]
    """
    if boxes is None:
        return [None] * len(T)
    if len(boxes) != len(T):
        raise ValueError(
            f"boxes must have one list (or None) per image, {len(T)}; got {len(boxes)}"
        )
    for i, objects in enumerate(boxes):
        if objects is None:
            continue
        boxes_of(objects)
        held = {o.label for o in objects} & set(classes.tolist())
        shown = set(classes[T[i]].tolist())
        if held != shown:
            raise ValueError(
                f"image {i} shows {sorted(shown)} by its label but {sorted(held)} by its boxes; "
                "give all boxes of a boxed image (None if not all are known), or correct y"
            )
    return [None if b is None else list(b) for b in boxes]
