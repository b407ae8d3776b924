"""Structured factorisations against dense ones, EP against samplers of the same Gaussian."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from scipy import sparse, special, stats
from scipy.stats import qmc

from bagwise.bags.graphs import neighbor_graph
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.likelihoods.coupled.blocks import (
    Coupling,
    DensePrior,
    LowRankPrior,
    predictive_prior,
    predictive_variance,
)
from bagwise.core.likelihoods.coupled.ep import cumulant_correction, log_orthant, orthant_ep
from bagwise.core.likelihoods.coupled.moments import (
    bag_moments,
    neg_hessian,
    orthant_diagonal,
)
from bagwise.core.links import Probit
from brute_force import make_targets


def grid_graph(rows: int, columns: int) -> sparse.csr_array:
    cells = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), axis=-1)
    return neighbor_graph(cells.reshape(-1, 2), [0, rows * columns])


def random_graph(n: int, seed: int) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    W = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 3 / n), 1)
    return sparse.csr_array(W + W.T)


GRAPHS = {
    "grid 7x7": grid_graph(7, 7),
    "grid 13x11": grid_graph(13, 11),
    "random": random_graph(150, 0),
    "chain": neighbor_graph(None, [0, 200], "chain"),
    "bags": sparse.csr_array(sparse.block_diag([grid_graph(5, 6), grid_graph(9, 9), [[0.0]]])),
    "no edges": sparse.csr_array((80, 80)),
}
each_graph = pytest.mark.parametrize("graph", list(GRAPHS))
each_lam = pytest.mark.parametrize("lam", [0.5, 5.0])
each_approximation = pytest.mark.parametrize("fitc", [False, True], ids=["vfe", "fitc"])


def one_bag(n: int, T: bool = False) -> Targets:
    return make_targets([n], [T], None)


def all_negative(n: int) -> np.ndarray:
    return np.full(n, -1, dtype=np.int8)


def dense_covariance(coupling: Coupling, kt: np.ndarray | None) -> np.ndarray:
    Sigma = np.linalg.inv(coupling.Q.toarray())
    return Sigma if kt is None else Sigma + Sigma @ np.diag(kt) @ Sigma


def residuals(n: int, fitc: bool, seed: int = 0) -> np.ndarray | None:
    return np.random.default_rng(seed).random(n) if fitc else None


class TestFactorisation:
    @each_graph
    @each_lam
    def test_coupling(self, graph: str, lam: float) -> None:
        coupling = Coupling(GRAPHS[graph], lam)
        Q = coupling.Q.toarray()
        Sigma = np.linalg.inv(Q)
        B = np.random.default_rng(0).normal(size=(len(Q), 3))
        np.testing.assert_allclose(coupling.diag(), np.diag(Sigma), rtol=1e-9)
        np.testing.assert_allclose(coupling.solve(B), Sigma @ B, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(coupling.solve(B[:, 0]), Sigma @ B[:, 0], atol=1e-12)

    @each_graph
    @each_lam
    @each_approximation
    @pytest.mark.parametrize("strength", [0.0, 1e-3, 2.0, 1e4])
    def test_posterior_precision(self, graph: str, lam: float, fitc: bool, strength: float) -> None:
        coupling = Coupling(GRAPHS[graph], lam)
        rng = np.random.default_rng(1)
        kt, tau = residuals(coupling.size, fitc), strength * rng.random(coupling.size)
        prior = coupling.prior(kt)
        factor = prior.factor(tau)
        C = dense_covariance(coupling, kt)
        V = np.linalg.inv(np.linalg.inv(C) + np.diag(tau))
        b = rng.normal(size=coupling.size)
        np.testing.assert_allclose(factor.variance, np.diag(V), rtol=1e-9)
        np.testing.assert_allclose(factor.solve(b), V @ b, rtol=1e-8, atol=1e-10)
        ratio = np.linalg.slogdet(np.eye(len(C)) + C * tau)[1]
        found = np.sum(factor.log_pivots - prior.start.log_pivots)
        np.testing.assert_allclose(found, ratio, rtol=1e-9, atol=1e-9)

    @each_approximation
    def test_sites(self, fitc: bool) -> None:
        coupling = Coupling(grid_graph(9, 9), 2.0)
        kt = residuals(81, fitc)
        prior = coupling.prior(kt)
        Q = coupling.Q.toarray()
        Lambda = np.linalg.inv(Q if kt is None else Q + np.diag(kt))
        A = np.random.default_rng(0).normal(size=(81, 5))
        np.testing.assert_allclose(prior.weigh(A), Lambda @ A, atol=1e-12)
        eta = A[:, 0] if kt is None else Lambda @ Q @ A[:, 0]
        np.testing.assert_allclose(prior.eta(A[:, 0]), eta, atol=1e-12)
        np.testing.assert_allclose(prior.mean(A[:, 1]), np.linalg.solve(Q, A[:, 1]), atol=1e-12)
        C = dense_covariance(coupling, kt)
        np.testing.assert_allclose(prior.covariance_times(A), C @ A, atol=1e-12)
        np.testing.assert_allclose(prior.variance, np.diag(C), rtol=1e-10)

    def test_pivots_of_one_bag_belong_to_it(self) -> None:
        parts = [grid_graph(5, 6), grid_graph(9, 9), grid_graph(2, 2)]
        together = Coupling(sparse.csr_array(sparse.block_diag(parts)), 3.0)
        pivots = together.prior(np.ones(together.size)).factor(np.ones(together.size)).log_pivots
        cuts = np.cumsum([0] + [p.shape[0] for p in parts])
        for part, (a, b) in zip(parts, pairwise(cuts), strict=True):
            alone = Coupling(part, 3.0).prior(np.ones(b - a)).factor(np.ones(b - a)).log_pivots
            assert pivots[a:b].sum() == pytest.approx(alone.sum(), rel=1e-12)

    @pytest.mark.parametrize("lam", [5.0, 50.0])
    def test_many_blocks_stay_accurate(self, lam: float) -> None:
        coupling = Coupling(grid_graph(60, 60), lam)
        prior = coupling.prior(np.random.default_rng(0).random(3600))
        rows = np.array([0, 1777, 3599])
        unit = np.zeros((3600, 3))
        unit[rows, range(3)] = 1
        expected = prior.covariance_times(unit)
        factor = prior.factor(np.zeros(3600))
        np.testing.assert_allclose(factor.solve(unit), expected, atol=1e-12)
        np.testing.assert_allclose(prior.variance[rows], expected[rows, range(3)], rtol=1e-10)

    @pytest.mark.parametrize("lam", [-1.0, np.nan, np.inf])
    def test_bad_coupling(self, lam: float) -> None:
        with pytest.raises(ValueError, match="coupling must be a finite number >= 0"):
            Coupling(grid_graph(2, 2), lam)


class TestPrediction:
    @pytest.mark.parametrize("n_columns", [5, 40])
    def test_low_rank_equals_dense(self, n_columns: int) -> None:
        coupling = Coupling(grid_graph(12, 12), 1.5)
        rng = np.random.default_rng(0)
        kt, G, tau = rng.random(144), 0.5 * rng.normal(size=(144, n_columns)), rng.random(144)
        U = coupling.solve(G)
        C = dense_covariance(coupling, kt) + U @ U.T
        dense, low_rank = DensePrior(C), LowRankPrior(coupling.prior(kt), G)
        np.testing.assert_allclose(predictive_variance(coupling, kt, G), np.diag(C), rtol=1e-10)
        for prior in (dense, low_rank, predictive_prior(coupling, kt, G)):
            factor = prior.factor(tau)
            V = np.linalg.inv(np.linalg.inv(C) + np.diag(tau))
            np.testing.assert_allclose(factor.variance, np.diag(V), rtol=1e-9)
            np.testing.assert_allclose(factor.solve(tau), V @ tau, rtol=1e-8)
            found = np.sum(factor.log_pivots - prior.start.log_pivots)
            assert found == pytest.approx(np.linalg.slogdet(np.eye(144) + C * tau)[1], rel=1e-9)

    def test_bag_probability_against_draws_of_v(self) -> None:
        coupling = Coupling(grid_graph(4, 4), 1.0)
        rng = np.random.default_rng(2)
        kt, G, mu = 0.3 * rng.random(16), 0.6 * rng.normal(size=(16, 3)), rng.normal(-2, 1, 16)
        C = dense_covariance(coupling, kt) + coupling.solve(G) @ coupling.solve(G).T
        prior = predictive_prior(coupling, kt, G)
        found = log_orthant(prior, coupling.solve(mu))
        exact = truncated_normal(coupling.solve(mu), C, all_negative(16), 14)
        assert 5 * exact.log_error < 0.01
        assert found == pytest.approx(exact.log_prob, abs=0.01)


class Truncated(NamedTuple):
    """log P(m on the asked sides) and E[m | on these sides], each with its standard error."""

    log_prob: float
    log_error: float
    mean: np.ndarray
    mean_error: np.ndarray


def truncated_normal(
    mean: np.ndarray, C: np.ndarray, signs: np.ndarray, log2_draws: int
) -> Truncated:
    """Sequential importance sampling of N(mean, C) with signs_i m_i >= 0 (0: either side).

    Eight scrambles of Sobol points tell the error. Points go through the Cholesky factor, of which
    there is only one, so that all machines see the same draws up to rounding.
    """
    L, n_runs = np.linalg.cholesky(C), 8
    logs, means = np.zeros(n_runs), np.zeros((n_runs, len(C)))
    for run in range(n_runs):
        points = qmc.Sobol(len(C), scramble=True, rng=np.random.default_rng(run))
        u = np.clip(points.random_base2(log2_draws - 3), 1e-15, 1 - 1e-15)
        e, log_weight = np.zeros_like(u), np.zeros(len(u))
        for i, sign in enumerate(signs):
            if sign == 0:
                e[:, i] = special.ndtri(u[:, i])
                continue
            inside = special.log_ndtr(sign * (mean[i] + e[:, :i] @ L[i, :i]) / L[i, i])
            log_weight += inside
            e[:, i] = -sign * special.ndtri_exp(np.log(u[:, i]) + inside)
        logs[run] = special.logsumexp(log_weight) - np.log(len(u))
        means[run] = special.softmax(log_weight) @ (mean + e @ L.T)
    log_prob = special.logsumexp(logs) - np.log(n_runs)
    weights = np.exp(logs - log_prob) / n_runs
    scale = np.sqrt(n_runs - 1)
    return Truncated(
        float(log_prob),
        float(np.std(n_runs * weights) / scale),
        weights @ means,
        np.std(means, axis=0) / scale,
    )


def with_labels(mean: np.ndarray, C: np.ndarray, T: bool, known: np.ndarray) -> Truncated:
    """The same for a bag with label T and some known instance labels (NaN: unknown)."""
    signs = np.where(np.isnan(known), 0 if T else -1, 2 * known - 1)
    found = truncated_normal(mean, C, signs, 14)
    if not T or np.any(known == 1):
        return found
    negative = truncated_normal(mean, C, np.full(len(C), -1), 14)  # known ones are negative too
    share = np.exp(negative.log_prob - found.log_prob)
    error = np.hypot(found.log_error, share * negative.log_error) / (1 - share)
    mean_error = found.mean_error + share * negative.mean_error
    return Truncated(
        found.log_prob + np.log1p(-share),
        error,
        (found.mean - share * negative.mean) / (1 - share),
        (mean_error + error * np.abs(found.mean - negative.mean)) / (1 - share),
    )


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x**2)))


@pytest.mark.parametrize("lam", [0.5, 5.0])
@each_approximation
def test_ep_against_sampling(lam: float, fitc: bool) -> None:
    coupling, kt = Coupling(grid_graph(7, 7), lam), residuals(49, fitc)
    mu, prior = np.random.default_rng(7).normal(-0.3, 1.0, 49), coupling.prior(kt)
    exact = truncated_normal(prior.mean(mu), dense_covariance(coupling, kt), all_negative(49), 16)
    assert 5 * rms(exact.mean_error) < 0.01 and 5 * exact.log_error < 0.02
    found = bag_moments(prior, mu, one_bag(49))
    diagonal = orthant_diagonal(prior.mean(mu), prior.variance, one_bag(49)).Em
    assert rms(found.Em - exact.mean) <= 0.01
    assert rms(diagonal - exact.mean) > 0.05
    assert found.log_prob[0] == pytest.approx(exact.log_prob, abs=0.07)
    assert log_orthant(prior, prior.mean(mu)) == pytest.approx(exact.log_prob, abs=0.02)


class TestAccuracy:
    def test_correction_of_several_bags(self) -> None:
        parts = [grid_graph(4, 5), grid_graph(9, 9), grid_graph(2, 3)]
        sizes = [p.shape[0] for p in parts]
        starts = np.cumsum([0, *sizes[:-1]])
        mu = np.random.default_rng(0).normal(-1, 1, sum(sizes))
        signs = all_negative(sum(sizes))

        def correction(W: sparse.csr_array, mu: np.ndarray, starts: np.ndarray) -> np.ndarray:
            prior = Coupling(W, 2.0).prior()
            found = orthant_ep(prior, prior.mean(mu), signs[: len(mu)], starts, tol=1e-9)
            return cumulant_correction(prior.mean(mu), found, signs[: len(mu)], starts)

        together = correction(sparse.csr_array(sparse.block_diag(parts)), mu, starts)
        for b, (first, last) in enumerate(pairwise(np.cumsum([0, *sizes]))):
            alone = correction(parts[b], mu[first:last], np.array([0]))
            assert together[b] == pytest.approx(alone[0], rel=1e-6)

    def test_correction_from_some_of_the_columns(self) -> None:
        prior, signs = Coupling(grid_graph(20, 20), 2.0).prior(), all_negative(400)
        mean = prior.mean(np.random.default_rng(0).normal(-1, 0.3, 400))
        found = orthant_ep(prior, mean, signs, np.array([0]))
        some, every = (
            cumulant_correction(mean, found, signs, np.array([0]), max_columns=k)[0]
            for k in (150, 400)
        )
        assert some == pytest.approx(every, rel=0.1)

    def test_correction_follows_the_signs(self) -> None:
        coupling = Coupling(grid_graph(3, 3), 3.0)
        prior, signs = coupling.prior(), np.array([1, 0, -1, 1, 1, -1, 0, -1, 1], dtype=np.int8)
        mean = prior.mean(np.random.default_rng(0).normal(0, 1, 9))
        found = orthant_ep(prior, mean, signs, np.array([0]))
        corrected = found.log_prob + cumulant_correction(mean, found, signs, np.array([0]))
        exact = truncated_normal(mean, dense_covariance(coupling, None), signs, 17)
        assert 5 * exact.log_error < 7e-4
        assert corrected[0] == pytest.approx(exact.log_prob, abs=7e-4)
        assert abs(found.log_prob[0] - exact.log_prob) > 1e-3

    def test_two_instances_against_the_bivariate_normal(self) -> None:
        coupling = Coupling(neighbor_graph(None, [0, 2], "chain"), 2.0)
        for mu in ([-1.0, 0.5], [-3.0, -3.0], [2.0, 1.0]):
            mean, C = coupling.solve(np.array(mu)), dense_covariance(coupling, None)
            exact = stats.multivariate_normal(mean, C).cdf([0, 0])
            found = bag_moments(coupling.prior(), np.array(mu), one_bag(2)).log_prob[0]
            assert found == pytest.approx(np.log(exact), abs=0.01)

    @each_approximation
    @pytest.mark.parametrize("T", [False, True])
    def test_mean_is_the_gradient_of_the_probability(self, fitc: bool, T: bool) -> None:
        # Lambda Q (E[m] - mean) = d log P / d mu is what makes sweeps ascend.
        coupling = Coupling(grid_graph(5, 5), 1.0)
        prior = coupling.prior(residuals(25, fitc))
        mu = np.random.default_rng(3).normal(-1.5, 1, 25)
        found = bag_moments(prior, mu, one_bag(25, T), tol=1e-10)
        direction = np.random.default_rng(4).normal(size=25)
        up, down = (
            bag_moments(prior, mu + h * direction, one_bag(25, T), tol=1e-10).log_prob[0]
            for h in (1e-4, -1e-4)
        )
        slope = direction @ prior.eta(found.Em) - direction @ prior.eta(prior.mean(mu))
        assert (up - down) / 2e-4 == pytest.approx(slope, rel=1e-5)


class TestLimits:
    @each_approximation
    @pytest.mark.parametrize("graph", ["grid 7x7", "no edges"])
    def test_independent_instances_are_exact(self, fitc: bool, graph: str) -> None:
        W = GRAPHS[graph]
        n = W.shape[0]
        prior = Coupling(W, 0.0 if W.nnz else 3.0).prior(residuals(n, fitc))
        mu = np.random.default_rng(0).normal(-3, 2, n)
        known = np.full(n, np.nan)
        known[[0, 3]] = 0
        targets = make_targets([10, n - 10], [True, False], known)
        s = np.sqrt(1 + prior.kt) if fitc else np.ones(n)
        found = bag_moments(prior, mu, targets)
        likelihood = BagLikelihood(Probit())
        expected = mu + s * likelihood.gradient(mu / s, targets)
        np.testing.assert_allclose(found.Em, expected, rtol=1e-12)
        np.testing.assert_allclose(found.log_prob, likelihood.log_prob(mu / s, targets), rtol=1e-12)

    @each_approximation
    @pytest.mark.parametrize("T", [False, True])
    def test_weak_coupling_tends_to_independence(self, fitc: bool, T: bool) -> None:
        W, mu = grid_graph(6, 6), np.random.default_rng(0).normal(-2, 1, 36)
        kt = residuals(36, fitc)
        weak, none = (Coupling(W, lam).prior(kt) for lam in (1e-9, 0.0))
        found, expected = (bag_moments(p, mu, one_bag(36, T)) for p in (weak, none))
        np.testing.assert_allclose(found.Em, expected.Em, atol=1e-7)
        np.testing.assert_allclose(found.log_prob, expected.log_prob, atol=1e-7)

    @each_lam
    @each_approximation
    @pytest.mark.parametrize("T", [False, True])
    @pytest.mark.parametrize("mu", [-200.0, -45.0, -8.0, 8.0, 45.0, 200.0])
    def test_extremes_are_finite(self, lam: float, fitc: bool, T: bool, mu: float) -> None:
        prior = Coupling(grid_graph(9, 9), lam).prior(residuals(81, fitc))
        found = bag_moments(prior, np.full(81, mu), one_bag(81, T))
        assert np.all(np.isfinite(found.Em)) and np.all(np.isfinite(found.log_prob))
        assert found.log_prob[0] <= 0
        assert found.signs is not None and found.signs.converged
        if T:
            assert np.all(found.Em >= prior.mean(np.full(81, mu)) - 1e-12)
        else:
            assert np.all(found.Em < 0)

    @each_approximation
    def test_rare_positives_are_continuous(self, fitc: bool) -> None:
        # Where P0 rounds to one the limit in logarithms takes over; around there both agree.
        prior = Coupling(grid_graph(6, 6), 1.0).prior(residuals(36, fitc))
        shape = np.random.default_rng(0).normal(0, 0.3, 36)
        offsets = np.linspace(-60, -3, 400)
        logs = [bag_moments(prior, shape + c, one_bag(36, True)).log_prob[0] for c in offsets]
        second = np.diff(logs, 2)
        assert np.all(np.diff(logs) > 0)
        assert np.max(np.abs(np.diff(second))) < 0.01

    def test_rare_positive_moments_against_their_limit(self) -> None:
        prior = Coupling(grid_graph(5, 5), 1.0).prior()
        mu = np.random.default_rng(1).normal(-9, 0.5, 25)
        mean, sd = prior.mean(mu), np.sqrt(prior.variance)
        z = mean / sd
        w = special.ndtr(z) / special.ndtr(z).sum()
        limit = mean + prior.covariance_times(w * stats.norm.pdf(z) / (sd * special.ndtr(z)))
        found = bag_moments(prior, mu, one_bag(25, True))
        np.testing.assert_allclose(found.Em, limit, rtol=1e-6)
        assert found.log_prob[0] == pytest.approx(np.log(special.ndtr(z).sum()), rel=1e-9)


class TestSigns:
    @each_approximation
    def test_bags_do_not_see_each_other(self, fitc: bool) -> None:
        parts, labels = [grid_graph(4, 5), grid_graph(9, 9), grid_graph(2, 3)], [True, False, True]
        sizes = [p.shape[0] for p in parts]
        mu = np.random.default_rng(0).normal(-2, 1, sum(sizes))
        kt = residuals(sum(sizes), fitc)
        W = sparse.csr_array(sparse.block_diag(parts))
        together = bag_moments(
            Coupling(W, 1.0).prior(kt), mu, make_targets(sizes, labels, None), tol=1e-9
        )
        for b, (first, last) in enumerate(pairwise(np.cumsum([0, *sizes]))):
            rows = slice(first, last)
            prior = Coupling(parts[b], 1.0).prior(None if kt is None else kt[rows])
            alone = bag_moments(prior, mu[rows], one_bag(sizes[b], labels[b]), tol=1e-9)
            np.testing.assert_allclose(together.Em[rows], alone.Em, atol=1e-7)
            assert together.log_prob[b] == pytest.approx(alone.log_prob[0], abs=1e-8)

    @pytest.mark.parametrize(
        ("T", "known"),
        [
            (False, [0, np.nan, np.nan, np.nan, np.nan, np.nan]),
            (True, [1, np.nan, 0, np.nan, np.nan, np.nan]),
            (True, [0, np.nan, 0, np.nan, np.nan, np.nan]),
        ],
        ids=["negative", "settled", "open"],
    )
    def test_known_labels_against_sampling(self, T: bool, known: list[float]) -> None:
        coupling = Coupling(grid_graph(2, 3), 1.0)
        mu = np.array([-0.2, 0.3, 0.1, -0.6, -0.4, 0.2])
        prior, targets = coupling.prior(), make_targets([6], [T], np.array(known))
        found = bag_moments(prior, mu, targets)
        C = dense_covariance(coupling, None)
        exact = with_labels(prior.mean(mu), C, T, np.array(known))
        assert 5 * max(exact.log_error, *exact.mean_error) < 0.005
        assert found.log_prob[0] == pytest.approx(exact.log_prob, abs=0.01)
        np.testing.assert_allclose(found.Em, exact.mean, atol=0.005)

    def test_warm_start_ends_at_the_same_place_sooner(self) -> None:
        prior = Coupling(grid_graph(9, 9), 2.0).prior(residuals(81, True))
        mu = np.random.default_rng(0).normal(-1, 1, 81)
        cold = bag_moments(prior, mu, one_bag(81))
        near = bag_moments(prior, mu + 1e-3, one_bag(81), cold)
        fresh = bag_moments(prior, mu + 1e-3, one_bag(81))
        np.testing.assert_allclose(near.Em, fresh.Em, atol=1e-5)
        assert near.log_prob[0] == pytest.approx(fresh.log_prob[0], abs=1e-8)
        assert near.signs.n_iter < fresh.signs.n_iter  # type: ignore[union-attr]


def test_diagonal_moments_have_no_derivatives() -> None:
    prior = Coupling(grid_graph(2, 2), 1.0).prior()
    moments = orthant_diagonal(np.zeros(4), np.ones(4), one_bag(4))
    with pytest.raises(ValueError, match="need EP moments"):
        neg_hessian(prior, np.ones((4, 1)), np.zeros(4), moments, one_bag(4))
