"""What all estimators of bags share: decisions, accuracy, and fits that change all or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags

from bagwise.bags import Bags
from bagwise.bags.labels import in_bag_order
from bagwise.models.inputs import bags_to_predict, labels_for

Array = NDArray[Any]


class TwoClassEstimator(ClassifierMixin, BaseEstimator):
    """Decisions between two classes of bags; subclasses have `fit` and `predict_proba`."""

    classes_: Array

    def predict(self, X: Any) -> Array:
        """The more probable class of each bag, or that of a threshold that was chosen."""
        p = self.predict_proba(X)  # first, since it says what is wrong where there was no fit
        return np.asarray(self.classes_[self.called_positive(np.asarray(p)).astype(np.intp)])

    def called_positive(self, p: Array) -> NDArray[np.bool_]:
        """Which bags with the probabilities (B, 2) `predict` calls positive."""
        return np.asarray(p[:, 1] > p[:, 0])

    def predict_proba(self, X: Any) -> Any:
        """Probability of each class for each bag, columns in the order of `classes_`."""
        raise NotImplementedError

    def score(self, X: Any, y: ArrayLike | None = None, sample_weight: Any = None) -> float:
        """Accuracy on bags; `y` defaults to the labels of the bags."""
        return bag_accuracy(self, bags_to_predict(self, X), labels_for(X, y), sample_weight)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def bag_accuracy(model: Any, bags: Bags, y: ArrayLike | None, sample_weight: Any = None) -> float:
    """Share of bags that a model predicts rightly; `y` defaults to the labels of the bags."""
    truth = bags.y if y is None else in_bag_order(y, bags.ids, "y")
    if truth is None:
        raise ValueError("score needs labels: pass y, or Bags with y")
    return float(accuracy_score(truth, model.predict(bags), sample_weight=sample_weight))


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Put an estimator's attributes back where the work inside ends in an error or in Ctrl-C.

    A model that was fitted before predicts as before; one that was not stays unfitted.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(posterior_="of an earlier fit")
    >>> try:
    ...     with all_or_nothing(model):
    ...         model.posterior_, model.elbo_ = "new", -1.0
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt:
    ...     vars(model)
    {'posterior_': 'of an earlier fit'}
    """
    attributes = vars(estimator)
    before = dict(attributes)
    try:
        yield
    except BaseException:
        attributes.update(before)
        for name in attributes.keys() - before.keys():
            del attributes[name]
        raise


def forget_earlier_fit(estimator: Any) -> None:
    """Drop the attributes of an earlier fit, whose names end in an underscore.

    Not every fit sets all of them: what was learned of another model would stay.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(H=100, H_=12.5)
    >>> forget_earlier_fit(model)
    >>> vars(model)
    {'H': 100}
    """
    for name in [n for n in vars(estimator) if n.endswith("_") and not n.startswith("_")]:
        delattr(estimator, name)
