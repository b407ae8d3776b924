"""Features of `scipy.sparse`, which become dense only in the blocks of rows that are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bagwise.bags.rows import RowSource

Array = NDArray[Any]


class SparseRows(RowSource):
    """The X of `Bags` made of a sparse matrix; `matrix` is that in the CSR format.

    `rows[3:5]` is a dense array, as of all sources of rows; `rows[:, columns]` stays sparse.

    >>> rows = SparseRows(sparse.eye_array(3, format="csr"))
    >>> rows[1:]
    array([[0., 1., 0.],
           [0., 0., 1.]])
    >>> rows.moments()[0].round(2)
    array([0.33, 0.33, 0.33])
    """

    elsewhere = False

    def __init__(self, X: Any) -> None:
        matrix = sparse.csr_array(X)
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()  # entries are summed in place
            matrix.sum_duplicates()
        self.matrix = matrix
        self.shape = cast(tuple[int, int], matrix.shape)
        self.dtype = np.dtype(matrix.dtype)

    @classmethod
    def stacked(cls, parts: Sequence[Any]) -> SparseRows:
        """Several after each other; dense parts become sparse."""
        return cls(sparse.vstack([_matrix(part) for part in parts], format="csr"))

    def read(self, start: int, stop: int) -> Array:
        return self.matrix[start:stop].toarray()

    def part(self, rows: Any) -> SparseRows:
        return SparseRows(self.matrix[rows])

    def _gather(self, index: NDArray[np.int64]) -> Array:
        return self.matrix[index].toarray()

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, tuple):
            return SparseRows(self.matrix[rows])
        return super().__getitem__(rows)

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of each column, from deviations of entries and of zeros."""
        (n, D), X = self.shape, self.matrix
        counts = np.bincount(X.indices, minlength=D)
        mean = np.bincount(X.indices, X.data, minlength=D) / max(n, 1)
        squares = np.bincount(X.indices, (X.data - mean[X.indices]) ** 2, minlength=D)
        return mean, (squares + (n - counts) * mean**2) / max(n, 1)

    def range(self) -> tuple[Array, Array]:
        low, high = (getattr(self.matrix, name)(axis=0).toarray() for name in ("min", "max"))
        return low.ravel(), high.ravel()


def checked_sparse(X: Any) -> Any:
    """A sparse matrix whose indices lie within it, of floats: sums of entries must not overflow."""
    if X.format in ("csr", "csc", "bsr"):
        try:
            check_indices(X)
        except ValueError as error:
            raise ValueError(f"this is no valid sparse matrix: {error}; build it anew") from error
    return X.astype(np.float64) if X.dtype.kind in "biu" else X


def check_indices(X: Any) -> None:
    """Raise where a compressed matrix has entries outside of itself: memory of others.

    SciPy's check compares pointers by differences, which may overflow, and looks at none of them
    where the last is 0.
    """
    starts = np.asarray(X.indptr)
    if starts[0] != 0 or np.any(starts[1:] < starts[:-1]):
        raise ValueError("index pointers must begin with 0 and never fall")
    X.check_format(full_check=True)


def _matrix(X: Any) -> Any:
    return X.matrix if isinstance(X, SparseRows) else sparse.csr_array(np.asarray(X))
