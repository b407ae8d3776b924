"""log Z of a psi that is not the hyperbolic secant [C24, Eq. 19-20], with its standard error.

Labels then do not sum to 1: sum_y exp((y - 1/2) f) psi(f) = w(f) = 2 cosh(f / 2) psi(f), and

    Z = E_f prod_n w(f_n) = E_v prod_n E[w(f_n) | v],   f_n = c0 + a_n'v + r_n,

over the prior. The inner mean is a quadrature over r_n, the outer one is taken over scrambled
Sobol points. Independent scramblings tell how far the estimate can be trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from bagwise.densities import Density, log_excess
from bagwise.execution import Sweeper
from bagwise.sites import Chunk

Array = NDArray[Any]

DRAWS = 256  # of each scrambling
SCRAMBLINGS = 8
NODES = 9  # of the quadrature over residuals
FEW = 20.0  # effective draws below which the standard error itself cannot be trusted


@dataclass(frozen=True)
class LogNormaliser:
    """An estimate of log Z with its standard error and the number of draws that carry it."""

    value: float
    standard_error: float
    effective_draws: float

    def problem(self, largest_error: float) -> str | None:
        """Why the estimate cannot be used, or None."""
        if self.effective_draws < FEW:
            return (
                f"log Z rests on {self.effective_draws:.1f} of {DRAWS * SCRAMBLINGS} draws (at "
                f"least {FEW:g} are needed), so that neither it nor its standard error is known"
            )
        if self.standard_error > largest_error:
            return (
                f"log Z is known to {self.standard_error:.2g} nats only (at most {largest_error:g} "
                "are allowed)"
            )
        return None


def log_normaliser(density: Density, sweeper: Sweeper, c0: float, seed: int) -> LogNormaliser:
    """Estimate log Z over the instances of `sweeper`; the same seed gives the same draws.

    >>> import bagwise as bw
    >>> from bagwise.execution import Sweeper, TrainingData
    >>> from bagwise.features import whitener
    >>> X = np.linspace(0, 1, 6)[:, None]
    >>> data = TrainingData(X, np.array([0, 3, 6]), np.array([True, False]))
    >>> sweeper = Sweeper(data, whitener(bw.kernels.RBF(0.5, 1.0), X[::2], 1e-6))
    >>> log_normaliser(bw.densities.HyperbolicSecant(), sweeper, 0.0, seed=0).value
    0.0
    >>> estimate = log_normaliser(bw.densities.Gamma(1.0, 4.0), sweeper, 0.0, seed=0)
    >>> estimate.standard_error < 0.001
    True
    """
    V = prior_draws(len(sweeper.whitener.Z), seed)  # (M, draws)
    log_w = sweeper.total(partial(log_excess_of_draws, V=V, c0=c0, density=density))
    parts = special.logsumexp(log_w.reshape(SCRAMBLINGS, DRAWS), axis=1) - np.log(DRAWS)
    value = float(special.logsumexp(parts) - np.log(SCRAMBLINGS))
    share = special.softmax(log_w)
    # Delta method: the error of a mean, relative to the mean.
    error = float(np.std(np.exp(parts - value), ddof=1) / np.sqrt(SCRAMBLINGS))
    return LogNormaliser(value + 0.0, error, float(1 / np.sum(share**2)))


def prior_draws(n_inducing: int, seed: int) -> Array:
    """(M, draws) points of N(0, I): independent scramblings of a Sobol sequence, one by one."""
    # A Sobol sequence has no more than 21201 dimensions; inducing points are far fewer.
    engines = (stats.qmc.Sobol(n_inducing, rng=(seed, k)) for k in range(SCRAMBLINGS))
    U = np.concatenate([engine.random(DRAWS) for engine in engines])
    return special.ndtri(np.clip(U, 1e-12, 1 - 1e-12)).T


def log_excess_of_draws(chunk: Chunk, V: Array, c0: float, density: Density) -> Array:
    """sum_n log E[w(f_n) | v] for each draw of v, shape (draws,)."""
    mean = c0 + np.asarray(chunk.A, dtype=np.float64) @ V  # (n, draws)
    spread = np.sqrt(np.asarray(chunk.kt, dtype=np.float64))[:, None]
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    log_weights = np.log(weights / weights.sum())
    total = np.full(mean.shape, -np.inf)
    for x, log_weight in zip(nodes, log_weights, strict=True):
        total = np.logaddexp(total, log_weight + log_excess(density, mean + spread * x))
    return np.asarray(total.sum(axis=0))
