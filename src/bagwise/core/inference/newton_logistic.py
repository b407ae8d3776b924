"""Newton's method for the logistic bound: S is refreshed rarely, m climbs in between.

Coordinate ascent creeps where f is far from zero: the bound's curvature there, theta, is much
larger than that of the likelihood. With xi at its optimum sqrt(E f^2) and S given, the bound is
a function of m alone, whose own curvature Newton's method takes. It is not concave, since it stays
open for long which instances make a bag positive: steps are those of a trust region.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.loop import Trace, converge, warn_not_converged
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.newton import SHORTER, Expansion, end_of_step, promised
from bagwise.core.inference.newton_probit import LogJoint
from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.stats import (
    Chunk,
    Derivatives,
    Precision,
    Q,
    Slope,
    diagonal_precision,
    latent,
    projected,
    sloping,
)
from bagwise.core.inference.trust_region import START_RADIUS, Parabola, trusted_step
from bagwise.core.likelihoods.at_least_one import BagLikelihood, SecondOrder
from bagwise.core.linalg import (
    cholesky,
    inverse_from_cholesky,
    logdet_from_cholesky,
    times_transpose,
    upper_root,
)
from bagwise.densities import Density, SmoothDensity

Array = NDArray[Any]

AT_ONCE = 6  # S whose variances a chunk keeps: fits that go on side by side have one each
CARRIED = ("radius", "gain", "worth", "since", "before")  # from one step to the next, besides q


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
    of_many: bool = False  # rows, so that those that bend it least need not all be looked at
    # Variances of f, by chunk. Chunks that stay with workers keep their own, of the S with this
    # name: what is sent there is new in each pass.
    _variances: dict[int, Array] = field(default_factory=dict)
    _name: str = field(default_factory=lambda: uuid4().hex)

    @cached_property
    def _root(self) -> Array:
        """Lower triangle R with S = R'R."""
        return upper_root(self.S).T

    def _xi(self, chunk: Chunk, mu: Array) -> Array:
        kept = vars(chunk).setdefault("variances", {})
        if self._name not in kept:
            if chunk.start not in self._variances:
                self._variances[chunk.start] = self._variance(chunk)
            while len(kept) >= AT_ONCE:
                del kept[next(iter(kept))]
            kept[self._name] = self._variances[chunk.start]
        return np.sqrt(mu**2 + kept[self._name])

    def _variance(self, chunk: Chunk) -> Array:
        """Var f_n = |R a_n|^2 + kt_n, by five eighths of a product with S."""
        B = times_transpose(chunk.A, self._root.astype(chunk.A.dtype))
        return np.einsum("nm,nm->n", B, B) + chunk.kt

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
        second = second.roughly(chunk.squares, chunk.start) if self.of_many else second
        return projected(chunk.A, bound, second)

    def slope(self, chunk: Chunk, m: Array, c0: float) -> Slope:
        """The same without the Hessian."""
        mu = latent(chunk, m, c0)
        xi = self._xi(chunk, mu)
        p, theta = self.sites.likelihood.link.hazard(mu), self.sites.density.theta(xi)
        log_prob, g = self.sites.likelihood.log_prob_and_gradient(mu, chunk.targets)
        return sloping(chunk, self._total(chunk, log_prob, mu, xi), g + p - 0.5 - theta * mu)

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
    radius: float = START_RADIUS  # within which steps in m are trusted
    gain: float = np.inf  # of the last of them
    since: float = 0.0  # what they have gained since the last new S
    before: float = 0.0  # and what they had when it was made
    worth: float = np.inf  # what that S gained
    P: Array | None = None  # curvature in m that is kept for the next step
    slope: tuple[float, Array] | None = None  # value and gradient that go with it, for this S
    settled: bool = False

    @property
    def promise(self) -> float:
        """What a new S would gain, if that grows as m does."""
        return self.worth * self.since / self.before if self.before > 0 else self.worth


class NewtonRefinement:
    """From a first q to the optimum: Newton steps in m, and a new S when that gains more.

    `past` is the history of the bound up to that q, if any.
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
                told = {name: getattr(reached, name) for name in CARRIED}
                told |= {} if reached.P is None else {"P": reached.P}
                step = {"q": vars(reached.q), "history": past, **told}
                monitor.step(len(past) - 1, past[-1], partial(dict, step))

        past, carried = self.past, dict[str, Any]()
        if state is not None:
            q, past = Q(**state["q"]), tuple(state["history"].tolist())
            # Checkpoints of earlier versions have none: their radius is found anew.
            carried = {name: float(state[name]) for name in CARRIED if name in state}
            carried["P"] = state.get("P")
        given = GivenCovariance(self.sites, q.S, self.sweeper.large)
        past = past or (self._elbo(q, given),)
        end, trace = converge(
            partial(self._step, tol=tol),
            _State(q, past[-1], given, **carried),
            lambda s: s.elbo,
            max_iter=max_iter,
            tol=tol,
            verbose=verbose,
            past=past,
            note=note,
            arrived=lambda s: s.settled,
        )
        if not trace.converged:
            warn_not_converged(max_iter, tol)
        return end.q, trace

    def _step(self, state: _State, tol: float) -> _State:
        """A new S where that gains more than the last step in m did, and a step in m."""
        small = tol * max(abs(state.elbo), 1.0)
        if state.gain <= max(state.promise, small):
            state = self._with_new_S(state)
            if max(state.gain, state.worth) <= small:
                return self._last_step(state, small)
        target, here = self._target(state), self._here(state)
        found = self._newton_step(target, here, state)
        if found is None and here.kept:
            here = target.expand(here.v)
            found = self._newton_step(target, here, state)
        return found or self._trusted_step(target, here, state)

    def _target(self, state: _State) -> LogJoint:
        """The bound as a function of m, but for `_rest`."""
        return LogJoint(state.given, self.sweeper, state.q.c0)

    def _here(self, state: _State) -> Expansion:
        """It at the present m, with the curvature that was kept, if any."""
        target, m = self._target(state), state.q.m
        if state.P is None:
            return target.expand(m)
        return Expansion(m, *(state.slope or target.slope(m)), state.P, kept=True)

    def _newton_step(self, target: LogJoint, here: Expansion, state: _State) -> _State | None:
        """Newton's step, where it is one, short enough and gains; of large data only."""
        top = Parabola(here).top if self.sweeper.large else None
        if top is None or np.linalg.norm(top) > state.radius:
            return None
        promise = float(here.gradient @ top)
        end = end_of_step(target.slope, here, top, promise)
        if end is None:
            return None
        stepped = _stepped(state, end.v, end.value, end.value - here.value)
        shorter = promised(end) <= SHORTER * promise
        return replace(stepped, P=end.P, slope=(end.value, end.gradient)) if shorter else stepped

    def _trusted_step(self, target: LogJoint, here: Expansion, state: _State) -> _State:
        """A step within the radius; none where no ascent is left at the bound's precision."""
        found, radius = trusted_step(target, here, state.radius)
        m, value = found or (here.v, here.value)
        return replace(_stepped(state, m, value, value - here.value), radius=radius)

    def _last_step(self, state: _State, small: float) -> _State:
        """The end: a step in full, by which the error left in m becomes its square.

        Its gain is below the bound's precision, so that no search along it would tell. Curvature
        that was kept, or that some rows stood for, does not decide that this is no saddle: where
        that of all rows promises more, the climb goes on.
        """
        target, here = self._target(state), self._of_all_rows(state)
        top = Parabola(here).top
        if top is None or 0.5 * float(here.gradient @ top) > small:
            return self._trusted_step(target, here, state)
        state = replace(state, q=replace(state.q, m=here.v + top))
        if not self.sweeper.large:  # of large data, rounding is all that another one sees
            state = self._with_new_S(state)
            top = Parabola(self._of_all_rows(state)).top
            if top is not None:
                state = replace(state, q=replace(state.q, m=state.q.m + top))
        return replace(state, elbo=self._elbo(state.q, state.given), settled=True)

    def _of_all_rows(self, state: _State) -> Expansion:
        """The bound at the present m with its own curvature."""
        given = replace(state.given, of_many=False)
        return LogJoint(given, self.sweeper, state.q.c0).expand(state.q.m)

    def _elbo(self, q: Q, given: GivenCovariance) -> float:
        return LogJoint(given, self.sweeper, q.c0).value(q.m) + _rest(q)

    def _with_new_S(self, state: _State) -> _State:
        """The optimal S for the present xi.

        For these the bound is quadratic in f and its optimum Gaussian, so that it gains
        KL(N(m, S) || N(m, P^-1)); a new xi adds to that.
        """
        q = state.q
        precision = self.sweeper.total(partial(state.given.precision, m=q.m, c0=q.c0))
        P = np.eye(len(q.m)) + precision.AtLA
        L = cholesky(P, name="P = I + A' Lambda A")
        new = replace(q, S=inverse_from_cholesky(L), log_det_S=-logdet_from_cholesky(L))
        worth = 0.5 * (float(np.sum(P * q.S)) - len(q.m) + new.log_det_S - q.log_det_S)
        given = GivenCovariance(self.sites, new.S, self.sweeper.large)
        return replace(
            state, q=new, given=given, worth=worth, before=state.since, since=0.0, slope=None
        )


def _stepped(state: _State, m: Array, value: float, gain: float) -> _State:
    """The state after a step in m, without what was known of the bound before it."""
    q = replace(state.q, m=m)
    since = state.since + gain
    return replace(state, q=q, elbo=value + _rest(q), gain=gain, since=since, P=None, slope=None)


def _rest(q: Q) -> float:
    """Of the bound, what `LogJoint` leaves out: constant in m."""
    return 0.5 * float(q.m @ q.m) - q.kl()
