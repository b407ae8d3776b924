"""Coordinate ascent on the ELBO: a pure map q -> q made of local and global steps.

The map takes the summed statistics to the statistics at the optimal q for them. Anderson
acceleration extrapolates them (they are the natural parameters of q up to constants); a
proposal that is not positive definite or lowers the ELBO is replaced by the plain step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.anderson import Anderson
from bagwise.core.inference.loop import Trace, converge, warn_not_converged
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.stats import Q, Sites, Stats
from bagwise.core.linalg import (
    NotPositiveDefiniteError,
    cholesky,
    inverse_from_cholesky,
    logdet_from_cholesky,
)

Array = NDArray[Any]


def global_step(stats: Stats, c0: float, learn_mean: bool) -> Q:
    """Optimal q(v), jointly with c0 where it is learned, for fixed sites.

    P = I + A' Lambda A, m = P^-1 A'(eta - c0 Lambda 1); the joint optimum over (m, c0) has
    c0 = (1'eta - h'P^-1 A'eta) / (1' Lambda 1 - h'P^-1 h) with h = A' Lambda 1.
    """
    h = stats.precision.AtL1
    L = cholesky(np.eye(len(h)) + stats.precision.AtLA, name="P = I + A' Lambda A")
    S = inverse_from_cholesky(L)
    if learn_mean:
        Sh = S @ h
        c0 = float((stats.oneEta - Sh @ stats.AtEta) / (stats.precision.oneL1 - Sh @ h))
    return Q(S @ (stats.AtEta - c0 * h), S, c0, -logdet_from_cholesky(L))


@dataclass(frozen=True)
class _State:
    """A point of the fixed-point iteration: q solves `source`, `stats` are taken at q."""

    q: Q
    source: Stats | None  # None at the start
    stats: Stats
    elbo: float


class CoordinateAscent:
    """Sweeps of one model over one data set."""

    def __init__(
        self, sites: Sites, sweeper: Sweeper, *, learn_mean: bool, accelerate: bool = True
    ) -> None:
        self.sites = sites
        self.sweeper = sweeper
        self.learn_mean = learn_mean
        # Extrapolation needs a map of q alone.
        self._anderson = Anderson() if accelerate and not sites.stateful else None

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
        """Sweep from `q`, or on from `state`, until the ELBO stands still."""

        def note(reached: _State, history: list[float]) -> None:
            if monitor is not None:
                monitor.step(len(history) - 1, history[-1], self._snapshot(reached, history))

        start, past = self._begin(q) if state is None else self._restored(state)
        end, trace = converge(
            self._sweep,
            start,
            lambda s: s.elbo,
            max_iter=max_iter,
            tol=tol,
            verbose=verbose,
            past=past,
            note=note,
        )
        if warn and not trace.converged:
            warn_not_converged(max_iter, tol)
        return end.q, trace

    def _begin(self, q: Q) -> tuple[_State, tuple[float, ...]]:
        stats = self.sweeper.total(partial(self.sites.start, q=q))
        return _State(q, None, stats, self._elbo(q, stats)), ()

    def _snapshot(self, reached: _State, history: list[float]) -> Callable[[], State]:
        """What makes the state to go on from; sweeps that follow do not change it."""
        sites = self.sites.snapshot()
        past = np.array(history)
        memory = None if self._anderson is None else self._anderson.memory_arrays()

        def pack() -> State:
            return {
                "q": vars(reached.q),
                "source": None if reached.source is None else reached.source.as_vector(),
                "stats": reached.stats.as_vector(),
                "bound": reached.stats.bound,
                "history": past,
                "memory": memory,
                "sites": sites(),
            }

        return pack

    def _restored(self, state: State) -> tuple[_State, tuple[float, ...]]:
        """The point and the history that `_snapshot` packed."""
        self.sites.restore(state["sites"])
        if self._anderson is not None and state["memory"] is not None:
            self._anderson.restore(*state["memory"])
        q = Q(**state["q"])
        M = len(q.m)
        source = None if state["source"] is None else Stats.from_vector(state["source"], M)
        stats = replace(Stats.from_vector(state["stats"], M), bound=state["bound"])
        return _State(q, source, stats, self._elbo(q, stats)), tuple(state["history"].tolist())

    def _sweep(self, state: _State) -> _State:
        if self._anderson is not None and state.source is not None:
            proposal = self._propose(self._anderson, state)
            if proposal is not None and proposal.elbo >= state.elbo:
                return proposal
            self._anderson.clear()
        return self._evaluate(state.stats, state.q)

    def _propose(self, anderson: Anderson, state: _State) -> _State | None:
        """The accelerated step; None where it leaves the positive definite matrices."""
        if state.source is None:
            return None
        x = anderson.propose(state.source.as_vector(), state.stats.as_vector())
        try:
            return self._evaluate(Stats.from_vector(x, len(state.q.m)), state.q)
        except NotPositiveDefiniteError:
            return None

    def _evaluate(self, source: Stats, last: Q) -> _State:
        """q for the statistics `source`, and the statistics at that q."""
        q = global_step(source, last.c0, self.learn_mean)
        stats = self.sweeper.total(partial(self.sites.local_step, q=q))
        return _State(q, source, stats, self._elbo(q, stats))

    def _elbo(self, q: Q, stats: Stats) -> float:
        return stats.bound + self.sites.global_bound(q, stats.precision) - q.kl()
