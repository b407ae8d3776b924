"""Scores of predicted probabilities against true labels, for bags and for instances.

Every function takes the true labels, which may be any two values, and `p`, the probability of the
positive label: either one number per label, (n,), or the two columns of `predict_proba`, (n, 2),
in the sorted order of the two labels. The positive label is `pos_label`, by default the larger of
the two. `bag_scores` and `instance_scores` compute everything for a fitted model.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import metrics as _sk

__all__ = [
    "accuracy",
    "average_precision",
    "bag_scores",
    "brier",
    "confusion_matrix",
    "expected_calibration_error",
    "f1",
    "instance_scores",
    "log_likelihood",
    "precision",
    "recall",
    "roc_auc",
]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Rows of predict_proba may miss 1 by the rounding of float32, not by more.
_ROW_SUM_TOLERANCE = 1e-5


class BagClassifier(Protocol):
    """What `bag_scores` and `instance_scores` ask of a model."""

    classes_: Any

    def predict_proba(self, bags: Any) -> Any: ...

    def predict_instance_proba(self, bags: Any) -> Any: ...


# --- Ranking -------------------------------------------------------------------------------------


def roc_auc(y_true: ArrayLike, p: ArrayLike, *, pos_label: Any = None) -> float:
    """Probability that a positive is ranked above a negative; `p` may be any finite score.

    >>> roc_auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    positive, score = _labels_and_scores(y_true, p, pos_label)
    _require_positive(positive, "roc_auc")
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
    positive, score = _labels_and_scores(y_true, p, pos_label)
    _require_positive(positive, "average_precision")
    return float(_sk.average_precision_score(positive, score))


# --- Decisions at a threshold --------------------------------------------------------------------


def accuracy(
    y_true: ArrayLike, p: ArrayLike, *, threshold: float = 0.5, pos_label: Any = None
) -> float:
    """Share of labels predicted rightly; positive is predicted where p > threshold.

    >>> accuracy(["no", "no", "yes", "yes"], [0.1, 0.6, 0.7, 0.8])
    0.75
    """
    positive, called = _labels_and_decisions(y_true, p, threshold, pos_label)
    return float(np.mean(positive == called))


def precision(
    y_true: ArrayLike, p: ArrayLike, *, threshold: float = 0.5, pos_label: Any = None
) -> float:
    """Share of true positives among those with p > threshold; NaN if there are none.

    >>> round(precision([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8]), 4)
    0.6667
    """
    positive, called = _labels_and_decisions(y_true, p, threshold, pos_label)
    return float(_sk.precision_score(positive, called, zero_division=np.nan))


def recall(
    y_true: ArrayLike, p: ArrayLike, *, threshold: float = 0.5, pos_label: Any = None
) -> float:
    """Share of the positives that have p > threshold; NaN if there are no positives.

    >>> recall([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8])
    1.0
    """
    positive, called = _labels_and_decisions(y_true, p, threshold, pos_label)
    return float(_sk.recall_score(positive, called, zero_division=np.nan))


def f1(y_true: ArrayLike, p: ArrayLike, *, threshold: float = 0.5, pos_label: Any = None) -> float:
    """Harmonic mean of precision and recall; NaN if nothing is or is called positive.

    >>> f1([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8])
    0.8
    """
    positive, called = _labels_and_decisions(y_true, p, threshold, pos_label)
    return float(_sk.f1_score(positive, called, zero_division=np.nan))


def confusion_matrix(
    y_true: ArrayLike, p: ArrayLike, *, threshold: float = 0.5, pos_label: Any = None
) -> NDArray[np.int64]:
    """Counts [[true negatives, false positives], [false negatives, true positives]].

    >>> confusion_matrix([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8]).tolist()
    [[1, 1], [0, 2]]
    """
    positive, called = _labels_and_decisions(y_true, p, threshold, pos_label)
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
    positive, columns = _labels_and_columns(y_true, p, pos_label)
    _require_probabilities(columns[:, 1])
    observed = np.where(positive, columns[:, 1], columns[:, 0])
    with np.errstate(divide="ignore"):
        return float(np.mean(np.log(observed)))


def brier(y_true: ArrayLike, p: ArrayLike, *, pos_label: Any = None) -> float:
    """Mean squared difference between p and the label as 0 or 1; lower is better.

    >>> round(brier([0, 1], [0.2, 0.9]), 4)
    0.025
    """
    positive, p1 = _labels_and_probabilities(y_true, p, pos_label)
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
    positive, p1 = _labels_and_probabilities(y_true, p, pos_label)
    edges = _bin_edges(p1, n_bins, strategy)
    bins = np.searchsorted(edges[1:-1], p1)
    # In a bin of k out of n, (k/n) |mean p - mean y| is |sum (p - y)| / n.
    gaps = np.bincount(bins, weights=p1 - positive)
    return float(np.abs(gaps).sum() / p1.size)


def _bin_edges(p1: Floats, n_bins: int, strategy: str) -> Floats:
    if n_bins < 1 or n_bins != int(n_bins):
        raise ValueError(f"n_bins must be a positive integer, got {n_bins!r}; try n_bins=10")
    grid = np.linspace(0.0, 1.0, int(n_bins) + 1)
    if strategy == "uniform":
        return grid
    if strategy == "quantile":
        return np.asarray(np.unique(np.quantile(p1, grid)), dtype=np.float64)
    raise ValueError(f"strategy must be 'quantile' or 'uniform', got {strategy!r}; choose one")


# --- All scores of a model -----------------------------------------------------------------------


def bag_scores(model: BagClassifier, bags: Any, y: ArrayLike | None = None) -> dict[str, float]:
    """All scores of a fitted model's bag probabilities, against `y` or else `bags.y`.

    Bags whose label is missing (None, NaN, or -1 where that is no label of the model) are left
    out. Scores that are undefined, such as an AUC of one class, are NaN. The counts of bags and
    of decisions (`n`, `true_negatives`, ...) are in the same dictionary.

    >>> class Coin:
    ...     classes_ = np.array([0, 1])
    ...     def predict_proba(self, bags):
    ...         return np.full((len(bags), 2), 0.5)
    >>> scores = bag_scores(Coin(), [[[1.0]], [[2.0]], [[3.0]]], y=[0, 1, -1])
    >>> scores["n"], scores["roc_auc"], scores["brier"]
    (2, 0.5, 0.25)
    """
    truth = y if y is not None else getattr(bags, "y", None)
    if truth is None:
        raise ValueError("bag_scores needs labels, but bags.y is None; pass y=, one label per bag")
    return _all_scores(model.classes_, model.predict_proba(bags), truth, what="bag")


def instance_scores(
    model: BagClassifier, bags: Any, truth: ArrayLike | None = None
) -> dict[str, float]:
    """All scores of a fitted model's instance probabilities, against `truth`.

    `truth` has one label per row of `bags.X`, in the model's labels or as 0 and 1, and defaults
    to `bags.instance_labels`. Unknown ones (None, NaN, or -1 where that is no label of the model)
    are left out. Undefined scores are NaN.

    >>> class Coin:
    ...     classes_ = np.array(["benign", "tumour"])
    ...     def predict_instance_proba(self, bags):
    ...         return np.full((4, 2), 0.5)
    >>> instance_scores(Coin(), None, truth=[0, 1, 1, np.nan])["n"]
    3
    """
    # Bags hold instance labels as 0 and 1 whatever the bag labels are, even if those are 1 and 2.
    classes = model.classes_ if truth is not None else [0, 1]
    known = truth if truth is not None else getattr(bags, "instance_labels", None)
    if known is None:
        raise ValueError(
            "instance_scores needs true labels, but bags.instance_labels is None; "
            "pass truth=, one label per instance"
        )
    return _all_scores(classes, model.predict_instance_proba(bags), known, what="instance")


def _all_scores(classes: ArrayLike, proba: Any, truth: Any, what: str) -> dict[str, float]:
    columns = np.asarray(proba, dtype=np.float64)
    labels = _as_vector(truth, "truth")
    if columns.shape != (labels.size, 2):
        raise ValueError(
            f"the model gives probabilities of shape {columns.shape}, "
            f"but there are {labels.size} {what} labels; pass one label per {what}"
        )
    known, positive = _positive_by_classes(labels, np.asarray(classes))
    if not known.any():
        raise ValueError(f"all {labels.size} {what} labels are missing; pass at least one known")
    return _score_table(positive[known], columns[known])


def _score_table(positive: Bools, columns: Floats) -> dict[str, float]:
    counts = confusion_matrix(positive, columns)
    ranked = positive.any() and not positive.all()
    return {
        "n": int(positive.size),
        "roc_auc": roc_auc(positive, columns) if ranked else np.nan,
        "average_precision": average_precision(positive, columns) if positive.any() else np.nan,
        "accuracy": accuracy(positive, columns),
        "precision": precision(positive, columns),
        "recall": recall(positive, columns),
        "f1": f1(positive, columns),
        "log_likelihood": log_likelihood(positive, columns),
        "brier": brier(positive, columns),
        "expected_calibration_error": expected_calibration_error(positive, columns),
        "true_negatives": int(counts[0, 0]),
        "false_positives": int(counts[0, 1]),
        "false_negatives": int(counts[1, 0]),
        "true_positives": int(counts[1, 1]),
    }


def _positive_by_classes(labels: NDArray[Any], classes: NDArray[Any]) -> tuple[Bools, Bools]:
    """Which labels are known, and which are the model's positive class."""
    known = ~_missing(labels)
    named = classes.tolist()
    if -1 not in named and labels.dtype.kind in "iufO":
        known &= np.asarray(labels != -1, dtype=bool)
    values = set(labels[known].tolist())
    if not values <= set(named):
        if not values <= {0, 1}:
            strange = sorted(values - set(named), key=str)
            raise ValueError(
                f"labels must be the model's {named} or 0 and 1, got {strange[:5]}; "
                "translate them, and mark unknown ones as NaN"
            )
        named = [0, 1]
    return known, np.asarray(labels == named[1], dtype=bool)


# --- Validation ----------------------------------------------------------------------------------


def _labels_and_columns(y_true: Any, p: Any, pos_label: Any) -> tuple[Bools, Floats]:
    """Which labels are positive, and the scores of [negative, positive] as two columns."""
    labels = _as_vector(y_true, "y_true")
    scores = np.asarray(p, dtype=np.float64)
    if scores.ndim not in (1, 2) or (scores.ndim == 2 and scores.shape[1] != 2):
        raise ValueError(f"p must have shape (n,) or (n, 2), got {scores.shape}; reshape it")
    if scores.shape[0] != labels.size:
        raise ValueError(
            f"y_true and p must have the same length, got {labels.size} and {scores.shape[0]}; "
            "pass one probability per label"
        )
    if not np.isfinite(scores).all():
        bad = int(np.count_nonzero(~np.isfinite(scores)))
        raise ValueError(f"p must be finite, but {bad} entries are NaN or inf; drop those rows")
    negative_label, positive_label = _two_labels(labels, pos_label)
    positive = np.asarray(labels == positive_label, dtype=bool)
    if scores.ndim == 1:
        return positive, np.column_stack([1.0 - scores, scores])
    return positive, _ordered_columns(scores, negative_label, positive_label)


def _ordered_columns(columns: Floats, negative_label: Any, positive_label: Any) -> Floats:
    worst = float(np.abs(columns.sum(axis=1) - 1.0).max())
    if worst > _ROW_SUM_TOLERANCE:
        raise ValueError(
            f"rows of p must sum to 1, but one is off by {worst:.3g}; "
            "pass the output of predict_proba, or only the positive column"
        )
    if negative_label is None:
        raise ValueError(
            f"all labels are {positive_label!r}, so it is unknown which column of p is theirs; "
            "pass only the column of the positive label"
        )
    return columns[:, ::-1] if negative_label > positive_label else columns


def _labels_and_scores(y_true: Any, p: Any, pos_label: Any) -> tuple[Bools, Floats]:
    positive, columns = _labels_and_columns(y_true, p, pos_label)
    return positive, columns[:, 1]


def _labels_and_probabilities(y_true: Any, p: Any, pos_label: Any) -> tuple[Bools, Floats]:
    positive, p1 = _labels_and_scores(y_true, p, pos_label)
    _require_probabilities(p1)
    return positive, p1


def _labels_and_decisions(
    y_true: Any, p: Any, threshold: float, pos_label: Any
) -> tuple[Bools, Bools]:
    # Strictly above: at 1/2 argmax, and so predict, takes the negative class.
    positive, p1 = _labels_and_probabilities(y_true, p, pos_label)
    return positive, p1 > threshold


def _require_probabilities(p1: Floats) -> None:
    if p1.min() < 0.0 or p1.max() > 1.0:
        raise ValueError(
            f"p must lie in [0, 1], got values from {p1.min():.6g} to {p1.max():.6g}; "
            "pass probabilities, not latent scores"
        )


def _require_positive(positive: Bools, name: str) -> None:
    if not positive.any():
        raise ValueError(
            f"{name} needs positive labels, but all {positive.size} are negative; "
            "score more data, or set pos_label"
        )


def _two_labels(labels: NDArray[Any], pos_label: Any) -> tuple[Any, Any]:
    """The negative and the positive label; the negative is None where it cannot be known."""
    found = np.unique(labels).tolist()
    if len(found) > 2:
        raise ValueError(f"y_true must hold two labels, got {len(found)}: {found[:5]}; pick two")
    if pos_label is None:
        return _default_labels(found)
    others = [v for v in found if v != pos_label]
    if len(others) > 1:
        raise ValueError(f"pos_label={pos_label!r} is not among the labels {found}; use one")
    if others:
        return others[0], pos_label
    return _partner(pos_label), pos_label


def _default_labels(found: list[Any]) -> tuple[Any, Any]:
    if len(found) == 2:
        return found[0], found[1]
    if not _is_number(found[0]) or found[0] not in (-1, 0, 1):
        raise ValueError(
            f"all labels are {found[0]!r}, so it is unknown which is positive; pass pos_label"
        )
    return (0, 1) if found[0] == 1 else (found[0], 1)


def _partner(label: Any) -> Any:
    """The other label of the usual pair, where there is one."""
    return 1 - label if _is_number(label) and label in (0, 1) else None


def _as_vector(labels: Any, name: str) -> NDArray[Any]:
    vector = np.asarray(labels)
    if vector.ndim != 1 or vector.size == 0:
        raise ValueError(
            f"{name} must be one-dimensional and not empty, got shape {vector.shape}; "
            "pass one label per row"
        )
    if name == "y_true" and (bad := int(_missing(vector).sum())):
        raise ValueError(f"{name} has {bad} missing labels (NaN or None); drop those rows")
    return vector


def _missing(labels: NDArray[Any]) -> Bools:
    if labels.dtype.kind == "O":
        # NaN is the one value that differs from itself.
        return np.array([v is None or v != v for v in labels], dtype=bool)
    return np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(labels.shape, dtype=bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.number)
