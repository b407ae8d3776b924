"""Bag probabilities calibrated on training bags that were left out of a fit.

The scores "joint" and "max" of a bag rank bags well, but their level depends on what bag labels do
not tell: how many instances of a positive bag are positive, and how far the residuals of a sparse
approximation are independent. So the model is fitted again without a fifth of its training bags at
a time, its hyperparameters as they are, and a logistic regression on the scores of the bags that
were left out turns them into a probability: Platt's scaling of three scores instead of one. The
third is that of the bag's mean features (`pooled`), for what no single instance shows.

Of more instances more seem positive by chance. How far the scores of negative bags that were left
out rise with the logarithm of their size is taken off all scores, so that a bag is not called
positive for its size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from bagwise.bags import Bags
from bagwise.core.calibration.left_out import SCORES, LeftOut, kept_off, score_moments
from bagwise.core.calibration.pooled import PooledBags, PooledRegression, bag_means
from bagwise.core.calibration.ranking import class_counts, warn_near_chance
from bagwise.core.likelihoods.bag_scores import BAG_SCORES, Predicted
from bagwise.core.links import Probit
from bagwise.core.smoothing import LOG_SQRT_2PI

Array = NDArray[Any]
Flags = NDArray[np.bool_]

ALL_BAG_SCORES = ("auto", "calibrated", *BAG_SCORES)
MIN_BAGS = 3  # of each class: fewer scores say nothing
SLOPE_SCALE = 1.0  # of the prior of slopes over log size, about zero
NO_DIFFERENCE = 1e-9  # squared deviations of log size of bags that all have the same
STEEPEST = 1.5  # slope; that of chances which are independent is 1
FULL_PRIOR = 10  # bags of each class from which priors have their full width
WIDEST = 12.0  # logarithm of a width that stands for certain but unknown labels
BISECTIONS = 45  # of a width's logarithm: to 1e-12
PRIOR_MEAN = np.array([1.0, 0.0, 0.0, 0.0])  # weights and intercept: "joint" as it is
PRIOR_SCALE = np.array([1.0, 1.0, 0.5, 3.0])


@dataclass(frozen=True)
class BagCalibration:
    """logit p = weights . (logit of "joint", logit of "max") + offset + intercept.

    The offset of a bag is made of its mean features, where there is a regression on them, and of
    its size: `offset`. No weight is negative, so a more probable instance never makes its bag less
    probable.

    >>> as_it_is = BagCalibration(np.array([1.0, 0.0]), 0.0, n_bags=40)
    >>> as_it_is.probability(logits(np.array([0.2, 0.9]), np.array([0.1, 0.7])))
    array([0.2, 0.9])
    """

    weights: Array  # (2,), of SCORES
    intercept: float
    n_bags: int  # whose scores it was fitted to
    pooled: PooledRegression | None = None
    pooled_weight: float = 0.0
    size_slope: float = 0.0  # of the weighted scores, over the logarithm of a bag's size
    usual_log_size: float = 0.0

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        weights = np.asarray(self.weights)
        if weights.shape != (len(SCORES),) or weights.dtype.kind != "f":
            raise ValueError(f"calibration: weights must be {len(SCORES)} numbers")
        if not (np.all(np.isfinite(weights)) and np.all(weights >= 0)):
            raise ValueError("calibration: weights must be finite and not negative")
        if not (np.isfinite(self.intercept) and self.n_bags > 0):
            raise ValueError("calibration: intercept must be finite and n_bags positive")
        if not (self.pooled is None or isinstance(self.pooled, PooledRegression)):
            raise ValueError("calibration: pooled must be a regression or None")
        if not (np.isfinite(self.pooled_weight) and self.pooled_weight >= 0):
            raise ValueError("calibration: pooled_weight must be finite and not negative")
        if not (np.isfinite(self.size_slope) and np.isfinite(self.usual_log_size)):
            raise ValueError("calibration: size_slope and usual_log_size must be finite")

    def probability(self, scores: Array, offset: Array | float = 0.0) -> Array:
        """P(positive) of bags with these logits (B, 2) and offsets (B,)."""
        return special.expit(self.logit(scores, offset))

    def logit(self, scores: Array, offset: Array | float = 0.0) -> Array:
        """logit P(positive), by which no two bags tie that differ."""
        return scores @ self.weights + offset + self.intercept

    def both(self, scores: Array, offset: Array | float = 0.0) -> Array:
        """P(negative) and P(positive), each with all its digits, (B, 2)."""
        z = self.logit(scores, offset)
        return special.expit(np.column_stack([-z, z]))

    def offset(self, log_sizes: Array, pooled: Array | None = None) -> Array:
        """(B,) what the sizes of bags and the logits of their mean features add."""
        beyond = log_sizes - self.usual_log_size
        of_means = 0.0 if pooled is None else self.pooled_weight * pooled
        return of_means - self.size_slope * beyond

    @property
    def readout(self) -> Array | None:
        """What a pass is to read out of the features of the kernel, where their means matter."""
        return self.pooled.coef if self.pooled is not None and self.pooled.of_kernel else None

    def pooled_logits(self, found: Predicted, X: Any) -> Array | None:
        """(B,) logits of the bags' mean features, where they matter, after a pass over X."""
        if self.pooled is None:
            return None
        if found.readout is not None:
            return self.pooled.from_readout(found.readout)
        return self.pooled.logits(bag_means(X, found.offsets))

    def left_out_logit(self, found: LeftOut) -> Array:
        """(B,) logits of left-out bags by their scores and sizes, without their mean features."""
        return self.logit(found.bag_scores, self.offset(found.log_sizes))

    def deviation(
        self, negative: Array, positive: Array, stds: Array, offset: Array | float = 0.0
    ) -> Array:
        """Standard deviation of P(positive), from P(negative), P(positive) and std of both scores.

        Each score is taken for Phi(x) of a Gaussian x with the score's mean and deviation. Scores
        rise and fall together, so that their widths add up as their logits do: each by its weight,
        and by d logit / dx there and at the calibrated probability. The logit of mean features is
        taken to be as wide as the others are on average.
        """
        score = quantile(np.log(negative), np.log(positive))
        both = self.both(kept_off(np.log(positive) - np.log(negative)), offset)
        calibrated = quantile(*np.log(both).T)
        logit_widths = width(score, stds) * np.exp(_log_logit_slope(score))
        own = logit_widths @ self.weights + self.pooled_weight * logit_widths.mean(axis=1)
        own *= np.exp(-_log_logit_slope(calibrated))
        return spread(calibrated, own)


def quantile(log_negative: Array, log_positive: Array) -> Array:
    """-|x| for the probability Phi(x): which label is the rarer one does not matter here."""
    return special.ndtri_exp(np.minimum(np.minimum(log_negative, log_positive), -np.log(2)))


def spread(x: Array, width: Array) -> Array:
    """Standard deviation of Phi(y) over Gaussian y of that width, where Phi(y) averages to Phi(x).

    It is at most sqrt(p (1 - p)), which it nears as the width grows.

    >>> spread(np.zeros(3), np.array([0.0, 1.0, 1e4])).round(3)
    array([0.   , 0.289, 0.5  ])
    """
    return Probit().moments(-x * np.sqrt(1 + width**2), width**2).std


def width(x: Array, std: Array) -> Array:
    """The width that has this `spread`, by bisection of its logarithm.

    >>> width(np.array([-1.0]), spread(np.array([-1.0]), np.array([0.5]))).round(6)
    array([0.5])
    """
    low, high = np.full(x.shape, -WIDEST), np.full(x.shape, WIDEST)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        narrow = spread(x, np.exp(middle)) < std
        low, high = np.where(narrow, middle, low), np.where(narrow, high, middle)
    return np.where(std > 0, np.exp(high), 0.0)


def _log_logit_slope(x: Array) -> Array:
    """log of d logit(Phi(x)) / dx = phi(x) / (Phi(x) Phi(-x))."""
    return -0.5 * x**2 - LOG_SQRT_2PI - special.log_ndtr(x) - special.log_ndtr(-x)


def logits(joint: Array, best: Array) -> Array:
    """(B, 2) logits of the two scores, which are kept off 0 and 1."""
    with np.errstate(divide="ignore"):
        return kept_off(special.logit(np.column_stack([joint, best])))


def too_few(bags: Bags, T: Flags, counts: Array | None = None) -> str | None:
    """Why these bags, or those of them that count, are too few to calibrate on, or None."""
    units = class_counts(bags, T, counts)
    if min(units) >= MIN_BAGS:
        return None
    what = "bags" if bags.groups is None else "groups with bags"
    return f"it takes {MIN_BAGS} {what} of each class, there are {units[0]} and {units[1]}"


def calibrate(
    found: LeftOut, T: Flags, pooled: Array | None = None, counts: Array | None = None
) -> BagCalibration:
    """The calibration of scores of left-out bags, of which T says which are positive.

    `pooled` are logits of their mean features by regressions that did not see them; the regression
    itself has still to be added to the calibration. `counts` say how many times each bag counts.

    >>> rng = np.random.default_rng(0)
    >>> T = np.arange(60) % 2 == 1
    >>> too_sure = np.repeat(20 * (T + 0.5 * rng.normal(size=60))[:, None] - 10, 2, axis=1)
    >>> found = LeftOut(too_sure, too_sure[:, 1], np.arange(60) % 5)
    >>> bool(calibrate(found, T).weights.sum() < 0.5)
    True
    """
    counts = np.ones(len(T)) if counts is None else counts
    usual, slopes = size_slopes(found, T, counts)
    beyond = found.log_sizes - usual
    scores = found.bag_scores - beyond[:, None] * slopes
    *weights, last, intercept = _most_probable(scores, T, pooled, counts).tolist()
    return BagCalibration(
        np.array(weights),
        intercept,
        int(np.count_nonzero(counts)),
        pooled_weight=last,
        size_slope=float(slopes @ np.array(weights)),
        usual_log_size=usual,
    )


def size_slopes(found: LeftOut, T: Flags, counts: Array) -> tuple[float, Array]:
    """Mean log size of all bags, and how far each score of negative ones rises with it, (2,).

    Slopes have a Gaussian prior about zero: few bags, bags of about the same size and scores that
    scatter tell little of them.

    >>> sizes = np.array([2, 20, 200, 2000, 2, 20, 200, 2000])
    >>> scores = np.repeat(np.log(sizes)[:, None], 2, axis=1)
    >>> found = LeftOut(scores, scores[:, 0], sizes % 5, sizes)
    >>> size_slopes(found, np.arange(8) > 3, np.ones(8))[1].round(2)
    array([1., 1.])
    """
    log_size, scores, c = found.log_sizes, found.bag_scores[~T], counts[~T]
    usual = float(np.average(log_size, weights=counts))
    beyond = log_size[~T] - np.average(log_size[~T], weights=c)
    known = float(c @ beyond**2)
    if known < NO_DIFFERENCE:
        return usual, np.zeros(scores.shape[1])
    scores = scores - np.average(scores, axis=0, weights=c)
    rise = (c * beyond) @ scores
    scatter = c @ (scores - np.outer(beyond, rise / known)) ** 2
    noise = scatter / max(float(c.sum()) - 2, 1.0)
    slopes = rise / (known + noise / SLOPE_SCALE**2)
    return usual, np.clip(slopes, 0.0, STEEPEST)


def calibrate_with_means(
    found: LeftOut, T: Flags, pooled: Array, means: PooledBags, counts: Array | None = None
) -> BagCalibration:
    """The calibration with the regression on the bags' mean features, if that has weight.

    `pooled` (B,) are logits by regressions that did not see the bags.
    """
    calibration = calibrate(found, T, pooled, counts)
    if calibration.pooled_weight == 0:
        return calibration
    return replace(calibration, pooled=means.regression(T, counts))


def warn_of_left_out(score: Array, found: LeftOut, bags: Bags, T: Flags, remedies: str) -> None:
    """Warn where bags that were left out are ranked near chance by their calibrated logits (B,).

    `remedies` may help.
    """
    best = found.bag_scores[:, 1]
    warn_near_chance(score, bags, T, "bags that were left out of the fit", remedies, best)


def _most_probable(scores: Array, T: Flags, pooled: Array | None, counts: Array) -> Array:
    """Weights and intercept at the mode of their posterior.

    The prior is centred at "joint" as it is: few bags move it little, and where a class has fewer
    than `FULL_PRIOR` it is narrower.
    """
    third = np.zeros(len(scores)) if pooled is None else pooled
    design = np.column_stack([scores, third, np.ones(len(scores))])
    sign = np.where(T, 1.0, -1.0)
    fewest = min(float(counts[T].sum()), float(counts[~T].sum()))
    scale = PRIOR_SCALE * np.sqrt(min(1.0, fewest / FULL_PRIOR))

    def objective(x: Array) -> tuple[float, Array]:
        z, deviation = sign * (design @ x), (x - PRIOR_MEAN) / scale
        value = -float(counts @ special.log_expit(z)) + 0.5 * float(deviation @ deviation)
        return value, -design.T @ (counts * sign * special.expit(-z)) + deviation / scale

    bounds = [(0.0, None)] * 3 + [(None, None)]
    found = optimize.minimize(objective, PRIOR_MEAN, jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(found.x, dtype=np.float64)


def reason_against(score: str, cannot: str | None, costly: str | None) -> str | None:
    """Why bag probabilities are not calibrated; an error where they were asked for.

    `cannot` says why there can be no calibration, `costly` why "auto" does not pay for it.
    """
    if score not in ("auto", "calibrated"):
        return f"bag_score={score!r} was asked for"
    if score == "auto":
        return cannot or costly
    if cannot is not None:
        raise ValueError(
            f"bag_score='calibrated' cannot be fitted here: {cannot}; use bag_score='joint', "
            "or 'auto', which calibrates only where it can"
        )
    return None


def calibrated_probability(
    calibration: BagCalibration | None, found: Predicted, why_not: str | None
) -> tuple[Array, Array]:
    """(B, 2) probabilities and the posterior standard deviation of each bag's."""
    if calibration is None:
        raise ValueError(
            "bag_score='calibrated' was set after fit, or could not be fitted: this model has "
            f"no calibration ({why_not}); set it, or 'auto', before fit, or go on with "
            "bag_score='joint'"
        )
    negative, positive, stds = score_moments(found)
    offset = calibration.offset(np.log(np.diff(found.offsets)), found.pooled)
    both = calibration.both(kept_off(np.log(positive) - np.log(negative)), offset)
    std = calibration.deviation(negative, positive, stds, offset)
    # What the rule of bags excludes stays excluded.
    possible = found.bags("joint").log_positive > -np.inf
    return np.where(possible[:, None], both, [1.0, 0.0]), np.where(possible, std, 0.0)
