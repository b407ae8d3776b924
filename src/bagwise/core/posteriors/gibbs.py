"""Predictions from a posterior of v that is a mixture of Gaussians: the outcome of sampling."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.links import Moments, log_expm1
from bagwise.core.posteriors.feature_posterior import LatentMoments
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.posteriors.points import Draws, standard_normal

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

    def instance_moments(self, A: Array, kt: Array, latent: LatentMoments) -> Moments:
        """P(y_n) averaged over the posterior of f_n, a mixture too.

        Averages Phi((c0 + a'means_s)/sqrt(1 + kt + a'Sa)) over s.
        """
        parts = []
        for start in range(0, len(kt), ROWS_PER_BLOCK):
            rows = slice(start, start + ROWS_PER_BLOCK)
            mu = self.c0 + A[rows] @ self.means.T  # (n, n_samples)
            within = np.maximum(np.einsum("nm,nm->n", A[rows] @ self.S, A[rows]), 0) + kt[rows]
            mean, variance, weights = grouped(mu)
            own = self.link_function.moments(mean, variance + within[:, None])
            parts.append(averaged(own, weights))
        return Moments(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def draws(self, n: int) -> Draws:
        """n Sobol points of v_s = means_s + S_root e; components are the first direction.

        Every component occurs as nearly equally often as the numbers allow.
        """
        if n not in self._draw_cache:
            e, residual = standard_normal(n, len(self.m) + 1, self.seed)
            component = (special.ndtr(e[:, 0]) * len(self.means)).astype(np.int64)
            centre = self.means[np.minimum(component, len(self.means) - 1)] - self.m
            normal = e[:, 1:]
            self._draw_cache[n] = Draws(normal, residual, self._S_root, centre)
        return self._draw_cache[n]

    @property
    def propagates(self) -> bool:
        """No: f is a mixture of Gaussians."""
        return False

    @property
    def _covariance(self) -> Array:
        return self.S + self._spread

    @cached_property
    def _spread(self) -> Array:
        """Covariance of the component means, (M, M)."""
        centred = self.means - self.means.mean(axis=0)
        return (centred.T @ centred) / len(centred)


def averaged(parts: Moments, weights: Array) -> Moments:
    """Moments of mixtures from those of their components, (n, g), and the weights (g,) of these."""
    log_weights = np.log(weights)
    negative = special.logsumexp(parts.log_negative + log_weights, axis=1)
    positive = special.logsumexp(parts.log_positive + log_weights, axis=1)
    # Var = E[Var_g] + Var[E_g], the latter from the rarer label, which keeps its digits.
    rare = negative < positive
    own = np.where(rare[:, None], parts.log_negative, parts.log_positive)
    total = np.where(rare, negative, positive)
    between = np.expm1(own - total[:, None]) ** 2 * np.exp(2 * (total - negative))[:, None]
    size = 2 * (parts.log_negative - negative[:, None])
    with np.errstate(over="ignore"):  # where it overflows, the other is taken
        spread = (np.exp(size + log_expm1(parts.log_ratio)) + between) @ weights
    second = special.logsumexp(size + parts.log_ratio + log_weights, axis=1)  # never overflows
    return Moments(negative, positive, np.where(second > 1, second, np.log1p(spread)))


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
