"""The mathematics of the MI-RVM family: derivatives, evidence, updates, both sides of Woodbury."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bagwise.core.inference.passes import TrainingData
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.linear import evidence as evidence_module
from bagwise.core.linear import penalty as penalty_module
from bagwise.core.linear.design import Columns, Design, dual, primal, whitened
from bagwise.core.linear.evidence import (
    Fit,
    Pace,
    Update,
    fixed_point,
    maximise_evidence,
    printed_update,
    start_intercept,
    useless,
)
from bagwise.core.linear.laplace import Mode, find_mode
from bagwise.core.linear.penalty import (
    GRID,
    PARTING,
    choose_alpha,
    fit_alpha,
    fit_by_folds,
    fit_evidence,
    held_out_scores,
    plug_in_log_likelihood,
    usable,
)
from bagwise.core.links import Logistic
from bagwise.kernels import RBF

LIKELIHOOD = BagLikelihood(Logistic())
Array = np.ndarray


def make_design(
    n_bags: int = 40,
    n_features: int = 4,
    *,
    seed: int = 0,
    known: bool = False,
    chunk_size: int | None = None,
    effect: float = 2.0,
    memory_budget: int = sys.maxsize,
) -> Design:
    """Bags of 1 to 4 instances; the first instance of a positive bag is shifted in feature 0."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, n_bags)
    T = np.arange(n_bags) % 2 == 0
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(offsets[-1], n_features))
    X[offsets[:-1][T], 0] += effect
    labels = None
    if known:
        labels = np.full(len(X), np.nan)
        labels[offsets[:-1][::3]] = T[::3]
    data = TrainingData(X, offsets, T, labels, chunk_size, memory_budget=memory_budget)
    return scaled(data, X.mean(axis=0), X.std(axis=0))


def scaled(data: TrainingData, shift: Array, scale: Array) -> Design:
    """A design of all columns."""
    return Design(data, Columns.all(shift, scale))


def least_precision(mode: Mode) -> float:
    """Lowest eigenvalue of the whitened weights' posterior precision, b integrated out."""
    P = mode.P
    marginal = P[:-1, :-1] - np.outer(P[:-1, -1], P[-1, :-1]) / P[-1, -1]
    return float(np.linalg.eigvalsh(marginal)[0])


def settled(design: Design, alpha: Array, **settings: Any) -> Any:
    start = np.zeros(design.shape[1]), start_intercept(design)
    settings = {"max_iter": 100, "tol": 1e-14, **settings}
    return find_mode(LIKELIHOOD, whitened(design, alpha), *start, **settings)


def maximised(designs: list[Design], update: Update, **settings: Any) -> Fit:
    """Evidence maximised without limits that bind."""
    settings = {"limits": (1e-6, 1e6), **settings}
    return maximise_evidence(designs, LIKELIHOOD, 1.0, update, **settings)


# --- derivatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True], ids=["bags", "mixed"])
@pytest.mark.parametrize("side", [primal, dual], ids=["primal", "dual"])
def test_gradient_and_hessian_are_those_of_finite_differences(known: bool, side: Any) -> None:
    design = make_design(known=known)
    density = side(design, np.array([0.5, 1.0, 3.0, 20.0])).log_joint(LIKELIHOOD)
    rng = np.random.default_rng(1)
    for _ in range(3):
        v = rng.normal(size=5)
        here = density.expand(v)
        gradient, P = here.gradient, here.P
        assert here.value == pytest.approx(density.value(v), rel=1e-12)
        h = 1e-5
        steps = h * np.eye(5)
        numeric = [(density.value(v + e) - density.value(v - e)) / (2 * h) for e in steps]
        np.testing.assert_allclose(gradient, numeric, atol=1e-6 * np.abs(gradient).max())
        slopes = [density.expand(v + e).gradient - density.expand(v - e).gradient for e in steps]
        np.testing.assert_allclose(P, -np.array(slopes) / (2 * h), atol=1e-6 * np.abs(P).max())


def test_maximum_likelihood_has_no_prior() -> None:
    design = make_design()
    density = whitened(design, np.zeros(4)).log_joint(LIKELIHOOD)
    v = np.array([0.3, -0.2, 0.1, 0.5, -1.0])
    assert density.value(v) == plug_in_log_likelihood(LIKELIHOOD, design, v[:-1], v[-1])


# --- evidence ------------------------------------------------------------------------------------


def brute_force_log_evidence(design: Design, alpha: Array) -> float:
    """log of the integral of p(T | w, b) N(w; 0, 1/alpha) over w and b, by a sum over a grid."""
    mode = settled(design, alpha)
    centre, spread = np.append(mode.w, mode.b), np.sqrt(np.diagonal(mode.covariance))
    axes = [c + s * np.linspace(-7, 7, 45) for c, s in zip(centre, spread, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    (chunk,) = design.sweeper.chunks
    X, targets = chunk.A, chunk.targets
    z = X @ points[:, :2].T + points[:, 2]  # (n, points)
    log_negative = np.add.reduceat(-np.logaddexp(0, z), targets.starts, axis=0)
    with np.errstate(divide="ignore"):
        bags = np.where(targets.T[:, None], np.log(-np.expm1(log_negative)), log_negative)
    prior = 0.5 * np.log(alpha / (2 * np.pi)) - 0.5 * alpha * points[:, :2] ** 2
    values = bags.sum(axis=0) + prior.sum(axis=1)
    cell = np.prod([a[1] - a[0] for a in axes])
    return float(np.log(np.sum(np.exp(values - values.max())) * cell) + values.max())


@pytest.mark.parametrize("alpha", [(1.0, 1.0), (0.3, 30.0)])
def test_evidence_is_that_of_a_brute_force_integral(alpha: tuple[float, float]) -> None:
    design = make_design(120, 2, effect=1.5)
    found = settled(design, np.array(alpha)).evidence
    expected = brute_force_log_evidence(design, np.array(alpha))
    assert abs(np.expm1(found - expected)) < 0.05  # the evidence itself, not its logarithm


def test_both_updates_reach_the_same_evidence() -> None:
    # Every weight is needed here, so that the printed update has somewhere finite to go.
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 3))
    T = X @ [1.0, -1.0, 0.7] + rng.logistic(size=600) > 1
    design = scaled(TrainingData(X, np.arange(601), T), np.zeros(3), np.ones(3))
    fits = [
        maximised([design], update, tol=1e-7, max_iter=3000)
        for update in (fixed_point, printed_update)
    ]
    quick, slow = fits
    assert quick.trace.converged and slow.trace.converged
    assert quick.trace.history[-1] == pytest.approx(slow.trace.history[-1], rel=1e-6)
    np.testing.assert_allclose(quick.alpha, slow.alpha, rtol=1e-2)


def test_the_fixed_point_is_stationary() -> None:
    fit = maximised([make_design(200)], fixed_point, tol=1e-9)
    (mode,) = fit.modes
    gamma = 1 - fit.alpha * mode.variances
    np.testing.assert_allclose(fit.alpha * mode.w**2, gamma, rtol=1e-3)


def test_the_printed_update_keeps_noise_features() -> None:
    design = make_design(200, 10)
    quick = maximised([design], fixed_point)
    slow = maximised([design], printed_update, max_iter=60)
    assert len(quick.columns) <= 6 < len(slow.columns) == 10


def test_pruned_features_stay_away_and_the_relevant_one_stays() -> None:
    fit = maximised([make_design(200, 20)], fixed_point)
    assert 0 in fit.columns.used and len(fit.columns) < 8
    assert len(fit.alpha) == len(fit.modes[0].w) == len(fit.columns)


def test_useless_features_are_those_whose_evidence_has_no_finite_maximum() -> None:
    s, q = np.array([4.0, 4.0]), np.array([1.0, 3.0])  # q^2 < s, q^2 > s
    alpha = np.ones(2)
    variances = 1 / (alpha + s)
    w = q * variances
    assert useless(alpha, w[None], variances[None]).tolist() == [True, False]


def test_a_feature_that_one_of_several_tasks_needs_is_not_useless() -> None:
    # Feature 0: task 0 needs it, task 1 is sure of a weight near 0, and sum q^2 < sum s.
    # Feature 1: no task needs it.
    s, q = np.array([[1.0, 1.0], [200.0, 200.0]]), np.array([[10.0, 0.5], [0.0, 3.0]])
    alpha = np.ones(2)
    variances = 1 / (alpha + s)
    assert useless(alpha, q * variances, variances).tolist() == [False, True]


# --- convergence ---------------------------------------------------------------------------------


class BackAndForth:
    """An update without a fixed point."""

    def __init__(self, factor: float) -> None:
        self.factor, self.calls = factor, 0

    def __call__(self, alpha: Array, w: Array, variances: Array) -> Array:
        self.calls += 1
        return alpha * self.factor ** (1 if self.calls % 2 else -1)


def test_shrinking_steps_are_not_convergence() -> None:
    fit = maximised([make_design()], BackAndForth(3.0))
    assert not fit.trace.converged and 100 < fit.trace.n_iter < 500
    assert "of 2 of 2 features" in fit.problem and "a factor of 3;" in fit.problem
    assert maximised([make_design()], BackAndForth(1.05)).trace.converged


def test_what_a_limit_stops_does_not_hinder_convergence() -> None:
    fit = maximised([make_design()], lambda alpha, w, v: alpha / 2, limits=(0.1, 1e3))
    assert fit.trace.converged and fit.alpha.tolist() == [0.1] * 4


def test_converged_fits_are_fixed_points() -> None:
    fit = maximised([make_design(200, 20)], fixed_point, limits=(0.1, 1e3))
    (mode,) = fit.modes
    whole = np.log(fixed_point(fit.alpha, mode.w[None], mode.variances[None]) / fit.alpha)
    assert fit.trace.converged
    assert np.all((np.abs(whole) <= 0.1) | ((fit.alpha == 0.1) & (whole < 0)))


@pytest.mark.parametrize(("settles", "left"), [(True, 0.97**99), (False, 1.0)])
def test_only_quick_updates_are_brought_to_rest(settles: bool, left: float) -> None:
    pace = Pace.start(1, settles=settles)
    for _ in range(200):
        step, pace = pace.apply(np.ones(1))
    assert step[0] == pytest.approx(left)


@pytest.fixture
def lost_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newton's method says of each mode that it was not reached."""

    def find(*args: Any, **settings: Any) -> Mode:
        mode = find_mode(*args, **settings)
        return replace(mode, trace=replace(mode.trace, converged=False))

    for module in (evidence_module, penalty_module):
        monkeypatch.setattr(module, "find_mode", find)


@pytest.mark.usefixtures("lost_modes")
@pytest.mark.parametrize("method", ["ard", "evidence", "cv", "given"])
def test_a_mode_that_was_not_reached_is_no_convergence(method: str) -> None:
    design = make_design()
    settings: dict[str, Any] = {"max_iter": 100, "tol": 1e-3}
    fits: dict[str, Callable[[], Fit]] = {
        "ard": lambda: maximised([design], fixed_point),
        "evidence": lambda: fit_evidence(design, LIKELIHOOD, **settings),
        "cv": lambda: fit_by_folds(design, LIKELIHOOD, np.random.default_rng(0), **settings),
        "given": lambda: fit_alpha(design, LIKELIHOOD, 1.0, **settings),
    }
    fit = fits[method]()
    assert not fit.trace.converged and "did not reach the mode" in fit.problem


def test_folds_whose_modes_were_not_reached_are_no_convergence() -> None:
    design = make_design()
    rng = np.random.default_rng(0)
    assert choose_alpha(design, LIKELIHOOD, rng)[1]
    assert not choose_alpha(design, LIKELIHOOD, rng, max_iter=1)[1]


def test_where_labels_widen_the_posterior_the_printed_update_serves() -> None:
    alpha, w, variances = np.ones(1), np.array([[0.5]]), np.array([[1.2]])  # gamma = -0.2
    np.testing.assert_allclose(fixed_point(alpha, w, variances), 1 / (0.25 + 1.2))


def test_tasks_share_alpha() -> None:
    alpha, w = np.array([2.0]), np.array([[0.5], [1.0]])
    variances = np.array([[0.2], [0.1]])
    gamma = 2 - 2 * 0.2 - 2 * 0.1
    np.testing.assert_allclose(fixed_point(alpha, w, variances), gamma / 1.25)
    np.testing.assert_allclose(printed_update(alpha, w, variances), 2 / (1.25 + 0.3))


def test_a_log_alpha_that_turns_back_slows_down() -> None:
    pace = Pace.start(2, settles=True)
    for sign in (1.0, -1.0, 1.0):
        step, pace = pace.apply(np.array([sign, 1.0]))
    assert step[0] == pytest.approx(0.25) and step[1] == 1.0


def test_the_start_makes_bags_of_both_labels_equally_likely() -> None:
    design = make_design()
    p = 1 / (1 + np.exp(-start_intercept(design)))
    assert (1 - p) ** (len(design.data.X) / 40) == pytest.approx(0.5)


# --- both sides, chunks, order -------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True], ids=["bags", "mixed"])
def test_dual_is_primal(known: bool) -> None:
    design = make_design(20, 80, known=known)  # fewer instances than features
    alpha = np.random.default_rng(2).uniform(0.5, 20, 80)
    start = np.zeros(80), -1.0
    one, other = (
        find_mode(LIKELIHOOD, side(design, alpha), *start, max_iter=100, tol=1e-14)
        for side in (primal, dual)
    )
    assert other.coordinates.V is not None and whitened(design, alpha).V is not None
    np.testing.assert_allclose(one.w, other.w, atol=1e-8)
    assert one.b == pytest.approx(other.b, abs=1e-8)
    np.testing.assert_allclose(one.variances, other.variances, rtol=1e-8)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-9)
    np.testing.assert_allclose(np.diagonal(other.covariance)[:-1], other.variances, rtol=1e-8)
    assert one.evidence == pytest.approx(other.evidence, abs=1e-8)


def test_more_features_than_instances_are_fitted() -> None:
    fit = maximised([make_design(60, 400, effect=5.0)], fixed_point)
    assert 0 in fit.columns.used and len(fit.columns) < 60


@pytest.mark.parametrize("budget", [sys.maxsize, 0], ids=["kept", "computed anew"])
def test_chunks_change_nothing(budget: int) -> None:
    whole, parts = (
        maximised([make_design(chunk_size=size, memory_budget=budget)], fixed_point)
        for size in (10_000, 7)
    )
    np.testing.assert_array_equal(whole.columns.used, parts.columns.used)
    np.testing.assert_allclose(whole.modes[0].w, parts.modes[0].w, rtol=1e-8)
    assert whole.trace.history[-1] == pytest.approx(parts.trace.history[-1], rel=1e-10)


def test_constant_columns_never_enter() -> None:
    design = make_design(60, 5)
    fit = maximised([design.only(np.array([True, False, True, True, False]))], fixed_point)
    assert set(fit.columns.used) <= {0, 2, 3}


@pytest.mark.parametrize("kernel", [None, RBF(1.0, 1.0)])
def test_constant_columns_are_found_in_any_chunks(kernel: Any) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=12), np.full(12, 0.1), rng.normal(size=12)])
    data = TrainingData(X, np.arange(13), np.arange(12) % 2 == 0, chunk_size=5)
    basis = None if kernel is None else np.array([[0.0, 0.0, 0.0], [1e3, 0.0, 0.0], X[4]])
    columns = Columns.all(X.mean(axis=0), np.ones(3), kernel, basis)
    assert Design(data, columns).varying().columns.used.tolist() == [0, 2]


# --- one penalty ---------------------------------------------------------------------------------


def test_a_given_alpha_is_kept() -> None:
    fit = fit_alpha(make_design(), LIKELIHOOD, 2.5, max_iter=100, tol=1e-4)
    assert fit.alpha.tolist() == [2.5] * 4
    assert fit.trace.history[-1] == pytest.approx(fit.modes[0].evidence)


def test_the_best_alpha_by_evidence() -> None:
    design = make_design(60)
    fit = fit_evidence(design, LIKELIHOOD, max_iter=100, tol=1e-8)
    assert fit.trace.converged and np.all(np.diff(fit.trace.history) >= 0)
    values = [settled(design, f * fit.alpha).evidence for f in (0.5, 0.9, 1.1, 2.0)]
    assert max(values) < fit.trace.history[-1]


def mirrored_design(seed: int) -> Design:
    """Few bags [x; -x]: w and -w are equally good, and part where alpha is small."""
    rng = np.random.default_rng(seed)
    n_bags, d = int(rng.integers(4, 30)), int(rng.integers(1, 6))
    x = rng.normal(size=(n_bags, d))
    T = np.abs(x[:, 0]) > np.median(np.abs(x[:, 0]))
    X = np.stack([x, -x], axis=1).reshape(-1, d)
    return scaled(TrainingData(X, 2 * np.arange(n_bags + 1), T), np.zeros(d), X.std(axis=0))


@pytest.mark.parametrize("seed", [14, 42, 47, 49, 69, 74, 77, 79])
def test_evidence_is_not_drawn_to_where_modes_part(seed: int) -> None:
    design = mirrored_design(seed)
    fit = fit_evidence(design, LIKELIHOOD, max_iter=100, tol=1e-3)
    (mode,) = fit.modes
    assert fit.trace.converged and mode.evidence <= 0 and least_precision(mode) >= PARTING


def test_alphas_whose_evidence_is_no_evidence_are_refused() -> None:
    # The mode of two opposite instances is 0 for large alpha, and parts near alpha = 0.15.
    X = np.array([[1.0], [-1.0], [0.05], [-0.05]])
    data = TrainingData(X, np.array([0, 2, 4]), np.array([True, False]))
    design = scaled(data, np.zeros(1), np.ones(1))
    modes = [settled(design, np.array([a])) for a in np.geomspace(1, 0.05, 200)]
    least = [least_precision(mode) for mode in modes]
    assert least[0] > 0.5 and min(least) < PARTING
    assert [mode.firmer_than(PARTING) for mode in modes] == [x > PARTING for x in least]
    parting = settled(design, np.geomspace(1, 0.05, 200)[np.argmin(least)][None])
    assert not usable(parting) and usable(settled(design, np.array([1.0])))
    far = scaled(
        TrainingData(np.array([[9.0], [-9.0]]), np.arange(3), np.array([True, False])),
        np.zeros(1),
        np.ones(1),
    )
    certain = settled(far, np.array([0.1]))
    assert certain.evidence > 0 and not usable(certain)


def test_no_usable_alpha_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penalty_module, "usable", lambda mode, highest: False)
    with pytest.raises(FloatingPointError, match=r"no alpha from 0.1 to 1e\+04.*alpha='cv'"):
        fit_evidence(make_design(), LIKELIHOOD, max_iter=100, tol=1e-3)


def test_each_step_of_the_search_needs_one_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []

    def find(likelihood: Any, coordinates: Any, w: Array, b: float, **settings: Any) -> Mode:
        starts.append(w)
        return find_mode(likelihood, coordinates, w, b, **settings)

    monkeypatch.setattr(penalty_module, "find_mode", find)
    fit = fit_evidence(make_design(60), LIKELIHOOD, max_iter=100, tol=1e-3)
    assert len(starts) == len(GRID) + 2 + fit.trace.n_iter + 1
    assert not np.any(starts[-1]) and np.any(starts[-2])  # the last one begins anew
    width = np.log(10) * 0.6180339887**fit.trace.n_iter
    assert width <= 1e-3 < width / 0.6180339887


def test_the_search_begins_at_the_best_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[Array, Mode]] = []

    def find(likelihood: Any, coordinates: Any, w: Array, b: float, **settings: Any) -> Mode:
        found.append((w, find_mode(likelihood, coordinates, w, b, **settings)))
        return found[-1][1]

    monkeypatch.setattr(penalty_module, "find_mode", find)
    fit_evidence(make_design(60), LIKELIHOOD, max_iter=100, tol=1e-3)
    for i in range(1, len(found) - 1):
        before = [mode for _, mode in found[:i]]
        near = before[-1] if i < len(GRID) else max(before, key=lambda mode: mode.evidence)
        np.testing.assert_array_equal(found[i][0], near.w)


def test_a_better_mode_of_a_cold_start_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def find(likelihood: Any, coordinates: Any, w: Array, b: float, **settings: Any) -> Mode:
        mode = find_mode(likelihood, coordinates, w, b, **settings)
        calls.append(w)
        cold = len(calls) > 1 and not np.any(w)
        return replace(mode, value=mode.value + cold)

    monkeypatch.setattr(penalty_module, "find_mode", find)
    fit = fit_evidence(make_design(60), LIKELIHOOD, max_iter=100, tol=1e-3)
    monkeypatch.undo()
    usual = fit_evidence(make_design(60), LIKELIHOOD, max_iter=100, tol=1e-3)
    assert fit.trace.history[-1] == pytest.approx(usual.trace.history[-1] + 1, abs=1e-4)


def test_cross_validation_prefers_what_predicts() -> None:
    strong, noise = (
        choose_alpha(make_design(80, 4, effect=effect), LIKELIHOOD, np.random.default_rng(0))[0]
        for effect in (2.0, 0.0)
    )
    assert strong in GRID and noise in GRID and strong < noise


def test_held_out_scores_do_not_depend_on_the_path() -> None:
    design = make_design(60)
    train, test = design.of_bags(np.arange(40)), design.of_bags(np.arange(40, 60))
    scores, converged = held_out_scores(train, test, LIKELIHOOD)
    mode = settled(train, np.full(4, GRID[-1]))
    (chunk,) = test.sweeper.chunks
    expected = LIKELIHOOD.log_prob(chunk.A @ mode.w + mode.b, chunk.targets).sum()
    assert converged and scores[-1] == pytest.approx(expected, abs=1e-3)
