"""Newton's method for the logistic bound: exact derivatives, the optimum of plain sweeps."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from bagwise.core.features import whitener
from bagwise.core.inference.cavi import CoordinateAscent
from bagwise.core.inference.loop import Trace
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.newton_logistic import GivenCovariance, NewtonRefinement
from bagwise.core.inference.newton_probit import LogJoint
from bagwise.core.inference.passes import Sweeper, TrainingData
from bagwise.core.inference.solvers import FIRST_SWEEPS, optimise
from bagwise.core.inference.stats import Chunk, Q, latent_variance, standard_q
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Logistic
from bagwise.datasets import make_digit_bags
from bagwise.densities import Gamma, HyperbolicSecant
from bagwise.kernels import RBF, Linear
from bagwise.models.vgpmil import LogisticSites
from brute_force import central_difference, random_known

SIZES = [4, 6, 1, 9, 5, 7, 2, 8] * 3
LABELS = [True, False] * 12
START = -2.0


def make_sites(H: float = np.inf) -> LogisticSites:
    return LogisticSites(BagLikelihood(Logistic(), H=H))


def make_sweeper(*, supervised: bool = False, chunk_size: int = 40) -> Sweeper:
    rng = np.random.default_rng(0)
    known = random_known(SIZES, LABELS, rng) if supervised else None
    X = rng.normal(size=(sum(SIZES), 2))
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    X[offsets[:-1][LABELS], 0] += 2
    data = TrainingData(X, offsets, np.array(LABELS), known, chunk_size)
    return Sweeper(data, whitener(RBF(4.0, 1.0), X[::9], 1e-6))


@pytest.mark.parametrize("H", [np.inf, 100.0])
@pytest.mark.parametrize("supervised", [False, True], ids=["weak", "mixed"])
def test_derivatives_in_m(H: float, supervised: bool) -> None:
    sweeper = make_sweeper(supervised=supervised)
    rng = np.random.default_rng(1)
    M = len(sweeper.whitener.Z)
    R = rng.normal(size=(M, M))
    target = LogJoint(GivenCovariance(make_sites(H), R @ R.T / M), sweeper, START)
    m = rng.normal(size=M)
    here = target.expand(m)
    gradient, P = here.gradient, here.P
    assert here.value == pytest.approx(target.value(m), rel=1e-12)
    value, alone = target.slope(m)
    assert value == pytest.approx(here.value, rel=1e-12)
    np.testing.assert_allclose(alone, gradient, atol=1e-12)
    np.testing.assert_allclose(gradient, central_difference(target.value, m, 1e-4), atol=1e-6)
    bend = -central_difference(lambda x: target.expand(x).gradient, m, step=1e-4)
    np.testing.assert_allclose(P, bend, atol=1e-6)


@pytest.mark.parametrize("supervised", [False, True], ids=["weak", "mixed"])
def test_the_optimum_of_plain_sweeps_by_a_rising_bound(supervised: bool) -> None:
    sweeper = make_sweeper(supervised=supervised)
    start = standard_q(len(sweeper.whitener.Z), START)
    plain = CoordinateAscent(make_sites(), sweeper, learn_mean=False, accelerate=False)
    slow, by_sweeps = plain.run(start, max_iter=5000, tol=1e-12)
    first, begun = plain.run(start, max_iter=4, tol=0, warn=False)
    refinement = NewtonRefinement(make_sites(), sweeper, begun.history)
    fast, refined = refinement.run(first, max_iter=60, tol=1e-10)
    assert refined.converged and by_sweeps.converged
    assert refined.n_iter < 30 < by_sweeps.n_iter
    assert refined.history[-1] == pytest.approx(by_sweeps.history[-1], rel=1e-8)
    np.testing.assert_allclose(fast.m, slow.m, atol=1e-4)
    np.testing.assert_allclose(fast.S, slow.S, atol=1e-5)
    assert np.all(np.diff(refined.history) > -1e-9)


def refined(sweeper: Sweeper, **told: Any) -> tuple[Q, Trace, list[State]]:
    """The optimum from N(0, I), and the states that a monitor hears of."""
    heard: list[State] = []

    class Listener(Monitor):
        def step(self, step: int, objective: float, state: Callable[[], State]) -> None:
            heard.append(state())

    q = standard_q(len(sweeper.whitener.Z), START)
    refinement = NewtonRefinement(make_sites(), sweeper, (-1e3,))
    return *refinement.run(q, max_iter=60, tol=1e-9, monitor=Listener(), **told), heard


def test_curvature_is_kept_where_data_are_many() -> None:
    sweeper, calls = make_sweeper(), Counter[str]()
    total = sweeper.total

    def counting(step: Any) -> Any:
        calls[step.func.__name__] += 1
        return total(step)

    sweeper.total = counting  # type: ignore[method-assign]
    plain, trace, _ = refined(sweeper)
    few = calls["derivatives"]
    assert trace.converged and calls["slope"] == 0
    sweeper.large = True
    calls.clear()
    found, trace, heard = refined(sweeper)
    assert trace.converged and calls["derivatives"] < few and calls["slope"] > 0
    np.testing.assert_allclose(found.m, plain.m, atol=1e-5)
    np.testing.assert_allclose(found.S, plain.S, atol=1e-6)
    at = next(i for i, state in enumerate(heard) if "P" in state)
    again, same, _ = refined(sweeper, state=heard[at])
    np.testing.assert_allclose(same.history, trace.history, rtol=1e-12)
    np.testing.assert_allclose(again.m, found.m, rtol=1e-9, atol=1e-12)


def test_a_saddle_is_no_end_where_curvature_was_kept() -> None:
    """Which of two instances is positive stays open as long as no step tells them apart."""
    data = TrainingData(
        np.array([[1.0, 0.5], [1.0, -0.5], [1.0, 0.0]]),
        np.array([0, 2, 3]),
        np.array([True, False]),
    )
    sweeper = Sweeper(data, whitener(Linear(16.0), np.eye(2), 1e-9))
    start = Q(np.array([3.0, 0.0]), np.eye(2), -1.0, 0.0)
    bounds = []
    for sweeper.large in (False, True):
        q, trace = NewtonRefinement(make_sites(), sweeper, ()).run(start, max_iter=200, tol=1e-8)
        assert trace.converged
        P = LogJoint(GivenCovariance(make_sites(), q.S), sweeper, -1.0).expand(q.m).P
        assert np.linalg.eigvalsh(P)[0] > 0.1
        bounds.append(trace.history[-1])
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-7)


def test_few_rows_of_many_tell_the_curvature() -> None:
    """Where almost all instances are surely negative: the rows left out show in no other sum."""
    rng = np.random.default_rng(0)
    n_bags, size = 400, 50
    X = rng.normal(size=(n_bags * size, 2))
    X[::size][: n_bags // 2, 0] += 4
    offsets = np.arange(n_bags + 1) * size
    data = TrainingData(X, offsets, np.arange(n_bags) < n_bags // 2, None, 3000)
    sweeper = Sweeper(data, whitener(RBF(4.0, 1.0), X[::999], 1e-6))
    S, m = 0.1 * np.eye(len(sweeper.whitener.Z)), np.full(len(sweeper.whitener.Z), -1.5)
    exact, some = (
        LogJoint(GivenCovariance(make_sites(), S, of_many), sweeper, -9.0).expand(m)
        for of_many in (False, True)
    )
    assert some.value == exact.value
    np.testing.assert_array_equal(some.gradient, exact.gradient)
    assert 0 < np.linalg.norm(some.P - exact.P, 2) < 0.2  # that of the prior is 1


def test_variances_by_a_triangle() -> None:
    sweeper = make_sweeper()
    M = len(sweeper.whitener.Z)
    R = np.random.default_rng(0).normal(size=(M, M))
    S = R @ R.T
    chunk = sweeper.chunks[0]
    found = GivenCovariance(make_sites(), S)._variance(chunk)
    np.testing.assert_allclose(found, latent_variance(chunk, S), rtol=1e-10)


def test_chunks_keep_variances_for_copies_that_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a worker, which keeps its chunks, each pass sends what is asked anew."""
    sweeper, computed, compute = make_sweeper(), [], GivenCovariance._variance

    def counted(self: GivenCovariance, chunk: Chunk) -> np.ndarray:
        computed.append(chunk.start)
        return compute(self, chunk)

    monkeypatch.setattr(GivenCovariance, "_variance", counted)
    M = len(sweeper.whitener.Z)
    several = [GivenCovariance(make_sites(), s * np.eye(M)) for s in (1.0, 0.5, 2.0, 0.1, 0.3)]
    for _ in range(3):  # fits that go on side by side
        for given in several:
            copy = pickle.loads(pickle.dumps(given))
            found = sweeper.total(partial(copy.log_prob, m=np.ones(M), c0=-1.0))
            alone = GivenCovariance(make_sites(), given.S)
            expected = sum(alone.log_prob(chunk, np.ones(M), -1.0) for chunk in fresh())
            assert found == pytest.approx(expected, rel=1e-12)
    assert len(computed) == (1 + 3) * 5 * len(sweeper.chunks)  # 3 times for those made anew


def fresh() -> list[Chunk]:
    return list(make_sweeper().chunks)


def test_chunks_do_not_change_it() -> None:
    def fit(chunk_size: int) -> np.ndarray:
        sweeper = make_sweeper(chunk_size=chunk_size)
        q = standard_q(len(sweeper.whitener.Z), START)
        refinement = NewtonRefinement(make_sites(), sweeper, (-1e3,))
        return refinement.run(q, max_iter=30, tol=1e-9)[0].m

    np.testing.assert_allclose(fit(7), fit(10_000), atol=1e-9)


def test_digits_need_few_refinements() -> None:
    bags, _ = make_digit_bags(60, random_state=0)
    y = np.asarray(bags.y, dtype=bool)
    data = TrainingData(bags.X, bags.offsets, y, None, None)
    sweeper = Sweeper(data, whitener(RBF(4.0, 20.0), bags.X[::10], 1e-6))
    q, trace = optimise(
        Monitor(),
        "vi",
        make_sites(),
        sweeper,
        standard_q(len(sweeper.whitener.Z), START),
        learn_mean=False,
        max_iter=100,
        tol=1e-8,
        verbose=0,
    )
    assert trace.converged and FIRST_SWEEPS < trace.n_iter <= FIRST_SWEEPS + 15
    again = CoordinateAscent(make_sites(), sweeper, learn_mean=False)
    _, sweep = again.run(q, max_iter=1, tol=0, warn=False)  # a fixed point of plain sweeps
    assert sweep.history[-1] == pytest.approx(trace.history[-1], rel=1e-7)


def test_densities_without_second_derivatives_are_swept() -> None:
    likelihood = BagLikelihood(Logistic())
    assert LogisticSites(likelihood, HyperbolicSecant()).solver == "sweeps, then newton"
    assert LogisticSites(likelihood, Gamma()).solver == "sweeps"


def test_slope_of_theta() -> None:
    psi, xi = HyperbolicSecant(), np.array([1e-9, 1e-3, 0.05, 0.0999, 0.1001, 0.5, 3.0, 40.0])
    h = 1e-5 * np.maximum(xi, 0.1)
    slope = (psi.theta(xi + h) - psi.theta(np.abs(xi - h))) / (2 * h)
    np.testing.assert_allclose(psi.theta_slope(xi) * xi, slope, rtol=1e-6, atol=5e-9)
