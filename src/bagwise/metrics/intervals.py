"""Intervals of shares and areas that stay honest at 0 and 1, with patients as units.

An interval from resampled bags is a point where all bags are called rightly: no resample is
worse. Score intervals ask instead which true values could have given what was seen. Bags of one
patient are alike, so they count for less than as many patients: the counts are divided by the
design effect, the factor by which the variance of a score grows when whole patients are drawn. That
factor is an estimate, from few patients a poor one, so that Student's t takes the place of the
Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    design = design_of(right.astype(np.float64) - share, units)
    return wilson(share, right.size / design.effect, design.quantile(level))


def precision_interval(
    value: float, positive: Bools, score: Floats, units: Units, level: float
) -> Limits:
    """Wilson's interval of an average precision, as a share of the positive labels.

    Boyd, Eng and Page (2013) find a binomial variance in the number of positives about right.
    How well a positive is ranked moves the area under both curves, so patients count likewise.
    """
    influence = auc_influence(positive, score)[positive]
    design = design_of(influence, units[positive])
    return wilson(value, influence.size / design.effect, design.quantile(level))


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
    design = design_of(auc_influence(positive, score), units, positive)
    m, n = positive.sum() / design.effect, (~positive).sum() / design.effect
    z = design.quantile(level)

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


@dataclass(frozen=True)
class Design:
    """How far labels of one group count for less than others, and how well that is known."""

    effect: float  # variance of a score when groups are drawn over that when labels are drawn
    freedom: float  # degrees of freedom of the estimate; inf where none was made

    def quantile(self, level: float) -> float:
        """How many standard deviations an interval spans to each side."""
        return float(stats.t.ppf((1 + level) / 2, self.freedom))


def design_of(influence: Floats, units: Units, positive: Bools | None = None) -> Design:
    """The design of labels that move a score by `influence`, whose mean is zero in each class.

    The effect is at least 1, and at most what it is where labels of one group are copies. That
    is taken where no label differs from another: nothing tells then.

    >>> design_of(np.array([1.0, 1.0, -1.0, -1.0]), np.array([0, 0, 1, 1])).effect
    2.0
    >>> design_of(np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 0, 1, 1])).effect
    1.0
    """
    groups = np.unique(units, return_inverse=True)[1]
    one_class = np.ones(groups.size, dtype=np.bool_)
    classes = [one_class] if positive is None else [positive, ~positive]
    most = _effect_of_copies(groups, classes)
    alone = float(np.sum(influence**2))
    if groups.max() + 1 == groups.size:
        return Design(1.0, np.inf)
    if alone < 1e-20 or min(len(np.unique(groups[c])) for c in classes) == 1:
        return Design(most, np.inf)
    sums = _group_sums(influence, groups, classes)
    together = float(np.sum(sums**2))
    return Design(float(np.clip(together / alone, 1.0, most)), _freedom(sums))


def _effect_of_copies(groups: Units, classes: list[Bools]) -> float:
    """sum_g (sum w)^2 / sum w^2 (Kish), w = 1 / size of the class; the size of even groups."""
    w = np.zeros(groups.size)
    for members in classes:
        w[members] = 1 / members.sum()
    return float(np.sum(np.bincount(groups, weights=w) ** 2) / np.sum(w**2))


def _group_sums(influence: Floats, groups: Units, classes: list[Bools]) -> Floats:
    """Influence of each group, larger by what the k groups of a class lost to its mean."""
    sums = np.zeros(groups.max() + 1)
    for members in classes:
        k = len(np.unique(groups[members]))
        own = np.bincount(groups[members], influence[members], minlength=len(sums))
        sums += np.sqrt(k / (k - 1)) * own
    return sums


def _freedom(sums: Floats) -> float:
    """2 V^2 / Var(V) of V = sum of squares: the number of groups if they are Gaussian, less one.

    Where few groups carry the variance, as where few labels are wrong, it is theirs.
    """
    squares = sums**2
    V, n = float(squares.sum()), len(sums)
    spread = float(np.sum(squares**2)) - V**2 / n
    return float(np.clip(2 * V**2 / spread if spread > 0 else n, 1.0, n - 1))
