"""Rows that stay with the workers that read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.rows import RowSource, column_moments, column_range, row_digest
from bagwise.distributed.cluster import Cluster
from bagwise.distributed.rounds import each

Array = NDArray[Any]
R = TypeVar("R")

FEW_ROWS = 4096  # of some bags, which come here

Place = NDArray[np.int64] | None  # of rows in the X of their part; None: it has no others


class DaskRows(RowSource):
    """Rows that stay with the workers that read them.

    `futures` are the X of each part, of which only the rows at its `places` are meant, if any are
    named. What is done with a part, is done by its worker.
    """

    def __init__(
        self,
        cluster: Cluster,
        futures: Sequence[Any],
        sizes: Sequence[int],
        n_features: int,
        dtype: Any,
        places: Sequence[Place] | None = None,
    ) -> None:
        self.cluster = cluster
        self.futures = list(futures)
        self.places = [None] * len(self.futures) if places is None else list(places)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.shape = (int(self.starts[-1]), n_features)
        self.dtype = np.dtype(dtype)

    def read(self, start: int, stop: int) -> Array:
        return self._gather(np.arange(start, stop))

    def _gather(self, index: NDArray[np.int64]) -> Array:
        out = np.empty((len(index), self.shape[1]), dtype=self.dtype)
        asked, where = self._parts_of(index)
        futures = [
            self.cluster.submit(rows_at, self.futures[p], self._place(p, index[at]))
            for p, at in zip(asked, where, strict=True)
        ]
        for at, rows in zip(where, self.cluster.gather(futures, asked), strict=True):
            out[at] = rows
        return out

    def _parts_of(self, index: NDArray[np.int64]) -> tuple[list[int], list[NDArray[np.intp]]]:
        """Parts that hold some rows, and which of the rows each has."""
        part = np.searchsorted(self.starts, index, side="right") - 1
        asked = np.unique(part).tolist()
        return asked, [np.flatnonzero(part == p) for p in asked]

    def _place(self, p: int, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where rows of part p are in its X."""
        own, place = index - self.starts[p], self.places[p]
        return own if place is None else place[own]

    def part(self, rows: Any) -> Any:
        """What bags of some of the rows hold: rows that stay where they are, or an array of few."""
        index = np.arange(len(self))[rows]
        if are_few(len(index)) or np.any(np.diff(index) <= 0):
            return self[index]
        return self.take(index)

    def in_place(self, work: Callable[[Any, Array], list[R]], offsets: Array) -> list[R]:
        """What `work(rows, offsets)` finds out about the bags of each part, on its worker."""
        ends = np.searchsorted(offsets, self.starts)
        told = [
            (place, offsets[a : b + 1] - offsets[a])
            for place, (a, b) in zip(self.places, pairwise(ends), strict=True)
        ]
        found = each(self.cluster, partial(_of_some, work), self.futures, told)
        return [result for part in found for result in part]

    def take(self, index: NDArray[np.int64]) -> DaskRows:
        """Some rows, in rising order, that stay where they are."""
        asked, where = self._parts_of(index)
        cluster = Cluster(self.cluster.client, tuple(self.cluster.names[p] for p in asked))
        futures = [self.futures[p] for p in asked]
        places = [self._place(p, index[at]) for p, at in zip(asked, where, strict=True)]
        sizes = [len(place) for place in places]
        return DaskRows(cluster, futures, sizes, self.shape[1], self.dtype, places)

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of each column, each part's on its worker."""
        n, mean, squares = 0, np.zeros(self.shape[1]), np.zeros(self.shape[1])
        sizes = np.diff(self.starts).tolist()
        for size, (_, (its_mean, variance)) in zip(sizes, self._columns, strict=True):
            gap, total = its_mean - mean, n + size
            squares += size * variance + gap**2 * (n * size / total)
            mean += gap * (size / total)
            n = total
        return mean, squares / n

    def range(self) -> tuple[Array, Array]:
        """Lowest and highest value of each column, each part's on its worker."""
        lows, highs = zip(*(found for found, _ in self._columns), strict=True)
        return np.min(lows, axis=0), np.max(highs, axis=0)

    @cached_property
    def _columns(self) -> list[tuple[tuple[Array, Array], tuple[Array, Array]]]:
        """Range and moments of the columns of each part, which every fit asks for."""
        return self._found(_range_and_moments)

    def digest(self, first: int = 0) -> int:
        """`row_digest` of all rows, each part's by its worker."""
        return sum(self._found(row_digest, (first + self.starts[:-1]).tolist())) % 2**64

    def _found(self, function: Callable[..., R], *told: Sequence[Any]) -> list[R]:
        """What a function finds out about the rows of each part, with its own of what is told."""
        futures = [
            self.cluster.submit(_of_rows, function, X, place, *own)
            for X, place, *own in zip(self.futures, self.places, *told, strict=True)
        ]
        return self.cluster.gather(futures)


def are_few(n_rows: int) -> bool:
    """Whether rows of some bags come here: messages take longer than what is done with them."""
    return n_rows <= FEW_ROWS


# --- What runs on workers -----------------------------------------------------------------------


def rows_at(X: Any, place: Place) -> Any:
    """The rows of a part that are meant."""
    return X if place is None else X[place]


def _range_and_moments(X: Any) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    return column_range(X), column_moments(X)


def _of_rows(function: Callable[..., R], X: Any, place: Place, *told: Any) -> R:
    return function(rows_at(X, place), *told)


def _of_some(work: Callable[[Any, Array], R], X: Any, told: tuple[Place, Array]) -> R:
    place, offsets = told
    return work(rows_at(X, place), offsets)
