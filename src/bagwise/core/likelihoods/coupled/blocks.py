"""Neighbours coupled through a graph: Sigma = (I + lam R)^-1 and the Gaussians built on it [M24].

The latent values of a bag are m ~ N(Sigma mu, Sigma) ("vfe") or, with the residual variances
Kt = diag(kt) of the sparse GP integrated out ("fitc"), m ~ N(Sigma mu, Sigma + Sigma Kt Sigma);
Q = I + lam R is sparse, and a bag is negative if all its m are. All functions take consecutive
whole bags at once: the graph has no edges across bags, so Q is block-diagonal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bagwise.bags.graphs import laplacian
from bagwise.core.likelihoods.coupled.tridiagonal import (
    Factor,
    Tridiagonal,
    diagonal_factor,
    factorise,
)
from bagwise.core.linalg import cholesky, inverse_lower, logdet_from_cholesky

Array = NDArray[Any]

DENSE_PREDICTION = 300  # predictive covariances up to that size are kept dense


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
            return diagonal_factor(1 + np.asarray(tau, dtype=np.float64))
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
            return diagonal_factor(1 / (1 + self.kt) + tau)
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
