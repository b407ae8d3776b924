"""Damped Newton ascent on a log density that need not be concave."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from bagwise.infer.loop import Trace, warn_not_converged
from bagwise.linalg import try_cholesky

Array = NDArray[Any]

SADDLE_STEPS = np.geomspace(1.0, 1e-4, 13)
PRECISION = 1e-5  # densities by EP and their gradients agree to about that, relatively

STRAIGHT = 0.75  # share of slope times step that is gained where Newton's parabola gains a half
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

    A density without a maximum is climbed up to `enough`, which is no convergence. `past` is the
    history up to `v` of a climb that goes on; `note` hears of every step.
    """
    gradient, P = density.derivatives(v)
    history = list(past) or [density.value(v)]
    require_finite(history[-1], gradient, P)
    converged = False
    while not converged and history[-1] < enough and len(history) <= max_iter:
        found, arrived = newton_step(density, v, gradient, P, history[-1], tol)
        if found is None:  # no ascent is left, though the gradient promises some
            break
        v, value = found
        gradient, P = density.derivatives(v)
        require_finite(value, gradient, P)
        if arrived and not (converged := try_cholesky(P) is not None):
            escape = leave_saddle(density, v, P, value)
            if escape is None:  # flat to the last digit
                history.append(value)
                break
            v, value = escape
            gradient, P = density.derivatives(v)
            require_finite(value, gradient, P)
        history.append(value)
        if verbose:
            print(f"Newton {len(history) - 1:3d}  log joint {value:.6f}")
        if note is not None:
            note(v, history)
    return Summit(v, P, history[-1], Trace(tuple(history), converged))


def newton_step(
    density: LogDensity,
    v: Array,
    gradient: Array,
    P: Array,
    value: float,
    tol: float,
    reach: float = 1.0,
) -> tuple[tuple[Array, float] | None, bool]:
    """The next point with its value, None if there is none, and whether it is stationary.

    Steps that gain more than curvature would let them are doubled, up to `reach` times.
    """
    step = damped_step(P, gradient)
    # Twice the gain a Newton step promises. The last step is taken in full, without
    # a line search that rounding would mislead: it squares the error left in v.
    promise = float(gradient @ step) / max(abs(value), 1.0)
    if promise <= tol:
        return (v + step, density.value(v + step)), True
    found = line_search(density, v, step, gradient, value)
    if reach > 1 and found is not None and found[1] - value > STRAIGHT * float(gradient @ step):
        found = lengthened(density, v, step, found, reach)
    if found is None and promise <= PRECISION:
        return (v, value), True
    return found, False


def require_finite(value: float, gradient: Array, P: Array) -> None:
    """Raise where rounding or overflow has left nothing to climb by."""
    if np.isfinite(value) and np.all(np.isfinite(gradient)) and np.all(np.isfinite(P)):
        return
    raise FloatingPointError(
        f"the log joint density or its derivatives are not finite (value {value:g}) in Newton's "
        "method; check the features' scale (standardize=True) and the given penalty or kernel"
    )


def warn_unless_converged(trace: Trace, max_iter: int, tol: float) -> None:
    """Tell the user why a climb ended before its top, and what to do."""
    if trace.converged:
        return
    if trace.n_iter >= max_iter:
        warn_not_converged(max_iter, tol)
        return
    warnings.warn(
        f"Newton's method ended after {trace.n_iter} steps before convergence: no step gained, as "
        "the density is flat or not known more precisely; results may be slightly off; check the "
        "features' scale (standardize=True)",
        ConvergenceWarning,
        stacklevel=3,
    )


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


def lengthened(
    density: LogDensity, v: Array, step: Array, found: tuple[Array, float], reach: float
) -> tuple[Array, float]:
    """The best of step, 2 step, 4 step, ... up to the first that gains less."""
    rate = 2.0
    while rate <= reach and (value := density.value(v + rate * step)) > found[1]:
        found = v + rate * step, value
        rate *= 2
    return found


def leave_saddle(
    density: LogDensity, v: Array, P: Array, value: float
) -> tuple[Array, float] | None:
    """Best of some steps along the eigenvector of P's lowest eigenvalue; None if none gains.

    Along it the log density is convex at v, but how far is not known: just beyond a bifurcation
    the two modes are close to the saddle between them.
    """
    e = np.linalg.eigh(P)[1][:, 0]
    candidates = [v + sign * t * e for t in SADDLE_STEPS for sign in (1.0, -1.0)]
    values = [density.value(x) for x in candidates]
    best = int(np.argmax(np.where(np.isnan(values), -np.inf, values)))
    return (candidates[best], values[best]) if values[best] > value else None


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


def cholesky_at_mode(P: Array, remedy: str) -> Array:
    """Cholesky factor of P, which is positive definite at a mode; `remedy` ends the error."""
    L = try_cholesky(P)
    if L is None:
        raise FloatingPointError(
            "the Laplace posterior precision is not positive definite: Newton's method stopped "
            f"at a saddle point; {remedy}"
        )
    return L
