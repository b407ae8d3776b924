"""Neighbours coupled through a graph: Sigma = (I + lam R)^-1 and the Gaussians built on it [M24].

The latent values of a bag are m ~ N(Sigma mu, Sigma) ("vfe") or, with the residual variances
Kt = diag(kt) of the sparse GP integrated out ("fitc"), m ~ N(Sigma mu, Sigma + Sigma Kt Sigma);
Q = I + lam R is sparse, and a bag is negative if all its m are. All functions take consecutive
whole bags at once: the graph has no edges across bags, so Q is block-diagonal.

Matrices are factorised as block-tridiagonal ones after a reverse Cuthill-McKee ordering. "fitc"
needs V = (T + Q (Q + Kt)^-1 Q)^-1, the upper left block of the inverse of the sparse
quasi-definite [[T, Q], [Q, -(Q + Kt)]], whose blocks interleave in the same ordering.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from bagwise.bags.graphs import laplacian
from bagwise.core.linalg import cholesky, inverse_lower, logdet_from_cholesky

Array = NDArray[Any]
Links = list[tuple[sparse.csr_array, sparse.csr_array]]

MIN_BLOCK = 32  # smaller blocks cost more in calls than they save in arithmetic
DENSE_SIZE = 64  # bags up to that size are one block
DENSE_PREDICTION = 300  # predictive covariances up to that size are kept dense


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


class Prior(ABC):
    """A Gaussian over m before its signs are known, seen through its precision P."""

    @abstractmethod
    def factor(self, tau: Array) -> Factor:
        """Factor of P + diag(tau)."""

    @cached_property
    def start(self) -> Factor:
        """Factor of P itself."""
        return self.factor(np.zeros(self.size))

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of instances."""

    @property
    def variance(self) -> Array:
        """(n,) prior variances of m."""
        return self.start.variance


class Coupling:
    """Sigma = Q^-1, Q = I + lam R, of consecutive whole bags with neighbour graph W [M24, Eq. 12].

    >>> pair = Coupling(sparse.csr_array([[0.0, 1.0], [1.0, 0.0]]), lam=1.0)
    >>> pair.diag()
    array([0.66666667, 0.66666667])
    >>> pair.solve(np.array([3.0, 0.0]))
    array([2., 1.])
    """

    def __init__(self, W: sparse.csr_array, lam: float) -> None:
        if not 0 <= lam < np.inf:
            raise ValueError(f"the coupling must be a finite number >= 0; got {lam!r}")
        self.lam = float(lam)
        self.R = laplacian(W)
        self.size = W.shape[0]
        self.diagonal = self.lam == 0 or W.nnz == 0
        self.Q = sparse.csr_array(sparse.eye_array(self.size) + self.lam * self.R)

    @cached_property
    def system(self) -> Tridiagonal:
        """Q in blocks."""
        return Tridiagonal.cut(self.Q)

    def factor(self, tau: Array) -> Factor:
        """Factor of Q + diag(tau)."""
        if self.diagonal:
            return _diagonal_factor(1 + np.asarray(tau, dtype=np.float64))
        return factorise(self.system, np.asarray(tau, dtype=np.float64))

    @cached_property
    def _own(self) -> Factor:
        return self.factor(np.zeros(self.size))

    def solve(self, B: Array) -> Array:
        """Sigma B."""
        return self._own.solve(B)

    def diag(self) -> Array:
        """Diagonal of Sigma."""
        return self._own.variance

    def prior(self, kt: Array | None = None) -> CoupledPrior:
        """m ~ N(Sigma mu, Sigma), or with residual variances Sigma + Sigma Kt Sigma."""
        return CoupledPrior(self, None if kt is None else np.asarray(kt, dtype=np.float64))


def _diagonal_factor(precision: Array) -> Factor:
    def solve(x: Array) -> Array:
        return np.asarray(x / precision.reshape(-1, *[1] * (np.ndim(x) - 1)), dtype=np.float64)

    return Factor(1 / precision, np.log(precision), solve)


class CoupledPrior(Prior):
    """m ~ N(Sigma mu, Sigma) without `kt` ("vfe"), N(Sigma mu, Sigma + Sigma Kt Sigma) with it."""

    def __init__(self, coupling: Coupling, kt: Array | None) -> None:
        self.coupling = coupling
        self.kt = kt

    @property
    def size(self) -> int:
        return self.coupling.size

    @property
    def independent(self) -> bool:
        """Whether m_1, ..., m_n are independent: lam = 0 or no edges."""
        return self.coupling.diagonal

    def factor(self, tau: Array) -> Factor:
        if self.kt is None:
            return self.coupling.factor(tau)
        if self.independent:
            return _diagonal_factor(1 / (1 + self.kt) + tau)
        return factorise(self.coupling.system, tau, self.kt)

    @cached_property
    def start(self) -> Factor:
        """Factor of P; it solves through Q's own factor, to keep the larger one out of memory."""
        if self.kt is None:
            return self.coupling._own
        full = self.factor(np.zeros(self.size))
        return Factor(full.variance, full.log_pivots, self.covariance_times)

    @cached_property
    def weights(self) -> Factor:
        """Factor whose inverse is the site precision Lambda: Q ("vfe") or Q + Kt ("fitc")."""
        return self.coupling._own if self.kt is None else self.coupling.factor(self.kt)

    def mean(self, mu: Array) -> Array:
        """Sigma mu [M24, Eq. 18]."""
        return self.coupling.solve(mu)

    def weigh(self, A: Array) -> Array:
        """Lambda A: Sigma A [M24, Eq. 16] or (Q + Kt)^-1 A."""
        return self.weights.solve(A)

    def eta(self, Em: Array) -> Array:
        """Linear term of the sites: E[m] [M24, Eq. 17] or Lambda Q E[m]."""
        return Em if self.kt is None else self.weights.solve(self.coupling.Q @ Em)

    def pull(self, A: Array) -> Array:
        """Q Lambda A: what turns a shift of m into a gradient in f."""
        return A if self.kt is None else self.coupling.Q @ self.weigh(A)

    def covariance_times(self, x: Array) -> Array:
        """C x for (n,) or (n, k)."""
        u = self.coupling.solve(x)
        if self.kt is None:
            return u
        kt = self.kt.reshape(-1, *[1] * (np.ndim(x) - 1))
        return u + self.coupling.solve(kt * u)


class DensePrior(Prior):
    """A Gaussian with covariance C (n, n)."""

    def __init__(self, C: Array) -> None:
        self.C = C

    @property
    def size(self) -> int:
        return len(self.C)

    def factor(self, tau: Array) -> Factor:
        root = np.sqrt(tau)
        L = cholesky(np.eye(self.size) + root[:, None] * self.C * root, name="I + T C")
        half = inverse_lower(L) @ (root[:, None] * self.C)
        V = self.C - half.T @ half
        return Factor(np.diagonal(V).copy(), 2 * np.log(np.diagonal(L)), lambda x: V @ x)


class LowRankPrior(Prior):
    """The covariance C of a coupled prior plus Sigma G G' Sigma: q(v)'s uncertainty, G = A S^1/2.

    Its precision is P - W W' with W = Q Lambda G K^-1/2, K = I + G' Lambda G.
    """

    def __init__(self, base: CoupledPrior, G: Array) -> None:
        self.base = base
        LG = base.weigh(G)
        L = cholesky(np.eye(G.shape[1]) + G.T @ LG, name="I + G' Lambda G")
        self.W = base.coupling.Q @ (LG @ inverse_lower(L).T)

    @property
    def size(self) -> int:
        return self.base.size

    def factor(self, tau: Array) -> Factor:
        inner = self.base.factor(tau)
        X = inner.solve(self.W)  # (n, r)
        L = cholesky(np.eye(X.shape[1]) - self.W.T @ X, name="I - W' V W")
        Y = X @ inverse_lower(L).T
        variance = inner.variance + np.einsum("nr,nr->n", Y, Y)
        log_pivots = inner.log_pivots + logdet_from_cholesky(L) / self.size
        return Factor(variance, log_pivots, lambda x: inner.solve(x) + Y @ (Y.T @ x))


def predictive_prior(coupling: Coupling, kt: Array, G: Array) -> Prior:
    """One bag's m ~ N(Sigma mu, Sigma + Sigma (Kt + G G') Sigma), Cov(A v) = G G' [M24, Eq. 24]."""
    base = coupling.prior(kt)
    if coupling.size > DENSE_PREDICTION:
        return LowRankPrior(base, G)
    U = coupling.solve(G)
    return DensePrior(base.covariance_times(np.eye(coupling.size)) + U @ U.T)


def predictive_variance(coupling: Coupling, kt: Array, G: Array) -> Array:
    """Diagonal of Sigma + Sigma (Kt + G G') Sigma: what instance probabilities need."""
    U = coupling.solve(G)
    return coupling.prior(kt).variance + np.einsum("nr,nr->n", U, U)
