"""The only place where matrices are factorised: one Cholesky, one relative jitter, one failure.

Small factorisations use ``numpy.linalg`` so that a sweep stays within one BLAS thread pool
(numpy and scipy carry their own pools, which slow each other down when they alternate).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Array = NDArray[Any]

# Errors that numbers cause, not users.
BREAKDOWNS = (FloatingPointError, np.linalg.LinAlgError)

SMALLEST_MATRIX = 32  # of many at a time, up to which halves do not pay
SMALL_TRIANGLE = 128  # up to it LAPACK inverts a triangle at once, in one thread
GRAM_ROWS = 1024  # of a block, so that it and its product stay in a core's cache
TRIANGLE_PARTS = 4  # strips of a triangle, which leave out 3/8 of a product with a square


class NotPositiveDefiniteError(np.linalg.LinAlgError, ValueError):
    """A matrix that has to be positive definite is not."""


def cholesky(K: Array, *, name: str, jitter: float = 0.0) -> Array:
    """Lower Cholesky factor of ``K + jitter * mean(diag K) * I``.

    >>> cholesky(np.array([[4.0, 0.0], [0.0, 9.0]]), name="K")
    array([[2., 0.],
           [0., 3.]])
    """
    K = np.asarray(K, dtype=np.float64)
    if not np.all(np.isfinite(K)):
        raise NotPositiveDefiniteError(
            f"{name} has NaN or infinite entries; check the features' scale (standardize=True) "
            "and the kernel's hyperparameters"
        )
    jittered = K.copy() if jitter else K
    if jitter:
        jittered[np.diag_indices_from(K)] += jitter * float(np.mean(np.diagonal(K)))
    try:
        return np.linalg.cholesky(jittered)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(_diagnosis(jittered, name, jitter)) from None


def try_cholesky(P: Array) -> Array | None:
    """Lower Cholesky factor, or None where ``P`` is not positive definite or not finite."""
    if not np.all(np.isfinite(P)):  # numpy would return NaN without an error
        return None
    try:
        return np.linalg.cholesky(P)
    except np.linalg.LinAlgError:
        return None


def inverse_lower(L: Array) -> Array:
    """``L^-1`` of a lower triangular matrix; afterwards whitening is a plain GEMM.

    By halves: their products are numpy's, and the triangles that are left, scipy's, are so small
    that its threads stay asleep.
    """
    n = len(L)
    if n <= SMALL_TRIANGLE:
        inverse, zero_pivot = lapack.dtrtri(L.T)  # in the order of memory that LAPACK wants
        if zero_pivot:
            raise np.linalg.LinAlgError(f"a triangle with a zero in row {zero_pivot - 1} of {n}")
        return np.asarray(inverse.T)
    k = n // 2
    inverse = np.zeros_like(L)
    inverse[:k, :k] = inverse_lower(L[:k, :k])
    inverse[k:, k:] = inverse_lower(L[k:, k:])
    inverse[k:, :k] = -inverse[k:, k:] @ (L[k:, :k] @ inverse[:k, :k])
    return inverse


def inverse_factors(B: Array) -> Array:
    """``L^-1`` of many positive definite matrices (B, n, n) at a time, B = LL', by halves.

    Of [[P, C'], [C, R]] those of P and R - WW' are inverted, W = C K' with the inverse factor K of
    P. Inverses of whole blocks would take less time, but lose digits with each level where B is ill
    conditioned.

    >>> inverse_factors(np.array([[[4.0, 2.0], [2.0, 2.0]]]))
    array([[[ 0.5,  0. ],
            [-0.5,  1. ]]])
    """
    n = B.shape[-1]
    if n <= SMALLEST_MATRIX:
        return np.tril(np.linalg.inv(np.linalg.cholesky(B)))
    k = n // 2
    inverse = np.zeros_like(B)
    first = inverse[:, :k, :k] = inverse_factors(B[:, :k, :k])
    W = B[:, k:, :k] @ first.transpose(0, 2, 1)
    second = inverse[:, k:, k:] = inverse_factors(B[:, k:, k:] - W @ W.transpose(0, 2, 1))
    inverse[:, k:, :k] = -(second @ W) @ first
    return inverse


def inverse_from_cholesky(L: Array) -> Array:
    """``(L L')^-1``, exactly symmetric."""
    L_inv = inverse_lower(L)
    return L_inv.T @ L_inv


def weighted_gram(A: Array, w: Array) -> Array:
    """``A' diag(w) A`` in float64; products are taken in the dtype of A.

    Of a product B'B half is computed, the other half is the same. So rows of negative weight are
    taken by themselves, and those of none are left out.

    >>> weighted_gram(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([1.0, -4.0]))
    array([[1., 2.],
           [2., 0.]])
    """
    root = np.sqrt(np.abs(w)).astype(A.dtype, copy=False)[:, None]
    up, down = np.flatnonzero(~(w <= 0)), np.flatnonzero(w < 0)  # what is no number shows
    return _gram(A, root, up) if len(down) == 0 else _gram(A, root, up) - _gram(A, root, down)


def _gram(A: Array, root: Array, rows: NDArray[np.intp]) -> Array:
    """B'B of some rows of B = root A, by blocks that stay in a core's own memory."""
    M = A.shape[1]
    total = np.zeros((M, M))
    room = np.empty((min(len(rows), GRAM_ROWS), M), dtype=A.dtype)
    for start in range(0, len(rows), GRAM_ROWS):
        block = rows[start : start + GRAM_ROWS]
        B = room[: len(block)]
        if len(rows) == len(A):
            np.multiply(A[start : start + len(B)], root[start : start + len(B)], out=B)
        else:
            np.take(A, block, axis=0, out=B, mode="clip")  # "raise" would copy
            B *= root[block]
        total += B.T @ B
    return total


def times_transpose(K: Array, L: Array) -> Array:
    """``K L'`` of a lower triangular matrix, without most of its zeros.

    >>> times_transpose(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [4.0, 5.0]]))
    array([[ 3., 14.]])
    """
    out = np.empty((len(K), len(L)), dtype=K.dtype)
    for start, end in pairwise(i * len(L) // TRIANGLE_PARTS for i in range(TRIANGLE_PARTS + 1)):
        np.matmul(K[:, :end], L[start:end, :end].T, out=out[:, start:end])
    return out


def upper_root(S: Array) -> Array:
    """Upper triangle U with ``S = U U'``.

    >>> upper_root(np.array([[2.0, 3.0], [3.0, 9.0]]))
    array([[1., 1.],
           [0., 3.]])
    """
    return np.linalg.cholesky(S[::-1, ::-1])[::-1, ::-1]


def solve_from_cholesky(L: Array, b: Array) -> Array:
    """``(L L')^-1 b`` of one vector.

    >>> solve_from_cholesky(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([6.0, 4.0]))
    array([1., 1.])
    """
    return np.asarray(lapack.dpotrs(L.T, b)[0])


def logdet_from_cholesky(L: Array) -> float:
    """``log |L L'|``."""
    return 2.0 * float(np.sum(np.log(np.diagonal(L))))


def cholesky_pullback(L: Array, L_inv: Array, L_bar: Array) -> Array:
    """Gradient with respect to ``K`` of a function whose gradient in ``L = chol(K)`` is ``L_bar``.

    Symmetric; for a symmetric change dK the function changes by ``sum(K_bar * dK)``.
    """
    inner = np.tril(L.T @ L_bar)
    inner[np.diag_indices_from(inner)] *= 0.5
    K_bar = L_inv.T @ inner @ L_inv
    return 0.5 * (K_bar + K_bar.T)


def _diagnosis(K: Array, name: str, jitter: float) -> str:
    eigenvalues = np.linalg.eigvalsh(0.5 * (K + K.T))
    return (
        f"{name} is not positive definite: its eigenvalues run from {eigenvalues[0]:.3g} to "
        f"{eigenvalues[-1]:.3g} with a relative jitter of {jitter:g}; inducing points that nearly "
        "coincide or a very long lengthscale cause that; try a larger jitter, fewer inducing "
        "points or standardize=True"
    )
