"""Damped Newton ascent on a log density that need not be concave."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bagwise.infer.loop import Trace
from bagwise.linalg import try_cholesky

Array = NDArray[Any]

PRECISION = 1e-5  # densities by EP and their gradients agree to about that, relatively

PRIOR_CURVATURE = 1.0  # of v ~ N(0, I): flatter directions are not trusted far from a mode


class LogDensity(Protocol):
    """What `climb` maximises."""

    def value(self, v: Array) -> float:
        """The log density, without derivatives."""

    def derivatives(self, v: Array) -> tuple[Array, Array]:
        """Its gradient and P = -Hessian."""


@dataclass(frozen=True)
class Summit:
    """Where a climb ended, with P = -Hessian there."""

    v: Array
    P: Array
    value: float
    trace: Trace


def climb(
    density: LogDensity,
    v: Array,
    *,
    max_iter: int,
    tol: float,
    enough: float = np.inf,
    verbose: int = 0,
    past: tuple[float, ...] = (),
    note: Callable[[Array, list[float]], None] | None = None,
) -> Summit:
    """Newton steps with a line search; damped where P is indefinite, and saddles are left.

    A density without a maximum is climbed up to `enough`. `past` is the history up to `v` of
    a climb that goes on; `note` hears of every step.
    """
    gradient, P = density.derivatives(v)
    history = list(past) or [density.value(v)]
    converged = False
    while not converged and len(history) <= max_iter:
        step = damped_step(P, gradient)
        # Twice the gain a Newton step promises. The last step is taken in full, without
        # a line search that rounding would mislead: it squares the error left in v.
        promise = float(gradient @ step) / max(abs(history[-1]), 1.0)
        converged = promise <= tol
        if converged:
            v, value = v + step, density.value(v + step)
        elif (found := line_search(density, v, step, gradient, history[-1])) is not None:
            v, value = found
        else:  # no ascent is left at the precision of the density
            converged = promise <= PRECISION
            break
        if converged and (escape := descent_from_saddle(P)) is not None:
            v, value = leave_saddle(density, v, escape, value)
            converged = False
        history.append(value)
        if verbose:
            print(f"Newton {len(history) - 1:3d}  log joint {value:.6f}")
        if note is not None:
            note(v, history)
        gradient, P = density.derivatives(v)
        converged = (converged and try_cholesky(P) is not None) or value >= enough
    return Summit(v, P, history[-1], Trace(tuple(history), converged))


def line_search(
    density: LogDensity, v: Array, step: Array, gradient: Array, value: float
) -> tuple[Array, float] | None:
    """The longest of step, step/2, step/4, ... that gains enough (Armijo); None if none does."""
    slope = float(gradient @ step)
    rate = 1.0
    for _ in range(30):
        candidate = v + rate * step
        new = density.value(candidate)
        if new >= value + 1e-4 * rate * slope:
            return candidate, new
        rate *= 0.5
    return None


def leave_saddle(density: LogDensity, v: Array, e: Array, value: float) -> tuple[Array, float]:
    """Best of a few steps along a direction in which the log density is convex."""
    candidates = [v + t * e for t in (1.0, -1.0, 0.3, -0.3, 0.1, -0.1, 0.01, -0.01)]
    values = [density.value(x) for x in candidates]
    best = int(np.argmax(values))
    return (candidates[best], values[best]) if values[best] > value else (v, value)


def damped_step(P: Array, gradient: Array) -> Array:
    """Newton's step, with |P| in place of P where that is not positive definite.

    |P| has the eigenvalues' absolute values: along directions in which the log density is
    convex the step goes uphill and away from the saddle, where a multiple of the identity
    added to P would shorten the step in all directions [Dauphin et al. 2014, Eq. 6].
    """
    if try_cholesky(P) is not None:
        with suppress(np.linalg.LinAlgError):  # singular to the last digit
            return np.linalg.solve(P, gradient)
    values, vectors = np.linalg.eigh(P)
    return vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), PRIOR_CURVATURE))


def descent_from_saddle(P: Array) -> Array | None:
    """The eigenvector of the lowest eigenvalue of P if that is negative, else None."""
    if try_cholesky(P) is not None:
        return None
    return np.linalg.eigh(P)[1][:, 0]


def cholesky_at_mode(P: Array) -> Array:
    """Cholesky factor of P, which is positive definite at a mode."""
    L = try_cholesky(P)
    if L is None:
        raise FloatingPointError(
            "the Laplace posterior precision is not positive definite: Newton's method stopped "
            "at a saddle point; use inference='vi' or raise max_iter"
        )
    return L
