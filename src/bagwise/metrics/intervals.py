"""Intervals of shares and areas that stay honest at 0 and 1, with patients as units.

An interval from resampled bags is a point where all bags are called rightly: no resample is
worse. Score intervals ask instead which true values could have given what was seen. Bags of one
patient are alike, so they count for less than as many patients: the counts are divided by the
design effect, the factor by which the variance of a score grows when whole patients are drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from bagwise.metrics.calibration import wilson
from bagwise.metrics.inputs import Bools, Floats

Units = NDArray[np.int64]  # (n,) number of the group of each label: 0, 1, ...
Limits = tuple[float, float]


def units_of(groups: Any, n: int) -> Units:
    """The number of each label's group; without groups each label is its own."""
    if groups is None:
        return np.arange(n)
    named = np.asarray(groups)
    if named.shape != (n,):
        raise ValueError(
            f"groups must have one entry per label, {n}; got shape {named.shape}; pass bags.groups"
        )
    return np.asarray(np.unique(named, return_inverse=True)[1], dtype=np.int64)


def share_interval(right: Bools, units: Units, level: float) -> Limits:
    """Wilson's interval of the share of labels that are right."""
    share = float(np.mean(right))
    size = right.size / design_effect(right.astype(np.float64) - share, units)
    return wilson(share, size, quantile(level))


def precision_interval(
    value: float, positive: Bools, score: Floats, units: Units, level: float
) -> Limits:
    """Wilson's interval of an average precision, as a share of the positive labels.

    Boyd, Eng and Page (2013) find a binomial variance in the number of positives about right.
    How well a positive is ranked moves the area under both curves, so patients count likewise.
    """
    influence = auc_influence(positive, score)[positive]
    size = influence.size / design_effect(influence, units[positive])
    return wilson(value, size, quantile(level))


def auc_interval(
    value: float, positive: Bools, score: Floats, units: Units, level: float
) -> Limits:
    """Newcombe's (2006) score interval of an area under the ROC curve, his fifth method.

    The true areas t with |value - t| <= z sqrt(V(t)), where V is Hanley and McNeil's variance
    for classes of equal size.

    >>> y = np.arange(9) < 4
    >>> low, high = auc_interval(1.0, y, y * 1.0, np.arange(9), 0.95)
    >>> round(low, 2), high
    (0.61, 1.0)
    """
    effect = design_effect(auc_influence(positive, score), units)
    m, n = positive.sum() / effect, (~positive).sum() / effect
    z = quantile(level)

    def gap(t: float) -> float:
        return abs(value - t) - z * np.sqrt(_auc_variance(t, float(m), float(n)))

    # At 0 and 1 the variance is 0, so that the value itself would be a root.
    beside = 1e-9
    low = 0.0 if gap(0.0) <= 0 else optimize.brentq(gap, 0.0, value * (1 - beside))
    high = 1.0 if gap(1.0) <= 0 else optimize.brentq(gap, value + (1 - value) * beside, 1.0)
    return float(low), float(high)


def _auc_variance(t: float, m: float, n: float) -> float:
    """Variance of an area t over m positives and n negatives (Hanley and McNeil 1982)."""
    others = max((m + n) / 2 - 1, 0.0)
    return t * (1 - t) * (1 + others * ((1 - t) / (2 - t) + t / (1 + t))) / (m * n)


def auc_influence(positive: Bools, score: Floats) -> Floats:
    """How far each label moves the area, (n,): DeLong's placements over the class sizes."""
    above, below = score[positive], score[~positive]
    influence = np.empty(score.size)
    influence[positive] = placements(above, below) / above.size
    influence[~positive] = placements(-below, -above) / below.size
    centre = np.where(positive, influence[positive].mean(), influence[~positive].mean())
    return influence - centre


def placements(x: Floats, others: Floats) -> Floats:
    """Share of the others that each x exceeds, ties counting half."""
    ranked = np.sort(others)
    places = np.searchsorted(ranked, x, "left") + np.searchsorted(ranked, x, "right")
    return np.asarray(places / (2 * others.size))


def design_effect(influence: Floats, units: Units) -> float:
    """Variance of a score when groups are drawn over that when labels are drawn, at least 1.

    At most the labels per group, which it is where no label differs from another: then nothing
    tells whether bags of one patient are alike, and they are taken to be.

    >>> design_effect(np.array([1.0, 1.0, -1.0, -1.0]), np.array([0, 0, 1, 1]))
    2.0
    >>> design_effect(np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 0, 1, 1]))
    1.0
    """
    n_groups = len(np.unique(units))
    most = units.size / n_groups
    alone = float(np.sum(influence**2))
    if most == 1:
        return 1.0
    if alone < 1e-20 or n_groups == 1:
        return most
    sums = np.bincount(units, weights=influence)
    together = float(np.sum(sums**2)) * n_groups / (n_groups - 1)
    return float(np.clip(together / alone, 1.0, most))


def quantile(level: float) -> float:
    """How many standard deviations of a Gaussian an interval spans to each side."""
    return float(stats.norm.ppf((1 + level) / 2))
