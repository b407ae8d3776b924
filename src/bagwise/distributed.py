"""Fits over several machines with Dask: workers keep their bags, only sums travel.

    from dask.distributed import Client
    bags = DaskBags.from_parquet(["a.parquet", "b.parquet"])
    model.fit(bags, client=Client("tcp://scheduler:8786"))

A part is some whole bags. Its worker reads it, computes its features once and keeps them; a
pass sends the current q to every part and gets `Stats` back: the very step of a local fit. If
a worker is lost, Dask reads its parts again elsewhere.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from operator import add, itemgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.execution import FeatureSource, Sweeper, TrainingData
from bagwise.features import Whitener
from bagwise.parameters import check_integer
from bagwise.rows import RowSource, ScaledRows, column_moments
from bagwise.sites import Chunk
from bagwise.storage import store

Array = NDArray[Any]
S = TypeVar("S")

RETRIES = 3  # of a part that fails, on any worker
POLL = 20.0  # seconds between looks at whether there are workers at all
PATIENCE = 300.0  # seconds without any worker after which a fit gives up


class PartError(RuntimeError):
    """A part of distributed bags failed on its workers, again and again."""


class LonelyError(PartError):
    """A cluster has had no workers for long."""


class DaskBags:
    """Bags in parts that Dask workers read by themselves; `fit(dask_bags, client=client)`.

    Make it with `from_parquet`, `from_files` or `from_bags`. Nothing is read before a fit.
    """

    def __init__(self, readers: Sequence[Callable[[], Bags]], names: Sequence[str]) -> None:
        self.readers = tuple(readers)
        self.names = tuple(names)
        if not self.readers:
            raise ValueError("DaskBags need at least one part; got none: check the list of files")

    @classmethod
    def from_bags(cls, bags: Bags, n_chunks: int) -> DaskBags:
        """Cut bags that are in memory into `n_chunks` parts of about as many rows.

        The parts are sent to the workers, so this is for data of moderate size; larger data are
        better read where they are needed, see `from_parquet` and `from_files`.

        >>> bags = Bags.from_list([[[1.0]], [[2.0], [3.0]], [[4.0]]], y=[0, 1, 0])
        >>> DaskBags.from_bags(bags, n_chunks=2)
        DaskBags(2 parts: bags 0-1, bags 2-2)
        """
        n = check_integer("n_chunks", n_chunks, at_least=1)
        targets = np.linspace(0, bags.n_instances, n + 1)[1:-1]
        cuts = np.unique([0, *np.searchsorted(bags.offsets, targets), len(bags)]).tolist()
        pairs = list(pairwise(cuts))
        names = [f"bags {a}-{b - 1}" for a, b in pairs]
        return cls([partial(_same, bags[a:b]) for a, b in pairs], names)

    @classmethod
    def from_files(
        cls, paths: Sequence[str | os.PathLike[str]], read: Callable[[str], Bags]
    ) -> DaskBags:
        """One part per file; `read` makes Bags of a path, on the worker.

        Every worker must see the files under these paths, and bags must not span files.
        """
        names = [os.fspath(p) for p in paths]
        return cls([partial(read, name) for name in names], names)

    @classmethod
    def from_parquet(cls, paths: Sequence[str | os.PathLike[str]], **columns: Any) -> DaskBags:
        """One part per Parquet file; `columns` are the arguments of `Bags.from_frame`."""
        return cls.from_files(paths, partial(_read_parquet, **columns))

    def __len__(self) -> int:
        return len(self.readers)

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:3]) + (", ..." if len(self) > 3 else "")
        return f"DaskBags({len(self)} parts: {shown})"

    def connect(self, client: Any) -> Bags:
        """Bags whose rows stay with the workers of `client`: labels are here, X is a source."""
        client = check_client(client)
        futures = [client.submit(r, pure=False, retries=RETRIES) for r in self.readers]
        described = client.map(_describe, futures, pure=False, retries=RETRIES)
        cluster = Cluster(client, self.names)
        found = cluster.gather(described)
        check_parts(found, self.names)
        rows = DaskRows(cluster, futures, found)
        fields = {
            name: None if found[0][name] is None else np.concatenate([f[name] for f in found])
            for name in ("y", "ids", "groups", "instance_labels", "coords")
        }
        sizes = np.concatenate([f["sizes"] for f in found])
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Bags._build(
            X=rows,
            offsets=offsets,
            row_index=np.arange(len(rows)),
            feature_names=found[0]["feature_names"],
            **fields,
        )


def connected(X: Any, client: Any) -> Any:
    """What `fit` was given, with distributed bags read by the workers of `client`."""
    if isinstance(X, DaskBags):
        return X.connect(client)
    if client is not None:
        raise TypeError(
            "client is for bagwise.distributed.DaskBags, e.g. "
            f"DaskBags.from_bags(bags, n_chunks=8), got {type(X).__name__}"
        )
    return X


def training_data(X: Any, *parts: Any) -> TrainingData:
    """Training data of rows that are here, or with workers."""
    rows = X.X if isinstance(X, ScaledRows) else X
    return (DistributedData if isinstance(rows, DaskRows) else TrainingData)(X, *parts)


def check_client(client: Any) -> Any:
    """A Dask client."""
    if not (hasattr(client, "submit") and hasattr(client, "gather")):
        raise TypeError(
            "DaskBags are fitted with a Dask client: fit(bags, client=Client(...)), "
            f"got client={client!r}"
        )
    return client


def check_parts(found: list[dict[str, Any]], names: Sequence[str]) -> None:
    """Raise where parts do not belong together."""
    for part, name in zip(found, names, strict=True):
        for what in ("n_features", "dtype", "feature_names"):
            if part[what] != found[0][what]:
                raise ValueError(
                    f"all parts must have the same {what}: {names[0]} has {found[0][what]!r}, "
                    f"{name} has {part[what]!r}"
                )
        for what in ("y", "instance_labels", "coords", "groups"):
            if (part[what] is None) != (found[0][what] is None):
                raise ValueError(f"{what} must be in all parts or in none; see {names[0]}, {name}")
    ids = np.concatenate([f["ids"] for f in found])
    values, counts = np.unique(ids, return_counts=True)
    if np.any(counts > 1):
        raise ValueError(
            f"bag {values[np.argmax(counts > 1)]!r} is in several parts; a bag must be in one "
            "part as a whole: write each bag to one file"
        )


@dataclass(frozen=True)
class Cluster:
    """A client, with the names of parts for errors."""

    client: Any
    names: tuple[str, ...]

    def gather(self, futures: Sequence[Any], parts: Sequence[int] | None = None) -> list[Any]:
        """Results in order; a part that keeps failing is named."""
        results = []
        for k, future in enumerate(futures):
            try:
                results.append(self._wait_for(future))
            except LonelyError:
                raise
            except Exception as error:
                i = k if parts is None else parts[k]
                if type(error).__name__ in ("CancelledError", "FutureCancelledError"):
                    raise PartError(
                        f"what the workers kept of part {i} ({self.names[i]}) is gone: the "
                        "scheduler was lost or restarted, or the client closed; connect again and "
                        "fit anew, or with resume= from a checkpoint"
                    ) from error
                raise PartError(
                    f"part {i} ({self.names[i]}) failed on its workers {RETRIES + 1} times, the "
                    f"last time with {type(error).__name__}: {error}"
                ) from error
        return results

    def _wait_for(self, future: Any) -> Any:
        """A result; tasks wait as long as there are workers, but not for ever without any."""
        alone = 0.0
        while True:
            try:
                return future.result(timeout=POLL)
            except TimeoutError:
                if future.done():
                    raise  # the task's own
            alone = 0.0 if self._has_workers() else alone + POLL
            if alone >= PATIENCE:
                raise LonelyError(
                    f"there has been no Dask worker for {alone:.0f} seconds; start workers and "
                    "fit anew, or with resume= from a checkpoint"
                )

    def _has_workers(self) -> bool:
        try:
            return bool(self.client.nthreads())
        except Exception:  # nobody answers
            return False


class DaskRows(RowSource):
    """Rows that stay with the workers that read them."""

    def __init__(
        self, cluster: Cluster, futures: Sequence[Any], found: list[dict[str, Any]]
    ) -> None:
        self.cluster = cluster
        self.futures = list(futures)
        self.starts = np.concatenate([[0], np.cumsum([f["sizes"].sum() for f in found])])
        self.bag_starts = np.concatenate([[0], np.cumsum([len(f["sizes"]) for f in found])])
        self.shape = (int(self.starts[-1]), found[0]["n_features"])
        self.dtype = np.dtype(found[0]["dtype"])

    def read(self, start: int, stop: int) -> Array:
        return self._gather(np.arange(start, stop))

    def _gather(self, index: NDArray[np.int64]) -> Array:
        part = np.searchsorted(self.starts, index, side="right") - 1
        out = np.empty((len(index), self.shape[1]), dtype=self.dtype)
        asked = np.unique(part).tolist()
        places = [np.flatnonzero(part == p) for p in asked]
        submit = self.cluster.client.submit
        futures = [
            submit(_rows, self.futures[p], index[at] - self.starts[p], pure=False, retries=RETRIES)
            for p, at in zip(asked, places, strict=True)
        ]
        for at, rows in zip(places, self.cluster.gather(futures, asked), strict=True):
            out[at] = rows
        return out

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of each column, each part's on its worker."""
        futures = self.cluster.client.map(_moments, self.futures, pure=False, retries=RETRIES)
        n, mean, squares = 0, np.zeros(self.shape[1]), np.zeros(self.shape[1])
        for size, its_mean, variance in self.cluster.gather(futures):
            gap, total = its_mean - mean, n + size
            squares += size * variance + gap**2 * (n * size / total)
            mean += gap * (size / total)
            n = total
        return mean, squares / n


class DistributedData(TrainingData):
    """Training data whose features are computed and kept by workers."""

    def sweeper(self, whitener: Whitener, *, recompute: bool = True) -> DaskSweeper:
        """Passes over the workers' chunks."""
        return DaskSweeper(self, whitener)

    @property
    def rows(self) -> DaskRows:
        """The source of X, without its scaling."""
        X = self.X.X if isinstance(self.X, ScaledRows) else self.X
        assert isinstance(X, DaskRows)
        return X

    def part(self, i: int) -> Part:
        """What part i needs besides its rows."""
        rows = self.rows
        first, last = int(rows.bag_starts[i]), int(rows.bag_starts[i + 1])
        span = slice(int(rows.starts[i]), int(rows.starts[i + 1]))
        scaled = isinstance(self.X, ScaledRows)
        n_workers = max(1, len(rows.cluster.client.nthreads()))
        share = min(1.0, n_workers / len(rows.futures))  # memory_budget is that of a worker
        return Part(
            (self.X.shift, self.X.scale) if scaled else None,  # type: ignore[union-attr]
            self.X.dtype,
            self.T[first:last],
            None if self.known is None else self.known[span],
            None if self.graph is None else self.graph[span][:, span],
            span.start,
            self.chunk_size,
            self.memory_budget if share == 1 else int(share * self.memory_budget),
        )


@dataclass(frozen=True)
class Part:
    """Labels and settings of one part, as the whole fit has them."""

    scaling: tuple[Array, Array] | None
    dtype: np.dtype[Any]
    T: NDArray[np.bool_]
    known: Array | None
    graph: Any
    start: int
    chunk_size: int
    memory_budget: int

    def chunks(self, bags: Bags, whitener: Whitener, dtype: np.dtype[Any]) -> list[Chunk]:
        """Features of the part's bags, numbered as in the whole data."""
        X: Any = bags.X
        if self.scaling is not None or self.dtype != X.dtype:
            D = X.shape[1]
            shift, scale = self.scaling or (np.zeros(D), np.ones(D))
            X = ScaledRows(X, shift, scale, self.dtype)
        data = TrainingData(X, bags.offsets, self.T, self.known, self.chunk_size, self.graph)
        source = FeatureSource(data, whitener, dtype)
        kept = store(source, len(whitener.Z), self.memory_budget, recompute=False)
        return [replace(chunk, start=chunk.start + self.start) for chunk in kept]


class DaskSweeper(Sweeper):
    """Sums of a step over chunks that stay with their workers."""

    def __init__(self, data: DistributedData, whitener: Whitener) -> None:
        self.whitener = whitener
        rows = data.rows
        self.cluster = rows.cluster
        dtype = FeatureSource(data, whitener).dtype
        submit = self.cluster.client.submit
        self._chunks = [
            submit(_build, future, data.part(i), whitener, dtype, pure=False, retries=RETRIES)
            for i, future in enumerate(rows.futures)
        ]
        self._values: list[Any] = [None] * len(self._chunks)

    def total(self, step: Callable[[Chunk], S]) -> S:
        """Sum of `step(chunk)` over the chunks of all parts, in order."""
        owner = getattr(getattr(step, "func", step), "__self__", None)
        if getattr(owner, "stateful", False):
            return self._stateful_total(step, owner)
        submit = self.cluster.client.submit
        futures = [submit(_sum, step, c, pure=False, retries=RETRIES) for c in self._chunks]
        return reduce(add, self.cluster.gather(futures))

    def _stateful_total(self, step: Any, sites: Any) -> Any:
        """The same where a step starts from values per instance, which stay with the chunks."""
        if any(v is not None for v in self._values):
            sites = copy.copy(sites)
            sites.init = {}  # served when the fit began
            step = partial(getattr(sites, step.func.__name__), **step.keywords)
        submit = partial(self.cluster.client.submit, pure=False, retries=RETRIES)
        pairs = [
            submit(_stateful_sum, step, chunks, values)
            for chunks, values in zip(self._chunks, self._values, strict=True)
        ]
        self._values = [submit(itemgetter(1), pair) for pair in pairs]
        return reduce(add, self.cluster.gather([submit(itemgetter(0), p) for p in pairs]))


# --- What runs on workers -----------------------------------------------------------------------


def _same(bags: Bags) -> Bags:
    return bags


def _read_parquet(path: str, **columns: Any) -> Bags:
    import pandas as pd

    return Bags.from_frame(pd.read_parquet(path), **columns)


def _describe(bags: Bags) -> dict[str, Any]:
    names = ("y", "ids", "groups", "instance_labels", "coords", "sizes", "feature_names")
    described = {name: getattr(bags, name) for name in names}
    return {**described, "n_features": bags.n_features, "dtype": bags.dtype.name}


def _rows(bags: Bags, index: NDArray[np.int64]) -> Array:
    return bags.X[index]


def _moments(bags: Bags) -> tuple[int, Array, Array]:
    return bags.n_instances, *column_moments(bags.X)


def _build(bags: Bags, part: Part, whitener: Whitener, dtype: np.dtype[Any]) -> list[Chunk]:
    return part.chunks(bags, whitener, dtype)


def _sum(step: Callable[[Chunk], Any], chunks: list[Chunk]) -> Any:
    return reduce(add, map(step, chunks))


def _stateful_sum(step: Any, chunks: list[Chunk], values: dict[str, Array] | None) -> Any:
    # A worker's threads may share what they were sent; what a step keeps is its own.
    sites = copy.copy(step.func.__self__)
    sites.restore(values or {}, chunks[0].start)
    total = _sum(partial(getattr(sites, step.func.__name__), **step.keywords), chunks)
    return total, sites.snapshot()()
