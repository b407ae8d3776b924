"""Scores of probabilities against labels: ranking, decisions, likelihood, calibration."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import metrics as _sk

from bagwise.metrics.inputs import (
    Floats,
    labels_and_columns,
    labels_and_decisions,
    labels_and_probabilities,
    labels_and_scores,
    require_positive,
    require_probabilities,
)

# --- Ranking -------------------------------------------------------------------------------------


def roc_auc(y_true: ArrayLike, p: ArrayLike, *, pos_label: Any = None) -> float:
    """Probability that a positive is ranked above a negative; `p` may be any finite score.

    >>> roc_auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    positive, score = labels_and_scores(y_true, p, pos_label)
    require_positive(positive, "roc_auc")
    if positive.all():
        raise ValueError(
            f"roc_auc needs both classes, but all {positive.size} labels are positive; "
            "score more data, or use log_likelihood or brier"
        )
    return float(_sk.roc_auc_score(positive, score))


def average_precision(y_true: ArrayLike, p: ArrayLike, *, pos_label: Any = None) -> float:
    """Area under the precision-recall curve by steps; `p` may be any finite score.

    >>> round(average_precision([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 4)
    0.8333
    """
    positive, score = labels_and_scores(y_true, p, pos_label)
    require_positive(positive, "average_precision")
    return float(_sk.average_precision_score(positive, score))


# --- Decisions at a threshold --------------------------------------------------------------------


def accuracy(
    y_true: ArrayLike, p: ArrayLike, *, threshold: float = 0.5, pos_label: Any = None
) -> float:
    """Share of labels predicted rightly; positive is predicted where p > threshold.

    >>> accuracy(["no", "no", "yes", "yes"], [0.1, 0.6, 0.7, 0.8])
    0.75
    """
    positive, called = labels_and_decisions(y_true, p, threshold, pos_label)
    return float(np.mean(positive == called))


def precision(
    y_true: ArrayLike, p: ArrayLike, *, threshold: float = 0.5, pos_label: Any = None
) -> float:
    """Share of true positives among those with p > threshold; NaN if there are none.

    >>> round(precision([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8]), 4)
    0.6667
    """
    positive, called = labels_and_decisions(y_true, p, threshold, pos_label)
    return float(_sk.precision_score(positive, called, zero_division=np.nan))


def recall(
    y_true: ArrayLike, p: ArrayLike, *, threshold: float = 0.5, pos_label: Any = None
) -> float:
    """Share of the positives that have p > threshold; NaN if there are no positives.

    >>> recall([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8])
    1.0
    """
    positive, called = labels_and_decisions(y_true, p, threshold, pos_label)
    return float(_sk.recall_score(positive, called, zero_division=np.nan))


def f1(y_true: ArrayLike, p: ArrayLike, *, threshold: float = 0.5, pos_label: Any = None) -> float:
    """Harmonic mean of precision and recall; NaN if nothing is or is called positive.

    >>> f1([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8])
    0.8
    """
    positive, called = labels_and_decisions(y_true, p, threshold, pos_label)
    return float(_sk.f1_score(positive, called, zero_division=np.nan))


def confusion_matrix(
    y_true: ArrayLike, p: ArrayLike, *, threshold: float = 0.5, pos_label: Any = None
) -> NDArray[np.int64]:
    """Counts [[true negatives, false positives], [false negatives, true positives]].

    >>> confusion_matrix([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8]).tolist()
    [[1, 1], [0, 2]]
    """
    positive, called = labels_and_decisions(y_true, p, threshold, pos_label)
    return np.asarray(_sk.confusion_matrix(positive, called, labels=[False, True]), dtype=np.int64)


# --- Probabilities -------------------------------------------------------------------------------


def log_likelihood(y_true: ArrayLike, p: ArrayLike, *, pos_label: Any = None) -> float:
    """Mean log probability given to the labels that were observed; higher is better.

    It is -inf if an observed label got probability 0: nothing is clipped, since a model that
    rules out what happens has earned that score. With the two columns of `predict_proba` the
    probability of a negative is read from its own column, so that tiny ones keep their digits.

    >>> round(log_likelihood([0, 1], [0.2, 0.9]), 4)
    -0.1643
    >>> log_likelihood([0, 1], [0.0, 0.0])
    -inf
    """
    positive, columns = labels_and_columns(y_true, p, pos_label)
    require_probabilities(columns[:, 1])
    observed = np.where(positive, columns[:, 1], columns[:, 0])
    with np.errstate(divide="ignore"):
        return float(np.mean(np.log(observed)))


def brier(y_true: ArrayLike, p: ArrayLike, *, pos_label: Any = None) -> float:
    """Mean squared difference between p and the label as 0 or 1; lower is better.

    >>> round(brier([0, 1], [0.2, 0.9]), 4)
    0.025
    """
    positive, p1 = labels_and_probabilities(y_true, p, pos_label)
    return float(np.mean((p1 - positive) ** 2))


def expected_calibration_error(
    y_true: ArrayLike,
    p: ArrayLike,
    n_bins: int = 10,
    *,
    strategy: Literal["quantile", "uniform"] = "quantile",
    pos_label: Any = None,
) -> float:
    """Mean distance, over bins of p, between predicted probability and observed frequency.

    Bins hold equally many predictions (`strategy="quantile"`) or are equally wide ("uniform").
    Equal predictions always share a bin, so ties can leave fewer quantile bins than `n_bins`.

    >>> round(expected_calibration_error([0, 1, 0, 1], [0.2, 0.2, 0.9, 0.9], n_bins=2), 4)
    0.35
    """
    positive, p1 = labels_and_probabilities(y_true, p, pos_label)
    edges = bin_edges(p1, n_bins, strategy)
    bins = np.searchsorted(edges[1:-1], p1)
    # In a bin of k out of n, (k/n) |mean p - mean y| is |sum (p - y)| / n.
    gaps = np.bincount(bins, weights=p1 - positive)
    return float(np.abs(gaps).sum() / p1.size)


def bin_edges(p1: Floats, n_bins: int, strategy: str) -> Floats:
    """Limits of the bins of `expected_calibration_error`, from the lowest to the highest."""
    if n_bins < 1 or n_bins != int(n_bins):
        raise ValueError(f"n_bins must be a positive integer, got {n_bins!r}; try n_bins=10")
    grid = np.linspace(0.0, 1.0, int(n_bins) + 1)
    if strategy == "uniform":
        return grid
    if strategy == "quantile":
        return np.asarray(np.unique(np.quantile(p1, grid)), dtype=np.float64)
    raise ValueError(f"strategy must be 'quantile' or 'uniform', got {strategy!r}; choose one")
