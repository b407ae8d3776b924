"""The collapsed bound: for site precisions that do not depend on q it is a function of m alone.

Over q(v) = N(m, S) with the constant optimal S the bound is log p(T | m, c0) - |m|^2 / 2 plus a
constant, which Newton's method maximises. The same function gives the mode of Laplace's
approximation.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.loop import Trace
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.newton import Expansion, Summit, climb, warn_unless_converged
from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.stats import (
    Chunk,
    ClimbableSites,
    Derivatives,
    LogLikelihood,
    Precision,
    Q,
    Slope,
    Sums,
)
from bagwise.core.linalg import cholesky, inverse_from_cholesky, logdet_from_cholesky

Array = NDArray[Any]

EXPANDED = [own.name for own in fields(Expansion)]


@dataclass(frozen=True)
class LogJoint:
    """log p(T | m, c0) - |u|^2 / 2, m = scale u, as a function of x = u, or (u, c0) if c0 is None.

    So u ~ N(0, I) where m_i ~ N(0, scale_i^2); where `penalty` is 0 the prior of m_i is flat.
    """

    likelihood: LogLikelihood
    sweeper: Sweeper
    c0: float | None = None  # None: the mean is learned along with m
    scale: Array | float = 1.0
    penalty: Array | float = 1.0

    def split(self, x: Array) -> tuple[Array, float]:
        """m and c0."""
        u, c0 = (x, self.c0) if self.c0 is not None else (x[:-1], float(x[-1]))
        return self.scale * u, c0

    def value(self, x: Array) -> float:
        """The log joint density, without derivatives."""
        m, c0 = self.split(x)
        log_prob = self.sweeper.total(partial(self.likelihood.log_prob, m=m, c0=c0))
        return log_prob - 0.5 * float(self._prior(x) @ x**2)

    def expand(self, x: Array) -> Expansion:
        """The same with gradient and P = -Hessian."""
        return self.expansion(x, self.derivatives(x))

    def derivatives(self, x: Array) -> Derivatives:
        """log p(T | m, c0) with its derivatives in (m, c0)."""
        m, c0 = self.split(x)
        found: Derivatives = self.sweeper.total(partial(self.likelihood.derivatives, m=m, c0=c0))
        return found

    def expansion(self, x: Array, found: Derivatives) -> Expansion:
        """The log joint about x, of which the derivatives of the likelihood are known."""
        k = len(x)
        P = found.neg_hessian[:k, :k].copy()
        if np.ndim(self.scale) or self.scale != 1:
            scale = self._scales(x)
            P = scale * P * scale[:, None]
        P[np.diag_indices(k)] += self._prior(x)
        return Expansion(x, *self._with_prior(x, found), P)

    def slope(self, x: Array) -> tuple[float, Array]:
        """Value and gradient, of a likelihood that has them by themselves."""
        m, c0 = self.split(x)
        likelihood: Any = self.likelihood
        return self._with_prior(x, self.sweeper.total(partial(likelihood.slope, m=m, c0=c0)))

    def _with_prior(self, x: Array, found: Slope | Derivatives) -> tuple[float, Array]:
        prior, gradient = self._prior(x), found.gradient[: len(x)]
        if np.ndim(self.scale) or self.scale != 1:
            gradient = self._scales(x) * gradient
        return found.log_prob - 0.5 * float(prior @ x**2), gradient - prior * x

    def _scales(self, x: Array) -> Array:
        """What each coordinate is multiplied by."""
        scale = np.ones(len(x))
        scale[: len(x) - (self.c0 is None)] = self.scale
        return scale

    def _prior(self, x: Array) -> Array:
        """Prior precision of each coordinate; that of c0 is flat."""
        prior = np.zeros(len(x))
        prior[: len(x) - (self.c0 is None)] = self.penalty
        return prior


def watched_climb(
    target: LogJoint,
    x: Array,
    monitor: Monitor | None,
    state: State | None,
    max_iter: int,
    tol: float,
    verbose: int,
    curvature: bool = True,
) -> Summit:
    """Climb from x, or on from a saved state; the monitor hears of every step."""

    def note(here: Expansion, history: list[float]) -> None:
        past = np.array(history)
        reached = vars(here) if here.kept else {"v": here.v}
        if monitor is not None:
            monitor.step(len(past) - 1, past[-1], lambda: {**reached, "history": past})

    told: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "verbose": verbose}
    if target.sweeper.large and hasattr(target.likelihood, "slope"):
        told["slope"] = target.slope
    if state is not None:
        x, told["past"] = state["v"], tuple(state["history"].tolist())
        if "P" in state:
            told["begun"] = Expansion(**{name: state[name] for name in EXPANDED})
    return climb(target, x, **told, note=note, curvature=curvature)


@dataclass(frozen=True)
class Constants(Sums):
    """What depends on neither m nor c0."""

    precision: Precision
    bound: float


def before_all_steps(sites: ClimbableSites, chunk: Chunk) -> Constants:
    """All that is to be known of a chunk besides its part of the log joint, in one pass."""
    return Constants(sites.precision(chunk), sites.constant_bound(chunk))


class NewtonAscent:
    """The optimal q(v) of a model whose Lambda does not depend on q."""

    def __init__(self, sites: ClimbableSites, sweeper: Sweeper, *, learn_mean: bool) -> None:
        self.sites = sites
        self.sweeper = sweeper
        self.learn_mean = learn_mean

    def run(
        self,
        q: Q,
        *,
        max_iter: int,
        tol: float,
        verbose: int = 0,
        warn: bool = True,
        monitor: Monitor | None = None,
        state: State | None = None,
    ) -> tuple[Q, Trace]:
        """Climb from the mean of `q`, or on from `state`; the trace holds the ELBO."""
        given = self.sweeper.total(partial(before_all_steps, self.sites))
        precision, rest = given.precision, given.bound
        L = cholesky(np.eye(len(q.m)) + precision.AtLA, name="P = I + A' Lambda A")
        S, log_det_S = inverse_from_cholesky(L), -logdet_from_cholesky(L)
        target = LogJoint(self.sites, self.sweeper, None if self.learn_mean else q.c0)
        x = np.append(q.m, q.c0) if self.learn_mean else q.m
        told = (monitor, state, max_iter, tol, verbose)
        summit = watched_climb(target, x, *told, curvature=False)
        climbed = summit.trace
        if warn:
            warn_unless_converged(climbed, max_iter, tol)
        m, c0 = target.split(summit.v)
        at_zero = Q(np.zeros_like(m), S, c0, log_det_S)
        rest += self.sites.global_bound(at_zero, precision) - at_zero.kl()
        history = tuple(value + rest for value in climbed.history)
        return Q(m, S, c0, log_det_S), Trace(history, climbed.converged)
