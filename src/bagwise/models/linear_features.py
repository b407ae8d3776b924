"""From instances to the columns of a linear model, wherever the rows are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.rows import column_range
from bagwise.core.linear.design import Design, rows_per_chunk
from bagwise.core.linear.laplace import Mode
from bagwise.core.posteriors.linear import LinearPosterior
from bagwise.distributed import DaskRows, DistributedData, training_data
from bagwise.distributed.linear import DistributedDesign
from bagwise.kernels import Kernel

Array = NDArray[Any]


@dataclass(frozen=True)
class FeatureMap:
    """How instances become columns of the design: scaling, then kernel features if wanted."""

    shift: Array  # (D,)
    scale: Array  # (D,)
    kernel: Kernel | None = None
    basis: Array | None = None  # (M, D), scaled

    def design(
        self,
        X: Any,
        offsets: Array,
        T: NDArray[np.bool_],
        known: Array | None,
        chunk_size: int | None,
    ) -> Design:
        """The columns that vary; a constant one would only repeat the intercept."""
        shift, scale = self.shift, self.scale
        if self.kernel is not None and self.basis is not None:
            away = isinstance(X, DaskRows)
            X = X.mapped(self._similarities, len(self.basis)) if away else self._similarities(X)
            shift, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        low, high = column_range(X)
        data = training_data(X, offsets, T, known, chunk_size or rows_per_chunk(X.shape[1]))
        columns = np.flatnonzero(low < high)
        if isinstance(data, DistributedData):
            return DistributedDesign(data, shift, scale, columns)
        return Design(data, shift, scale, columns)

    def _similarities(self, X: Any) -> Array:
        """Kernel features k(x, basis point), (n, M)."""
        assert self.kernel is not None and self.basis is not None
        return self.kernel.cross((X - self.shift) / self.scale, self.basis)

    def posterior(self, mode: Mode, columns: Array, seed: int) -> LinearPosterior:
        """What predictions of one task need."""
        return LinearPosterior(
            m=np.append(mode.w, mode.b),
            S=mode.covariance,
            columns=np.asarray(columns, dtype=np.int64),
            shift=self.shift,
            scale=self.scale,
            kernel=self.kernel,
            basis=self.basis,
            seed=seed,
        )
