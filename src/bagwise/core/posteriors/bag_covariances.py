"""Covariances of f within bags, as expectation propagation asks for them: whole, or of low rank.

With sites of precision tau the covariance C of a bag becomes V = (C^-1 + tau)^-1. It is found by
B = I + tau^(1/2) C tau^(1/2), which has an inverse even where C has none; if C = G G' with few
columns, by I + G' tau G, of their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bagwise.core.linalg import inverse_factors

Array = NDArray[Any]
Flags = NDArray[np.bool_]

LEAST_SHARE = 1e-10  # of a cavity's precision in that of f: below, 1 - tau V_nn has lost its digits


class UnderSites(Protocol):
    """Covariance V of bags (B, w) under sites."""

    @property
    def variance(self) -> Array:
        """(B, w) its diagonal, NaN where sites are beyond all digits."""

    @property
    def share(self) -> Array:
        """(B, w) of the cavity's precision in that of f_n: (B^-1)_nn = 1 - tau_n V_nn."""

    @property
    def log_excess(self) -> Array:
        """sum_n log (B^-1)_nn + log |B|, (B,): 0 for instances that have nothing in common."""

    def times(self, x: Array) -> Array:
        """V x."""

    def squares_times(self, x: Array) -> Array:
        """(V o V) x."""

    def matrix(self) -> Array:
        """V, (B, w, w)."""

    def of(self, bags: Array) -> UnderSites:
        """That of some of the bags."""


class Covariances(Protocol):
    """Covariance C of bags (B, w)."""

    @property
    def variance(self) -> Array:
        """(B, w) its diagonal."""

    def times(self, x: Array) -> Array:
        """C x."""

    def others_times(self, x: Array) -> Array:
        """(C o C) x without the diagonal of C."""

    def under(self, tau: Array) -> UnderSites:
        """V for sites of precision tau (B, w)."""

    def of(self, bags: Array) -> Covariances:
        """Those of some of the bags."""


@dataclass(frozen=True)
class Whole:
    """C itself."""

    C: Array  # (B, w, w)

    @cached_property
    def variance(self) -> Array:
        return np.diagonal(self.C, axis1=1, axis2=2)

    @cached_property
    def _others(self) -> Array:
        squares, each = self.C * self.C, range(self.C.shape[1])
        squares[:, each, each] = 0.0
        return squares

    def times(self, x: Array) -> Array:
        return matrices_times(self.C, x)

    def others_times(self, x: Array) -> Array:
        return matrices_times(self._others, x)

    def under(self, tau: Array) -> WholeUnderSites:
        """The diagonal of V is (1 - (B^-1)_nn) / tau_n, beside it -tau^(-1/2) B^-1 tau^(-1/2)."""
        each = range(tau.shape[1])
        root = np.sqrt(tau)
        B = self.C * root[:, :, None] * root[:, None, :]
        B[:, each, each] += 1.0
        L_inv, sound = _factors(B)
        V = L_inv.transpose(0, 2, 1) @ L_inv
        share = V[:, each, each]
        inverse_root = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        V *= inverse_root[:, :, None]
        V *= -inverse_root[:, None, :]
        variance = np.where(sound[:, None], (1 - share) * inverse_root**2, np.nan)
        V[:, each, each] = variance
        return WholeUnderSites(V, L_inv[:, each, each], share, variance)

    def of(self, bags: Array) -> Whole:
        return Whole(self.C[bags])


@dataclass(frozen=True)
class WholeUnderSites:
    """V itself."""

    V: Array  # (B, w, w)
    pivots: Array  # (B, w) diagonal of L^-1, B = LL'
    share: Array
    variance: Array

    @property
    def log_excess(self) -> Array:
        # |B| is the product of 1 / pivots^2: nothing cancels where sites are small.
        return np.asarray(np.log(self.share / self.pivots**2).sum(axis=1))

    def times(self, x: Array) -> Array:
        return matrices_times(self.V, x)

    def squares_times(self, x: Array) -> Array:
        return matrices_times(self.V * self.V, x)

    def matrix(self) -> Array:
        return self.V

    def of(self, bags: Array) -> WholeUnderSites:
        return WholeUnderSites(*(x[bags] for x in vars(self).values()))


@dataclass(frozen=True)
class LowRank:
    """C = G G', of instances that have few directions to differ in."""

    G: Array  # (B, w, r)

    @cached_property
    def variance(self) -> Array:
        return np.einsum("bwr,bwr->bw", self.G, self.G)

    def times(self, x: Array) -> Array:
        return _factors_times(self.G, x)

    def others_times(self, x: Array) -> Array:
        return _squares_times(self.G, x) - self.variance**2 * x

    def under(self, tau: Array) -> LowRankUnderSites:
        """V = H H', H = G L^-T, with the factor L of I + G' tau G."""
        K = _weighted(self.G, tau)
        L_inv, sound = _factors(np.eye(K.shape[1]) + K)
        H = self.G @ L_inv.transpose(0, 2, 1)
        variance = np.einsum("bwr,bwr->bw", H, H)
        share = 1 - tau * variance
        known = sound[:, None] & (share > LEAST_SHARE)
        return LowRankUnderSites(H, K, np.where(known, share, 1), np.where(known, variance, np.nan))

    def of(self, bags: Array) -> LowRank:
        return LowRank(self.G[bags])


@dataclass(frozen=True)
class LowRankUnderSites:
    """V = H H'."""

    H: Array  # (B, w, r)
    K: Array  # (B, r, r) G' tau G: |B| = |I + K|
    share: Array
    variance: Array

    @property
    def log_excess(self) -> Array:
        # By logarithms that keep the digits of small sites.
        taken = np.log1p(self.share - 1).sum(axis=1)
        return np.asarray(taken + np.log1p(np.linalg.eigvalsh(self.K)).sum(axis=1))

    def times(self, x: Array) -> Array:
        return _factors_times(self.H, x)

    def squares_times(self, x: Array) -> Array:
        return _squares_times(self.H, x)

    def matrix(self) -> Array:
        return self.H @ self.H.transpose(0, 2, 1)

    def of(self, bags: Array) -> LowRankUnderSites:
        return LowRankUnderSites(*(x[bags] for x in vars(self).values()))


def matrices_times(matrices: Array, vectors: Array) -> Array:
    """Many matrices (B, n, w) times as many vectors (B, w)."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])


def _factors_times(G: Array, x: Array) -> Array:
    """G G' x."""
    return matrices_times(G, matrices_times(G.transpose(0, 2, 1), x))


def _squares_times(G: Array, x: Array) -> Array:
    """(G G' o G G') x, of which row n is g_n' (G' diag(x) G) g_n."""
    return np.einsum("bwr,bwr->bw", G @ _weighted(G, x), G)


def _weighted(G: Array, x: Array) -> Array:
    """G' diag(x) G."""
    return G.transpose(0, 2, 1) @ (G * x[:, :, None])


def _factors(B: Array) -> tuple[Array, Flags]:
    """Inverse factors, and which matrices have them: sites beyond all digits may not."""
    sound = np.ones(len(B), dtype=bool)
    try:
        return inverse_factors(B), sound
    except np.linalg.LinAlgError:
        L_inv = np.tile(np.eye(B.shape[1]), (len(B), 1, 1))
        for i in range(len(B)):
            try:
                L_inv[i : i + 1] = inverse_factors(B[i : i + 1])
            except np.linalg.LinAlgError:
                sound[i] = False
        return L_inv, sound
