"""Features in which a code such as -9999 stands for a value that is missing (internal)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.rows import blocks
from bagwise.core.warnings import warn_user

Array = NDArray[Any]

CODES = np.array([float("9" * digits) for digits in range(3, 8)] + [32768.0])  # with either sign
NAMED = 3  # features that a warning names


def warn_of_missing_codes(X: Any, low: Array, high: Array, names: Sequence[str] | None) -> None:
    """Warn where the lowest or highest value of a feature looks like a code for a missing one.

    It is one of `CODES`, occurs more than once, and lies further from all other values than these
    from each other. Features whose ends are no codes, as most are, are not read.
    """
    ends = np.stack([low, high])  # (2, D)
    candidates = np.flatnonzero(np.any(np.isin(np.abs(ends), CODES), axis=0))
    if len(candidates) == 0:
        return
    found = _codes(X, candidates, ends[:, candidates])
    if not found:
        return
    shown = [
        f"{column if names is None else names[column]!r} ({code:g}, {count} times)"
        for column, code, count in found[:NAMED]
    ]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    warn_user(
        f"feature {', '.join(shown)}{more} has a value far from all its others that looks like a "
        "code for 'missing'; it is taken as a measurement, and moves the mean and the scale of the "
        "feature. Replace it (say, by the median of the others, with a column of 0 and 1 beside it "
        "that tells where) or leave the feature out"
    )


def _codes(X: Any, columns: Array, ends: Array) -> list[tuple[int, float, int]]:
    """Column, code and how often it occurs, of those columns (C,) that hold one; ends is (2, C)."""
    is_code = np.isin(np.abs(ends), CODES)
    least, most = np.full(len(columns), np.inf), np.full(len(columns), -np.inf)  # of the others
    counts = np.zeros(ends.shape, dtype=np.int64)
    for rows in blocks(len(X)):
        part = np.asarray(X[rows], dtype=np.float64)[:, columns]
        coded = (part == ends[:, None, :]) & is_code[:, None, :]  # (2, n, C)
        counts += coded.sum(axis=1)
        other = ~coded.any(axis=0)
        least = np.minimum(least, np.min(np.where(other, part, np.inf), axis=0))
        most = np.maximum(most, np.max(np.where(other, part, -np.inf), axis=0))
    gap = np.stack([least - ends[0], ends[1] - most])
    far = is_code & (counts > 1) & np.isfinite(gap) & (gap > most - least)
    return [
        (int(columns[c]), float(ends[end, c]), int(counts[end, c]))
        for c, end in zip(*np.nonzero(far.T), strict=True)
    ]
