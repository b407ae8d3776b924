"""Whitened features of a sparse Gaussian process and their gradients.

With K_ZZ = L L', an instance has a_n = L^-1 k_Zn and the residual variance
kt_n = k_nn - |a_n|^2 >= 0, so that f_n = c0 + a_n'v + r_n, v ~ N(0, I), r_n ~ N(0, kt_n)
([V17, Eq. 4-5] and [W21, Eq. 5-6] with u = L v).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.rows import row_digest
from bagwise.core.linalg import (
    NotPositiveDefiniteError,
    cholesky,
    cholesky_pullback,
    inverse_lower,
    times_transpose,
)
from bagwise.kernels import Kernel

Array = NDArray[Any]
T = TypeVar("T")

SINGLE_ERROR = 1e-5  # of a_n, in deviations of f_n: about fifty times the rounding of float32
ROWS_CHECKED = 8  # of each block of them


class Features(Protocol):
    """Maps instances to (a_n, kt_n): all that passes over the data ask for."""

    @property
    def effort(self) -> int:
        """Columns read and made for one instance; 0 where reading takes longer than computing."""

    def __len__(self) -> int:
        """Number of columns of A."""

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """A (n, M) and kt (n,)."""


@dataclass(frozen=True)
class Whitener:
    """Maps instances to (a_n, kt_n) for one kernel and one set of inducing points."""

    kernel: Kernel
    Z: Array  # (M, D) float64, in the units the kernel sees
    L: Array  # (M, M) lower, K_ZZ + jitter = L L'
    L_inv: Array  # (M, M)

    @property
    def effort(self) -> int:
        """D + M."""
        return sum(self.Z.shape)

    def __len__(self) -> int:
        return len(self.Z)

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """Return A (n, M) and kt (n,), in float64: L^-1 magnifies rounding by 1/sqrt(jitter)."""
        X = np.asarray(X, dtype=np.float64)
        A = times_transpose(self.kernel.cross(X, self.Z), self.L_inv)
        return A, residual_variance(self.kernel.diag(X), A)

    def pullback(self, X: Array, A: Array, A_bar: Array, kt_bar: Array) -> FeatureGradient:
        """Carry gradients in A and kt back to the kernel's theta and to K_ZZ; sums over chunks."""
        A_total = A_bar - 2 * kt_bar[:, None] * A
        K_bar = A_total @ self.L_inv  # gradient in K_XZ, since A = K_XZ L^-T
        return FeatureGradient(
            self.kernel.pullback(X, self.Z, K_bar) + self.kernel.pullback_diag(X, kt_bar),
            -(K_bar.T @ A),
        )

    def theta_gradient(self, gradient: FeatureGradient, jitter: float) -> Array:
        """Finish `pullback` after all chunks: add the way through K_ZZ = L L'."""
        Kzz_bar = cholesky_pullback(self.L, self.L_inv, np.tril(gradient.L_bar))
        diag_bar = np.diagonal(Kzz_bar) + jitter * np.trace(Kzz_bar) / len(Kzz_bar)
        off = Kzz_bar - np.diag(np.diagonal(Kzz_bar))
        return (
            gradient.theta
            + self.kernel.pullback(self.Z, self.Z, off)
            + self.kernel.pullback_diag(self.Z, diag_bar)
        )


@dataclass(frozen=True)
class SingleWhitener:
    """The same in float32, computed in it where that shows in no digit of use."""

    exact: Whitener
    Z: Array  # (M, D) float32
    L_inv: Array  # (M, M) float32

    @property
    def effort(self) -> int:
        """D + M."""
        return self.exact.effort

    def __len__(self) -> int:
        return len(self.Z)

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """A (n, M) and kt (n,), in float32."""
        found = self.quickly(X, slice(None, None, max(1, len(X) // ROWS_CHECKED)))
        if found is not None:
            return found
        A, kt = self.exact(X)
        return A.astype(np.float32), kt.astype(np.float32)

    def quickly(self, X: Array, some: slice) -> tuple[Array, Array] | None:
        """Both computed in float32; None where some of the rows show that it will not do."""
        X, kernel = np.asarray(X, dtype=np.float32), self.exact.kernel
        with np.errstate(all="ignore"):  # squares of float32 may be beyond it
            A = times_transpose(kernel.cross(X, self.Z), self.L_inv)
            kt = kernel.diag(X) - np.einsum("nm,nm->n", A, A)
        error = np.linalg.norm(A[some] - self.exact(X[some])[0], axis=1)
        variance = kernel.diag(X)
        close = error <= SINGLE_ERROR * np.sqrt(variance[some])
        if np.all(close) and np.all(kt >= -4 * SINGLE_ERROR * variance):  # NaN is not
            return A, np.maximum(kt, 0)
        return None


def in_single_precision(whitener: Whitener) -> Features:
    """Features in float32, unless the inducing points tell that L^-1 magnifies its rounding."""
    Z, L_inv = whitener.Z.astype(np.float32), whitener.L_inv.astype(np.float32)
    single = SingleWhitener(whitener, Z, L_inv)
    return single if single.quickly(Z, slice(None)) is not None else whitener


@dataclass(frozen=True)
class FeatureGradient:
    """Additive part of a gradient: direct in theta, and in the Cholesky factor of K_ZZ."""

    theta: Array
    L_bar: Array

    def __add__(self, other: FeatureGradient) -> FeatureGradient:
        return FeatureGradient(self.theta + other.theta, self.L_bar + other.L_bar)


def whitener(kernel: Kernel, Z: Array, jitter: float) -> Whitener:
    """Factorise K_ZZ once for given hyperparameters."""
    Z = np.asarray(Z, dtype=np.float64)
    kernel.check_features(Z.shape[1])
    L = cholesky(kernel_matrix(kernel, Z), name="K_ZZ", jitter=jitter)
    return Whitener(kernel, Z, L, inverse_lower(L))


def kernel_matrix(kernel: Kernel, Z: Array) -> Array:
    """K_ZZ with its exact diagonal (distances of a point to itself round to about 1e-16)."""
    K = kernel.cross(Z, Z)
    K[np.diag_indices_from(K)] = kernel.diag(Z)
    return 0.5 * (K + K.T)


def residual_variance(k_diag: Array, A: Array) -> Array:
    """kt_n = k_nn - |a_n|^2, which rounding alone may leave slightly below zero."""
    kt = k_diag - np.einsum("nm,nm->n", A, A)
    worst = float(np.min(kt / np.maximum(k_diag, np.finfo(np.float64).tiny), initial=0.0))
    if worst < -1e-6:
        raise NotPositiveDefiniteError(
            f"a residual variance k_nn - |a_n|^2 came out {worst:.2g} times the prior variance, "
            "which must not be negative; K_ZZ is too ill-conditioned: use a larger jitter, fewer "
            "inducing points or float64 data"
        )
    return np.maximum(kt, 0)


class CommonFeatures:
    """Features that several fits to the same rows compute once: the latest that fit the budget.

    They are known by what they are made of: kernel, points, rows and their scaling, and dtype.
    """

    def __init__(self, rows: Any, budget: int) -> None:
        self.budget = budget
        self._rows = rows  # that most of them are of
        self._kept: dict[tuple[Any, ...], tuple[Any, int]] = {}

    def __call__(
        self,
        rows: Any,
        scaling: tuple[Array, ...],
        whitener: Whitener,
        dtype: np.dtype[Any],
        n_bytes: int,
        compute: Callable[[], T],
    ) -> T:
        """What `compute` made of rows, scaling and whitener at its first call."""
        told = (dtype.str, repr(whitener.kernel), whitener.kernel.theta)
        return self.once(rows, (*told, whitener.Z, whitener.L, *scaling), n_bytes, compute)

    def once(self, rows: Any, told: tuple[Any, ...], n_bytes: int, compute: Callable[[], T]) -> T:
        """What `compute` made of rows and of what it was `told` at its first call."""
        key = (self._digest if rows is self._rows else row_digest(rows), _told_apart(told))
        if key not in self._kept:
            while self._kept and n_bytes > self.budget - sum(n for _, n in self._kept.values()):
                del self._kept[next(iter(self._kept))]
            self._kept[key] = compute(), n_bytes
        found: T = self._kept[key][0]
        return found

    @cached_property
    def _digest(self) -> int:
        return row_digest(self._rows)


def _told_apart(told: tuple[Any, ...]) -> bytes:
    """A few bytes that differ where arrays, texts or numbers do."""
    found = blake2b(digest_size=16)
    for part in told:
        array = np.ascontiguousarray(part) if isinstance(part, np.ndarray) else None
        found.update(repr(part if array is None else (array.shape, array.dtype.str)).encode())
        found.update(b"" if array is None else array.tobytes())
    return found.digest()


_common: ContextVar[CommonFeatures | None] = ContextVar("features in common", default=None)


@contextmanager
def features_in_common(rows: Any, budget: int) -> Iterator[None]:
    """Fits in this context to the same rows compute features once that are the same for them."""
    before = _common.set(CommonFeatures(rows, budget))
    try:
        yield
    finally:
        _common.reset(before)


def common_features() -> CommonFeatures | None:
    """What the fits of this context have in common; None for a fit by itself."""
    return _common.get()
