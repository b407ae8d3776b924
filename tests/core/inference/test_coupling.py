"""Gains of a coupling: exact pairs, nothing expected by chance, known labels."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import sparse, stats

from bagwise.bags.graphs import neighbor_graph
from bagwise.core.features import whitener
from bagwise.core.inference.coupling import (
    agreement,
    coupled_mean,
    instance_posterior,
    label_covariance,
    neighbor_correlation,
    pair_gains,
)
from bagwise.core.inference.passes import Sweeper, TrainingData
from bagwise.core.inference.stats import standard_q
from bagwise.core.likelihoods.coupled.blocks import Coupling
from bagwise.kernels import RBF
from brute_force import make_targets


def chain(sizes: list[int]) -> sparse.csr_array:
    return neighbor_graph(None, np.concatenate([[0], np.cumsum(sizes)]), "chain")


def test_instance_posterior_by_enumeration() -> None:
    z = np.array([-1.0, 0.3, -2.0, 0.5, -0.2, 0.1, -3.0])
    known = np.array([np.nan, np.nan, 0, np.nan, np.nan, 1, np.nan])
    targets = make_targets([3, 2, 2], [True, False, True], known)
    p, start = stats.norm.cdf(z), 0
    expected = []
    for size, T in zip([3, 2, 2], targets.T, strict=True):
        rows = slice(start, start + size)
        y = np.array(list(itertools.product([0, 1], repeat=size)))
        fits = y.any(axis=1) == T
        told = ~np.isnan(known[rows])
        fits &= np.all(y[:, told] == known[rows][told], axis=1)
        weight = fits * np.prod(np.where(y == 1, p[rows], 1 - p[rows]), axis=1)
        expected.append(weight @ y / weight.sum())
        start += size
    np.testing.assert_allclose(instance_posterior(z, targets), np.concatenate(expected))


def test_instances_that_cannot_be_positive() -> None:
    r = instance_posterior(np.full(3, -60.0), make_targets([3], [True]))
    assert np.all(np.isfinite(r))
    assert pair_gains(r, chain([3]), make_targets([3], [True]), 0.5) == [0]


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.9])
def test_label_covariance(rho: float) -> None:
    h = stats.norm.ppf(0.2)
    both = stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([h, h])
    assert label_covariance(np.array([0.2]), np.array([rho]))[0] == pytest.approx(both - 0.04)


def test_neighbor_correlation_of_a_dense_matrix() -> None:
    W = chain([6])
    sigma = np.linalg.inv(Coupling(W, 0.7).Q.toarray())
    scale = W.toarray() * np.diag(sigma)  # each neighbour's variance, once from either side
    found = neighbor_correlation(Coupling(W, 0.7), make_targets([6], [True]))
    assert found[0] == pytest.approx(np.sum(W.toarray() * sigma) / scale.sum())


def test_gain_of_a_pair_is_that_of_its_four_labels() -> None:
    """In a long bag, where chance takes nothing off, one pair beside strangers without links."""
    n = 100_000
    r = np.full(n, 0.25)
    r[:2], r[2:4] = [0.9, 0.7], [0.0, 0.0]
    W = sparse.csr_array((np.ones(2), ([0, 1], [1, 0])), shape=(n, n))
    targets, pi = make_targets([n], [True]), float(r.mean())
    rho = neighbor_correlation(Coupling(W, 0.5), targets)
    kappa = label_covariance(np.array([pi]), rho)[0]
    prior = np.array([[1 - pi, pi]])
    joint = prior.T * prior + kappa * np.array([[1, -1], [-1, 1]])
    odds = np.array([[(1 - x) / (1 - pi), x / pi] for x in r[:2]])
    evidence = odds[0] @ joint @ odds[1]
    assert pair_gains(r, W, targets, 0.5)[0] == pytest.approx(np.log(evidence), rel=1e-3)


def test_exchanged_places_gain_nothing_to_first_order() -> None:
    r = np.array([0.9, 0.1, 0.4, 0.05, 0.7])
    W, targets = chain([5]), make_targets([5], [True])
    slope = [
        pair_gains(r[list(order)], W, targets, 1e-5)[0]
        for order in itertools.permutations(range(5))
    ]
    assert abs(np.mean(slope)) < 1e-3 * np.std(slope)


def test_bags_that_say_nothing() -> None:
    """Negative bags, pairs, and bags in which all are neighbours of all."""
    r = np.array([0.2, 0.5, 0.0, 0.0, 0.0, 0.9, 0.3, 0.1])
    targets = make_targets([2, 3, 3], [True, False, True])
    W = sparse.csr_array(sparse.block_diag([np.ones((k, k)) - np.eye(k) for k in targets.sizes]))
    gains = pair_gains(r, W, targets, 0.5)
    np.testing.assert_array_equal(gains[:2], 0)
    assert gains[2] <= 0


def chain_sweeper(sizes: list[int], T: list[bool], chunk_size: int | None = None) -> Sweeper:
    X = np.random.default_rng(0).normal(size=(sum(sizes), 2))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = TrainingData(X, offsets, np.array(T), chunk_size=chunk_size, graph=chain(sizes))
    return data.sweeper(whitener(RBF(3.0, 1.5), X[:4], 1e-6))


@pytest.mark.parametrize("chunk_size", [None, 4])
def test_the_mean_lies_as_many_deviations_from_zero_with_a_coupling(chunk_size: int | None) -> None:
    sweeper = chain_sweeper([5, 3], [True, False], chunk_size)
    A, kt = (np.concatenate([getattr(c, name) for c in sweeper.chunks]) for name in ("A", "kt"))
    K = A @ A.T + np.diag(kt)
    sigma = np.linalg.inv(Coupling(chain([5, 3]), 0.8).Q.toarray())
    coupled = np.trace(sigma + sigma @ K @ sigma)
    expected = -2.0 * np.sqrt(coupled / (8 + np.trace(K)))
    assert coupled_mean(sweeper, -2.0, 0.8) == pytest.approx(expected)
    assert coupled_mean(sweeper, -2.0, 0.0) == pytest.approx(-2.0)


def test_agreement_is_about_the_ranks_inside_positive_bags() -> None:
    sweeper = chain_sweeper([5, 3, 1], [True, False, True])
    m = np.array([1.0, -2.0, 0.5, 3.0])
    q = dataclasses.replace(standard_q(4, -1.0), m=m)
    opposite = dataclasses.replace(q, m=-m)
    other = dataclasses.replace(q, m=m[::-1], c0=4.0)
    assert agreement(sweeper, q, q) == pytest.approx(1)
    assert agreement(sweeper, q, opposite) == pytest.approx(-1)
    A = sweeper.chunks[0].A[:5]
    rho = stats.spearmanr(A @ q.m, A @ other.m)[0]
    assert agreement(sweeper, q, other) == pytest.approx(rho)
    assert np.isnan(agreement(sweeper, q, standard_q(4, 0.0))), "a constant f has no ranking"
