"""Scale mixtures and the psi models built on them."""

import numpy as np
import pytest

import bagwise as bw
from bagwise.densities import FunctionDensity, Gamma, HyperbolicSecant, check_density
from bagwise.estimators import PGVGPMIL, GammaVGPMIL, LargeMarginVGPMIL, PsiVGPMIL

XI = np.concatenate([[0.0], np.geomspace(1e-5, 50, 60)])
SECANT_BY_HAND = (lambda x: -np.log(2 * np.cosh(x / 2)), lambda x: -np.tanh(x / 2) / 2)


@pytest.fixture(scope="module")
def bags() -> bw.Bags:
    return bw.datasets.make_digit_bags(30, random_state=0)[0]


@pytest.mark.parametrize("density", [HyperbolicSecant(), Gamma(1.0, 4.0), Gamma(0.8, 1.0)])
def test_theta_is_minus_the_slope_over_xi(density: object) -> None:
    xi, h = XI[20:], 1e-6
    slope = (density.log_psi(xi + h) - density.log_psi(xi - h)) / (2 * h)
    np.testing.assert_allclose(density.theta(xi), -slope / xi, rtol=1e-4)


def test_jaakkola_and_polya_gamma_updates_coincide() -> None:
    """Polya-Gamma's E[omega] = tanh(xi/2)/(2 xi) is twice Jaakkola's lambda [V17, Eq. 10]."""
    xi = XI[1:]
    jaakkola = (1 / (1 + np.exp(-xi)) - 0.5) / (2 * xi)
    # The logistic function minus a half cancels for small xi.
    np.testing.assert_allclose(HyperbolicSecant().theta(xi), 2 * jaakkola, rtol=1e-9)


def test_secant_is_even_and_a_quarter_at_zero() -> None:
    theta = HyperbolicSecant().theta
    assert theta(np.zeros(1))[0] == 0.25
    np.testing.assert_allclose(theta(-XI), theta(XI))


def test_psi_with_the_secant_is_vgpmil(bags: bw.Bags) -> None:
    settings = {"n_inducing": 20, "random_state": 0}
    expected = bw.VGPMIL(**settings).fit(bags)
    for model in (
        PGVGPMIL(**settings),
        PsiVGPMIL(**settings),
        PsiVGPMIL(psi=HyperbolicSecant(), **settings),
        PsiVGPMIL(psi=SECANT_BY_HAND, **settings),
    ):
        p = model.fit(bags).predict_instance_proba(bags)
        np.testing.assert_allclose(p, expected.predict_instance_proba(bags), atol=1e-4)


def test_gamma_is_psi_with_the_gamma_density(bags: bw.Bags) -> None:
    kernel = bw.kernels.RBF(0.5, 15.0)
    settings = {"kernel": kernel, "mean": 0.0, "learn_hyperparameters": False, "random_state": 0}
    one = GammaVGPMIL(alpha=0.9, beta=2.0, **settings).fit(bags)
    other = PsiVGPMIL(psi=Gamma(0.9, 2.0), **settings).fit(bags)
    assert one.elbo_ == other.elbo_


def test_infinite_H_is_the_limit_of_finite_ones(bags: bw.Bags) -> None:
    settings = {"n_inducing": 20, "random_state": 0, "learn_hyperparameters": False, "mean": -2.0}
    exact = bw.VGPMIL(**settings).fit(bags).predict_instance_proba(bags)
    near = bw.VGPMIL(H=1e9, **settings).fit(bags).predict_instance_proba(bags)
    np.testing.assert_allclose(near, exact, atol=1e-4)


def test_improper_gamma_warns() -> None:
    with pytest.warns(UserWarning, match="not a proper density"):
        Gamma(0.5, 1.0)


def test_growing_theta_warns() -> None:
    with pytest.warns(UserWarning, match="not a Gaussian scale mixture"):
        check_density((lambda x: -(x**4) - x**2, lambda x: -4 * x**3 - 2 * x))


@pytest.mark.parametrize(
    ("psi", "error", "match"),
    [
        ((lambda x: x * np.nan, lambda x: -x), ValueError, "NaN"),
        ((lambda x: x, lambda x: x), ValueError, "theta <= 0"),
        ("gamma", TypeError, "pair"),
    ],
)
def test_bad_psi(psi: object, error: type[Exception], match: str, bags: bw.Bags) -> None:
    with pytest.raises(error, match=match):
        PsiVGPMIL(psi=psi).fit(bags)


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan, "1"])
def test_bad_gamma(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a positive finite number"):
        Gamma(**{name: value})


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (LargeMarginVGPMIL(C=0.0), "C must be"),
        (LargeMarginVGPMIL(V=-1.0), "V must be"),
        (bw.VGPMIL(label_posterior="factorised"), "finite H"),
        (bw.VGPMIL(label_posterior="mean-field"), "label_posterior must be"),
        (bw.VGPMIL(init={"pi": [0.5]}), "init is for"),
        (bw.ProbitVGPMIL(init={"pi": [0.5]}), "init is for"),
        (LargeMarginVGPMIL(init={"pi": [0.5]}), "one finite number for each of the 300"),
        (LargeMarginVGPMIL(init={"rho": np.zeros(300)}), "a key of init must be one of"),
        (
            bw.VGPMIL(H=100.0, label_posterior="factorised", inference="laplace"),
            "variational posterior",
        ),
    ],
)
def test_bad_arguments(model: object, match: str, bags: bw.Bags) -> None:
    with pytest.raises(ValueError, match=match):
        model.fit(bags)


def test_function_density_has_a_limit_at_zero() -> None:
    psi = FunctionDensity(*SECANT_BY_HAND)
    np.testing.assert_allclose(psi.theta(np.zeros(1)), 0.25, atol=1e-6)
