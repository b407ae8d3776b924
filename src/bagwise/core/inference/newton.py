"""Damped Newton ascent on a log density that need not be concave.

Of large data the curvature costs several times as much as value and gradient. There it is kept for
the next step, corrected by what the gradient has shown of it, as long as steps shrink by it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from bagwise.core.inference.loop import Trace, warn_not_converged
from bagwise.core.linalg import solve_from_cholesky, try_cholesky

Array = NDArray[Any]

SADDLE_STEPS = np.geomspace(1.0, 1e-4, 13)
PRECISION = 1e-5  # densities by EP and their gradients agree to about that, relatively

SHORTER = 0.5  # of the gain of a step is what the next promises, while its curvature is kept
LEAST_CHANGE = 1e-8  # of the gradient along a step, relative to what P says, that is no rounding

PRIOR_CURVATURE = 1.0  # of v ~ N(0, I): flatter directions are not trusted far from a mode


@dataclass(frozen=True)
class Expansion:
    """A log density about v to second order."""

    v: Array
    value: float
    gradient: Array
    P: Array  # minus the Hessian
    kept: bool = False  # P is that of steps before, corrected


Slope = Callable[[Array], tuple[float, Array]]  # value and gradient of a log density


class LogDensity(Protocol):
    """What `climb` maximises."""

    def value(self, v: Array) -> float:
        """The log density, without derivatives."""

    def expand(self, v: Array) -> Expansion:
        """The same with derivatives."""


class OnePass:
    """A log density whose value and derivatives at the end of a step come from one pass.

    A full Newton step mostly holds, so that the first value after an expansion is itself an
    expansion, which is kept. Shorter steps, tried where it does not hold, are values alone.
    """

    def __init__(self, density: LogDensity) -> None:
        self._density = density
        self._kept: Expansion | None = None
        self._first = False  # no value has been asked for since the last expansion

    def value(self, v: Array) -> float:
        """The log density."""
        if not self._first:
            return self._density.value(v)
        self._first = False
        self._kept = self._density.expand(v)
        return self._kept.value

    def expand(self, v: Array) -> Expansion:
        """The same with derivatives."""
        kept, self._kept, self._first = self._kept, None, True
        return kept if kept is not None and kept.v is v else self._density.expand(v)


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
    note: Callable[[Expansion, list[float]], None] | None = None,
    curvature: bool = True,
    slope: Slope | None = None,
    begun: Expansion | None = None,
    rough: bool = False,
    still: float = -np.inf,
) -> Summit:
    """Newton steps with a line search; damped where P is indefinite, and saddles are left.

    A density without a maximum is climbed up to `enough`, which is no convergence. `past` is the
    history up to `v` of a climb that goes on, and `begun` what it had there if P was kept; `note`
    hears of every step. P of the summit may be that of the point before the last step, where that
    step promises at most `still` or no `curvature` is asked for. Where value and gradient are
    to be had for much less, by `slope`, P is kept while steps shrink; a `rough` climb may end
    with it.
    """
    alone, density = density, OnePass(density)
    here = begun or finite_expansion(density, v)
    history = list(past) or [here.value]
    converged = False
    while not converged and history[-1] < enough and len(history) <= max_iter:
        step = damped_step(here.P, here.gradient)
        gain = float(here.gradient @ step)  # twice that of a Newton step
        promise = gain / max(abs(here.value), 1.0)
        arrived = promise <= tol
        values: LogDensity = density
        ahead, first = None, 1.0
        if slope is not None and not arrived and try_cholesky(here.P) is not None:
            ahead = end_of_step(slope, here, step, gain)
            values, first = alone, 0.5  # the whole step has been tried
        if ahead is not None:
            shorter = promised(ahead) <= SHORTER * gain
            here = ahead if shorter else finite_expansion(density, ahead.v)
        elif here.kept and not (rough and arrived):  # which does not say that this is no saddle
            here = finite_expansion(density, here.v)
            continue
        elif arrived:
            # The last step is taken in full, without a line search that rounding would mislead:
            # it squares the error left in v.
            last = here.v + step
            here = (
                finite_expansion(density, last)
                if curvature and promise > still
                else checked(replace(here, v=last, value=alone.value(last)))
            )
        elif (found := line_search(values, here, step, gain, first)) is not None:
            here = finite_expansion(density, found[0])
        elif promise <= PRECISION:
            arrived = True
        else:  # no ascent is left, though the gradient promises some
            break
        if arrived and not (converged := try_cholesky(here.P) is not None):
            escape = leave_saddle(density, here)
            if escape is None:  # flat to the last digit
                history.append(here.value)
                break
            here = finite_expansion(density, escape)
        history.append(here.value)
        if verbose:
            print(f"Newton {len(history) - 1:3d}  log joint {here.value:.6f}")
        if note is not None:
            note(here, history)
    if here.kept and curvature:  # the steps have run out, or were enough
        here = finite_expansion(density, here.v)
    return Summit(here.v, here.P, history[-1], Trace(tuple(history), converged))


def end_of_step(slope: Slope, here: Expansion, step: Array, gain: float) -> Expansion | None:
    """Where Newton's step leads, with the curvature that it has shown; None if it gains little.

    `gain` is g's. P has to be positive definite, and stays so.
    """
    end = here.v + step
    value, gradient = slope(end)
    if not value >= here.value + 1e-4 * gain:
        return None
    return checked(Expansion(end, value, gradient, corrected(here, step, gradient), kept=True))


def corrected(here: Expansion, step: Array, gradient: Array) -> Array:
    """P that explains the gradient at the end of a step [Nocedal & Wright 2006, Eq. 6.19: BFGS]."""
    change = here.gradient - gradient  # P step, if P were the same everywhere
    along = float(step @ change)
    Ps = here.P @ step
    expected = float(step @ Ps)
    if along <= LEAST_CHANGE * expected:  # no positive definite P explains that
        return here.P
    return here.P - np.outer(Ps, Ps) / expected + np.outer(change, change) / along


def promised(here: Expansion) -> float:
    """g'P^-1 g, twice the gain of Newton's step; infinite where it would not be one."""
    L = try_cholesky(here.P)
    return np.inf if L is None else float(here.gradient @ solve_from_cholesky(L, here.gradient))


def finite_expansion(density: LogDensity, v: Array) -> Expansion:
    """The expansion about v; raise where rounding or overflow has left nothing to climb by."""
    return checked(density.expand(v))


def checked(here: Expansion) -> Expansion:
    """The expansion, or an error where it is no number."""
    if all(np.all(np.isfinite(x)) for x in (here.value, here.gradient, here.P)):
        return here
    raise FloatingPointError(
        "the log joint density or its derivatives are not finite "
        f"(value {here.value:g}) in Newton's method; check the features' scale (standardize=True) "
        "and the given penalty or kernel"
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
    density: LogDensity, here: Expansion, step: Array, slope: float, rate: float = 1.0
) -> tuple[Array, float] | None:
    """The longest of step, step/2, step/4, ... that gains enough (Armijo); None if none does.

    `rate` is the share of the step that is tried first.
    """
    for _ in range(30):
        candidate = here.v + rate * step
        new = density.value(candidate)
        if new >= here.value + 1e-4 * rate * slope:
            return candidate, new
        rate *= 0.5
    return None


def leave_saddle(density: LogDensity, here: Expansion) -> Array | None:
    """End of the best step along the eigenvector of P's lowest eigenvalue; None if none gains.

    Along it the log density is convex at v, but how far is not known: just beyond a bifurcation
    the two modes are close to the saddle between them.
    """
    e = np.linalg.eigh(here.P)[1][:, 0]
    candidates = [here.v + sign * t * e for t in SADDLE_STEPS for sign in (1.0, -1.0)]
    values = [density.value(x) for x in candidates]
    best = int(np.argmax(np.where(np.isnan(values), -np.inf, values)))
    return candidates[best] if values[best] > here.value else None


def damped_step(P: Array, gradient: Array) -> Array:
    """Newton's step, with |P| in place of P where that is not positive definite.

    |P| has the eigenvalues' absolute values: along directions in which the log density is
    convex the step goes uphill and away from the saddle, where a multiple of the identity
    added to P would shorten the step in all directions [Dauphin et al. 2014, Eq. 6].
    """
    L = try_cholesky(P)
    if L is not None:
        return solve_from_cholesky(L, gradient)
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
