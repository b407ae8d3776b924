"""The normaliser of psi models against quadrature, and what its standard error is worth."""

import numpy as np
import pytest
from scipy import integrate, stats

import bagwise as bw
from bagwise.densities import Gamma, HyperbolicSecant, Laplace, log_excess
from bagwise.execution import Sweeper, TrainingData
from bagwise.features import whitener
from bagwise.infer.psi_normaliser import LogNormaliser, log_normaliser


def sweeper(n: int, variance: float, lengthscale: float = 1.0) -> Sweeper:
    """n instances on a line, every third an inducing point."""
    X = np.linspace(0, 3, n)[:, None]
    data = TrainingData(X, np.array([0, n // 2, n]), np.array([True, False]))
    return Sweeper(data, whitener(bw.kernels.RBF(variance, lengthscale), X[::3], 1e-6))


@pytest.mark.parametrize("c0", [0.0, -1.0])
@pytest.mark.parametrize("psi", [Gamma(1.0, 4.0), Laplace(1.5)])
def test_one_instance_by_quadrature(psi: Gamma, c0: float) -> None:
    X = np.zeros((1, 1))
    data = TrainingData(X, np.array([0, 1]), np.array([True]))
    one = Sweeper(data, whitener(bw.kernels.RBF(0.8, 1.0), np.array([[1.0]]), 1e-6))
    found = log_normaliser(psi, one, c0, seed=0)

    def integrand(f: float) -> float:
        return float(np.exp(log_excess(psi, f)) * stats.norm.pdf(f, c0, np.sqrt(0.8)))

    exact = np.log(integrate.quad(integrand, -15, 15, points=[0.0, c0])[0])
    # Nine nodes over the residual meet Laplace's kink with an error of their own.
    assert found.value == pytest.approx(exact, abs=5 * found.standard_error + 0.01)


def test_the_logistic_likelihood_has_none() -> None:
    found = log_normaliser(HyperbolicSecant(), sweeper(30, 5.0), -1.0, seed=0)
    assert abs(found.value) < 1e-12 and found.standard_error < 1e-12
    assert found.problem(0.1) is None


def test_the_standard_error_is_honest() -> None:
    """Estimates of other seeds lie within a few standard errors of each other."""
    data = sweeper(60, 0.5)
    found = [log_normaliser(Gamma(1.0, 4.0), data, 0.0, seed) for seed in range(6)]
    values, errors = (np.array([getattr(e, k) for e in found]) for k in ("value", "standard_error"))
    assert np.all(errors < 0.1)
    assert np.ptp(values) < 10 * errors.mean()
    assert all(e.problem(0.2) is None for e in found)


def test_large_variances_are_refused() -> None:
    """exp(|f| / 2) of many instances has no usable mean: a few draws carry all of it."""
    found = log_normaliser(Gamma(1.0, 4.0), sweeper(300, 10.0), 0.0, seed=0)
    assert found.effective_draws < 20
    reason = found.problem(0.2)
    assert reason is not None and "rests on" in reason


def test_a_large_error_is_refused() -> None:
    reason = LogNormaliser(1.0, 0.5, 400.0).problem(0.2)
    assert reason is not None and "0.5 nats" in reason
