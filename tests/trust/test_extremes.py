"""Scalar functions against mpmath where floating point is hardest, to 1e-10 relative."""

from collections.abc import Callable
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest

import bagwise as bw
from bagwise.core import linalg
from bagwise.core.features import whitener
from bagwise.core.inference.label_draws import truncated_normal
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Link, Logistic, Probit
from bagwise.densities import HyperbolicSecant
from brute_force import make_targets

RTOL = 1e-10
# Both tails to 1e3, dense around the seams between formulas.
Z = np.unique(
    np.concatenate(
        [np.linspace(-12, 12, 97), *(s * np.geomspace(1e-9, 1e3, 61) for s in (-1, 1)), [0.0]]
        + [np.nextafter(s, [-np.inf, np.inf]) for s in (-37.5, -30.0, -5.0, 5.0, 37.5)]
    )
)
Exact = Callable[[mp.mpf], mp.mpf]


@pytest.fixture(autouse=True)
def digits() -> None:
    mp.mp.dps = 60


def Phi(z: mp.mpf) -> mp.mpf:
    return mp.erfc(-z / mp.sqrt(2)) / 2


def log_Phi(z: mp.mpf) -> mp.mpf:
    return mp.log1p(-Phi(-z)) if z > 0 else mp.log(Phi(z))


def probit_hazard(z: mp.mpf) -> mp.mpf:
    return mp.exp(-(z**2) / 2) / mp.sqrt(2 * mp.pi) / Phi(-z)


def probit_chi(z: mp.mpf) -> mp.mpf:
    r = probit_hazard(z)
    return (r - z) ** 2 + r * (r - z) - 1


def softplus(z: mp.mpf) -> mp.mpf:
    return mp.log1p(mp.exp(z))


EXACT: dict[tuple[type[Link], str], Exact] = {
    (Probit, "log_negative"): lambda z: log_Phi(-z),
    (Probit, "log_minus_log_negative"): lambda z: mp.log(-log_Phi(-z)),
    (Probit, "log_hazard"): lambda z: mp.log(probit_hazard(z)),
    (Probit, "hazard"): probit_hazard,
    (Probit, "kappa"): lambda z: probit_hazard(z) - z,
    (Probit, "chi"): probit_chi,
    (Logistic, "log_negative"): lambda z: -softplus(z),
    (Logistic, "log_minus_log_negative"): lambda z: mp.log(softplus(z)),
    (Logistic, "log_hazard"): lambda z: -softplus(-z),
    (Logistic, "hazard"): lambda z: 1 / (1 + mp.exp(-z)),
    (Logistic, "kappa"): lambda z: 1 / (1 + mp.exp(z)),
    (Logistic, "chi"): lambda z: -mp.tanh(z / 2) / (1 + mp.exp(z)),
}


def assert_relative(found: np.ndarray, exact: list[mp.mpf], rtol: float = RTOL) -> None:
    """Compare where the truth is a normal number; below that only zero or next to it will do."""
    truth = np.array([float(x) for x in exact])
    assert not np.any(np.isnan(found))
    normal = np.abs(truth) > 1e-300
    np.testing.assert_allclose(found[normal], truth[normal], rtol=rtol, atol=0)
    assert np.all(np.abs(found[~normal]) <= 1e-299)


@pytest.mark.parametrize(("link", "name"), EXACT, ids=lambda v: getattr(v, "__name__", v))
def test_links(link: type[Link], name: str) -> None:
    exact = [EXACT[link, name](mp.mpf(float(z))) for z in Z]
    if name == "log_minus_log_negative":  # passes through zero: absolute there
        found = getattr(link(), name)(Z)
        np.testing.assert_allclose(found, [float(x) for x in exact], rtol=RTOL, atol=1e-14)
        return
    if (link, name) == (Probit, "log_hazard"):  # likewise
        np.testing.assert_allclose(
            link().log_hazard(Z), [float(x) for x in exact], rtol=RTOL, atol=1e-14
        )
        return
    assert_relative(getattr(link(), name)(Z), exact)


XI = np.concatenate([[0.0], np.geomspace(1e-12, 1e3, 181), np.nextafter([1e-3, 0.1], 0), [0.1]])


def exact_theta(x: mp.mpf) -> mp.mpf:
    return mp.tanh(x / 2) / (2 * x) if x else mp.mpf(1) / 4


def exact_theta_slope(x: mp.mpf) -> mp.mpf:
    if not x:
        return -mp.mpf(1) / 24
    return (x / 2 * mp.sech(x / 2) ** 2 - mp.tanh(x / 2)) / (2 * x**3)


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("theta", exact_theta),
        ("theta_slope", exact_theta_slope),
        ("log_psi", lambda x: -mp.log(2 * mp.cosh(x / 2))),
    ],
)
def test_hyperbolic_secant(name: str, exact: Exact) -> None:
    mp.mp.dps = 80  # theta_slope cancels three times over at 1e-12
    found = getattr(HyperbolicSecant(), name)(XI)
    assert_relative(found, [exact(mp.mpf(float(x))) for x in XI])


LOG_NEGATIVE: dict[type[Link], Exact] = {
    Probit: lambda z: log_Phi(-z),
    Logistic: lambda z: -softplus(z),
}
HAZARD: dict[type[Link], Exact] = {
    Probit: probit_hazard,
    Logistic: lambda z: 1 / (1 + mp.exp(-z)),
}
VALUES = [-1e3, -300.0, -38.0, -20.0, -8.0, -1.0, 0.0, 1.0, 8.0, 20.0, 36.0, 300.0, 1e3]

each_link = pytest.mark.parametrize("link", [Probit, Logistic])
each_H = pytest.mark.parametrize("H", [np.inf, 100.0, 1e12])


def exact_bag(link: type[Link], z: np.ndarray, T: bool, H: float) -> tuple[mp.mpf, list[mp.mpf]]:
    """log p(T | z) of one bag and its gradient, in sixty digits."""
    h = mp.mpf(0) if np.isinf(H) else 1 / mp.mpf(H)
    terms = [mp.mpf(float(x)) for x in z]
    L = mp.fsum(LOG_NEGATIVE[link](x) for x in terms)
    c = 1 - h
    if T:
        value = mp.log1p(-c * mp.exp(L)) if L < -1 or h else mp.log(-mp.expm1(L))
        F1 = -c * mp.exp(L) / (-mp.expm1(L) + h * mp.exp(L))
    else:
        value = mp.log(h + c * mp.exp(L)) if h else L
        F1 = c * mp.exp(L) / (h + c * mp.exp(L))
    return value - mp.log1p(h), [-F1 * HAZARD[link](x) for x in terms]


@each_link
@each_H
@pytest.mark.parametrize("T", [True, False])
@pytest.mark.parametrize("size", [1, 3, 40])
def test_bag_likelihoods(link: type[Link], H: float, T: bool, size: int) -> None:
    likelihood, targets = BagLikelihood(link(), H), make_targets([size], [T])
    for value in VALUES:
        z = value + np.linspace(-0.5, 0.5, size) if size > 1 else np.array([value])
        exact, gradient = exact_bag(link, z, T, H)
        found, found_gradient = likelihood.log_prob_and_gradient(z, targets)
        # log p -> log(H / (H + 1)) is a difference of logarithms: absolute near zero there.
        scale = 0 if np.isinf(H) else 1e-15
        np.testing.assert_allclose(found, float(exact), rtol=RTOL, atol=max(scale, 1e-300))
        # Gradients are exp of a difference of exponents as large as z^2 / 2 and its rounding.
        rtol = max(RTOL, 1e-15 * value**2 / 2)
        np.testing.assert_allclose(
            found_gradient, [float(g) for g in gradient], rtol=rtol, atol=1e-300, err_msg=str(value)
        )


@each_link
@pytest.mark.parametrize("exponent", [-300, -200, -100, -30, -16, -8, -3, -1])
def test_log_of_one_minus_P0(link: type[Link], exponent: int) -> None:
    """A bag that is almost surely positive, and one that is almost surely not."""
    likelihood = BagLikelihood(link())
    P0 = mp.mpf(10) ** exponent
    each = mp.power(P0, mp.mpf(1) / 7)  # seven instances share it
    z = _latent(link, each)
    found = likelihood.log_prob(np.full(7, z), make_targets([7], [True]))
    exact = mp.log1p(-mp.exp(7 * LOG_NEGATIVE[link](mp.mpf(z))))
    np.testing.assert_allclose(found, float(exact), rtol=RTOL)
    rare = -_latent(link, P0)  # P(y = 1) = P0
    found = likelihood.log_prob(np.full(7, rare), make_targets([7], [True]))
    exact = mp.log(-mp.expm1(7 * LOG_NEGATIVE[link](mp.mpf(rare))))
    np.testing.assert_allclose(found, float(exact), rtol=RTOL)


def _latent(link: type[Link], negative: mp.mpf) -> float:
    """z with P(y = 0 | z) of about this size."""
    if link is Logistic:
        return float(mp.log((1 - negative) / negative))
    low, high = mp.mpf(-40), mp.mpf(40)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if Phi(-middle) > negative else (low, middle)
    return float(low)


def test_truncated_means() -> None:
    """E[m | m < 0] = -kappa(mu) and E[m | m > 0] = kappa(-mu) for m ~ N(mu, 1)."""
    found = -Probit().kappa(Z)
    assert_relative(found, [mp.mpf(float(z)) - probit_hazard(mp.mpf(float(z))) for z in Z])


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_truncated_draws_are_quantiles(share: float) -> None:
    """A draw x below zero solves P(m < x | m < 0) = u; checked through its tail."""
    mu = np.array([-1e3, -37.0, -3.0, 0.0, 3.0, 37.0, 150.0, 199.0, 201.0, 1e3])
    draws = truncated_normal(mu, np.ones(10), np.full(10, -1), np.full(10, np.log(share)))
    assert np.all(draws <= 0) and np.all(np.isfinite(draws))
    for m, x in zip(mu, draws, strict=True):
        log_u = mp.log(Phi(mp.mpf(float(x)) - mp.mpf(float(m)))) - mp.log(Phi(-mp.mpf(float(m))))
        assert float(log_u) == pytest.approx(np.log(share), rel=1e-8, abs=1e-8)


@each_link
def test_averages_over_wide_and_far_gaussians_stay_probabilities(link: type[Link]) -> None:
    mean = np.concatenate([-np.geomspace(1e-3, 1e3, 40), np.geomspace(1e-3, 1e3, 40)])[:, None]
    found = link().moments(mean, np.geomspace(1e-12, 1e6, 19))
    p, std = np.exp(found.log_positive), found.std
    assert np.all((p >= 0) & (p <= 1) & (std >= 0) & (std <= 0.5))
    assert np.all(np.diff(p[40:], axis=0) >= -1e-9) and np.all(np.diff(p[:40], axis=0) <= 1e-9)


# --- Near-singular K_ZZ, float32 ----------------------------------------------------------------


def random_bags(seed: int = 0, dtype: type = np.float64, n_bags: int = 20) -> bw.Bags:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_bags * 5, 3))
    X[np.arange(1, n_bags, 2) * 5, 0] += 3
    ids = np.repeat(np.arange(n_bags), 5)
    return bw.Bags.from_arrays(X.astype(dtype), ids, y=np.arange(n_bags) % 2)


NEAR_SINGULAR = {
    "repeated": lambda Z: np.concatenate([Z, Z]),
    "next to each other": lambda Z: np.concatenate([Z, Z + 1e-9]),
    "one place": lambda Z: np.repeat(Z[:1], 12, axis=0),
}


@pytest.mark.parametrize("name", NEAR_SINGULAR)
@pytest.mark.parametrize("model", [bw.ProbitVGPMIL, bw.VGPMIL, bw.LargeMarginVGPMIL])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_near_singular_inducing_points(name: str, model: type) -> None:
    bags = random_bags()
    points = NEAR_SINGULAR[name](bags.X[:6])
    found = model(inducing=points, standardize=False, max_iter=30, random_state=0).fit(bags)
    p, std = found.predict_proba(bags, return_std=True)
    mean, variance = found.latent(bags)
    assert np.all((p >= 0) & (p <= 1)) and np.isfinite(std).all() and np.isfinite(mean).all()
    assert np.isfinite(found.elbo_) and np.all(variance >= 0)


def test_long_lengthscales_leave_residuals_nonnegative() -> None:
    X = random_bags().X
    for lengthscale in (1e-3, 1.0, 1e3, 1e8):
        kernel = bw.kernels.RBF(1.0, lengthscale)
        A, kt = whitener(kernel, X[:30], 1e-6)(X)
        assert np.isfinite(A).all() and np.all(kt >= 0)


def test_what_has_no_cholesky_is_named() -> None:
    with pytest.raises(linalg.NotPositiveDefiniteError, match="K_ZZ is not positive definite"):
        linalg.cholesky(np.ones((3, 3)) - 1e-3 * np.eye(3), name="K_ZZ")
    with pytest.raises(linalg.NotPositiveDefiniteError, match="NaN or infinite"):
        linalg.cholesky(np.full((2, 2), np.nan), name="K_ZZ")


@pytest.mark.parametrize("model", [bw.ProbitVGPMIL, bw.VGPMIL, bw.MIRVM, bw.IsingVGPMIL])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_float32_is_finite_and_near_float64(model: type) -> None:
    extra = {} if model is bw.MIRVM else {"n_inducing": 15}
    if model is bw.IsingVGPMIL:
        extra |= {"coupling": 0.3, "neighbors": "chain"}
    p32, p64 = (
        model(random_state=0, **extra).fit(bags).predict_proba(bags)[:, 1]
        for bags in (random_bags(dtype=np.float32), random_bags())
    )
    assert np.isfinite(p32).all()
    np.testing.assert_allclose(p32, p64, atol=5e-3)


def test_coupled_bags_are_finite_at_extremes_or_say_why() -> None:
    bags = random_bags()
    model = bw.IsingVGPMIL(
        neighbors="chain", coupling=0.3, n_inducing=8, learn_hyperparameters=False, random_state=0
    ).fit(bags)
    posterior = model.posterior_
    direction = posterior.m / np.max(np.abs(posterior.m))
    for size in (-1e3, -100.0, 100.0, 1e3):
        model.posterior_ = replace(posterior, m=size * direction)
        p, std = model.predict_proba(bags, return_std=True)
        assert np.all((p >= 0) & (p <= 1)) and np.all(np.isfinite(std))
    model.posterior_ = replace(posterior, m=-1e12 * direction)
    with (
        np.errstate(all="ignore"),
        pytest.raises(FloatingPointError, match=r"latent values reach .* use bag_score='noisy-or'"),
    ):
        model.predict_proba(bags)
