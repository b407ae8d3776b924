"""How far a score could move with other bags: intervals and bands by resampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise.metrics.inputs import Bools, Floats, labels_and_columns, labels_and_scores, tails

Score = Callable[[Bools, Floats], float]
_MAX_TRIES = 100


def bootstrap_interval(
    y_true: ArrayLike,
    p: ArrayLike,
    score: Score,
    *,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: Any = 0,
    pos_label: Any = None,
) -> tuple[float, float]:
    """Percentile interval of a score over bags (or instances) drawn with replacement.

    Resamples without both classes are drawn again. `score` takes labels and probabilities, such
    as `bagwise.metrics.roc_auc`.

    >>> from bagwise.metrics import accuracy
    >>> low, high = bootstrap_interval([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8], accuracy)
    >>> low, high
    (0.25, 1.0)
    """
    ends = tails(level)
    positive, columns = labels_and_columns(y_true, p, pos_label)
    rng = np.random.default_rng(random_state)
    values = [score(positive[i], columns[i]) for i in _resamples(positive, n_resamples, rng)]
    low, high = np.nanquantile(values, ends)
    return float(low), float(high)


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
    level: float = 0.95,
    n_resamples: int = 500,
    random_state: Any = 0,
    pos_label: Any = None,
) -> Band:
    """True positive rate over a grid of false positive rates, with bootstrap limits.

    >>> band = roc_band([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], n_resamples=50)
    >>> band.x[[0, -1]], band.y[[0, -1]]
    (array([0., 1.]), array([0.5, 1. ]))
    """
    return _band(_roc_on, y_true, p, level, n_resamples, random_state, pos_label)


def precision_recall_band(
    y_true: ArrayLike,
    p: ArrayLike,
    *,
    level: float = 0.95,
    n_resamples: int = 500,
    random_state: Any = 0,
    pos_label: Any = None,
) -> Band:
    """Precision over a grid of recalls, with bootstrap limits."""
    return _band(_precision_on, y_true, p, level, n_resamples, random_state, pos_label)


def bootstrap_scores(
    y_true: ArrayLike,
    p: ArrayLike,
    *,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: Any = 0,
    pos_label: Any = None,
) -> dict[str, tuple[float, float]]:
    """Percentile intervals of the headline scores, all over the same resamples.

    The scores are those of `roc_auc`, `average_precision`, `accuracy`, `log_likelihood` and
    `brier`, computed for all resamples at once, which is a hundred times faster than one by one.

    >>> limits = bootstrap_scores([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> limits["roc_auc"]
    (0.0, 1.0)
    """
    ends = tails(level)
    positive, columns = labels_and_columns(y_true, p, pos_label)
    W = _weights(positive, n_resamples, np.random.default_rng(random_state))
    true, false = _cumulative(positive, columns[:, 1], W)
    with np.errstate(divide="ignore"):
        log_observed = np.log(np.where(positive, columns[:, 1], columns[:, 0]))
    called = columns[:, 1] > 0.5
    drawn = {
        "roc_auc": _area(true, false),
        "average_precision": _average_precision(true, false),
        "accuracy": W @ (called == positive) / positive.size,
        "log_likelihood": _mean_log(W, log_observed),
        "brier": W @ (columns[:, 1] - positive) ** 2 / positive.size,
    }
    limits = {name: np.quantile(v, ends, method="nearest") for name, v in drawn.items()}
    return {name: (float(low), float(high)) for name, (low, high) in limits.items()}


def _band(
    curve: Callable[[Floats, Floats, Floats], Floats],
    y_true: ArrayLike,
    p: ArrayLike,
    level: float,
    n_resamples: int,
    random_state: Any,
    pos_label: Any,
) -> Band:
    ends = tails(level)
    positive, score = labels_and_scores(y_true, p, pos_label)
    if positive.all() or not positive.any():
        raise ValueError("a curve needs both classes, but all labels are of one; add bags")
    W = _weights(positive, n_resamples, np.random.default_rng(random_state))
    grid = np.linspace(0.0, 1.0, 101)
    counts = zip(*_cumulative(positive, score, W), strict=True)
    drawn = [curve(true, false, grid) for true, false in counts]
    low, high = np.quantile(drawn, ends, axis=0)
    (true,), (false,) = _cumulative(positive, score, np.ones((1, positive.size)))
    return Band(grid, curve(true, false, grid), low, high)


def _weights(positive: Bools, n: int, rng: np.random.Generator) -> Floats:
    """(n, size) how often each label is drawn in each resample, both classes in each."""
    mixed = bool(positive.any()) and not bool(positive.all())
    kept: list[Any] = []
    for _ in range(_MAX_TRIES):
        W = rng.multinomial(positive.size, np.full(positive.size, 1 / positive.size), size=n)
        drawn = W @ positive
        kept.append(W[(drawn > 0) & (drawn < positive.size)] if mixed else W)
        if sum(map(len, kept)) >= n:
            break
    return np.concatenate(kept)[:n].astype(np.float64)


def _cumulative(positive: Bools, score: Floats, W: Floats) -> tuple[Floats, Floats]:
    """True and false positives at each threshold, highest first, from none to all."""
    order = np.argsort(-score, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(score[order])), score.size - 1)
    start = np.zeros((len(W), 1))
    true = np.cumsum(W[:, order] * positive[order], axis=1)[:, ends]
    false = np.cumsum(W[:, order] * ~positive[order], axis=1)[:, ends]
    return np.hstack([start, true]), np.hstack([start, false])


def _area(true: Floats, false: Floats) -> Floats:
    """Area under the ROC curve of each resample, by trapezoids."""
    steps = np.diff(false, axis=1) * (true[:, 1:] + true[:, :-1]) / 2
    return np.asarray(steps.sum(axis=1) / (true[:, -1] * false[:, -1]))


def _average_precision(true: Floats, false: Floats) -> Floats:
    """Precision at each threshold, weighted by the recall that it adds."""
    called = true[:, 1:] + false[:, 1:]
    precision = np.divide(true[:, 1:], called, out=np.zeros_like(called), where=called > 0)
    return np.asarray((np.diff(true, axis=1) * precision).sum(axis=1) / true[:, -1])


def _mean_log(W: Floats, log_observed: Floats) -> Floats:
    """Weighted mean of logarithms, -inf where a drawn one is; 0 times -inf counts nothing."""
    finite = np.isfinite(log_observed)
    mean = W[:, finite] @ log_observed[finite] / log_observed.size
    return np.where((W[:, ~finite] > 0).any(axis=1), -np.inf, mean)


def _resamples(positive: Bools, n: int, rng: np.random.Generator) -> Iterator[Any]:
    """Positions of `n` draws with replacement, both classes in each."""
    for weights in _weights(positive, n, rng):
        yield np.repeat(np.arange(positive.size), weights.astype(np.int64))


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
    recall, precision = true[1:] / true[-1], true[1:] / np.maximum(true[1:] + false[1:], 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    at = np.searchsorted(recall, grid - 1e-12, side="left")
    return np.asarray(best[np.minimum(at, len(best) - 1)], dtype=np.float64)
