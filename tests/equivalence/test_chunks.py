"""Chunks and data types do not change a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bagwise as bw

SIZES = [3, 1, 30, 4, 2, 6, 1, 5, 8, 2, 3, 3]
N = sum(SIZES)
MODELS = {
    "logistic": (bw.VGPMIL, {}),
    "logistic, H=100": (bw.VGPMIL, {"H": 100.0}),
    "probit fitc": (bw.ProbitVGPMIL, {}),
    "probit vfe": (bw.ProbitVGPMIL, {"approximation": "vfe"}),
}
CASES = [
    (name, inference)
    for name in MODELS
    for inference in ("vi", "laplace")
    if (name, inference) != ("probit vfe", "laplace")
]
each_case = pytest.mark.parametrize(("name", "inference"), CASES)


def make_bags(dtype: str = "float64") -> bw.Bags:
    """Bags of 1 to 30 instances, some labels of instances known."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    truth = X[:, 0] > 1.2
    offsets = np.concatenate([[0], np.cumsum(SIZES)[:-1]])
    known = np.where(rng.random(N) < 0.1, truth, np.nan)
    return bw.Bags.from_arrays(
        X.astype(dtype),
        np.repeat(np.arange(len(SIZES)), SIZES),
        y=np.logical_or.reduceat(truth, offsets).astype(int),
        instance_labels=known,
    )


def fit(name: str, bags: bw.Bags, **settings: Any) -> Any:
    cls, own = MODELS[name]
    defaults = {"n_inducing": 12, "random_state": 0, "tol": 1e-8, "max_iter": 2000}
    return cls(**(own | defaults | settings)).fit(bags)


def assert_same_fit(model: Any, other: Any, bags: bw.Bags, tolerance: float) -> None:
    assert model.elbo_ == pytest.approx(other.elbo_, rel=tolerance)
    for method in ("predict_proba", "predict_instance_proba"):
        found, expected = (getattr(m, method)(bags) for m in (model, other))
        np.testing.assert_allclose(found, expected, atol=tolerance)


@each_case
def test_chunk_size_does_not_change_the_fit(name: str, inference: str) -> None:
    bags = make_bags()
    settings = {"inference": inference, "learn_hyperparameters": False}
    whole = fit(name, bags, **settings)
    for chunk_size in (1, 7, N, 1000):
        model = fit(name, bags, chunk_size=chunk_size, **settings)
        assert_same_fit(model, whole, bags, 1e-9)


@pytest.mark.parametrize("name", ["logistic", "probit fitc"])
@pytest.mark.parametrize("inference", ["vi", "laplace"])
def test_chunk_size_hardly_changes_what_is_learned(name: str, inference: str) -> None:
    # The search for hyperparameters amplifies the rounding of sums in another order.
    bags = make_bags()
    whole = fit(name, bags, inference=inference)
    for chunk_size in (7, 1000):
        model = fit(name, bags, inference=inference, chunk_size=chunk_size)
        assert_same_fit(model, whole, bags, 1e-5)
        np.testing.assert_allclose(model.kernel_.theta, whole.kernel_.theta, atol=1e-5)


@each_case
def test_float32_is_near_float64(name: str, inference: str) -> None:
    settings = {"inference": inference, "learn_hyperparameters": False}
    double, single = make_bags(), make_bags("float32")
    expected = fit(name, double, **settings)
    for found in (
        fit(name, single, **settings),
        fit(name, double, dtype="float32", **settings),
    ):
        for method in ("predict_proba", "predict_instance_proba"):
            p, q = getattr(found, method)(single), getattr(expected, method)(double)
            np.testing.assert_allclose(p, q, atol=1e-3)


@each_case
def test_the_order_of_bags_does_not_change_the_fit(name: str, inference: str) -> None:
    bags = make_bags()
    Z = bags.X[::6]
    settings = {"inference": inference, "learn_hyperparameters": False, "inducing": Z}
    order = np.random.default_rng(1).permutation(len(bags))
    model, shuffled = fit(name, bags, **settings), fit(name, bags[order], **settings)
    assert shuffled.elbo_ == pytest.approx(model.elbo_, rel=1e-9)
    np.testing.assert_allclose(
        shuffled.predict_instance_proba(bags), model.predict_instance_proba(bags), atol=1e-8
    )


def test_float32_data_stay_float32_in_memory() -> None:
    model = fit("probit fitc", make_bags("float32"), learn_hyperparameters=False)
    assert model.posterior_.Z.dtype == np.float64
    assert model.posterior_.m.dtype == np.float64
    assert model.posterior_.scaled(make_bags("float32").X).dtype == np.float32
