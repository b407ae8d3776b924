"""The ELBO: its textbook value on tiny problems, its ascent, and the evidence above it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from bagwise.core.inference.cavi import global_step
from bagwise.core.inference.stats import (
    Chunk,
    Q,
    Sites,
    Stats,
    standard_q,
)
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.links import Logistic, Probit
from bagwise.models.probit import ProbitSites
from bagwise.models.vgpmil import LogisticSites
from brute_force import (
    bag_slices,
    enumerated_log_prob,
    gauss_hermite_grid,
    known_of,
    label_vectors,
    log_bag_given_labels,
    make_targets,
    random_known,
)

SITES: dict[str, Sites] = {
    "logistic": LogisticSites(BagLikelihood(Logistic())),
    "logistic, H=100": LogisticSites(BagLikelihood(Logistic(), 100.0)),
    "probit fitc": ProbitSites(BagLikelihood(Probit()), integrate_residual=True),
    "probit vfe": ProbitSites(BagLikelihood(Probit()), integrate_residual=False),
}
each_model = pytest.mark.parametrize("model", list(SITES))
SIZES = [2, 5, 1, 3, 1, 4]
LABELS = [True, False, True, True, False, True]


def make_chunk(targets: Targets, M: int, rng: np.random.Generator) -> Chunk:
    """Any features will do: the bound does not ask where they come from."""
    n = int(np.sum(targets.sizes))
    A, kt = rng.normal(0, 0.8, size=(n, M)), rng.gamma(1.0, 0.4, size=n)
    return Chunk(np.zeros((n, 1)), A, kt, targets)


def random_q(M: int, rng: np.random.Generator) -> Q:
    root = rng.normal(size=(M, M)) / np.sqrt(M)
    S = root @ root.T + 0.1 * np.eye(M)
    return Q(rng.normal(size=M), S, float(rng.normal(-0.5)), float(np.linalg.slogdet(S)[1]))


def elbo(sites: Sites, stats: Stats, q: Q) -> float:
    assert stats.precision is not None
    return stats.bound + sites.global_bound(q, stats.precision) - q.kl()


# --- textbook expressions -----------------------------------------------------------------------


def textbook_kl(q: Q) -> float:
    """KL(N(m, S) || N(0, I)) by the determinant."""
    determinant = np.linalg.det(q.S)
    return 0.5 * (np.trace(q.S) + q.m @ q.m - len(q.m) - np.log(determinant))


def spread(chunk: Chunk, q: Q) -> np.ndarray:
    """a_n'S a_n."""
    return np.array([a @ q.S @ a for a in chunk.A])


def textbook_logistic(chunk: Chunk, q: Q, H: float) -> float:
    """-KL + E[Jaakkola's bound] + E log p(T | y) + H(q(y)), with q(y_b) over all 2^n vectors."""
    mu = q.c0 + chunk.A @ q.m
    Ef2 = mu**2 + spread(chunk, q) + chunk.kt
    total = -textbook_kl(q)
    for rows, T in bag_slices(chunk.targets):
        Y = label_vectors(len(mu[rows]), known_of(chunk.targets, rows))
        log_T = log_bag_given_labels(Y, T, H)
        possible = np.isfinite(log_T)
        Y, log_T = Y[possible], log_T[possible]
        weights = np.exp(log_T + Y @ mu[rows])
        qy = weights / weights.sum()
        total += qy @ (jaakkola(Y, mu[rows], Ef2[rows]) + log_T - np.log(qy))
    return float(total)


def jaakkola(Y: np.ndarray, mu: np.ndarray, Ef2: np.ndarray) -> np.ndarray:
    """E_q(f) of the lower bound on log p(y | f) at xi^2 = E f^2, for each label vector."""
    xi = np.sqrt(Ef2)
    lam = np.tanh(xi / 2) / (4 * xi)
    sign = 2 * Y - 1
    each = np.log(special.expit(xi)) + (sign * mu - xi) / 2 - lam * (Ef2 - xi**2)
    return each.sum(axis=1)


def textbook_probit(chunk: Chunk, q: Q, fitc: bool) -> float:
    """-KL + log P(T | m ~ N(mu, s^2)) - 1/2 sum of what q(v) (and the residual) spreads m by."""
    s2 = 1 + chunk.kt if fitc else np.ones(len(chunk.kt))
    z = (q.c0 + chunk.A @ q.m) / np.sqrt(s2)
    scatter = spread(chunk, q) + (0 if fitc else chunk.kt)
    log_T = enumerated_log_prob("probit", z, chunk.targets, np.inf)
    return float(-textbook_kl(q) + log_T.sum() - 0.5 * np.sum(scatter / s2))


def textbook(model: str, chunk: Chunk, q: Q) -> float:
    if model.startswith("logistic"):
        return textbook_logistic(chunk, q, 100.0 if "100" in model else np.inf)
    return textbook_probit(chunk, q, fitc=model.endswith("fitc"))


@each_model
@pytest.mark.parametrize("supervised", [False, True], ids=["weak", "mixed"])
@pytest.mark.parametrize("seed", range(4))
def test_elbo_is_the_textbook_expression(model: str, supervised: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    known = random_known(SIZES, LABELS, rng) if supervised else None
    chunk = make_chunk(make_targets(SIZES, LABELS, known), 3, rng)
    q = random_q(3, rng)
    found = elbo(SITES[model], SITES[model].local_step(chunk, q), q)
    assert found == pytest.approx(textbook(model, chunk, q), rel=1e-10, abs=1e-10)


# --- ascent -------------------------------------------------------------------------------------


def plain_sweeps(sites: Sites, chunk: Chunk, learn_mean: bool, n: int) -> tuple[np.ndarray, Q]:
    """ELBO after each plain coordinate ascent sweep, and the last q."""
    q = standard_q(chunk.A.shape[1], -1.0)
    history = []
    for _ in range(n):
        stats = sites.local_step(chunk, q)
        history.append(elbo(sites, stats, q))
        q = global_step(stats, q.c0, learn_mean)
    return np.array(history), q


@each_model
@pytest.mark.parametrize("learn_mean", [False, True], ids=["mean fixed", "mean learned"])
def test_plain_sweeps_never_lower_the_elbo(model: str, learn_mean: bool) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(1, 7, size=8).tolist()
        labels = [True, False] * 4
        known = random_known(sizes, labels, rng) if seed % 3 == 0 else None
        chunk = make_chunk(make_targets(sizes, labels, known), 4, rng)
        history, _ = plain_sweeps(SITES[model], chunk, learn_mean, 200)
        falls = np.diff(history) < -1e-9 * np.abs(history[1:])
        assert not falls.any(), f"seed {seed}: sweep {int(np.argmax(falls))} lowers the ELBO"
        assert history[-1] > history[0]


@each_model
def test_the_fixed_point_is_a_maximum(model: str) -> None:
    rng = np.random.default_rng(5)
    chunk = make_chunk(make_targets(SIZES, LABELS), 2, rng)
    sites = SITES[model]
    _, q = plain_sweeps(sites, chunk, True, 1500)
    best = elbo(sites, sites.local_step(chunk, q), q)
    for _ in range(30):
        change = 1e-2 * rng.normal(size=3)
        scale = float(np.exp(1e-2 * rng.normal()))
        other = Q(q.m + change[:2], q.S * scale, q.c0 + change[2], q.log_det_S + 2 * np.log(scale))
        assert elbo(sites, sites.local_step(chunk, other), other) < best + 1e-12


def test_global_step_solves_for_mean_and_covariance() -> None:
    rng = np.random.default_rng(0)
    chunk = make_chunk(make_targets(SIZES, LABELS), 3, rng)
    sites = SITES["logistic"]
    q0 = random_q(3, rng)
    mu = q0.c0 + chunk.A @ q0.m
    stats = sites.local_step(chunk, q0)
    q = global_step(stats, q0.c0, learn_mean=False)
    xi = np.sqrt(mu**2 + spread(chunk, q0) + chunk.kt)
    Lam = np.diag(np.tanh(xi / 2) / (2 * xi))
    P = np.eye(3) + chunk.A.T @ Lam @ chunk.A
    np.testing.assert_allclose(q.S, np.linalg.inv(P), rtol=1e-10)
    right = stats.AtEta - q0.c0 * chunk.A.T @ Lam @ np.ones(len(mu))
    np.testing.assert_allclose(q.m, np.linalg.solve(P, right), rtol=1e-10)
    assert q.log_det_S == pytest.approx(-np.linalg.slogdet(P)[1], rel=1e-12)


# --- below the evidence -------------------------------------------------------------------------


def singletons(rng: np.random.Generator) -> Chunk:
    T = [True, False, True, True, False, False]
    return make_chunk(make_targets([1] * 6, T), 2, rng)


def log_evidence(model: str, chunk: Chunk, c0: float) -> float:
    """log of the integral over v (and each residual) of the probability of all labels."""
    v, weights = gauss_hermite_grid(60, 2)
    mean = c0 + v @ chunk.A.T  # (points, n)
    sign = np.where(chunk.targets.T, 1.0, -1.0)
    if model.startswith("probit"):
        logs = special.log_ndtr(sign * mean / np.sqrt(1 + chunk.kt)).sum(axis=1)
    else:
        nodes, w = gauss_hermite_grid(60, 1)
        f = mean[:, :, None] + np.sqrt(chunk.kt)[:, None] * nodes[:, 0]
        p = special.expit(sign[:, None] * f) @ w
        H = SITES[model].likelihood.H
        logs = np.log(p if np.isinf(H) else (p * H + (1 - p)) / (H + 1)).sum(axis=1)
    return float(special.logsumexp(logs, b=weights))


@each_model
@pytest.mark.parametrize("seed", range(6))
def test_elbo_is_below_the_evidence(model: str, seed: int) -> None:
    chunk = singletons(np.random.default_rng(seed))
    history, q = plain_sweeps(SITES[model], chunk, False, 300)
    evidence = log_evidence(model, chunk, q.c0)
    assert history[-1] <= evidence
    # A bound far below would pass unnoticed: these problems are easy. vfe pays for the residuals.
    assert history[-1] >= evidence - 2.0 - 0.5 * chunk.kt.sum()
