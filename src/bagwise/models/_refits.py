"""Fits of a model to parts of its training bags, by which its probabilities are calibrated."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bagwise.bags import Bags
from bagwise.core.calibration.left_out import (
    FOLDS,
    LeftOut,
    Scorer,
    Scores,
    averaged_scores,
    left_out,
    scores_of,
)
from bagwise.core.features import features_in_common
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.linalg import BREAKDOWNS
from bagwise.core.parameters import generator
from bagwise.core.posteriors.averaged import AveragedPosterior
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.rounds import in_turn
from bagwise.core.warnings import warn_user
from bagwise.distributed import DaskRows
from bagwise.models._shared_features import (
    OfWhole,
    Shared,
    SharedFeatures,
    SharedOnWorkers,
    features_on_workers,
)
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


def scores_by_refits(refits: Refits) -> LeftOut | str:
    """Scores of bags and instances by fits that did not see them, or why there are none.

    Each fold is a stage of the watched fit. A refit that breaks down numerically must not take the
    fit with it, which succeeded.
    """

    def keep(stage: str, work: Callable[[], Scores]) -> Scores:
        def fold(state: State | None) -> State:
            bag_scores, instance_logits = work()
            return {"bags": bag_scores, "instances": instance_logits}

        done = refits.monitor.run(stage, fold)
        return done["bags"], done["instances"]

    try:
        told = (refits.bags, refits.T, refits.seed, refits, keep, refits.at_once)
        return left_out(*told)
    except BREAKDOWNS as error:
        reason = f"a fit without a fifth of the bags broke down: {error}"
        warn_user(
            f"probabilities are not calibrated: {reason}; those of bag_score='joint' and "
            "instance_score='posterior' are as they were"
        )
        return reason


@dataclass(frozen=True)
class Refits:
    """Fits to some of the bags, with what a fitted model has learned."""

    model: Any
    bags: Bags
    T: Flags
    counts: Array | None
    seed: int
    monitor: Monitor
    reliability: Array | None = None
    rows: Flags | None = None  # of the whole fit, that these bags have, unless they have all

    def of(self, some: NDArray[np.intp]) -> Self:
        """Those of a sample of the bags, in rising order."""
        return replace(
            self,
            bags=self.bags[some],
            T=self.T[some],
            counts=None if self.counts is None else self.counts[some],
            reliability=None if self.reliability is None else self.reliability[some],
            rows=np.isin(self.bags.bag_index, some),
        )

    @property
    def at_once(self) -> int:
        """How many go on side by side."""
        return 1

    def __call__(self, kept: NDArray[np.intp]) -> Scorer:
        """One to the bags of these numbers."""
        raise NotImplementedError

    def fit(self, refit: CalibratedMIL, kept: NDArray[np.intp], **how: Any) -> None:
        """Fit a model to the bags of these numbers."""
        told = (self.bags, self.T, self.counts, self.seed, self.monitor, kept)
        if self.reliability is not None:
            how["reliability"] = self.reliability[kept]
        fit_part(refit, self.model, *told, **how)


class LinearRefits(Refits):
    """Fits of a linear model, with what it has learned where it can."""

    model: LinearMIL

    def __call__(self, kept: NDArray[np.intp]) -> Scorer:
        refit = clone(self.model).set_params(**self.model._learned())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the fit itself has said so
            self.fit(refit, kept)
        return partial(scores, refit)


class GaussianRefits(Refits):
    """Fits of a Gaussian-process model, with the scaling and hyperparameters of a fitted one."""

    model: GaussianProcessMIL

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
            self.fit(model, np.arange(len(self.bags)), of_whole=of_whole)
        except BREAKDOWNS as error:
            warn_user(f"{candidate.name} is left out of the average: its fit broke down: {error}")
            return {"posterior": None}
        return {"posterior": model.posterior_}

    @cached_property
    def features(self) -> list[Shared | None]:
        """What all refits see, where it is the same, by each posterior that is averaged."""
        return [self._shared(member) for member in self.model.posterior_.members]

    def _shared(self, member: Posterior) -> Shared | None:
        # A kernel that was chosen was so with points in these places.
        if not self.model.candidates_ and isinstance(self.model.inducing, str):
            return None  # refits place points of their own
        if not isinstance(self.bags.X, DaskRows):
            return SharedFeatures.of_posterior(self.model, member, self.bags)
        told = (self.bags, self.T, self.counts, self.seed, self.reliability)
        return features_on_workers(self.model, member, *told)

    @property
    def at_once(self) -> int:
        """All where workers keep the features: they make a pass of each in one task."""
        kept = [isinstance(s, SharedOnWorkers) and s.by_fold is not None for s in self.features]
        return FOLDS if all(kept) else 1

    def __call__(self, kept: NDArray[np.intp]) -> Scorer:
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
        self, member: Posterior, shared: Shared | None, kept: NDArray[np.intp]
    ) -> GaussianProcessMIL:
        refit = with_hyperparameters(self.model, member, self._rows_of(kept))
        of_whole = OfWhole(member.shift, member.scale)
        if shared is not None:
            of_whole = replace(of_whole, Z=shared.Z, features=shared(kept))
        with features_in_common(self.bags.X, budget=0):  # other fits are to other bags
            self.fit(refit, kept, of_whole=of_whole)
        return refit

    def _rows_of(self, kept: NDArray[np.intp]) -> Flags:
        """Which rows of the whole fit some bags have."""
        own = np.isin(self.bags.bag_index, kept)
        if self.rows is None:
            return own
        rows = self.rows.copy()
        rows[rows] = own
        return rows


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
        # A refit that goes on begins anew.
        in_turn(partial(monitor.step, step, objective, dict))

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
