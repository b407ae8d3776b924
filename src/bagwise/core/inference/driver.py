"""From a prepared problem to q(v): learn hyperparameters, then run the chosen inference."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from bagwise.core.features import whitener
from bagwise.core.inference.chains import GibbsResult, run_chains
from bagwise.core.inference.hyper import EvidenceObjective, Hyperparameters, learn
from bagwise.core.inference.laplace import Laplace
from bagwise.core.inference.loop import Trace, warn_if_constant
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.newton import warn_unless_converged
from bagwise.core.inference.passes import Sweeper, TrainingData
from bagwise.core.inference.reliability import learn_reliability
from bagwise.core.inference.solvers import (
    FIRST_SWEEPS,
    as_state,
    bags_to_start_from,
    best_of_starts,
    from_state,
    optimise,
    rough_optimum,
)
from bagwise.core.inference.stats import Q, Sites, standard_q
from bagwise.core.inference.thinning import START_MEAN, some_bags, thin
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.linalg import NotPositiveDefiniteError
from bagwise.kernels import Kernel

Array = NDArray[Any]

LEARNING_ROWS = 10_000  # a few hyperparameters need no more instances than that, of many bags
ROUGH_MODE = 1e-2  # relatively: a start from there ends as high as one from the mode itself
GOOD_R_HAT = 1.05


@dataclass(frozen=True)
class Problem:
    """Data, inducing points and model of one fit."""

    data: TrainingData
    Z: Array
    likelihood: BagLikelihood
    sites: Sites
    jitter: float
    seed: int
    monitor: Monitor = field(default_factory=Monitor)
    so_far: Callable[[Problem, Result], Any] | None = None  # the model that a result makes
    start: Q | None = None  # where a fit that was made before ended; others start at N(0, I)


@dataclass(frozen=True)
class Result:
    """The fitted q(v) with the kernel it belongs to."""

    q: Q
    kernel: Kernel
    trace: Trace
    gibbs: GibbsResult | None = None
    H: float | None = None  # where it was learned


def fit_q(
    problem: Problem,
    kernel: Kernel,
    anchor: Kernel,
    *,
    mean: float | None,
    learn_kernel: bool,
    prior_scale: float,
    inference: str,
    max_iter: int,
    tol: float,
    verbose: int = 0,
    chains: dict[str, int] | None = None,
    learn_H: bool = False,
    refit: bool = False,
) -> Result:
    """Fit q(v); `mean=None` learns the constant mean.

    `anchor` and `prior_scale` are centre and spread of the prior of the kernel's log-parameters.
    With `learn_H` the likelihood's H is where the search for it starts. A `refit` is part of a fit
    that has been looked at.
    """
    learn_mean = mean is None
    start = Hyperparameters(kernel, START_MEAN if mean is None else mean)
    prior = Hyperparameters(anchor, start.c0)
    from_bound = inference == "vi" and problem.sites.bound_learns_mean
    needs_evidence = learn_kernel or (learn_mean and not from_bound)
    h = start
    if needs_evidence:
        objective = EvidenceObjective(
            learning_data(problem, anchor, mean),
            problem.likelihood,
            problem.Z,
            problem.jitter,
            start,
            prior,
            learn_kernel,
            learn_mean,
            prior_scale,
        )
        h = _learned(problem.monitor, objective)
    features = whitener(h.kernel, problem.Z, problem.jitter)
    problem.monitor.view = partial(_model_so_far, problem, h.kernel)
    # Chains make thousands of passes, and share their features between processes.
    data = problem.data.repeated() if inference == "gibbs" else problem.data
    sweeper = data.sweeper(features, recompute=inference != "gibbs")
    limits = {"max_iter": max_iter, "tol": tol, "verbose": verbose}
    if inference == "gibbs":
        result = _sample(problem, h, sweeper, verbose, **(chains or {}))
    elif inference == "laplace":
        result = _climbed(problem, h, sweeper, limits)
    else:
        # A mean learned from the evidence stays: the mean-field bound would push it far down.
        limits["learn_mean"] = learn_mean and not needs_evidence
        result = _variational(problem, h, sweeper, limits, learn_H)
    if not refit:
        warn_if_constant(sweeper, result.q, problem.likelihood)
    problem.monitor.view = None  # which would keep the features until a collection of cycles
    return result


def _model_so_far(problem: Problem, kernel: Kernel, state: State) -> Any:
    """What callbacks are shown: the model with the q of a step of its fit."""
    trace = Trace(tuple(np.asarray(state["history"]).tolist()), False)
    result = Result(Q(**state["q"]), kernel, trace)
    return result if problem.so_far is None else problem.so_far(problem, result)


def _variational(
    problem: Problem,
    h: Hyperparameters,
    sweeper: Sweeper,
    limits: dict[str, Any],
    learn_H: bool,
) -> Result:
    """Ascent on the ELBO, for scale mixtures also from the mode.

    With large bags their bound has optima far below the best, one of which N(0, I) may lead to.
    Where there are very many instances, the mode alone is climbed from, and need not be precise.
    """

    def climb(stage: str, sites: Sites, q: Q) -> tuple[Q, Trace]:
        return optimise(problem.monitor, stage, sites, sweeper, q, **limits)

    def refit(stage: str, likelihood: BagLikelihood, q: Q) -> tuple[Q, Trace]:
        return climb(f"vi, {stage}", problem.sites.with_likelihood(likelihood), q)

    given, few = problem.start, limits["max_iter"] <= FIRST_SWEEPS
    if given is None and not few:
        given = _rough_mode(problem, h, sweeper)
    if given is None:
        start = _start(problem, h, sweeper, limits)
        q, trace = best_of_starts("vi", problem.sites, start, climb)
    else:
        q, trace = climb("vi", problem.sites, replace(given, c0=h.c0))
    elsewhere = given is None and not few and problem.sites.plain_start_too
    mode = _mode_found(problem, h, sweeper, tol=ROUGH_MODE, curvature=False) if elsewhere else None
    if mode is not None:
        found = climb("vi, from the mode", problem.sites, mode)
        q, trace = max((q, trace), found, key=lambda optimum: optimum[1].history[-1])
    if not learn_H:
        return Result(q, h.kernel, trace)
    H, q, trace = learn_reliability(sweeper, problem.likelihood, q, trace, refit)
    return Result(q, h.kernel, trace, H=H)


def _start(problem: Problem, h: Hyperparameters, sweeper: Sweeper, limits: dict[str, Any]) -> Q:
    """N(0, I), or the optimum of some of very many bags."""
    q = standard_q(len(problem.Z), h.c0)
    part = _some_bags(problem, sweeper) if problem.sites.solver == "newton" else None
    return q if part is None else rough_optimum(problem.monitor, problem.sites, part, q, limits)


def _some_bags(problem: Problem, sweeper: Sweeper) -> Sweeper | None:
    """Passes over some of very many bags; None where all are to be seen."""
    told = (problem.sites, problem.data, problem.Z.shape, problem.seed)
    some = bags_to_start_from(*told) if sweeper.large else None
    return None if some is None else some.sweeper(sweeper.whitener, dtype=some.X.dtype)


def _rough_mode(problem: Problem, h: Hyperparameters, sweeper: Sweeper) -> Q | None:
    """Where a large fit of a scale mixture starts; None where others do better, or it fails.

    The likelihood itself bends less than the bound's parabolas, so that Newton's method crosses in
    a few steps what takes many along the bound, and sweeps even more.
    """
    sites = problem.sites
    if not (sweeper.large and sites.warm_start is None and sites.solver == "sweeps, then newton"):
        return None
    return _mode_found(problem, h, sweeper, tol=ROUGH_MODE, curvature=False)


def _mode_found(problem: Problem, h: Hyperparameters, sweeper: Sweeper, **told: Any) -> Q | None:
    """Laplace's approximation as a start; None where it breaks down, since others are left."""
    try:
        limits = {"max_iter": 100, "tol": 1e-6, **told}
        return _climbed(problem, h, sweeper, limits, warn=False).q
    except (FloatingPointError, NotPositiveDefiniteError):
        return None


def learning_data(problem: Problem, kernel: Kernel, mean: float | None) -> TrainingData:
    """The rows that hyperparameters are learned from: all, or a weighted sample of many bags'."""
    data = problem.data
    if len(data.X) <= LEARNING_ROWS:
        return data.in_memory()
    if not problem.likelihood.takes_weights:
        return data.of_bags(some_bags(data, LEARNING_ROWS, problem.seed)).in_memory()

    def work(state: State | None) -> State:
        features = whitener(kernel, problem.Z, problem.jitter)
        rng = np.random.default_rng(problem.seed)
        # A fit that takes negative bags for mislabelled ones would rank no rows.
        rule = problem.likelihood.as_exact_rule()
        return vars(thin(data, rule, features, mean, LEARNING_ROWS, rng))

    done = problem.monitor.run("thinning", work)
    return data.of_rows(done["rows"], done["weights"])


def _learned(monitor: Monitor, objective: EvidenceObjective) -> Hyperparameters:
    """Hyperparameters from the evidence, as one stage of a fit, or two under a finite H.

    Where bags are large, all negative ones look mislabelled to a finite H at the start, and the
    evidence is flat there. The exact rule leads away from it.
    """

    def stage(name: str, objective: EvidenceObjective) -> Hyperparameters:
        def work(state: State | None) -> State:
            h = learn(objective, monitor=monitor, state=state)
            return {"kernel": h.kernel, "c0": h.c0}

        done = monitor.run(name, work)
        return Hyperparameters(done["kernel"], done["c0"])

    if np.isfinite(objective.likelihood.H):
        exact = stage("hyperparameters, exact rule", objective.as_exact_rule())
        objective = replace(objective, also=(exact,))
    return stage("hyperparameters", objective)


def _climbed(
    problem: Problem,
    h: Hyperparameters,
    sweeper: Sweeper,
    limits: dict[str, Any],
    warn: bool = True,
) -> Result:
    """Laplace's approximation as one stage of a fit."""
    laplace, monitor = Laplace(problem.likelihood, sweeper), problem.monitor
    part = _some_bags(problem, sweeper)
    start = None if part is None else _mode_of(problem, h, part)

    def work(state: State | None) -> State:
        # Every fit starts anew. The last mode of the search for hyperparameters may be one that
        # only its path made attractive: with it, one class of birdsong fell from an AUC of .94
        # to .33.
        v = laplace.start(h.c0) if start is None else start
        mode = laplace.mode(v, h.c0, monitor=monitor, state=state, **limits)
        if warn:
            warn_unless_converged(mode.trace, limits["max_iter"], limits["tol"])
        return as_state(mode.as_q(h.c0), mode.evidence_trace(), finished=not warn)

    q, trace = from_state(monitor.run("laplace", work))
    return Result(q, h.kernel, trace)


def _mode_of(problem: Problem, h: Hyperparameters, part: Sweeper) -> Array | None:
    """The mode of some bags, about, as one stage of a fit; None where that breaks down."""
    laplace, monitor = Laplace(problem.likelihood, part), problem.monitor

    def work(state: State | None) -> State:
        told: dict[str, Any] = {"tol": ROUGH_MODE, "monitor": monitor, "state": state}
        return {"v": laplace.mode(laplace.start(h.c0), h.c0, curvature=False, **told).v}

    try:
        found: Array = monitor.run("some bags", work)["v"]
    except (FloatingPointError, NotPositiveDefiniteError):
        return None
    return found


def _sample(
    problem: Problem, h: Hyperparameters, sweeper: Sweeper, verbose: int, **chains: int
) -> Result:
    """Gibbs chains started at the Laplace mode."""
    laplace = Laplace(problem.likelihood, sweeper)
    mode = laplace.mode(laplace.start(h.c0), h.c0)
    how: dict[str, Any] = {"start": mode.as_q(h.c0), "verbose": verbose, **chains}

    def work(state: State | None) -> State:
        return vars(
            run_chains(
                sweeper, h.c0, seed=problem.seed, monitor=problem.monitor, state=state, **how
            )
        )

    result = GibbsResult(**problem.monitor.run("gibbs", work))
    mixed = result.max_r_hat < GOOD_R_HAT
    if not mixed:
        warnings.warn(
            f"the chains disagree: largest split R-hat {result.max_r_hat:.3f}, smallest effective "
            f"sample size {result.min_ess:.0f}; raise n_samples or thin",
            ConvergenceWarning,
            stacklevel=2,
        )
    history = tuple(result.log_joint.mean(axis=0).tolist())
    return Result(result.as_q(h.c0), h.kernel, Trace(history, bool(mixed)), result)
