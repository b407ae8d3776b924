"""Scale mixtures and the psi models built on them."""

import math
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

import bagwise as bw
from bagwise.densities import (
    FunctionDensity,
    Gamma,
    HyperbolicSecant,
    Laplace,
    PolyaGamma,
    StudentT,
    check_density,
)
from bagwise.metrics import roc_auc
from bagwise.models import PGVGPMIL, GammaVGPMIL, LargeMarginVGPMIL, PsiVGPMIL
from toy_bags import separable_bags

XI = np.concatenate([[0.0], np.geomspace(1e-5, 50, 60)])
QUICK = {"n_inducing": 5, "bag_score": "max", "random_state": 0}
SECANT_BY_HAND = (lambda x: -np.log(2 * np.cosh(x / 2)), lambda x: -np.tanh(x / 2) / 2)


@pytest.fixture(scope="module")
def bags() -> bw.Bags:
    return bw.datasets.make_digit_bags(30, random_state=0)[0]


DENSITIES = [
    HyperbolicSecant(),
    Gamma(1.0, 4.0),
    Gamma(0.8, 1.0),
    StudentT(3.0, 2.0),
    StudentT(0.5, 1.0),
    Laplace(1.5),
    PolyaGamma(0.7),
    PolyaGamma(3.0),
]


@bw.io.register
@dataclass(frozen=True)
class GammaOfTheUser:
    """A density that is written outside of the package."""

    rate: float

    def log_psi(self, xi: np.ndarray) -> np.ndarray:
        return -np.log(self.rate + xi**2 / 2)

    def theta(self, xi: np.ndarray) -> np.ndarray:
        return 1 / (self.rate + xi**2 / 2)


@pytest.mark.parametrize("density", DENSITIES)
def test_theta_is_minus_the_slope_over_xi(density: object) -> None:
    xi, h = XI[20:], 1e-6
    slope = (density.log_psi(xi + h) - density.log_psi(xi - h)) / (2 * h)
    np.testing.assert_allclose(density.theta(xi), -slope / xi, rtol=1e-4)


AREAS = [
    (HyperbolicSecant(), np.pi),
    (Gamma(1.3, 4.0), np.sqrt(2 * np.pi) * 4**-0.8 * special.gamma(0.8) / special.gamma(1.3)),
    (StudentT(3.0, 2.0), 1.0),
    (Laplace(1.5), 1.0),
    (PolyaGamma(0.7), special.beta(0.35, 0.35)),
    (PolyaGamma(3.0), special.beta(1.5, 1.5)),
]


@pytest.mark.parametrize(("density", "area"), AREAS)
def test_normalisers_by_quadrature(density: Any, area: float) -> None:
    half, _ = integrate.quad(lambda x: float(np.exp(density.log_psi(np.array(x)))), 0, np.inf)
    assert 2 * half == pytest.approx(area, rel=1e-6)


@pytest.mark.parametrize("x", [0.3, 2.0])
def test_densities_are_mixtures_of_gaussians(x: float) -> None:
    """psi(x) = E N(x | 0, 1 / omega) over the mixing variables that the docstrings name."""

    def mixed(density: Any, mixing: Any, of_variance: bool = False) -> None:
        def integrand(w: float) -> float:
            variance = w if of_variance else 1 / w
            return float(stats.norm.pdf(x, scale=np.sqrt(variance)) * mixing.pdf(w))

        found = integrate.quad(integrand, 0, np.inf, epsabs=1e-12)[0]
        assert found == pytest.approx(float(np.exp(density.log_psi(np.array(x)))), rel=1e-5)

    mixed(StudentT(3.0, 2.0), stats.gamma(1.5, scale=1 / 6.0))
    mixed(Laplace(1.5), stats.expon(scale=2 * 1.5**2), of_variance=True)


def test_polya_gamma_is_the_laplace_transform_of_its_mixing_variable() -> None:
    """PG(b, 0) is a sum of Gamma(b, 1) / (2 pi^2 (k - 1/2)^2): E exp(-omega x^2/2) = cosh^-b."""
    k, x, b = np.arange(1, 200_001) - 0.5, 1.7, 2.3
    log_transform = -b * np.sum(np.log1p(x**2 / (4 * np.pi**2 * k**2)))
    log_psi = PolyaGamma(b).log_psi(np.array(x)) - PolyaGamma(b).log_psi(np.array(0.0))
    assert log_transform == pytest.approx(float(log_psi), rel=1e-5)


def test_student_is_gamma_with_its_constant() -> None:
    gap = StudentT(3.0, 2.0).log_psi(XI) - Gamma(2.0, 6.0).log_psi(XI)
    assert np.ptp(gap) < 1e-12
    np.testing.assert_allclose(StudentT(3.0, 2.0).theta(XI), Gamma(2.0, 6.0).theta(XI))


@pytest.mark.parametrize("density", [*DENSITIES, GammaOfTheUser(2.0)])
def test_densities_are_saved(density: Any, tmp_path: Path) -> None:
    model = PsiVGPMIL(psi=density, **QUICK).fit(separable_bags(20, 2))
    model.save(tmp_path / "m.bagwise")
    same = bw.load(tmp_path / "m.bagwise")
    assert same.psi == density
    np.testing.assert_array_equal(same.predict_proba(np.eye(2)), model.predict_proba(np.eye(2)))


@pytest.mark.parametrize("psi", [SECANT_BY_HAND, FunctionDensity(*SECANT_BY_HAND)])
def test_functions_cannot_be_saved(psi: Any, tmp_path: Path) -> None:
    model = PsiVGPMIL(psi=psi, **QUICK).fit(separable_bags(20, 2))
    with pytest.raises(bw.io.ModelFileError, match=r"@bagwise\.io\.register"):
        model.save(tmp_path / "m.bagwise")


@pytest.mark.parametrize("psi", [Gamma(1.0, 4.0), StudentT(), Laplace(), PolyaGamma(1.5)])
def test_any_psi_learns_easy_bags(psi: Any) -> None:
    """The defaults for a psi whose labels do not sum to 1; with those of VGPMIL f ran to -5000."""
    bags, truth = bw.datasets.make_bags(60, random_state=0)
    model = PsiVGPMIL(psi=psi, n_inducing=40, random_state=0, bag_score="max").fit(bags)
    assert roc_auc(bags.y, model.predict_proba(bags)[:, 1]) > 0.85
    assert roc_auc(truth, model.predict_instance_proba(bags)[:, 1]) > 0.85
    assert model.mean_ == 0 and model.kernel_.variance == 0.5


def test_gamma_bags_are_calibrated_by_default() -> None:
    bags = separable_bags(30, 2)
    model = GammaVGPMIL(n_inducing=10, random_state=0).fit(bags)
    assert model.bag_score_ == "calibrated"
    p = model.predict_proba(bags)
    assert np.all(np.isfinite(np.log(p)))


def test_probabilities_are_never_minus_zero() -> None:
    bags = separable_bags(20, 2)
    far = {"kernel": bw.kernels.RBF(1.0, 1.0), "mean": -2000.0, "learn_hyperparameters": False}
    model = PsiVGPMIL(bag_score="joint", **far, random_state=0).fit(bags)
    for score in ("joint", "noisy-or", "max"):
        p = model.set_params(bag_score=score).predict_proba(bags.X + 100)
        assert np.all(p[:, 1] < 1e-15)
        assert not np.any(np.signbit(p))


@dataclass(frozen=True)
class Contradicting:
    """theta of another density than log_psi."""

    def log_psi(self, xi: np.ndarray) -> np.ndarray:
        return -np.log(4 + xi**2 / 2)

    def theta(self, xi: np.ndarray) -> np.ndarray:
        return 2 / (4 + xi**2 / 2)


@pytest.mark.parametrize("psi", [Contradicting(), (SECANT_BY_HAND[0], lambda x: -np.tanh(x) / 2)])
def test_theta_must_be_that_of_log_psi(psi: Any) -> None:
    with pytest.raises(ValueError, match="must be that of log_psi"):
        PsiVGPMIL(psi=psi).fit(separable_bags(10, 2))


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
    # Without derivatives of psi the bound is climbed in another way, which may end at another of
    # several optima: these bags have one.
    others, _ = bw.datasets.make_digit_bags(30, random_state=1)
    for model, bags_ in (
        (PGVGPMIL(**settings), bags),
        (PsiVGPMIL(**settings), bags),
        (PsiVGPMIL(psi=HyperbolicSecant(), **settings), bags),
        (PsiVGPMIL(psi=SECANT_BY_HAND, **settings), others),
    ):
        expected = bw.VGPMIL(**settings).fit(bags_).predict_instance_proba(bags_)
        p = model.fit(bags_).predict_instance_proba(bags_)
        np.testing.assert_allclose(p, expected, atol=1e-4)


def test_gamma_is_psi_with_the_gamma_density(bags: bw.Bags) -> None:
    kernel = bw.kernels.RBF(0.5, 15.0)
    settings = {"kernel": kernel, "bag_score": "max", "n_inducing": 20, "random_state": 0}
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
    ("model", "match"),
    [
        (PsiVGPMIL(psi=(lambda x: -(x**4) - x**2, lambda x: -4 * x**3 - 2 * x)), "scale mixture"),
        (GammaVGPMIL(alpha=0.4), "not a proper density"),
    ],
    ids=["growing", "improper"],
)
def test_a_fit_warns_of_psi_once(model: PsiVGPMIL, match: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.set_params(n_inducing=5, max_iter=3, random_state=0).fit(separable_bags(24, 2))
    own = [w for w in caught if re.search(match, str(w.message))]
    assert len(own) == 1 and own[0].filename == __file__


@pytest.mark.parametrize(
    "psi",
    [
        (lambda x: -math.log(4 + x * x / 2), lambda x: -x / (4 + x**2 / 2)),
        (lambda x: -np.log(4 + x**2 / 2), lambda x: -1.0 if x > 0 else 0.0),
        (lambda x: -0.5, lambda x: -x),
    ],
)
def test_functions_take_arrays(psi: tuple) -> None:
    with pytest.raises(TypeError, match="take arrays and return one value for each"):
        PsiVGPMIL(psi=psi).fit(separable_bags(10, 2))


@pytest.mark.parametrize(
    ("psi", "error", "match"),
    [
        ((lambda x: x * np.nan, lambda x: -x), ValueError, "NaN"),
        ((lambda x: x, lambda x: x * 0 + 1), ValueError, "theta <= 0"),
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
