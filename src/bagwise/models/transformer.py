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
from bagwise.core.parameters import check_choice
from bagwise.io.requirements import require
from bagwise.models.estimator import all_or_nothing
from bagwise.models.inputs import check_names, record_features


# Without the keys scikit-learn would wrap the output of transform into tables when asked for pandas
# output, and Bags must stay Bags.
class InstanceTransformer(  # type: ignore[call-arg]
    TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
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
    feature_names_in_ : their names, where the bags had some.

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
        if self._tables() != "default" and hasattr(fitted, "set_output"):
            fitted.set_output(transform=self._tables())
        rows = self._rows(bags)
        try:
            if _requires_labels(fitted):
                fitted.fit(rows, _instance_targets(bags, y, fitted))
            else:
                fitted.fit(rows)
        except ValueError as error:
            _explain_columns(error, bags)
            raise
        with all_or_nothing(self):
            self.transformer_ = fitted
            record_features(self, bags)
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
        if hasattr(self, "feature_names_in_") and bags.feature_names is not None:
            check_names(self, bags.feature_names)
        out = self.transformer_.transform(self._rows(bags))
        if sparse.issparse(out):
            raise TypeError(
                "the transformer must return dense features; "
                f"{type(self.transformer_).__name__} returned sparse data; "
                "set its sparse_output=False, or its counterpart"
            )
        return bags.with_X(np.asarray(out), feature_names=self._names_out(bags))

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Names of the features of transformed bags, as the wrapped transformer gives them.

        `input_features` defaults to the names seen in `fit`.

        >>> from sklearn.decomposition import PCA
        >>> InstanceTransformer(PCA(1)).fit([np.eye(2)]).get_feature_names_out()
        array(['pca0'], dtype=object)
        """
        check_is_fitted(self, "transformer_")
        if input_features is None:
            input_features = getattr(self, "feature_names_in_", None)
        return np.asarray(self.transformer_.get_feature_names_out(input_features), dtype=object)

    def set_output(self, *, transform: str | None = None) -> InstanceTransformer:
        """Choose what the wrapped transformer sees and returns: arrays, or tables with names.

        Bags come out of `transform` in any case. With "pandas" or "polars" the instances reach
        the wrapped transformer as such a table, whose columns have the names of the features, so
        that a `ColumnTransformer` can choose them by name; "default" gives it arrays, None changes
        nothing.

        >>> from sklearn.compose import make_column_transformer
        >>> from sklearn.preprocessing import StandardScaler
        >>> bags = Bags.from_list([[[0.0, 5.0], [2.0, 5.0]]], feature_names=["area", "id_free"])
        >>> chosen = make_column_transformer((StandardScaler(), ["area"]))
        >>> InstanceTransformer(chosen).set_output(transform="pandas").fit_transform(bags).X
        array([[-1.],
               [ 1.]])
        """
        if transform is not None:
            check_choice("transform", transform, ("default", "pandas", "polars"))
            self._sklearn_output_config = {"transform": transform}  # which clones keep
        return self

    def _tables(self) -> str:
        return getattr(self, "_sklearn_output_config", {}).get("transform", "default")

    def _rows(self, bags: Bags) -> Any:
        """X as the wrapped transformer takes it: an array, a sparse matrix, or a table."""
        if isinstance(bags.X, SparseRows):
            return bags.X.matrix
        kind = self._tables()
        if kind == "default":
            return bags.X
        package = require(kind, what=f"{kind} tables", extra="io")
        names = bags.feature_names or [f"x{j}" for j in range(bags.n_features)]
        return package.DataFrame(dict(zip(names, np.asarray(bags.X).T, strict=True)))

    def _names_out(self, bags: Bags) -> list[str] | None:
        """Names from the fitted transformer, or None if it has none to give."""
        if not hasattr(self.transformer_, "get_feature_names_out"):
            return None
        names = None if bags.feature_names is None else np.array(bags.feature_names, dtype=object)
        try:
            return [str(n) for n in self.get_feature_names_out(names)]
        except (AttributeError, NotImplementedError):  # a Pipeline with a step without names
            return None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.transformer, "fit"):
            tags.target_tags.required = _requires_labels(self.transformer)
            inner = get_tags(self.transformer).input_tags
            tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags


def _explain_columns(error: ValueError, bags: Bags) -> None:
    """Say how columns are chosen by name where a transformer got an array without names."""
    if "only supported for dataframes" in str(error):
        there = "the bags have no feature names" if bags.feature_names is None else "it got arrays"
        raise ValueError(
            f"{error} ({there}): call set_output(transform='pandas') on the InstanceTransformer, "
            "which then gives the names of the features too, or choose columns by number"
        ) from error


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
    # might not; all of scikit-learn's do. SelectFromModel requires what its estimator does.
    if get_tags(transformer).target_tags.required or hasattr(transformer, "score_func"):
        return True
    inner = getattr(transformer, "estimator", None)
    return hasattr(inner, "fit") and bool(get_tags(inner).target_tags.required)


def _instance_targets(bags: Bags, y: ArrayLike | None, transformer: Any) -> NDArray[Any]:
    """(N,) bag labels, repeated for the instances; `y` overrides `bags.y`."""
    labels = (bags if y is None else bags.with_labels(y)).y
    if labels is None:
        raise ValueError(
            f"{type(transformer).__name__} requires y to be passed, but the target y is None: "
            "label the bags (bags.with_labels(y)) or call fit(bags, y)"
        )
    return np.repeat(labels, bags.sizes)
