"""Predictions from q(v): latent moments, instance and bag probabilities with their spread."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.stats import qmc

from bagwise.execution import DEFAULT_CHUNK, bag_cuts
from bagwise.features import Whitener, whitener
from bagwise.kernels import Kernel
from bagwise.links import Link, Logistic, Probit

Array = NDArray[Any]

LINKS: dict[str, type[Link]] = {"logistic": Logistic, "probit": Probit}
LOG2_DRAWS = 10  # 1024 Sobol points: 3e-4 relative error at rank 15, 1.5e-3 at rank 200
MAX_DIMENSIONS = 2000  # directions sampled per bag; the eigenbasis puts the large ones first
ROWS_PER_BLOCK = 2048


@dataclass(frozen=True)
class Posterior:
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

    def scaled(self, X: Array) -> Array:
        """Features in the units the kernel sees, in the dtype of `X`."""
        return (X - self.shift.astype(X.dtype)) / self.scale.astype(X.dtype)

    def latent(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of f_n: c0 + a_n'm and a_n'S a_n + kt_n."""
        mean, variance = np.empty(len(X)), np.empty(len(X))
        for start in range(0, len(X), DEFAULT_CHUNK):
            rows = slice(start, start + DEFAULT_CHUNK)
            A, kt = self._whitener(self.scaled(X[rows]))
            mean[rows] = self.c0 + A @ self.m.astype(A.dtype)
            spread = np.einsum("nm,nm->n", A @ self.S.astype(A.dtype), A)
            variance[rows] = np.maximum(spread, 0) + kt
        return mean, variance

    def instances(self, X: Array) -> tuple[Array, Array]:
        """P(y_n = 1) and the standard deviation of P(y_n = 1 | f_n) over the posterior of f_n."""
        return self._link.positive_moments(*self.latent(X))

    def bag_probability(self, X: Array, offsets: Array, score: str) -> Array:
        """Probability that a bag is positive; see `bags`."""
        if score == "joint":
            return -np.expm1(np.minimum(self._log_joint_negative(X, offsets, power=1), 0.0))
        return self.bags(X, offsets, score)[0]

    def bags(self, X: Array, offsets: Array, score: str) -> tuple[Array, Array]:
        """Probability that a bag is positive, and its posterior standard deviation.

        ``joint`` integrates over q(v) what all instances of a bag share, ``noisy-or`` takes
        instances as independent [C24, Eq. 34-37], ``max`` is the most probable instance.
        """
        if score == "joint":
            first, second = (self._log_joint_negative(X, offsets, power) for power in (1, 2))
            return _positive_from_logs(first, second)
        if score == "max":
            return self._max_bags(X, offsets)
        return self._noisy_or_bags(X, offsets)

    def _max_bags(self, X: Array, offsets: Array) -> tuple[Array, Array]:
        p, std = self.instances(X)
        top = np.array([a + np.argmax(p[a:b]) for a, b in itertools.pairwise(offsets)])
        return p[top], std[top]

    def _noisy_or_bags(self, X: Array, offsets: Array) -> tuple[Array, Array]:
        first, second = self._link.negative_moments(*self.latent(X))
        with np.errstate(divide="ignore"):
            log_first = np.add.reduceat(np.log(first), offsets[:-1])
            log_second = np.add.reduceat(np.log(second), offsets[:-1])
        return _positive_from_logs(log_first, log_second)

    def _log_joint_negative(self, X: Array, offsets: Array, power: int) -> Array:
        """log E[P(all instances negative | f)^power] for each bag."""
        parts = self._bag_features(X, offsets)
        return np.array([self._joint_bag(mu, kt, G, power) for mu, kt, G in parts])

    def _bag_features(self, X: Array, offsets: Array) -> Iterator[tuple[Array, Array, Array]]:
        """mu (n,), kt (n,) and G (n, M) with Cov(A v) = G G', bag by bag."""
        cuts = bag_cuts(np.asarray(offsets), DEFAULT_CHUNK)
        for first, last in itertools.pairwise(cuts):
            begin = offsets[first]
            A, kt = self._whitener(self.scaled(X[begin : offsets[last]]))
            A, kt = np.asarray(A, dtype=np.float64), np.asarray(kt, dtype=np.float64)
            mu, G = self.c0 + A @ self.m, A @ self._S_root
            for b in range(first, last):
                rows = slice(offsets[b] - begin, offsets[b + 1] - begin)
                yield mu[rows], kt[rows], G[rows]

    def _joint_bag(self, mu: Array, kt: Array, G: Array, power: int) -> float:
        """log E[prod_n P(y_n = 0 | f_n)^power] over v (Sobol) and the residuals."""
        if len(mu) == 1:
            moments = self._link.negative_moments(mu, kt + np.sum(G**2, axis=1))
            with np.errstate(divide="ignore"):
                return float(np.log(moments[power - 1][0]))
        U = principal_factor(G)[:, :MAX_DIMENSIONS]  # (n, r)
        draws = self._draws[:, : U.shape[1]]  # (1024, r)
        log_product = np.zeros(len(draws))
        for start in range(0, len(mu), ROWS_PER_BLOCK):
            rows = slice(start, start + ROWS_PER_BLOCK)
            f = mu[rows, None] + U[rows] @ draws.T  # (n, 1024)
            with np.errstate(divide="ignore"):
                log_product += np.log(self._link.smoothed_negative(f, kt[rows], power)).sum(axis=0)
        return float(special.logsumexp(log_product) - np.log(len(draws)))

    @cached_property
    def _link(self) -> Link:
        return LINKS[self.link]()

    @cached_property
    def _whitener(self) -> Whitener:
        return whitener(self.kernel, self.Z, self.jitter)

    @cached_property
    def _S_root(self) -> Array:
        """R with R R' = S."""
        values, vectors = np.linalg.eigh(self.S)
        return vectors * np.sqrt(np.maximum(values, 0))

    @cached_property
    def _draws(self) -> Array:
        """Standard normal Sobol points; the number of columns never depends on the bags asked."""
        sobol = qmc.Sobol(min(len(self.m), MAX_DIMENSIONS), scramble=True, seed=self.seed)
        return special.ndtri(np.clip(sobol.random_base2(LOG2_DRAWS), 1e-12, 1 - 1e-12))


def principal_factor(G: Array) -> Array:
    """U with U U' = G G', orthogonal columns by falling length, negligible ones dropped."""
    n, M = G.shape
    if n <= M:
        values, vectors = np.linalg.eigh(G @ G.T)
        U = vectors * np.sqrt(np.maximum(values, 0))
    else:
        U = G @ np.linalg.eigh(G.T @ G)[1]
    lengths = np.einsum("nr,nr->r", U, U)
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 1e-12 * max(lengths.max(), 1e-300)]
    U = U[:, order]
    # The sign of an eigenvector is arbitrary; fixing it keeps predictions reproducible.
    top = np.argmax(np.abs(U), axis=0)
    return U * np.where(U[top, np.arange(U.shape[1])] < 0, -1.0, 1.0)


def _positive_from_logs(log_first: Array, log_second: Array) -> tuple[Array, Array]:
    """1 - P0 and the standard deviation of P0 from the logs of E[P0] and E[P0^2]."""
    variance = np.exp(log_second) - np.exp(2 * log_first)
    return -np.expm1(np.minimum(log_first, 0.0)), np.sqrt(np.maximum(variance, 0))
