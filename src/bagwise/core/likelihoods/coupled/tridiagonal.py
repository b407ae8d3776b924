"""Sparse precisions Q + T of Gaussians over coupled instances, factorised in blocks.

After a reverse Cuthill-McKee ordering Q is block-tridiagonal. The "fitc" approximation needs
V = (T + Q (Q + Kt)^-1 Q)^-1, the upper left block of the inverse of the sparse quasi-definite
[[T, Q], [Q, -(Q + Kt)]], whose blocks interleave in the same ordering.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from bagwise.core.linalg import cholesky

Array = NDArray[Any]
Links = list[tuple[sparse.csr_array, sparse.csr_array]]

MIN_BLOCK = 32  # smaller blocks cost more in calls than they save in arithmetic
DENSE_SIZE = 64  # bags up to that size are one block


@dataclass(frozen=True)
class Ordering:
    """A reverse Cuthill-McKee ordering cut so that a block's neighbours lie in adjacent blocks."""

    order: NDArray[np.int64]  # (n,) rows in their new order
    cuts: NDArray[np.int64]  # (K + 1,) places between the K blocks

    def split(self, x: Array) -> list[Array]:
        """Rows of x, block by block."""
        return np.split(np.asarray(x, dtype=np.float64)[self.order], self.cuts[1:-1])

    def join(self, blocks: list[Array]) -> Array:
        """Inverse of `split`."""
        joined = np.concatenate(blocks)
        out = np.empty_like(joined)
        out[self.order] = joined
        return out


def order_blocks(Q: sparse.csr_array) -> Ordering:
    """Find an ordering in which Q is block-tridiagonal with small blocks."""
    n = Q.shape[0]
    order = reverse_cuthill_mckee(sparse.csr_matrix(Q), symmetric_mode=True).astype(np.int64)
    if n <= DENSE_SIZE:
        return Ordering(order, np.array([0, n]))
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    coo = Q.tocoo()
    reach = np.arange(n)
    np.maximum.at(reach, place[coo.row], place[coo.col])
    reach = np.maximum.accumulate(reach)  # last neighbour of the first rows
    cuts = [0, MIN_BLOCK]
    while cuts[-1] < n:
        cuts.append(min(max(int(reach[cuts[-1] - 1]) + 1, cuts[-1] + MIN_BLOCK), n))
    return Ordering(order, np.array(cuts))


@dataclass(frozen=True)
class Tridiagonal:
    """Q cut into dense diagonal blocks D_k and sparse blocks E_k below them."""

    ordering: Ordering
    D: list[Array]  # K of (b_k, b_k)
    E: list[sparse.csr_array]  # K - 1 of (b_(k+1), b_k)

    @classmethod
    def cut(cls, Q: sparse.csr_array) -> Tridiagonal:
        """Cut a symmetric sparse matrix."""
        o = order_blocks(Q)
        Q = Q[o.order][:, o.order]
        c = o.cuts
        blocks = range(len(c) - 1)
        D = [Q[c[k] : c[k + 1], c[k] : c[k + 1]].toarray() for k in blocks]
        E = [Q[c[k + 1] : c[k + 2], c[k] : c[k + 1]] for k in blocks[:-1]]
        return cls(o, D, E)

    @cached_property
    def links(self) -> Links:
        """E_k and E_k', made once: scipy takes longer over a transpose than over a product."""
        return [(e, sparse.csr_array(e.T)) for e in self.E]

    @cached_property
    def quasi_links(self) -> Links:
        """The same for the off-diagonal blocks [[0, E], [E, -E]] of the quasi-definite matrix."""
        both = (sparse.csr_array(sparse.block_array([[None, e], [e, -e]])) for e in self.E)
        return [(e, sparse.csr_array(e.T)) for e in both]


@dataclass(frozen=True)
class Factor:
    """A factorised precision P + T of a Gaussian: marginal variances, pivots and solutions."""

    variance: Array  # (n,) diagonal of V = (P + T)^-1
    log_pivots: Array  # (n,) whose sum over a bag is log|P + T| up to a constant of P
    solve: Callable[[Array], Array]  # V x for (n,) or (n, k)


def factorise(system: Tridiagonal, tau: Array, kt: Array | None = None) -> Factor:
    """Factor of Q + T, or with `kt` of T + Q (Q + Kt)^-1 Q, T = diag(tau)."""
    o = system.ordering
    E = system.links if kt is None else system.quasi_links
    kts = [None] * len(system.D) if kt is None else o.split(kt)
    invert = _invert_definite if kt is None else _invert_quasi_definite
    S_inv: list[Array] = []
    log_pivots: list[Array] = []
    for k, (D, tau_k, kt_k) in enumerate(zip(system.D, o.split(tau), kts, strict=True)):
        S = _diagonal_block(D, tau_k, kt_k)
        if k:
            S -= E[k - 1][0] @ (E[k - 1][0] @ S_inv[-1]).T
        inverse, pivots = invert(S)
        S_inv.append(inverse)
        log_pivots.append(pivots)
    sizes = [len(D) for D in system.D]
    variance = o.join([d[:b] for d, b in zip(_selected_inverse(S_inv, E), sizes, strict=True)])
    return Factor(variance, o.join(log_pivots), lambda x: _solve_blocks(S_inv, E, o, x))


def _diagonal_block(Q: Array, tau: Array, kt: Array | None) -> Array:
    b = len(Q)
    d = np.arange(b)
    if kt is None:
        S = Q.copy()
    else:
        S = np.empty((2 * b, 2 * b))
        S[:b, :b], S[:b, b:], S[b:, :b], S[b:, b:] = 0.0, Q, Q, -Q
        S[b + d, b + d] -= kt
    S[d, d] += tau
    return S


def _invert_definite(S: Array) -> tuple[Array, Array]:
    """S^-1 and the logs of the pivots of a positive definite S."""
    L = cholesky(S, name="a block of Q + diag(tau)")
    return _symmetrised(np.linalg.inv(S)), 2 * np.log(np.diagonal(L))


def _symmetrised(X: Array) -> Array:
    """(X + X') / 2: from block to block the recursions amplify what is not symmetric."""
    return 0.5 * (X + X.T)


def _invert_quasi_definite(S: Array) -> tuple[Array, Array]:
    """S^-1 and the logs of the pivots of [[X, Y], [Y', -Z]] by eliminating the lower half."""
    b = len(S) // 2
    Y = S[:b, b:]
    Z_inv, log_z = _invert_definite(-S[b:, b:])
    YZ = Y @ Z_inv
    X_inv, log_x = _invert_definite(S[:b, :b] + _symmetrised(YZ @ Y.T))
    out = np.empty_like(S)
    out[:b, :b] = X_inv
    out[:b, b:] = X_inv @ YZ
    out[b:, :b] = out[:b, b:].T
    out[b:, b:] = _symmetrised(YZ.T @ out[:b, b:]) - Z_inv
    return out, log_x + log_z


def _selected_inverse(S_inv: list[Array], E: Links) -> list[Array]:
    """Diagonals of the inverse: V_kk = S_k^-1 + S_k^-1 E_k' V_(k+1)(k+1) E_k S_k^-1."""
    V = S_inv[-1]
    found = [np.diagonal(V).copy()]
    for k in range(len(E) - 1, -1, -1):
        Et = E[k][1]
        V = S_inv[k] + S_inv[k] @ (Et @ (Et @ V).T) @ S_inv[k]
        found.append(np.diagonal(V).copy())
    return found[::-1]


def _solve_blocks(S_inv: list[Array], E: Links, o: Ordering, x: Array) -> Array:
    """V x by forward elimination and back substitution."""
    rhs = o.split(x)
    partial: list[Array] = []
    for k, b in enumerate(rhs):
        padded = np.zeros((len(S_inv[k]), *b.shape[1:]))
        padded[: len(b)] = b
        partial.append(S_inv[k] @ (padded - E[k - 1][0] @ partial[-1] if k else padded))
    for k in range(len(rhs) - 2, -1, -1):
        partial[k] -= S_inv[k] @ (E[k][1] @ partial[k + 1])
    return o.join([p[: len(b)] for p, b in zip(partial, rhs, strict=True)])


def diagonal_factor(precision: Array) -> Factor:
    """Factor of a diagonal precision."""

    def solve(x: Array) -> Array:
        return np.asarray(x / precision.reshape(-1, *[1] * (np.ndim(x) - 1)), dtype=np.float64)

    return Factor(1 / precision, np.log(precision), solve)
