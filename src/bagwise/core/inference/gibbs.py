"""Collapsed Gibbs sampling for MIL-GP-Probit, exact as the number of sweeps grows [W21, 3.5].

With the latent f integrated out the model is

    v ~ N(0, I),   m_n | v ~ N(c0 + a_n'v, s_n^2),   s_n^2 = 1 + kt_n,   T_b = max_n 1[m_n > 0]

(the paper prints s_n = 1, which its own sparse approximation contradicts). A sweep draws v | m,
a Gaussian whose covariance never changes, and m | v, T. A positive bag is drawn jointly rather
than instance by instance as in [W21, Eq. 26-28]: the index of its first positive instance, then
truncated normals. Nothing loops over instances or bags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy import special
from threadpoolctl import threadpool_limits

from bagwise.core.inference.diagnostics import MIN_SAMPLES, effective_sample_size, split_r_hat
from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.stats import Chunk, Q, diagonal_precision
from bagwise.core.likelihoods.at_least_one import Targets
from bagwise.core.linalg import cholesky, inverse_lower, logdet_from_cholesky
from bagwise.core.parameters import check_integer

Array = NDArray[Any]

FAR = 200.0  # standard deviations beyond which truncated normals use their limit, good to 1e-9
NEVER = -50.0  # a log-probability that no run of ours is long enough to meet
SERIAL_SECONDS = 5.0  # shorter runs are over before other processes have started


# --- m | v, T -------------------------------------------------------------------------------


def truncated_normal(mean: Array, scale: Array, side: Array, log_u: Array) -> Array:
    """Draws of N(mean, scale^2) below zero (side -1), above it (+1) or anywhere (0).

    `log_u` are logarithms of uniforms, i.e. minus standard exponentials. [W21, Eq. 26-28]

    >>> truncated_normal(np.zeros(3), np.ones(3), np.array([-1, 0, 1]), np.log([0.5, 0.9, 0.5]))
    array([-0.67448975,  1.28155157,  0.67448975])
    """
    above = side > 0
    z = np.where(above, -mean, mean) / scale  # a draw above zero is minus one below zero
    far = (side != 0) & (z > FAR)
    log_mass = np.where(side == 0, 0.0, special.log_ndtr(-np.where(far, 0.0, z)))
    below = z + special.ndtri_exp(log_u + log_mass)
    below = np.where(far, -_excess(np.where(far, z, 1.0), -log_u), below)
    # Rounding alone may leave a draw at the border on the wrong side.
    below = np.where(side == 0, below, np.minimum(below, 0.0))
    return scale * np.where(above, -below, below)


def _excess(z: Array, e: Array) -> Array:
    """x > 0 with log P(m < -x | m < 0) = -e for m ~ N(z, 1) and large z, without cancellation.

    The exponent of that probability is (z + 1/z) x + x^2/2 up to terms of order z^-4.
    """
    slope = z + 1 / z
    return 2 * e / (slope + np.sqrt(slope**2 + 2 * e))


def log_first_positive(z: Array, targets: Targets) -> Array:
    """log P(the first positive instance of its bag is n | z), -inf for known rows, shape (n,).

    prod_{i<n} P(m_i < 0) P(m_n > 0) over the free instances of the bag; not normalised: its sum
    over a bag is 1 - P0.
    """
    log_negative = np.where(targets.free, special.log_ndtr(-z), 0.0)
    # After an instance with P(m < 0) < exp(NEVER) none is ever the first; without the bound
    # cumulative sums over long chunks would lose digits.
    before = np.cumsum(np.maximum(log_negative, NEVER)) - np.maximum(log_negative, NEVER)
    before -= targets.spread(before[targets.starts])
    return np.where(targets.free, before + special.log_ndtr(z), -np.inf)


def first_positive(log_weights: Array, targets: Targets, exponentials: Array) -> Array:
    """One row per bag, row n with probability proportional to exp(log_weights), shape (B,).

    The row that wins a race of exponential clocks; `exponentials` are standard, one per row.
    """
    score = log_weights - np.log(exponentials)
    best = np.maximum.reduceat(score, targets.starts)
    winners = np.flatnonzero(score == targets.spread(best))
    return winners[np.searchsorted(winners, targets.starts)]


def fixed_sides(targets: Targets) -> Array:
    """Side of zero on which each m_n lies whatever v: -1, +1, or 0 where it is open."""
    side = np.where(targets.spread(targets.T), 0, -1)
    if targets.known is not None:
        side = np.where(targets.known == 1, 1, np.where(targets.known == 0, -1, side))
    return side


def draw_sides(
    z: Array, fixed: Array, targets: Targets, exponentials: Array
) -> tuple[Array, Array]:
    """Side of zero of each m_n given z, an exact joint draw per bag, and log p(T_b | z) (B,).

    Up to the first positive instance of a bag all sides are settled, after it none is.
    """
    undecided = targets.T & ~targets.settled
    own = np.where(fixed == 0, 0.0, special.log_ndtr(fixed * z))
    log_prob = targets.sum_bags(own)
    if not np.any(undecided):
        return fixed, log_prob
    log_weights = log_first_positive(z, targets)
    first = targets.spread(first_positive(log_weights, targets, exponentials))
    rows = np.arange(len(z))
    drawn = np.where(rows < first, -1, np.where(rows == first, 1, 0))
    side = np.where(targets.spread(undecided) & targets.free, drawn, fixed)
    top = np.maximum.reduceat(log_weights, targets.starts)
    top = np.where(undecided, top, 0.0)  # bags without a free instance have no weights
    mass = targets.sum_bags(np.exp(np.minimum(log_weights - targets.spread(top), 0.0)))
    return side, log_prob + np.where(undecided, top + np.log(np.where(undecided, mass, 1.0)), 0.0)


# --- The sampler: init and step ---------------------------------------------------------------


@dataclass(frozen=True)
class GibbsState:
    """Where a chain is."""

    v: Array  # (M,)
    m: Array  # (N,) latent values with noise; their signs agree with all labels
    mean: Array  # (M,) E[v | the m that v was drawn from]
    log_joint: float  # log p(T | v) - |v|^2 / 2, with m integrated out


@dataclass(frozen=True)
class _Block:
    """What a sweep needs of a chunk."""

    A: Array  # (n, M)
    s: Array  # (n,)
    targets: Targets
    fixed: Array  # (n,)
    rows: slice  # in the whole data

    def project(self, residual: Array) -> Array:
        """A' residual / s^2 in float64, shape (M,)."""
        scaled = (residual / self.s**2).astype(self.A.dtype, copy=False)
        return np.asarray(scaled @ self.A, dtype=np.float64)


class GibbsSampler:
    """The transition of one chain: `init_state` and `step` are pure but for their `rng`.

    Draws do not depend on how the data are cut into chunks.
    """

    def __init__(self, chunks: list[Chunk], c0: float) -> None:
        self.c0 = c0
        self.blocks = [_block(chunk) for chunk in chunks]
        self.n_rows = sum(len(b.s) for b in self.blocks)
        P = sum(
            (diagonal_precision(b.A, 1 / b.s**2).AtLA for b in self.blocks),
            start=np.eye(chunks[0].A.shape[1]),
        )
        L = cholesky(P, name="P = I + A' diag(1/s^2) A")
        self._L_inv = inverse_lower(L)
        self.S = self._L_inv.T @ self._L_inv  # (M, M) Cov(v | m)
        self.log_det_S = -logdet_from_cholesky(L)

    def init_state(self, rng: np.random.Generator, start: Q | None = None) -> GibbsState:
        """v from `start` or from its prior, and m | v, T.

        R-hat wants starts wider than the posterior, as the prior is; many instances may need
        hundreds of sweeps from there, and few from an approximate posterior.
        """
        v = rng.standard_normal(len(self.S))
        if start is not None:
            v = start.m + cholesky(start.S, name="S of the start", jitter=1e-12) @ v
        m, log_prob = self.draw_m(rng, v)
        return GibbsState(v, m, np.zeros_like(v), log_prob - 0.5 * float(v @ v))

    def step(self, rng: np.random.Generator, state: GibbsState) -> GibbsState:
        """One sweep: v | m, then m | v, T [W21, 3.5]."""
        mean = self.mean_v(state.m)
        v = mean + self._L_inv.T @ rng.standard_normal(len(mean))
        m, log_prob = self.draw_m(rng, v)
        return GibbsState(v, m, mean, log_prob - 0.5 * float(v @ v))

    def mean_v(self, m: Array) -> Array:
        """E[v | m] = S A'(m - c0)/s^2 [W21, 3.5, with noise 1 + kt]."""
        return self.S @ sum(b.project(m[b.rows] - self.c0) for b in self.blocks)

    def draw_m(self, rng: np.random.Generator, v: Array) -> tuple[Array, float]:
        """A joint draw of m | v, T and log p(T | v)."""
        race, minus_log_u = rng.standard_exponential((2, self.n_rows))
        m, log_prob = np.empty(self.n_rows), 0.0
        for b in self.blocks:
            mu = self.c0 + np.asarray(b.A @ v.astype(b.A.dtype), dtype=np.float64)
            side, log_probs = draw_sides(mu / b.s, b.fixed, b.targets, race[b.rows])
            m[b.rows] = truncated_normal(mu, b.s, side, -minus_log_u[b.rows])
            log_prob += float(log_probs.sum())
        return m, log_prob


def _block(chunk: Chunk) -> _Block:
    targets, n = chunk.targets, len(chunk.kt)
    fixed = fixed_sides(targets)
    possible = np.maximum.reduceat(fixed, targets.starts) >= 0  # some row may be positive
    known_positive = targets.settled & ~targets.T
    if np.any(targets.T & ~possible) or np.any(known_positive):
        raise ValueError(
            "known instance labels contradict a bag's label; a positive bag needs an instance "
            "that is not known to be negative, a negative bag has no known positive"
        )
    s = np.sqrt(1 + np.asarray(chunk.kt, dtype=np.float64))
    return _Block(chunk.A, s, targets, fixed, slice(chunk.start, chunk.start + n))


# --- Chains ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class GibbsResult:
    """Draws of several chains, and what they are worth."""

    means: Array  # (n_chains, n_samples, M) E[v | m] of each draw of m (Rao-Blackwell)
    v: Array  # (n_chains, n_samples, M)
    S: Array  # (M, M) Cov(v | m): the posterior of v is the mixture of N(means, S)
    log_det_S: float
    log_joint: Array  # (n_chains, burn_in + thin * n_samples) log p(T | v) - |v|^2 / 2
    r_hat: Array  # (M,) split R-hat of v
    ess: Array  # (M,) effective number of draws of v

    @property
    def max_r_hat(self) -> float:
        """The worst split R-hat; above 1.01 the chains should run longer."""
        return float(np.max(self.r_hat))

    @property
    def min_ess(self) -> float:
        """The smallest effective sample size; a few hundred are wanted."""
        return float(np.min(self.ess))

    def mixture_means(self, at_most: int = 2000) -> Array:
        """Means of all chains together, evenly thinned, shape (n, M)."""
        pooled = self.means.reshape(-1, self.means.shape[2])
        n = min(at_most, len(pooled))
        return pooled[np.arange(n) * len(pooled) // n]

    def as_q(self, c0: float) -> Q:
        """Mean and within-component covariance in the form of the other inferences."""
        return Q(self.means.mean(axis=(0, 1)), self.S, c0, self.log_det_S)


@dataclass(frozen=True)
class _Chain:
    """Draws of one chain."""

    means: Array  # (n_samples, M)
    v: Array  # (n_samples, M)
    log_joint: Array  # (n_sweeps,)


def run_chains(
    sweeper: Sweeper,
    c0: float,
    *,
    n_samples: int = 1000,
    burn_in: int = 200,
    n_chains: int = 4,
    thin: int = 1,
    seed: int = 0,
    start: Q | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> GibbsResult:
    """Run independent chains and pool them; the result does not depend on `n_jobs`.

    Parameters
    ----------
    n_samples, burn_in : draws kept and sweeps thrown away before them, per chain.
    thin : sweeps per draw kept. Sweeps are cheap but take small steps where labels say little
        of the many m they augment: tens to hundreds make one independent draw of v.
    n_chains : each starts at its own draw, with its own stream of random numbers from `seed`.
    start : an approximate posterior to draw the starts from; None is the prior.
    n_jobs : processes; None takes one per chain and core, or this one alone for short runs.
    verbose : 1 prints the log joint density of each chain ten times.
    """
    check_integer("n_samples", n_samples, at_least=MIN_SAMPLES)
    check_integer("burn_in", burn_in, at_least=0)
    check_integer("n_chains", n_chains, at_least=1)
    check_integer("thin", thin, at_least=1)
    sampler = GibbsSampler(list(sweeper.chunks), c0)
    seeds = np.random.SeedSequence(seed).spawn(n_chains)
    jobs = n_jobs or _default_jobs(sampler, n_chains, burn_in + thin * n_samples)
    run = joblib.delayed(_run_chain)
    chains = joblib.Parallel(n_jobs=min(joblib.effective_n_jobs(jobs), n_chains))(
        run(sampler, _Plan(chain, seeds[chain], n_samples, burn_in, thin, start, verbose))
        for chain in range(n_chains)
    )
    v = np.stack([c.v for c in chains])
    return GibbsResult(
        means=np.stack([c.means for c in chains]),
        v=v,
        S=sampler.S,
        log_det_S=sampler.log_det_S,
        log_joint=np.stack([c.log_joint for c in chains]),
        r_hat=split_r_hat(v),
        ess=effective_sample_size(v),
    )


def _default_jobs(sampler: GibbsSampler, n_chains: int, n_sweeps: int) -> int:
    """One process per chain as far as there are cores; one where the run takes seconds."""
    seconds = n_chains * n_sweeps * (1e-4 + sampler.n_rows * (4e-7 + 1e-9 * len(sampler.S)))
    return 1 if seconds < SERIAL_SECONDS else min(n_chains, joblib.cpu_count())


@dataclass(frozen=True)
class _Plan:
    """What one chain is to do."""

    chain: int
    seed: np.random.SeedSequence
    n_samples: int
    burn_in: int
    thin: int
    start: Q | None
    verbose: int

    @property
    def n_sweeps(self) -> int:
        return self.burn_in + self.thin * self.n_samples


def _run_chain(sampler: GibbsSampler, plan: _Plan) -> _Chain:
    rng = np.random.default_rng(plan.seed)
    n_sweeps, shape = plan.n_sweeps, (plan.n_samples, len(sampler.S))
    means, v, log_joint = np.empty(shape), np.empty(shape), np.empty(n_sweeps)
    # The number of BLAS threads changes the last bits of sums, and differs between processes.
    with threadpool_limits(limits=1, user_api="blas"):
        state = sampler.init_state(rng, plan.start)
        for sweep in range(n_sweeps):
            state = sampler.step(rng, state)
            log_joint[sweep] = state.log_joint
            kept, rest = divmod(sweep + 1 - plan.burn_in, plan.thin)
            if kept >= 1 and rest == 0:
                means[kept - 1], v[kept - 1] = state.mean, state.v
            if plan.verbose and (sweep + 1) % max(n_sweeps // 10, 1) == 0:
                print(f"chain {plan.chain}  sweep {sweep + 1:5d}  log joint {log_joint[sweep]:.6f}")
    return _Chain(means, v, log_joint)
