"""Laplace: the mode, the evidence against quadrature, and the evidence's gradients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from bagwise.core.features import whitener
from bagwise.core.inference.laplace import Laplace, Mode
from bagwise.core.inference.passes import Sweeper, TrainingData
from bagwise.core.inference.stats import Chunk
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Logistic, Probit
from bagwise.kernels import RBF, Kernel, Linear, Matern
from brute_force import (
    bag_slices,
    central_difference,
    gauss_hermite_grid,
    joint_log_probs,
    random_known,
)

JITTER = 1e-6
LIKELIHOODS = {
    "logistic": BagLikelihood(Logistic()),
    "logistic, H=100": BagLikelihood(Logistic(), 100.0),
    "probit": BagLikelihood(Probit()),
}
KERNELS = {
    "iso": RBF(2.0, 1.3),
    "ard": RBF(1.5, (1.0, 2.0, 0.7)),
    "matern": Matern(1.5, 2.0, 1.5),
    "sum": RBF(1.0, 1.2) + Linear(0.4),
}
each_likelihood = pytest.mark.parametrize("name", list(LIKELIHOODS))
SIZES = [3, 1, 4, 2, 5, 2, 1, 3]
LABELS = [True, False] * 4


def make_data(seed: int = 0, supervised: bool = False, chunk_size: int = 8) -> TrainingData:
    rng = np.random.default_rng(seed)
    known = random_known(SIZES, LABELS, rng) if supervised else None
    X = rng.normal(size=(sum(SIZES), 3))
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    return TrainingData(X, offsets, np.array(LABELS), known, chunk_size)


def make_laplace(name: str, kernel: Kernel, Z: np.ndarray, data: TrainingData) -> Laplace:
    return Laplace(LIKELIHOODS[name], Sweeper(data, whitener(kernel, Z, JITTER)))


def find_mode(laplace: Laplace, c0: float) -> Mode:
    M = len(laplace.sweeper.whitener.Z)
    return laplace.mode(np.zeros(M), c0, tol=1e-10)


def log_joint(laplace: Laplace, v: np.ndarray, c0: float) -> float:
    """log p(T | v) - |v|^2 / 2 from the likelihood alone."""
    total = -0.5 * float(v @ v)
    for chunk in laplace.sweeper.chunks:
        z = scaled_latent(laplace, chunk, v, c0)
        total += float(laplace.likelihood.log_prob(z, chunk.targets).sum())
    return total


def log_joint_gradient(laplace: Laplace, v: np.ndarray, c0: float) -> np.ndarray:
    total = -v
    for chunk in laplace.sweeper.chunks:
        A, b = laplace.scaled(chunk)
        total = total + A.T @ laplace.likelihood.gradient(A @ v + c0 * b, chunk.targets)
    return total


def scaled_latent(laplace: Laplace, chunk: Chunk, v: np.ndarray, c0: float) -> np.ndarray:
    """(c0 + a_n'v) / sqrt(1 + w kt_n)."""
    w = 1.0 if isinstance(laplace.likelihood.link, Probit) else np.pi / 8
    return (c0 + v @ chunk.A.T) / np.sqrt(1 + w * chunk.kt)


@each_likelihood
@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("supervised", [False, True], ids=["weak", "mixed"])
def test_evidence_gradients_match_finite_differences(
    name: str, kernel: str, supervised: bool
) -> None:
    data, k, c0 = make_data(1, supervised), KERNELS[kernel], -0.8
    Z = data.X[::5] + 0.1

    laplace = make_laplace(name, k, Z, data)
    mode = find_mode(laplace, c0)

    def evidence(x: np.ndarray) -> float:
        moved = make_laplace(name, k.with_theta(x[:-1]), Z, data)
        return moved.mode(mode.v, float(x[-1]), tol=1e-10).evidence

    features, c0_bar = laplace.evidence_gradient(mode, c0)
    assert laplace.mean_gradient(mode, c0) == pytest.approx(c0_bar, rel=1e-12)
    found = np.append(laplace.sweeper.whitener.theta_gradient(features, JITTER), c0_bar)
    expected = central_difference(evidence, np.append(k.theta, c0), step=5e-4)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@each_likelihood
@pytest.mark.parametrize("seed", range(3))
def test_the_mode_is_a_stationary_maximum(name: str, seed: int) -> None:
    data = make_data(seed)
    laplace = make_laplace(name, KERNELS["iso"], data.X[::4], data)
    mode = find_mode(laplace, -1.0)
    assert mode.trace.converged
    slope = central_difference(lambda v: log_joint(laplace, v, -1.0), mode.v)
    np.testing.assert_allclose(slope, 0, atol=1e-6)
    assert mode.value == pytest.approx(log_joint(laplace, mode.v, -1.0), rel=1e-12)
    around = mode.v + 0.1 * np.random.default_rng(0).normal(size=(10, len(mode.v)))
    assert max(log_joint(laplace, v, -1.0) for v in around) < mode.value


@each_likelihood
def test_precision_is_the_hessian_of_the_log_joint(name: str) -> None:
    data = make_data(2)
    laplace = make_laplace(name, KERNELS["iso"], data.X[::6], data)
    mode = find_mode(laplace, -1.0)
    P = -central_difference(lambda v: log_joint_gradient(laplace, v, -1.0), mode.v)
    np.testing.assert_allclose(np.linalg.inv(mode.P_inv), P, atol=1e-6)
    assert -2 * mode.log_volume == pytest.approx(np.linalg.slogdet(P)[1], abs=1e-6)


@each_likelihood
def test_newton_never_goes_down_and_ends_at_the_evidence(name: str) -> None:
    data = make_data(3)
    mode = find_mode(make_laplace(name, KERNELS["iso"], data.X[::4], data), -1.0)
    assert np.all(np.diff(mode.trace.history) >= -1e-12)
    assert mode.evidence_trace().history[-1] == pytest.approx(mode.evidence, rel=1e-14)


def quadrature_evidence(laplace: Laplace, name: str, c0: float) -> float:
    """log of the integral of p(T | v) over v ~ N(0, I), labels enumerated, at most 2-D."""
    chunk = laplace.sweeper.chunks[0]
    v, weights = gauss_hermite_grid(24, chunk.A.shape[1])
    z = scaled_latent(laplace, chunk, v, c0)
    link, H = name.split(",")[0], LIKELIHOODS[name].H
    logs = np.zeros(len(v))
    for rows, T in bag_slices(chunk.targets):
        logs += [special.logsumexp(joint_log_probs(link, x[rows], T, H, None)[1]) for x in z]
    return float(special.logsumexp(logs, b=weights))


@each_likelihood
@pytest.mark.parametrize("M", [1, 2])
def test_evidence_is_near_quadrature(name: str, M: int) -> None:
    data = make_data(4, chunk_size=1000)
    laplace = make_laplace(name, RBF(1.0, 1.5), data.X[:M] + 0.2, data)
    found = find_mode(laplace, -0.7).evidence
    assert found == pytest.approx(quadrature_evidence(laplace, name, -0.7), rel=0.03)


@pytest.mark.parametrize("name", ["logistic", "probit"])
def test_newton_leaves_a_saddle(name: str) -> None:
    # Either of two opposite instances may be the positive one: v = 0 is stationary by symmetry
    # and a minimum along v; the two modes are at +-v.
    data = TrainingData(np.array([[3.0], [-3.0]]), np.array([0, 2]), np.array([True]))
    laplace = make_laplace(name, Linear(4.0), np.ones((1, 1)), data)
    left, middle, right = (log_joint(laplace, np.array([t]), -4.0) for t in (-0.01, 0.0, 0.01))
    assert left == pytest.approx(right, rel=1e-12) and left > middle
    mode = laplace.mode(np.zeros(1), -4.0)
    assert mode.trace.converged
    assert abs(mode.v[0]) > 0.1
    assert mode.value > middle + 0.1
    assert mode.P_inv[0, 0] > 0


def test_a_saddle_without_iterations_left_is_named() -> None:
    data = TrainingData(np.array([[3.0], [-3.0]]), np.array([0, 2]), np.array([True]))
    laplace = make_laplace("probit", Linear(4.0), np.ones((1, 1)), data)
    with pytest.raises(FloatingPointError, match=r"saddle.*raise max_iter"):
        laplace.mode(np.zeros(1), -4.0, max_iter=0)


def test_mode_becomes_q() -> None:
    data = make_data(0)
    mode = find_mode(make_laplace("probit", KERNELS["iso"], data.X[:5], data), -1.0)
    q = mode.as_q(-1.0)
    np.testing.assert_array_equal(q.m, mode.v)
    assert q.c0 == -1.0
    assert q.log_det_S == pytest.approx(np.linalg.slogdet(q.S)[1], abs=1e-9)
