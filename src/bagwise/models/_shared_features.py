"""Features that the refits of a fit have in common, here or with workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.bags.rows import blocks
from bagwise.core.calibration.left_out import MOST_INSTANCES, cut_folds
from bagwise.core.features import whitener
from bagwise.core.inference.passes import FLOAT64_FEATURES, Sweeper
from bagwise.core.inference.stats import Q
from bagwise.core.parameters import check_dtype
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.distributed import training_data
from bagwise.distributed.folds import FeaturesByFold
from bagwise.distributed.rows import are_few
from bagwise.models._preparation import feature_budget, scaled
from bagwise.models.inputs import known_labels

if TYPE_CHECKING:
    from bagwise.models._gaussian_process import GaussianProcessMIL

Array = NDArray[Any]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class OfWhole:
    """What a fit to a part of the bags has of the fit to all of them."""

    shift: Array  # (D,)
    scale: Array  # (D,)
    Z: Array | None = None  # (M, D), scaled, where inducing points are the same
    # A (n, M) and kt (n,) of the part's rows, or passes over those that workers have.
    features: tuple[Array, Array] | Sweeper | None = None
    start: Q | None = None  # of the ascent


class SharedFeatures:
    """Features of bags that several refits see: with kernel and points given, they are the same.

    Those of a bag are computed when a refit first asks for it.
    """

    def __init__(self, posterior: Posterior, bags: Bags, dtype: Any, budget: int) -> None:
        self._posterior = posterior
        self._bags = bags
        self._dtype = dtype
        self._budget = budget
        self._start = np.full(len(bags), -1, dtype=np.int64)  # of each bag among the rows kept
        self._A, self._kt = np.empty((0, len(posterior.m)), dtype), np.empty(0, dtype)

    @classmethod
    def of_posterior(
        cls, model: GaussianProcessMIL, member: Posterior, bags: Bags
    ) -> SharedFeatures:
        """Those of a posterior of a fitted model, for refits with its own kernel and points."""
        size = min(bags.n_instances, MOST_INSTANCES) * len(member.m)
        small = size <= FLOAT64_FEATURES
        dtype = np.dtype(np.float64) if small else check_dtype(model.dtype) or bags.dtype
        # Members share what memory there is.
        budget = feature_budget(model.memory_budget, bags.X) // len(model.posterior_.members)
        return cls(member, bags, dtype, budget)

    @property
    def Z(self) -> Array:
        """(M, D) scaled inducing points."""
        return self._posterior.Z

    def __call__(self, kept: NDArray[np.intp]) -> tuple[Array, Array] | None:
        """A and kt of the rows of some bags; None where both copies would take too much memory."""
        sizes = self._bags.sizes[kept]
        if 2 * int(sizes.sum()) * len(self._posterior.m) * self._dtype.itemsize > self._budget:
            return None
        self._add(kept[self._start[kept] < 0])
        rows = np.arange(sizes.sum()) + np.repeat(
            self._start[kept] - (np.cumsum(sizes) - sizes), sizes
        )
        return self._A[rows], self._kt[rows]

    def _add(self, new: NDArray[np.intp]) -> None:
        if len(new) == 0:
            return
        bags = self._bags[new]
        found = [self._posterior.features(bags.X[rows]) for rows in blocks(bags.n_instances)]
        A, kt = (
            [x.astype(self._dtype, copy=False) for x in part] for part in zip(*found, strict=True)
        )
        self._start[new] = len(self._kt) + bags.offsets[:-1]
        self._A, self._kt = np.concatenate([self._A, *A]), np.concatenate([self._kt, *kt])


@dataclass(frozen=True)
class SharedOnWorkers:
    """The same of bags whose rows stay with workers, for refits without a fold of them.

    None where some of these rows come here, or values per instance would have to go with them.
    """

    Z: Array  # (M, D) scaled inducing points
    by_fold: FeaturesByFold | None
    folds: NDArray[np.int64]  # (B,)

    def __call__(self, kept: NDArray[np.intp]) -> Sweeper | None:
        """Passes over the features of all bags but a fold."""
        if self.by_fold is None:
            return None
        out = np.setdiff1d(np.arange(len(self.folds)), kept)
        return self.by_fold.without(int(self.folds[out[0]]))


def features_on_workers(
    model: GaussianProcessMIL,
    member: Posterior,
    bags: Bags,
    T: Flags,
    counts: Array | None,
    seed: int,
    reliability: Array | None,
) -> SharedOnWorkers:
    """What workers keep for refits with the kernel and the points of a posterior."""
    parts, folds = model._parts(), cut_folds(bags, T, seed)
    alone = parts.graph is None and parts.refine is None and not parts.sites.stateful
    if not alone or are_few(bags.n_instances // 2):
        return SharedOnWorkers(member.Z, None, folds)
    data: Any = training_data(
        scaled(bags.X, member.shift, member.scale, model.dtype),
        bags.offsets,
        T,
        known_labels(bags, T, noisy=model._bag_labels_may_be_wrong()),
        model.chunk_size,
        memory_budget=feature_budget(model.memory_budget, bags.X) // len(model.posterior_.members),
        counts=counts,
        reliability=reliability,
    )
    features = whitener(member.kernel, member.Z, member.jitter)
    return SharedOnWorkers(member.Z, FeaturesByFold.of(data, features, folds), folds)


class Shared(Protocol):
    """Features that refits have in common."""

    @property
    def Z(self) -> Array:
        """(M, D) scaled inducing points."""

    def __call__(self, kept: NDArray[np.intp]) -> tuple[Array, Array] | Sweeper | None:
        """Those of some bags."""
