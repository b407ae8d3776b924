"""Passes over the data: chunks cut between bags, one pure function, results added up."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property, partial, reduce
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.rows import BLOCK_ROWS, RowRange, RowSource, ScaledRows, blocks
from bagwise.core.features import Features, Whitener, common_features, in_single_precision
from bagwise.core.inference.feature_store import store
from bagwise.core.inference.stats import Chunk
from bagwise.core.likelihoods.at_least_one import Targets
from bagwise.core.threads import in_threads

Array = NDArray[Any]
DEFAULT_CHUNK = BLOCK_ROWS
FLOAT64_FEATURES = 2**24  # 128 MiB
MORE_BAGS = 4  # times the rows of other chunks, where these are few numbers
ENOUGH_CHUNKS = 16  # of larger ones, whatever threads there are: digits do not depend on these
CHUNK_ENTRIES = 2**22  # 32 MiB in float64
FEATURE_ROWS = 1024  # of a block of features that is computed at once, where there are many


class _Additive(Protocol):
    def __add__(self, other):  # type: ignore[no-untyped-def]
        ...


S = TypeVar("S", bound=_Additive)
T = TypeVar("T")


class TrainingData:
    """Scaled instances with bag labels, cut into chunks of about `chunk_size` rows.

    X is an array or a `RowSource`; `memory_budget` is how many bytes of features are kept, unless
    they are `given`: A and kt of all rows. `weights` say how many rows each row stands for,
    `counts` how many times each bag counts, `reliability` how probably its label is right.
    """

    def __init__(
        self,
        X: Array | RowSource,
        offsets: NDArray[np.int64],
        T: NDArray[np.bool_],
        known: Array | None = None,
        chunk_size: int | None = None,
        graph: Any = None,
        memory_budget: int = sys.maxsize,
        weights: Array | None = None,
        counts: Array | None = None,
        given: tuple[Array, Array] | None = None,
        reliability: Array | None = None,
    ) -> None:
        self.X = X
        self.offsets = offsets
        self.T = T
        self.known = known
        self.graph = graph
        self.memory_budget = memory_budget
        self.weights = weights
        self.counts = counts
        self.given = given
        self.reliability = reliability
        self.chunk_size = chunk_size or rows_of_large_chunks(len(X), X.shape[1])
        self.cuts = bag_cuts(offsets, self.chunk_size)

    def of_rows(self, rows: NDArray[np.int64], weights: Array) -> TrainingData:
        """Rows in rising order, with the number of rows that each stands for.

        Bags of which there are none are left out. The rows are in memory, in float64 and in chunks
        of the default size, so that what is learned from them does not depend on the rounding of
        other chunkings.
        """
        X = np.asarray(self.X[rows], dtype=np.float64)
        offsets = np.searchsorted(rows, self.offsets)
        bags = np.flatnonzero(np.diff(offsets))
        known = None if self.known is None else self.known[rows]
        labels = (np.unique(offsets), self.T[bags], known)
        return TrainingData(X, *labels, weights=weights, counts=self.counts_of(bags))

    def in_memory(self) -> TrainingData:
        """All rows, in memory as those of `of_rows`."""
        X = np.asarray(self.X[:], dtype=np.float64)
        labels = (self.offsets, self.T, self.known)
        return TrainingData(X, *labels, counts=self.counts, reliability=self.reliability)

    def repeated(self) -> TrainingData:
        """As many copies of each bag as it counts, each counting once."""
        if self.counts is None:
            return self
        data = self.of_bags(np.repeat(np.arange(len(self.T)), self.counts.astype(np.int64)))
        data.counts = None
        return data

    @property
    def counting(self) -> NDArray[np.intp]:
        """Numbers of the bags that count at all."""
        return np.arange(len(self.T)) if self.counts is None else np.flatnonzero(self.counts)

    @property
    def n_counted(self) -> float:
        """How many bags there are, each as often as it counts."""
        return len(self.T) if self.counts is None else float(np.sum(self.counts))

    @property
    def row_counts(self) -> Array | None:
        """(n,) how many times the bag of each row counts; None if once."""
        return None if self.counts is None else np.repeat(self.counts, np.diff(self.offsets))

    def counts_of(self, bags: Any) -> Array | None:
        """How many times some bags count."""
        return None if self.counts is None else self.counts[bags]

    def reliability_of(self, bags: Any) -> Array | None:
        """How probably the labels of some bags are right."""
        return None if self.reliability is None else self.reliability[bags]

    def of_bags(self, bags: NDArray[np.intp]) -> TrainingData:
        """Some of the bags, in chunks of the same number of rows."""
        rows, sizes = self._rows_of(bags)
        known = None if self.known is None else self.known[rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return TrainingData(
            self.X[rows],
            offsets,
            self.T[bags],
            known,
            self.chunk_size,
            memory_budget=self.memory_budget,
            counts=self.counts_of(bags),
            reliability=self.reliability_of(bags),
        )

    def _rows_of(self, bags: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of some bags, and how many each has."""
        rows = np.concatenate([np.arange(self.offsets[b], self.offsets[b + 1]) for b in bags])
        return rows, np.diff(self.offsets)[bags]

    def one_pass(self, whitener: Features, step: Callable[[Chunk], S]) -> S:
        """Sum of `step(chunk)` over all chunks, whose features are not kept."""
        source = FeatureSource(self, whitener)
        return reduce(add, in_threads(lambda i: step(source.chunk(i)), len(source)))

    def sweeper(self, whitener: Features, *, recompute: bool = True, dtype: Any = None) -> Sweeper:
        """Passes over the chunks with their features."""
        data = self.with_common_features(whitener, dtype)
        return Sweeper(data, whitener, recompute=recompute, dtype=dtype)

    def with_common_features(self, whitener: Features, dtype: Any) -> TrainingData:
        """The data with features that an earlier one of several fits has computed, if any."""
        common, source = common_features(), FeatureSource(self, whitener, dtype)
        if common is None or self.given is not None or not isinstance(whitener, Whitener):
            return self
        if source.feature_bytes > min(self.memory_budget, common.budget):
            return self
        data, told = copy(self), (source.dtype, source.feature_bytes)
        data.given = common(*rows_and_scaling(self.X), whitener, *told, source.all_features)
        return data

    def targets(self, first: int, last: int) -> Targets:
        """Labels of bags first..last-1."""
        starts = self.offsets[first:last]
        known = None
        if self.known is not None:
            known = self.known[self.offsets[first] : self.offsets[last]]
            known = None if np.all(np.isnan(known)) else known
        sizes = np.diff(self.offsets[first : last + 1])
        weights = self.weights
        if weights is not None:
            weights = weights[self.offsets[first] : self.offsets[last]]
        some = slice(first, last)
        told = (weights, self.counts_of(some), self.reliability_of(some))
        return Targets(starts - starts[0], sizes, self.T[some], known, *told)


class FeatureSource:
    """Computes the features of any chunk, in the data's dtype where they are many.

    Few features stay in float64, where float32 would save nothing and its rounding would
    show along the flat directions of the bound. `start` is the data's first row in the whole.
    """

    def __init__(
        self, data: TrainingData, whitener: Features, dtype: Any = None, start: int = 0
    ) -> None:
        self.data = data
        self.whitener = whitener
        self.start = start
        size = len(data.X) * len(whitener)
        self.large = size > FLOAT64_FEATURES
        usual = data.X.dtype if self.large else np.dtype(np.float64)
        if data.given is not None:
            usual = data.given[0].dtype
        self.dtype = usual if dtype is None else np.dtype(dtype)
        self.feature_bytes = size * self.dtype.itemsize
        self.effort = whitener.effort

    def __len__(self) -> int:
        return len(self.data.cuts) - 1

    def all_features(self) -> tuple[Array, Array]:
        """A and kt of all rows, which several fits may read."""
        chunks = list(in_threads(self.chunk, len(self)))
        A, kt = (np.concatenate(part) for part in zip(*((c.A, c.kt) for c in chunks), strict=True))
        A.flags.writeable = kt.flags.writeable = False
        return A, kt

    def chunk(self, i: int) -> Chunk:
        """Features and labels of the i-th chunk."""
        data = self.data
        first, last = int(data.cuts[i]), int(data.cuts[i + 1])
        rows = slice(int(data.offsets[first]), int(data.offsets[last]))
        X = data.X[rows]
        given = data.given
        A, kt = self._features(X) if given is None else (self._cast(x[rows]) for x in given)
        # What is read or scaled anew in each pass is not kept as well.
        kept = RowRange(data.X, rows) if isinstance(data.X, RowSource) else X
        graph = None if data.graph is None else data.graph[rows][:, rows]
        return Chunk(kept, A, kt, data.targets(first, last), self.start + rows.start, graph)

    @cached_property
    def _compute(self) -> Features:
        """The whitener, in float32 where that is what is kept and it will do."""
        if self.dtype == np.float32 and isinstance(self.whitener, Whitener):
            return in_single_precision(self.whitener)
        return self.whitener

    def _features(self, X: Array) -> tuple[Array, Array]:
        """A and kt, by blocks whose float64 stays in a core's memory, of many bags at a time."""
        if not self.large and self.dtype == np.float64:
            A, kt = self._compute(X)
            return self._cast(A), self._cast(kt)
        A = np.empty((len(X), len(self.whitener)), dtype=self.dtype)
        kt = np.empty(len(X), dtype=self.dtype)
        for rows in blocks(len(X), FEATURE_ROWS):
            A[rows], kt[rows] = self._compute(X[rows])
        return A, kt

    def _cast(self, x: Array) -> Array:
        return x.astype(self.dtype, copy=False)


class Sweeper:
    """Chunks with their features, kept as the budget allows, and the one way to sum over them."""

    whitener: Any  # a Whitener, or the Columns of a linear model
    chunks: Sequence[Chunk]
    large: bool  # a pass costs much: a good start pays

    def __init__(
        self, data: TrainingData, whitener: Features, *, recompute: bool = True, dtype: Any = None
    ) -> None:
        self.whitener = whitener
        source = FeatureSource(data, whitener, dtype)
        self.large = source.large
        self.chunks = store(source, data.memory_budget, recompute=recompute)

    def total(self, step: Callable[[Chunk], S]) -> S:
        """Sum of `step(chunk)` over all chunks, in order."""
        return reduce(add, in_threads(lambda i: step(self.chunks[i]), len(self.chunks)))


def by_chunk(
    X: Any, offsets: Array, work: Callable[[Array, slice, Array], T], n_basis: int | None = None
) -> list[T]:
    """What `work` finds out about chunks of whole bags, done where the rows X are.

    It is given the rows of a chunk, their place among those in the same memory, and the offsets of
    their bags. Where it makes `n_basis` features of a row, and profits from many bags, of which
    more have about the same size, chunks are larger, if enough are left for threads to share.
    """
    here = partial(_chunks_here, work, n_basis)
    offsets = np.asarray(offsets)
    return X.in_place(here, offsets) if isinstance(X, RowSource) else here(X, offsets)


def _chunks_here(
    work: Callable[[Array, slice, Array], T], n_basis: int | None, X: Any, offsets: Array
) -> list[T]:
    most = rows_per_chunk(X.shape[1])
    if n_basis is not None:
        most = max(most, rows_of_large_chunks(len(X), max(X.shape[1], n_basis)))
    cuts = bag_cuts(offsets, most)

    def of_chunk(i: int) -> T:
        own = offsets[cuts[i] : cuts[i + 1] + 1]
        rows = slice(int(own[0]), int(own[-1]))
        return work(X[rows], rows, own - own[0])

    return list(in_threads(of_chunk, len(cuts) - 1))


def rows_and_scaling(X: Any) -> tuple[Any, tuple[Array, ...]]:
    """Rows as they were given, and what turns them into those that a kernel sees."""
    return (X.X, (X.shift, X.scale)) if isinstance(X, ScaledRows) else (X, ())


def rows_per_chunk(n_features: int) -> int:
    """Chunks of about 32 MiB, and never more than the usual number of rows.

    >>> rows_per_chunk(100), rows_per_chunk(5000)
    (4096, 838)
    """
    return max(1, min(DEFAULT_CHUNK, CHUNK_ENTRIES // max(1, n_features)))


def rows_of_large_chunks(n_rows: int, n_features: int) -> int:
    """Of many rows more at a time, while enough chunks are left for threads to share.

    What is done between products then costs less, above all Python, of which one thread runs at a
    time.

    >>> [rows_of_large_chunks(n, 100) for n in (1000, 100_000, 1_000_000)]
    [4096, 6250, 16384]
    """
    more = MORE_BAGS * rows_per_chunk(MORE_BAGS * n_features)
    return max(rows_per_chunk(n_features), min(more, n_rows // ENOUGH_CHUNKS))


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
