"""Expectation propagation in bags, against quadrature over what their instances share."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import special

import bagwise as bw
from bagwise.core.linalg import inverse_factors
from bagwise.core.links import LINKS, Link, Probit
from bagwise.core.posteriors import bag_covariances, feature_posterior, propagation
from bagwise.core.posteriors.bag_covariances import LowRank, Whole
from bagwise.core.posteriors.feature_posterior import FeaturePosterior
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.posteriors.propagation import Interaction, propagate
from bagwise.kernels import RBF

each_link = pytest.mark.parametrize("link", ["probit", "logistic"])
each_power = pytest.mark.parametrize("power", [1, 2])
BAGS = [
    (n, v, rho, mu)
    for n in (2, 5, 30, 100)
    for v in (0.1, 1.0, 4.0, 30.0)
    for rho in (0.05, 0.3, 1.0)
    for mu in (-6.0, -3.0, -1.0, 1.0, 4.0)
]


def log_density(x: np.ndarray) -> np.ndarray:
    return -0.5 * x**2 - 0.5 * np.log(2 * np.pi)


def log_average(link: Link, f: np.ndarray, own: float, power: int) -> np.ndarray:
    """log E[P(y = 0 | f + r)^power], r ~ N(0, own), by a fine sum."""
    r = np.linspace(-9, 9, 361)
    logs = power * link.log_negative(f[:, None] + np.sqrt(own) * r)
    return special.logsumexp(logs + log_density(r) + np.log(r[1] - r[0]), axis=1)


def by_quadrature(link: Link, n: int, v: float, rho: float, mu: float, power: int) -> float:
    """log E prod_n P(y_n = 0 | f_n)^power of f with variances v and correlations rho."""
    x = np.linspace(-40, 40, 1601)
    logs = n * log_average(link, mu + np.sqrt(v * rho) * x, v * (1 - rho), power)
    return float(special.logsumexp(logs + log_density(x) + np.log(x[1] - x[0])))


def alike(link: Link, n: int, v: float, rho: float, mu: float, power: int) -> Interaction:
    C = v * (rho * np.ones((1, n, n)) + (1 - rho) * np.eye(n))
    with np.errstate(all="ignore"):
        return propagate(link, np.full((1, n), mu), Whole(C), np.ones((1, n), dtype=bool), power)


@each_link
@each_power
def test_few_directions_are_a_shorter_way_to_the_same(link: str, power: int) -> None:
    """Also where some bags are filled up with rows that are not theirs."""
    rng = np.random.default_rng(0)
    own = np.arange(40) < np.array([40, 25, 40, 3])[:, None]
    G = rng.normal(size=(4, 40, 3)) * np.array([0.3, 1.0, 3.0, 1.0])[:, None, None] * own[..., None]
    mu = np.where(own, rng.normal(-2.0, 1.0, size=(4, 40)), 0.0)
    told = (LINKS[link](), mu)
    with np.errstate(all="ignore"):  # as in `bag_moments`
        whole = propagate(*told, Whole(G @ G.transpose(0, 2, 1)), own, power)
        low = propagate(*told, LowRank(G), own, power)
    assert np.array_equal(whole.converged, low.converged) and whole.converged.sum() >= 3
    for one, other in zip(vars(whole).values(), vars(low).values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-10)


def test_linear_models_predict_the_same_by_the_shorter_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 60, 40)
    bags = bw.Bags.from_list([rng.normal(size=(n, 4)) for n in sizes], y=np.arange(40) % 2)
    model = bw.MILogisticRegression(
        alpha=1.0, bag_score="joint", instance_score="posterior", random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.NearChanceWarning)
        model.fit(bags)
    short = model.predict_proba(bags, return_std=True)
    monkeypatch.setattr(feature_posterior, "LOW_RANK", np.inf)
    whole = model.predict_proba(bags, return_std=True)
    for one, other in zip(short, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7)


def test_small_sites_of_few_directions_keep_their_digits() -> None:
    """Of bags whose positives are rare: what their instances have in common is of second order."""
    G = np.random.default_rng(0).normal(size=(1, 6, 2))
    C = (G @ G.transpose(0, 2, 1))[0]
    tau = np.full((1, 6), 1e-7)
    others = C - np.diag(np.diagonal(C))
    expected = -0.5 * 1e-14 * np.sum(others**2)  # of log prod (B^-1)_nn |B|, to second order
    for form in (Whole(C[None]), LowRank(G)):
        found = form.under(tau).log_excess[0]
        assert found == pytest.approx(-expected, abs=1e-3 * abs(expected) + 5e-15)


def trusted(found: Interaction, log_p0: np.ndarray) -> bool:
    allowed = np.minimum(propagation.TRUSTED, propagation.SHARE * np.abs(log_p0))
    return bool(found.small_beside(allowed)[0])


@each_link
def test_what_is_trusted_is_exact(link: str) -> None:
    own, checked = LINKS[link](), 0
    for n, v, rho, mu in BAGS:
        found = alike(own, n, v, rho, mu, 1)
        single = own.tilted(np.array([mu]), np.array([v]), 1).log_mass[0]
        log_p0 = n * single + found.value
        if not trusted(found, log_p0):
            continue
        checked += 1
        true = by_quadrature(own, n, v, rho, mu, 1)
        assert np.exp(log_p0[0]) == pytest.approx(np.exp(true), abs=5e-4, rel=2e-3)
        assert -np.expm1(log_p0[0]) == pytest.approx(-np.expm1(true), rel=0.04)
    assert checked > 100


@each_link
def test_second_moments_are_as_good(link: str) -> None:
    own = LINKS[link]()
    for n, v, rho, mu in [(2, 1.0, 0.3, -1.0), (30, 1.0, 0.05, -3.0), (100, 0.1, 0.3, -3.0)]:
        found = alike(own, n, v, rho, mu, 2)
        single = own.tilted(np.array([mu]), np.array([v]), 2).log_mass[0]
        true = by_quadrature(own, n, v, rho, mu, 2)
        assert found.converged[0]
        assert n * single + found.value[0] == pytest.approx(true, abs=3e-3)


@each_link
def test_copies_are_not_trusted(link: str) -> None:
    own = LINKS[link]()
    for n in (10, 100):
        found = alike(own, n, 4.0, 1.0, -3.0, 1)
        assert not trusted(found, np.array([by_quadrature(own, n, 4.0, 1.0, -3.0, 1)]))


@each_link
@each_power
@pytest.mark.parametrize("variance", [0.01, 0.5, 3.0, 20.0, 60.0])
def test_tilted_averages_are_derivatives(link: str, power: int, variance: float) -> None:
    own, mean = LINKS[link](), np.array([-8.0, -2.0, 0.5, 3.0, 12.0])
    sd = np.sqrt(variance)
    x = np.linspace(-50, 9, 40_001)  # negative labels pull f down far
    f = mean[:, None] + sd * x
    logs = power * own.log_negative(f) + log_density(x) + np.log(x[1] - x[0])
    mass = special.logsumexp(logs, axis=1)
    weights = np.exp(logs - mass[:, None])
    centred = f - np.sum(weights * f, axis=1)[:, None]
    second, third, fourth = (np.sum(weights * centred**k, axis=1) for k in (2, 3, 4))
    found = own.tilted(mean, np.full(5, variance), power)
    np.testing.assert_allclose(found.log_mass, mass, rtol=1e-7, atol=1e-9)
    shift = np.sum(weights * f, axis=1) - mean
    np.testing.assert_allclose(variance * found.slope, shift, rtol=1e-5, atol=1e-8)
    kept = variance - variance**2 * found.curvature
    np.testing.assert_allclose(kept, second, rtol=1e-5)
    np.testing.assert_allclose(variance**3 * found.third, third, rtol=1e-3, atol=1e-6 * sd**3)
    if link == "logistic" or power == 1:
        cumulant = fourth - 3 * second**2
        scale = (4e-3 if variance > 20 else 1e-5) * sd**4
        np.testing.assert_allclose(variance**4 * found.fourth, cumulant, rtol=1e-2, atol=scale)


@dataclass(frozen=True)
class Shared(FeaturePosterior):
    """f = c0 + x'v + r with independent r of variance `own`: one direction of v is shared."""

    m: np.ndarray
    S: np.ndarray
    c0: float
    link: str
    own: float = 0.0
    seed: int = 3

    def features(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return X, np.full(len(X), self.own)


def copies(link: str, n: int, mean: float, sd: float) -> tuple[Shared, np.ndarray]:
    return Shared(np.zeros(1), np.array([[sd**2]]), mean, link), np.ones((n, 1))


@pytest.mark.parametrize(
    ("link", "n", "mean", "sd"),
    [
        ("probit", 50, -6.0, 2.0),
        ("probit", 200, -9.0, 3.0),
        ("probit", 100, -5.0, 1.0),
        ("probit", 20, -3.2, 0.65),
        ("logistic", 2, -10.0, 4.0),
        ("logistic", 1000, -20.0, 6.0),
        ("logistic", 100, -9.5, 0.5),
        ("logistic", 10, -6.9, 1.67),
    ],
)
def test_copies_whose_positives_are_in_the_tail(link: str, n: int, mean: float, sd: float) -> None:
    """They count once. Taken as independent, as a glance at one deviation has it, they are 0.5."""
    q, X = copies(link, n, mean, sd)
    own, x = LINKS[link](), np.linspace(-12, 12, 4001)
    logs = n * own.log_negative(mean + sd * x)
    weights = np.exp(log_density(x)) * (x[1] - x[0])
    true = -np.sum(weights * np.expm1(logs))
    std = np.sqrt(np.sum(weights * (-np.expm1(logs) - true) ** 2))
    found = q.predicted(X, np.array([0, n]), joint=True, instances=False).joint
    assert found is not None
    assert np.exp(found.log_positive[0]) == pytest.approx(true, abs=1e-3, rel=0.02)
    assert found.std[0] == pytest.approx(std, rel=0.1)


def test_deviations_of_narrow_posteriors_do_not_drown() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 3))
    q = Shared(np.array([0.5, -0.3, 0.2]), 1e-3 * np.eye(3), -2.0, "probit")
    v = q.m + np.sqrt(1e-3) * rng.normal(size=(200_000, 3))
    P0 = np.exp(special.log_ndtr(-(q.c0 + v @ X.T)).sum(axis=1))
    found = q.predicted(X, np.array([0, 24]), joint=True, instances=False).joint
    assert found is not None
    assert np.exp(found.log_negative[0]) == pytest.approx(P0.mean(), abs=5 * P0.std() / 400)
    assert found.std[0] == pytest.approx(P0.std(), rel=0.02)


def test_probabilities_are_the_same_with_deviations_and_without() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    ends = np.append(np.arange(0, 300, 6), 300)
    for link in ("probit", "logistic"):
        q = Shared(np.array([0.5, 1.0]), np.array([[2.0, 0.5], [0.5, 1.0]]), -4.0, link, 0.3)
        both = [
            q.predicted(X, ends, joint=True, instances=False, second=second).joint
            for second in (True, False)
        ]
        assert both[0] is not None and both[1] is not None
        np.testing.assert_array_equal(both[0].log_negative, both[1].log_negative)


def test_company_of_huge_features_takes_no_digits() -> None:
    q = Shared(np.array([1.0]), np.array([[1.0]]), -1.0, "probit", 0.5)
    bag = np.array([[0.3], [0.8], [-0.4]])
    alone = q.predicted(bag, np.array([0, 3]), joint=True, instances=False).joint
    X = np.vstack([[[1e10], [1.0]], bag])
    after = q.predicted(X, np.array([0, 2, 5]), joint=True, instances=False).joint
    assert alone is not None and after is not None
    assert after.log_negative[1] == pytest.approx(alone.log_negative[0], rel=1e-9)


def test_matrices_without_a_factor_leave_their_bags_untrusted() -> None:
    B = np.stack([np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]])])
    L_inv, sound = bag_covariances._factors(B)
    assert sound.tolist() == [True, False]
    assert np.all(np.isfinite(L_inv))


def test_links_of_others_do_not_inherit_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagwise.core.links.LINKS", dict(LINKS))

    class Steep(Probit):
        name = "steep"

        def log_negative(self, z: np.ndarray) -> np.ndarray:
            return super().log_negative(2 * z)

    assert Probit.propagates and not Steep.propagates


def test_gaussians_that_are_too_wide_are_not_trusted() -> None:
    found = alike(LINKS["logistic"](), 3, 1000.0, 0.3, -1.0, 1)
    assert not trusted(found, np.array([-1.0]))


def apart(link: str) -> tuple[Posterior, np.ndarray]:
    """A posterior, and a bag of 60 instances that share little."""
    rng = np.random.default_rng(0)
    Z, root = rng.normal(size=(10, 8)), 0.3 * rng.normal(size=(10, 10))
    scaling = {"shift": np.zeros(8), "scale": np.ones(8), "jitter": 1e-6, "seed": 3}
    S = root @ root.T + 0.05 * np.eye(10)
    q = Posterior(RBF(2.0, 1.0), Z=Z, m=rng.normal(size=10), S=S, c0=-3.0, link=link, **scaling)
    return q, rng.normal(size=(60, 8))


@each_link
def test_ordinary_bags_take_no_draws(link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    q, X = apart(link)
    ends = np.array([0, 20, 60])
    by_points = q.predicted(X, ends, joint=True, instances=False, stages=(64, 2**14)).joint
    monkeypatch.delattr(FeaturePosterior, "draws")
    found = q.predicted(X, ends, joint=True, instances=False).joint
    assert found is not None and by_points is not None
    np.testing.assert_allclose(
        np.exp(found.log_negative), np.exp(by_points.log_negative), rtol=3e-3
    )
    np.testing.assert_allclose(found.std, by_points.std, rtol=0.03)


@each_link
def test_the_order_of_instances_does_not_matter(link: str) -> None:
    q, X = apart(link)
    shuffled = X[np.random.default_rng(1).permutation(60)]
    ends = np.array([0, 60])
    both = [q.predicted(rows, ends, joint=True, instances=False).joint for rows in (X, shuffled)]
    assert both[0] is not None and both[1] is not None
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)


@pytest.mark.parametrize("n", [1, 32, 33, 140, 500])
@pytest.mark.parametrize("largest", [1e2, 1e6])
def test_inverse_factors_of_many_matrices(n: int, largest: float) -> None:
    """Of I + a few large directions, as of bags whose instances a linear kernel makes alike."""
    G = np.random.default_rng(n).normal(size=(3, n, 3))
    B = np.eye(n) + largest / n * G @ G.transpose(0, 2, 1)
    L_inv = inverse_factors(B)
    assert np.all(np.triu(L_inv[0], 1) == 0)
    small = np.eye(3) * n / largest + G.transpose(0, 2, 1) @ G
    exact = np.eye(n) - G @ np.linalg.solve(small, G.transpose(0, 2, 1))  # Woodbury
    np.testing.assert_allclose(L_inv.transpose(0, 2, 1) @ L_inv, exact, atol=1e-15 * largest * 10)
    diagonals = np.diagonal(np.linalg.cholesky(B), axis1=1, axis2=2)
    np.testing.assert_allclose(np.diagonal(L_inv, axis1=1, axis2=2) * diagonals, 1.0, rtol=1e-8)
