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
from scipy import optimize, special

from bagwise.bags import Bags
from bagwise.core.calibration.left_out import kept_off
from bagwise.core.parameters import check_number
from bagwise.core.posteriors.gaussian import Predicted, log_odds

Array = NDArray[Any]
Flags = NDArray[np.bool_]

INSTANCE_SCORES = ("auto", "calibrated", "posterior")
WEIGHT = 0.8  # of the upper end, from a study of 50 sets (benchmarks/instances.py)
WEIGHT_PRIOR = (4.0, 1.0)  # of a Beta distribution with that mean, where instance labels are known
PRIOR_SCALE = np.array([0.5, 3.0, 3.0, 0.3])  # of log a, b, r and c / a, all around 0
MOST_DRIFT = 0.9  # of c / a: the upper end rises with s, whatever negatives do
FURTHEST = 60.0  # shift of a logit for a stated share of positives
BOUNDS = [(-3.0, 3.0), (-30.0, 30.0), (-15.0, 15.0), (0.0, MOST_DRIFT)]


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


# --- Fitting -------------------------------------------------------------------------------------


def calibrate_instances(
    s: Array,
    offsets: Array,
    T: Flags,
    known: Array | None = None,
    witness_rate: float | None = None,
) -> InstanceCalibration:
    """The calibration of logits of instances whose bags, labelled T, were left out of the fit.

    `known` labels of instances are NaN where they are not; `witness_rate` is the share of positives
    among the instances of positive bags.

    >>> rng = np.random.default_rng(0)
    >>> T = np.arange(100) % 2 == 1
    >>> y = np.repeat(T, 20) & (rng.random(2000) < 0.4)
    >>> s = np.where(y, 3.0, -3.0) + rng.normal(size=2000) - 4  # the level is far too low
    >>> ends = calibrate_instances(s, np.arange(0, 2001, 20), T)
    >>> bags = np.column_stack([~T, T]).astype(float)
    >>> round(float(ends.probability(s, np.arange(0, 2001, 20), bags).high.mean()), 1)
    0.2
    """
    known = np.full(len(s), np.nan) if known is None else known
    x = most_probable(Rows(s, *rows_of(offsets, T, known)))
    slope = float(np.exp(x[0]))
    plain = InstanceCalibration(
        slope, float(x[1]), float(x[2]), slope * float(x[3]), np.zeros(2), WEIGHT, 1.0, len(T)
    )
    z = plain.logits(s, offsets)
    inside = np.repeat(T, np.diff(offsets))
    shifts = np.zeros(2)
    if witness_rate is not None:
        shifts = np.array([shift_to_share(end[inside], known[inside], witness_rate) for end in z.T])
    told = inside & np.isfinite(known) & ~is_alone(offsets)
    weight, doubt = weight_from_labels(special.expit(z + shifts)[told], known[told] == 1)
    fields = vars(plain) | {"shifts": shifts, "weight": weight, "doubt": doubt}
    return InstanceCalibration(**fields)


@dataclass(frozen=True)
class Rows:
    """Instances of left-out bags: logits, and what is known of them."""

    s: Array  # (N,)
    T: Flags  # (N,) label of the bag
    y: Array  # (N,) 1, 0, or NaN where the label is not known
    alone: Flags  # (N,) whether the bag has no other instance


def rows_of(offsets: Array, T: Flags, known: Array) -> tuple[Flags, Array, Flags]:
    """Label of the bag, of the instance where the bag's or its own settles it, and if alone."""
    inside, alone = np.repeat(T, np.diff(offsets)), is_alone(offsets)
    y = np.where(np.isnan(known) & (alone | ~inside), inside, known)
    return inside, y, alone


def most_probable(rows: Rows) -> Array:
    """log a, b, r and c / a at the mode of their posterior, from starts at both ends."""
    share = float(np.clip(rows.T.mean(), 0.01, 0.99))
    r = float(special.logit(share))
    starts = ((0.0, 0.0, r, 0.0), (0.0, 3.0, r - 1, 0.0), (0.0, 0.0, r, 0.2))
    found = [
        optimize.minimize(
            neg_log_posterior, start, (rows,), jac=True, method="L-BFGS-B", bounds=BOUNDS
        )
        for start in starts
    ]
    best = min(found, key=lambda result: float(result.fun))
    return np.asarray(best.x, dtype=np.float64)


def neg_log_posterior(x: Array, rows: Rows) -> tuple[float, Array]:
    """-sum_n log P(T_n, y_n where known | s_n) - log prior, and its gradient."""
    a, (b, r, k) = np.exp(x[0]), x[1:]
    s, (z, u) = rows.s, (a * rows.s + b, r + k * a * rows.s)
    in_positive = np.where(rows.T, special.log_expit(u), special.log_expit(-u))
    log_1 = special.log_expit(z)
    log_0 = special.log_expit(-z) + np.where(rows.alone, 0.0, in_positive)
    free = np.isnan(rows.y)
    log_p = np.where(free, np.logaddexp(log_1, log_0), np.where(rows.y == 1, log_1, log_0))
    gamma = np.where(free, np.exp(log_1 - log_p), rows.y)  # P(y_n = 1 | T_n, s_n)
    d_z = gamma - special.expit(z)
    d_u = np.where(rows.alone, 0.0, (1 - gamma) * (rows.T - special.expit(u)))
    slope = float(np.sum((d_z + k * d_u) * a * s))
    gradient = np.array([slope, np.sum(d_z), np.sum(d_u), np.sum(d_u * a * s)])
    deviation = x / PRIOR_SCALE
    value = -float(np.sum(log_p)) + 0.5 * float(deviation @ deviation)
    return value, -gradient + deviation / PRIOR_SCALE


def shift_to_share(z: Array, known: Array, rate: float) -> float:
    """The shift of all logits by which this share of instances is positive.

    >>> round(shift_to_share(np.array([0.0, 0.0]), np.array([np.nan, np.nan]), 0.25), 3)  # log 1/3
    -1.099
    """

    def excess(shift: float) -> float:
        p = np.where(np.isnan(known), special.expit(z + shift), known)
        return float(np.mean(p)) - rate

    if excess(FURTHEST) <= 0:
        return FURTHEST
    if excess(-FURTHEST) >= 0:
        return -FURTHEST
    return float(optimize.brentq(excess, -FURTHEST, FURTHEST))


def weight_from_labels(ends: Array, y: Flags) -> tuple[float, float]:
    """Posterior mean of the upper end's weight, and its deviation as a share of the prior's.

    `ends` (n, 2) are probabilities of n instances whose labels y are known.

    >>> weight_from_labels(np.empty((0, 2)), np.empty(0, dtype=bool))
    (0.8, 1.0)
    """
    w = (np.arange(400) + 0.5) / 400
    alpha, beta = WEIGHT_PRIOR
    log_prior = (alpha - 1) * np.log(w) + (beta - 1) * np.log1p(-w)
    of_y = np.where(y[:, None], ends, 1 - ends)
    mixed = of_y[:, :1] * (1 - w) + of_y[:, 1:] * w
    log_posterior = log_prior + np.sum(np.log(np.maximum(mixed, 1e-12)), axis=0)
    mean, std = _moments(w, log_posterior)
    prior_mean, prior_std = _moments(w, log_prior)
    return round(WEIGHT + mean - prior_mean, 12), min(round(std / prior_std, 12), 1.0)


def _moments(w: Array, log_density: Array) -> tuple[float, float]:
    """Mean and standard deviation of points with these unnormalised log-weights."""
    density = special.softmax(log_density)
    mean = float(density @ w)
    return mean, float(np.sqrt(density @ (w - mean) ** 2))


def check_witness_rate(rate: Any, score: str) -> None:
    """Raise where `witness_rate` is no share, or asked for beside what does not use it."""
    if rate is None:
        return
    check_number("witness_rate (None or a share of positive instances)", rate, above=0)
    if rate > 1:
        raise ValueError(f"witness_rate must be at most 1, got {rate}; it is a share, not percent")
    if score == "posterior":
        raise ValueError(
            "witness_rate calibrates instances, but instance_score='posterior' leaves them as they "
            "are; use instance_score='auto' or 'calibrated', or leave witness_rate out"
        )


def refuse_witness_rate(
    rate: float | None, not_calibrated: str | None, bags: Bags, T: Flags
) -> None:
    """Raise where a stated share cannot be used, or is less than one instance of each bag."""
    if rate is None:
        return
    if not_calibrated is not None:
        raise ValueError(
            f"witness_rate calibrates instances, which is not done here: {not_calibrated}; leave "
            "it out, or ask for instance_score='calibrated'"
        )
    n_instances, n_bags = int(bags.sizes[T].sum()), int(T.sum())
    if rate * n_instances < n_bags:
        raise ValueError(
            f"witness_rate={rate} of the {n_instances} instances of positive bags are fewer than "
            f"one for each of the {n_bags} bags; it is the share of positive instances in positive "
            f"bags, at least {n_bags / n_instances:.3g} here"
        )


def reason_against_instances(score: str, cannot: str | None, bags: str | None) -> str | None:
    """Why instances are not calibrated; an error where that was asked for.

    `cannot` says why nothing can be calibrated, `bags` why bags are not.
    """
    if score == "posterior":
        return "instance_score='posterior' was asked for"
    if score == "auto":
        return bags
    if cannot is not None:
        raise ValueError(
            f"instance_score='calibrated' cannot be fitted here: {cannot}; use "
            "instance_score='posterior', or 'auto', which calibrates only where it can"
        )
    return None


def no_calibration(why_not: str | None) -> str:
    """What to say where calibrated instances were asked of a model that has no calibration."""
    return (
        "instance_score='calibrated' was set after fit, or could not be fitted: this model has no "
        f"calibration of instances ({why_not}); set it, or 'auto', before fit, or go on with "
        "instance_score='posterior'"
    )
