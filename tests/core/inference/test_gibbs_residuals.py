"""Gibbs sampling where residuals covary within a bag, against dense algebra and quadrature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from scipy.linalg import block_diag

from bagwise.core import residuals
from bagwise.core.features import Whitener, kernel_matrix, whitener
from bagwise.core.inference import gibbs
from bagwise.core.inference.chains import run_chains
from bagwise.core.inference.diagnostics import effective_sample_size
from bagwise.core.inference.gibbs import GibbsSampler
from bagwise.core.inference.passes import Sweeper, TrainingData
from bagwise.core.inference.stats import Chunk
from bagwise.core.likelihoods.at_least_one import Targets
from bagwise.core.residuals import split_residuals
from bagwise.kernels import RBF, Kernel, Linear, Matern
from brute_force import bag_slices, gauss_hermite_grid, make_targets

SIZES = [1, 2, 3, 3, 2]
LABELS = [False, True, True, False, True]
KNOWN = np.array([np.nan, np.nan, 0, np.nan, np.nan, np.nan, 0, np.nan, np.nan, 1, np.nan])
C0 = -0.4
SIGMA = 5.0


def make_problem(known: np.ndarray | None = None) -> tuple[Sweeper, Chunk, Whitener]:
    """Two inducing points, so that most of f is residual; bags with likes and with copies."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(sum(SIZES), 2))
    X[4], X[10] = X[3], X[9] + 0.2  # copies, and nearly copies
    features = whitener(RBF(4.0, 1.2), np.array([[-0.7, 0.3], [0.8, -0.2]]), 1e-6)
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    sweeper = Sweeper(TrainingData(X, offsets, np.array(LABELS), known), features)
    return sweeper, sweeper.chunks[0], features


def residual_blocks(chunk: Chunk, kernel: Kernel) -> Iterator[np.ndarray]:
    """K_bb - A_b A_b' of each bag."""
    for rows, _ in bag_slices(chunk.targets):
        yield kernel_matrix(kernel, chunk.X[rows]) - chunk.A[rows] @ chunk.A[rows].T


def z_scores(draws: np.ndarray, truth: np.ndarray) -> np.ndarray:
    error = draws.std(axis=(0, 1)) / np.sqrt(effective_sample_size(draws))
    return (draws.mean(axis=(0, 1)) - truth) / error


# --- The covariance ---------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [RBF(4.0, 1.0), Matern(0.5, 2.0, 2.0), Linear(1.0)])
@pytest.mark.parametrize("copies", [False, True])
def test_residuals_are_split_without_loss(kernel: Kernel, copies: bool) -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([1, 2, 7, 60, 128, 1, 5])
    X = rng.normal(size=(sizes.sum(), 5))
    if copies:
        X[1:] = np.where(rng.random((len(X) - 1, 1)) < 0.3, X[:-1], X[1:])
    starts = np.cumsum(sizes) - sizes
    A, kt = whitener(kernel, rng.normal(size=(2, 5)), 1e-6)(X)
    G, rest = split_residuals(kernel, X, A, kt, starts)
    assert np.all(rest >= 0) and G.shape[1] <= 128
    for start, size in zip(starts, sizes, strict=True):
        rows = slice(start, start + size)
        R = kernel_matrix(kernel, X[rows]) - A[rows] @ A[rows].T
        found = G[rows] @ G[rows].T + np.diag(rest[rows])
        np.testing.assert_allclose(found, R, atol=3e-5)
        np.testing.assert_allclose(np.diagonal(found), kt[rows], atol=1e-9)


def test_what_is_not_shared_stays_apart() -> None:
    """Links average over it in closed form."""
    kernel = RBF(4.0, 0.05)
    X = np.random.default_rng(0).normal(size=(40, 6))
    X[1] = X[0]
    A, kt = whitener(kernel, X[:1] + 3.0, 1e-6)(X)
    G, rest = split_residuals(kernel, X, A, kt, np.array([0]))
    assert G.shape[1] == 1
    np.testing.assert_allclose(rest, np.where(np.arange(40) < 2, 0, 4.0), atol=1e-5)


def test_large_bags_go_through_landmarks() -> None:
    rng = np.random.default_rng(0)
    X = np.tile(rng.normal(size=(30, 3)), (10, 1))  # 30 unlike rows, ten times
    kernel = RBF(4.0, 1.0)
    A, kt = whitener(kernel, rng.normal(size=(2, 3)), 1e-6)(X)
    G, rest = split_residuals(kernel, X, A, kt, np.array([0]))
    assert len(X) > residuals.DENSE and G.shape[1] <= 30
    R = kernel_matrix(kernel, X) - A @ A.T
    np.testing.assert_allclose(G @ G.T + np.diag(rest), R, atol=1e-3)


# --- The sampler ------------------------------------------------------------------------------


def test_conditionals_are_bayes_rule() -> None:
    _, chunk, features = make_problem()
    sampler = GibbsSampler([chunk], C0, features)
    noise = np.eye(len(chunk.kt)) + block_diag(*residual_blocks(chunk, features.kernel))
    m = np.random.default_rng(0).normal(size=len(chunk.kt))
    noisy = chunk.A @ chunk.A.T + noise
    mean = chunk.A.T @ np.linalg.solve(noisy, m - C0)
    np.testing.assert_allclose(sampler.mean_v(m), mean, rtol=1e-4)
    S = np.eye(2) - chunk.A.T @ np.linalg.solve(noisy, chunk.A)
    np.testing.assert_allclose(sampler.S, S, rtol=1e-4)
    assert sampler.log_det_S == pytest.approx(np.linalg.slogdet(S)[1], rel=1e-4)
    # Shared residuals given m and v, with what is left apart integrated out.
    b = sampler.blocks[0]
    x = m - b.latent(mean, C0)
    found = b.shared.spread(b.shared.mean(x / b.s**2))
    own = np.diag(b.s**2)
    np.testing.assert_allclose(found, (noise - own) @ np.linalg.solve(noise, x), atol=1e-4)
    unit = np.eye(b.shared.n_factors)
    draws = np.array(
        [b.shared.spread(b.shared.draw(np.zeros_like(b.shared.shrinkage), e)) for e in unit]
    )
    covariance = (noise - own) @ np.linalg.solve(noise, own)
    np.testing.assert_allclose(draws.T @ draws, covariance, atol=1e-4)


def quadrature_log_prob(v: np.ndarray, chunk: Chunk, kernel: Kernel) -> np.ndarray:
    """log p(T, known | v) of points v (S, M), residuals averaged over by quadrature."""
    total = np.zeros(len(v))
    blocks = residual_blocks(chunk, kernel)
    for (rows, T), R in zip(bag_slices(chunk.targets), blocks, strict=True):
        values, vectors = np.linalg.eigh(R)
        e, weights = gauss_hermite_grid(12, len(R))
        r = e @ (vectors * np.sqrt(np.maximum(values, 0))).T  # (Q, n)
        mu = C0 + v @ chunk.A[rows].T
        f = mu[:, None, :] + r  # (S, Q, n)
        known = (
            np.full(len(R), np.nan) if chunk.targets.known is None else chunk.targets.known[rows]
        )
        settled = np.nanmax(np.append(known, 0)) == 1
        p1 = special.ndtr(f)
        certain = np.where(np.isnan(known), 1.0, np.where(known == 1, p1, 1 - p1)).prod(axis=2)
        none = np.where(np.isnan(known), 1 - p1, 1.0).prod(axis=2)
        label = 1.0 if settled else (1 - none if T else none)
        total += np.log((certain * label) @ weights)
    return total


@pytest.mark.parametrize("known", [None, KNOWN], ids=["bags", "some-instances"])
def test_posterior_of_v_is_that_of_quadrature(known: np.ndarray | None) -> None:
    sweeper, chunk, features = make_problem(known)
    axis = np.linspace(-4.5, 4.5, 25)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = quadrature_log_prob(grid, chunk, features.kernel) - 0.5 * np.sum(grid**2, axis=1)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    second = (grid * weights[:, None]).T @ grid

    result = run_chains(sweeper, C0, n_samples=2000, burn_in=100, n_chains=4, seed=2, n_jobs=1)
    assert result.max_r_hat < 1.02 and result.min_ess > 500
    assert np.max(np.abs(z_scores(result.v, mean))) < SIGMA
    assert np.max(np.abs(z_scores(result.means, mean))) < SIGMA
    products = (result.means[..., :, None] * result.means[..., None, :]).reshape(4, -1, 4)
    assert np.max(np.abs(z_scores(products, (second - result.S).ravel()))) < SIGMA


def labels_of(m: np.ndarray) -> Targets:
    T = np.maximum.reduceat(m > 0, np.cumsum(SIZES) - SIZES)
    return make_targets(SIZES, T.tolist())


def quantities(v: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Functions of (v, m) whose expectations must agree, one row per draw."""
    T = np.maximum.reduceat(m > 0, np.cumsum(SIZES) - SIZES, axis=1)
    bags = np.repeat(T, SIZES, axis=1)
    return np.hstack([v, v**2, v[:, :1] * v[:, 1:], m, m**2, m[:, 1:] * m[:, :-1], T, bags * m])


def test_joint_distribution() -> None:
    """Forward simulation and alternating (v, m | T), (m, T | v) visit the same joint [Geweke]."""
    _, template, features = make_problem()
    R = block_diag(*residual_blocks(template, features.kernel))
    root = np.linalg.cholesky(np.eye(len(R)) + R)
    rng = np.random.default_rng(11)

    def forward(v: np.ndarray) -> np.ndarray:
        return C0 + v @ template.A.T + rng.normal(size=(len(v), len(R))) @ root.T

    v = rng.normal(size=(100_000, 2))
    expected = quantities(v, forward(v))
    sampler = GibbsSampler([template], C0, features)
    block = sampler.blocks[0]
    state = sampler.init_state(rng)
    visited = []
    for _ in range(4000):
        m = forward(state.v[None])[0]
        targets = labels_of(m)
        sampler.blocks = [replace(block, targets=targets, fixed=gibbs.fixed_sides(targets))]
        state = sampler.step(rng, replace(state, m=m))
        visited.append((state.v, state.m))
    found = quantities(*(np.array(x) for x in zip(*visited, strict=True)))
    own = expected.std(axis=0) / np.sqrt(len(expected))
    error = found.std(axis=0) / np.sqrt(effective_sample_size(found[None]))
    z = (found.mean(axis=0) - expected.mean(axis=0)) / np.hypot(own, error)
    assert np.max(np.abs(z)) < SIGMA


def test_labels_are_respected_and_draws_do_not_depend_on_chunks() -> None:
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 6, 30)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(int(offsets[-1]), 2))
    T = np.maximum.reduceat(X.sum(axis=1) > 1.5, offsets[:-1])
    features = whitener(RBF(4.0, 0.7), X[:6], 1e-6)
    states = []
    for chunk_size in (None, 7):
        data = TrainingData(X, offsets, T, None, chunk_size)
        sampler = GibbsSampler(list(Sweeper(data, features).chunks), -1.0, features)
        assert sampler.n_factors > 0
        generator = np.random.default_rng(0)
        state = sampler.init_state(generator)
        for _ in range(20):
            state = sampler.step(generator, state)
            np.testing.assert_array_equal(np.maximum.reduceat(state.m > 0, offsets[:-1]), T)
        states.append(state)
    np.testing.assert_allclose(states[0].v, states[1].v, rtol=1e-6)
    assert states[0].log_joint == pytest.approx(states[1].log_joint, rel=1e-6)


def test_with_all_instances_as_inducing_points_nothing_is_left_to_share() -> None:
    """There the sampled model is the Gaussian process itself."""
    _, chunk, features = make_problem()
    X = np.unique(chunk.X, axis=0)
    every = whitener(features.kernel, X, 1e-6)
    A, kt = every(chunk.X)
    sampler = GibbsSampler([replace(chunk, A=A, kt=kt)], C0, every)
    np.testing.assert_allclose(sampler.blocks[0].s, 1.0, atol=1e-5)
    K = kernel_matrix(features.kernel, chunk.X)
    m = np.random.default_rng(0).normal(size=len(K))
    f = K @ np.linalg.solve(K + np.eye(len(K)), m - C0)
    np.testing.assert_allclose(A @ sampler.mean_v(m), f, atol=1e-4)
