"""Learning the coupling lambda from the bound."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bagwise.execution import Sweeper, TrainingData
from bagwise.features import Whitener
from bagwise.infer.collapsed import NewtonAscent
from bagwise.infer.monitor import Monitor, State
from bagwise.infer.newton import warn_unless_converged
from bagwise.ising import IsingSites
from bagwise.sites import Q

START = 0.5
# Without a prior lambda runs away: a bag whose instances all agree explains its label best.
PRIOR_SD = 0.5
LOWEST, HIGHEST = float(np.log(1e-3)), float(np.log(1e2))


def learn_coupling(
    data: TrainingData,
    whitener: Whitener,
    q: Q,
    make_sites: Callable[[float], IsingSites],
    *,
    max_iter: int,
    tol: float,
    steps: int = 12,
    precision: float = 0.05,
    monitor: Monitor | None = None,
    state: State | None = None,
) -> float:
    """Maximise bound and log prior over log lambda by secant steps, from `q` at START.

    By the envelope theorem the gradient at the optimal q for a lambda is that of the optimised
    bound. Steps are at most 1 in log lambda and end when they fall below `precision`. What is
    returned has been evaluated; it is within `precision` of the optimum unless a warning says not.
    `state` is what the monitor was given after a step of a search that goes on.
    """
    sweeper = data.sweeper(whitener)
    log_lam, last, first = float(np.log(START)), None, 0
    if state is not None:
        log_lam, last, first, q = state["log_lam"], state["last"], state["step"], Q(**state["q"])
    traces = []
    for k in range(first, steps):
        sites = make_sites(float(np.exp(log_lam)))
        ascent = NewtonAscent(sites, sweeper, learn_mean=False)
        q, trace = ascent.run(q, max_iter=max_iter, tol=tol, warn=False)
        traces.append(trace)
        slope = sites.lam * _gradient(sites, sweeper, q)
        slope -= (log_lam - float(np.log(START))) / PRIOR_SD**2
        step = float(np.clip(slope, -1, 1)) if last is None else _secant(log_lam, slope, *last)
        last = (log_lam, slope)
        new = float(np.clip(log_lam + step, LOWEST, HIGHEST))
        if abs(new - log_lam) < precision:
            break
        log_lam = new
        if monitor is not None:
            reached = {"log_lam": new, "last": last, "step": k + 1, "q": vars(q)}
            monitor.step(k + 1, trace.history[-1], partial(dict, reached))
    else:
        _warn_unsettled(steps, sites.lam, float(np.exp(new)))
    cut_short = [trace for trace in traces if not trace.converged]
    for trace in cut_short[-1:]:  # one warning for all steps
        warn_unless_converged(trace, max_iter, tol)
    return sites.lam


def _warn_unsettled(steps: int, lam: float, new: float) -> None:
    warnings.warn(
        f"the coupling did not settle in {steps} steps: {lam:.3g} would go on to {new:.3g}; "
        "compare with a given coupling, such as coupling=0.5",
        ConvergenceWarning,
        stacklevel=3,
    )


def _gradient(sites: IsingSites, sweeper: Sweeper, q: Q) -> float:
    return sweeper.total(partial(sites.coupling_gradient, q=q))


def _secant(x: float, slope: float, last_x: float, last_slope: float) -> float:
    """Newton step from two slopes; an uphill step of length 1 where the bound is not concave."""
    curvature = (slope - last_slope) / (x - last_x)
    if curvature >= 0:
        return float(np.sign(slope))
    return float(np.clip(-slope / curvature, -1, 1))
