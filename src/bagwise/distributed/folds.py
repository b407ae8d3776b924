"""Features of bags in folds, which workers keep once for all fits that leave a fold out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import pairwise
from operator import add
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise.core.features import Features
from bagwise.core.inference.passes import FLOAT64_FEATURES, FeatureSource, Sweeper
from bagwise.core.inference.stats import Chunk
from bagwise.distributed.cluster import Cluster
from bagwise.distributed.passes import DistributedData, Part, PartChunks
from bagwise.distributed.rounds import total

Folds = NDArray[np.int64]
S = TypeVar("S")


@dataclass(frozen=True)
class FeaturesByFold:
    """Features of the bags of each part, fold by fold.

    With given hyperparameters they are the same in all fits without a fold.
    """

    data: DistributedData
    whitener: Features
    folds: Folds  # (B,)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _parts: list[Any] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def of(cls, data: DistributedData, whitener: Features, folds: Folds) -> FeaturesByFold | None:
        """Those of all bags; None where they take more than the memory budget."""
        too_many = FeatureSource(data, whitener).feature_bytes > data.memory_budget
        return None if too_many else cls(data, whitener, folds)

    @property
    def cluster(self) -> Cluster:
        """The workers that keep them."""
        return self.data.rows.cluster

    @property
    def parts(self) -> Sequence[Any]:
        """Futures of each part's, asked for when the first of several fits needs them."""
        with self._lock:
            if not self._parts:
                self._parts.extend(self._submitted())
            return self._parts

    def _submitted(self) -> Iterator[Any]:
        data, rows = self.data, self.data.rows
        dtype = FeatureSource(data, self.whitener).dtype
        bags = np.searchsorted(data.offsets, rows.starts).tolist()  # the first of each part
        for X, part, span in zip(rows.futures, data.parts(), pairwise(bags), strict=True):
            told = (self.whitener, dtype, self.folds[slice(*span)])
            yield self.cluster.submit(_build_by_fold, X, part, *told)

    def without(self, fold: int) -> OtherFolds:
        """Passes over the bags of all folds but one."""
        return OtherFolds(self, fold)


class OtherFolds(Sweeper):
    """Sums of a step over the chunks of all folds but one, which stay with their workers."""

    def __init__(self, features: FeaturesByFold, fold: int) -> None:
        self.whitener = features.whitener
        self._features = features
        self._fold = fold
        n_rows = int(np.diff(features.data.offsets)[features.folds != fold].sum())
        self.large = n_rows * len(features.whitener) > FLOAT64_FEATURES

    def total(self, step: Callable[[Chunk], S]) -> S:
        """Sum of `step(chunk)` over all chunks; its rounding depends on where the parts are."""
        found: S = total(
            self._features.cluster, partial(_sum_of_others, self._fold, step), self._features.parts
        )
        return found


# --- What runs on workers -----------------------------------------------------------------------


class FoldedChunks(tuple[PartChunks, ...]):
    """Chunks of each fold, of which Dask learns the size in memory."""

    def __sizeof__(self) -> int:
        return sum(chunks.__sizeof__() for chunks in self)


def _build_by_fold(
    X: Any, part: Part, whitener: Features, dtype: np.dtype[Any], folds: Folds
) -> FoldedChunks:
    data, start, found = part.data(X), part.start, []
    for k in range(int(folds.max(initial=-1)) + 1):
        bags = np.flatnonzero(folds == k)
        if len(bags) == 0:
            found.append(PartChunks())
            continue
        source = FeatureSource(data.of_bags(bags), whitener, dtype, start)
        found.append(PartChunks(replace(source.chunk(i), X=None) for i in range(len(source))))
        start += len(source.data.X)  # steps tell chunks apart by their first rows
    return FoldedChunks(found)


def _sum_of_others(fold: int, step: Callable[[Chunk], S], folded: FoldedChunks) -> S | None:
    chunks = [chunk for k, own in enumerate(folded) if k != fold for chunk in own]
    return reduce(add, map(step, chunks)) if chunks else None
