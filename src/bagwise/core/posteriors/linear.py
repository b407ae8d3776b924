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
from bagwise.core.posteriors.gaussian import LARGEST, FeaturePosterior, check_part
from bagwise.kernels import Kernel

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
        check_integer("posterior: seed", self.seed, at_least=0)
        columns = np.asarray(self.columns)
        if columns.ndim != 1 or columns.dtype.kind != "i" or not np.all(self.scale > 1 / LARGEST):
            raise ValueError("posterior: columns and scale must be valid")
        if d and not (columns.min() >= 0 and columns.max() < self.n_weights):
            raise ValueError(f"posterior: columns must lie in 0..{self.n_weights - 1}")

    @classmethod
    def at(cls, mode: Mode, columns: Columns, seed: int) -> LinearPosterior:
        """What predictions of one task need."""
        return cls(
            m=np.append(mode.w, mode.b),
            S=mode.covariance,
            columns=columns.used,
            shift=columns.shift,
            scale=columns.scale,
            kernel=columns.kernel,
            basis=columns.basis,
            seed=seed,
        )

    @property
    def n_weights(self) -> int:
        """Number of weights before pruning."""
        return len(self.shift) if self.basis is None else len(self.basis)

    def features(self, X: Array) -> tuple[Array, Array]:
        """Columns in use with a last one of ones, and no residual variance."""
        A, kt = Columns(self.shift, self.scale, self.kernel, self.basis, self.columns)(X)
        return np.column_stack([A, np.ones(len(A))]), kt

    @cached_property
    def _S_root(self) -> Array:
        """R with R R' = S; Cholesky's where there are many weights."""
        L = try_cholesky(self.S) if len(self.S) > MANY_WEIGHTS else None
        return super()._S_root if L is None else L


@dataclass(frozen=True)
class TaskPosteriors:
    """One posterior per task."""

    tasks: tuple[Any, ...]
    posteriors: tuple[LinearPosterior, ...]

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        if not self.tasks or len(self.tasks) != len(self.posteriors):
            raise ValueError("posterior: there must be one posterior per task")
        if not all(isinstance(p, LinearPosterior) for p in self.posteriors):
            raise ValueError("posterior: a task's posterior must be linear")
