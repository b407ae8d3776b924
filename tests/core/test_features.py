"""Whitened features: a_n'a_m + residual is the kernel, and their gradients."""

from typing import Any

import numpy as np
import pytest

from bagwise.core.features import (
    CommonFeatures,
    SingleWhitener,
    common_features,
    features_in_common,
    in_single_precision,
    kernel_matrix,
    residual_variance,
    whitener,
)
from bagwise.core.linalg import (
    GRAM_ROWS,
    NotPositiveDefiniteError,
    cholesky,
    times_transpose,
    weighted_gram,
)
from bagwise.kernels import RBF, Constant, Kernel, Linear, Matern
from brute_force import central_difference

KERNELS = [
    RBF(1.5, 1.1),
    RBF(0.7, (0.8, 1.5, 3.0)),
    Matern(0.5, 1.3, 2.0),
    Matern(1.5, 2.0, 0.9),
    Matern(2.5, 0.6, (1.0, 2.0, 1.5)),
    RBF(1.0, 1.2) + Linear(0.3),
    RBF(2.0, 0.8) + Matern(1.5, 0.5, 2.0) + Constant(0.7),
]
JITTER = 1e-6
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


def points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3))


@each_kernel
def test_inducing_points_reproduce_the_kernel(kernel: Kernel) -> None:
    Z = points(8)
    A, kt = whitener(kernel, Z, 1e-12)(Z)
    np.testing.assert_allclose(A @ A.T + np.diag(kt), kernel_matrix(kernel, Z), atol=1e-9)
    np.testing.assert_allclose(kt, 0, atol=1e-9)


@each_kernel
def test_residual_completes_the_prior_variance(kernel: Kernel) -> None:
    X, Z = points(50), points(6, 1)
    A, kt = whitener(kernel, Z, JITTER)(X)
    assert A.shape == (50, 6) and kt.shape == (50,)
    assert np.all(kt >= 0) and np.any(kt > 0.01)
    np.testing.assert_allclose(np.sum(A**2, axis=1) + kt, kernel.diag(X), rtol=1e-12)


@each_kernel
def test_features_give_the_nystrom_covariance(kernel: Kernel) -> None:
    X, Z = points(9), points(5, 1)
    A, _ = whitener(kernel, Z, JITTER)(X)
    Kzz = kernel_matrix(kernel, Z)
    Kzz = Kzz + JITTER * np.mean(np.diag(Kzz)) * np.eye(5)
    Kxz = kernel.cross(X, Z)
    np.testing.assert_allclose(A @ A.T, Kxz @ np.linalg.solve(Kzz, Kxz.T), atol=1e-10)


def feature_gradient(kernel: Kernel, X: np.ndarray, Z: np.ndarray, chunks: list[slice]):
    """Gradient of `sum(G * A) + sum(g * kt)` in theta, summed over chunks; and the function."""
    rng = np.random.default_rng(3)
    G, g = rng.normal(size=(len(X), len(Z))), rng.normal(size=len(X))
    w = whitener(kernel, Z, JITTER)
    parts = [w.pullback(X[c], w(X[c])[0], G[c], g[c]) for c in chunks]
    total = sum(parts[1:], parts[0])

    def value(theta: np.ndarray) -> float:
        A, kt = whitener(kernel.with_theta(theta), Z, JITTER)(X)
        return float(np.sum(G * A) + g @ kt)

    return w.theta_gradient(total, JITTER), value


@each_kernel
@pytest.mark.parametrize("chunks", [[slice(0, 10)], [slice(0, 3), slice(3, 10)]], ids=len)
def test_gradients_match_finite_differences(kernel: Kernel, chunks: list[slice]) -> None:
    found, value = feature_gradient(kernel, points(10), points(4, 1), chunks)
    expected = central_difference(value, kernel.theta)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_features_are_float64_whatever_the_data() -> None:
    X, Z = points(30), points(6, 1)
    w = whitener(RBF(1.5, 1.1), Z, JITTER)
    A, kt = w(X.astype(np.float32))
    assert A.dtype == kt.dtype == np.float64
    np.testing.assert_allclose(A, w(X)[0], atol=1e-5)


@each_kernel
def test_features_in_single_precision(kernel: Kernel) -> None:
    X = points(200, seed=1)
    exact = whitener(kernel, points(8), JITTER)
    single = in_single_precision(exact)
    if getattr(kernel, "nu", None) == 0.5:  # whether zeros are such depends on the processor
        single = SingleWhitener(exact, exact.Z.astype(np.float32), exact.L_inv.astype(np.float32))
    assert single is not exact
    A, kt = single(X)
    assert A.dtype == kt.dtype == np.float32 and np.all(kt >= 0)
    expected, residual = exact(X)
    scale = np.linalg.norm(expected, axis=1)
    assert np.max(np.linalg.norm(A - expected, axis=1) / scale) < 1e-5
    np.testing.assert_allclose(kt, residual, atol=1e-5 * float(np.max(kernel.diag(X))))


def test_of_small_distances_float32_has_half_of_the_digits() -> None:
    """Squares of 1e-4 are lost beside those of points: an exponential kernel is 1e-4 off there."""
    Z = points(4)
    close = whitener(Matern(0.5, 1.3, 2.0), np.concatenate([Z, Z + 1e-4]), JITTER)
    assert in_single_precision(close) is close


def test_where_rounding_would_be_magnified_features_stay_in_float64() -> None:
    """K_ZZ of points this close has a condition of 1e6."""
    close = whitener(RBF(1.0, 50.0), points(30), JITTER)
    assert in_single_precision(close) is close


@pytest.mark.parametrize("away", [0.5, 3e19])
@pytest.mark.parametrize("kernel", [RBF(1.0, 0.7), Matern(2.5, 1.0, 0.7)], ids=repr)
def test_rows_that_float32_does_not_tell_apart_are_seen(kernel: Kernel, away: float) -> None:
    """Of inducing points in two distant regions distances are zero, or as good as infinite."""
    X = np.array([[-5000.0], [5000.0]], dtype=np.float32)
    single = in_single_precision(whitener(kernel, X, JITTER))
    assert isinstance(single, SingleWhitener)
    rows = (X + away * np.linspace(0, 1, 40)).astype(np.float32).reshape(-1, 1)
    A, kt = single(rows)
    expected, residual = single.exact(rows)
    assert A.dtype == np.float32
    np.testing.assert_allclose(A, expected, atol=1e-6)
    np.testing.assert_allclose(kt, residual, atol=1e-6)


def test_jitter_is_relative() -> None:
    Z = points(6)
    small, large = (whitener(RBF(v, 1.0), Z, 1e-3).L for v in (1.0, 1e4))
    np.testing.assert_allclose(large, 100 * small, rtol=1e-12)


def test_duplicated_inducing_points_need_jitter_only() -> None:
    Z = points(4)[[0, 1, 2, 3, 0, 0]]
    A, kt = whitener(RBF(), Z, JITTER)(points(20, 1))
    assert np.all(np.isfinite(A)) and np.all(kt >= 0)


def test_without_jitter_the_failure_is_named() -> None:
    Z = np.zeros((3, 3))
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ is not positive definite.*jitter"):
        whitener(RBF(), Z, 0.0)
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ has NaN.*standardize"):
        cholesky(np.full((1, 1), np.nan), name="K_ZZ")


def test_a_negative_residual_is_not_hidden() -> None:
    with pytest.raises(ValueError, match=r"must not be negative.*larger jitter"):
        residual_variance(np.array([1.0]), np.array([[1.1]]))
    np.testing.assert_array_equal(residual_variance(np.ones(1), np.array([[1 + 1e-9]])), [0])


def test_ard_kernel_with_wrong_features() -> None:
    with pytest.raises(ValueError, match="one lengthscale per feature"):
        whitener(RBF(1.0, (1.0, 2.0)), points(3), JITTER)


def test_features_in_common_are_told_apart_by_what_they_are_made_of() -> None:
    X, made = np.arange(12.0).reshape(6, 2), []
    wide, narrow = (whitener(RBF(1.0, length), X[:2], 1e-6) for length in (3.0, 1.0))
    common = CommonFeatures(X, budget=3 * 96)

    def ask(rows: Any, w: Any, dtype: Any = float, *scaling: Any) -> Any:
        def compute() -> int:
            made.append(w)
            return len(made)

        return common(rows, scaling, w, np.dtype(dtype), 96, compute)

    assert ask(X, wide) == ask(X.copy(), wide) == 1
    assert ask(X, narrow) == 2 and ask(X[::-1], wide) == 3
    assert ask(X, wide) == 1 and ask(X, narrow) == 2
    # The budget holds three: the oldest goes.
    assert ask(X, wide, np.float32) == 4 and ask(X, wide) == 5
    assert ask(X, wide, float, np.ones(2)) == 6 and ask(X, wide, float, np.zeros(2)) == 7


def test_features_in_common_end_with_their_context() -> None:
    assert common_features() is None
    with features_in_common(np.zeros((2, 1)), 100):
        assert common_features() is not None
    assert common_features() is None


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 30])
def test_products_leave_out_zeros_alone(n: int) -> None:
    rng = np.random.default_rng(n)
    K, L = rng.normal(size=(9, n)), np.tril(rng.normal(size=(n, n)))
    np.testing.assert_allclose(times_transpose(K, L), K @ L.T, atol=1e-13)


@pytest.mark.parametrize("signs", [[1.0], [-1.0], [1.0, -1.0, 0.0]], ids=["+", "-", "mixed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_of_any_sign(signs: list[float], dtype: type) -> None:
    rng = np.random.default_rng(0)
    n = GRAM_ROWS + 50  # more than one block
    A = rng.normal(size=(n, 6)).astype(dtype)
    w = rng.random(n) * rng.choice(signs, size=n)
    found = weighted_gram(A, w)
    assert found.dtype == np.float64
    exact = np.einsum("ni,n,nj->ij", A.astype(np.float64), w, A.astype(np.float64))
    np.testing.assert_allclose(found, exact, atol=1e-3 if dtype == np.float32 else 1e-11)
    w[7] = np.nan
    assert np.all(np.isnan(weighted_gram(A, w)))
