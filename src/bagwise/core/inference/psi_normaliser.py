"""log Z of a psi that is not the hyperbolic secant [C24, Eq. 19-20], with its standard error.

Labels then do not sum to 1: sum_y exp((y - 1/2) f) psi(f) = w(f) = 2 cosh(f / 2) psi(f), and

    Z = E_f prod_n w(f_n) = E_v prod_n E[w(f_n) | v],   f_n = c0 + a_n'v + r_n,

over the prior. The inner mean is a quadrature over r_n, the outer one is taken over scrambled
Sobol points. Independent scramblings tell how far the estimate can be trusted, unless Z lies
where no draw comes: where psi falls more slowly than exp(-|f| / 2), w grows, and all instances
together outweigh the prior at large |f|. `far_mass` looks there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from bagwise.densities import Density, log_excess

Array = NDArray[Any]

DRAWS = 256  # of each scrambling
SCRAMBLINGS = 8
ROWS = 512  # at once
NODES = 9  # of the quadrature over residuals
COMPARED = 32  # draws that are averaged with more nodes too
FEW = 20.0  # effective draws below which the standard error itself cannot be trusted
REACH = 4.0  # prior standard deviations that draws cover in one direction
NEGLIGIBLE = float(np.log(0.01))  # share of Z that may lie beyond


@dataclass(frozen=True)
class LogNormaliser:
    """An estimate of log Z, its standard error, and what speaks against both."""

    value: float
    standard_error: float  # of the draws, and what the quadrature may be off
    effective_draws: float
    log_far_mass: float  # a lower estimate of log Z from far outside of the draws

    def check(self, largest_error: float) -> None:
        """Raise ValueError where log Z is not known to `largest_error` nats."""
        if self.log_far_mass > self.value + NEGLIGIBLE:
            reason = (
                f"draws of the prior put log Z at {self.value:.1f}, but values of f that they "
                f"never reach put it at {self.log_far_mass:.1f} at least: psi falls more slowly "
                "than exp(-|f|/2), and many instances together outweigh the prior of f"
            )
        elif self.effective_draws < FEW:
            reason = (
                f"the estimate rests on {self.effective_draws:.1f} of {DRAWS * SCRAMBLINGS} draws "
                f"(at least {FEW:g} are needed)"
            )
        elif self.standard_error > largest_error:
            reason = f"its error is {self.standard_error:.2g} nats, not {largest_error:g}"
        else:
            return
        raise ValueError(
            f"log Z of this psi and kernel cannot be estimated: {reason}; use a smaller kernel "
            "variance or a psi with lighter tails, or choose parameters by cross-validation"
        )


def log_normaliser(
    density: Density, A: Array, kt: Array, c0: float, seed: int, counts: Array | None = None
) -> LogNormaliser:
    """Estimate log Z over instances with features A and kt; one seed gives the same draws.

    `counts` say how many times each instance is there; None is once.

    >>> from bagwise.densities import Gamma, HyperbolicSecant
    >>> A, kt = np.array([[0.5, 0.1], [0.1, 0.5]]), np.array([0.2, 0.2])
    >>> log_normaliser(HyperbolicSecant(), A, kt, 0.0, seed=0).value
    0.0
    >>> estimate = log_normaliser(Gamma(1.0, 4.0), A, kt, 0.0, seed=0)
    >>> estimate.standard_error < 0.001
    True
    """
    counts = np.ones(len(A)) if counts is None else counts
    V = prior_draws(A.shape[1], seed)  # (M, draws)
    log_w = log_excess_of_draws(density, A, kt, c0, V, counts)
    parts = special.logsumexp(log_w.reshape(SCRAMBLINGS, DRAWS), axis=1) - np.log(DRAWS)
    value = float(special.logsumexp(parts) - np.log(SCRAMBLINGS))
    share = special.softmax(log_w)
    # Delta method: the error of a mean, relative to the mean.
    error = float(np.std(np.exp(parts - value), ddof=1) / np.sqrt(SCRAMBLINGS))
    error += quadrature_error(density, A, kt, c0, V, counts)
    return LogNormaliser(
        value, error, float(1 / np.sum(share**2)), far_mass(density, A, c0, counts)
    )


def quadrature_error(
    density: Density, A: Array, kt: Array, c0: float, V: Array, counts: Array
) -> float:
    """How far log Z moves with four times the nodes: much where psi has a kink."""
    some = V[:, :COMPARED]
    coarse, fine = (
        log_excess_of_draws(density, A, kt, c0, some, counts, k * NODES) for k in (1, 4)
    )
    return float(np.max(np.abs(fine - coarse)))


def prior_draws(n_inducing: int, seed: int) -> Array:
    """(M, draws) points of N(0, I): independent scramblings of a Sobol sequence, one by one."""
    engines = (
        stats.qmc.Sobol(n_inducing, rng=np.random.default_rng((seed, k)))
        for k in range(SCRAMBLINGS)
    )
    U = np.concatenate([engine.random(DRAWS) for engine in engines])
    return np.asarray(special.ndtri(np.clip(U, 1e-12, 1 - 1e-12)).T)


def log_excess_of_draws(
    density: Density, A: Array, kt: Array, c0: float, V: Array, counts: Array, n_nodes: int = NODES
) -> Array:
    """sum_n c_n log E[w(f_n) | v] for each draw of v, shape (draws,)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    log_weights = np.log(weights / weights.sum())
    totals = np.zeros(V.shape[1])
    for start in range(0, len(A), ROWS):
        rows = slice(start, start + ROWS)
        mean = c0 + A[rows] @ V  # (n, draws)
        spread = np.sqrt(kt[rows])[:, None]
        total = np.full(mean.shape, -np.inf)
        for x, log_weight in zip(nodes, log_weights, strict=True):
            total = np.logaddexp(total, log_weight + log_excess(density, mean + spread * x))
        totals += counts[rows] @ total
    return totals


def far_mass(density: Density, A: Array, c0: float, counts: Array) -> float:
    """Largest log of (integrand x volume) along the direction in which all instances agree.

    Far out w is log-convex, so that the volume around a point is no smaller than the prior's:
    the integrand itself is a lower estimate. A psi whose w falls has none (-inf).
    """
    pull = counts @ A
    length = float(np.linalg.norm(pull))
    if length == 0:
        return -np.inf
    step = A @ (pull / length)  # change of f_n per prior standard deviation
    best = -np.inf
    for t in np.geomspace(REACH, max(length, 2 * REACH), 60):
        for sign in (-1.0, 1.0):
            f = c0 + sign * t * step
            growing = log_excess(density, 1.01 * f) > log_excess(density, f)
            if counts @ growing > 0.5 * counts.sum():
                best = max(best, float(counts @ log_excess(density, f) - 0.5 * t**2))
    return best
