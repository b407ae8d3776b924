"""Rows of features that need not fit in memory: read in ranges, scaled and looked at on the way."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise.core.warnings import warn_user

Array = NDArray[Any]
R = TypeVar("R")

BLOCK_ROWS = 4096
# Stand for values that are missing, with either sign.
CODES = np.array([float("9" * digits) for digits in range(3, 8)] + [32768.0])
CODES_NAMED = 3  # features that a warning names


class RowSource(ABC):
    """An (N, D) table of features that lives elsewhere; slices of it are arrays.

    Subclasses read a range of rows. `source[5:9]`, `source[[3, 1]]` and `source[mask]` read what
    they need in ranges; `np.asarray(source)` reads everything.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    elsewhere: ClassVar[bool] = True  # not in memory

    @abstractmethod
    def read(self, start: int, stop: int) -> Array:
        """Rows start..stop-1 as an array of `dtype`."""

    def part(self, rows: Any) -> Any:
        """What bags of some of the rows hold: an array of them."""
        return self[rows]

    def in_place(self, work: Callable[[Any, Array], list[R]], offsets: Array) -> list[R]:
        """What `work(rows, offsets)` finds out about bags of all rows, done where the rows are.

        Where they are in several places, it is asked of the bags in each, and the lists are joined.
        """
        return work(self, offsets)

    @property
    def ndim(self) -> int:
        """Always 2."""
        return 2

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of each column."""
        return _block_moments(self)

    def range(self) -> tuple[Array, Array]:
        """Lowest and highest value of each column."""
        found = [
            (np.min(X, axis=0), np.max(X, axis=0)) for X in (self[b] for b in blocks(len(self)))
        ]
        lows, highs = zip(*found, strict=True)
        return np.min(lows, axis=0), np.max(highs, axis=0)

    def digest(self, first: int = 0) -> int:
        """`row_digest` of all rows."""
        return _block_digest(self, first)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self.read(start, max(start, stop))
            return self[np.arange(start, stop, step)]
        if isinstance(rows, tuple):
            raise TypeError(
                "rows that live in a file are read whole: take source[rows] first, then columns"
            )
        index = np.asarray(rows)
        if index.dtype == bool:
            if index.shape != (len(self),):
                raise IndexError(f"a mask of {len(self)} rows is needed, got shape {index.shape}")
            index = np.flatnonzero(index)
        index = index.astype(np.int64)
        if np.any((index < -len(self)) | (index >= len(self))):
            raise IndexError(f"rows go from 0 to {len(self) - 1}, got {index[...]!r:.80}")
        index = np.where(index < 0, index + len(self), index)
        if index.ndim == 0:
            return self.read(int(index), int(index) + 1)[0]
        return self._gather(index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.read(0, len(self)), dtype=dtype)

    def _gather(self, index: NDArray[np.int64]) -> Array:
        """Any rows, each block of the source read once."""
        out = np.empty((len(index), self.shape[1]), dtype=self.dtype)
        order = np.argsort(index, kind="stable")
        block = index[order] // BLOCK_ROWS
        for part in np.split(order, np.flatnonzero(np.diff(block)) + 1):
            if len(part):
                first = int(index[part[0]])
                out[part] = self.read(first, int(index[part[-1]]) + 1)[index[part] - first]
        return out


class ScaledRows(RowSource):
    """(X - shift) / scale in the dtype asked for, computed for the rows that are read.

    >>> X = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> ScaledRows(X, np.ones(2), np.full(2, 2.0))[:]
    array([[0. , 0.5],
           [1. , 1.5]])
    """

    def __init__(self, X: Any, shift: Array, scale: Array, dtype: Any = None) -> None:
        self.X = X
        self.shape = (len(X), X.shape[1])
        self.dtype = np.dtype(X.dtype if dtype is None else dtype)
        self.shift, self.scale = shift, scale

    def read(self, start: int, stop: int) -> Array:
        return self._scaled(self.X[start:stop])

    def _gather(self, index: NDArray[np.int64]) -> Array:
        return self._scaled(self.X[index])

    def moments(self) -> tuple[Array, Array]:
        mean, variance = column_moments(self.X)
        return (mean - self.shift) / self.scale, variance / np.square(self.scale, dtype=np.float64)

    def _scaled(self, X: Array) -> Array:
        return scaled_rows(X, self.shift, self.scale, self.dtype)


def scaled_rows(X: Array, shift: Array, scale: Array, dtype: Any) -> Array:
    """(X - shift) / scale, rounded to `dtype` at the end: large means would cancel before.

    >>> scaled_rows(np.array([[1e8 + 1]]), np.array([1e8]), np.ones(1), np.float32)
    array([[1.]], dtype=float32)
    """
    return ((X - shift) / scale).astype(dtype, copy=False)


class RowRange:
    """Some consecutive rows of a source, read only when they are looked at."""

    def __init__(self, source: RowSource, rows: slice) -> None:
        self.source = source
        self.rows = rows

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.source[self.rows], dtype=dtype)


def blocks(n_rows: int, size: int = BLOCK_ROWS) -> Iterator[slice]:
    """Slices of `size` rows that cover all of them.

    >>> list(blocks(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return (slice(a, min(a + size, n_rows)) for a in range(0, n_rows, size))


def column_moments(X: Any) -> tuple[Array, Array]:
    """Mean and variance of each column in float64, in one pass over blocks of rows.

    The blocks' moments are joined by the formula of Chan, Golub and LeVeque, which does not
    cancel where means are large.

    >>> column_moments(np.array([[1.0, 5.0], [3.0, 5.0]]))
    (array([2., 5.]), array([1., 0.]))
    """
    return X.moments() if isinstance(X, RowSource) else _block_moments(X)


def column_range(X: Any) -> tuple[Array, Array]:
    """Lowest and highest value of each column.

    >>> column_range(np.array([[1.0, 5.0], [3.0, 5.0]]))
    (array([1., 5.]), array([3., 5.]))
    """
    return X.range() if isinstance(X, RowSource) else (np.min(X, axis=0), np.max(X, axis=0))


def row_digest(X: Any, first: int = 0) -> int:
    """A number that changes with any value of X and with the order of rows.

    Digests of parts, each told the number of its `first` row, add up to that of the whole modulo
    2^64, wherever X is cut. It tells accidents from the same data, not forgeries.

    >>> X = np.arange(6.0).reshape(3, 2)
    >>> (row_digest(X[:1]) + row_digest(X[1:], first=1)) % 2**64 == row_digest(X)
    True
    >>> row_digest(X[::-1]) == row_digest(X)
    False
    """
    return X.digest(first) if isinstance(X, RowSource) else _block_digest(X, first)


def _block_digest(X: Any, first: int = 0) -> int:
    factors = np.random.default_rng(0).integers(2**63, size=X.shape[1], dtype=np.uint64) * 2 + 1
    total = 0
    for rows in blocks(len(X)):
        bits = np.array(X[rows], dtype=np.float64, order="C").view(np.uint64)
        # Numbers of few digits end in zero bits, which a product alone would keep at the end.
        mixed = _mix(_mix(bits) * factors)
        places = np.arange(first + rows.start, first + rows.stop, dtype=np.uint64)
        total += int(np.sum(_mix(mixed.sum(axis=1) + _mix(places + np.uint64(1)))))
    return total % 2**64


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection in which every bit of the argument moves about half of the bits."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def _block_moments(X: Any) -> tuple[Array, Array]:
    n, mean, squares = 0, np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for rows in blocks(len(X)):
        block = np.asarray(X[rows], dtype=np.float64)
        its_mean = block.mean(axis=0)
        block = block - its_mean
        total = n + len(block)
        gap = its_mean - mean
        squares += np.einsum("nd,nd->d", block, block) + gap**2 * (n * len(block) / total)
        mean += gap * (len(block) / total)
        n = total
    return mean, squares / max(n, 1)


def is_elsewhere(X: Any) -> bool:
    """Whether rows stay in a file: a source, or an array over a memory map.

    >>> is_elsewhere(np.zeros((2, 2)))
    False
    """
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap):
            return True
        X = X.base
    if isinstance(X, memoryview):
        X = X.obj
    if isinstance(X, ScaledRows):
        return is_elsewhere(X.X)
    return X.elsewhere if isinstance(X, RowSource) else isinstance(X, mmap.mmap)


def warn_of_missing_codes(X: Any, low: Array, high: Array, names: Sequence[str] | None) -> None:
    """Warn where the lowest or highest value of a feature looks like a code for a missing one.

    It is one of `CODES`, occurs more than once, and lies further from all other values than these
    from each other. Features whose ends are no codes, as most are, are not read.
    """
    ends = np.stack([low, high])  # (2, D)
    candidates = np.flatnonzero(np.any(np.isin(np.abs(ends), CODES), axis=0))
    if len(candidates) == 0:
        return
    found = _coded_columns(X, candidates, ends[:, candidates])
    if not found:
        return
    shown = [
        f"{column if names is None else names[column]!r} ({code:g}, {count} times)"
        for column, code, count in found[:CODES_NAMED]
    ]
    more = f" and {len(found) - CODES_NAMED} more" if len(found) > CODES_NAMED else ""
    warn_user(
        f"feature {', '.join(shown)}{more} has a value far from all its others that looks like a "
        "code for 'missing'; it is taken as a measurement, and moves the mean and the scale of the "
        "feature. Replace it (say, by the median of the others, with a column of 0 and 1 beside it "
        "that tells where) or leave the feature out"
    )


def _coded_columns(X: Any, columns: Array, ends: Array) -> list[tuple[int, float, int]]:
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
