"""Instances as a linear model sees them, and the coordinates in which its weights are found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.loop import range_of_features
from bagwise.core.inference.newton_probit import LogJoint
from bagwise.core.inference.passes import Sweeper, TrainingData
from bagwise.core.inference.stats import FoldedLikelihood
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.kernels import Kernel

Array = NDArray[Any]


@dataclass(frozen=True)
class Columns:
    """Maps instances to the columns in use: scaled features, or similarities to basis points."""

    shift: Array  # (D,)
    scale: Array  # (D,)
    kernel: Kernel | None
    basis: Array | None  # (M, D), scaled
    used: NDArray[np.int64]  # (d,) numbers among the D features, or M basis points

    @classmethod
    def all(
        cls, shift: Array, scale: Array, kernel: Kernel | None = None, basis: Array | None = None
    ) -> Columns:
        """Every feature, or every basis point."""
        n = len(shift if basis is None else basis)
        return cls(shift, scale, kernel, basis, np.arange(n, dtype=np.int64))

    @property
    def effort(self) -> int:
        """Scaling takes less time than reading; a kernel does not."""
        return 0 if self.basis is None else len(self.shift) + len(self)

    def __len__(self) -> int:
        return len(self.used)

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """A (n, d) in float64, and no residual variances."""
        kt = np.zeros(len(X))
        if self.kernel is not None and self.basis is not None:
            return self.kernel.cross((X - self.shift) / self.scale, self.basis[self.used]), kt
        if np.array_equal(self.used, np.arange(X.shape[1])):
            return (X - self.shift) / self.scale, kt
        return (X[:, self.used] - self.shift[self.used]) / self.scale[self.used], kt

    def only(self, keep: NDArray[np.bool_]) -> Columns:
        """Fewer of them."""
        return replace(self, used=self.used[keep])


@dataclass(frozen=True)
class Design:
    """Instances of one task, and the columns in use."""

    data: TrainingData
    columns: Columns

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns in use."""
        return len(self.data.X), len(self.columns)

    @cached_property
    def sweeper(self) -> Sweeper:
        """Passes over chunks of them."""
        return self.data.sweeper(self.columns, dtype=np.float64)

    def matrix(self) -> Array:
        """All of them at once (n, d), also where workers have the rows."""
        return self.columns(self.data.X[:])[0]

    @cached_property
    def span(self) -> Span:
        """The directions that the instances span, which one penalty for all does not turn."""
        return spanned(self.matrix())

    def only(self, keep: NDArray[np.bool_]) -> Design:
        """The same instances with fewer columns."""
        return self if np.all(keep) else replace(self, columns=self.columns.only(keep))

    def of_bags(self, bags: NDArray[np.intp]) -> Design:
        """The same columns of some of the bags."""
        return replace(self, data=self.data.of_bags(bags))

    def varying(self) -> Design:
        """Without constant columns, which would only repeat the intercept."""
        found = self.data.one_pass(self.columns, range_of_features)
        return self.only(found.low < found.high)


@dataclass(frozen=True)
class Coordinates:
    """Whitened weights u with w = root * (V u), and the intercept as last coordinate.

    The prior w_i ~ N(0, 1/alpha_i) becomes u ~ N(0, I); V = None stands for the identity.
    `penalty` is 1 where a coordinate has that prior and 0 where its prior is flat.
    """

    sweeper: Sweeper  # over the design's columns, or over their products with root V
    penalty: Array  # (r,)
    root: Array  # (d,)
    V: Array | None  # (d, r), orthonormal columns

    def log_joint(self, likelihood: BagLikelihood) -> LogJoint:
        """log p(T | w) + log p(w | A) [R08, Eq. 7] without the prior's constants."""
        folded = FoldedLikelihood(likelihood, 0.0)
        scale = self.root if self.V is None else 1.0
        return LogJoint(folded, self.sweeper, scale=scale, penalty=self.penalty)

    def weights(self, v: Array) -> Array:
        """w (d,) from coordinates v (r + 1,)."""
        return self.root * (v[:-1] if self.V is None else self.V @ v[:-1])

    def start(self, w: Array, b: float) -> Array:
        """Coordinates of weights w and intercept b."""
        u = w / self.root
        return np.append(u if self.V is None else self.V.T @ u, b)

    def precision(self, curvature: Array) -> Array:
        """P of the coordinates, from -Hessian of log p(T | w, b); V = None."""
        scale = np.append(self.root, 1.0)
        P = scale * curvature * scale[:, None]
        P[np.diag_indices_from(P)] += np.append(self.penalty, 0.0)
        return P

    def curvature(self, P: Array, some: NDArray[np.intp]) -> Array:
        """-Hessian of log p(T | w, b) in some of (w, b), from P; V = None."""
        scale = np.append(self.root, 1.0)[some]
        own = P[np.ix_(some, some)]
        own[np.diag_indices_from(own)] -= np.append(self.penalty, 0.0)[some]
        return own / scale / scale[:, None]

    def covariance(self, P_inv: Array) -> Array:
        """Covariance (d + 1, d + 1) of weights and intercept from that of the coordinates."""
        d = len(self.root)
        if self.V is None:
            S = P_inv.copy()
        else:
            S = np.eye(d + 1)  # outside the span of the data the prior remains
            S[:d, :d] += self.V @ (P_inv[:-1, :-1] - np.eye(len(P_inv) - 1)) @ self.V.T
            S[:d, d] = S[d, :d] = self.V @ P_inv[:-1, -1]
            S[d, d] = P_inv[-1, -1]
        scale = np.append(self.root, 1.0)
        return S * scale * scale[:, None]

    def variances(self, P_inv: Array) -> Array:
        """Sigma_ii of the weights, (d,), without forming Sigma."""
        if self.V is None:
            return self.root**2 * np.diagonal(P_inv)[:-1]
        inner = P_inv[:-1, :-1] - np.eye(len(P_inv) - 1)
        return self.root**2 * (1 + np.einsum("dr,dr->d", self.V @ inner, self.V))


def whitened(design: Design, alpha: Array) -> Coordinates:
    """Coordinates of whichever side is smaller: features, or instances where they are fewer."""
    n, d = design.shape
    return dual(design, alpha) if n < d and np.all(alpha > 0) else primal(design, alpha)


def primal(design: Design, alpha: Array) -> Coordinates:
    """One coordinate per feature: u_i = sqrt(alpha_i) w_i; a flat prior where alpha_i = 0."""
    flat = alpha == 0
    root = 1 / np.sqrt(np.where(flat, 1.0, alpha))
    return Coordinates(design.sweeper, (~flat).astype(np.float64), root, None)


def dual(design: Design, alpha: Array) -> Coordinates:
    """One coordinate per direction that the instances span, at most n of them.

    X A^(-1/2) = U s V', so the features become U s.
    """
    root = 1 / np.sqrt(alpha)
    if np.all(root == root[0]):
        span, size = design.span, float(root[0])
    else:
        span, size = spanned(design.matrix() * root), 1.0
    data, r = design.data, len(span.s)
    labels = (data.offsets, data.T, data.known, data.chunk_size)
    F = span.U * (size * span.s)
    rows = TrainingData(F, *labels, counts=data.counts, reliability=data.reliability)
    sweeper = rows.sweeper(Columns.all(np.zeros(r), np.ones(r)))
    return Coordinates(sweeper, np.ones(r), root, span.V)


@dataclass(frozen=True)
class Span:
    """F = U s V' without what is zero to rounding, the largest first."""

    U: Array  # (n, r)
    s: Array  # (r,)
    V: Array  # (d, r)


def spanned(F: Array) -> Span:
    """The singular vectors of F (n, d), n < d, from the eigenvectors of F F'."""
    values, U = np.linalg.eigh(F @ F.T)
    values, U = values[::-1], U[:, ::-1]
    keep = values > 1e-13 * max(float(values[0]), 1e-300)
    s = np.sqrt(values[keep])
    return Span(U[:, keep], s, F.T @ (U[:, keep] / s))
