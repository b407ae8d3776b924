"""Learning hyperparameters: the minimiser, the objective's gradient, and what is learned."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import bagwise as bw
from bagwise.core import features
from bagwise.core.inference.hyper import EvidenceObjective, Hyperparameters, learn, minimise
from bagwise.core.inference.passes import TrainingData
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.linalg import NotPositiveDefiniteError
from bagwise.core.links import Logistic, Probit
from bagwise.kernels import RBF, Kernel, Linear
from brute_force import central_difference

LIKELIHOODS = {"logistic": BagLikelihood(Logistic()), "probit": BagLikelihood(Probit())}
each_link = pytest.mark.parametrize("link", list(LIKELIHOODS))


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    a, b = x
    value = (1 - a) ** 2 + 100 * (b - a**2) ** 2
    return value, np.array([-2 * (1 - a) - 400 * a * (b - a**2), 200 * (b - a**2)])


def test_minimise_a_curved_valley() -> None:
    x = minimise(rosenbrock, np.array([-1.2, 1.0]), max_iter=200, tol=1e-14)
    np.testing.assert_allclose(x, [1, 1], atol=1e-4)


def test_minimise_an_ill_conditioned_quadratic() -> None:
    scales = np.array([1.0, 30.0, 1000.0])
    found = minimise(
        lambda x: (float(0.5 * scales @ (x - 2) ** 2), scales * (x - 2)),
        np.zeros(3),
        max_iter=100,
        tol=1e-14,
    )
    np.testing.assert_allclose(found, 2, atol=1e-5)


def test_steps_are_limited() -> None:
    seen: list[np.ndarray] = []

    def steep(x: np.ndarray) -> tuple[float, np.ndarray]:
        seen.append(x.copy())
        return float(1e6 * x.sum()), np.full(2, 1e6)

    minimise(steep, np.zeros(2), max_iter=3, max_step=0.5)
    assert np.abs(np.diff(seen, axis=0)).max() <= 0.5 + 1e-12


@pytest.mark.parametrize("error", [FloatingPointError, NotPositiveDefiniteError])
def test_settings_that_break_down_are_rejected(error: type[Exception]) -> None:
    def cliff(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] > 0.9:
            raise error("beyond the cliff")
        return float((x[0] - 0.8) ** 2), 2 * (x - 0.8)

    x = minimise(cliff, np.array([0.0]), max_iter=50, tol=1e-10, max_step=10.0)
    assert x[0] == pytest.approx(0.8, abs=1e-3)


def test_other_errors_are_not_swallowed() -> None:
    def broken(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] != 0:
            raise ZeroDivisionError
        return 1.0, np.ones(1)

    with pytest.raises(ZeroDivisionError):
        minimise(broken, np.zeros(1), max_iter=5)


def test_a_minimum_stays() -> None:
    x = np.array([0.0, 0.0])
    np.testing.assert_array_equal(minimise(lambda x: (float(x @ x), 2 * x), x, max_iter=10), x)


def make_objective(
    link: str, kernel: Kernel, seed: int = 0, *, anchor: Kernel | None = None, **flags: bool
) -> EvidenceObjective:
    X, cluster = make_blobs(60, 2, centers=3, random_state=seed)
    T = np.maximum.reduceat(cluster == 2, np.arange(0, 60, 4))
    data = TrainingData(X, np.arange(0, 61, 4), T)
    flags = {"learn_kernel": True, "learn_mean": True} | flags
    start, prior = Hyperparameters(kernel, -1.0), Hyperparameters(anchor or kernel, -1.0)
    return EvidenceObjective(data, LIKELIHOODS[link], X[::3], 1e-6, start, prior, **flags)


@each_link
@pytest.mark.parametrize("kernel", [RBF(2.0, 3.0), RBF(2.0, (3.0, 4.0)) + Linear(0.1)], ids=repr)
def test_objective_gradient(link: str, kernel: Kernel) -> None:
    objective = make_objective(link, kernel)
    x = objective.centre + 0.1
    _, gradient = objective(x)
    expected = central_difference(lambda t: objective(t)[0], x, step=1e-4)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("flags", "size"),
    [
        ({}, 3),
        ({"learn_mean": False}, 2),
        ({"learn_kernel": False}, 1),
        ({"learn_kernel": False, "learn_mean": False}, 0),
    ],
)
def test_pack_and_unpack(flags: dict[str, bool], size: int) -> None:
    objective = make_objective("probit", RBF(2.0, 3.0), **flags)
    x = objective.pack(objective.start)
    assert x.size == objective.centre.size == size
    back = objective.unpack(x)
    assert back.c0 == objective.start.c0
    np.testing.assert_allclose(back.kernel.theta, objective.start.kernel.theta)
    learned = learn(objective)
    assert (learned.c0 == -1.0) == (not objective.learn_mean)
    assert (learned.kernel == RBF(2.0, 3.0)) == (not objective.learn_kernel)


@each_link
@pytest.mark.parametrize("seed", range(3))
def test_learning_raises_the_evidence(link: str, seed: int) -> None:
    objective = make_objective(link, RBF(0.5, 10.0), seed)
    start = objective(objective.centre)[0]
    learned = objective.pack(learn(objective))
    end = objective(learned)[0]
    assert end < start
    optimum = minimise(objective, objective.centre, max_iter=200, tol=1e-9)
    assert end < objective(optimum)[0] + 0.2, "learning stops well before the optimum"
    # The prior is zero at the start, so the evidence itself rises too.
    deviation = (learned - objective.centre) / objective.scale
    assert -end + 0.5 * deviation @ deviation > -start


@each_link
def test_learning_takes_the_better_of_start_and_anchor(link: str) -> None:
    good, bad = RBF(4.0, 3.0), RBF(4.0, 0.05)
    for start, anchor in ((good, bad), (bad, good)):
        objective = make_objective(link, start, anchor=anchor)
        ends = [objective.pack(objective.start), objective.centre]
        best = min(objective(x)[0] for x in ends)
        assert objective(objective.pack(learn(objective)))[0] <= best


def test_a_negative_residual_is_a_rejected_step(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = make_objective("probit", RBF(0.5, 10.0))
    start, free = objective.start.kernel.theta, learn(objective).kernel.theta
    whiten = features.Whitener.__call__

    def beyond(theta: np.ndarray) -> bool:
        return bool((theta - start) @ (free - start) > 0.5 * (free - start) @ (free - start))

    def worse(self: features.Whitener, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if beyond(self.kernel.theta):
            features.residual_variance(np.ones(1), np.full((1, 1), 2.0))
        return whiten(self, X)

    monkeypatch.setattr(features.Whitener, "__call__", worse)
    learned = learn(make_objective("probit", RBF(0.5, 10.0))).kernel.theta
    assert np.any(learned != start) and not beyond(learned)


def test_rejected_settings_are_no_warm_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = make_objective("probit", RBF(0.5, 10.0))
    evaluate, begun, found = EvidenceObjective.__call__, [], []

    def spy(self: EvidenceObjective, x: np.ndarray) -> tuple[float, np.ndarray]:
        begun.append(self.v)
        value, gradient = evaluate(self, x)
        found.append(self._tried)
        second = len(found) == 2  # the first step that is tried
        return (np.inf if second else value), gradient

    monkeypatch.setattr(EvidenceObjective, "__call__", spy)
    learn(objective)
    assert len(found) > 3
    assert begun[0] is None  # where the model starts
    assert begun[1] is begun[2] is found[0]  # the mode of the start, not that of the rejected step
    assert begun[3] is found[2]


@pytest.mark.parametrize("cls", [bw.ProbitVGPMIL, bw.VGPMIL])
def test_lengthscale_stays_reasonable_on_musk1(cls: type) -> None:
    bags = bw.datasets.load_musk1()[np.arange(0, 90, 3).tolist() + np.arange(1, 90, 3).tolist()]
    assert len(bags) == 60
    fixed = cls(learn_hyperparameters=False, random_state=0, max_iter=100, tol=1e-4).fit(bags)
    learned = cls(random_state=0, max_iter=100, tol=1e-4).fit(bags)
    ratio = learned.kernel_.lengthscale / fixed.kernel_.lengthscale
    assert np.isfinite(ratio) and 1 / 3 < ratio < 3
    assert np.isfinite(learned.kernel_.variance) and np.isfinite(learned.mean_)
