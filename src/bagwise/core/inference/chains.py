"""Chains of the Gibbs sampler: run side by side, pooled, and kept on the way in checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bagwise.core.inference.diagnostics import MIN_SAMPLES, effective_sample_size, split_r_hat
from bagwise.core.inference.gibbs import GibbsSampler
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.stats import Q
from bagwise.core.parameters import check_integer

Array = NDArray[Any]

PARTS = 50  # of a run after which its state may be kept
SERIAL_SECONDS = 5.0  # shorter runs are over before other processes have started


@dataclass(frozen=True)
class GibbsResult:
    """Draws of several chains, and what they are worth."""

    means: Array  # (n_chains, n_samples, M) E[v | m] of each draw of m (Rao-Blackwell)
    v: Array  # (n_chains, n_samples, M)
    S: Array  # (M, M) Cov(v | m): the posterior of v is the mixture of N(means, S)
    log_det_S: float
    log_joint: Array  # (n_chains, burn_in + thin * n_samples), see `GibbsState`
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
    """Draws of one chain as far as it has come, and what it needs to go on."""

    means: Array  # (n_samples, M)
    v: Array  # (n_samples, M)
    log_joint: Array  # (n_sweeps,)
    swept: int
    m: Array  # (N,) as after the last sweep
    random: State  # of its stream of random numbers


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
    monitor: Monitor | None = None,
    state: State | None = None,
) -> GibbsResult:
    """Run independent chains and pool them; the result does not depend on `n_jobs`.

    They go on from `state`, where there is one, and the `monitor` hears of theirs.

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
    sampler = GibbsSampler(list(sweeper.chunks), c0, sweeper.whitener)
    seeds = np.random.SeedSequence(seed).spawn(n_chains)
    jobs = n_jobs or _default_jobs(sampler, n_chains, burn_in + thin * n_samples)
    parallel = joblib.Parallel(n_jobs=min(joblib.effective_n_jobs(jobs), n_chains))
    plans = [
        _Plan(chain, seeds[chain], n_samples, burn_in, thin, start, verbose)
        for chain in range(n_chains)
    ]
    chains = _swept(sampler, plans, parallel, monitor or Monitor(), state)
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
    numbers = sum(b.shared.G.size for b in sampler.blocks)
    sweep = 1e-4 + sampler.n_rows * (4e-7 + 1e-9 * len(sampler.S)) + 1e-8 * numbers
    seconds = n_chains * n_sweeps * sweep
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


def _swept(
    sampler: GibbsSampler,
    plans: list[_Plan],
    parallel: joblib.Parallel,
    monitor: Monitor,
    state: State | None,
) -> list[_Chain]:
    """All chains at their ends; where states are kept, in `PARTS` parts."""
    n_sweeps = plans[0].n_sweeps
    run, part = joblib.delayed(_run_chain), n_sweeps
    chains: list[Any] = [None] * len(plans)
    if state is not None:
        chains = [_Chain(**chain) for chain in state["chains"]]
    if monitor.saves:
        part = max(n_sweeps // PARTS, 1)
    while (done := 0 if chains[0] is None else chains[0].swept) < n_sweeps:
        until = min(done + part, n_sweeps)
        both = zip(plans, chains, strict=True)
        chains = parallel(run(sampler, plan, chain, until) for plan, chain in both)
        latest = float(np.mean([chain.log_joint[until - 1] for chain in chains]))
        monitor.step(until, latest, partial(_as_state, chains))
    return chains


def _as_state(chains: list[_Chain]) -> State:
    return {"chains": [vars(chain) for chain in chains]}


def _run_chain(sampler: GibbsSampler, plan: _Plan, chain: _Chain | None, until: int) -> _Chain:
    """A chain after `until` sweeps, from its beginning or from where it was."""
    rng = np.random.default_rng(plan.seed)
    n_sweeps, shape = plan.n_sweeps, (plan.n_samples, len(sampler.S))
    means, v, log_joint = np.zeros(shape), np.zeros(shape), np.zeros(n_sweeps)
    # The number of BLAS threads changes the last bits of sums, and differs between processes.
    with threadpool_limits(limits=1, user_api="blas"):
        state = sampler.init_state(rng, plan.start)
        if chain is not None:
            rng.bit_generator.state = chain.random
            state = replace(state, m=chain.m)
            means[:], v[:], log_joint[:] = chain.means, chain.v, chain.log_joint
        for sweep in range(0 if chain is None else chain.swept, until):
            state = sampler.step(rng, state)
            log_joint[sweep] = state.log_joint
            kept, rest = divmod(sweep + 1 - plan.burn_in, plan.thin)
            if kept >= 1 and rest == 0:
                means[kept - 1], v[kept - 1] = state.mean, state.v
            if plan.verbose and (sweep + 1) % max(n_sweeps // 10, 1) == 0:
                print(f"chain {plan.chain}  sweep {sweep + 1:5d}  log joint {log_joint[sweep]:.6f}")
    return _Chain(means, v, log_joint, until, state.m, dict(rng.bit_generator.state))
