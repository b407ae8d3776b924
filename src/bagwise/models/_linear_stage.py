"""The fit of a linear model as one stage: callbacks hear of steps, a checkpoint keeps its end."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bagwise.core.inference.loop import Trace, warn_not_converged
from bagwise.core.inference.monitor import Monitor, Note, State
from bagwise.core.linear.design import Columns
from bagwise.core.linear.evidence import Fit
from bagwise.core.posteriors.linear import TaskPosteriors, posterior_at
from bagwise.kernels import Kernel


def prepared_columns(columns: Columns, rng: np.random.Generator) -> State:
    """What is chosen before a fit, and where its random numbers are then."""
    random = dict(rng.bit_generator.state)
    return {"shift": columns.shift, "scale": columns.scale, "Z": columns.basis, "random": random}


def restored_columns(prepared: State, kernel: Kernel | None, rng: np.random.Generator) -> Columns:
    """The columns of a fit, and its random numbers where they were."""
    rng.bit_generator.state = prepared["random"]
    return Columns.all(prepared["shift"], prepared["scale"], kernel, prepared["Z"])


def watched(
    monitor: Monitor,
    stage: str,
    work: Callable[[Note], Fit],
    rng: np.random.Generator,
    tasks: tuple[Any, ...] | None = None,
) -> State:
    """What is kept of a fit: its posterior, or one for each of its tasks, and how it went.

    A stage that was cut short begins anew: its steps are no states to go on from.
    """

    def run(state: State | None) -> State:
        fit = work(lambda step, objective: monitor.step(step, objective, dict))
        seed = int(rng.integers(2**31))  # of the points of joint bag probabilities
        each = tuple(posterior_at(mode, fit.columns, seed) for mode in fit.modes)
        return {
            "posterior": each[0] if tasks is None else TaskPosteriors(tasks, each),
            "alpha": fit.alpha,
            "history": np.array(fit.trace.history),
            "converged": fit.trace.converged,
            "problem": fit.problem,
        }

    return monitor.run(stage, run)


def store(model: Any, found: State, one: Any) -> None:
    """Give a model what `watched` has found; `one` is the posterior of one task."""
    trace = Trace(tuple(found["history"].tolist()), found["converged"])
    if not trace.converged:
        _warn_of(found["problem"], model)
    model.posterior_ = found["posterior"]
    model.alpha_ = np.full(one.n_weights, np.inf)
    model.alpha_[one.columns] = found["alpha"]
    model.log_evidence_history_ = np.array(trace.history)
    model.log_evidence_ = trace.history[-1]
    model.n_iter_ = trace.n_iter
    model.converged_ = trace.converged


def _warn_of(problem: str, model: Any) -> None:
    if problem:
        warnings.warn(problem, ConvergenceWarning, stacklevel=5)
    else:
        warn_not_converged(model.max_iter, model.tol, "nats")
