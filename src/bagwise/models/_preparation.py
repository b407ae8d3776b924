"""What a fit chooses before it begins: scaling, inducing points, a kernel to start from."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags
from bagwise.bags.rows import RowSource, ScaledRows, column_moments, is_elsewhere
from bagwise.core.inducing import kmeans_points
from bagwise.core.inference.feature_store import default_budget
from bagwise.core.parameters import check_dtype
from bagwise.distributed import DaskRows
from bagwise.kernels import RBF, Kernel

Array = NDArray[Any]


def scaling(X: Any, standardize: str | bool) -> tuple[Array, Array]:
    """Shift and scale of each feature; a constant feature is only shifted."""
    unscaled = np.zeros(X.shape[1]), np.ones(X.shape[1])
    if standardize is False:
        return unscaled
    shift, variance = column_moments(X)
    spread = np.sqrt(variance)
    constant = spread <= 1e-12 * np.abs(shift)
    if standardize == "auto" and same_unit(spread[~constant]):
        return unscaled
    return shift, np.where(constant, 1.0, spread)


def same_unit(spread: Array) -> bool:
    """Whether no feature's spread dwarfs the others', as a different unit would make it."""
    return len(spread) == 0 or float(np.max(spread)) <= 20 * float(np.median(spread))


def scaled(X: Any, shift: Array, scale: Array, dtype: Any) -> Array | RowSource:
    """X as the kernel sees it; what has to be scaled or cast is so when it is read."""
    dtype = check_dtype(dtype) or X.dtype
    if dtype == X.dtype and not np.any(shift) and np.all(scale == 1):
        return X
    return ScaledRows(X, shift, scale, dtype)


def inducing_points(
    inducing: str | ArrayLike,
    n_inducing: int,
    Xs: Array | RowSource,
    bags: Bags,
    T: NDArray[np.bool_],
    known: Array | None,
    rng: np.random.Generator,
) -> Array:
    """Scaled inducing points, (M, D) float64: k-means centres per label, or all rows of Xs."""
    if isinstance(inducing, str) and inducing == "all":
        return np.asarray(Xs[:], dtype=np.float64)
    group = np.repeat(T, bags.sizes).astype(np.int64)
    if known is not None:
        group = np.where(known == 1, 2, np.where(known == 0, 0, group))
    return kmeans_points(Xs, group, n_inducing, rng)


def check_inducing(Z: ArrayLike, n_features: int) -> NDArray[np.float64]:
    """A given array of inducing points, finite and with the data's features."""
    Z = np.asarray(Z, dtype=np.float64)
    if Z.ndim != 2 or len(Z) == 0 or Z.shape[1] != n_features:
        raise ValueError(
            f"inducing must be 'kmeans', 'all' or an (M, {n_features}) array in raw feature "
            f"units, got shape {Z.shape}"
        )
    if not np.all(np.isfinite(Z)):
        raise ValueError("inducing points must be finite, got NaN or infinity")
    return Z


def anchor(kernel: Kernel | None, learn: bool, variance: float, X: Any) -> Kernel:
    """A kernel of the kind asked for, with parameters that suit the data's spread."""
    if kernel is not None and not learn:
        return kernel  # nothing starts there, so that the data need not be read
    spread = float(np.sqrt(np.sum(column_moments(X)[1])))
    return (kernel or RBF()).anchored(variance, 0.5 * spread if spread > 0 else 1.0)


def feature_budget(memory_budget: float | None, X: Any) -> int:
    """Bytes of features that are kept in memory."""
    if memory_budget is not None:
        return int(memory_budget)
    if isinstance(X, DaskRows):
        return sys.maxsize  # Dask's workers write to disk what exceeds their memory
    return default_budget(is_elsewhere(X))
