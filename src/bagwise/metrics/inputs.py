"""Labels and probabilities as the metrics need them, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.bags.checks import is_missing, refuse_masked
from bagwise.bags.labels import is_obvious, is_text, refuse_other_row_order

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Rows of predict_proba may miss 1 by the rounding of float32, not by more.
_ROW_SUM_TOLERANCE = 1e-5


def labels_and_columns(y_true: Any, p: Any, pos_label: Any) -> tuple[Bools, Floats]:
    """Which labels are positive, and the scores of [negative, positive] as two columns."""
    refuse_other_row_order(p, y_true, "y_true", rows="p")
    labels = as_vector(y_true, "y_true")
    refuse_masked(p, "p")
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
    if negative_label > positive_label:
        raise ValueError(
            f"p has two columns, and which is of {positive_label!r} is not known: scikit-learn's "
            "models sort labels, models of bagwise put the positive one last; pass the column of "
            "the positive label only, e.g. p[:, 1]"
        )
    return columns


def labels_and_scores(y_true: Any, p: Any, pos_label: Any) -> tuple[Bools, Floats]:
    """Which labels are positive, and the score of the positive label."""
    positive, columns = labels_and_columns(y_true, p, pos_label)
    return positive, columns[:, 1]


def labels_and_probabilities(y_true: Any, p: Any, pos_label: Any) -> tuple[Bools, Floats]:
    """Which labels are positive, and the probability of the positive label."""
    positive, p1 = labels_and_scores(y_true, p, pos_label)
    require_probabilities(p1)
    return positive, p1


def labels_and_decisions(
    y_true: Any, p: Any, threshold: float, pos_label: Any
) -> tuple[Bools, Bools]:
    """Which labels are positive, and which are called so: p > threshold."""
    # Strictly above: at 1/2 argmax, and so predict, takes the negative class.
    positive, p1 = labels_and_probabilities(y_true, p, pos_label)
    return positive, p1 > threshold


def require_probabilities(p1: Floats) -> None:
    """Raise where a number is not in [0, 1]."""
    if p1.min() < 0.0 or p1.max() > 1.0:
        raise ValueError(
            f"p must lie in [0, 1], got values from {p1.min():.6g} to {p1.max():.6g}; "
            "pass probabilities, not latent scores"
        )


def require_positive(positive: Bools, name: str) -> None:
    """Raise where no label is positive."""
    if not positive.any():
        raise ValueError(
            f"{name} needs positive labels, but all {positive.size} are negative; "
            "score more data, or set pos_label"
        )


def tails(level: float) -> list[float]:
    """Quantiles at the two ends of an interval that holds the share `level`.

    >>> tails(0.5)
    [0.25, 0.75]
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}; try level=0.95")
    return [(1 - level) / 2, (1 + level) / 2]


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
        if is_text(found) and not is_obvious(found):
            raise ValueError(
                f"the labels are text, {found[0]!r} and {found[1]!r}; say which is positive: "
                f"pos_label={found[0]!r} or pos_label={found[1]!r}"
            )
        return found[0], found[1]
    if not _is_number(found[0]) or found[0] not in (-1, 0, 1):
        raise ValueError(
            f"all labels are {found[0]!r}, so it is unknown which is positive; pass pos_label"
        )
    return (0, 1) if found[0] == 1 else (found[0], 1)


def _partner(label: Any) -> Any:
    """The other label of the usual pair, where there is one."""
    return 1 - label if _is_number(label) and label in (0, 1) else None


def as_vector(labels: Any, name: str) -> NDArray[Any]:
    """Labels as a vector that is not empty; of Bags, those of the bags."""
    if isinstance(labels, Bags):
        if labels.y is None:
            raise ValueError(f"{name} has no labels: bags.y is None; pass Bags with y")
        labels = labels.y
    refuse_masked(labels, name)
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
        return np.array([is_missing(v) for v in labels], dtype=bool)
    return np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(labels.shape, dtype=bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.number)


def positive_by_classes(labels: NDArray[Any], classes: NDArray[Any]) -> tuple[Bools, Bools]:
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
