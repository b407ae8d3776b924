"""Coordinate ascent on the ELBO: a pure map q -> q made of local and global steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bagwise.execution import Sweeper
from bagwise.infer.loop import Trace, converge
from bagwise.linalg import cholesky, inverse_from_cholesky, logdet_from_cholesky
from bagwise.sites import Precision, Q, Sites, Stats


def global_step(stats: Stats, c0: float, learn_mean: bool) -> Q:
    """Optimal q(v), jointly with c0 where it is learned, for fixed sites.

    P = I + A' Lambda A, m = P^-1 A'(eta - c0 Lambda 1); the joint optimum over (m, c0) has
    c0 = (1'eta - h'P^-1 A'eta) / (1' Lambda 1 - h'P^-1 h) with h = A' Lambda 1.
    """
    precision = _require(stats)
    P = np.eye(len(stats.AtEta)) + precision.AtLA
    L = cholesky(P, name="P = I + A' Lambda A")
    S = inverse_from_cholesky(L)
    h = precision.AtL1
    if learn_mean:
        Sh = S @ h
        c0 = float((stats.oneEta - Sh @ stats.AtEta) / (precision.oneL1 - Sh @ h))
    return Q(S @ (stats.AtEta - c0 * h), S, c0, -logdet_from_cholesky(L))


@dataclass(frozen=True)
class _State:
    q: Q
    stats: Stats
    elbo: float


class CoordinateAscent:
    """Sweeps of one model over one data set."""

    def __init__(self, sites: Sites, sweeper: Sweeper, *, learn_mean: bool) -> None:
        self.sites = sites
        self.sweeper = sweeper
        self.learn_mean = learn_mean

    def run(self, q: Q, *, max_iter: int, tol: float, verbose: int = 0) -> tuple[Q, Trace]:
        """Sweep until the ELBO stands still."""
        start = self._evaluate(q, None)
        state, trace = converge(
            self._sweep, start, lambda s: s.elbo, max_iter=max_iter, tol=tol, verbose=verbose
        )
        return state.q, trace

    def _sweep(self, state: _State) -> _State:
        return self._evaluate(global_step(state.stats, state.q.c0, self.learn_mean), state.stats)

    def _evaluate(self, q: Q, last: Stats | None) -> _State:
        keep = self.sites.constant_precision and last is not None
        stats = self.sweeper.total(lambda c: self.sites.local_step(c, q, not keep))
        if keep and last is not None:
            stats = Stats(stats.AtEta, stats.oneEta, stats.bound, last.precision)
        elbo = stats.bound + self.sites.global_bound(q, _require(stats)) - q.kl()
        return _State(q, stats, elbo)


def _require(stats: Stats) -> Precision:
    if stats.precision is None:
        raise RuntimeError("statistics without a precision cannot be solved")
    return stats.precision
