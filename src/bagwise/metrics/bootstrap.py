"""How far a score could move with other bags: intervals and bands.

Resampling is Bayesian: instead of drawing bags with replacement, every bag (or patient, where
groups are given) gets a random weight (Rubin 1981). What has not been seen gets one too: the weight
of one more bag, half of it positive and half negative, which the lower limit takes for the worst
and the upper one for the best that could be (Gaffke 2005). So limits keep their distance from what
was seen where all bags agree, as they do in a perfect score of nine bags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.core.parameters import check_integer
from bagwise.metrics.inputs import (
    Bools,
    Floats,
    labels_and_columns,
    labels_and_scores,
    require_probabilities,
    tails,
)
from bagwise.metrics.intervals import (
    Limits,
    Units,
    auc_interval,
    precision_interval,
    share_interval,
    units_of,
)
from bagwise.metrics.scores import average_precision, roc_auc

Score = Callable[[Bools, Floats], float]
MOST_WEIGHTS = 2**22  # that are held at a time, however many labels there are
_COPIES = 20  # rows per bag in a weighted sample, on average


def bootstrap_interval(
    y_true: ArrayLike,
    p: ArrayLike,
    score: Score,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: Any = 0,
    pos_label: Any = None,
) -> Limits:
    """Interval of any score over weighted bags (or instances).

    `score` takes labels and probabilities, such as `bagwise.metrics.f1`; those of
    `bootstrap_scores` have sharper intervals there. The bag that has not been seen has, as a
    positive, the lowest or the highest of the probabilities that were, and as a negative the
    other. Bags of one group (`groups`, e.g. patients) share their weight.

    >>> from bagwise.metrics import recall
    >>> y, p = [0] * 6 + [1] * 6, [0.2] * 6 + [0.8] * 6
    >>> low, high = bootstrap_interval(y, p, recall, n_resamples=50)
    >>> 0.4 < low < 0.9, high
    (True, 1.0)
    """
    ends = tails(level)
    check_integer("n_resamples", n_resamples, at_least=2)
    positive, columns = labels_and_columns(y_true, p, pos_label)
    units = units_of(groups, positive.size)
    labels = np.append(positive, [True, False])
    ways = _unseen(columns[:, 1])
    drawn: list[list[float]] = [[] for _ in ways]
    for W in _weights(units, n_resamples, np.random.default_rng(random_state)):
        counts = np.rint(W * _COPIES * positive.size).astype(np.int64)
        counts[:, -2:] = np.maximum(counts[:, -2:], 1)  # both classes in each
        for found, unseen in zip(drawn, ways, strict=True):
            rows = np.vstack([columns, np.column_stack([1 - unseen, unseen])])
            found += [score(np.repeat(labels, c), np.repeat(rows, c, axis=0)) for c in counts]
    return float(np.nanquantile(drawn, ends[0], axis=1).min()), float(
        np.nanquantile(drawn, ends[1], axis=1).max()
    )


@dataclass(frozen=True)
class Band:
    """A curve on a grid with pointwise limits."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


def roc_band(
    y_true: ArrayLike,
    p: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 500,
    random_state: Any = 0,
    pos_label: Any = None,
) -> Band:
    """True positive rate over a grid of false positive rates, with limits over weighted bags.

    >>> band = roc_band([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], n_resamples=50)
    >>> band.x[[0, -1]], band.y[[0, -1]]
    (array([0., 1.]), array([0.5, 1. ]))
    """
    return _band(_roc_on, y_true, p, groups, level, n_resamples, random_state, pos_label)


def precision_recall_band(
    y_true: ArrayLike,
    p: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 500,
    random_state: Any = 0,
    pos_label: Any = None,
) -> Band:
    """Precision over a grid of recalls, with limits over weighted bags."""
    return _band(_precision_on, y_true, p, groups, level, n_resamples, random_state, pos_label)


def bootstrap_scores(
    y_true: ArrayLike,
    p: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: Any = 0,
    pos_label: Any = None,
) -> dict[str, tuple[float, float]]:
    """Intervals of the headline scores, honest where all bags are called rightly.

    `roc_auc` has Newcombe's score interval, `accuracy` Wilson's, `average_precision` Wilson's over
    the positive bags. The means `log_likelihood` and `brier` are those of bags with random weights
    and of one unseen bag, which is called wrongly with a probability of 1 (`brier`), or as surely
    as half of these bags are called (`log_likelihood`). Bags of one group (`groups`, e.g. patients)
    count as far as they differ, with quantiles of Student's t, as that is known from few groups.
    Coverage is at least about the level from nine bags or eight groups on; `average_precision` is
    that of bags with as large a share of positives as these.

    >>> limits = bootstrap_scores([0, 0, 1, 1], [0.1, 0.4, 0.6, 0.8])
    >>> [round(v, 2) for v in limits["roc_auc"]], [round(v, 2) for v in limits["accuracy"]]
    ([0.39, 1.0], [0.51, 1.0])
    """
    ends = tails(level)
    check_integer("n_resamples", n_resamples, at_least=2)
    positive, columns = labels_and_columns(y_true, p, pos_label)
    require_probabilities(columns[:, 1])
    score, units = columns[:, 1], units_of(groups, positive.size)
    ap, auc = average_precision(positive, score), roc_auc(positive, score)
    observed, wrong = _log_probabilities(positive, columns)
    values = np.column_stack([observed, (score - positive) ** 2])
    blocks = _weights(units, n_resamples, np.random.default_rng(random_state))
    means, unseen = _weighted_means(blocks, values)
    return {
        "roc_auc": auc_interval(auc, positive, score, units, level),
        "average_precision": precision_interval(ap, positive, score, units, level),
        "accuracy": share_interval((score > 0.5) == positive, units, level),
        "log_likelihood": _mean_interval(means[:, 0], unseen, wrong, 0.0, ends),
        "brier": _mean_interval(means[:, 1], unseen, 0.0, 1.0, ends),
    }


def _log_probabilities(positive: Bools, columns: Floats) -> tuple[Floats, float]:
    """Log probability of each true label, and that of the less probable one in a typical bag."""
    with np.errstate(divide="ignore"):
        logs = np.log(columns)
    wrong = np.quantile(logs.min(axis=1), 0.5, method="lower")
    return np.where(positive, logs[:, 1], logs[:, 0]), float(wrong)


def _weighted_means(blocks: Iterator[Floats], values: Floats) -> tuple[Floats, Floats]:
    """The known part of the mean of each column under each weighting, and the unseen weight."""
    finite = np.isfinite(values)
    known = np.where(finite, values, 0.0)
    found = [(W[:, :-2] @ known, W[:, -2:].sum(axis=1)) for W in blocks]
    means = np.concatenate([mean for mean, _ in found])
    means[:, ~finite.all(axis=0)] = -np.inf  # of a mean with -inf in it; 0 times -inf would be nan
    return means, np.concatenate([unseen for _, unseen in found])


def _mean_interval(
    mean: Floats, unseen: Floats, least: float, most: float, ends: list[float]
) -> Limits:
    """Limits of a mean, whose unseen part is `least` below and `most` above."""
    low = np.quantile(mean + unseen * least, ends[0], method="lower")
    high = np.quantile(mean + unseen * most, ends[1], method="higher")
    return float(low), float(high)


def _band(
    curve: Callable[[Floats, Floats, Floats], Floats],
    y_true: ArrayLike,
    p: ArrayLike,
    groups: ArrayLike | None,
    level: float,
    n_resamples: int,
    random_state: Any,
    pos_label: Any,
) -> Band:
    ends = tails(level)
    positive, score = labels_and_scores(y_true, p, pos_label)
    if positive.all() or not positive.any():
        raise ValueError("a curve needs both classes, but all labels are of one; add bags")
    check_integer("n_resamples", n_resamples, at_least=2)
    units, ways = units_of(groups, positive.size), _unseen(score)
    grid = np.linspace(0.0, 1.0, 101)
    labels = np.append(positive, [True, False])
    drawn: list[list[Floats]] = [[] for _ in ways]
    for W in _weights(units, n_resamples, np.random.default_rng(random_state)):
        for found, unseen in zip(drawn, ways, strict=True):
            counts = zip(*_cumulative(labels, np.append(score, unseen), W), strict=True)
            found += [curve(true, false, grid) for true, false in counts]
    low, high = (np.quantile(d, end, axis=0) for d, end in zip(drawn, ends, strict=True))
    (true,), (false,) = _cumulative(positive, score, np.ones((1, positive.size)))
    own = curve(true, false, grid)
    return Band(grid, own, np.minimum(low, own), np.maximum(high, own))


def _unseen(score: Floats) -> list[Floats]:
    """Scores of the unseen positive and negative, at their worst and at their best."""
    low, high = float(score.min()), float(score.max())
    return [np.array([low, high]), np.array([high, low])]


def _weights(units: Units, n: int, rng: np.random.Generator) -> Iterator[Floats]:
    """n rows of size + 2 random weights of labels and of the two unseen ones, some at a time.

    Rows sum to 1. Labels of one group share one draw. The unseen weigh half a group each.
    """
    n_groups = int(units.max()) + 1
    at_once = max(1, MOST_WEIGHTS // units.size)
    for start in range(0, n, at_once):
        rows = min(at_once, n - start)
        drawn = rng.standard_gamma(1.0, (rows, n_groups))[:, units]
        unseen = rng.standard_gamma(0.5, (rows, 2)) * (units.size / n_groups)
        W = np.hstack([drawn, unseen])
        yield W / W.sum(axis=1, keepdims=True)


def _cumulative(positive: Bools, score: Floats, W: Floats) -> tuple[Floats, Floats]:
    """True and false positives at each threshold, highest first, from none to all."""
    order = np.argsort(-score, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(score[order])), score.size - 1)
    start = np.zeros((len(W), 1))
    true = np.cumsum(W[:, order] * positive[order], axis=1)[:, ends]
    false = np.cumsum(W[:, order] * ~positive[order], axis=1)[:, ends]
    return np.hstack([start, true]), np.hstack([start, false])


def _roc_on(true: Floats, false: Floats, grid: Floats) -> Floats:
    x, y = false / false[-1], true / true[-1]
    # Of several thresholds with the same false positive rate the curve passes the highest.
    at = np.searchsorted(x, grid, side="right") - 1
    right = np.minimum(at + 1, len(x) - 1)
    gap = x[right] - x[at]
    share = np.where(gap > 0, (grid - x[at]) / np.where(gap > 0, gap, 1.0), 0.0)
    return np.asarray(y[at] + share * (y[right] - y[at]), dtype=np.float64)


def _precision_on(true: Floats, false: Floats, grid: Floats) -> Floats:
    """The best precision at a recall of at least that of the grid; precision goes up and down."""
    recall, precision = true[1:] / true[-1], true[1:] / np.maximum(true[1:] + false[1:], 1e-300)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    at = np.searchsorted(recall, grid - 1e-12, side="left")
    return np.asarray(best[np.minimum(at, len(best) - 1)], dtype=np.float64)


def headline_intervals(
    positive: NDArray[np.bool_],
    p: Any,
    groups: Any = None,
    seed: int = 0,
    called: NDArray[np.bool_] | None = None,
) -> dict[str, tuple[float, float]]:
    """The intervals of `bootstrap_scores`; none where there is one class only.

    That of the accuracy is of bags `called` positive, by default where p > 1/2.

    >>> headline_intervals(np.array([True, True]), [0.2, 0.8])
    {}
    """
    if positive.all() or not positive.any():
        return {}
    found = bootstrap_scores(positive, p, groups=groups, random_state=seed)
    if called is not None:
        units = units_of(groups, positive.size)
        found["accuracy"] = share_interval(called == positive, units, 0.95)
    return found
