"""Fits of a model to parts of its training bags, by which its probabilities are calibrated."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bagwise.bags import Bags
from bagwise.bags.rows import blocks
from bagwise.core.calibration.left_out import (
    MOST_INSTANCES,
    LeftOut,
    Scorer,
    Scores,
    averaged_scores,
    left_out,
    scores_of,
)
from bagwise.core.features import features_in_common
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.passes import FLOAT64_FEATURES
from bagwise.core.inference.stats import Q
from bagwise.core.linalg import BREAKDOWNS
from bagwise.core.parameters import check_dtype, generator
from bagwise.core.posteriors.averaged import AveragedPosterior
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.warnings import warn_user
from bagwise.distributed import DaskRows
from bagwise.models._preparation import feature_budget
from bagwise.models.inputs import known_labels

if TYPE_CHECKING:
    from bagwise.core.calibration.candidates import Candidate
    from bagwise.core.inference.driver import Problem, Result
    from bagwise.models._base import BagClassifierMIL
    from bagwise.models._calibrated import CalibratedMIL
    from bagwise.models._gaussian_process import GaussianProcessMIL
    from bagwise.models._kernel_choice import Setting
    from bagwise.models._linear import LinearMIL

Array = NDArray[Any]
Flags = NDArray[np.bool_]


def model_so_far(
    model: GaussianProcessMIL, setting: Setting, problem: Problem, result: Result
) -> GaussianProcessMIL:
    """A copy of a model that is being fitted, as if its fit had ended with this result."""
    view = copy(model)
    if "H" in model._parts().learned and result.H is None:
        result = replace(result, H=problem.likelihood.H)  # where the search for it starts
    view._store(result, problem, setting.shift, setting.scale)
    view.candidates_ = setting.table
    view._not_calibrated(("the fit has not ended", "the fit has not ended"))
    return view


def scores_by_refits(
    bags: Bags, T: Flags, seed: int, monitor: Monitor, refit: Callable[[NDArray[np.intp]], Scorer]
) -> LeftOut | str:
    """Scores of bags and instances by fits that did not see them, or why there are none.

    `refit(numbers of bags)` is a fit to those that scores others. Each fold is a stage of the
    watched fit. A refit that breaks down numerically must not take the fit with it, which
    succeeded.
    """

    def keep(stage: str, work: Callable[[], Scores]) -> Scores:
        def fold(state: State | None) -> State:
            bag_scores, instance_logits = work()
            return {"bags": bag_scores, "instances": instance_logits}

        done = monitor.run(stage, fold)
        return done["bags"], done["instances"]

    try:
        return left_out(bags, T, seed, refit, keep)
    except BREAKDOWNS as error:
        reason = f"a fit without a fifth of the bags broke down: {error}"
        warn_user(
            f"probabilities are not calibrated: {reason}; those of bag_score='joint' and "
            "instance_score='posterior' are as they were"
        )
        return reason


@dataclass(frozen=True)
class OfWhole:
    """What a fit to a part of the bags has of the fit to all of them."""

    shift: Array  # (D,)
    scale: Array  # (D,)
    Z: Array | None = None  # (M, D), scaled, where inducing points are the same
    features: tuple[Array, Array] | None = None  # A (n, M) and kt (n,) of the part's rows
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
    def of_fitted(
        cls, model: GaussianProcessMIL, member: Posterior, bags: Bags
    ) -> SharedFeatures | None:
        """Those of a posterior of a fitted model, unless its refits place points of their own."""
        # A kernel that was chosen was so with points in these places.
        if not model.candidates_ and isinstance(model.inducing, str):
            return None
        return cls.of_posterior(model, member, bags)

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
        """A and kt of the rows of some bags; None where both copies would take too much memory.

        Workers that hold the rows compute their features in each refit.
        """
        if isinstance(self._bags.X, DaskRows):
            return None
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
class Refits:
    """Fits to some of the bags, with the scaling and the hyperparameters of a fitted model."""

    model: GaussianProcessMIL
    bags: Bags
    T: Flags
    counts: Array | None
    seed: int
    monitor: Monitor
    reliability: Array | None = None

    def averaged(self, setting: Setting) -> tuple[Posterior, Setting]:
        """The fitted posterior, averaged with fits of the other candidates in the setting.

        One of those that breaks down is left out of the setting that comes back: it must not take
        the fit with it, which succeeded.
        """
        leading, members = self.model.posterior_, []
        for i, candidate in enumerate(setting.others):
            stage = f"fit {i + 1} of {len(setting.others)} beside it"
            fit = self.monitor.run(stage, partial(self._beside, candidate))["posterior"]
            members.append(None if fit is None else replace(fit, seed=leading.seed))
        setting = setting.without([fit is None for fit in members])
        found = [leading, *(fit for fit in members if fit is not None)]
        if len(found) == 1:
            return leading, setting
        return AveragedPosterior.of(found, np.array(setting.weights)), setting

    def _beside(self, candidate: Candidate, state: State | None) -> State:
        """The fit of a candidate to all bags, with a mean of its own; None where it broke down."""
        model = clone(self.model).set_params(kernel=candidate.kernel, learn_hyperparameters=False)
        of_whole = OfWhole(candidate.shift, candidate.scale, candidate.Z)
        try:
            self._fit_part(model, np.arange(len(self.bags)), of_whole)
        except BREAKDOWNS as error:
            warn_user(f"{candidate.name} is left out of the average: its fit broke down: {error}")
            return {"posterior": None}
        return {"posterior": model.posterior_}

    @cached_property
    def features(self) -> list[SharedFeatures | None]:
        """What all refits see, where it is the same, by each posterior that is averaged."""
        members = self.model.posterior_.members
        return [SharedFeatures.of_fitted(self.model, member, self.bags) for member in members]

    def __call__(self, kept: NDArray[np.intp]) -> Scorer:
        """One to the bags of these numbers."""
        posterior = self.model.posterior_
        models = [
            self._refit(member, shared, kept)
            for member, shared in zip(posterior.members, self.features, strict=True)
        ]

        def averaged(bags: Bags) -> Scores:
            found = [scores(model, bags) for model in models]
            return averaged_scores(found, posterior.shares, bags.offsets)

        return averaged

    def _refit(
        self, member: Posterior, shared: SharedFeatures | None, kept: NDArray[np.intp]
    ) -> GaussianProcessMIL:
        refit = with_hyperparameters(self.model, member, np.isin(self.bags.bag_index, kept))
        of_whole = OfWhole(member.shift, member.scale)
        if shared is not None:
            of_whole = replace(of_whole, Z=shared.Z, features=shared(kept))
        with features_in_common(self.bags.X, budget=0):  # other fits are to other bags
            self._fit_part(refit, kept, of_whole)
        return refit

    def _fit_part(
        self, refit: GaussianProcessMIL, kept: NDArray[np.intp], of_whole: OfWhole
    ) -> None:
        told = (self.bags, self.T, self.counts, self.seed, self.monitor, kept)
        reliability = None if self.reliability is None else self.reliability[kept]
        fit_part(refit, self.model, *told, of_whole=of_whole, reliability=reliability)


def refitted_linear(
    model: LinearMIL,
    bags: Bags,
    T: Flags,
    counts: Array | None,
    seed: int,
    monitor: Monitor,
    reliability: Array | None,
    kept: NDArray[np.intp],
) -> Scorer:
    """A fit of a linear model to some of the bags, with what it has learned where it can."""
    refit = clone(model).set_params(**model._learned())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the fit itself has said so
        how = {} if reliability is None else {"reliability": reliability[kept]}
        fit_part(refit, model, bags, T, counts, seed, monitor, kept, **how)
    return partial(scores, refit)


def fit_part(
    refit: CalibratedMIL,
    model: CalibratedMIL,
    bags: Bags,
    T: Flags,
    counts: Array | None,
    seed: int,
    monitor: Monitor,
    kept: NDArray[np.intp],
    **how: Any,
) -> None:
    """Fit `refit` to some of the bags as a part of the fit of `model`."""
    refit.set_params(bag_score="joint", instance_score="posterior", witness_rate=None)
    refit.set_params(random_state=seed, verbose=0)
    part, T = bags[kept], T[kept]
    counts = None if counts is None else counts[kept]
    known = known_labels(part, T, noisy=model._bag_labels_may_be_wrong())

    def hear(stage: str, step: int, objective: float, seconds: float) -> None:
        monitor.step(step, objective, dict)  # a refit that goes on begins anew

    with refit._threads(part):
        refit._fit_bags(part, T, known, generator(seed), counts=counts, callbacks=[hear], **how)


def with_hyperparameters(
    model: GaussianProcessMIL, learned: Posterior, rows: Flags
) -> GaussianProcessMIL:
    """The model, not fitted, with what its fit has learned for arguments, for some of its rows."""
    init = model.init
    copy: GaussianProcessMIL = clone(model).set_params(
        kernel=learned.kernel,
        mean=learned.c0,
        learn_hyperparameters=False,
        init=None if init is None else {name: np.asarray(v)[rows] for name, v in init.items()},
        **{name: getattr(model, f"{name}_") for name in model._parts().learned},
    )
    return copy


def scores(model: BagClassifierMIL, bags: Bags) -> Scores:
    """Logits of bags and of instances, from one pass."""
    predictor = model._predictor(bags)
    return scores_of(
        predictor.predicted(bags.X, bags.offsets, joint=True, instances=True, second=False)
    )
