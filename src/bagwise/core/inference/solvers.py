"""How the bound of a model is climbed, by the name that its sites give, as a stage of a fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bagwise.core.inference.cavi import CoordinateAscent
from bagwise.core.inference.loop import Trace
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.newton_logistic import NewtonRefinement
from bagwise.core.inference.newton_probit import NewtonAscent
from bagwise.core.inference.passes import Sweeper, TrainingData
from bagwise.core.inference.stats import Q, Sites
from bagwise.core.linalg import NotPositiveDefiniteError
from bagwise.core.parameters import check_choice

Run = Callable[..., tuple[Q, Trace]]  # of stage, method, q and limits

# Fewer end where instances of digits are told apart less well (AUC .89 against .92, ten sets).
FIRST_SWEEPS = 8

START_SHARE, START_NUMBERS = 16, 2**25  # of all rows, and of X and A: what a large fit starts from
START_BAGS = 100  # that it starts from at least
START_TOL = 1e-4  # other bags move the optimum further


def optimise(
    monitor: Monitor,
    stage: str,
    sites: Sites,
    sweeper: Sweeper,
    q: Q,
    *,
    learn_mean: bool,
    max_iter: int,
    tol: float,
    verbose: int,
) -> tuple[Q, Trace]:
    """The optimal q(v) of a model, in the way that its sites name."""
    run = partial(watched, monitor, tol=tol, verbose=verbose)
    solve = SOLVERS[check_choice("solver of the sites", sites.solver, SOLVERS)]
    return solve(run, stage, sites, sweeper, q, learn_mean, max_iter)


def newton(
    run: Run, stage: str, sites: Any, sweeper: Sweeper, q: Q, learn_mean: bool, max_iter: int
) -> tuple[Q, Trace]:
    """Newton's method, for `ClimbableSites`."""
    ascent = NewtonAscent(sites, sweeper, learn_mean=learn_mean)
    return run(stage, ascent, q, max_iter=max_iter)


def sweeps(
    run: Run, stage: str, sites: Any, sweeper: Sweeper, q: Q, learn_mean: bool, max_iter: int
) -> tuple[Q, Trace]:
    """Coordinate ascent, for any sites."""
    ascent = CoordinateAscent(sites, sweeper, learn_mean=learn_mean)
    return run(stage, ascent, q, max_iter=max_iter)


def sweeps_then_newton(
    run: Run, stage: str, sites: Any, sweeper: Sweeper, q: Q, learn_mean: bool, max_iter: int
) -> tuple[Q, Trace]:
    """A few sweeps from N(0, I), then Newton's method, for `MixtureSites`."""
    if learn_mean or max_iter <= FIRST_SWEEPS:
        return sweeps(run, stage, sites, sweeper, q, learn_mean, max_iter)
    past: tuple[float, ...] = ()
    if not np.any(q.m):
        # Plain sweeps: a rejected extrapolation costs a pass, and there are few to gain.
        plain = CoordinateAscent(sites, sweeper, learn_mean=False, accelerate=False)
        q, trace = run(stage, plain, q, max_iter=FIRST_SWEEPS, warn=False)
        if trace.converged:
            return q, trace
        past = trace.history
    refinement = NewtonRefinement(sites, sweeper, past)
    return run(f"{stage}, Newton", refinement, q, max_iter=max_iter)


SOLVERS = {"sweeps": sweeps, "newton": newton, "sweeps, then newton": sweeps_then_newton}


def watched(
    monitor: Monitor,
    stage: str,
    method: CoordinateAscent | NewtonAscent | NewtonRefinement,
    q: Q,
    **limits: Any,
) -> tuple[Q, Trace]:
    """Run an ascent as one stage of a fit, which may have been run before."""

    def work(state: State | None) -> State:
        found, trace = method.run(q, monitor=monitor, state=state, **limits)
        return as_state(found, trace, finished=not limits.get("warn", True))

    return from_state(monitor.run(stage, work))


def as_state(q: Q, trace: Trace, finished: bool = False) -> State:
    """What a stage found; one that has not converged may go on unless it is `finished`."""
    return {
        "q": vars(q),
        "history": np.array(trace.history),
        "converged": trace.converged,
        "finished": trace.converged or finished,
    }


def from_state(done: State) -> tuple[Q, Trace]:
    """q and trace of `as_state`."""
    return Q(**done["q"]), Trace(tuple(done["history"].tolist()), done["converged"])


def best_of_starts(
    stage: str, sites: Sites, q: Q, climb: Callable[[str, Sites, Q], tuple[Q, Trace]]
) -> tuple[Q, Trace]:
    """The optimum from the model's warm start, from `q`, or the better one of both."""
    if sites.warm_start is None:
        return climb(stage, sites, q)
    before = "warm start" if stage == "vi" else f"{stage} of it"
    warm, _ = best_of_starts(before, sites.warm_start, q, climb)
    found = climb(stage, sites, warm)
    if not sites.plain_start_too:
        return found
    plain = climb(f"{stage}, plain start", sites, q)
    return max(found, plain, key=lambda optimum: optimum[1].history[-1])


def bags_to_start_from(
    sites: Sites, data: TrainingData, shape: tuple[int, ...], seed: int
) -> TrainingData | None:
    """Some of very many bags, whose optimum is where the climb for all of them starts.

    The mean of v given all labels, as far as the labels of some bags tell, is its mean given those:
    no start is nearer by expectation. None where something besides the labels of whole bags counts,
    and where these are too few, or all alike. `shape` is that of the inducing points.
    """
    if not (sites.warm_start is None and data.graph is None and data.weights is None):
        return None
    order = np.random.default_rng(seed).permutation(data.counting)
    n_rows = min(len(data.X) // START_SHARE, START_NUMBERS // sum(shape))
    some = order[np.cumsum(np.diff(data.offsets)[order]) <= n_rows]
    enough = len(some) >= START_BAGS and len(np.unique(data.T[some])) > 1
    return data.of_bags(np.sort(some)) if enough else None


def rough_optimum(
    monitor: Monitor, sites: Any, sweeper: Sweeper, q: Q, limits: dict[str, Any]
) -> Q:
    """The optimum of some bags, about, as one stage of a fit; q where that breaks down."""
    ascent = NewtonAscent(sites, sweeper, learn_mean=limits["learn_mean"])
    told = {"max_iter": limits["max_iter"], "tol": START_TOL, "verbose": limits["verbose"]}
    try:
        return watched(monitor, "some bags", ascent, q, warn=False, **told)[0]
    except (FloatingPointError, NotPositiveDefiniteError):
        return q
