"""How all models are fitted: checks, the fit, and its calibration on bags left out of five more."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags
from bagwise.core.calibration.bags import (
    ALL_BAG_SCORES,
    BagCalibration,
    calibrate_with_means,
    reason_against,
    too_few,
    warn_of_left_out,
)
from bagwise.core.calibration.conformal import known_positives, left_out_bags
from bagwise.core.calibration.instance_ends import InstanceCalibration
from bagwise.core.calibration.instances import (
    INSTANCE_SCORES,
    calibrate_instances,
    check_witness_rate,
    reason_against_instances,
    refuse_witness_rate,
)
from bagwise.core.calibration.left_out import LeftOut, bags_to_leave_out
from bagwise.core.calibration.novelty import seen_instances
from bagwise.core.calibration.pooled import PooledBags, PooledRegression
from bagwise.core.calibration.ranking import check_ranking
from bagwise.core.files.modelfile import register
from bagwise.core.inference.checkpoints import Saving
from bagwise.core.inference.monitor import Callback, listening
from bagwise.core.likelihoods.targets import halves
from bagwise.core.parameters import check_choice, check_integer, check_number, generator
from bagwise.core.threads import suitable_threads
from bagwise.distributed import connected, helped_by_workers
from bagwise.models._decisions import DECISIONS, DecidingMIL
from bagwise.models._refits import Refits, scores_by_refits
from bagwise.models.bag_weights import bag_counts
from bagwise.models.estimator import all_or_nothing, forget_earlier_fit
from bagwise.models.inputs import (
    bags_to_fit,
    binary_targets,
    known_labels,
    record_features,
)

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Reasons = tuple[str | None, str | None]  # against the calibration of bags, and of instances

CALIBRATED = (
    "calibration_",
    "why_not_calibrated_",
    "instance_calibration_",
    "why_instances_not_calibrated_",
    *DECISIONS,
)

register(BagCalibration)
register(PooledRegression)
register(InstanceCalibration)


class CalibratedMIL(DecidingMIL, abstract=True):
    """Fits that leave the model as it was where they fail; subclasses say what is fitted."""

    standardize: str | bool
    witness_rate: float | None
    max_iter: int
    tol: float
    chunk_size: int | None
    random_state: Any

    @property
    @abstractmethod
    def _remedies(self) -> str:
        """What may help where bags are ranked near chance, as a list in words."""

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        positive: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_minutes: float = 5.0,
        resume: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callback] = (),
        client: Any = None,
    ) -> Self:
        """Fit from bag labels.

        Parameters
        ----------
        X : Bags, a list of (n_b, D) arrays, a 2-D array with one instance per bag, or
            `bagwise.distributed.DaskBags`.
        y : one label per bag; overrides the labels of the bags. Two classes of any type. A pandas
            Series whose index holds the bag ids is put in their order.
        sample_weight : how many times each bag counts, one number per bag in the order of the
            bags, or in a pandas Series as `y`. 2 is the same as two copies of the bag in the sum of
            log-likelihoods, 0 leaves it out of that. Scaling, inducing points and the default
            kernel see every instance once. Weights of `class_weight` multiply it.
        positive : the label of bags with a positive instance, `classes_[1]`. By default the larger
            of two numbers or of two ordered categories; text needs it, but for pairs such as no
            and yes.
        checkpoint : a file to which the state of the fit is written every `checkpoint_minutes`,
            and on Ctrl-C. The state before it stays beside it, as `<file>.previous`. Of linear
            models it keeps the fits that are finished: to all bags, and those that calibrate.
        resume : a checkpoint to go on from, with the same data and arguments; further states
            are written to it unless `checkpoint` names another file.
        callbacks : functions called after every step as f(stage, step, objective, seconds).
            `begin(model)` and `end()` of those that have them are called before and after, and
            `look(model, stage, step)` after each sweep of `VGPMIL`, `LargeMarginVGPMIL` and psi
            models, with a copy that predicts. To stop, raise an error.
        client : the Dask client whose workers hold `DaskBags`.

        A fit that does not finish (an error, Ctrl-C) leaves the model as it was before.
        Instance labels of the bags (1, 0; NaN or -1 where unknown) are used where known.
        """
        saving = Saving(checkpoint, checkpoint_minutes, resume)
        told = {"sample_weight": sample_weight, "positive": positive, "callbacks": callbacks}
        return self._fit(X, y, client, **told, saving=saving)

    def _fit(
        self,
        X: Any,
        y: ArrayLike | None,
        client: Any,
        *,
        sample_weight: ArrayLike | None,
        positive: Any,
        callbacks: Sequence[Callback],
        **more: Any,
    ) -> Self:
        """Check, fit and record; `more` goes to `_fit_bags`."""
        self._check_parameters()
        with all_or_nothing(self), listening(callbacks, self):
            forget_earlier_fit(self)
            X = connected(X, client)
            bags = bags_to_fit(self, X, y)
            classes, T, counts = self._targets(X, bags, y, positive, sample_weight)
            known = known_labels(bags, T, noisy=self._bag_labels_may_be_wrong())
            rng = generator(self.random_state)
            self.classes_ = classes  # copies that callbacks look at predict before the fit ends
            record_features(self, bags)
            with self._threads(bags), helped_by_workers(bags.X):
                self._fit_bags(bags, T, known, rng, counts=counts, callbacks=callbacks, **more)
                self._check_ranking(bags, T, counts)
                self._keep_seen(bags, counts)
            self.metadata_: dict[str, Any] = {}  # what was said of an earlier fit no longer holds
        return self

    def _targets(
        self, X: Any, bags: Bags, y: ArrayLike | None, positive: Any, sample_weight: Any
    ) -> tuple[Array, Array, Array | None]:
        """Both classes, the label of each bag, and how many times it counts."""
        classes, T = binary_targets(bags, y, positive)
        return classes, T, bag_counts(X, bags, sample_weight, self.class_weight, classes, T)

    def _fit_bags(
        self,
        bags: Bags,
        T: NDArray[np.bool_],
        known: Array | None,
        rng: np.random.Generator,
        *,
        counts: Array | None,
        callbacks: Sequence[Callback],
    ) -> None:
        """Fit `posterior_` and what belongs to it.

        Known labels are NaN where they are not; `counts` say how many times each bag counts.
        """
        raise NotImplementedError

    def _check_parameters(self) -> None:
        """Raise where an argument that all models have cannot be used."""
        super()._check_parameters()
        check_choice("standardize", self.standardize, ("auto", True, False))
        check_choice("bag_score", self.bag_score, ALL_BAG_SCORES)
        check_choice("instance_score", self.instance_score, INSTANCE_SCORES)
        check_witness_rate(self.witness_rate, self.instance_score)
        check_integer("max_iter", self.max_iter, at_least=1)
        check_number("tol", self.tol, at_least=0)
        if self.chunk_size is not None:
            check_integer("chunk_size", self.chunk_size, at_least=1)

    def _n_basis(self, bags: Bags) -> int:
        """How many features the model makes of an instance, at most."""
        raise NotImplementedError

    def _threads(self, bags: Bags) -> AbstractContextManager[None]:
        """The threads that suit a fit to these bags."""
        sizes = (bags.n_instances, bags.n_features, self._n_basis(bags))
        return suitable_threads(*sizes, by_chunk=self._fits_by_chunk(bags))

    def _fits_by_chunk(self, bags: Bags) -> bool:
        """Whether all the work of a fit is in passes over chunks, which are in memory."""
        return False

    def _reasons_against(
        self, bags: Bags, T: Flags, counts: Array | None, whole: str | None, costly: str | None
    ) -> Reasons:
        """Why bags and instances are not calibrated; errors where they were asked for.

        `whole` says why no part of the bags can be fitted by itself, `costly` why "auto" does not
        pay for five more fits.
        """
        cannot = whole or too_few(bags, T, counts)
        ruled = self._rule_against()
        of_bags = reason_against(self.bag_score, ruled[0] or cannot, costly)
        of_instances = reason_against_instances(
            self.instance_score, ruled[1] or cannot, ruled[1] or of_bags
        )
        counting = T if counts is None else halves(T) & (counts > 0)
        refuse_witness_rate(self.witness_rate, of_instances, bags, counting)
        return of_bags, of_instances

    def _rule_against(self) -> Reasons:
        """What the meaning of bag labels has against calibrations."""
        return None, None

    def _calibrate(
        self,
        known: Array | None,
        reasons: Reasons,
        refits: Refits,
        scores: LeftOut | None = None,
    ) -> None:
        """Calibrate bags and instances of a fitted model, where there is no reason against it.

        Where `scores` of left-out bags are there already, nothing is fitted again. Bags that count
        nothing are no part of it.
        """
        self._not_calibrated(reasons)
        if None not in reasons:
            return
        bags, T, counts = refits.bags, refits.T, refits.counts
        some = bags_to_leave_out(bags, T, refits.seed, counts)
        if len(some) < len(bags):
            known = None if known is None else known[np.isin(bags.bag_index, some)]
            refits = refits.of(some)
            bags, T, counts = refits.bags, refits.T, refits.counts
        found = scores or scores_by_refits(refits)
        if isinstance(found, str):
            self.why_not_calibrated_, self.why_instances_not_calibrated_ = (
                reason or found for reason in reasons
            )
            return
        if reasons[0] is None:
            means = PooledBags.by(self.posterior_, bags.X, bags.offsets)
            pooled = means.left_out_logits(T, found.folds, counts)
            self.calibration_ = calibrate_with_means(found, T, pooled, means, counts)
            self.left_out_bags_ = left_out_bags(found, bags, T, pooled, counts)
            warn_of_left_out(self.left_out_bags_.logits, found, bags, T, self._remedies)
        if reasons[1] is None:
            self.instance_calibration_ = calibrate_instances(
                found.instance_logits, bags.offsets, T, known, self.witness_rate, counts
            )
        self.left_out_positives_ = known_positives(found.instance_logits, bags, known, counts)

    def _not_calibrated(self, reasons: Reasons) -> None:
        """Nothing is calibrated yet, or ever where there are reasons."""
        self.calibration_ = self.instance_calibration_ = None
        self.left_out_bags_ = self.left_out_positives_ = self.operating_point_ = None
        self.seen_instances_ = None
        self.why_not_calibrated_, self.why_instances_not_calibrated_ = reasons

    def _keep_seen(self, bags: Bags, counts: Array | None) -> None:
        posterior = getattr(self.posterior_, "posteriors", (self.posterior_,))[0]
        self.seen_instances_ = seen_instances(bags, posterior.scale, posterior.seed, counts)

    def _fit_in_parts(self) -> bool:
        """Whether some of the bags can be predicted by themselves."""
        return True

    def _check_ranking(self, bags: Bags, T: Flags, counts: Array | None = None) -> None:
        """Where there is a calibration, left-out bags were looked at."""
        if self.calibration_ is None:
            whole = not self._fit_in_parts()
            told = (bags, T, self.bag_score, self._remedies)
            check_ranking(self._predictor, *told, whole, counts)
