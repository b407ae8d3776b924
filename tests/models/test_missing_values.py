"""Bags carry missing values; every model refuses them before it works, and imputers fill them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.impute import SimpleImputer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise.baselines import BASELINES
from bagwise.core.files.modelfile import ModelFileError
from bagwise.models import MODELS
from toy_bags import separable_bags

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
WITHOUT_DATA = {"MultiTaskMIRVM"}  # which is told the task of each bag


def holes(bags: bw.Bags, share: float = 0.1, seed: int = 0) -> bw.Bags:
    X = np.array(bags.X)
    X[np.random.default_rng(seed).uniform(size=X.shape) < share] = np.nan
    X[0, 0] = np.nan
    return bags.with_X(X, feature_names=bags.feature_names)


def imputed(model: Any, strategy: str = "median") -> Any:
    return make_pipeline(bw.InstanceTransformer(SimpleImputer(strategy=strategy)), model)


WHERE = re.escape("bag 0, row 0 of that bag (input row 0), feature 0")


@pytest.mark.parametrize("name", sorted({*MODELS} - WITHOUT_DATA))
def test_models_refuse_missing_values_and_say_how_to_fill_them(name: str) -> None:
    bags = separable_bags(8, 3)
    message = rf"^Input X contains NaN: {WHERE}.*SimpleImputer.*{name}\(\)"
    steps: list[Any] = []
    with pytest.raises(ValueError, match=message):
        MODELS[name]().fit(holes(bags), callbacks=[steps.append])
    assert not steps


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_baselines_refuse_missing_values(name: str) -> None:
    bags = separable_bags(8, 3)
    with pytest.raises(ValueError, match=f"^Input X contains NaN: {WHERE}.*SimpleImputer"):
        BASELINES[name]().fit(holes(bags))


@pytest.mark.parametrize(
    "method",
    [
        *("predict", "predict_proba", "predict_instance_proba", "predict_all", "latent"),
        *("predict_instances", "instance_posterior", "top_instances", "score", "novelty"),
    ],
)
def test_fitted_models_refuse_missing_values(method: str) -> None:
    bags = separable_bags(12, 3)
    model = bw.ProbitVGPMIL(random_state=0).fit(bags)
    with pytest.raises(ValueError, match=f"^Input X contains NaN: {WHERE}"):
        getattr(model, method)(holes(bags))


def test_one_against_the_rest_refuses_missing_values() -> None:
    bags = separable_bags(9, 3)
    with pytest.raises(ValueError, match=f"^Input X contains NaN: {WHERE}"):
        bw.OneVsRestMIL(bw.MIRVM()).fit(holes(bags), np.arange(9) % 3)


def test_sparse_and_mapped_features_are_refused_too(tmp_path: Path) -> None:
    bags = separable_bags(8, 3)
    X: NDArray[Any] = holes(bags).X
    ids = bags.bag_index
    with pytest.raises(ValueError, match=f"^Input X contains NaN: {WHERE}"):
        bw.MIRVM().fit(bw.Bags.from_arrays(sparse.csr_array(X), ids, y=bags.y))
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.raises(ValueError, match=f"^Input X contains NaN: {WHERE}"):
        bw.MIRVM().fit(bw.Bags.from_arrays(mapped, ids, y=bags.y))


def test_imputers_fill_missing_values_before_a_model_sees_them() -> None:
    bags = separable_bags(30, 3)
    pipe = imputed(bw.MIRVM(random_state=0)).fit(holes(bags))
    by_hand = SimpleImputer(strategy="median").fit_transform(holes(bags).X)
    same = bw.MIRVM(random_state=0).fit(bags.with_X(by_hand))
    np.testing.assert_array_equal(
        pipe.predict_proba(holes(bags, seed=1)),
        same.predict_proba(
            bags.with_X(
                SimpleImputer(strategy="median").fit(holes(bags).X).transform(holes(bags, seed=1).X)
            )
        ),
    )
    assert np.all(np.isfinite(cross_val_score(imputed(bw.MIRVM()), holes(bags), bags.y, cv=2)))


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent", "constant"])
def test_imputers_are_saved_with_their_pipeline(strategy: str, tmp_path: Path) -> None:
    bags = separable_bags(12, 3)
    pipe = make_pipeline(
        bw.InstanceTransformer(SimpleImputer(strategy=strategy)),
        bw.InstanceTransformer(StandardScaler()),
        bw.MIRVM(),
    ).fit(holes(bags))
    bw.save(pipe, tmp_path / "pipe.bagwise")
    again = bw.load(tmp_path / "pipe.bagwise")
    new = holes(bags, seed=3)
    np.testing.assert_array_equal(again.predict_proba(new), pipe.predict_proba(new))
    assert again[0].transformer_.strategy == strategy


def test_imputers_with_indicators_are_not_saved(tmp_path: Path) -> None:
    bags = separable_bags(12, 3)
    step = bw.InstanceTransformer(SimpleImputer(add_indicator=True))
    pipe = make_pipeline(step, bw.MIRVM()).fit(holes(bags))
    assert pipe.predict_proba(holes(bags)).shape == (12, 2)
    with pytest.raises(ModelFileError, match="add_indicator=True"):
        bw.save(pipe, tmp_path / "pipe.bagwise")


def test_bags_keep_missing_values_through_everything_else() -> None:
    bags = holes(separable_bags(8, 3))
    for other in (bags[[3, 1]], bw.Bags.concat([bags, bags]), bags.split(0.5, random_state=0)[0]):
        assert np.isnan(other.X).any()
    again = bw.Bags.from_frame(bags.to_frame())
    np.testing.assert_array_equal(again.X, bags.X)
