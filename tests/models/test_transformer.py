"""InstanceTransformer: scikit-learn transformers on bags."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA, KernelPCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest, SelectPercentile, f_classif
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils import get_tags

from bagwise.bags import Bags
from bagwise.models.transformer import InstanceTransformer


@pytest.fixture
def bags() -> Bags:
    X = np.random.default_rng(0).normal(size=(12, 3)) * [1, 5, 0.1] + [0, 3, 1]
    return Bags.from_arrays(
        X,
        np.repeat([0, 1, 2, 3], [3, 1, 4, 4]),
        y=["no", "yes", "no", "yes"],
        coords=np.arange(24).reshape(12, 2),
        feature_names=["a", "b", "c"],
    )


@pytest.mark.parametrize("inner", [StandardScaler(), PCA(2), KernelPCA(2), KMeans(3, n_init=1)])
def test_equals_the_inner_transformer_on_rows(bags: Bags, inner: object) -> None:
    if hasattr(inner, "random_state"):
        inner.set_params(random_state=0)
    out = InstanceTransformer(inner).fit(bags).transform(bags[1:])
    np.testing.assert_allclose(out.X, clone(inner).fit(bags.X).transform(bags.X[3:]))
    assert out.y.tolist() == ["yes", "no", "yes"] and out.ids.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(out.coords, bags.coords[3:])
    assert not hasattr(inner, "n_features_in_"), "the transformer given must stay unfitted"


def test_feature_names(bags: Bags) -> None:
    def names(inner: object) -> tuple[str, ...] | None:
        return InstanceTransformer(inner).fit_transform(bags).feature_names

    assert names(StandardScaler()) == ("a", "b", "c")
    assert names(PCA(2)) == ("pca0", "pca1")
    assert names(FunctionTransformer(np.square)) is None
    assert names(make_pipeline(StandardScaler(), FunctionTransformer(np.square))) is None


class NoTarget(TransformerMixin, BaseEstimator):
    """Remembers the y it was given."""

    def fit(self, X: np.ndarray, y: object = None) -> NoTarget:
        self.y_ = y
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return X


def test_labels_reach_only_transformers_that_require_them(bags: Bags) -> None:
    select = InstanceTransformer(SelectPercentile(percentile=40))
    assert get_tags(select).target_tags.required
    assert not get_tags(InstanceTransformer(PCA())).target_tags.required
    expected = f_classif(bags.X, np.repeat(bags.y, bags.sizes))[0]
    np.testing.assert_allclose(select.fit(bags).transformer_.scores_, expected)
    best = InstanceTransformer(SelectKBest(k=1)).fit(bags)
    np.testing.assert_allclose(best.transformer_.scores_, expected)
    assert InstanceTransformer(NoTarget()).fit(bags).transformer_.y_ is None
    flipped = select.fit(bags, [0, 0, 1, 1]).transformer_.scores_
    assert not np.allclose(flipped, expected)
    with pytest.raises(ValueError, match=r"requires y to be passed.*with_labels"):
        select.fit(bags.with_labels(None))


def test_lists_and_settings(bags: Bags) -> None:
    scaler = InstanceTransformer(StandardScaler()).fit([b.X for b in bags])
    assert isinstance(scaler.transform([bags[0].X, bags[1].X]), Bags)
    with config_context(transform_output="pandas"):
        assert isinstance(scaler.transform(bags), Bags)
        assert isinstance(InstanceTransformer(PCA(1)).fit_transform(bags), Bags)
    assert InstanceTransformer(StandardScaler()).fit_transform(bags.X.astype("f4")).dtype == "f4"


def test_pipeline_and_grid_search_reach_inner_parameters(bags: Bags) -> None:
    class Score(InstanceTransformer):
        def score(self, X: Bags, y: object = None) -> float:
            return float(self.transform(X).n_features)

    pipe = Pipeline([("scale", InstanceTransformer(StandardScaler())), ("pca", Score(PCA()))])
    search = GridSearchCV(pipe, {"pca__transformer__n_components": [1, 2]}, cv=2).fit(bags)
    assert search.best_params_ == {"pca__transformer__n_components": 2}
    assert search.transform(bags).shape == (4, 2)


def test_errors(bags: Bags) -> None:
    with pytest.raises(NotFittedError):
        InstanceTransformer(PCA()).transform(bags)
    with pytest.raises(TypeError, match=r"fit and transform; got .*StandardScaler"):
        InstanceTransformer(StandardScaler).fit(bags)
    with pytest.raises(TypeError, match="sparse_output=False"):
        InstanceTransformer(OneHotEncoder()).fit_transform(bags)
    with pytest.raises(ValueError, match="2 features, but StandardScaler is expecting 3"):
        InstanceTransformer(StandardScaler()).fit(bags).transform(bags.X[:, :2])
    with pytest.raises(ValueError, match="one row per instance: 12; got 6"):
        InstanceTransformer(FunctionTransformer(lambda X: X[::2])).fit_transform(bags)
    with (
        pytest.raises(ValueError, match=r"contains infinity.*: bag 0"),
        np.errstate(divide="ignore"),
    ):
        InstanceTransformer(FunctionTransformer(lambda X: np.log(0 * X))).fit_transform(bags)
