"""`InstanceTransformer`: any scikit-learn transformer, applied to the instances of bags."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags, as_bags
from bagwise.bags.sparse_rows import SparseRows
from bagwise.models.estimator import all_or_nothing


# No get_feature_names_out here: with it scikit-learn would wrap the output of transform into
# tables when asked for pandas output, and Bags must stay Bags.
class InstanceTransformer(TransformerMixin, BaseEstimator):
    """Lift a scikit-learn transformer of rows to bags: Bags in, Bags out.

    A clone of `transformer` is fitted on all instances and changes only `X` and the feature
    names; labels, ids, coords and the rest are kept. Lists of arrays become Bags. If the
    transformer requires y, each instance gets the label of its bag.

    Parameters
    ----------
    transformer : scikit-learn transformer, e.g. `StandardScaler()` or `PCA(10)`.

    Attributes
    ----------
    transformer_ : the fitted clone.
    n_features_in_ : number of features seen in `fit`.

    >>> from sklearn.preprocessing import StandardScaler
    >>> bags = Bags.from_list([[[0.0], [2.0]], [[4.0]]], y=[0, 1])
    >>> InstanceTransformer(StandardScaler()).fit_transform(bags).X.ravel().round(2)
    array([-1.22,  0.  ,  1.22])
    """

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: Any, y: ArrayLike | None = None) -> InstanceTransformer:
        """Fit a clone of the transformer on the instances; y, one label per bag, is optional.

        >>> from sklearn.decomposition import PCA
        >>> InstanceTransformer(PCA(1)).fit([np.eye(2), np.ones((1, 2))]).n_features_in_
        2
        """
        _check_transformer(self.transformer)
        bags = as_bags(X, estimator_name=type(self).__name__)
        fitted = clone(self.transformer)
        if _requires_labels(fitted):
            fitted.fit(_features(bags), _instance_targets(bags, y, fitted))
        else:
            fitted.fit(_features(bags))
        with all_or_nothing(self):
            self.transformer_ = fitted
            self.n_features_in_ = bags.n_features
        return self

    def transform(self, X: Any) -> Bags:
        """Return the bags with transformed features.

        >>> from sklearn.preprocessing import MinMaxScaler
        >>> scaler = InstanceTransformer(MinMaxScaler()).fit([[0.0], [4.0]])
        >>> scaler.transform([[1.0]]).X
        array([[0.25]])
        """
        check_is_fitted(self, "transformer_")
        bags = as_bags(X, estimator_name=type(self).__name__)
        out = self.transformer_.transform(_features(bags))
        if sparse.issparse(out):
            raise TypeError(
                "the transformer must return dense features; "
                f"{type(self.transformer_).__name__} returned sparse data; "
                "set its sparse_output=False, or its counterpart"
            )
        return bags.with_X(np.asarray(out), feature_names=self._names_out(bags))

    def _names_out(self, bags: Bags) -> list[str] | None:
        """Names from the fitted transformer, or None if it has none to give."""
        if not hasattr(self.transformer_, "get_feature_names_out"):
            return None
        names = None if bags.feature_names is None else np.array(bags.feature_names, dtype=object)
        try:
            return [str(n) for n in self.transformer_.get_feature_names_out(names)]
        except (AttributeError, NotImplementedError):  # a Pipeline with a step without names
            return None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.transformer, "fit"):
            tags.target_tags.required = _requires_labels(self.transformer)
            tags.input_tags.sparse = get_tags(self.transformer).input_tags.sparse
        return tags


def _features(bags: Bags) -> Any:
    """X as scikit-learn takes it."""
    return bags.X.matrix if isinstance(bags.X, SparseRows) else bags.X


def _check_transformer(transformer: Any) -> None:
    if isinstance(transformer, type) or not all(
        hasattr(transformer, method) for method in ("fit", "transform")
    ):
        raise TypeError(
            "transformer must be an object with fit and transform; "
            f"got {transformer!r}; pass e.g. StandardScaler()"
        )


def _requires_labels(transformer: Any) -> bool:
    # SelectKBest and the like deny that they require y, since a score function of the user's
    # might not; all of scikit-learn's do.
    return bool(get_tags(transformer).target_tags.required) or hasattr(transformer, "score_func")


def _instance_targets(bags: Bags, y: ArrayLike | None, transformer: Any) -> NDArray[Any]:
    """(N,) bag labels, repeated for the instances; `y` overrides `bags.y`."""
    labels = (bags if y is None else bags.with_labels(y)).y
    if labels is None:
        raise ValueError(
            f"{type(transformer).__name__} requires y to be passed, but the target y is None: "
            "label the bags (bags.with_labels(y)) or call fit(bags, y)"
        )
    return np.repeat(labels, bags.sizes)
