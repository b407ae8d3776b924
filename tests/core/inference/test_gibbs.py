"""Gibbs sampling against forward simulation, quadrature and enumeration; its predictions."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from bagwise.core.features import whitener
from bagwise.core.files.modelfile import read_state, register, write_state
from bagwise.core.inference import gibbs
from bagwise.core.inference.chains import GibbsResult, run_chains
from bagwise.core.inference.diagnostics import effective_sample_size
from bagwise.core.inference.gibbs import GibbsSampler
from bagwise.core.inference.label_draws import draw_sides, fixed_sides, truncated_normal
from bagwise.core.inference.passes import Sweeper, TrainingData
from bagwise.core.inference.stats import Chunk, Q
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.links import Probit
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.posteriors.gibbs import GibbsPosterior, grouped
from bagwise.kernels import RBF
from brute_force import make_targets

SIZES = [1, 2, 3, 3, 2]
LABELS = [False, True, True, False, True]
KNOWN = np.array([np.nan, np.nan, 0, np.nan, np.nan, np.nan, 0, np.nan, np.nan, 1, np.nan])
C0 = -0.4
SIGMA = 5.0


def make_chunk(targets: Targets, M: int = 2, seed: int = 0) -> Chunk:
    rng = np.random.default_rng(seed)
    n = int(targets.sizes.sum())
    X = np.zeros((n, 1))
    return Chunk(X, 1.5 * rng.normal(size=(n, M)), rng.gamma(2.0, 1.0, size=n), targets)


def make_sweeper(n_bags: int = 30, chunk_size: int | None = None) -> Sweeper:
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 6, n_bags)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(int(offsets[-1]), 2))
    T = np.maximum.reduceat(X.sum(axis=1) > 1.5, offsets[:-1])
    known = np.full(len(X), np.nan)
    known[:12] = np.where(rng.random(12) < 0.5, X[:12].sum(axis=1) > 1.5, np.nan)
    data = TrainingData(X, offsets, T, known, chunk_size)
    return Sweeper(data, whitener(RBF(2.0, 1.0), X[:6], 1e-6))


class SweeperOf(Sweeper):
    """Chunks made by hand."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self.chunks = chunks
        self.whitener = None  # residuals are independent


def z_scores(draws: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(mean - truth) / standard error of draws (chains, samples, quantities)."""
    error = draws.std(axis=(0, 1)) / np.sqrt(effective_sample_size(draws))
    return (draws.mean(axis=(0, 1)) - truth) / error


# --- The parts ------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("mean", [-1e9, -300, -40, -3, 0, 3, 40, 300, 1e9])
def test_truncated_draws_are_finite_and_on_their_side(mean: float, side: int) -> None:
    log_u = -np.random.default_rng(0).standard_exponential(20_000)
    sides = np.full(len(log_u), side)
    m = truncated_normal(np.full(len(log_u), mean), np.full(len(log_u), 1.3), sides, log_u)
    assert np.all(np.isfinite(m)) and np.all(side * m >= 0) and np.mean(m == 0) < 1e-3


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("mean", [-60, -3.0, 0.0, 1.0, 8.0, 60, 190, 210, 1000])
def test_truncated_draws_have_their_distribution(mean: float, side: int) -> None:
    s = 1.3
    log_u = -np.random.default_rng(1).standard_exponential(50_000)
    sides = np.full(len(log_u), side)
    m = truncated_normal(np.full(len(log_u), mean), np.full(len(log_u), s), sides, log_u)
    # log P(|m| beyond what was drawn) is minus a standard exponential.
    tail = special.log_ndtr((side * mean - side * m) / s) - special.log_ndtr(side * mean / s)
    assert stats.kstest(-tail, "expon").pvalue > 1e-4
    np.testing.assert_allclose(tail, log_u, rtol=1e-5, atol=1e-5)


def test_untruncated_draws() -> None:
    log_u = -np.random.default_rng(1).standard_exponential(50_000)
    m = truncated_normal(np.full(50_000, 2.0), np.full(50_000, 3.0), np.zeros(50_000), log_u)
    assert stats.kstest(m, "norm", args=(2.0, 3.0)).pvalue > 1e-4


@pytest.mark.parametrize(
    ("z", "known"),
    [
        ([0.3, -1.0, 0.5, -0.2], None),
        ([-9.0, -10.0, -9.5], None),
        ([-1.0, 40.0, 1.0], None),
        ([-30.0, -30.5], None),
        ([1.0, -0.5, 0.3, 0.2], [0.0, np.nan, 0.0, np.nan]),
    ],
)
def test_first_positive_frequencies(z: list[float], known: list[float] | None) -> None:
    copies, n = 40_000, len(z)
    known_all = None if known is None else np.tile(known, copies)
    targets = make_targets([n] * copies, [True] * copies, known_all)
    rng = np.random.default_rng(0)
    fixed = fixed_sides(targets)
    exponentials = rng.standard_exponential(n * copies)
    side, log_prob = draw_sides(np.tile(z, copies), fixed, targets, exponentials)
    side = side.reshape(copies, n)
    assert np.all(np.sum(side == 1, axis=1) == 1)
    frequency = np.mean(side == 1, axis=0)
    free = np.ones(n, dtype=bool) if known is None else np.isnan(known)
    negative = np.where(free, special.ndtr(-np.array(z)), 1.0)
    before = np.concatenate([[1.0], np.cumprod(negative)[:-1]])
    exact = np.where(free, before * special.ndtr(z), 0.0)
    own = np.sum(special.log_ndtr(-np.array(z))[~free])
    np.testing.assert_allclose(log_prob, np.log(exact.sum()) + own, rtol=1e-9, atol=1e-9)
    exact /= exact.sum()
    assert np.all(
        np.abs(frequency - exact) <= SIGMA * np.sqrt(exact * (1 - exact) / copies) + 1e-12
    )
    # Free instances before the first positive one are negative, those after it are open.
    first = np.argmax(side == 1, axis=1)[:, None]
    assert np.all(side[(np.arange(n) < first) & free] == -1)
    assert np.all(side[(np.arange(n) > first) & free] == 0)


@pytest.mark.parametrize("known", [None, KNOWN])
def test_log_joint_is_that_of_the_bag_likelihood(known: np.ndarray | None) -> None:
    chunk = make_chunk(make_targets(SIZES, LABELS, known))
    state = GibbsSampler([chunk], C0).init_state(np.random.default_rng(0))
    z = (C0 + chunk.A @ state.v) / np.sqrt(1 + chunk.kt)
    truth = BagLikelihood(Probit()).log_prob(z, chunk.targets).sum() - 0.5 * state.v @ state.v
    assert state.log_joint == pytest.approx(truth, rel=1e-12)


def test_conditional_of_v_is_bayes_rule() -> None:
    chunk = make_chunk(make_targets(SIZES, LABELS))
    sampler = GibbsSampler([chunk], C0)
    m = np.random.default_rng(0).normal(size=sum(SIZES))
    noisy = chunk.A @ chunk.A.T + np.diag(1 + chunk.kt)
    np.testing.assert_allclose(sampler.mean_v(m), chunk.A.T @ np.linalg.solve(noisy, m - C0))
    S = np.eye(2) - chunk.A.T @ np.linalg.solve(noisy, chunk.A)
    np.testing.assert_allclose(sampler.S, S)
    assert sampler.log_det_S == pytest.approx(np.linalg.slogdet(S)[1])


# --- The whole ------------------------------------------------------------------------------


def geweke_quantities(v: np.ndarray, m: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Functions of (v, m, T) whose expectations must agree, one row per draw."""
    bags = np.repeat(T, SIZES, axis=-1)
    products = (v[..., :, None] * v[..., None, :])[..., [0, 0, 1], [0, 1, 1]]
    return np.concatenate([v, products, m, m**2, T, bags * m, m[..., :-1] * m[..., 1:]], axis=-1)


def labels_of(m: np.ndarray, observed: list[int]) -> Targets:
    """Bag labels, and labels of the observed instances."""
    positive = m > 0
    known = np.full(len(m), np.nan)
    known[observed] = positive[observed]
    T = np.maximum.reduceat(positive, np.cumsum(SIZES) - SIZES)
    return make_targets(SIZES, T.tolist(), known if observed else None)


@pytest.mark.parametrize("observed", [[], [1, 4, 9]], ids=["bags", "some-instances"])
def test_joint_distribution(observed: list[int]) -> None:
    """Forward simulation and alternating (v, m | T), (T | v) visit the same joint [Geweke]."""
    template = make_chunk(make_targets(SIZES, LABELS))
    A, s = template.A, np.sqrt(1 + template.kt)
    starts = template.targets.starts
    rng = np.random.default_rng(11)
    v = rng.normal(size=(200_000, 2))
    m = C0 + v @ A.T + s * rng.normal(size=(200_000, len(s)))
    T = np.maximum.reduceat(m > 0, starts, axis=1).astype(float)
    forward = geweke_quantities(v, m, T)

    sampler = GibbsSampler([template], C0)
    n_sweeps = 6000
    visited_v, visited_m = np.empty((n_sweeps, 2)), np.empty((n_sweeps, len(s)))
    visited_T = np.empty((n_sweeps, len(SIZES)))
    state = replace(sampler.init_state(rng), v=v[0])
    for i in range(n_sweeps):
        # Labels given v alone: given m they could never change.
        fresh = C0 + A @ state.v + s * rng.normal(size=len(s))
        visited_T[i] = np.maximum.reduceat(fresh > 0, starts)
        labelled = replace(template, targets=labels_of(fresh, observed))
        sampler.blocks = [gibbs._block(labelled, None, 0)]
        state = sampler.step(rng, replace(state, m=sampler.draw_m(rng, state.v)[0]))
        visited_v[i], visited_m[i] = state.v, state.m
    successive = geweke_quantities(visited_v, visited_m, visited_T)[None]
    own = forward.std(axis=0) / np.sqrt(len(forward))
    error = successive[0].std(axis=0) / np.sqrt(effective_sample_size(successive))
    z = (successive[0].mean(axis=0) - forward.mean(axis=0)) / np.hypot(own, error)
    assert np.max(np.abs(z)) < SIGMA


@pytest.mark.parametrize("known", [None, KNOWN], ids=["bags", "some-instances"])
def test_posterior_of_v_is_that_of_quadrature(known: np.ndarray | None) -> None:
    chunk = make_chunk(make_targets(SIZES, LABELS, known))
    axis = np.linspace(-5, 5, 81)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    likelihood, s = BagLikelihood(Probit()), np.sqrt(1 + chunk.kt)
    logs = [
        likelihood.log_prob((C0 + chunk.A @ v) / s, chunk.targets).sum() - 0.5 * v @ v for v in grid
    ]
    weights = np.exp(np.array(logs) - np.max(logs))
    weights /= weights.sum()
    mean = weights @ grid
    second = (grid * weights[:, None]).T @ grid

    result = run_chains(
        SweeperOf([chunk]), C0, n_samples=3000, burn_in=100, n_chains=4, seed=2, n_jobs=1
    )
    assert result.max_r_hat < 1.02 and result.min_ess > 500
    assert np.max(np.abs(z_scores(result.v, mean))) < SIGMA
    assert np.max(np.abs(z_scores(result.means, mean))) < SIGMA
    products = (result.means[..., :, None] * result.means[..., None, :]).reshape(4, -1, 4)
    assert np.max(np.abs(z_scores(products, (second - result.S).ravel()))) < SIGMA
    q = result.as_q(C0)
    np.testing.assert_allclose(q.m, mean, atol=0.1)  # five standard errors


def test_known_labels_and_bag_labels_are_respected() -> None:
    targets = make_targets(SIZES, LABELS, KNOWN)
    sampler = GibbsSampler([make_chunk(targets)], C0)
    rng = np.random.default_rng(0)
    state, open_signs = sampler.init_state(rng), []
    for _ in range(200):
        state = sampler.step(rng, state)
        positive = state.m > 0
        assert np.all(positive[KNOWN == 1]) and not np.any(positive[KNOWN == 0])
        np.testing.assert_array_equal(np.maximum.reduceat(positive, targets.starts), LABELS)
        open_signs.append(positive[[3, 4, 5, 10]])
    assert np.all(np.mean(open_signs, axis=0) > 0) and np.all(np.mean(open_signs, axis=0) < 1)


@pytest.mark.parametrize(("row", "label"), [(0, 1.0), (slice(1, 3), 0.0)])
def test_contradictions_are_rejected(row: int | slice, label: float) -> None:
    known = np.full(sum(SIZES), np.nan)
    known[row] = label
    with pytest.raises(ValueError, match="contradict"):
        GibbsSampler([make_chunk(make_targets(SIZES, LABELS, known))], C0)


def assert_same(a: GibbsResult, b: GibbsResult, **tolerance: float) -> None:
    for field in fields(GibbsResult):
        np.testing.assert_allclose(
            getattr(a, field.name), getattr(b, field.name), err_msg=field.name, **tolerance
        )


def test_a_seed_fixes_the_result_whatever_the_processes() -> None:
    runs = [
        run_chains(make_sweeper(), -1.0, n_samples=20, burn_in=5, n_chains=3, seed=s, n_jobs=j)
        for s, j in [(0, 1), (0, 2), (0, None), (1, 1)]
    ]
    assert_same(runs[0], runs[1], rtol=0)
    assert_same(runs[0], runs[2], rtol=0)
    assert not np.allclose(runs[0].v, runs[3].v)
    assert not np.allclose(runs[0].v[0], runs[0].v[1])


def test_draws_do_not_depend_on_chunks() -> None:
    results = [
        run_chains(make_sweeper(30, size), -1.0, n_samples=10, burn_in=0, n_chains=1, seed=0)
        for size in (None, 7)
    ]
    assert_same(*results, rtol=1e-7)


def test_shapes_thinning_and_verbosity(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_chains(
        make_sweeper(), -1.0, n_samples=50, burn_in=10, n_chains=2, seed=0, n_jobs=1, verbose=1
    )
    assert result.means.shape == result.v.shape == (2, 50, 6)
    assert result.log_joint.shape == (2, 60) and result.r_hat.shape == result.ess.shape == (6,)
    assert result.mixture_means().shape == (100, 6)
    np.testing.assert_array_equal(result.mixture_means(10), result.means[:, ::10].reshape(10, 6))
    assert capsys.readouterr().out.count("log joint") == 20


def test_thinning_keeps_every_so_many_sweeps() -> None:
    settings = {"n_chains": 2, "seed": 0, "n_jobs": 1}
    every = run_chains(make_sweeper(), -1.0, n_samples=20, burn_in=4, **settings)
    third = run_chains(make_sweeper(), -1.0, n_samples=6, burn_in=6, thin=3, **settings)
    np.testing.assert_array_equal(third.v, every.v[:, 4::3])
    np.testing.assert_array_equal(third.means, every.means[:, 4::3])
    np.testing.assert_array_equal(third.log_joint, every.log_joint)


def test_chains_start_where_they_are_told() -> None:
    start = Q(np.arange(6.0), 1e-8 * np.eye(6), -1.0, 0.0)
    sampler = GibbsSampler(make_sweeper().chunks, -1.0)
    state = sampler.init_state(np.random.default_rng(0), start)
    np.testing.assert_allclose(state.v, start.m, atol=1e-3)
    result = run_chains(make_sweeper(), -1.0, n_samples=4, burn_in=0, n_chains=1, start=start)
    other = run_chains(make_sweeper(), -1.0, n_samples=4, burn_in=0, n_chains=1)
    assert not np.allclose(result.v, other.v)


@pytest.mark.parametrize("wrong", [{"n_samples": 3}, {"burn_in": -1}, {"n_chains": 0}, {"thin": 0}])
def test_wrong_numbers_are_rejected(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        run_chains(make_sweeper(), -1.0, **wrong)


def test_float32_features() -> None:
    chunk = make_chunk(make_targets(SIZES, LABELS))
    single = replace(chunk, A=chunk.A.astype(np.float32), kt=chunk.kt.astype(np.float32))
    states = []
    for c in (chunk, single):
        rng = np.random.default_rng(0)
        sampler = GibbsSampler([c], C0)
        states.append(sampler.step(rng, sampler.init_state(rng)))
    assert states[1].v.dtype == np.float64
    np.testing.assert_allclose(states[1].v, states[0].v, atol=1e-4)


# --- Predictions ----------------------------------------------------------------------------

OFFSETS = np.array([0, 1, 3, 8, 12])
SCORES = ["joint", "noisy-or", "max"]


@pytest.fixture(scope="module")
def gaussian() -> Posterior:
    rng = np.random.default_rng(0)
    R = 0.3 * rng.normal(size=(6, 6))
    return Posterior(
        kernel=RBF(4.0, 1.0),
        Z=rng.normal(size=(6, 2)),
        m=rng.normal(size=6),
        S=R @ R.T + 0.05 * np.eye(6),
        c0=-1.0,
        link="probit",
        shift=np.array([0.1, -0.2]),
        scale=np.array([1.0, 2.0]),
        jitter=1e-6,
        seed=5,
    )


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    return np.random.default_rng(7).normal(0, 1.5, size=(12, 2))


def mixture(gaussian: Posterior, means: np.ndarray) -> GibbsPosterior:
    values = {f.name: getattr(gaussian, f.name) for f in fields(Posterior)}
    return GibbsPosterior(**{**values, "m": means.mean(axis=0), "means": means})


def spread_means(gaussian: Posterior, n: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    return gaussian.m + 0.7 * rng.normal(size=(n, 6))


@pytest.mark.parametrize("n", [1, 50, 1500])
def test_one_repeated_mean_is_the_gaussian(
    gaussian: Posterior, queries: np.ndarray, n: int
) -> None:
    same = mixture(gaussian, np.tile(gaussian.m, (n, 1)))
    np.testing.assert_allclose(same.latent(queries), gaussian.latent(queries), atol=1e-8)
    np.testing.assert_allclose(same.instances(queries), gaussian.instances(queries), atol=1e-8)
    # Joint scores are averages over points, other ones here; deviations take more of them.
    for score, *tolerances in zip(SCORES, [2e-3, 1e-8, 1e-8], [1e-2, 1e-8, 1e-8], strict=True):
        where = (queries, OFFSETS, score)
        pairs = zip(same.bags(*where), gaussian.bags(*where), tolerances, strict=True)
        for found, expected, tolerance in pairs:
            np.testing.assert_allclose(found, expected, atol=tolerance)


@pytest.mark.parametrize(("n", "tolerance"), [(200, 1e-12), (600, 3e-5)])
def test_predictions_average_over_components(
    gaussian: Posterior, queries: np.ndarray, n: int, tolerance: float
) -> None:
    means = spread_means(gaussian, n)
    parts = [replace(gaussian, m=m) for m in means]
    mixed = mixture(gaussian, means)
    p, std = np.moveaxis([q.instances(queries) for q in parts], 0, -1)
    expected = p.mean(axis=-1), np.sqrt(np.mean(std**2 + p**2, axis=-1) - p.mean(axis=-1) ** 2)
    np.testing.assert_allclose(mixed.instances(queries), expected, atol=tolerance)
    f = np.array([q.latent(queries) for q in parts])
    expected_f = f[:, 0].mean(axis=0), f[:, 1].mean(axis=0) + f[:, 0].var(axis=0)
    np.testing.assert_allclose(mixed.latent(queries), expected_f)


def test_joint_bags_average_over_components(gaussian: Posterior, queries: np.ndarray) -> None:
    means = spread_means(gaussian, 100)
    mixed = mixture(gaussian, means)
    p, std = np.moveaxis(
        [replace(gaussian, m=m).bags(queries, OFFSETS, "joint") for m in means], 0, 1
    )
    expected = p.mean(axis=0), np.sqrt(np.mean(std**2 + p**2, axis=0) - p.mean(axis=0) ** 2)
    # A few Sobol points per component; deviations of rare negatives are the least certain.
    for found, wanted, atol in zip(
        mixed.bags(queries, OFFSETS, "joint"), expected, (0.005, 0.025), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=atol)
    instance_p, _ = mixed.instances(queries[:1])
    np.testing.assert_allclose(mixed.bags(queries[:1], [0, 1], "joint")[0], instance_p, atol=1e-9)


def test_bags_do_not_depend_on_other_bags(gaussian: Posterior, queries: np.ndarray) -> None:
    mixed = mixture(gaussian, spread_means(gaussian, 300))
    for score in SCORES:
        p, std = mixed.bags(queries, OFFSETS, score)
        for b, (start, end) in enumerate(pairwise(OFFSETS)):
            alone = mixed.bags(queries[start:end], np.array([0, end - start]), score)
            np.testing.assert_allclose(alone, ([p[b]], [std[b]]), rtol=1e-8, atol=1e-12)


def test_grouping_keeps_averages_of_smooth_functions() -> None:
    x = np.random.default_rng(0).normal(-0.5, [[0.3], [1.0], [3.0]], size=(3, 2001))
    mean, variance, weights = grouped(x)
    assert mean.shape == (3, 128) and weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(mean @ weights, x.mean(axis=1))
    exact = special.ndtr(x).mean(axis=1)
    np.testing.assert_allclose(
        special.ndtr(mean / np.sqrt(1 + variance)) @ weights, exact, atol=1e-5
    )


def test_rare_labels_keep_their_relative_accuracy(gaussian: Posterior) -> None:
    far = replace(mixture(gaussian, spread_means(gaussian, 100)), c0=-30.0)
    p, std = far.instances(gaussian.Z[:2] * 1.0)
    assert np.all(p > 0) and np.all(p < 1e-15) and np.all(std > 0)


def test_it_can_be_saved(gaussian: Posterior, queries: np.ndarray, tmp_path: Path) -> None:
    register(RBF)
    register(GibbsPosterior)
    mixed = mixture(gaussian, spread_means(gaussian, 20))
    write_state(tmp_path / "q.bagwise", {"q": mixed}, kind="Test")
    _, state = read_state(tmp_path / "q.bagwise")
    assert type(state["q"]) is GibbsPosterior
    np.testing.assert_array_equal(state["q"].instances(queries), mixed.instances(queries))


def test_means_of_another_size_are_rejected(gaussian: Posterior) -> None:
    with pytest.raises(ValueError, match=r"means must have shape \(n_samples, 6\)"):
        replace(mixture(gaussian, spread_means(gaussian, 5)), means=np.zeros((5, 4)))
