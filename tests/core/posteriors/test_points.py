"""Sobol points are kept, and are the same whatever was asked for before."""

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.links import Logistic
from bagwise.core.posteriors import joint, points
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.posteriors.joint import ROUGH
from toy_bags import separable_bags


def test_points_are_the_first_of_more_whatever_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "_kept", {})
    few, more = (points._sobol(n, 5, 7).copy() for n in (64, 256))
    np.testing.assert_array_equal(more[:64], few)
    np.testing.assert_array_equal(points._sobol(64, 5, 7), few)
    np.testing.assert_array_equal(points._kept[5, 7], more)
    monkeypatch.setattr(points, "_kept", {})
    np.testing.assert_array_equal(points._sobol(256, 5, 7), more)


def test_few_sets_of_points_are_kept_and_none_that_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(points, "_kept", {})
    for seed in range(10):
        points._sobol(64, 5, seed)
    assert list(points._kept) == [(5, seed) for seed in range(10 - points.KEPT_SETS, 10)]
    monkeypatch.setattr(points, "KEPT_NUMBERS", 64)
    points._sobol(64, 6, 0)
    assert (6, 0) not in points._kept


def test_kept_points_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        points._sobol(64, 5, 7)[0] = 0.0


def test_the_ranking_of_fitted_bags_is_looked_at_with_few_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    draws = Posterior.draws

    def noted(self: Posterior, n: int) -> points.Draws:
        asked.append(n)
        return draws(self, n)

    monkeypatch.setattr(Posterior, "draws", noted)
    settings = {"n_inducing": 5, "learn_hyperparameters": False, "random_state": 0}
    bags = separable_bags(20, 3)
    # Where instances alone tell that bags are ranked well, nothing is asked.
    bw.ProbitVGPMIL(**settings).fit(bags)
    assert not asked
    bw.ProbitVGPMIL(**settings).fit(bags, np.arange(20) // 3 % 2)
    assert set(asked) == set(ROUGH)


@pytest.mark.parametrize("n_directions", [3, 40])
def test_each_direction_has_its_own_dimension_whatever_is_kept(
    monkeypatch: pytest.MonkeyPatch, n_directions: int
) -> None:
    monkeypatch.setattr(points, "_kept", {})
    v, residual = points.standard_normal(64, n_directions, 0)
    assert v.shape == (64, n_directions) and residual.shape == (64, points.MAX_RANK)
    plain = points._sobol(64, n_directions + points.MAX_RANK, 1)
    monkeypatch.setattr(points, "_kept", {})
    first = min(points.FIRST, n_directions)
    v, residual = points.standard_normal(64, n_directions, 1)
    rest = first + points.FIRST_RESIDUAL
    np.testing.assert_array_equal(v[:, :first], plain[:, :first])
    np.testing.assert_array_equal(residual[:, : points.FIRST_RESIDUAL], plain[:, first:rest])
    np.testing.assert_array_equal(v[:, first:], plain[:, rest : rest + n_directions - first])
    more = points.standard_normal(128, n_directions, 1)[0]
    np.testing.assert_array_equal(more[:64], v)


def test_pseudo_random_points_complete_those_of_many_directions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(points, "_kept", {})
    monkeypatch.setattr(points, "MAX_SOBOL", points.MAX_RANK)
    sobol = points._sobol(64, points.MAX_RANK, 0)
    v, residual = points.standard_normal(64, 20, 0)
    assert v.shape == (64, 20) and residual.shape == (64, points.MAX_RANK)
    np.testing.assert_array_equal(v[:, : points.FIRST], sobol[:, : points.FIRST])
    expected = np.random.default_rng(0).standard_normal((64, 20))
    np.testing.assert_array_equal(residual[:, -20:], expected)


@pytest.mark.parametrize("mixture", [False, True])
def test_deviations_at_many_points_are_those_at_few(mixture: bool) -> None:
    rng = np.random.default_rng(0)
    root, centre = rng.normal(size=(5, 5)), rng.normal(size=(64, 5)) if mixture else None
    draws = points.Draws(rng.normal(size=(64, 5)), np.zeros((64, 1)), root, centre)
    A = rng.normal(size=(7, 5))
    expected = A @ draws.v.T
    np.testing.assert_allclose(draws.deviations(A, slice(0, 64)), expected, atol=1e-12)
    np.testing.assert_allclose(draws.deviations(A, slice(3, 9)), expected[:, 3:9], atol=1e-12)


@pytest.mark.parametrize("mixture", [False, True])
def test_mirrored_points_have_what_matters_in_their_first_direction(mixture: bool) -> None:
    rng = np.random.default_rng(0)
    root, sizes = rng.normal(size=(5, 5)), np.array([4, 1, 6])
    n, starts = sizes.sum(), np.array([0, 4, 5])
    columns = {"mu": rng.normal(size=n), "A": rng.normal(size=(n, 5)), "G": rng.normal(size=(n, 2))}
    known = {name: np.full(n, 0.3) for name in ("expected", "square", "rest")}
    latents = points.Latents(**known, **columns, starts=starts)
    shift = points.newton_shift(latents, Logistic(), root, np.array([True, False, True]))
    assert np.all(shift.s[1] == 0) and np.all(shift.s[[0, 2]].any(axis=1))
    U = points._loadings(latents, root, slice(None))
    hazard = Logistic().hazard(latents.mu / np.sqrt(1 + Logistic.residual_weight * 0.3))
    centre = rng.normal(size=(64, 5)) if mixture else None
    draws = points.Draws(rng.normal(size=(64, 5)), rng.normal(size=(64, 2)), root, centre)
    e = np.hstack([draws.normal, draws.residual])
    some = slice(8, 64)
    found = joint.sample(latents, Logistic(), draws, some, shift, root, second=False)
    assert found.log_weight is not None
    for b, a in enumerate(starts):
        rows = slice(a, a + sizes[b])
        mirror = np.eye(7) - np.outer(shift.w[b], shift.w[b])
        np.testing.assert_allclose(mirror @ mirror, np.eye(7), atol=1e-12)
        direction = hazard[rows] @ U[rows]
        np.testing.assert_allclose(mirror[0], direction / np.linalg.norm(direction), atol=1e-12)
        at = shift.s[b] + e[some] @ mirror
        f = latents.mu[rows, None] + U[rows] @ at.T
        if centre is not None:
            f += latents.A[rows] @ centre[some].T
        logs = Logistic().log_smoothed(f, latents.rest[rows], second=False)[0].sum(axis=0)
        np.testing.assert_allclose(found.log_p0[b], logs, rtol=1e-9)
        weight = 0.5 * np.sum(e[some] ** 2 - at**2, axis=1)
        np.testing.assert_allclose(found.log_weight[b], weight, atol=1e-9)
