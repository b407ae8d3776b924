"""Predictions from q(v) against quadrature over v and the residuals."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from scipy import special

import bagwise as bw
from bagwise.core.features import kernel_matrix, whitener
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.posteriors.points import ordered_root
from brute_force import gauss_hermite_grid

SIZES = [1, 2, 4, 3]
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
NEGATIVE = {"logistic": lambda f: special.expit(-f), "probit": lambda f: special.ndtr(-f)}
each_score = pytest.mark.parametrize("score", ["joint", "noisy-or", "max"])


def training_bags() -> bw.Bags:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.maximum.reduceat(X[:, 0] + X[:, 1] > 1, np.arange(0, 60, 3))
    return bw.Bags.from_arrays(X, np.repeat(np.arange(20), 3), y=y.astype(int))


@pytest.fixture(scope="module", params=list(NEGATIVE))
def fitted(request: pytest.FixtureRequest) -> Posterior:
    cls = bw.VGPMIL if request.param == "logistic" else bw.ProbitVGPMIL
    model = cls(
        kernel=bw.kernels.RBF(4.0, 1.0),
        n_inducing=6,
        learn_hyperparameters=False,
        standardize=False,
        random_state=0,
    )
    return model.fit(training_bags()).posterior_


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    return np.random.default_rng(7).normal(0, 1.5, size=(sum(SIZES), 2))


@dataclass
class Moments:
    """Mean and standard deviation of a probability over the posterior."""

    mean: np.ndarray
    std: np.ndarray


def of_negatives(first: np.ndarray, second: np.ndarray) -> Moments:
    """Moments of 1 - p from E p and E p^2."""
    return Moments(1 - first, np.sqrt(second - first**2))


def quadrature(posterior: Posterior, X: np.ndarray) -> dict[str, Moments]:
    """Moments of instance and bag probabilities over v ~ N(m, S) and r_b ~ N(0, K_bb - A A').

    Bags have four instances at most: f_b = c0 + A_b v + r_b is integrated on a grid.
    """
    A, _ = whitener(posterior.kernel, posterior.Z, posterior.jitter)(X)
    mean = posterior.c0 + A @ posterior.m
    cov = A @ posterior.S @ A.T + kernel_matrix(posterior.kernel, X) - A @ A.T

    def product(rows: list[int]) -> tuple[float, float]:
        """E prod P(y_n = 0 | f_n) and E of its square, over N(mean, cov) of these rows."""
        x, weights = gauss_hermite_grid(28 if len(rows) > 2 else 200, len(rows))
        f = mean[rows] + x @ np.linalg.cholesky(cov[np.ix_(rows, rows)]).T
        P0 = NEGATIVE[posterior.link](f).prod(axis=1)
        return float(weights @ P0), float(weights @ P0**2)

    bags = [list(range(a, b)) for a, b in pairwise(OFFSETS)]
    alone = np.array([product([n]) for n in range(len(X))])
    apart = np.multiply.reduceat(alone, OFFSETS[:-1], axis=0)
    joint = np.array([product(rows) for rows in bags])
    moments = {"instances": alone, "joint": joint, "noisy-or": apart}
    return {name: of_negatives(*values.T) for name, values in moments.items()}


@pytest.fixture(scope="module")
def truth(fitted: Posterior, queries: np.ndarray) -> dict[str, Moments]:
    return quadrature(fitted, queries)


def test_the_fitted_model_is_no_trivial_case(fitted: Posterior, queries: np.ndarray) -> None:
    p, std = fitted.instances(queries)
    _, kt = whitener(fitted.kernel, fitted.Z, fitted.jitter)(queries)
    assert np.ptp(p) > 0.3 and std.max() > 0.1 and kt.max() > 0.5


def test_instances(fitted: Posterior, queries: np.ndarray, truth: dict[str, Moments]) -> None:
    p, std = fitted.instances(queries)
    np.testing.assert_allclose(p, truth["instances"].mean, atol=1e-8)
    np.testing.assert_allclose(std, truth["instances"].std, atol=1e-7)


@pytest.mark.parametrize(("score", "tolerance"), [("joint", 1e-3), ("noisy-or", 1e-8)])
def test_bags(
    fitted: Posterior,
    queries: np.ndarray,
    truth: dict[str, Moments],
    score: str,
    tolerance: float,
) -> None:
    p, std = fitted.bags(queries, OFFSETS, score)
    np.testing.assert_allclose(p, truth[score].mean, atol=tolerance)
    # Points are drawn until P is known, which takes fewer than its deviation would.
    np.testing.assert_allclose(std, truth[score].std, atol=1e-2 if score == "joint" else 1e-3)


def test_max_takes_the_most_probable_instance(fitted: Posterior, queries: np.ndarray) -> None:
    p, std = fitted.instances(queries)
    bag_p, bag_std = fitted.bags(queries, OFFSETS, "max")
    for b, (start, end) in enumerate(pairwise(OFFSETS)):
        top = start + int(np.argmax(p[start:end]))
        assert (bag_p[b], bag_std[b]) == (p[top], std[top])


def test_latent_moments(fitted: Posterior, queries: np.ndarray) -> None:
    mean, variance = fitted.latent(queries)
    A, kt = whitener(fitted.kernel, fitted.Z, fitted.jitter)(queries)
    np.testing.assert_allclose(mean, fitted.c0 + A @ fitted.m, rtol=1e-12)
    np.testing.assert_allclose(variance, np.diag(A @ fitted.S @ A.T) + kt, rtol=1e-10)


def test_far_from_the_data_the_prior_returns(fitted: Posterior) -> None:
    mean, variance = fitted.latent(np.full((1, 2), 1e3))
    assert mean[0] == pytest.approx(fitted.c0)
    assert variance[0] == pytest.approx(4.0)


@each_score
def test_a_bag_of_one_is_its_instance(fitted: Posterior, queries: np.ndarray, score: str) -> None:
    p, std = fitted.instances(queries)
    bag_p, bag_std = fitted.bags(queries, np.arange(len(queries) + 1), score)
    np.testing.assert_allclose(bag_p, p, atol=1e-9)
    np.testing.assert_allclose(bag_std, std, atol=1e-8)


@each_score
def test_predictions_are_deterministic(fitted: Posterior, queries: np.ndarray, score: str) -> None:
    first, second = (fitted.bags(queries, OFFSETS, score) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@each_score
def test_predictions_do_not_depend_on_other_bags(
    fitted: Posterior, queries: np.ndarray, score: str
) -> None:
    p, std = fitted.bags(queries, OFFSETS, score)
    for b, (start, end) in enumerate(pairwise(OFFSETS)):
        alone = fitted.bags(queries[start:end], np.array([0, end - start]), score)
        np.testing.assert_allclose(alone, ([p[b]], [std[b]]), rtol=1e-9, atol=1e-12)


@each_score
def test_the_order_of_instances_hardly_matters(
    fitted: Posterior, queries: np.ndarray, score: str
) -> None:
    whole = np.array([0, len(queries)])
    p, std = fitted.bags(queries, whole, score)
    p_back, std_back = fitted.bags(queries[::-1], whole, score)
    np.testing.assert_allclose([p_back, std_back], [p, std], atol=1e-3)


def test_joint_lies_between_its_best_instance_and_certainty(
    fitted: Posterior, queries: np.ndarray
) -> None:
    top, _ = fitted.bags(queries, OFFSETS, "max")
    p, std = fitted.bags(queries, OFFSETS, "joint")
    assert np.all(p >= top - 1e-3) and np.all(p <= 1)
    assert np.all(std**2 <= p * (1 - p) + 1e-6)


def test_a_large_bag_neither_underflows_nor_fails(fitted: Posterior) -> None:
    X = np.random.default_rng(0).normal(0, 3, size=(800, 2))
    p, std = fitted.bags(X, np.array([0, 800]), "joint")
    assert 0.99 < p[0] <= 1 and 0 <= std[0] < 0.1


def test_roots_put_what_matters_first() -> None:
    rng = np.random.default_rng(0)
    S, L = (x @ x.T for x in rng.normal(size=(2, 6, 6)))
    for root, seen in ((ordered_root(S), np.eye(6)), (ordered_root(S, L), L)):
        np.testing.assert_allclose(root @ root.T, S, atol=1e-10)
        gram = (seen @ root).T @ (seen @ root)
        np.testing.assert_allclose(gram, np.diag(np.diagonal(gram)), atol=1e-8 * gram.max())
        assert np.all(np.diff(np.diagonal(gram)) <= 1e-12)
