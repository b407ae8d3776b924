"""Rows that stay with the workers that read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.rows import RowSource, column_moments, column_range, row_digest
from bagwise.distributed.cluster import Cluster

Array = NDArray[Any]
R = TypeVar("R")

FEW_ROWS = 4096  # of some bags: with so few, messages take longer than what is done with the rows


class DaskRows(RowSource):
    """Rows that stay with the workers that read them: `futures` are the X of each part."""

    def __init__(
        self,
        cluster: Cluster,
        futures: Sequence[Any],
        sizes: Sequence[int],
        n_features: int,
        dtype: Any,
    ) -> None:
        self.cluster = cluster
        self.futures = list(futures)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.shape = (int(self.starts[-1]), n_features)
        self.dtype = np.dtype(dtype)

    def read(self, start: int, stop: int) -> Array:
        return self._gather(np.arange(start, stop))

    def _gather(self, index: NDArray[np.int64]) -> Array:
        out = np.empty((len(index), self.shape[1]), dtype=self.dtype)
        asked, places = self._parts_of(index)
        futures = [
            self.cluster.submit(_rows, self.futures[p], index[at] - self.starts[p])
            for p, at in zip(asked, places, strict=True)
        ]
        for at, rows in zip(places, self.cluster.gather(futures, asked), strict=True):
            out[at] = rows
        return out

    def _parts_of(self, index: NDArray[np.int64]) -> tuple[list[int], list[NDArray[np.intp]]]:
        """Parts that hold some rows, and which of the rows each has."""
        part = np.searchsorted(self.starts, index, side="right") - 1
        asked = np.unique(part).tolist()
        return asked, [np.flatnonzero(part == p) for p in asked]

    def part(self, rows: Any) -> Any:
        """What bags of some of the rows hold: rows that stay where they are, or an array of few."""
        index = np.arange(len(self))[rows]
        if len(index) <= FEW_ROWS or np.any(np.diff(index) <= 0):
            return self[index]
        return self.take(index)

    def in_place(self, work: Callable[[Any, Array], list[R]], offsets: Array) -> list[R]:
        """What `work(rows, offsets)` finds out about the bags of each part, on its worker."""
        ends = np.searchsorted(offsets, self.starts)
        told = [offsets[a : b + 1] - offsets[a] for a, b in pairwise(ends)]
        found = self.cluster.each(work, self.futures, told)
        return [result for part in found for result in part]

    def take(self, index: NDArray[np.int64]) -> DaskRows:
        """Some rows, in rising order, that stay where they are."""
        asked, places = self._parts_of(index)
        cluster = Cluster(self.cluster.client, tuple(self.cluster.names[p] for p in asked))
        futures = [
            cluster.submit(_rows, self.futures[p], index[at] - self.starts[p])
            for p, at in zip(asked, places, strict=True)
        ]
        return DaskRows(cluster, futures, [len(at) for at in places], self.shape[1], self.dtype)

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of each column, each part's on its worker."""
        futures = [self.cluster.submit(column_moments, X) for X in self.futures]
        n, mean, squares = 0, np.zeros(self.shape[1]), np.zeros(self.shape[1])
        sizes = np.diff(self.starts).tolist()
        for size, (its_mean, variance) in zip(sizes, self.cluster.gather(futures), strict=True):
            gap, total = its_mean - mean, n + size
            squares += size * variance + gap**2 * (n * size / total)
            mean += gap * (size / total)
            n = total
        return mean, squares / n

    def range(self) -> tuple[Array, Array]:
        """Lowest and highest value of each column, each part's on its worker."""
        futures = [self.cluster.submit(column_range, X) for X in self.futures]
        lows, highs = zip(*self.cluster.gather(futures), strict=True)
        return np.min(lows, axis=0), np.max(highs, axis=0)

    def digest(self, first: int = 0) -> int:
        """`row_digest` of all rows, each part's by its worker."""
        starts = (first + self.starts[:-1]).tolist()
        futures = [
            self.cluster.submit(row_digest, X, a) for X, a in zip(self.futures, starts, strict=True)
        ]
        return sum(self.cluster.gather(futures)) % 2**64


def _rows(X: Any, index: NDArray[np.int64]) -> Array:
    return X[index]
