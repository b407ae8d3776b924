"""Predictions from a posterior of v that is a mixture of Gaussians: the outcome of sampling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.label_posterior import BagDraws
from bagwise.posterior import (
    MAX_DIMENSIONS,
    Posterior,
    noisy_or,
    positive_from_logs,
    principal_factor,
)

Array = NDArray[Any]

GROUPS = 128  # of nearby components, in predictions of single instances
ROWS_PER_BLOCK = 512


@dataclass(frozen=True)
class GibbsPosterior(Posterior):
    """Posterior of v as the even mixture of N(means_s, S), where m is the mean of `means`.

    Gibbs sampling of MIL-GP-Probit gives means_s = E[v | m_s] (Rao-Blackwell): predictions
    average probabilities over components instead of counting sampled labels [W21, 3.5].
    """

    means: Array  # (n_samples, M)

    def __post_init__(self) -> None:
        super().__post_init__()
        means = np.asarray(self.means)
        if means.ndim != 2 or means.shape[1] != len(self.m) or not len(means):
            raise ValueError(
                f"posterior: means must have shape (n_samples, {len(self.m)}), got {means.shape}"
            )
        if means.dtype.kind != "f" or not np.all(np.isfinite(means)):
            raise ValueError("posterior: means must be finite numbers")

    def latent(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of f_n: c0 + a_n'm and a_n'(S + Cov_s(means_s))a_n + kt_n."""
        mean, variance = np.empty(len(X)), np.empty(len(X))
        total = self.S + self._spread
        for rows, A, kt in self._features(X):
            mean[rows] = self.c0 + A @ self.m
            variance[rows] = np.maximum(np.einsum("nm,nm->n", A @ total, A), 0) + kt
        return mean, variance

    def instances(self, X: Array) -> tuple[Array, Array]:
        """P(y_n = 1) and the standard deviation of P(y_n = 1 | f_n) over the posterior of f_n.

        Averages Phi((c0 + a'means_s)/sqrt(1 + kt + a'Sa)) over s.
        """
        # Moments of the rarer label keep their relative accuracy.
        first, second, flipped = self._moments(X, rarer=True)
        std = np.sqrt(np.maximum(second - first**2, 0))
        return np.where(flipped, first, 1 - first), std

    def _noisy_or_bags(self, X: Array, offsets: Array) -> tuple[Array, Array]:
        first, second, _ = self._moments(X, rarer=False)
        return noisy_or(first, second, offsets)

    def _moments(self, X: Array, rarer: bool) -> tuple[Array, Array, Array]:
        """E[P(y = 0 | f)] and E[P(y = 0 | f)^2], of y = 1 where `rarer` flips it, and where."""
        first, second = np.empty(len(X)), np.empty(len(X))
        flipped = np.zeros(len(X), dtype=bool)
        for rows, A, kt in self._features(X):
            mu = self.c0 + A @ self.means.T  # (n, n_samples)
            within = np.maximum(np.einsum("nm,nm->n", A @ self.S, A), 0) + kt
            flipped[rows] = rarer & (mu.mean(axis=1) < 0)
            mean, variance, weights = grouped(np.where(flipped[rows, None], -mu, mu))
            moments = self.link_function.negative_moments(mean, variance + within[:, None])
            first[rows], second[rows] = (x @ weights for x in moments)
        return first, second, flipped

    def _features(self, X: Array) -> Iterator[tuple[slice, Array, Array]]:
        """Rows, A (n, M) and kt (n,), block by block."""
        for start in range(0, len(X), ROWS_PER_BLOCK):
            rows = slice(start, min(start + ROWS_PER_BLOCK, len(X)))
            A, kt = self._whitener(self.scaled(X[rows]))
            yield rows, A, kt

    def bag_draws(self, X: Array, offsets: Array) -> Iterator[BagDraws]:
        """Draws of the latent values of each bag, over components and within them."""
        means, draws = self._mixture_draws
        for A, kt, bags in self._bag_chunks(X, offsets):
            for rows in bags:
                U = principal_factor(A[rows] @ self._S_root)
                rest = np.sum(U[:, MAX_DIMENSIONS:] ** 2, axis=1)  # not sampled jointly
                U = U[:, :MAX_DIMENSIONS]
                yield BagDraws(
                    self.link_function,
                    np.full(len(U), self.c0),
                    np.hstack([A[rows], U]),
                    np.hstack([means, draws[:, : U.shape[1]]]),
                    kt[rows] + rest,
                )

    def _joint_bags(self, X: Array, offsets: Array) -> tuple[Array, Array]:
        chunks = self._bag_chunks(X, offsets)
        logs = [self._joint_mixture_bag(A[r], kt[r]) for A, kt, bags in chunks for r in bags]
        log_first, log_second = np.array(logs).T
        return positive_from_logs(log_first, log_second)

    def _joint_mixture_bag(self, A: Array, kt: Array) -> tuple[float, float]:
        """Logs of E[P0] and E[P0^2], P0 = prod_n P(y_n = 0 | f_n).

        Averages run over components, over v within them (Sobol) and over residuals.
        """
        G = A @ self._S_root  # (n, M)
        if len(A) == 1:
            mean, variance, weights = grouped(self.c0 + A @ self.means.T)
            both = self.link_function.negative_moments(mean, variance + kt + np.sum(G**2))
            with np.errstate(divide="ignore"):
                first, second = (float(np.log(x[0] @ weights)) for x in both)
            return first, second
        U = principal_factor(G)
        kt = kt + np.sum(U[:, MAX_DIMENSIONS:] ** 2, axis=1)  # what is not sampled jointly
        means, draws = self._mixture_draws
        draws = draws[:, : U.shape[1]]  # (draws, r)
        logs = np.zeros((2, len(draws)))
        for start in range(0, len(A), ROWS_PER_BLOCK):
            rows = slice(start, start + ROWS_PER_BLOCK)
            f = self.c0 + A[rows] @ means.T + U[rows, :MAX_DIMENSIONS] @ draws.T
            with np.errstate(divide="ignore"):
                logs += np.log(self.link_function.smoothed_negative(f, kt[rows])).sum(axis=1)
        first, second = special.logsumexp(logs, axis=1) - np.log(len(draws))
        return float(first), float(second)

    @cached_property
    def _mixture_draws(self) -> tuple[Array, Array]:
        """Component means and standard normal Sobol points of v_s = means_s + S_root eps.

        Every point occurs equally often, and every component as nearly so as the numbers allow.
        """
        n, per_cycle = len(self.means), len(self._draws)
        cycles = -(-n // per_cycle)
        total = cycles * per_cycle
        return self.means[np.arange(total) * n // total], np.tile(self._draws, (cycles, 1))

    @cached_property
    def _spread(self) -> Array:
        """Covariance of the component means, (M, M)."""
        centred = self.means - self.means.mean(axis=0)
        return (centred.T @ centred) / len(centred)


def grouped(x: Array, groups: int = GROUPS) -> tuple[Array, Array, Array]:
    """Sort each row of x (n, s) into groups; their means and variances (n, g), weights (g,).

    A smooth function averaged over narrow Gaussians with these moments is its average over x
    to many digits (the error is of third order in the width of a group), at a fraction of the
    cost.

    >>> mean, variance, weights = grouped(np.array([[3.0, 0.0, 1.0, 3.0]]), groups=2)
    >>> mean, variance, weights
    (array([[0.5, 3. ]]), array([[0.25, 0.  ]]), array([0.5, 0.5]))
    """
    n_samples = x.shape[1]
    if n_samples < 2 * groups:
        return x, np.zeros((1, 1)), np.full(n_samples, 1 / n_samples)
    starts = np.arange(groups) * n_samples // groups
    sizes = np.diff(np.append(starts, n_samples))
    x = np.sort(x, axis=1)
    mean = np.add.reduceat(x, starts, axis=1) / sizes
    centred = x - np.repeat(mean, sizes, axis=1)
    return mean, np.add.reduceat(centred**2, starts, axis=1) / sizes, sizes / n_samples
