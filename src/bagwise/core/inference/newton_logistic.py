"""Newton's method for the logistic bound: S is refreshed rarely, m climbs in between.

Coordinate ascent creeps where f is far from zero: the bound's curvature there, theta, is much
larger than that of the likelihood. With xi at its optimum sqrt(E f^2) and S given, the bound is
a function of m alone, whose own curvature Newton's method takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.loop import Trace, converge, warn_not_converged
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.newton import newton_step
from bagwise.core.inference.newton_probit import LogJoint
from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.stats import (
    Chunk,
    Derivatives,
    Precision,
    Q,
    diagonal_precision,
    latent,
    latent_variance,
    projected,
)
from bagwise.core.likelihoods.at_least_one import BagLikelihood, SecondOrder
from bagwise.core.linalg import cholesky, inverse_from_cholesky, logdet_from_cholesky
from bagwise.densities import Density, SmoothDensity

Array = NDArray[Any]

REACH = 16.0  # a value costs one pass over A, derivatives a matrix product
NEWTON_STEPS = 2  # for one S: more would climb to a place that the next S moves


class MixtureSites(Protocol):
    """Sites of a Gaussian scale mixture whose bound is smooth."""

    @property
    def likelihood(self) -> BagLikelihood:
        """What bag labels say about instances."""

    @property
    def density(self) -> Density:
        """psi, a `SmoothDensity`."""

    def mixture_bound(self, mu: Array, xi: Array) -> Array:
        """What the scale mixture adds to log p(T | mu), by instance."""


@dataclass(frozen=True)
class GivenCovariance:
    """The bound of a chunk's bags as a function of m, for a given S and the optimal xi."""

    sites: MixtureSites
    S: Array
    _variances: dict[int, Array] = field(default_factory=dict)  # of f, by chunk

    def _xi(self, chunk: Chunk, mu: Array) -> Array:
        if chunk.start not in self._variances:
            self._variances[chunk.start] = latent_variance(chunk, self.S)
        return np.sqrt(mu**2 + self._variances[chunk.start])

    def log_prob(self, chunk: Chunk, m: Array, c0: float) -> float:
        """The bound, without -KL."""
        mu = latent(chunk, m, c0)
        log_prob = self.sites.likelihood.log_prob(mu, chunk.targets)
        return self._total(chunk, log_prob, mu, self._xi(chunk, mu))

    def _total(self, chunk: Chunk, log_prob: Array, mu: Array, xi: Array) -> float:
        mixture = self.sites.mixture_bound(mu, xi)
        return chunk.targets.total_of_bags(log_prob) + chunk.targets.total_of_rows(mixture)

    def derivatives(self, chunk: Chunk, m: Array, c0: float) -> Derivatives:
        """The same with gradient and negative Hessian.

        The mixture adds log(1 + e^mu) - mu/2 + log psi(xi) for each instance, with
        d log psi / d mu = -theta mu and d theta / d mu = (theta' / xi) mu.
        """
        mu = latent(chunk, m, c0)
        xi = self._xi(chunk, mu)
        psi, p = self.sites.density, self.sites.likelihood.link.hazard(mu)
        assert isinstance(psi, SmoothDensity)
        theta = psi.theta(xi)
        log_prob, labels = self.sites.likelihood.log_prob_and_curvature(mu, chunk.targets)
        bound = self._total(chunk, log_prob, mu, xi)
        g = labels.g + p - 0.5 - theta * mu
        w = labels.w - p * (1 - p) + theta + psi.theta_slope(xi) * mu**2
        second = SecondOrder(chunk.targets, g, w, labels.omega, labels.sign)
        return projected(chunk.A, bound, second)

    def precision(self, chunk: Chunk, m: Array, c0: float) -> Precision:
        """Statistics of Lambda = theta at the optimal xi [C24, Eq. 27-28]."""
        xi = self._xi(chunk, latent(chunk, m, c0))
        theta = chunk.targets.counted_rows(self.sites.density.theta(xi))
        return diagonal_precision(chunk.A, theta)


@dataclass(frozen=True)
class _State:
    q: Q
    elbo: float
    given: GivenCovariance


class NewtonRefinement:
    """From a q near the optimum to the optimum: a new S, two Newton steps in m, and so on.

    `past` is the history of the bound up to that q.
    """

    def __init__(self, sites: MixtureSites, sweeper: Sweeper, past: tuple[float, ...]) -> None:
        self.sites = sites
        self.sweeper = sweeper
        self.past = past

    def run(
        self,
        q: Q,
        *,
        max_iter: int,
        tol: float,
        verbose: int = 0,
        monitor: Monitor | None = None,
        state: State | None = None,
    ) -> tuple[Q, Trace]:
        """Refine `q`, or go on from `state`, until the ELBO stands still."""

        def note(reached: _State, history: list[float]) -> None:
            past = np.array(history)
            if monitor is not None:
                step = {"q": vars(reached.q), "history": past}
                monitor.step(len(past) - 1, past[-1], partial(dict, step))

        past = self.past
        if state is not None:
            q, past = Q(**state["q"]), tuple(state["history"].tolist())
        end, trace = converge(
            partial(self._step, tol=tol),
            _State(q, past[-1], self._given(q.S)),
            lambda s: s.elbo,
            max_iter=max_iter,
            tol=tol,
            verbose=verbose,
            past=past,
            note=note,
        )
        if not trace.converged:
            warn_not_converged(max_iter, tol)
        return end.q, trace

    def _given(self, S: Array) -> GivenCovariance:
        return GivenCovariance(self.sites, S)

    def _step(self, state: _State, tol: float) -> _State:
        m, c0 = state.q.m, state.q.c0
        precision = self.sweeper.total(partial(state.given.precision, m=m, c0=c0))
        L = cholesky(np.eye(len(m)) + precision.AtLA, name="P = I + A' Lambda A")
        given = self._given(inverse_from_cholesky(L))
        target = LogJoint(given, self.sweeper, c0)
        for _ in range(NEWTON_STEPS):
            here = target.expand(m)
            found, stationary = newton_step(target, here, tol, REACH)
            if found is None:  # no ascent is left at the precision of the bound
                value = here.value
                break
            m, value = found
            if stationary:
                break
        q = Q(m, given.S, c0, -logdet_from_cholesky(L))
        return _State(q, value + 0.5 * float(m @ m) - q.kl(), given)
