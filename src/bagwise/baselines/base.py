"""What all baselines share: input checks, scaling, and the two columns of probabilities."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from bagwise.bags import Bags
from bagwise.models._preparation import scaling
from bagwise.models.bag_weights import bag_counts
from bagwise.models.estimator import TwoClassEstimator, all_or_nothing
from bagwise.models.inputs import (
    bags_to_fit,
    bags_to_predict,
    binary_targets,
    record_features,
)

Array = NDArray[Any]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Offsets = NDArray[np.int64]
Columns = tuple[Floats, Floats]  # of the negative and the positive class


class BaselineMIL(TwoClassEstimator):
    """Common part of the baselines; a subclass says how it learns and how it scores bags."""

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        positive: Any = None,
    ) -> Self:
        """Fit from bag labels.

        Parameters
        ----------
        X : Bags, a list of (n_b, D) arrays, or a 2-D array with one instance per bag.
        y : one label per bag; overrides the labels of the bags. Two classes of any type. A pandas
            Series whose index holds the bag ids is put in their order.
        sample_weight : how many times each bag counts, one number per bag in the order of the
            bags, or in a pandas Series as `y`. Scaling sees every instance once.
        positive : the label of bags with a positive instance, `classes_[1]`. By default the larger
            of two numbers or of two ordered categories; text needs it, but for pairs such as no
            and yes.
        """
        self._check_parameters()
        bags = bags_to_fit(self, X, y)
        classes, T = binary_targets(bags, y, positive)
        counts = bag_counts(X, bags, sample_weight, None, classes, T)
        _refuse_instance_labels(self, bags)
        rows, offsets = self._rows(bags)
        with all_or_nothing(self):
            self._shift, self._scale = scaling(rows, True)
            rows = (rows - self._shift) / self._scale
            self._learn(*counting(rows, offsets, T, np.ones(len(T)) if counts is None else counts))
            self.classes_ = classes
            record_features(self, bags)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """(B, 2) probability of each class for each bag, columns in the order of `classes_`."""
        return np.column_stack(self._bag_probability(*self._scaled(X)))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    def _scaled(self, X: Any) -> tuple[Floats, Offsets]:
        rows, offsets = self._rows(bags_to_predict(self, X))
        return (rows - self._shift) / self._scale, offsets

    def _rows(self, bags: Bags) -> tuple[Array, Offsets]:
        """What is learned from: the instances, for models that look at instances."""
        return bags.X.astype(np.float64, copy=False), bags.offsets

    def _check_parameters(self) -> None:
        """Raise where an argument is not allowed."""

    def _learn(self, X: Floats, offsets: Offsets, T: Flags, counts: Floats) -> None:
        """Fit to bags that count some positive number of times each, `counts`."""
        raise NotImplementedError

    def _bag_probability(self, X: Floats, offsets: Offsets) -> Columns:
        """Both probabilities: 1 - p would lose all digits of a small one."""
        raise NotImplementedError


class InstanceMixin:
    """Predictions for instances, for baselines that score them."""

    classes_: Any

    def predict_instance_proba(self, X: Any) -> Floats:
        """(N, 2) probability of each class for each instance, rows as in `bags.X`."""
        rows, _ = self._scaled(X)  # type: ignore[attr-defined]
        return np.column_stack(self._instance_probability(rows))

    def predict_instances(self, X: Any) -> Array:
        """The more probable class of each instance."""
        p = self.predict_instance_proba(X)
        return self.classes_[np.argmax(p, axis=1)]

    def _instance_probability(self, X: Floats) -> Columns:
        raise NotImplementedError


def counting(
    X: Floats, offsets: Offsets, T: Flags, counts: Floats
) -> tuple[Floats, Offsets, Flags, Floats]:
    """The same without bags that count nothing."""
    some = np.flatnonzero(counts)
    if len(some) == len(counts):
        return X, offsets, T, counts
    return *subset(X, offsets, some), T[some], counts[some]


def subset(X: Floats, offsets: Offsets, bags: NDArray[Any]) -> tuple[Floats, Offsets]:
    """Rows and offsets of some bags."""
    sizes = np.diff(offsets)[bags]
    rows = np.concatenate([np.arange(offsets[b], offsets[b + 1]) for b in bags])
    return X[rows], np.concatenate([[0], np.cumsum(sizes)])


def from_logit(f: Floats) -> Columns:
    """Probabilities of the negative and the positive class from log-odds.

    >>> negative, positive = from_logit(np.array([0.0, 100.0]))
    >>> negative[1] > 0, positive
    (np.True_, array([0.5, 1. ]))
    """
    return np.asarray(expit(-f)), np.asarray(expit(f))


def _refuse_instance_labels(model: BaselineMIL, bags: Bags) -> None:
    known = bags.instance_labels
    if known is not None and not np.all(np.isnan(known)):
        raise ValueError(
            f"{type(model).__name__} learns from bag labels only, but "
            f"{int(np.sum(~np.isnan(known)))} instance labels are known; remove them with "
            "bags.with_instance_labels(None)"
        )
