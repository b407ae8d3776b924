"""Passes over the data: chunks cut between bags, one pure function, results added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise.features import Whitener
from bagwise.labels import Targets
from bagwise.sites import Chunk

Array = NDArray[Any]
DEFAULT_CHUNK = 4096
FLOAT64_FEATURES = 2**24  # 128 MiB


class _Additive(Protocol):
    def __add__(self, other):  # type: ignore[no-untyped-def]
        ...


S = TypeVar("S", bound=_Additive)


class TrainingData:
    """Scaled instances with 0/1 bag labels, cut into chunks of about `chunk_size` rows."""

    def __init__(
        self,
        X: Array,
        offsets: NDArray[np.int64],
        T: NDArray[np.bool_],
        known: Array | None = None,
        chunk_size: int | None = None,
        graph: Any = None,
    ) -> None:
        self.X = X
        self.offsets = offsets
        self.T = T
        self.known = known
        self.graph = graph
        self.chunk_size = chunk_size or DEFAULT_CHUNK
        self.cuts = bag_cuts(offsets, self.chunk_size)

    def subsample(self, max_rows: int, rng: np.random.Generator) -> TrainingData:
        """About `max_rows` rows in whole bags, the same share of both labels, in float64.

        Its chunks have the default size, so that what is learned from it does not depend on
        the rounding of other chunkings.
        """
        share = max_rows / len(self.X)
        if share >= 1:
            X = self.X.astype(np.float64, copy=False)
            return TrainingData(X, self.offsets, self.T, self.known)
        picked = [rng.permutation(np.flatnonzero(t == self.T)) for t in (True, False)]
        bags = np.sort(np.concatenate([b[: max(1, round(share * len(b)))] for b in picked]))
        part = self.of_bags(bags)
        X = part.X.astype(np.float64, copy=False)
        return TrainingData(X, part.offsets, part.T, part.known)

    def of_bags(self, bags: NDArray[np.intp]) -> TrainingData:
        """Some of the bags, in chunks of the same number of rows."""
        sizes = np.diff(self.offsets)[bags]
        rows = np.concatenate([np.arange(self.offsets[b], self.offsets[b + 1]) for b in bags])
        known = None if self.known is None else self.known[rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return TrainingData(self.X[rows], offsets, self.T[bags], known, self.chunk_size)

    def chunks(self, whitener: Whitener) -> Iterator[Chunk]:
        """Compute the features chunk by chunk, in the data's dtype where they are many.

        Few features stay in float64, where float32 would save nothing and its rounding would
        show along the flat directions of the bound.
        """
        many = len(self.X) * len(whitener.Z) > FLOAT64_FEATURES
        dtype = self.X.dtype if many else np.dtype(np.float64)
        for first, last in zip(self.cuts[:-1], self.cuts[1:], strict=True):
            rows = slice(self.offsets[first], self.offsets[last])
            X = self.X[rows]
            A, kt = (x.astype(dtype, copy=False) for x in whitener(X))
            graph = None if self.graph is None else self.graph[rows][:, rows]
            yield Chunk(X, A, kt, self.targets(int(first), int(last)), int(rows.start), graph)

    def targets(self, first: int, last: int) -> Targets:
        """Labels of bags first..last-1."""
        starts = self.offsets[first:last]
        known = None
        if self.known is not None:
            known = self.known[self.offsets[first] : self.offsets[last]]
            known = None if np.all(np.isnan(known)) else known
        sizes = np.diff(self.offsets[first : last + 1])
        return Targets(starts - starts[0], sizes, self.T[first:last], known)


class Sweeper:
    """Chunks whose features are kept in memory, and the one way to sum over them."""

    def __init__(self, data: TrainingData, whitener: Whitener) -> None:
        self.whitener = whitener
        self.chunks = list(data.chunks(whitener))

    def total(self, step: Callable[[Chunk], S]) -> S:
        """Sum of `step(chunk)` over all chunks, in order."""
        return reduce(add, map(step, self.chunks))


def bag_cuts(offsets: NDArray[np.int64], chunk_size: int) -> NDArray[np.int64]:
    """Bag numbers at which to cut so that chunks have about `chunk_size` rows and whole bags.

    >>> bag_cuts(np.array([0, 3, 6, 9, 20]), 6)
    array([0, 2, 3, 4])
    """
    cuts = [0]
    n_bags = len(offsets) - 1
    while cuts[-1] < n_bags:
        limit = offsets[cuts[-1]] + chunk_size
        end = int(np.searchsorted(offsets, limit, side="right")) - 1
        cuts.append(max(end, cuts[-1] + 1))  # a bag larger than a chunk is one chunk
    return np.asarray(cuts)
