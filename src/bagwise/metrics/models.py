"""All scores of a fitted model, for bags and for instances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from bagwise.bags import Bags, as_bags
from bagwise.bags.inputs import refuse_table_of_other_rows
from bagwise.bags.labels import in_bag_order
from bagwise.metrics.inputs import Bools, Floats, as_vector, positive_by_classes
from bagwise.metrics.scores import (
    accuracy,
    average_precision,
    brier,
    confusion_matrix,
    expected_calibration_error,
    f1,
    log_likelihood,
    precision,
    recall,
    roc_auc,
)


class BagClassifier(Protocol):
    """What `bag_scores` and `instance_scores` ask of a model."""

    @property
    def classes_(self) -> Any: ...

    def predict_proba(self, bags: Any) -> Any: ...

    def predict_instance_proba(self, bags: Any) -> Any: ...


@dataclass(frozen=True)
class Given:
    """Probabilities that are there already, as a model of which scores are asked."""

    classes_: Any
    bag_p: Any = None  # (B, 2)
    p: Any = None  # (N, 2)
    called_positive: Callable[[Any], Any] | None = None  # how bags are called, where not by 1/2

    def predict_proba(self, bags: Any) -> Any:
        """Those of the bags."""
        return self.bag_p

    def predict_instance_proba(self, bags: Any) -> Any:
        """Those of the instances."""
        return self.p


def bag_scores(model: BagClassifier, bags: Any, y: ArrayLike | None = None) -> dict[str, float]:
    """All scores of a fitted model's bag probabilities, against `y` or else `bags.y`.

    Bags whose label is missing (None, NaN, or -1 where that is no label of the model) are left
    out. Scores that are undefined, such as an AUC of one class, are NaN. The counts of bags and
    of decisions (`n`, `true_negatives`, ...) are in the same dictionary. Bags are called positive
    where the model's `predict` does, by a threshold that was chosen or else by 1/2.

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
    if isinstance(bags, Bags):
        truth = in_bag_order(truth, bags.ids, "y")
    called = getattr(model, "called_positive", None)
    return _all_scores(model.classes_, model.predict_proba(bags), truth, "bag", called)


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
    if isinstance(bags, Bags):
        refuse_table_of_other_rows(known, bags.row_index, "instance_scores")
    return _all_scores(classes, model.predict_instance_proba(bags), known, "instance")


SCORERS = (
    *("roc_auc", "average_precision", "accuracy", "precision", "recall", "f1"),
    *("log_likelihood", "neg_brier", "neg_expected_calibration_error"),
)


@dataclass(frozen=True)
class BagScorer:
    """One score of a fitted model on bags, as scikit-learn calls it; larger is better."""

    name: str

    def __call__(self, model: Any, bags: Any, y: ArrayLike | None = None) -> float:
        """The score against `y`, or else the labels of the bags."""
        of_instances = self.name.startswith("instance_")
        key = self.name.removeprefix("instance_").removeprefix("neg_")
        sign = -1.0 if "neg_" in self.name else 1.0
        if of_instances:
            return sign * instance_scores(model, as_bags(bags))[key]
        return sign * bag_scores(model, as_bags(bags), y)[key]


def scorer(name: str = "roc_auc") -> BagScorer:
    """A score by name for `cross_validate(model, bags, scoring=scorer("roc_auc"))` and the like.

    Unlike scikit-learn's scorers by name it needs no y where the bags have labels, takes the
    model's `classes_[1]` for the positive class whatever the labels are called, and scores
    instances too: "instance_roc_auc", ..., where their labels are known.

    Parameters
    ----------
    name : roc_auc, average_precision, accuracy, precision, recall, f1, log_likelihood, neg_brier or
        neg_expected_calibration_error, or one of these after `instance_`.

    >>> from sklearn.model_selection import cross_val_score
    >>> from bagwise import MIRVM
    >>> from bagwise.datasets import make_bags
    >>> bags, _ = make_bags(40, overlap=0.02, random_state=0)
    >>> cross_val_score(MIRVM(), bags, cv=2, scoring=scorer("roc_auc")).min() > 0.5
    np.True_
    """
    if name.removeprefix("instance_") not in SCORERS:
        raise ValueError(
            f"there is no score {name!r}; choose one of {', '.join(SCORERS)}, or one of these "
            "after 'instance_'"
        )
    return BagScorer(name)


def _all_scores(
    classes: ArrayLike,
    proba: Any,
    truth: Any,
    what: str,
    called: Callable[[Any], Any] | None = None,
) -> dict[str, float]:
    columns = np.asarray(proba, dtype=np.float64)
    labels = as_vector(truth, "truth")
    if columns.shape != (labels.size, 2):
        raise ValueError(
            f"the model gives probabilities of shape {columns.shape}, "
            f"but there are {labels.size} {what} labels; pass one label per {what}"
        )
    known, positive = positive_by_classes(labels, np.asarray(classes))
    if not known.any():
        raise ValueError(f"all {labels.size} {what} labels are missing; pass at least one known")
    calls = columns[:, 1] if called is None else np.asarray(called(columns), dtype=np.float64)
    return _score_table(positive[known], columns[known], calls[known])


def _score_table(positive: Bools, columns: Floats, calls: Floats) -> dict[str, float]:
    """All scores; `calls` are above 1/2 where a bag is called positive."""
    counts = confusion_matrix(positive, calls)
    ranked = positive.any() and not positive.all()
    return {
        "n": int(positive.size),
        "roc_auc": roc_auc(positive, columns) if ranked else np.nan,
        "average_precision": average_precision(positive, columns) if positive.any() else np.nan,
        "accuracy": accuracy(positive, calls),
        "precision": precision(positive, calls),
        "recall": recall(positive, calls),
        "f1": f1(positive, calls),
        "log_likelihood": log_likelihood(positive, columns),
        "brier": brier(positive, columns),
        "expected_calibration_error": expected_calibration_error(positive, columns),
        "true_negatives": int(counts[0, 0]),
        "false_positives": int(counts[0, 1]),
        "false_negatives": int(counts[1, 0]),
        "true_positives": int(counts[1, 1]),
    }
