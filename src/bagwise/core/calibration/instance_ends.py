"""Instance probabilities from bag labels alone: two ends, and what lies between them.

"At least one instance is positive" leaves open how many are. The logit s of an instance, by a fit
that did not see its bag, has a meaning at two ends. Lower: sigmoid(s), as few positives as bag
labels require. Upper: instances of positive bags that look unlike those of negative bags are
positive. With p = sigmoid(a s + b) and rho(s) = sigmoid(r + c s), the share of positive bags among
those of negative instances,

    P(T = 1 | s) = p + (1 - p) rho(s),    P(T = 0 | s) = (1 - p) (1 - rho(s)),

whose a, b, r, c are fitted to the labels T of the bags of all instances. The drift c >= 0 is for
negatives that look a little positive because their bag is: without it they would all count as
positives. By Bayes' rule, an instance of a positive bag is positive with the odds

    sigmoid(s) / sigmoid(-s) / P(others hold a positive)    at the lower end,
    p / (1 - p) / rho(s)                                    at the upper end,

and of any bag with that probability times the bag's own: no instance is more probable than its
bag, and the only instance of a bag is as probable as its bag. What lies between the ends no number
of bag labels tells; a stated share of positives or known labels of instances do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.calibration.left_out import kept_off
from bagwise.core.likelihoods.bag_scores import Predicted, log_odds
from bagwise.core.parameters import check_number

Array = NDArray[Any]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class InstanceCalibration:
    """Both ends of the probability of an instance, from its logit and its bag's probability.

    >>> ends = InstanceCalibration(1.0, 2.0, -1.0, 0.0, np.zeros(2), 0.8, 1.0, n_bags=40)
    >>> found = ends.probability(np.array([-3.0, 1.0]), np.array([0, 2]), np.array([[0.1, 0.9]]))
    >>> found.low.round(3), found.p[:, 1].round(3), found.high.round(3)
    (array([0.057, 0.885]), array([0.427, 0.887]), array([0.52 , 0.888]))
    """

    slope: float  # a
    intercept: float  # b
    share: float  # r, a logit
    drift: float  # c
    shifts: Array  # (2,) of the logits of both ends, for a stated share of positives
    weight: float  # of the upper end
    doubt: float  # share of the way between the ends that known instance labels leave open
    n_bags: int  # whose instances it was fitted to

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        check_number("instance calibration: slope", self.slope, above=0)
        for name in ("intercept", "share"):
            check_number(f"instance calibration: {name}", getattr(self, name))
        check_number("instance calibration: drift", self.drift, at_least=0)
        for name in ("weight", "doubt"):
            value = check_number(f"instance calibration: {name}", getattr(self, name), at_least=0)
            if value > 1:
                raise ValueError(f"instance calibration: {name} must be at most 1, got {value}")
        shifts = np.asarray(self.shifts)
        if shifts.shape != (2,) or shifts.dtype.kind != "f" or not np.all(np.isfinite(shifts)):
            raise ValueError("instance calibration: shifts must be 2 finite numbers")
        if not (self.drift < self.slope and self.n_bags > 0):
            raise ValueError(
                "instance calibration: drift must be less than slope and n_bags positive"
            )

    def logits(self, s: Array, offsets: Array) -> Array:
        """(N, 2) logit P(y = 1 | the bag is positive) at both ends; infinite for bags of one."""
        upper = self.slope * s + self.intercept - special.log_expit(self.share + self.drift * s)
        upper = np.where(is_alone(offsets), np.inf, upper)
        return np.column_stack([lower_logits(s, offsets), upper]) + self.shifts

    def probability(
        self,
        s: Array,
        offsets: Array,
        bag_p: Array,
        std: Array | None = None,
        bag_std: Array | None = None,
    ) -> Ends:
        """Both ends, from logits (N,) and probabilities (B, 2) of the bags.

        With the standard deviations of instances and bags, also that of the result.
        """
        sizes = np.diff(offsets)
        z = self.logits(s, offsets)
        P_negative, P = np.repeat(bag_p, sizes, axis=0).T[:, :, None]
        positive, negative = P * special.expit(z), P_negative + P * special.expit(-z)  # (N, 2)
        weights = np.array([1 - self.weight, self.weight])
        p = np.column_stack([negative @ weights, positive @ weights])
        ends = p[:, 1:] + self.doubt * (positive - p[:, 1:])
        low, high = ends.min(axis=1), ends.max(axis=1)
        if std is None or bag_std is None:
            return Ends(p, None, low, high)
        slopes = self.slope - self.drift * special.expit(-self.share - self.drift * s)
        widths = logit_width(special.expit(s), std)[:, None] * np.column_stack([0 * s + 1, slopes])
        within = product_variance(P, np.repeat(bag_std**2, sizes)[:, None], z, widths)
        between = weights[0] * weights[1] * (high - low) ** 2
        return Ends(p, np.sqrt(within @ weights + between), low, high)


@dataclass(frozen=True)
class Ends:
    """Probabilities of instances and how far they could be from there."""

    p: Array  # (N, 2) of both labels
    std: Array | None = None  # (N,) with what lies between the ends
    low: Array | None = None  # (N,) of the positive label, where calibrated
    high: Array | None = None  # (N,)


def is_alone(offsets: Array) -> Flags:
    """(N,) which instances are the only ones of their bags.

    >>> is_alone(np.array([0, 1, 3]))
    array([ True, False, False])
    """
    sizes = np.diff(offsets)
    return np.repeat(sizes == 1, sizes)


def lower_logits(s: Array, offsets: Array) -> Array:
    """logit P(y_n = 1 | at least one positive in the bag), instances independent given s.

    >>> lower_logits(np.array([0.0, 0.0, 5.0]), np.array([0, 2, 3])).round(3)  # 2 : 1, certain
    array([0.693, 0.693,   inf])
    """
    log_negative = special.log_expit(-s)
    sums = np.repeat(np.add.reduceat(log_negative, offsets[:-1]), np.diff(offsets))
    others = np.where(is_alone(offsets), 0.0, np.minimum(sums - log_negative, 0.0))
    with np.errstate(divide="ignore"):
        return s - np.log(-np.expm1(others))


def logit_width(p: Array, std: Array) -> Array:
    """Width of the logit of a probability with this deviation; see `deviation`."""
    most = p * (1 - p)
    return std / np.sqrt(np.maximum(most * (most - std**2), np.finfo(float).tiny))


def deviation(p: Array, negative: Array, width: Array) -> Array:
    """Standard deviation of a probability p = 1 - negative whose logit has this width.

    p (1 - p) width where that is small; it nears sqrt(p (1 - p)) as the width grows.

    >>> deviation(np.array(0.5), np.array(0.5), logit_width(np.array(0.5), np.array(0.2))).round(3)
    np.float64(0.2)
    """
    most = p * negative
    return np.sqrt(most / (1 + 1 / np.maximum(most * width**2, np.finfo(float).tiny)))


def product_variance(P: Array, variance: Array, z: Array, width: Array) -> Array:
    """Variance of P g, where P has that variance and g = sigmoid(z) a logit of that width."""
    g = special.expit(z)
    of_g = deviation(g, special.expit(-z), width) ** 2
    return np.maximum((P**2 + variance) * of_g + variance * g**2, 0.0)


def calibrated_ends(
    calibration: InstanceCalibration, found: Predicted, bag_p: Array, bag_std: Array | None
) -> Ends:
    """Both ends for what one pass has found; without deviations of bags, none of instances."""
    assert found.instances is not None
    s, std = kept_off(log_odds(found.instances)), found.instances.std
    return calibration.probability(s, found.offsets, bag_p, std, bag_std)
