"""Models whose probabilities are calibrated on bags that were left out of five more fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.calibration.bags import (
    BagCalibration,
    calibrate_with_means,
    calibrated_probability,
    reason_against,
    too_few,
    warn_of_left_out,
)
from bagwise.core.calibration.conformal import known_positives, left_out_bags
from bagwise.core.calibration.instance_ends import InstanceCalibration
from bagwise.core.calibration.instances import (
    calibrate_instances,
    no_calibration,
    reason_against_instances,
    refuse_witness_rate,
)
from bagwise.core.calibration.left_out import LeftOut, Scorer, bags_to_leave_out
from bagwise.core.calibration.novelty import seen_instances
from bagwise.core.calibration.pooled import PooledRegression, bag_means
from bagwise.core.calibration.ranking import check_ranking
from bagwise.core.files.modelfile import register
from bagwise.core.inference.monitor import Monitor
from bagwise.core.likelihoods.bag_scores import Predicted, columns, parts_of
from bagwise.models._decisions import DECISIONS, DecidingMIL
from bagwise.models._refits import scores_by_refits

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
    """Probabilities as `bag_score` and `instance_score` ask for; subclasses say how to refit."""

    instance_score: str
    witness_rate: float | None
    calibration_: BagCalibration | None
    why_not_calibrated_: str | None
    instance_calibration_: InstanceCalibration | None
    why_instances_not_calibrated_: str | None

    @property
    def bag_score_(self) -> str:
        """Where bag probabilities come from; it says what `bag_score="auto"` came to."""
        if self.bag_score != "auto":
            return self.bag_score
        return "joint" if getattr(self, "calibration_", None) is None else "calibrated"

    @property
    def instance_score_(self) -> str:
        """Where instance probabilities come from: "calibrated" or "posterior"."""
        if self.instance_score != "auto":
            return self.instance_score
        there = getattr(self, "instance_calibration_", None) is not None
        return "calibrated" if there else "posterior"

    def _reasons_against(
        self, bags: Bags, T: Flags, counts: Array | None, whole: str | None, costly: str | None
    ) -> Reasons:
        """Why bags and instances are not calibrated; errors where they were asked for.

        `whole` says why no part of the bags can be fitted by itself, `costly` why "auto" does not
        pay for five more fits.
        """
        cannot = whole or too_few(bags, T, counts)
        of_bags = reason_against(self.bag_score, cannot, costly)
        of_instances = reason_against_instances(self.instance_score, cannot, of_bags)
        counting = T if counts is None else T & (counts > 0)
        refuse_witness_rate(self.witness_rate, of_instances, bags, counting)
        return of_bags, of_instances

    def _calibrate(
        self,
        bags: Bags,
        T: Flags,
        known: Array | None,
        counts: Array | None,
        reasons: Reasons,
        seed: int,
        monitor: Monitor,
        refit: Callable[[NDArray[np.intp]], Scorer],
        scores: LeftOut | None = None,
    ) -> None:
        """Calibrate bags and instances of a fitted model, where there is no reason against it.

        Where `scores` of left-out bags are there already, nothing is fitted again. Bags that count
        nothing are no part of it.
        """
        self._not_calibrated(reasons)
        if None not in reasons:
            return
        some = bags_to_leave_out(bags, T, seed, counts)
        if len(some) < len(bags):
            known = None if known is None else known[np.isin(bags.bag_index, some)]
            bags, T = bags[some], T[some]
            counts = None if counts is None else counts[some]
        found = scores or scores_by_refits(bags, T, seed, monitor, lambda kept: refit(some[kept]))
        if isinstance(found, str):
            self.why_not_calibrated_, self.why_instances_not_calibrated_ = (
                reason or found for reason in reasons
            )
            return
        if reasons[0] is None:
            means = bag_means(bags.X, bags.offsets)
            self.calibration_ = calibrate_with_means(found, T, means, self.posterior_.scale, counts)
            self.left_out_bags_ = left_out_bags(
                found, bags, T, means, self.posterior_.scale, counts
            )
            warn_of_left_out(self.calibration_, found, bags, T, self._remedies)
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

    def _score_parts(self) -> dict[str, bool]:
        if self.bag_score_ != "calibrated":
            return parts_of(self.bag_score_)
        return {"joint": True, "instances": True}

    def _predicted(self, bags: Bags, *, second: bool = True, instances: bool = False) -> Predicted:
        found = super()._predicted(bags, second=second, instances=instances)
        calibration = getattr(self, "calibration_", None)
        if calibration is None or self.bag_score_ != "calibrated":
            return found
        return replace(found, pooled=calibration.pooled_logits(bags.X, bags.offsets))

    def _bag_probability(self, found: Predicted) -> tuple[Array, Array]:
        if self.bag_score_ != "calibrated":
            return columns(found.bags(self.bag_score_))
        why_not = getattr(self, "why_not_calibrated_", None)
        return calibrated_probability(getattr(self, "calibration_", None), found, why_not)

    def _used_instance_calibration(self) -> InstanceCalibration | None:
        if self.instance_score_ != "calibrated":
            return None
        calibration: InstanceCalibration | None = getattr(self, "instance_calibration_", None)
        if calibration is None:
            raise ValueError(no_calibration(getattr(self, "why_instances_not_calibrated_", None)))
        return calibration
