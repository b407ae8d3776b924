"""Links between a latent value and a binary label, and their averages over Gaussians."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[Any]

SQRT_HALF = 0.7071067811865476
LOG_SQRT_2PI = 0.9189385332046727
HERMITE_NODES = ((1e-4, 1), (0.3, 5), (1.0, 11), (2.0, 25))  # enough up to that width
SQRT_2_OVER_PI = 0.7978845608028654


class Link(ABC):
    """P(y = 1 | z) of a symmetric link, through l(z) = log P(y = 0 | z).

    The hazard is r = -l' > 0; kappa = l''/l' and chi = l'''/l' complete the derivatives.
    """

    residual_weight: float  # a residual variance kt divides z by sqrt(1 + residual_weight * kt)

    @abstractmethod
    def log_negative(self, z: Array) -> Array:
        """l(z) = log P(y = 0 | z)."""

    @abstractmethod
    def negative(self, z: Array) -> Array:
        """P(y = 0 | z)."""

    @abstractmethod
    def log_minus_log_negative(self, z: Array) -> Array:
        """log(-l(z)), finite where l(z) itself underflows to zero."""

    @abstractmethod
    def log_hazard(self, z: Array) -> Array:
        """log r(z)."""

    @abstractmethod
    def ratios(self, z: Array, r: Array) -> tuple[Array, Array]:
        """kappa and chi at z, given the hazard there."""

    def kappa(self, z: Array) -> Array:
        """l''(z) / l'(z) >= 0."""
        return self.ratios(z, self.hazard(z))[0]

    def chi(self, z: Array) -> Array:
        """l'''(z) / l'(z)."""
        return self.ratios(z, self.hazard(z))[1]

    @abstractmethod
    def negative_moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """E[P(y = 0 | f)] and E[P(y = 0 | f)^2] for f ~ N(mean, variance), broadcast."""

    def hazard(self, z: Array) -> Array:
        """r(z) = -l'(z)."""
        return np.exp(self.log_hazard(z))

    def smoothed_negative(self, f: Array, kt: Array) -> tuple[Array, Array]:
        """E[P(y = 0 | f + r)] and E of its square, r ~ N(0, kt): f (n, draws), one kt per row."""
        sd = np.sqrt(kt)[:, None]
        first, second = np.zeros(f.shape), np.zeros(f.shape)
        wide = sd[:, 0] >= HERMITE_NODES[-1][0]
        if np.any(wide):
            first[wide], second[wide] = self.widely_smoothed(f[wide], kt[wide, None])
            first[~wide], second[~wide] = self.smoothed_negative(f[~wide], kt[~wide])
            return first, second
        widest = float(np.max(sd, initial=0.0))
        n = next((n for width, n in HERMITE_NODES if widest < width), HERMITE_NODES[-1][1])
        nodes, weights = np.polynomial.hermite_e.hermegauss(n)
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            p = self.negative(f + sd * node)
            first += weight * p
            second += weight * p**2
        return first, second

    def widely_smoothed(self, f: Array, kt: Array) -> tuple[Array, Array]:
        """The same for broad residuals, as precisely as averages over draws of f need it."""
        return self.negative_moments(f, kt)

    def log_smoothed(self, f: Array, kt: Array) -> tuple[Array, Array]:
        """Logs of E[P(y = 1 | f + r)] and E[P(y = 0 | f + r)]: f (n, draws), one kt per row."""
        p, q = (self.smoothed_negative(sign * f, kt)[0] for sign in (-1.0, 1.0))
        low, high = p < 0.5, q < 0.5
        rare = np.where(low, p, q)
        # Below the smallest float only the exponential tail of the sigmoid is left.
        tail = -np.abs(f) + 0.5 * kt[:, None]
        log_rare = np.where(rare > 0, np.log(np.where(rare > 0, rare, 1.0)), tail)
        log_often = np.log1p(-rare)
        return np.where(low, log_rare, log_often), np.where(high, log_rare, log_often)

    def positive_moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """E[P(y = 1 | f)] and the standard deviation of P(y | f)."""
        # Moments of the rarer label keep their relative accuracy.
        rare, square = self.negative_moments(np.abs(mean), variance)
        std = np.sqrt(np.maximum(square - rare**2, 0))
        return np.where(mean < 0, rare, 1 - rare), std


class Logistic(Link):
    """P(y = 1 | z) = 1 / (1 + exp(-z)) [V17, Eq. 6]."""

    residual_weight = float(np.pi / 8)  # MacKay's scaling of a Gaussian-smoothed sigmoid

    def log_negative(self, z: Array) -> Array:
        return special.log_expit(-z)

    def negative(self, z: Array) -> Array:
        return special.expit(-z)

    def log_minus_log_negative(self, z: Array) -> Array:
        low = z < -30
        softplus = -special.log_expit(-np.where(low, 0, z))
        return np.where(low, z - 0.5 * np.exp(np.minimum(z, 0)), np.log(softplus))

    def log_hazard(self, z: Array) -> Array:
        return special.log_expit(z)

    def ratios(self, z: Array, r: Array) -> tuple[Array, Array]:
        negative = special.expit(-z)
        return negative, -negative * np.tanh(0.5 * z)  # 2 P(y = 0) - 1 cancels near z = 0

    def negative_moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        mean, variance = np.broadcast_arrays(mean, variance)
        wide = variance > 2.25
        first, second = _narrow_moments(mean, np.sqrt(np.where(wide, 0, variance)))
        if not np.any(wide):
            return first, second
        first[wide], second[wide] = _wide_moments(mean[wide], np.sqrt(variance[wide]))
        return first, second

    def widely_smoothed(self, f: Array, kt: Array) -> tuple[Array, Array]:
        return _wide_moments(f, np.sqrt(kt), step=1.2, reach=24.0)


class Probit(Link):
    """P(y = 1 | z) = Phi(z) [W21, Eq. 7]."""

    residual_weight = 1.0

    def log_negative(self, z: Array) -> Array:
        return special.log_ndtr(-z)

    def negative(self, z: Array) -> Array:
        return special.ndtr(-z)

    def log_minus_log_negative(self, z: Array) -> Array:
        low = z < -5
        x = special.ndtr(np.minimum(z, -5))
        middle = np.log(-special.log_ndtr(-np.where(low, 0, z)))
        return np.where(low, special.log_ndtr(z) + np.log1p(x / 2), middle)

    def log_hazard(self, z: Array) -> Array:
        # erfcx keeps r - z accurate for large z; it overflows for z << 0, where Phi(-z) = 1.
        low = z < -30
        erfcx = special.erfcx(SQRT_HALF * np.where(low, 0, z))
        return np.where(low, -0.5 * z**2 - LOG_SQRT_2PI, np.log(SQRT_2_OVER_PI / erfcx))

    def ratios(self, z: Array, r: Array) -> tuple[Array, Array]:
        kappa = np.asarray(r - z)
        chi = np.asarray(kappa**2 + r * kappa - 1)
        high = np.asarray(z > 5)  # where both differences cancel
        if np.any(high):
            kappa[high], chi[high] = _tail_ratios(z[high])
        return kappa, chi

    def log_smoothed(self, f: Array, kt: Array) -> tuple[Array, Array]:
        """log Phi(+-f / sqrt(1 + kt))."""
        z = f / np.sqrt(1 + kt)[:, None]
        return special.log_ndtr(z), special.log_ndtr(-z)

    def negative_moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Phi(z) and Phi(z) - 2 T(z, 1 / sqrt(1 + 2 variance)), z = -mean / sqrt(1 + variance)."""
        z = -mean / np.sqrt(1 + variance)  # [W21, 3.4] prints it without the root
        first = special.ndtr(z)
        second = first - 2 * special.owens_t(z, 1 / np.sqrt(1 + 2 * variance))
        # E[p]^2 <= E[p^2] <= E[p] holds exactly; far in the tail the difference above rounds.
        return first, np.clip(second, first**2, first)


def _tail_ratios(z: Array) -> tuple[Array, Array]:
    """kappa and chi of the probit link for z >= 5, without differences of nearly equal numbers.

    Laplace's continued fraction of the hazard is r = z + c_1 with c_n = n / (z + c_{n+1}). Hence
    kappa = c_1, and chi = 2 kappa^2 + z kappa - 1 = c_1^2 c_2 (c_3 - c_2).
    """
    c_4 = np.zeros_like(z)
    for n in range(20, 3, -1):
        c_4 = n / (z + c_4)
    c_3 = 3 / (z + c_4)
    c_2 = 2 / (z + c_3)
    c_1 = 1 / (z + c_2)
    return c_1, c_1**2 * c_2 * (c_3 - c_2)


def _narrow_moments(mean: Array, sd: Array) -> tuple[Array, Array]:
    """Logistic moments by Gauss-Hermite over f, for sd <= 1.5 (error below 1e-8)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(32 if np.any(sd > 0) else 1)
    first, second = np.zeros(mean.shape), np.zeros(mean.shape)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        p = special.expit(-(mean + sd * node))
        first += weight * p
        second += weight * p**2
    return first, second


def _wide_moments(
    mean: Array, sd: Array, step: float = 0.75, reach: float = 36.0
) -> tuple[Array, Array]:
    """Logistic moments for a wide Gaussian, where f varies faster than the sigmoid.

    With logistic noise e, sigmoid(-f) = P(e < -f), so E[sigmoid(-f)] = E_e[Phi((-mean - e) / sd)],
    and sigmoid^2 = sigmoid - density: both are smooth in e and summed by the trapezoid rule, with
    errors of about 8 pi^2 / step exp(-2 pi^2 / step) and exp(-reach). Its weights sum to one, so
    that what is certain stays certain, however many instances a bag has.
    """
    first, density = np.zeros(mean.shape), np.zeros(mean.shape)
    n = round(reach / step)
    nodes = step * np.arange(-n, n + 1)
    weights = special.expit(nodes) * special.expit(-nodes)
    for e, weight in zip(nodes, weights / weights.sum(), strict=True):
        x = (-mean - e) / sd
        first += weight * special.ndtr(x)
        density += weight * np.exp(-0.5 * x**2 - LOG_SQRT_2PI) / sd
    return first, np.clip(first - density, first**2, first)
