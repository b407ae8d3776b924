"""The posterior q(v) of a sparse Gaussian process, with all that its predictions need."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.rows import scaled_rows
from bagwise.core.features import Whitener, whitener
from bagwise.core.files.codec import ModelFileError
from bagwise.core.inference.passes import bag_cuts, rows_per_chunk
from bagwise.core.links import LINKS
from bagwise.core.parameters import check_integer, check_number
from bagwise.core.posteriors.feature_posterior import FeaturePosterior
from bagwise.core.posteriors.points import ordered_root
from bagwise.core.residuals import split_residuals
from bagwise.kernels import Kernel

Array = NDArray[Any]

LARGEST = 1e100  # of any number in a posterior; squares of larger ones overflow


def check_part(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raise where a part of a posterior is no array of this shape of usable numbers."""
    array = np.asarray(value)
    if array.shape != shape or array.dtype.kind != "f" or not np.all(np.abs(array) < LARGEST):
        raise ValueError(f"posterior: {name} must be numbers below {LARGEST:g} of shape {shape}")


@dataclass(frozen=True)
class Posterior(FeaturePosterior):
    """Everything a prediction needs: q(v), the kernel, the inducing points and the scaling."""

    kernel: Kernel
    Z: Array  # (M, D), scaled
    m: Array  # (M,)
    S: Array  # (M, M)
    c0: float
    link: str
    shift: Array  # (D,)
    scale: Array  # (D,)
    jitter: float
    seed: int  # of the Sobol points: predictions of one fitted model are deterministic

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        M, D = np.shape(self.Z) if np.ndim(self.Z) == 2 else (-1, -1)
        shapes = {"Z": (M, D), "m": (M,), "S": (M, M), "shift": (D,), "scale": (D,)}
        for name, shape in shapes.items():
            check_part(name, getattr(self, name), shape)
        if self.link not in LINKS:
            raise ModelFileError(
                f"its link is {self.link!r:.80}, which this program does not know; if it is your "
                "own, import its module first"
            )
        check_number("posterior: c0", self.c0)
        check_number("posterior: jitter", self.jitter, above=0)
        check_integer("posterior: seed", self.seed, at_least=0)
        if not (isinstance(self.kernel, Kernel) and np.all(self.scale > 1 / LARGEST)):
            raise ValueError("posterior: kernel and scale must be valid")
        self.kernel.check_features(D)

    def scaled(self, X: Array) -> Array:
        """Features in the units the kernel sees, in the dtype of `X`."""
        return scaled_rows(X, self.shift, self.scale, X.dtype)

    def features(self, X: Array) -> tuple[Array, Array]:
        """Whitened kernel features and residual variances."""
        return self._whitener(self.scaled(X))

    def residual_kernel(self, X: Array, A: Array) -> tuple[Kernel | None, Array, Array]:
        """The kernel, the rows that it sees, and A."""
        return self.kernel, np.asarray(self.scaled(X), dtype=np.float64), A

    @property
    def members(self) -> tuple[Posterior, ...]:
        """The posteriors whose logits are averaged: here, this one alone."""
        return (self,)

    @property
    def shares(self) -> Array:
        """The weight of each member in the average."""
        return np.ones(1)

    def pooled_rows(self, X: Array) -> Array:
        """(n, M) what of each instance is averaged over its bag where bags are calibrated."""
        return self.features(X)[0]

    def bag_features(self, X: Array, offsets: Array) -> Iterator[tuple[Array, Array, Array]]:
        """mu (n,), rest (n,) and G (n, rank) bag by bag: Cov(f) = G G' + diag(rest)."""
        offsets = np.asarray(offsets)
        for first, last in itertools.pairwise(bag_cuts(offsets, rows_per_chunk(X.shape[1]))):
            rows = X[offsets[first] : offsets[last]]
            ends = offsets[first : last + 1] - offsets[first]
            A, kt = self.features(rows)
            Xs = np.asarray(self.scaled(rows), dtype=np.float64)
            shared, rest = split_residuals(self.kernel, Xs, A, kt, ends[:-1])
            mu, G = self.c0 + A @ self.m, A @ self._S_root
            for a, b in itertools.pairwise(ends):
                used = np.any(shared[a:b] != 0, axis=0)
                yield mu[a:b], rest[a:b], np.hstack([G[a:b], shared[a:b, used]])

    @cached_property
    def _whitener(self) -> Whitener:
        return whitener(self.kernel, self.Z, self.jitter)

    @cached_property
    def _S_root(self) -> Array:
        """R with R R' = S; its first directions are those that matter at the inducing points."""
        return ordered_root(self.S, self._whitener.L)
