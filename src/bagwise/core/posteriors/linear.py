"""Predictions of linear models: instance and bag probabilities from the Laplace posterior."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.linalg import try_cholesky
from bagwise.core.linear.design import Columns
from bagwise.core.linear.laplace import Mode
from bagwise.core.parameters import check_integer
from bagwise.core.posteriors.feature_posterior import FeaturePosterior
from bagwise.core.posteriors.gaussian import LARGEST, check_part
from bagwise.core.posteriors.points import ordered_root
from bagwise.kernels import Kernel, Linear

Array = NDArray[Any]

MANY_WEIGHTS = 500


@dataclass(frozen=True)
class LinearPosterior(FeaturePosterior):
    """Gaussian posterior of the weights in use and of the intercept, which comes last.

    With a kernel the features are k(x, basis_i), else those of the instance; `columns` says
    which of them are in use.
    """

    m: Array  # (d + 1,)
    S: Array  # (d + 1, d + 1)
    columns: NDArray[np.int64]  # (d,)
    shift: Array  # (D,)
    scale: Array  # (D,)
    kernel: Kernel | None
    basis: Array | None  # (M, D), scaled
    seed: int

    c0 = 0.0  # the intercept is uncertain and part of m
    link = "logistic"

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        D, d = len(self.shift), len(self.columns)
        shapes = {"m": (d + 1,), "S": (d + 1, d + 1), "shift": (D,), "scale": (D,)}
        if self.kernel is not None:
            if not isinstance(self.kernel, Kernel) or self.basis is None:
                raise ValueError("posterior: a kernel needs basis points")
            shapes["basis"] = (len(self.basis), D)
            self.kernel.check_features(D)
        for name, shape in shapes.items():
            check_part(name, getattr(self, name), shape)
        check_columns(self.columns, self.scale, self.n_weights, self.seed)

    @property
    def n_weights(self) -> int:
        """Number of weights before pruning."""
        return len(self.shift) if self.basis is None else len(self.basis)

    @property
    def weights(self) -> Array:
        """(d,) means of the weights in use."""
        return self.m[:-1]

    @property
    def deviations(self) -> Array:
        """(d,) standard deviations of the weights in use."""
        return np.sqrt(np.diagonal(self.S)[:-1])

    def features(self, X: Array) -> tuple[Array, Array]:
        """Columns in use with a last one of ones, and no residual variance."""
        A, kt = Columns(self.shift, self.scale, self.kernel, self.basis, self.columns)(X)
        return np.column_stack([A, np.ones(len(A))]), kt

    @cached_property
    def _S_root(self) -> Array:
        return root_of(self.S)


@dataclass(frozen=True)
class WideLinearPosterior(FeaturePosterior):
    """The same where weights outnumber the instances of the fit: no matrix has d x d numbers.

    Weights are root * (V u + what the data do not tell, which keeps its prior), and q(v) is that of
    v = (u, intercept). So f = A v + r as of a sparse Gaussian process: A = X root V, and the
    residuals r have the covariance of X root outside of V.
    """

    m: Array  # (r + 1,)
    S: Array  # (r + 1, r + 1)
    V: Array  # (d, r), orthonormal columns
    root: Array  # (d,) prior deviations of the weights in use
    columns: NDArray[np.int64]  # (d,)
    shift: Array  # (D,)
    scale: Array  # (D,)
    seed: int

    c0 = 0.0  # the intercept is uncertain and part of m
    link = "logistic"
    kernel = basis = None

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        D, d, r = len(self.shift), len(self.columns), len(self.m) - 1
        shapes = {"m": (r + 1,), "S": (r + 1, r + 1), "V": (d, r), "root": (d,)}
        for name, shape in {**shapes, "shift": (D,), "scale": (D,)}.items():
            check_part(name, getattr(self, name), shape)
        check_columns(self.columns, self.scale, self.n_weights, self.seed)

    @property
    def n_weights(self) -> int:
        """Number of weights before pruning."""
        return len(self.shift)

    @property
    def weights(self) -> Array:
        """(d,) means of the weights in use."""
        return self.root * (self.V @ self.m[:-1])

    @property
    def deviations(self) -> Array:
        """(d,) standard deviations of the weights in use."""
        told = self.S[:-1, :-1] - np.eye(self.V.shape[1])
        variance = 1 + np.einsum("dr,dr->d", self.V @ told, self.V)
        return self.root * np.sqrt(np.maximum(variance, 0))

    def features(self, X: Array) -> tuple[Array, Array]:
        """A (n, r + 1), whose last column is the intercept's, and the variance of residuals."""
        F = self._whitened(X)
        A = F @ self.V
        kt = np.einsum("nd,nd->n", F, F) - np.einsum("nr,nr->n", A, A)
        return np.column_stack([A, np.ones(len(A))]), np.maximum(kt, 0)

    def residual_kernel(self, X: Array, A: Array) -> tuple[Kernel | None, Array, Array]:
        """What instances of a bag share in directions that the fit has not seen."""
        own = A.copy()
        own[:, -1] = 0.0  # the intercept's
        return Linear(1.0), self._whitened(X), own

    def _whitened(self, X: Array) -> Array:
        """(n, d) columns in use, in units in which their weights have the prior N(0, I)."""
        columns = Columns(self.shift, self.scale, None, None, self.columns)
        return columns(X)[0] * self.root

    @cached_property
    def _S_root(self) -> Array:
        return root_of(self.S)


def posterior_at(mode: Mode, columns: Columns, seed: int) -> LinearPosterior | WideLinearPosterior:
    """What predictions of one task need, in the smaller form where weights are many."""
    x, V = mode.coordinates, mode.coordinates.V
    if V is not None and len(columns) > MANY_WEIGHTS and columns.kernel is None:
        wide = (V, x.root, columns.used, columns.shift, columns.scale)
        return WideLinearPosterior(mode.v, mode.P_inv, *wide, seed)
    return LinearPosterior(
        m=np.append(mode.w, mode.b),
        S=mode.covariance,
        columns=columns.used,
        shift=columns.shift,
        scale=columns.scale,
        kernel=columns.kernel,
        basis=columns.basis,
        seed=seed,
    )


def root_of(S: Array) -> Array:
    """R with R R' = S; Cholesky's where there are many weights."""
    L = try_cholesky(S) if len(S) > MANY_WEIGHTS else None
    return ordered_root(S) if L is None else L


def check_columns(columns: Any, scale: Array, n_weights: int, seed: Any) -> None:
    """Raise where a file's numbers of columns, scaling or seed cannot be."""
    check_integer("posterior: seed", seed, at_least=0)
    columns = np.asarray(columns)
    if columns.ndim != 1 or columns.dtype.kind != "i" or not np.all(scale > 1 / LARGEST):
        raise ValueError("posterior: columns and scale must be valid")
    if len(columns) and not (columns.min() >= 0 and columns.max() < n_weights):
        raise ValueError(f"posterior: columns must lie in 0..{n_weights - 1}")


@dataclass(frozen=True)
class TaskPosteriors:
    """One posterior per task."""

    tasks: tuple[Any, ...]
    posteriors: tuple[LinearPosterior | WideLinearPosterior, ...]

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        if not self.tasks or len(self.tasks) != len(self.posteriors):
            raise ValueError("posterior: there must be one posterior per task")
        if not all(isinstance(p, LinearPosterior | WideLinearPosterior) for p in self.posteriors):
            raise ValueError("posterior: a task's posterior must be linear")
