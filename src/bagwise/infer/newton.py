"""Newton's method on log p(T | m, c0) - |m|^2 / 2: a damped climb with a line search.

It finds the mode of Laplace's approximation, and the optimal mean of q(v) for models whose site
precisions Lambda do not depend on q: there the bound is that function of m plus a constant.
The likelihood is not concave: Newton steps are damped on the way and saddles are left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.execution import Sweeper
from bagwise.infer.loop import Trace, warn_not_converged
from bagwise.linalg import (
    cholesky,
    inverse_from_cholesky,
    logdet_from_cholesky,
    try_cholesky,
)
from bagwise.sites import ClimbableSites, LogLikelihood, Q

Array = NDArray[Any]

OBJECTIVE_PRECISION = 1e-5  # EP's objective and its gradient agree to about that, relatively


@dataclass(frozen=True)
class LogJoint:
    """log p(T | m, c0) - |m|^2 / 2 as a function of x = m, or of x = (m, c0) with `c0=None`."""

    likelihood: LogLikelihood
    sweeper: Sweeper
    c0: float | None = None  # None: the mean is learned along with m

    def split(self, x: Array) -> tuple[Array, float]:
        """m and c0."""
        return (x, self.c0) if self.c0 is not None else (x[:-1], float(x[-1]))

    def value(self, x: Array) -> float:
        """The log joint density, without derivatives."""
        m, c0 = self.split(x)
        log_prob = self.sweeper.total(lambda c: self.likelihood.log_prob(c, m, c0))
        return log_prob - 0.5 * float(m @ m)

    def derivatives(self, x: Array) -> tuple[float, Array, Array]:
        """Value, gradient, and P = -Hessian."""
        m, c0 = self.split(x)
        found = self.sweeper.total(lambda c: self.likelihood.derivatives(c, m, c0))
        k = len(x)
        prior = np.arange(k) < len(m)  # c0 has a flat prior
        gradient = found.gradient[:k] - prior * x
        P = found.neg_hessian[:k, :k] + np.diag(prior.astype(float))
        return found.log_prob - 0.5 * float(m @ m), gradient, P


def climb(
    target: LogJoint, x: Array, *, max_iter: int, tol: float, verbose: int = 0
) -> tuple[Array, Trace]:
    """Maximise `target` from x; stop where a Newton step promises less than `tol`, relatively."""
    value, gradient, P = target.derivatives(x)
    history = [value]
    converged = False
    while not converged and len(history) <= max_iter:
        step = damped_step(P, gradient)
        # Twice the gain a Newton step promises. The last step is taken in full, without
        # a line search that rounding would mislead: it squares the error left in x.
        promise = float(gradient @ step) / max(abs(value), 1.0)
        converged = promise <= tol
        if converged:
            x, value = x + step, target.value(x + step)
        elif (found := _line_search(target, x, step, gradient, value)) is not None:
            x, value = found
        else:  # no ascent is left at the precision of the objective
            converged = promise <= OBJECTIVE_PRECISION
            break
        if converged and (escape := _descent_from_saddle(P)) is not None:
            x, value = _leave_saddle(target, x, escape, value)
            converged = False
        history.append(value)
        if verbose:
            print(f"Newton {len(history) - 1:3d}  log joint {value:.6f}")
        if not converged:
            value, gradient, P = target.derivatives(x)
    return x, Trace(tuple(history), converged)


class NewtonAscent:
    """The optimal q(v) of a model whose Lambda does not depend on q."""

    def __init__(self, sites: ClimbableSites, sweeper: Sweeper, *, learn_mean: bool) -> None:
        self.sites = sites
        self.sweeper = sweeper
        self.learn_mean = learn_mean

    def run(self, q: Q, *, max_iter: int, tol: float, verbose: int = 0) -> tuple[Q, Trace]:
        """Climb from the mean of `q`; the trace holds the ELBO."""
        precision = self.sweeper.total(self.sites.precision)
        L = cholesky(np.eye(len(q.m)) + precision.AtLA, name="P = I + A' Lambda A")
        S, log_det_S = inverse_from_cholesky(L), -logdet_from_cholesky(L)
        target = LogJoint(self.sites, self.sweeper, None if self.learn_mean else q.c0)
        x = np.append(q.m, q.c0) if self.learn_mean else q.m
        x, climbed = climb(target, x, max_iter=max_iter, tol=tol, verbose=verbose)
        if not climbed.converged:
            warn_not_converged(max_iter, tol)
        m, c0 = target.split(x)
        rest = self.sweeper.total(self.sites.constant_bound)
        at_zero = Q(np.zeros_like(m), S, c0, log_det_S)
        rest += self.sites.global_bound(at_zero, precision) - at_zero.kl()
        history = tuple(value + rest for value in climbed.history)
        return Q(m, S, c0, log_det_S), Trace(history, climbed.converged)


def damped_step(P: Array, gradient: Array) -> Array:
    """Solve (P + damping) step = gradient with the least damping that is positive definite."""
    damping = 0.0
    while True:
        damped = P + damping * np.eye(len(P))
        if try_cholesky(damped) is not None:
            return np.linalg.solve(damped, gradient)
        damping = max(2 * damping, 1e-3 * max(1.0, float(np.max(np.abs(np.diagonal(P))))))


def _line_search(
    target: LogJoint, x: Array, step: Array, gradient: Array, value: float
) -> tuple[Array, float] | None:
    """A point of sufficient ascent along `step`; None if there is none."""
    slope = float(gradient @ step)
    rate = 1.0
    for _ in range(30):
        candidate = x + rate * step
        new = target.value(candidate)
        if new >= value + 1e-4 * rate * slope:
            return candidate, new
        rate *= 0.5
    return None


def _leave_saddle(target: LogJoint, x: Array, e: Array, value: float) -> tuple[Array, float]:
    """Best of a few steps along a direction in which the log joint is convex."""
    candidates = [x + t * e for t in (1.0, -1.0, 0.3, -0.3, 0.1, -0.1, 0.01, -0.01)]
    values = [target.value(c) for c in candidates]
    best = int(np.argmax(values))
    return (candidates[best], values[best]) if values[best] > value else (x, value)


def _descent_from_saddle(P: Array) -> Array | None:
    """The eigenvector of the lowest eigenvalue of P if that is negative, else None."""
    if try_cholesky(P) is not None:
        return None
    return np.linalg.eigh(P)[1][:, 0]
