"""A fitted model again with more instance labels, in seconds: what it has learned is kept."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from bagwise.bags import Bags
from bagwise.core.calibration.bags import too_few
from bagwise.core.calibration.candidates import log_likelihood
from bagwise.core.calibration.left_out import Scorer, Scores, bags_to_leave_out, left_out
from bagwise.core.inference.stats import Q
from bagwise.core.likelihoods.rules import AT_LEAST_ONE
from bagwise.core.parameters import generator
from bagwise.core.posteriors.averaged import AveragedPosterior
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.models._calibrated import CALIBRATED, CalibratedMIL
from bagwise.models._gaussian_process import GaussianProcessMIL
from bagwise.models._linear import LinearMIL
from bagwise.models._refits import scores, with_hyperparameters
from bagwise.models._shared_features import OfWhole, SharedFeatures
from bagwise.models.bag_weights import bag_counts
from bagwise.models.inputs import bag_targets, bags_to_predict, known_labels

Array = NDArray[Any]


class QuickRefits:
    """Fits of a model to the same bags, again and again, as labels of instances come in.

    Kernel, mean, inducing points, scaling and calibration stay those of the fitted model: only the
    posterior moves, from where the last fit ended. A whole fit may choose and learn them anew.

    >>> from bagwise import ProbitVGPMIL
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> model = ProbitVGPMIL(n_inducing=30, random_state=0).fit(bags)
    >>> known = np.full(bags.n_instances, np.nan)
    >>> rows = model.suggest_instances(bags, 5)
    >>> known[rows] = truth[rows]
    >>> refits = QuickRefits(model, bags)
    >>> again = refits(known)
    >>> np.array_equal(again.predict_instances(bags)[rows], truth[rows])
    True
    """

    def __init__(self, model: CalibratedMIL, bags: Bags, sample_weight: ArrayLike | None = None):
        if getattr(model, "rule", AT_LEAST_ONE) != AT_LEAST_ONE:
            raise ValueError(
                f"quick refits know the rule 'at least one' only; with rule={model.rule!r} fit the "
                "model again with the labels"
            )
        self._model = model
        self._bags = bags_to_predict(model, bags)
        self._T = bag_targets(model, self._bags, None)
        self._counts = bag_counts(
            self._bags, self._bags, sample_weight, model.class_weight, model.classes_, self._T
        )
        self._last = model

    def __call__(self, known: Array) -> CalibratedMIL:
        """The model with labels of instances `known` (N,), NaN where they are not."""
        refit = self._fitted(known, np.arange(len(self._bags)))
        found = copy.copy(self._model)
        for name in refit._fitted_names():
            if name not in (*CALIBRATED, "candidates_", "classes_", "n_features_in_"):
                setattr(found, name, getattr(refit, name))
        self._last = found
        return found

    def left_out_likelihood(
        self, known: Array, go_on: Callable[[], bool] = lambda: True
    ) -> float | None:
        """Average log-probability of the labels of bags that were left out of refits.

        None where there are too few bags, or where `go_on`, which is asked before each of the five
        refits, said no.
        """
        if too_few(self._bags, self._T, self._counts) is not None:
            return None
        seed = int(self._model.posterior_.seed)
        some = bags_to_leave_out(self._bags, self._T, seed, self._counts)

        def refit(kept: NDArray[np.intp]) -> Scorer:
            fitted = self._fitted(known, some[kept])
            return lambda others: scores(fitted, others)

        def keep(stage: str, work: Callable[[], Scores]) -> Scores:
            if not go_on():
                raise _Interrupted
            return work()

        try:
            found = left_out(self._bags[some], self._T[some], seed, refit, keep)
        except _Interrupted:
            return None
        return log_likelihood(
            found, self._T[some], None if self._counts is None else self._counts[some]
        )

    def _fitted(self, known: Array, kept: NDArray[np.intp]) -> CalibratedMIL:
        """A fit to some of the bags, not calibrated; of each posterior that is averaged."""
        part, T = self._bags.with_instance_labels(known)[kept], self._T[kept]
        counts = None if self._counts is None else self._counts[kept]
        labels = known_labels(part, T, noisy=self._model._bag_labels_may_be_wrong())
        fits = []
        for refit, how in self._prepared(kept):
            refit.set_params(bag_score="joint", instance_score="posterior", witness_rate=None)
            rng = generator(int(self._model.posterior_.seed))
            with warnings.catch_warnings(), refit._threads(part):
                warnings.simplefilter("ignore")  # the fit that this one repeats has warned
                refit._fit_bags(part, T, labels, rng, counts=counts, callbacks=(), **how)
            fits.append(refit)
        leading: CalibratedMIL = fits[0]
        if len(fits) > 1:
            members = [fit.posterior_ for fit in fits]
            leading.posterior_ = AveragedPosterior.of(members, self._model.posterior_.weights)
        leading.n_features_in_, leading.classes_ = self._bags.n_features, self._model.classes_
        return leading

    def _prepared(self, kept: NDArray[np.intp]) -> list[tuple[Any, dict[str, Any]]]:
        """Models, not fitted, with what was learned for arguments, and what they begin at."""
        model = self._model
        if isinstance(model, LinearMIL):
            return [(clone(model).set_params(**model._learned()), {})]
        if not isinstance(model, GaussianProcessMIL):
            return [(clone(model), {})]
        plain = copy.copy(model)
        plain.init = None  # of the rows of another fit
        rows = np.ones(self._bags.n_instances, dtype=bool)
        return [
            (
                with_hyperparameters(plain, last, rows),
                {"of_whole": OfWhole(last.shift, last.scale, last.Z, shared(kept), _end_of(last))},
            )
            for last, shared in zip(self._last.posterior_.members, self._features, strict=True)
        ]

    @cached_property
    def _features(self) -> list[SharedFeatures]:
        model = self._model
        assert isinstance(model, GaussianProcessMIL)
        members = model.posterior_.members
        return [SharedFeatures.of_posterior(model, member, self._bags) for member in members]


def _end_of(last: Posterior) -> Q:
    """Where the last fit ended."""
    return Q(last.m, last.S, last.c0, float(np.linalg.slogdet(last.S)[1]))


class _Interrupted(Exception):
    """Somebody has more important work."""
