"""The normaliser of psi models against quadrature, and what its standard error is worth."""

import numpy as np
import pytest
from scipy import integrate, stats

import bagwise as bw
from bagwise.core.features import whitener
from bagwise.core.inference.psi_normaliser import LogNormaliser, log_normaliser
from bagwise.densities import Gamma, HyperbolicSecant, Laplace, PolyaGamma, log_excess


def features(n: int, variance: float, lengthscale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """n instances on a line, every third an inducing point."""
    X = np.linspace(0, 3, n)[:, None]
    return whitener(bw.kernels.RBF(variance, lengthscale), X[::3], 1e-6)(X)


@pytest.mark.parametrize("c0", [0.0, -1.0])
@pytest.mark.parametrize("psi", [Gamma(1.0, 4.0), Laplace(1.5)])
def test_one_instance_by_quadrature(psi: Gamma, c0: float) -> None:
    found = log_normaliser(psi, np.array([[0.5]]), np.array([0.55]), c0, seed=0)

    def integrand(f: float) -> float:
        return float(np.exp(log_excess(psi, f)) * stats.norm.pdf(f, c0, np.sqrt(0.8)))

    exact = np.log(integrate.quad(integrand, -15, 15, points=[0.0, c0])[0])
    # Nine nodes over the residual meet Laplace's kink with an error of their own.
    assert found.value == pytest.approx(exact, abs=5 * found.standard_error + 0.01)
    found.check(0.1)


def test_the_logistic_likelihood_has_none() -> None:
    found = log_normaliser(HyperbolicSecant(), *features(30, 5.0), -1.0, seed=0)
    assert abs(found.value) < 1e-12 and found.standard_error < 1e-12
    found.check(1e-6)


@pytest.mark.parametrize("psi", [Gamma(1.0, 4.0), Laplace(2.0), PolyaGamma(1.3)])
def test_the_standard_error_is_honest(psi: Gamma) -> None:
    """Estimates of other seeds lie within a few standard errors of each other."""
    A, kt = features(40, 0.1)
    found = [log_normaliser(psi, A, kt, 0.0, seed) for seed in range(6)]
    values, errors = (np.array([getattr(e, k) for e in found]) for k in ("value", "standard_error"))
    assert np.all(errors < 0.1)
    assert np.ptp(values) < 10 * errors.mean()
    for estimate in found:
        estimate.check(0.1)


def test_mass_that_no_draw_sees_is_refused() -> None:
    """All instances share one f: Z is an integral over it, and lies at |f| = 37 or so."""
    psi, n, variance = Gamma(1.0, 4.0), 150, 0.5
    A, kt = np.full((n, 1), np.sqrt(variance)), np.zeros(n)
    found = log_normaliser(psi, A, kt, 0.0, seed=0)
    v = np.linspace(-120, 120, 200_001)
    log_joint = n * log_excess(psi, np.sqrt(variance) * v) + stats.norm.logpdf(v)
    exact = np.logaddexp.reduce(log_joint) + np.log(v[1] - v[0])
    assert found.standard_error < 1 and found.value < exact - 100  # sure, and wrong
    assert exact - 30 < found.log_far_mass < exact
    with pytest.raises(ValueError, match="never reach"):
        found.check(1.0)


@pytest.mark.parametrize(
    ("estimate", "match"),
    [
        (LogNormaliser(1.0, 0.5, 400.0, -np.inf), "error is 0.5 nats"),
        (LogNormaliser(1.0, 0.01, 2.0, -np.inf), "rests on 2.0 of"),
        (LogNormaliser(1.0, 0.01, 400.0, 0.0), "at least: psi falls"),
    ],
)
def test_what_is_refused(estimate: LogNormaliser, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        estimate.check(0.2)


def test_the_bound_of_a_fit_with_its_normaliser() -> None:
    bags, _ = bw.datasets.make_bags(20, 3, 2, random_state=0)
    quick = {"n_inducing": 10, "bag_score": "max", "random_state": 0}
    model = bw.PsiVGPMIL(psi=PolyaGamma(1.3), kernel=bw.kernels.RBF(0.3, 2.0), **quick)
    bound = model.fit(bags).normalised_elbo(bags)
    assert np.isfinite(bound) and bound != model.elbo_
    secant = bw.PsiVGPMIL(**quick).fit(bags)
    assert secant.normalised_elbo(bags) == pytest.approx(secant.elbo_, abs=1e-9)
    heavy = bw.GammaVGPMIL(kernel=bw.kernels.RBF(10.0, 5.0), **quick)
    many, _ = bw.datasets.make_bags(40, 10, 2, random_state=0)
    with pytest.raises(ValueError, match="cannot be estimated"):
        heavy.fit(many).normalised_elbo(many)


def test_a_quadrature_that_misses_a_kink_is_part_of_the_error() -> None:
    estimate = log_normaliser(Laplace(2.0), np.full((1000, 1), 1e-9), np.full(1000, 0.5), 0.0, 0)
    x = np.linspace(-8, 8, 400_001)
    w = 2 * np.cosh(np.sqrt(0.5) * x / 2) * np.exp(Laplace(2.0).log_psi(np.abs(np.sqrt(0.5) * x)))
    exact = 1000 * np.log(np.trapezoid(w * np.exp(-0.5 * x**2), x) / np.sqrt(2 * np.pi))
    assert abs(estimate.value - exact) > 1  # the rule is too coarse here,
    with pytest.raises(ValueError, match="its error is"):  # and knows it
        estimate.check(0.2)
