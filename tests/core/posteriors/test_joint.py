"""Joint bag probabilities: residuals that covary, digits of rare labels, company and chunks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import special

import bagwise as bw
from bagwise.core import residuals
from bagwise.core.features import kernel_matrix
from bagwise.core.inference import passes
from bagwise.core.links import Moments, Probit
from bagwise.core.posteriors import joint
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.posteriors.gibbs import averaged
from bagwise.kernels import RBF, Constant, Kernel, Linear, Matern

KERNELS: dict[str, Kernel] = {
    "rbf": RBF(1.5, 1.0),
    "ard": RBF(1.5, (1.0, 2.0, 0.5)),
    "matern": Matern(0.5, 1.5, 1.0),
    "sum": RBF(1.0, 0.5) + Linear(0.05) + Constant(0.3),
}
each_kernel = pytest.mark.parametrize("name", KERNELS)
each_link = pytest.mark.parametrize("link", ["probit", "logistic"])


def make_posterior(kernel: Kernel = KERNELS["rbf"], link: str = "probit", c0: float = -1.0):
    """A posterior that knows little: most of the variance is that of the residuals."""
    rng = np.random.default_rng(0)
    root = 0.4 * rng.normal(size=(4, 4))
    return Posterior(
        kernel=kernel,
        Z=rng.normal(size=(4, 3)),
        m=rng.normal(size=4),
        S=root @ root.T + 0.05 * np.eye(4),
        c0=c0,
        link=link,
        shift=np.zeros(3),
        scale=np.ones(3),
        jitter=1e-6,
        seed=3,
    )


def joint_of(q: Posterior, X: np.ndarray, offsets: np.ndarray, **more) -> Moments:
    found = q.predicted(X, offsets, joint=True, instances=False, **more).joint
    assert found is not None
    return found


def covariance(q: Posterior, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of f in one bag, written out."""
    A, _ = q.features(X)
    return q.c0 + A @ q.m, A @ q.S @ A.T + kernel_matrix(q.kernel, X) - A @ A.T


def log_negative(link: str, f: np.ndarray) -> np.ndarray:
    return special.log_ndtr(-f) if link == "probit" else special.log_expit(-f)


def by_many_draws(q: Posterior, X: np.ndarray) -> tuple[float, float]:
    """P0 and its standard error, 60,000 draws of all f."""
    mean, C = covariance(q, X)
    values, vectors = np.linalg.eigh(C)
    e = np.random.default_rng(9).normal(size=(60_000, len(X)))
    f = mean + e @ (vectors * np.sqrt(np.maximum(values, 0))).T
    P0 = np.exp(log_negative(q.link, f).sum(axis=1))
    return float(P0.mean()), float(P0.std() / np.sqrt(len(P0)))


@each_link
@pytest.mark.parametrize("c0", [-2.0, 0.5, 4.0])
@pytest.mark.parametrize("copies", [2, 10, 300])
def test_copies_share_their_f(link: str, c0: float, copies: int) -> None:
    q = make_posterior(link=link, c0=c0)
    X = np.tile([[0.4, -0.2, 2.5]], (copies, 1))
    mean, C = covariance(q, X[:1])
    t, weights = np.polynomial.hermite_e.hermegauss(120)
    logs = copies * log_negative(link, mean[0] + np.sqrt(C[0, 0]) * t)
    log_P0 = special.logsumexp(logs, b=weights / weights.sum())
    found = joint_of(q, X, np.array([0, copies]))
    assert np.exp(found.log_negative[0]) == pytest.approx(np.exp(log_P0), rel=0.02, abs=1e-12)
    assert np.exp(found.log_positive[0]) == pytest.approx(-np.expm1(log_P0), abs=1e-3)


@each_kernel
@each_link
@pytest.mark.parametrize(("n", "spread"), [(3, 1.0), (25, 0.7), (90, 0.4)])
def test_residuals_covary_as_the_kernel_says(name: str, link: str, n: int, spread: float) -> None:
    q = make_posterior(KERNELS[name], link)
    X = 1.0 + spread * np.random.default_rng(n).normal(size=(n, 3))
    P0, error = by_many_draws(q, X)
    found = joint_of(q, X, np.array([0, n]))
    assert np.exp(found.log_negative[0]) == pytest.approx(P0, abs=1e-3 + 5 * error)


def test_factors_are_exact_for_small_bags_and_follow_in_large_ones() -> None:
    q = make_posterior()
    rng = np.random.default_rng(1)
    for n, tolerance in ((20, 1e-3), (400, 0.05)):
        X = 2.0 + 0.3 * rng.normal(size=(n, 3))
        A, kt = q.features(X)
        G, rest = residuals.factor_residuals(q.kernel, X, A, kt, np.ones(n), np.array([0]))
        R = kernel_matrix(q.kernel, X) - A @ A.T
        missing = R - G @ G.T - np.diag(rest)
        np.testing.assert_allclose(np.diagonal(missing), 0, atol=1e-8)
        assert np.linalg.norm(missing) < tolerance * np.linalg.norm(R)


def test_rare_negatives_keep_their_digits() -> None:
    q = make_posterior(RBF(0.02, 1.0), c0=9.0)
    X = np.array([[0.1, 0.2, 0.3], [0.2, 0.1, 0.4]])
    mean, C = covariance(q, X)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    root = np.linalg.cholesky(C)
    f = mean + np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2) @ root.T
    w = np.outer(weights, weights).ravel() / weights.sum() ** 2
    log_P0 = special.logsumexp(special.log_ndtr(-f).sum(axis=1), b=w)
    found = joint_of(q, X, np.array([0, 2]))
    assert log_P0 < np.log(1e-20)
    assert found.log_negative[0] == pytest.approx(log_P0, abs=0.02)


def test_columns_of_confident_bags_are_positive_numbers() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) + np.repeat([[3.0, 0.0], [-3.0, 0.0]], 20, axis=0)
    bags = bw.Bags.from_arrays(X, np.repeat(np.arange(20), 2), y=np.repeat([1, 0], 10))
    settings = {"kernel": RBF(1.0, 3.0), "learn_hyperparameters": False, "bag_score": "joint"}
    model = bw.ProbitVGPMIL(**settings, mean=-1.0, n_inducing=10, random_state=0).fit(bags)
    model.posterior_ = replace(model.posterior_, c0=11.0)
    both, std = model.predict_proba(bags, return_std=True)
    assert np.all(both[:, 0] > 0) and np.all(both[:, 0] < 1e-20) and np.all(std > 0)
    np.testing.assert_array_equal(model.predict_proba(bags), both)
    each, std = model.predict_instance_proba(bags, return_std=True)
    assert np.all(each[:, 0] > 0) and np.all(each[:, 0] < 1e-16) and np.all(std > 0)


def test_rare_positives_keep_their_digits() -> None:
    q = make_posterior(RBF(0.02, 1.0), c0=-7.5)
    X = np.array([[0.1, 0.2, 0.3], [2.2, 0.1, 0.4], [0.3, 0.3, 0.3]])
    alone = q.predicted(X, np.arange(4), joint=False, instances=True).instances
    found = joint_of(q, X, np.array([0, 3]))
    assert alone is not None
    expected = np.exp(alone.log_positive).sum()  # of events this rare no two happen
    assert expected < 1e-9
    assert np.exp(found.log_positive[0]) == pytest.approx(expected, rel=1e-3)


def many_bags() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    sizes = np.append(rng.integers(1, 40, 30), [150, 2, 1])
    return rng.normal(0.3, 1.0, size=(sizes.sum(), 3)), np.append(0, np.cumsum(sizes))


@each_link
def test_neither_company_nor_chunks_matter(link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    q = make_posterior(link=link)
    X, offsets = many_bags()
    together = joint_of(q, X, offsets)
    assert np.ptp(np.exp(together.log_negative)) > 0.3
    for b, (a, z) in enumerate(pairwise(offsets)):
        alone = joint_of(q, X[a:z], np.array([0, z - a]))
        for part, whole in zip(alone, together, strict=True):
            np.testing.assert_allclose(part[0], whole[b], rtol=1e-7, atol=1e-12)
    monkeypatch.setattr(passes, "rows_per_chunk", lambda n_features: 60)
    monkeypatch.setattr(joint, "NUMBERS_AT_ONCE", 5000)
    monkeypatch.setattr(residuals, "NUMBERS_AT_ONCE", 2000)
    for part, whole in zip(joint_of(q, X, offsets), together, strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-7, atol=1e-12)


@each_link
def test_few_draws_are_as_good_as_many(link: str) -> None:
    q = make_posterior(link=link)
    X, offsets = many_bags()
    found, reference = joint_of(q, X, offsets), joint_of(q, X, offsets, stages=(64, 2**14))
    P0, true = np.exp(found.log_negative), np.exp(reference.log_negative)
    np.testing.assert_allclose(P0, true, atol=1.5e-3)
    np.testing.assert_allclose(P0, true, rtol=0.03)


def test_one_pass_gives_what_single_calls_give() -> None:
    bags, _ = bw.datasets.make_bags(40, 6, 2, random_state=0)
    for score in ("calibrated", "joint", "noisy-or", "max"):
        model = bw.ProbitVGPMIL(
            kernel=RBF(1.0, 1.0), learn_hyperparameters=False, n_inducing=10, bag_score=score
        ).fit(bags)
        found = model.predict_all(bags)
        bag_p, bag_std = model.predict_proba(bags, return_std=True)
        p, std = model.predict_instance_proba(bags, return_std=True)
        for one, other in zip(
            (found.bag_p, found.bag_std, found.p, found.std), (bag_p, bag_std, p, std), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_no_bag_is_less_probable_than_its_instances_nor_more_than_their_sum() -> None:
    rng = np.random.default_rng(5)
    bags = bw.Bags.from_list([rng.normal(size=(n, 2)) for n in (1, 2, 5, 40, 3)] * 4)
    train = bw.Bags.from_list([rng.normal(size=(4, 2)) for _ in range(12)], y=[0, 1] * 6)
    for mean in (-2000.0, -40.0, -3.0, 0.0, 3.0):
        far = {"kernel": bw.kernels.RBF(1.0, 1.0), "mean": mean, "learn_hyperparameters": False}
        model = bw.VGPMIL(**far, random_state=0).fit(train)
        found = model.posterior_.predicted(bags.X, bags.offsets, joint=True, instances=True)
        starts = bags.offsets[:-1]
        assert found.joint is not None and found.instances is not None
        log_p = found.joint.log_positive
        assert np.all(log_p >= np.maximum.reduceat(found.instances.log_positive, starts))
        total = np.logaddexp.reduceat(found.instances.log_positive, starts)
        assert np.all(log_p <= np.minimum(total, 0) + 1e-9)
        np.testing.assert_allclose(np.exp(log_p) + np.exp(found.joint.log_negative), 1)


def test_copies_in_large_bags_are_one_chance_each_in_any_order() -> None:
    """30 points far from each other and from Z, ten times each: P0 = (E Phi(-f)^10)^30."""
    q = make_posterior(RBF(4.0, 0.5), c0=-5.0)
    grid = np.stack(np.meshgrid(np.arange(6), np.arange(5), [0]), -1).reshape(-1, 3)
    X = np.repeat(50 + 3.0 * grid, 10, axis=0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    P0 = (weights @ special.ndtr(5 - 2 * nodes) ** 10 / weights.sum()) ** 30
    shuffled = np.random.default_rng(0).permutation(len(X))
    ends = np.array([0, len(X)])
    found = [np.exp(joint_of(q, rows, ends).log_negative) for rows in (X, X[shuffled])]
    np.testing.assert_allclose(found, P0, atol=8e-3)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-8)


def test_mixtures_with_a_far_component_keep_their_deviation() -> None:
    mean = np.array([[0.0, 0.0, 100.0]])
    parts = Probit().moments(mean, np.ones((1, 3)))
    found = averaged(parts, np.full(3, 1 / 3))
    first, second = np.exp(parts.log_negative), np.exp(2 * parts.log_negative + parts.log_ratio)
    expected = np.sqrt(second.mean() - first.mean() ** 2)
    np.testing.assert_allclose(found.std, expected, rtol=1e-6)


def test_what_is_an_instances_own_stays_out_of_the_points_in_large_bags_too() -> None:
    # Unlike instances that all share a little with all others: no few factors will do.
    kernel, n = RBF(2.0, 3.0), 200
    X = np.random.default_rng(0).normal(size=(n, 20))
    A, kt, weight = np.zeros((n, 1)), np.full(n, 2.0), np.full(n, 0.3)
    G, rest = residuals.factor_residuals(kernel, X, A, kt, weight, np.array([0]))
    R = kernel.cross(X, X)
    np.testing.assert_allclose(G @ G.T + np.diag(rest), R, atol=1e-4)
    assert np.all(rest > 0.1 * residuals.own_variance(R[None])[0])
    lengths = np.sum(G**2, axis=0)
    assert lengths[0] > 5 * lengths[1] and np.all(np.diff(lengths) < 1e-9)


@pytest.mark.parametrize("link", ["probit", "logistic"])
def test_large_bags_of_sure_negatives(link: str) -> None:
    """Many rows of which none matters much have no landmarks; that ended in an error."""
    kernel, n = RBF(1.0, 1.0), 1000
    X = np.random.default_rng(0).normal(size=(n, 8))
    A, kt, starts = np.zeros((n, 1)), np.ones(n), np.array([0])
    G, rest = residuals.factor_residuals(kernel, X, A, kt, np.full(n, 5e-4), starts)
    assert G.shape == (n, 0) and np.all(rest == 1)
    G, rest = residuals.split_residuals(kernel, X, A, 1e-8 * kt, starts)
    assert G.shape == (n, 0)
    q = make_posterior(RBF(0.05, 1.0), link, c0=-4.5 if link == "probit" else -9.0)
    X = 3.0 + np.random.default_rng(1).normal(size=(3000, 3))
    ends = np.array([0, 3000])
    for stages in (joint.STAGES, joint.STAGES[1:]):
        found = joint_of(q, X, ends, stages=stages)
        alone = q.predicted(X, ends, joint=False, instances=True).instances
        assert alone is not None
        total = np.exp(alone.log_positive).sum()
        assert np.exp(found.log_positive[0]) == pytest.approx(total, rel=0.25)
