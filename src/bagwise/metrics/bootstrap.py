"""How far a score could move with other bags: intervals and bands by resampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import precision_recall_curve, roc_curve

from bagwise.metrics.inputs import Bools, Floats, labels_and_columns, labels_and_scores

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
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}; try 0.95")
    positive, columns = labels_and_columns(y_true, p, pos_label)
    rng = np.random.default_rng(random_state)
    values = [score(positive[i], columns[i]) for i in _resamples(positive, n_resamples, rng)]
    low, high = np.nanquantile(values, [(1 - level) / 2, (1 + level) / 2])
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


def _band(
    curve: Callable[[Bools, Floats, Floats], Floats],
    y_true: ArrayLike,
    p: ArrayLike,
    level: float,
    n_resamples: int,
    random_state: Any,
    pos_label: Any,
) -> Band:
    positive, score = labels_and_scores(y_true, p, pos_label)
    if positive.all() or not positive.any():
        raise ValueError("a curve needs both classes, but all labels are of one; add bags")
    rng = np.random.default_rng(random_state)
    grid = np.linspace(0.0, 1.0, 101)
    drawn = [curve(positive[i], score[i], grid) for i in _resamples(positive, n_resamples, rng)]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Band(grid, curve(positive, score, grid), low, high)


def _resamples(positive: Bools, n: int, rng: np.random.Generator) -> Iterator[Any]:
    """Positions of `n` draws with replacement, both classes in each."""
    mixed = bool(positive.any()) and not bool(positive.all())
    for _ in range(n):
        for _ in range(_MAX_TRIES):
            drawn = rng.integers(positive.size, size=positive.size)
            if not mixed or 0 < positive[drawn].sum() < positive.size:
                yield drawn
                break


def _roc_on(positive: Bools, score: Floats, grid: Floats) -> Floats:
    false_rate, true_rate, _ = roc_curve(positive, score, drop_intermediate=False)
    # Of several thresholds with the same false positive rate the curve passes the highest.
    at = np.searchsorted(false_rate, grid, side="right") - 1
    return _between(grid, false_rate, true_rate, at)


def _precision_on(positive: Bools, score: Floats, grid: Floats) -> Floats:
    # The best precision at a recall of at least r: precision itself goes up and down.
    precision, recall, _ = precision_recall_curve(positive, score)
    best = np.maximum.accumulate(precision[:-1])  # recall falls along the array
    at = np.searchsorted(-recall[:-1], -grid, side="right") - 1
    return np.asarray(best[np.maximum(at, 0)], dtype=np.float64)


def _between(grid: Floats, x: Floats, y: Floats, at: Any) -> Floats:
    right = np.minimum(at + 1, len(x) - 1)
    gap = x[right] - x[at]
    share = np.where(gap > 0, (grid - x[at]) / np.where(gap > 0, gap, 1.0), 0.0)
    return np.asarray(y[at] + share * (y[right] - y[at]), dtype=np.float64)
