"""The one convergence loop, and warnings of what fits have come to."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.stats import Chunk, Q, latent_mean
from bagwise.core.likelihoods.at_least_one import BagLikelihood

Array = NDArray[Any]
S = TypeVar("S")

CONSTANT = 0.01  # in f: its probabilities then differ by less than .004


@dataclass(frozen=True)
class Trace:
    """How a fit went: the objective at the start and after each sweep."""

    history: tuple[float, ...]
    converged: bool

    @property
    def n_iter(self) -> int:
        """Number of sweeps."""
        return len(self.history) - 1


def converge(
    step: Callable[[S], S],
    state: S,
    objective: Callable[[S], float],
    *,
    max_iter: int,
    tol: float,
    verbose: int = 0,
    past: tuple[float, ...] = (),
    note: Callable[[S, list[float]], None] | None = None,
    arrived: Callable[[S], bool] | None = None,
) -> tuple[S, Trace]:
    """Repeat `step` until the objective twice changes by less than `tol` relative to its size.

    `past` is the history up to `state` of a run that goes on; `note` hears of every step. Steps
    that know what is left to gain say by `arrived` that it is less than that.

    >>> state, trace = converge(lambda x: x / 2, 1.0, lambda x: 5 - x, max_iter=100, tol=1e-3)
    >>> trace.converged, round(state, 3)
    (True, 0.002)
    """
    history = list(past) or [objective(state)]
    still = int(len(history) > 1 and _is_small(history, tol))
    for sweep in range(len(history), max_iter + 1):
        state = step(state)
        history.append(objective(state))
        if not np.isfinite(history[-1]):
            raise FloatingPointError(
                f"the objective became {history[-1]} in sweep {sweep}; check the features' scale "
                "(standardize=True) and the kernel's hyperparameters"
            )
        if verbose:
            print(f"sweep {sweep:4d}  objective {history[-1]:.6f}")
        if note is not None:
            note(state, history)
        if arrived is not None and arrived(state):
            return state, Trace(tuple(history), True)
        still = still + 1 if _is_small(history, tol) else 0
        if still == 2:  # one small change may be an accelerated step that led nowhere
            return state, Trace(tuple(history), True)
    return state, Trace(tuple(history), False)


def _is_small(history: list[float], tol: float) -> bool:
    return abs(history[-1] - history[-2]) <= tol * max(abs(history[-1]), 1.0)


def warn_not_converged(max_iter: int, tol: float, scale: str = "relative") -> None:
    """Tell the user that a fit was cut short, and what to do."""
    warnings.warn(
        f"the fit stopped after max_iter={max_iter} sweeps before the objective changed by less "
        f"than tol={tol:g} ({scale}); raise max_iter or tol",
        ConvergenceWarning,
        stacklevel=3,
    )


@dataclass(frozen=True)
class Range:
    """The least and the largest values of some chunks."""

    low: Array
    high: Array

    def __add__(self, other: Range) -> Range:
        return Range(np.minimum(self.low, other.low), np.maximum(self.high, other.high))


def _range_of_f(chunk: Chunk, q: Q) -> Range:
    mu = latent_mean(chunk, q)
    return Range(mu.min(), mu.max())


def range_of_features(chunk: Chunk) -> Range:
    """Of each column of A."""
    return Range(chunk.A.min(axis=0), chunk.A.max(axis=0))


def warn_if_constant(sweeper: Sweeper, q: Q, likelihood: BagLikelihood) -> None:
    """Say so where f is the same for training instances that differ: nothing was learned."""
    found = sweeper.total(partial(_range_of_f, q=q))
    if found.high - found.low >= CONSTANT:
        return
    features = sweeper.total(range_of_features)
    if np.max(features.high - features.low) <= 1e-9 * np.max(np.abs(features.high)):  # all alike
        return
    noise = (
        ""
        if np.isinf(likelihood.H)
        else f"; H = {likelihood.H:g} explains the labels as wrong ones: use H=inf, or a larger H"
    )
    warnings.warn(
        f"f is constant over the training instances (between {found.low:.4g} and "
        f"{found.high:.4g}), so that the model has learned nothing about them; check that features "
        "are informative and in a scale that suits the kernel (standardize=True), and learn the "
        f"mean{noise}",
        UserWarning,
        stacklevel=2,
    )
