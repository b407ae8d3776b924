"""Many weights: their modes are those of Newton's method alone, for fewer Hessians."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from bagwise.core.inference.newton_probit import LogJoint
from bagwise.core.inference.passes import TrainingData
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.linear import laplace as laplace_module
from bagwise.core.linear.approach import approach, whitening
from bagwise.core.linear.design import Columns, Design, dual, primal, whitened
from bagwise.core.linear.evidence import Fit, fixed_point, maximise_evidence, start_intercept
from bagwise.core.linear.laplace import Mode, find_mode
from bagwise.core.linear.penalty import fit_alpha, fit_evidence, held_out_scores
from bagwise.core.links import Logistic

LIKELIHOOD = BagLikelihood(Logistic())
SETTINGS = {"max_iter": 100, "tol": 1e-9}
Array = np.ndarray


def make_design(n_features: int = 12, size: int = 8) -> Design:
    """40 bags, in which one instance of a positive bag is shifted in three features."""
    rng = np.random.default_rng(3)
    T = np.arange(40) % 2 == 0
    offsets = np.arange(41) * size
    X = rng.normal(size=(offsets[-1], n_features))
    X[offsets[:-1][T], :3] += 2.0
    return Design(TrainingData(X, offsets, T), Columns.all(X.mean(axis=0), X.std(axis=0)))


def mode_of(design: Design, alpha: float, side: Any = primal, **settings: Any) -> Mode:
    """From the usual start."""
    start = np.zeros(design.shape[1]), start_intercept(design)
    coordinates = side(design, np.full(design.shape[1], alpha))
    return find_mode(LIKELIHOOD, coordinates, *start, **{**SETTINGS, **settings})


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Says whether the few weights of these tests are many."""
    return lambda many: monkeypatch.setattr(laplace_module, "WIDE", 5 if many else 10**6)


@pytest.fixture
def expansions(monkeypatch: pytest.MonkeyPatch) -> list[Array]:
    """Where Hessians were asked for."""
    seen: list[Array] = []
    expand = LogJoint.expand
    monkeypatch.setattr(LogJoint, "expand", lambda self, x: seen.append(x) or expand(self, x))
    return seen


@pytest.mark.parametrize(
    ("side", "alpha"), [(primal, 100.0), (primal, 1.0), (primal, 0.1), (dual, 100.0), (dual, 30.0)]
)
def test_the_mode_is_that_of_newtons_method(
    wide: Callable[[bool], None], side: Any, alpha: float
) -> None:
    design = make_design(n_features=12 if side is primal else 400)
    modes = []
    for many in (True, False):
        wide(many)
        modes.append(mode_of(design, alpha, side))
    new, old = modes
    assert new.trace.converged and new.evidence == pytest.approx(old.evidence, abs=1e-5)
    np.testing.assert_allclose(new.w, old.w, atol=1e-5)
    np.testing.assert_allclose(new.variances, old.variances, rtol=1e-4)


FITS: dict[str, Callable[[Design], Fit]] = {
    "evidence": partial(fit_evidence, likelihood=LIKELIHOOD, max_iter=100, tol=1e-3),
    "given": partial(fit_alpha, likelihood=LIKELIHOOD, alpha=2.0, max_iter=100, tol=1e-9),
    "ARD": lambda design: maximise_evidence(
        [design], LIKELIHOOD, 10.0, fixed_point, limits=(0.1, 1e3)
    ),
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_fits_find_what_newtons_method_finds(
    wide: Callable[[bool], None], fit: Callable[[Design], Fit]
) -> None:
    design, found = make_design(), []
    for many in (True, False):
        wide(many)
        found.append(fit(design))
    new, old = found
    assert new.trace.converged and new.columns.used.tolist() == old.columns.used.tolist()
    assert new.trace.history[-1] == pytest.approx(old.trace.history[-1], abs=1e-4)
    np.testing.assert_allclose(new.alpha, old.alpha, rtol=2e-3)
    np.testing.assert_allclose(new.modes[0].w, old.modes[0].w, atol=1e-3)


def test_folds_score_what_newtons_method_finds(wide: Callable[[bool], None]) -> None:
    design, found = make_design(), []
    train, test = design.of_bags(np.arange(30)), design.of_bags(np.arange(30, 40))
    for many in (True, False):
        wide(many)
        found.append(held_out_scores(train, test, LIKELIHOOD))
    assert found[0][1]
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-2)


def test_a_mode_takes_two_hessians_and_one_near_another_one(
    wide: Callable[[bool], None], expansions: list[Array]
) -> None:
    wide(True)
    design = make_design()
    first = mode_of(design, 30.0)
    assert first.trace.n_iter > 3 and len(expansions) == 2
    expansions.clear()
    coordinates = whitened(design, np.full(12, 20.0))
    near = first.curvature_of()
    second = find_mode(LIKELIHOOD, coordinates, first.w, first.b, **SETTINGS, near=near)
    assert second.trace.converged and len(expansions) == 1
    np.testing.assert_allclose(second.w, mode_of(design, 20.0).w, atol=1e-5)


def test_steps_end_where_they_are_as_many_as_asked_for(wide: Callable[[bool], None]) -> None:
    wide(True)
    heard: list[int] = []
    mode = mode_of(make_design(), 1.0, max_iter=2, tol=0.0, note=lambda step, _: heard.append(step))
    assert not mode.trace.converged and heard == [1, 2, 3, 4]  # two of each kind
    assert np.all(np.diff(mode.trace.history) > 0)


def test_flat_priors_leave_newtons_method_alone(
    wide: Callable[[bool], None], expansions: list[Array]
) -> None:
    wide(True)
    mode = mode_of(make_design(n_features=6, size=40), 0.0)
    assert mode.trace.converged and len(expansions) > 2


@pytest.mark.parametrize("least", [0.5, -3.0])
def test_whitened_curvature_is_one_in_size(least: float) -> None:
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    sizes = np.array([least, 1.5, 2.0, 10.0])
    outward, inward = whitening(V @ np.diag(sizes) @ V.T)
    R = np.column_stack([outward(e) for e in np.eye(4)])
    np.testing.assert_allclose(R @ R.T, V @ np.diag(1 / np.abs(sizes)) @ V.T, atol=1e-12)
    np.testing.assert_allclose(np.column_stack([inward(e) for e in np.eye(4)]), R.T, atol=1e-12)


def test_flat_directions_of_a_saddle_are_as_wide_as_the_prior() -> None:
    outward, _ = whitening(np.diag([-3.0, 1e-9]))
    np.testing.assert_allclose(outward(np.ones(2)), [1 / np.sqrt(3), 1.0])


def test_the_way_leads_up_and_off_a_saddle() -> None:
    """x^2 - x^4 / 4 - y^2 / 2, begun beside the saddle at 0."""

    def slope(v: Array) -> tuple[float, Array]:
        x, y = v
        return float(x**2 - x**4 / 4 - y**2 / 2), np.array([2 * x - x**3, -y])

    P = np.diag([-2.0, 1.0])
    end, values = approach(slope, np.array([1e-3, 1.0]), P, 50, lambda values: None)
    np.testing.assert_allclose(end, [np.sqrt(2), 0.0], atol=1e-6)
    assert np.all(np.diff(values) >= 0) and values[-1] == pytest.approx(1.0, abs=1e-12)


def test_curvature_of_the_weights_that_are_left(wide: Callable[[bool], None]) -> None:
    wide(True)
    design, keep = make_design(), np.arange(12) % 2 == 0
    alpha = np.geomspace(1, 10, 12)
    mode = find_mode(LIKELIHOOD, primal(design, alpha), np.zeros(12), -2.0, **SETTINGS)
    left = primal(design.only(keep), 3 * alpha[keep])
    found = left.precision(mode.curvature_of(keep))
    own = mode.coordinates.log_joint(LIKELIHOOD).expand(mode.v).P
    scale = left.root / mode.coordinates.root[keep]
    np.testing.assert_allclose(found[-1, -1], own[-1, -1], rtol=1e-6)
    expected = scale * (own[:-1, :-1] - np.eye(12))[np.ix_(keep, keep)] * scale[:, None]
    np.testing.assert_allclose(found[:-1, :-1], expected + np.eye(6), atol=1e-6)
    wide(False)
    assert mode.curvature_of(keep) is None
    assert mode_of(make_design(400), 1.0, dual).curvature_of() is None
