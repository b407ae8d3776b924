"""Steps of a trust region: best within their radius, away from saddles, up to the top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from bagwise.core.inference.newton import Expansion
from bagwise.core.inference.trust_region import START_RADIUS, Parabola, trusted_step

Array = np.ndarray
N = 6


@dataclass
class Curve:
    """A log density of functions, which counts the values it is asked for."""

    log_density: Callable[[Array], float]
    gradient: Callable[[Array], Array]
    P: Callable[[Array], Array]
    values: int = 0

    def value(self, v: Array) -> float:
        self.values += 1
        return float(self.log_density(v))

    def expand(self, v: Array) -> Expansion:
        return Expansion(v, float(self.log_density(v)), self.gradient(v), self.P(v))


def quartic() -> Curve:
    """x^2 / 2 - x^4 / 4 - y^2 / 2: a saddle at 0, modes at x = +-1."""
    return Curve(
        lambda v: 0.5 * v[0] ** 2 - 0.25 * v[0] ** 4 - 0.5 * v[1] ** 2,
        lambda v: np.array([v[0] - v[0] ** 3, -v[1]]),
        lambda v: np.diag([3 * v[0] ** 2 - 1, 1.0]),
    )


def make_parabola(kind: str) -> Parabola:
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.normal(size=(N, N)))[0]
    eigenvalues = np.linspace(0.5, 3.0, N) if kind == "top" else np.linspace(-1.0, 3.0, N)
    slopes = rng.normal(size=N)
    if kind == "level":
        slopes[0] = 0.0  # along the direction in which it is convex
    P = (vectors * eigenvalues) @ vectors.T
    return Parabola(Expansion(np.zeros(N), 0.0, vectors @ slopes, 0.5 * (P + P.T)))


@pytest.mark.parametrize("kind", ["top", "no top", "level"])
@pytest.mark.parametrize("radius", [1e-3, 0.3, 2.0, 50.0])
def test_no_step_within_the_radius_gains_more(kind: str, radius: float) -> None:
    parabola = make_parabola(kind)
    step = parabola.best_within(radius)
    assert np.linalg.norm(step) <= radius * (1 + 1e-9)
    others = np.random.default_rng(1).normal(size=(2000, N))
    others *= radius / np.linalg.norm(others, axis=1, keepdims=True)
    near = step + 0.01 * others
    near *= np.minimum(1, radius / np.linalg.norm(near, axis=1, keepdims=True))
    best = max(parabola.gain(s) for s in [*others, *near])
    assert parabola.gain(step) >= best - 1e-5 * abs(best)


def test_a_saddle_is_left_and_a_mode_reached() -> None:
    curve, radius = quartic(), START_RADIUS
    here = curve.expand(np.array([0.0, 0.4]))
    while np.linalg.norm(here.gradient) > 1e-9 or here.v[0] == 0:
        found, radius = trusted_step(curve, here, radius)
        assert found is not None and found[1] >= here.value
        here = curve.expand(found[0])
    np.testing.assert_allclose(np.abs(here.v), [1.0, 0.0], atol=1e-8)


def test_a_radius_grows_as_long_as_steps_gain() -> None:
    """-sqrt(1 + x^2) is a straight line far from 0, where its curvature says little."""
    slope = Curve(
        lambda v: -float(np.sqrt(1 + v[0] ** 2)),
        lambda v: -v / np.sqrt(1 + v**2),
        lambda v: np.array([[(1 + v[0] ** 2) ** -1.5]]),
    )
    found, radius = trusted_step(slope, slope.expand(np.array([100.0])), 1.0)
    assert found is not None and abs(found[0][0]) < 40 and radius > 60
    assert slope.values < 12
    found, radius = trusted_step(slope, slope.expand(np.array([3.0])), 100.0)
    assert found is not None and abs(found[0][0]) < 3 and radius < 10  # Newton's step is 30


def test_where_no_step_gains_there_is_none() -> None:
    top = Curve(lambda v: -float(np.abs(v[0])), np.ones_like, lambda v: np.eye(len(v)))
    assert trusted_step(top, top.expand(np.zeros(1)), 1.0) == (None, START_RADIUS)


def test_values_that_are_no_numbers_shorten_a_step() -> None:
    cliff = Curve(lambda v: v[0] if v[0] < 0.5 else np.nan, np.ones_like, lambda v: np.eye(len(v)))
    found, radius = trusted_step(cliff, cliff.expand(np.zeros(1)), 1.0)
    assert found is not None and 0 < found[1] < 0.5 and radius < 1


@pytest.mark.parametrize("slope", [1e-6, 1e-9, 3e-11, 1e-13, 0.0])
def test_nearly_symmetric_saddles_are_left_by_a_step_of_the_radius(slope: float) -> None:
    here = Expansion(np.zeros(3), 0.0, np.array([slope, 0.1, 0.2]), np.diag([-1.0, 1.0, 5.0]))
    step = Parabola(here).best_within(1.0)
    assert np.linalg.norm(step) == pytest.approx(1.0, rel=1e-5)
    assert abs(step[0]) > 0.9
