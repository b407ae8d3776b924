"""What holds for every model on any bags, however small, repeated, scaled or mislabelled."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bagwise as bw

LONG = bool(os.environ.get("BAGWISE_LONG_TESTS"))
few = settings(max_examples=100 if LONG else 6)
FAST: dict[str, Any] = {"random_state": 0, "max_iter": 60}
GP: dict[str, Any] = FAST | {"n_inducing": 8}
JOINT: dict[str, Any] = {"bag_score": "joint"}
MODELS: dict[str, Callable[..., Any]] = {
    "probit": lambda **k: bw.ProbitVGPMIL(**GP | k),
    "laplace": lambda **k: bw.ProbitVGPMIL(**GP | {"inference": "laplace"} | k),
    "logistic": lambda **k: bw.VGPMIL(**GP | k),
    "pg": lambda **k: bw.PGVGPMIL(**GP | k),
    "psi": lambda **k: bw.PsiVGPMIL(psi=bw.densities.Gamma(2.0, 3.0), **GP | JOINT | k),
    "gamma": lambda **k: bw.GammaVGPMIL(**GP | JOINT | k),
    "large margin": lambda **k: bw.LargeMarginVGPMIL(**GP | k),
    "ising": lambda **k: bw.IsingVGPMIL(coupling=0.2, **GP | k),
    "mirvm": lambda **k: bw.MIRVM(**FAST | k),
    "mi-logistic": lambda **k: bw.MILogisticRegression(**FAST | k),
}
LINEAR = ("mirvm", "mi-logistic")
GP_MODELS = [name for name in MODELS if name not in LINEAR]
each_model = pytest.mark.parametrize("name", MODELS)
each_gp_model = pytest.mark.parametrize("name", GP_MODELS)
seeds = st.integers(0, 2**32 - 1)
# How bags may be odd, each by itself and together.
KINDS = ("plain", "singletons", "duplicates", "one feature", "tiny", "one positive", "noise")
kinds = st.sampled_from(KINDS)


def odd_bags(kind: str, seed: int) -> bw.Bags:
    """Random bags of some kind, with coordinates."""
    rng = np.random.default_rng(seed)
    n_bags = 3 if kind == "tiny" else int(rng.integers(6, 14))  # tiny: fewer instances than M
    sizes = np.ones(n_bags, int) if kind in ("singletons", "tiny") else rng.integers(1, 6, n_bags)
    D = 1 if kind == "one feature" else int(rng.integers(2, 5))
    y = np.arange(n_bags) % 2 if kind != "one positive" else np.arange(n_bags) == 0
    X = rng.normal(size=(sizes.sum(), D))
    starts = np.cumsum(sizes) - sizes
    X[starts[y == 1], 0] += 4
    if kind == "duplicates":
        X = X[rng.integers(0, len(X), len(X))]  # also across bags of both labels
    if kind == "noise":
        y = rng.permutation(y)
    ids = np.repeat(np.arange(n_bags), sizes)
    coords = rng.uniform(0, 10, size=(len(X), 2))
    return bw.Bags.from_arrays(X, ids, y=y.astype(int), coords=coords)


def fit(model: Any, bags: bw.Bags) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sixty sweeps need not be enough
        return model.fit(bags)


def assert_sound(model: Any, bags: bw.Bags) -> None:
    """Probabilities are some, spreads are finite, a bag is as probable as any instance in it."""
    p, std = model.predict_proba(bags, return_std=True)
    q, its_std = model.predict_instance_proba(bags, return_std=True)
    mean, variance = model.latent(bags)
    for values in (p, std, q, its_std, mean, variance):
        assert np.all(np.isfinite(values))
    assert np.all((p >= 0) & (p <= 1)) and np.all((q >= 0) & (q <= 1))
    assert np.all(std >= 0) and np.all(std <= 0.5 + 1e-9) and np.all(variance >= 0)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    largest = np.maximum.reduceat(q[:, 1], bags.offsets[:-1])
    assert np.all(p[:, 1] >= largest - 1e-9)


@each_model
@few
@given(kinds, seeds)
def test_any_bags_are_fitted_soundly(name: str, kind: str, seed: int) -> None:
    bags = odd_bags(kind, seed)
    model = fit(MODELS[name](bag_score="joint"), bags)
    assert_sound(model, bags)
    assert_sound(model, odd_bags(kind, seed + 1) if kind == "one feature" else bags[::-1])


@each_gp_model
@few
@given(st.sampled_from(["plain", "duplicates", "noise"]), seeds, st.integers(0, 3))
@example("duplicates", 1, 3)  # coupled bags are averaged with an error of 1e-5 here
def test_no_instance_is_above_its_bag_at_any_variance(
    name: str, kind: str, seed: int, exponent: int
) -> None:
    bags = odd_bags(kind, seed)
    kernel = bw.kernels.RBF(10.0**exponent, 1.5)
    model = MODELS[name](bag_score="joint", kernel=kernel, learn_hyperparameters=False)
    assert_sound(fit(model, bags), bags)


@each_model
@settings(max_examples=100 if LONG else 2)
@given(seeds, st.sampled_from(["joint", "noisy-or", "max", "calibrated"]))
def test_no_calibrated_instance_is_above_its_bag(name: str, seed: int, bag_score: str) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, 24)
    y = np.arange(24) % 2
    X = rng.normal(size=(sizes.sum(), 2))
    X[:, 0] += rng.uniform(0, 3) * np.repeat(y, sizes) * (rng.random(len(X)) < rng.random())
    bags = bw.Bags.from_arrays(
        X, np.repeat(np.arange(24), sizes), y=y, coords=rng.uniform(0, 10, size=(len(X), 2))
    )
    model = fit(MODELS[name](bag_score=bag_score, instance_score="calibrated"), bags)
    low, high = model.predict_instance_range(bags)
    p, std = model.predict_instance_proba(bags, return_std=True)
    of_bag = np.repeat(model.predict_proba(bags)[:, 1], sizes)
    assert np.all(low <= p[:, 1] + 1e-12) and np.all(p[:, 1] <= high + 1e-12)
    assert np.all(high <= of_bag + 1e-12)
    assert np.all(std**2 <= p[:, 0] * p[:, 1] + 1e-12)


@each_model
@few
@given(st.sampled_from(["plain", "duplicates"]), seeds, st.integers(-8, 8))
def test_any_scale_of_features_is_fitted_soundly(
    name: str, kind: str, seed: int, exponent: int
) -> None:
    bags = odd_bags(kind, seed)
    scaled = bags.with_X(bags.X * 10.0**exponent)
    assert_sound(fit(MODELS[name](bag_score="joint"), scaled), scaled)


def shuffled(bags: bw.Bags, rng: np.random.Generator) -> tuple[bw.Bags, np.ndarray, np.ndarray]:
    """The same bags in another order, instances too; with the orders of bags and of rows."""
    order = rng.permutation(len(bags))
    rows = [rng.permutation(np.arange(*bags.offsets[b : b + 2])) for b in order]
    row_order = np.concatenate(rows)
    ids = np.repeat(np.arange(len(bags)), bags.sizes[order])
    moved = bw.Bags.from_arrays(
        bags.X[row_order], ids, y=np.asarray(bags.y)[order], coords=bags.coords[row_order]
    )
    return moved, order, row_order


@each_model
@few
@given(st.sampled_from(["plain", "singletons", "noise"]), seeds)
def test_the_order_of_bags_and_instances_changes_nothing(name: str, kind: str, seed: int) -> None:
    bags = odd_bags(kind, seed)
    moved, order, rows = shuffled(bags, np.random.default_rng(seed + 1))
    # Which bags are left out together depends on their order, and calibrations with it.
    given: dict[str, Any] = {"standardize": False, "bag_score": "joint"}
    if name in GP_MODELS:
        kernel = bw.kernels.RBF(2.0, 1.5)
        given |= {"inducing": bags.X[:5], "kernel": kernel, "learn_hyperparameters": False}
        given |= {"mean": -1.0, "tol": 1e-12, "max_iter": 300}
    one, other = (fit(MODELS[name](**given), b) for b in (bags, moved))
    for found, expected in zip(other.latent(moved), one.latent(bags), strict=True):
        np.testing.assert_allclose(found, expected[rows], rtol=1e-8, atol=1e-8)
    p, q = one.predict_proba(bags)[order], other.predict_proba(moved)
    # Joint probabilities are sampled in an eigenbasis, which depends on the order by rounding.
    np.testing.assert_allclose(q, p, atol=2e-3)
    for score in ("noisy-or", "max"):
        one.bag_score = other.bag_score = score
        p, q = one.predict_proba(bags)[order], other.predict_proba(moved)
        np.testing.assert_allclose(q, p, atol=1e-8)


@each_model
@few
@given(seeds)
def test_the_same_data_twice_sharpen(name: str, seed: int) -> None:
    bags = odd_bags("plain", seed)
    twice = bw.Bags.concat([bags, bags])
    given: dict[str, Any] = {"standardize": False}
    if name in GP_MODELS:
        given |= {"inducing": bags.X, "kernel": bw.kernels.RBF(2.0, 1.5), "mean": -1.0}
        given |= {"learn_hyperparameters": False}
    if name == "mi-logistic":
        given |= {"alpha": 1.0}
    one, two = (fit(MODELS[name](**given), b) for b in (bags, twice))
    assert_sound(two, bags)
    # The labels are explained better, by a posterior that is narrower on average; not where a
    # mixture's precision falls as f grows (psi, gamma) or penalties are learned (mirvm). Margins
    # are another loss than the labels' likelihood; at a mode that moves, curvatures may fall.
    if name not in ("mirvm", "psi", "gamma", "large margin"):
        assert log_likelihood(two, bags) > log_likelihood(one, bags) - 1e-2
    if name not in ("mirvm", "psi", "gamma", "laplace", "mi-logistic"):
        assert np.mean(two.latent(bags)[1]) < np.mean(one.latent(bags)[1]) * (1 + 1e-9)


def log_likelihood(model: Any, bags: bw.Bags) -> float:
    """Mean log probability of the bags' labels."""
    p = model.predict_proba(bags)[np.arange(len(bags)), np.asarray(bags.y)]
    return float(np.mean(np.log(np.maximum(p, 1e-12))))


@each_model
@few
@given(seeds, st.integers(-6, 6), st.floats(-100, 100))
def test_units_do_not_matter_to_standardised_features(
    name: str, seed: int, exponent: int, shift: float
) -> None:
    bags = odd_bags("plain", seed)
    scale = 10.0**exponent * np.random.default_rng(seed).uniform(0.5, 2, bags.n_features)
    other = bags.with_X((bags.X + shift) * scale)
    given: dict[str, Any] = {"standardize": True}
    settings_of = [given, given]
    if name in GP_MODELS:
        given |= {"kernel": bw.kernels.RBF(2.0, 1.5), "mean": -1.0, "learn_hyperparameters": False}
        settings_of = [given | {"inducing": b.X[:5]} for b in (bags, other)]
    p, q = (
        fit(MODELS[name](**arguments), b).predict_instance_proba(b)
        for arguments, b in zip(settings_of, (bags, other), strict=True)
    )
    np.testing.assert_allclose(p, q, atol=1e-6)


@pytest.mark.parametrize("name", ["probit", "logistic", "mirvm"])
def test_one_bag_of_a_hundred_thousand(name: str) -> None:
    rng = np.random.default_rng(0)
    bags = odd_bags("plain", 0)
    large = rng.normal(size=(10**5, bags.n_features))
    large[0, 0] += 4
    X = np.concatenate([bags.X, large])
    ids = np.concatenate([bags.bag_index, np.full(10**5, len(bags))])
    both = bw.Bags.from_arrays(X, ids, y=np.append(bags.y, 1))
    model = fit(MODELS[name](max_iter=5, bag_score="noisy-or"), both)
    p = model.predict_proba(both)
    q, std = model.predict_instance_proba(both, return_std=True)
    assert np.all((p >= 0) & (p <= 1)) and np.all((q >= 0) & (q <= 1)) and np.all(np.isfinite(std))
    assert p[-1, 1] >= q[:, 1][both.bag_index == len(bags)].max() - 1e-9
