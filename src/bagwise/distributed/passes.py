"""Passes over chunks that stay with Dask workers: the steps of a local fit, summed there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add, itemgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.rows import ScaledRows, is_elsewhere
from bagwise.core.features import Features, Whitener, common_features
from bagwise.core.inference.feature_store import RecomputedChunks, store
from bagwise.core.inference.passes import (
    FeatureSource,
    Sweeper,
    TrainingData,
    rows_and_scaling,
)
from bagwise.core.inference.stats import Chunk
from bagwise.distributed.cluster import same
from bagwise.distributed.rounds import total
from bagwise.distributed.rows import DaskRows, Place, rows_at

Array = NDArray[Any]
S = TypeVar("S")


def training_data(X: Any, *parts: Any, **more: Any) -> TrainingData:
    """Training data of rows that are here, or with workers."""
    rows = X.X if isinstance(X, ScaledRows) else X
    kind: Any = DistributedData if isinstance(rows, DaskRows) else TrainingData
    data: TrainingData = kind(X, *parts, **more)
    return data


class DistributedData(TrainingData):
    """Training data whose features are computed and kept by workers.

    What is `given` are passes over features that they have already.
    """

    given: Any
    kept_features: list[Any] | None = None  # futures of A and kt, where other fits share them

    def sweeper(self, whitener: Features, *, recompute: bool = True, dtype: Any = None) -> Sweeper:
        """Passes over the workers' chunks."""
        if self.given is not None:
            passes: Sweeper = self.given
            return passes
        data = self.with_common_features(whitener, dtype)
        return DaskSweeper(data, whitener, recompute=recompute, dtype=dtype)

    def with_common_features(self, whitener: Features, dtype: Any) -> DistributedData:
        """The data with features that workers keep from an earlier one of several fits, if any."""
        common, source = common_features(), FeatureSource(self, whitener, dtype)
        if common is None or not isinstance(whitener, Whitener):
            return self
        if source.feature_bytes > min(self.memory_budget, common.budget):
            return self
        data, told = copy.copy(self), (source.dtype, source.feature_bytes)
        compute = partial(self._features, whitener, source.dtype)
        data.kept_features = common(*rows_and_scaling(self.X), whitener, *told, compute)
        return data

    def _features(self, whitener: Features, dtype: np.dtype[Any]) -> list[Any]:
        """Futures of the features of each part."""
        return [
            self.rows.cluster.submit(_whitened, X, part, whitener, dtype)
            for X, part in zip(self.rows.futures, self.parts(), strict=True)
        ]

    def one_pass(self, whitener: Features, step: Callable[[Chunk], S]) -> S:
        """Sum of `step(chunk)` over all chunks, each part's on its worker."""
        rows, dtype = self.rows, FeatureSource(self, whitener).dtype
        futures = [
            rows.cluster.submit(_pass_over, X, part, whitener, dtype, step)
            for X, part in zip(rows.futures, self.parts(), strict=True)
        ]
        return reduce(add, rows.cluster.gather(futures))

    def of_bags(self, bags: NDArray[np.intp]) -> DistributedData:
        """Some of the bags, in rising order, whose rows stay with their workers."""
        rows, sizes = self._rows_of(bags)
        X: Any = self.rows.take(rows)
        if isinstance(self.X, ScaledRows):
            X = ScaledRows(X, self.X.shift, self.X.scale, self.X.dtype)
        known = None if self.known is None else self.known[rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return DistributedData(
            X,
            offsets,
            self.T[bags],
            known,
            self.chunk_size,
            memory_budget=self.memory_budget,
            counts=self.counts_of(bags),
            reliability=self.reliability_of(bags),
        )

    @property
    def rows(self) -> DaskRows:
        """The source of X, without its scaling."""
        X = self.X.X if isinstance(self.X, ScaledRows) else self.X
        assert isinstance(X, DaskRows)
        return X

    def parts(self) -> list[Part]:
        """What each part needs besides its rows."""
        rows = self.rows
        n_workers = max(1, len(rows.cluster.threads()))
        share = min(1.0, n_workers / len(rows.futures))  # memory_budget is that of a worker
        budget = self.memory_budget if share == 1 else int(share * self.memory_budget)
        return [self._part(i, budget) for i in range(len(rows.futures))]

    def _part(self, i: int, memory_budget: int) -> Part:
        rows = self.rows
        span = slice(int(rows.starts[i]), int(rows.starts[i + 1]))
        first, last = np.searchsorted(self.offsets, [span.start, span.stop]).tolist()
        scaled = isinstance(self.X, ScaledRows)
        return Part(
            (self.X.shift, self.X.scale) if scaled else None,  # type: ignore[union-attr]
            self.X.dtype,
            self.offsets[first : last + 1] - span.start,
            self.T[first:last],
            None if self.known is None else self.known[span],
            None if self.graph is None else self.graph[span][:, span],
            span.start,
            self.chunk_size,
            memory_budget,
            self.counts_of(slice(first, last)),
            self.reliability_of(slice(first, last)),
            rows.places[i],
        )


@dataclass(frozen=True)
class Part:
    """Labels and settings of one part, as the whole fit has them."""

    scaling: tuple[Array, Array] | None
    dtype: np.dtype[Any]
    offsets: NDArray[np.int64]
    T: NDArray[np.bool_]
    known: Array | None
    graph: Any
    start: int
    chunk_size: int
    memory_budget: int
    counts: Array | None
    reliability: Array | None
    place: Place = None

    def data(self, X: Any) -> TrainingData:
        """The part's rows, of what its worker read, with their labels."""
        X = rows_at(X, self.place)
        if self.scaling is not None or self.dtype != X.dtype:
            D = X.shape[1]
            shift, scale = self.scaling or (np.zeros(D), np.ones(D))
            X = ScaledRows(X, shift, scale, self.dtype)
        labels = (self.offsets, self.T, self.known)
        how = (self.chunk_size, self.graph)
        return TrainingData(X, *labels, *how, counts=self.counts, reliability=self.reliability)

    def source(self, X: Any, whitener: Features, dtype: np.dtype[Any]) -> FeatureSource:
        """Computes features of the part's bags, numbered as in the whole data."""
        return FeatureSource(self.data(X), whitener, dtype, self.start)


FRESH_START = 10  # sweeps after which values per instance are handed to workers anew


class DaskSweeper(Sweeper):
    """Sums of a step over chunks that stay with their workers."""

    def __init__(
        self, data: DistributedData, whitener: Features, *, recompute: bool, dtype: Any
    ) -> None:
        self.whitener = whitener
        rows = data.rows
        self.cluster = rows.cluster
        source = FeatureSource(data, whitener, dtype)
        self.large, dtype = source.large, source.dtype
        kept = data.kept_features or [None] * len(rows.futures)
        self._chunks = [
            self.cluster.submit(_build, X, part, whitener, dtype, recompute, given)
            for X, part, given in zip(rows.futures, data.parts(), kept, strict=True)
        ]
        self._values: list[Any] = [None] * len(self._chunks)
        self._sweeps = 0

    def total(self, step: Callable[[Chunk], S]) -> S:
        """Sum of `step(chunk)` over all chunks; its rounding depends on where the parts are."""
        owner = getattr(getattr(step, "func", step), "__self__", None)
        if getattr(owner, "stateful", False):
            return self._stateful_total(step, owner)
        return total(self.cluster, partial(_sum, step), self._chunks)

    def _stateful_total(self, step: Any, sites: Any) -> Any:
        """The same where a step starts from values per instance, which stay with the chunks."""
        if any(v is not None for v in self._values):
            sites = copy.copy(sites)
            sites.init = {}  # served when the fit began
            step = partial(getattr(sites, step.func.__name__), **step.keywords)
        submit = self.cluster.submit
        pairs = [
            submit(_stateful_sum, step, chunks, values)
            for chunks, values in zip(self._chunks, self._values, strict=True)
        ]
        self._values = [submit(itemgetter(1), pair) for pair in pairs]
        self._sweeps += 1
        if self._sweeps % FRESH_START == 0:
            # Values that depend on all sweeps before them would keep all of those alive.
            self._values = [submit(same, v) for v in self.cluster.gather(self._values)]
        return total(self.cluster, itemgetter(0), pairs)


# --- What runs on workers -----------------------------------------------------------------------


class PartChunks(tuple[Chunk, ...]):
    """Chunks of one part, of which Dask learns the size in memory: work goes where they are."""

    def __sizeof__(self) -> int:
        return sum(c.kt.nbytes + (0 if is_elsewhere(c.A) else c.A.nbytes) for c in self)


def _whitened(X: Any, part: Part, whitener: Features, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    return part.source(X, whitener, dtype).all_features()


def _build(
    X: Any,
    part: Part,
    whitener: Features,
    dtype: np.dtype[Any],
    recompute: bool,
    given: tuple[Array, Array] | None,
) -> Sequence[Chunk]:
    source = part.source(X, whitener, dtype)
    source.data.given = given
    kept = store(source, part.memory_budget, recompute=recompute)
    return PartChunks(kept) if isinstance(kept, list) else kept


def _pass_over(
    X: Any, part: Part, whitener: Features, dtype: np.dtype[Any], step: Callable[[Chunk], Any]
) -> Any:
    return reduce(add, map(step, RecomputedChunks(part.source(X, whitener, dtype))))


def _sum(step: Callable[[Chunk], Any], chunks: Sequence[Chunk]) -> Any:
    return reduce(add, map(step, chunks))


def _stateful_sum(step: Any, chunks: Sequence[Chunk], values: dict[str, Array] | None) -> Any:
    # A worker's threads may share what they were sent; what a step keeps is its own.
    sites = copy.copy(step.func.__self__)
    sites.restore(values or {}, chunks[0].start)
    total = _sum(partial(getattr(sites, step.func.__name__), **step.keywords), chunks)
    return total, sites.snapshot()()
