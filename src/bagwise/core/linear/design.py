"""Features as a linear model sees them: scaled, restricted to the columns in use, in chunks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.passes import DEFAULT_CHUNK, TrainingData
from bagwise.core.likelihoods.at_least_one import Targets

Array = NDArray[Any]
Blocks = Callable[[], Iterator[tuple[Array, Targets]]]
Step = Callable[[Array, Targets], Any]  # of features and labels of some whole bags

CHUNK_ENTRIES = 2**22  # 32 MiB in float64
CACHED_ENTRIES = 2**25  # blocks of more entries are scaled anew in each pass


class Design:
    """Instances of one task, whose blocks are (n, d) float64 arrays of scaled features."""

    def __init__(
        self, data: TrainingData, shift: Array, scale: Array, columns: Array | None = None
    ) -> None:
        self.data = data
        self.shift = shift
        self.scale = scale
        self.columns = np.arange(data.X.shape[1]) if columns is None else columns
        self._cached: list[Array] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns in use."""
        return len(self.data.X), len(self.columns)

    @property
    def is_small(self) -> bool:
        """Whether scaled features are kept in memory."""
        n, d = self.shape
        return n * d <= CACHED_ENTRIES

    def only(self, keep: NDArray[np.bool_]) -> Self:
        """The same instances with fewer columns."""
        if np.all(keep):
            return self
        return type(self)(self.data, self.shift, self.scale, self.columns[keep])

    def of_bags(self, bags: NDArray[np.intp]) -> Self:
        """The same columns of some of the bags."""
        return type(self)(self.data.of_bags(bags), self.shift, self.scale, self.columns)

    def total(self, change: Callable[[Array], Array]) -> Callable[[Step], Any]:
        """What sums a step over blocks of changed features; those of few are changed once."""

        def blocks() -> Iterator[tuple[Array, Targets]]:
            return ((change(X), targets) for X, targets in self.blocks())

        if self.is_small:
            return partial(add_up, partial(iter, list(blocks())))
        return partial(add_up, blocks)

    def blocks(self) -> Iterator[tuple[Array, Targets]]:
        """Scaled features and labels, chunk by chunk."""
        self.prepared()
        for i, (rows, targets) in enumerate(self._chunks()):
            yield (self._scaled(rows) if self._cached is None else self._cached[i]), targets

    def prepared(self) -> Self:
        """Itself, with the scaled features of small data computed."""
        if self._cached is None and self.is_small:
            self._cached = [self._scaled(rows) for rows, _ in self._chunks()]
        return self

    def _chunks(self) -> Iterator[tuple[slice, Targets]]:
        for first, last in itertools.pairwise(self.data.cuts.tolist()):
            rows = slice(int(self.data.offsets[first]), int(self.data.offsets[last]))
            yield rows, self.data.targets(first, last)

    def _scaled(self, rows: slice) -> Array:
        X = self.data.X[rows]
        if len(self.columns) < X.shape[1]:
            X = X[:, self.columns]
        return (X - self.shift[self.columns]) / self.scale[self.columns]


def rows_per_chunk(n_features: int) -> int:
    """Chunks of about 32 MiB, and never more than the usual number of rows.

    >>> rows_per_chunk(100), rows_per_chunk(5000)
    (4096, 838)
    """
    return max(1, min(DEFAULT_CHUNK, CHUNK_ENTRIES // max(1, n_features)))


def add_up(blocks: Blocks, step: Step) -> Any:
    """Sum of `step(features, labels)` over blocks, in order."""
    return reduce(add, itertools.starmap(step, blocks()))


@dataclass(frozen=True)
class Coordinates:
    """Whitened weights u with w = root * (V u), and the intercept as last coordinate.

    The prior w_i ~ N(0, 1/alpha_i) becomes u ~ N(0, I); V = None stands for the identity.
    `penalty` is 1 where a coordinate has that prior and 0 where its prior is flat.
    """

    total: Callable[[Step], Any]  # sums over blocks of (n, r + 1) features, the last of ones
    penalty: Array  # (r + 1,)
    root: Array  # (d,)
    V: Array | None  # (d, r), orthonormal columns

    def weights(self, v: Array) -> Array:
        """w (d,) from coordinates v (r + 1,)."""
        return self.root * (v[:-1] if self.V is None else self.V @ v[:-1])

    def start(self, w: Array, b: float) -> Array:
        """Coordinates of weights w and intercept b."""
        u = w / self.root
        return np.append(u if self.V is None else self.V.T @ u, b)

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
    total = design.total(partial(_times, root=root))
    return Coordinates(total, np.append(~flat, False).astype(np.float64), root, None)


def dual(design: Design, alpha: Array) -> Coordinates:
    """One coordinate per direction that the instances span, at most n of them.

    X A^(-1/2) = U s V' with the eigenvectors U of X A^-1 X', so the features become U s.
    """
    root = 1 / np.sqrt(alpha)
    parts = [(X * root, targets) for X, targets in design.blocks()]
    F = np.concatenate([X for X, _ in parts])  # (n, d)
    values, U = np.linalg.eigh(F @ F.T)
    keep = values > 1e-13 * max(float(values[-1]), 1e-300)
    s = np.sqrt(values[keep])
    V = F.T @ (U[:, keep] / s)  # (d, r)
    Us = with_ones(U[:, keep] * s)
    ends = np.cumsum([len(X) for X, _ in parts])[:-1]
    small = [(A, t) for A, (_, t) in zip(np.split(Us, ends), parts, strict=True)]
    total = partial(add_up, partial(iter, small))
    return Coordinates(total, np.append(np.ones(len(s)), 0.0), root, V)


def _times(X: Array, root: Array) -> Array:
    return with_ones(X * root)


def with_ones(X: Array) -> Array:
    """X with a last column of ones, for the intercept."""
    return np.column_stack([X, np.ones(len(X))])
