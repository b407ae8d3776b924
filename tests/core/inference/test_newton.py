"""Newton's climb on densities whose shape is known: saddles, flat tops, no top, no numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from bagwise.core.inference.loop import Trace
from bagwise.core.inference.newton import (
    Expansion,
    cholesky_at_mode,
    climb,
    corrected,
    warn_unless_converged,
)
from bagwise.core.linalg import try_cholesky

Array = np.ndarray


@dataclass(frozen=True)
class Density:
    """A log density from functions of a point."""

    log_density: Callable[[Array], float]
    gradient: Callable[[Array], Array]
    P: Callable[[Array], Array]

    def value(self, v: Array) -> float:
        return float(self.log_density(v))

    def expand(self, v: Array) -> Expansion:
        return Expansion(v, self.value(v), self.gradient(v), self.P(v))


def two_modes(bend: float) -> Density:
    """bend x^2 / 2 - x^4 / 4 - y^2 / 2: a saddle at 0, modes at x = +-sqrt(bend)."""
    return Density(
        lambda v: 0.5 * bend * v[0] ** 2 - 0.25 * v[0] ** 4 - 0.5 * v[1] ** 2,
        lambda v: np.array([bend * v[0] - v[0] ** 3, -v[1]]),
        lambda v: np.diag([3 * v[0] ** 2 - bend, 1.0]),
    )


class Counted:
    """A density that counts what it is asked for."""

    def __init__(self, density: Density) -> None:
        self.density = density
        self.values, self.expansions = 0, 0

    def value(self, v: Array) -> float:
        self.values += 1
        return self.density.value(v)

    def expand(self, v: Array) -> Expansion:
        self.expansions += 1
        return self.density.expand(v)


def test_steps_that_hold_take_one_pass_each() -> None:
    parabola = Density(lambda v: -0.5 * float(v @ v), lambda v: -v, lambda v: np.eye(len(v)))
    counted = Counted(parabola)
    summit = climb(counted, np.array([3.0, -4.0]), max_iter=20, tol=1e-12)
    assert summit.trace.converged
    assert (counted.values, counted.expansions) == (0, summit.trace.n_iter + 1)


def test_shorter_steps_are_tried_without_derivatives() -> None:
    """Newton's first step on -sqrt(1 + x^2) from 3 leads to -27, far down on the other side."""
    curve = Density(
        lambda v: -float(np.sqrt(1 + v[0] ** 2)),
        lambda v: -v / np.sqrt(1 + v**2),
        lambda v: np.array([[(1 + v[0] ** 2) ** -1.5]]),
    )
    counted = Counted(curve)
    summit = climb(counted, np.array([3.0]), max_iter=20, tol=1e-14)
    assert summit.trace.converged and counted.values >= 2
    assert summit.v[0] == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(summit.P, curve.P(summit.v), rtol=1e-12)


def hill(v: Array) -> tuple[float, Array]:
    """-sum log cosh(v - (1, 2)) - |v|^2 / 20, with its gradient."""
    away = v - np.array([1.0, 2.0])
    value = -np.sum(np.logaddexp(away, -away)) - 0.05 * float(v @ v)
    return float(value), -np.tanh(away) - 0.1 * v


HILL = Density(
    lambda v: hill(v)[0],
    lambda v: hill(v)[1],
    lambda v: np.diag(1.1 - np.tanh(v - np.array([1.0, 2.0])) ** 2),
)


def test_curvature_is_kept_while_steps_shrink() -> None:
    plain, kept = Counted(HILL), Counted(HILL)
    start = np.array([0.2, 1.4])
    by_newton = climb(plain, start, max_iter=50, tol=1e-12)
    by_slopes = climb(kept, start, max_iter=50, tol=1e-12, slope=hill)
    assert kept.expansions < plain.expansions
    assert by_slopes.trace.converged and by_slopes.value == pytest.approx(by_newton.value)
    np.testing.assert_allclose(by_slopes.v, by_newton.v, atol=1e-10)
    np.testing.assert_allclose(by_slopes.P, by_newton.P, atol=1e-10)


@pytest.mark.parametrize("max_iter", [1, 2, 3])
def test_a_climb_that_runs_out_of_steps_knows_its_curvature(max_iter: int) -> None:
    found = climb(HILL, np.array([0.2, 1.4]), max_iter=max_iter, tol=1e-12, slope=hill)
    assert not found.trace.converged
    np.testing.assert_allclose(found.P, HILL.P(found.v), atol=1e-12)


def test_where_steps_do_not_shrink_the_curvature_is_taken_anew() -> None:
    """From far off Newton's first steps go beyond the top."""
    found = climb(HILL, np.array([-3.0, 8.0]), max_iter=50, tol=1e-12, slope=hill)
    assert found.trace.converged and np.linalg.norm(hill(found.v)[1]) < 1e-6
    assert np.all(np.diff(found.trace.history) >= -1e-12)


def test_a_climb_goes_on_with_the_curvature_it_had() -> None:
    heard: list[Expansion] = []
    told = {"max_iter": 50, "tol": 1e-12, "slope": hill}
    whole = climb(HILL, np.array([0.2, 1.4]), note=lambda here, _: heard.append(here), **told)
    at = next(i for i, here in enumerate(heard) if here.kept)
    past = whole.trace.history[: at + 2]
    rest = climb(HILL, heard[at].v, begun=heard[at], past=past, **told)
    assert rest.trace.history == whole.trace.history
    np.testing.assert_array_equal(rest.v, whole.v)


def test_a_saddle_is_seen_with_curvature_that_was_kept() -> None:
    """Steps along y alone never show what bends along x."""
    start = np.array([0.0, 1.0])

    def slope(v: Array) -> tuple[float, Array]:
        return density.value(v), density.gradient(v)

    density = Density(
        lambda v: 0.02 * v[0] ** 2 * (1 - v[1]) - 0.01 * v[0] ** 4 - 0.5 * v[1] ** 2 - v[1] ** 4,
        lambda v: np.array(
            [
                0.04 * v[0] * (1 - v[1]) - 0.04 * v[0] ** 3,
                -0.02 * v[0] ** 2 - v[1] - 4 * v[1] ** 3,
            ]
        ),
        lambda v: np.array(
            [
                [0.12 * v[0] ** 2 - 0.04 * (1 - v[1]), 0.04 * v[0]],
                [0.04 * v[0], 1 + 12 * v[1] ** 2],
            ]
        ),
    )
    begun = Expansion(start, *slope(start), np.diag([1.0, 13.0]), kept=True)
    found = climb(density, start, max_iter=60, tol=1e-10, slope=slope, begun=begun, curvature=False)
    assert found.trace.converged and abs(found.v[0]) > 1


@pytest.mark.parametrize("bend", [1.0, -1.0])
def test_corrections_explain_the_gradient_and_stay_positive_definite(bend: float) -> None:
    rng = np.random.default_rng(0)
    R = rng.normal(size=(4, 4))
    here = Expansion(np.zeros(4), 0.0, rng.normal(size=4), np.eye(4) + R @ R.T)
    step = rng.normal(size=4)
    gradient = here.gradient - bend * (2 * step + 0.1 * np.sign(step))
    P = corrected(here, step, gradient)
    assert try_cholesky(P) is not None
    if bend > 0:
        np.testing.assert_allclose(P @ step, here.gradient - gradient, atol=1e-10)
    else:  # convex along the step
        np.testing.assert_array_equal(P, here.P)


@pytest.mark.parametrize("bend", [1.0, 1e-3, 1e-5, 1e-6])
def test_saddles_are_left_however_close_the_modes_are(bend: float) -> None:
    summit = climb(two_modes(bend), np.array([0.0, 0.4]), max_iter=50, tol=1e-18)
    assert summit.trace.converged
    assert abs(summit.v[0]) == pytest.approx(np.sqrt(bend), rel=1e-2)
    assert try_cholesky(summit.P) is not None


def test_a_saddle_from_which_no_step_gains_ends_the_climb() -> None:
    flat = Density(
        lambda v: -(float(v @ v) ** 2), lambda v: np.zeros(1), lambda v: -1e-12 * np.eye(1)
    )
    summit = climb(flat, np.zeros(1), max_iter=100, tol=1e-9)
    assert not summit.trace.converged and summit.trace.n_iter == 1
    with pytest.raises(FloatingPointError, match=r"saddle point; do something else"):
        cholesky_at_mode(summit.P, "do something else")


def test_reaching_enough_is_not_convergence() -> None:
    endless = Density(lambda v: v[0], lambda v: np.ones(1), lambda v: np.zeros((1, 1)))
    summit = climb(endless, np.zeros(1), max_iter=100, tol=1e-9, enough=10.0)
    assert summit.value >= 10 and not summit.trace.converged and summit.trace.n_iter < 100


@pytest.mark.parametrize("broken", ["value", "gradient", "P"])
@pytest.mark.parametrize("number", [np.nan, -np.inf])
@pytest.mark.parametrize("at_start", [True, False], ids=["start", "later"])
def test_what_is_not_finite_is_an_error(broken: str, number: float, at_start: bool) -> None:
    def spoil(name: str, found: Array | float, v: Array) -> Array | float:
        reached = at_start or v[0] < 0.5
        return found * 0 + number if name == broken and reached else found

    density = Density(
        lambda v: float(spoil("value", -0.5 * float(v @ v), v)),
        lambda v: np.asarray(spoil("gradient", -v, v)),
        lambda v: np.asarray(spoil("P", np.eye(1), v)),
    )
    if broken == "value" and not at_start:  # the line search stays where there are numbers
        summit = climb(density, np.ones(1), max_iter=5, tol=1e-9)
        assert np.isfinite(summit.value) and not summit.trace.converged
        return
    with pytest.raises(FloatingPointError, match=r"not finite.*standardize=True"):
        climb(density, np.ones(1), max_iter=5, tol=1e-9)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_not_positive_definite(number: float) -> None:
    assert try_cholesky(np.diag([1.0, number])) is None
    assert try_cholesky(np.full((2, 2), number)) is None


def test_warnings_say_why_a_climb_ended() -> None:
    warn_unless_converged(Trace((0.0, 1.0), True), 1, 1e-3)
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter=1 "):
        warn_unless_converged(Trace((0.0, 1.0), False), 1, 1e-3)
    with pytest.warns(ConvergenceWarning, match=r"ended after 1 steps.*no step gained"):
        warn_unless_converged(Trace((0.0, 1.0), False), 50, 1e-3)


def test_a_whole_step_that_failed_is_not_tried_again() -> None:
    asked: list[tuple[str, float]] = []

    def hill(v: np.ndarray) -> tuple[float, np.ndarray]:
        return float(-np.logaddexp(v, -v).sum() - 0.05 * v @ v), -np.tanh(v) - 0.1 * v

    class Watched:
        def value(self, v: np.ndarray) -> float:
            asked.append(("value", float(v[0])))
            return hill(v)[0]

        def expand(self, v: np.ndarray) -> Expansion:
            asked.append(("expand", float(v[0])))
            return Expansion(v, *hill(v), np.diag(1.1 - np.tanh(v) ** 2))

    def slope(v: np.ndarray) -> tuple[float, np.ndarray]:
        asked.append(("slope", float(v[0])))
        return hill(v)

    found = climb(Watched(), np.array([-4.0]), max_iter=50, tol=1e-12, slope=slope)
    assert found.trace.converged and abs(found.v[0]) < 1e-6
    assert asked[1][0] == "slope" and asked[2] == ("value", pytest.approx((asked[1][1] - 4) / 2))
    whole = [v for kind, v in asked if kind == "slope"]
    assert not {v for kind, v in asked if kind == "value"} & set(whole)
