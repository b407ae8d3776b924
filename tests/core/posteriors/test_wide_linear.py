"""The posterior of more weights than instances is that of all weights, without their covariance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import special

import bagwise as bw
from bagwise.core.posteriors import linear
from bagwise.core.posteriors.linear import LinearPosterior, WideLinearPosterior


def wide_bags(n_bags: int = 12, size: int = 4, n_features: int = 90, seed: int = 0) -> bw.Bags:
    rng = np.random.default_rng(seed)
    y = np.arange(n_bags) % 2
    X = rng.standard_normal((n_bags * size, n_features))
    X[::size, :5] += 2.0 * y[:, None]
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n_bags), size), y=y)


def both(
    monkeypatch: pytest.MonkeyPatch, alpha: float
) -> tuple[bw.MILogisticRegression, bw.MILogisticRegression]:
    """The same model with all weights' covariance, and without."""
    models = []
    for many in (10_000, 10):
        monkeypatch.setattr(linear, "MANY_WEIGHTS", many)
        models.append(bw.MILogisticRegression(alpha=alpha, random_state=0).fit(wide_bags()))
    dense, wide = models
    assert isinstance(dense.posterior_, LinearPosterior)
    assert isinstance(wide.posterior_, WideLinearPosterior)
    return dense, wide


def test_weights_and_latent_values_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, wide = both(monkeypatch, alpha=5.0)
    new = wide_bags(seed=1)
    for name in ("coef_", "coef_std_", "intercept_"):
        np.testing.assert_allclose(getattr(wide, name), getattr(dense, name), rtol=1e-7, atol=1e-9)
    for bags in (wide_bags(), new):
        for ours, theirs in zip(wide.latent(bags), dense.latent(bags), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


# At alpha = 5 f has a deviation of 4, and either form is within 6e-3 of 100,000 random draws.
@pytest.mark.parametrize(("alpha", "error"), [(100.0, 2e-3), (5.0, 1.2e-2)])
def test_bag_probabilities_are_the_same(
    monkeypatch: pytest.MonkeyPatch, alpha: float, error: float
) -> None:
    dense, wide = both(monkeypatch, alpha=alpha)
    new = wide_bags(30, seed=2)
    ours, theirs = (m.predict_proba(new, return_std=True) for m in (wide, dense))
    assert ours[0] == pytest.approx(theirs[0], abs=error)
    assert ours[1] == pytest.approx(theirs[1], abs=0.04)
    known, also = (m.predict_instance_proba(new, return_std=True) for m in (wide, dense))
    assert known[0] == pytest.approx(also[0], abs=1e-7)


def test_copies_of_a_new_instance_share_what_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, wide = both(monkeypatch, alpha=1.0)
    x = 3 * np.random.default_rng(3).standard_normal((1, 90))
    copies, one = (bw.Bags.from_list([np.repeat(x, k, axis=0)]) for k in (20, 1))
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    mean, variance = dense.latent(copies[[0]])
    f = mean[0] + np.sqrt(variance[0]) * nodes  # of all copies at once
    exact = 1 - float(weights @ special.expit(-f) ** 20) / float(weights.sum())
    for model in (dense, wide):  # f has a deviation of 29: points resolve its step to 1 in 200
        assert model.predict_proba(copies)[0, 1] == pytest.approx(exact, abs=6e-3)
    assert wide.predict_proba(copies)[0, 1] - wide.predict_proba(one)[0, 1] < 0.35


def test_sparse_wide_model_comes_back_from_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, wide = both(monkeypatch, alpha=5.0)
    wide.save(tmp_path / "wide.bag")
    loaded = bw.load(tmp_path / "wide.bag")
    new = wide_bags(seed=4)
    np.testing.assert_array_equal(loaded.predict_proba(new), wide.predict_proba(new))


def test_pruned_features_may_still_outnumber_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for many in (10_000, 10):
        monkeypatch.setattr(linear, "MANY_WEIGHTS", many)
        model = bw.MIRVM(random_state=0, max_iter=1, bag_score="joint", instance_score="posterior")
        with pytest.warns(Warning, match="max_iter"):
            found.append(model.fit(wide_bags()))
    dense, wide = found
    assert isinstance(wide.posterior_, WideLinearPosterior)
    np.testing.assert_array_equal(wide.selected_features_, dense.selected_features_)
    np.testing.assert_allclose(wide.coef_std_, dense.coef_std_, rtol=1e-7, atol=1e-9)


def test_files_that_do_not_fit_together_are_refused() -> None:
    parts = {
        "m": np.zeros(3),
        "S": np.eye(3),
        "V": np.eye(4)[:, :2],
        "root": np.ones(4),
        "columns": np.arange(4),
        "shift": np.zeros(5),
        "scale": np.ones(5),
        "seed": 0,
    }
    WideLinearPosterior(**parts)  # type: ignore[arg-type]
    for wrong in ({"V": np.eye(4)}, {"columns": np.array([0, 1, 2, 9])}, {"root": np.ones(3)}):
        with pytest.raises(ValueError, match="posterior:"):
            WideLinearPosterior(**{**parts, **wrong})  # type: ignore[arg-type]
