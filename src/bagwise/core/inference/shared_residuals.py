"""Residual factors that the instances of a bag share, drawn given m and v for all bags at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.likelihoods.at_least_one import Targets

Array = NDArray[Any]


@dataclass(frozen=True)
class SharedResiduals:
    """The part G e of the residuals that instances of a bag share.

    Columns of G are such that G_b' diag(1/s^2) G_b is diagonal in each bag b.
    """

    G: Array  # (n, k)
    shrinkage: Array  # (B, k) Var(e_b | m, v); one beyond the factors of a bag
    exists: Array  # (B, k) which factors a bag has
    starts: Array  # (B,)
    sizes: Array  # (B,)

    def __bool__(self) -> bool:
        return self.G.shape[1] > 0

    @property
    def n_factors(self) -> int:
        """Of all bags together."""
        return int(self.exists.sum())

    def mean(self, y: Array) -> Array:
        """E[e | m, v], (B, k), y = (m - E[m | v]) / s^2."""
        return self.shrinkage * np.add.reduceat(self.G * y[:, None], self.starts, axis=0)

    def draw(self, mean: Array | None, normal: Array) -> Array:
        """e (B, k) given m and v, or before they are known where `mean` is None."""
        e = np.zeros(self.exists.shape)
        e[self.exists] = normal
        return e if mean is None else mean + np.sqrt(self.shrinkage) * e

    def spread(self, e: Array) -> Array:
        """G e, (n,)."""
        return np.einsum("nk,nk->n", self.G, np.repeat(e, self.sizes, axis=0))


def diagonalised(G: Array, s: Array, targets: Targets) -> SharedResiduals:
    """The same covariances G_b G_b' from factors that are independent given m and v."""
    sizes = targets.sizes
    out = np.zeros_like(G)
    shrinkage, exists = np.ones((len(sizes), G.shape[1])), np.zeros((len(sizes), G.shape[1]), bool)
    if G.shape[1]:
        for b, (start, size) in enumerate(zip(targets.starts, sizes, strict=True)):
            rows = slice(int(start), int(start + size))
            used = G[rows][:, np.any(G[rows] != 0, axis=0)]
            values, vectors = np.linalg.eigh(used.T @ (used / s[rows, None] ** 2))
            out[rows, : len(values)] = used @ vectors
            shrinkage[b, : len(values)] = 1 / (1 + np.maximum(values, 0))
            exists[b, : len(values)] = True
    k = int(exists.sum(axis=1).max(initial=0))
    return SharedResiduals(out[:, :k], shrinkage[:, :k], exists[:, :k], targets.starts, sizes)
