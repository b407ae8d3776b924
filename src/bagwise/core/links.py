"""Links between a latent value and a binary label, and their averages over Gaussians."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.smoothing import (
    LOG_SQRT_2PI,
    TRAPEZOID_WIDTHS,
    WIDEST,
    legendre,
    log_sigmoids,
    logistic_logs,
    rare_logistic,
    smoothed_logistic,
    smoothing_rules,
    tilted_logistic,
    wide_logistic,
)

Array = NDArray[Any]

SQRT_HALF = 0.7071067811865476
SQRT_2_OVER_PI = 0.7978845608028654
FEW_ANGLES, SOME_ANGLES, MANY_ANGLES = 6, 10, 24
LINKS: dict[str, type[Link]] = {}  # by name; classes add themselves when they are defined


class Moments(NamedTuple):
    """P(y | f) averaged over a Gaussian f, in logs, so that no digit of a rare label is lost."""

    log_negative: Array  # log E[P(y = 0 | f)]
    log_positive: Array  # log E[P(y = 1 | f)]
    log_ratio: Array  # log E[P(y = 0 | f)^2] - 2 log E[P(y = 0 | f)] >= 0

    @property
    def std(self) -> Array:
        """Standard deviation of P(y | f): sqrt(E[P^2] - E[P]^2)."""
        # In logs, since the ratio of a rare event's moments overflows.
        spread = np.exp(self.log_negative + 0.5 * log_expm1(self.log_ratio))
        return np.where(self.log_ratio <= 0, 0.0, spread)


class Tilt(NamedTuple):
    """log E[P(y = 0 | f)^k], f ~ N(mean, variance), and its derivatives in the mean."""

    log_mass: Array
    slope: Array
    curvature: Array  # minus the second derivative
    third: Array
    fourth: Array  # 0 where it was not asked for

    def where(self, own: Array) -> Tilt:
        """Nothing where there is no instance."""
        return Tilt(*(np.where(own, x, 0.0) for x in self))


def log_expm1(x: Array) -> Array:
    """log(exp(x) - 1), x >= 0, without overflow; about -708 at 0.

    >>> log_expm1(np.array([0.5, 1.0, 100.0])).round(3)
    array([ -0.433,   0.541, 100.   ])
    """
    safe = np.maximum(x, np.finfo(np.float64).tiny)
    return np.where(safe > 30, safe, np.log(np.expm1(np.minimum(safe, 30))))


class Link(ABC):
    """P(y = 1 | z) of a symmetric link, P(y = 0 | z) = P(y = 1 | -z), by l(z) = log P(y = 0 | z).

    The hazard is r = -l' > 0; kappa = l''/l' and chi = l'''/l' complete the derivatives. A link has
    a `name`, a `residual_weight` and the six methods below that are abstract: four of them for
    fits, `moments` and `log_smoothed` for predictions. It takes no arguments.
    """

    name: str  # by which model files know it
    residual_weight: float  # a residual variance kt divides z by sqrt(1 + residual_weight * kt)
    propagates = False  # whether it has `tilted` averages; else bags are averages over draws

    def __init_subclass__(cls) -> None:
        known = LINKS.setdefault(cls.name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{known!r} is the link {cls.name!r} of model files; choose a new name")
        LINKS[cls.name] = cls
        # Those of a parent are of another link.
        if "tilted" not in vars(cls):
            cls.propagates = False
        if "log_cost_and_hazard" not in vars(cls):
            cls.log_cost_and_hazard = Link.log_cost_and_hazard  # type: ignore[method-assign]

    @abstractmethod
    def log_negative(self, z: Array) -> Array:
        """l(z) = log P(y = 0 | z)."""

    @abstractmethod
    def log_minus_log_negative(self, z: Array) -> Array:
        """log(-l(z)), finite where l(z) itself underflows to zero."""

    @abstractmethod
    def log_hazard(self, z: Array) -> Array:
        """log r(z)."""

    @abstractmethod
    def ratios(self, z: Array, r: Array) -> tuple[Array, Array]:
        """kappa and chi at z, given the hazard there."""

    def log_cost_and_hazard(self, z: Array) -> tuple[Array, Array]:
        """log(-l(z)) and log r(z): links that compute them of the same say so here."""
        return self.log_minus_log_negative(z), self.log_hazard(z)

    def kappa(self, z: Array) -> Array:
        """l''(z) / l'(z) >= 0."""
        return self.ratios(z, self.hazard(z))[0]

    def chi(self, z: Array) -> Array:
        """l'''(z) / l'(z)."""
        return self.ratios(z, self.hazard(z))[1]

    @abstractmethod
    def moments(self, mean: Array, variance: Array) -> Moments:
        """Averages of P(y | f) over f ~ N(mean, variance), broadcast."""

    @abstractmethod
    def log_smoothed(self, f: Array, kt: Array, *, second: bool) -> tuple[Array, Array | None]:
        """log E[P(y = 0 | f + r)] for r ~ N(0, kt), f (n, draws) and one kt per row.

        With `second`, also log E[P^2] - 2 log E[P]. In the dtype of f, as precisely as averages
        over draws of f need it.
        """

    def tilted(self, mean: Array, variance: Array, power: int) -> Tilt:
        """What expectation propagation asks for, power 1 or 2; NaN where it is not known."""
        raise NotImplementedError(f"{type(self).__name__} has no tilted averages")

    def hazard(self, z: Array) -> Array:
        """r(z) = -l'(z)."""
        return np.exp(self.log_hazard(z))


class Logistic(Link):
    """P(y = 1 | z) = 1 / (1 + exp(-z)) [V17, Eq. 6]."""

    name = "logistic"
    propagates = True
    residual_weight = float(np.pi / 8)  # MacKay's scaling of a Gaussian-smoothed sigmoid

    def log_negative(self, z: Array) -> Array:
        return log_sigmoids(z)[1]

    def log_minus_log_negative(self, z: Array) -> Array:
        return logistic_logs(z)[0]

    def log_hazard(self, z: Array) -> Array:
        return log_sigmoids(z)[0]

    def log_cost_and_hazard(self, z: Array) -> tuple[Array, Array]:
        return logistic_logs(z)

    def ratios(self, z: Array, r: Array) -> tuple[Array, Array]:
        negative = special.expit(-z)
        return negative, -negative * np.tanh(0.5 * z)  # 2 P(y = 0) - 1 cancels near z = 0

    def moments(self, mean: Array, variance: Array) -> Moments:
        mean, variance = np.broadcast_arrays(np.asarray(mean, float), np.asarray(variance, float))
        rare, relative = np.empty(mean.shape), np.empty(mean.shape)  # logs, of the rarer label
        distance, sd = np.abs(mean), np.sqrt(variance)
        left = np.ones(mean.shape, dtype=bool)
        for width in TRAPEZOID_WIDTHS:
            own = left & (sd <= width)
            rare[own], relative[own] = rare_logistic(distance[own], sd[own], width)
            left &= ~own
        rare[left], relative[left] = wide_logistic(distance[left], sd[left])
        common = np.log1p(-np.exp(rare))
        flip = mean <= 0  # the rarer label is the positive one
        relative = np.where(flip, relative + 2 * (rare - common), relative)
        ratio = np.logaddexp(0, relative)
        return Moments(np.where(flip, common, rare), np.where(flip, rare, common), ratio)

    def tilted(self, mean: Array, variance: Array, power: int) -> Tilt:
        return Tilt(*tilted_logistic(mean, variance, power))

    def log_smoothed(self, f: Array, kt: Array, *, second: bool) -> tuple[Array, Array | None]:
        sd = np.sqrt(kt)
        first, ratio = np.empty(f.shape, f.dtype), np.empty(f.shape, f.dtype) if second else None
        for rows, nodes, weights in smoothing_rules(sd):
            # Beyond exp(88) float32 has no numbers.
            x = f[rows] if nodes[-1] * np.max(sd[rows]) < 80 else f[rows].astype(np.float64)
            c = np.exp(nodes[:, None] * sd[rows]).astype(x.dtype)[:, :, None]
            found = smoothed_logistic(x, c, weights.astype(x.dtype), second)
            first[rows] = found[0]
            if ratio is not None:
                ratio[rows] = found[1]
        if len(wide := np.flatnonzero(sd >= WIDEST)):
            found_wide = self.moments(f[wide], kt[wide][:, None])
            first[wide] = found_wide.log_negative
            if ratio is not None:
                ratio[wide] = found_wide.log_ratio
        return first, ratio


class Probit(Link):
    """P(y = 1 | z) = Phi(z) [W21, Eq. 7]."""

    name = "probit"
    propagates = True
    residual_weight = 1.0

    def log_negative(self, z: Array) -> Array:
        return special.log_ndtr(-z)

    def log_minus_log_negative(self, z: Array) -> Array:
        return _probit_logs(z)[0]

    def log_hazard(self, z: Array) -> Array:
        # erfcx keeps r - z accurate for large z; it overflows for z << 0, where Phi(-z) = 1.
        low = z < -30
        erfcx = special.erfcx(SQRT_HALF * np.where(low, 0, z))
        return np.where(low, -0.5 * z**2 - LOG_SQRT_2PI, np.log(SQRT_2_OVER_PI / erfcx))

    def log_cost_and_hazard(self, z: Array) -> tuple[Array, Array]:
        return _probit_logs(z)

    def ratios(self, z: Array, r: Array) -> tuple[Array, Array]:
        kappa = np.asarray(r - z)
        chi = np.asarray(kappa**2 + r * kappa - 1)
        high = np.asarray(z > 5)  # where both differences cancel
        if np.any(high):
            kappa[high], chi[high] = _tail_ratios(z[high])
        return kappa, chi

    def moments(self, mean: Array, variance: Array) -> Moments:
        z = -mean / np.sqrt(1 + variance)  # [W21, 3.4] prints it without the root
        negative = special.log_ndtr(z)
        ratio = _probit_log_ratio(z, negative, variance / (1 + variance), MANY_ANGLES)
        return Moments(negative, special.log_ndtr(-z), ratio)

    def tilted(self, mean: Array, variance: Array, power: int) -> Tilt:
        if power == 2:
            return _probit_squares_tilted(mean, variance)
        root = np.sqrt(1 + variance)
        z = mean / root
        r = self.hazard(z)
        third, fourth = probit_cumulants(z)
        curvature = r * self.ratios(z, r)[0]
        return Tilt(
            special.log_ndtr(-z), -r / root, curvature / root**2, third / root**3, fourth / root**4
        )

    def log_smoothed(self, f: Array, kt: Array, *, second: bool) -> tuple[Array, Array | None]:
        z = f * (-1 / np.sqrt(1 + kt)).astype(f.dtype)[:, None]
        first = special.log_ndtr(z)
        if not second:
            return first, None
        ratio, rows = np.zeros(f.shape, f.dtype), np.flatnonzero(kt)
        if len(rows):
            rho = (kt[rows] / (1 + kt[rows]))[:, None]
            ratio[rows] = _probit_log_ratio(z[rows], first[rows], rho, FEW_ANGLES)
        return first, ratio


def _probit_logs(z: Array) -> tuple[Array, Array]:
    """log(-l(z)) and log r(z) of the probit link, by one erfcx, which costs more than the rest."""
    z = np.asarray(z, dtype=np.float64)
    low, positive = z < -37, z > 0  # a little below -37 Phi(z) is less than all numbers
    with np.errstate(divide="ignore", over="ignore"):  # infinite z
        half_square = 0.5 * z * z
        erfcx = special.erfcx(SQRT_HALF * np.abs(z))
        log_tail = np.log(0.5 * erfcx) - half_square  # log Phi(-|z|)
        log_common = np.log1p(-np.exp(log_tail))  # log Phi(|z|)
        cost = np.log(-np.where(low, -1.0, np.where(positive, log_tail, log_common)))
        far = np.log(SQRT_2_OVER_PI / erfcx)
    near = -half_square - LOG_SQRT_2PI - log_common
    return np.where(low, log_tail, cost), np.where(positive, far, near)


def _probit_squares_tilted(mean: Array, variance: Array) -> Tilt:
    """Of Phi(-f)^2: Z = P(two normals of correlation rho are both below -z), z = mean / root.

    With k = 1 / sqrt(1 + 2 variance), dZ/dz = -2 phi(z) Phi(-k z), and so on.
    """
    root = np.sqrt(1 + variance)
    z, k = mean / root, 1 / np.sqrt(1 + 2 * variance)
    log_first = special.log_ndtr(-z)
    rho = variance / root**2
    log_mass = 2 * log_first + _probit_log_ratio(z, log_first, rho, SOME_ANGLES)
    log_density = -0.5 * z**2 - LOG_SQRT_2PI - log_mass
    a = 2 * np.exp(log_density + special.log_ndtr(-k * z))
    b = 2 * k * np.exp(log_density - 0.5 * (k * z) ** 2 - LOG_SQRT_2PI)
    second = z * a + b  # Z'' / Z, Z' / Z = -a
    third = (1 - z**2) * a - z * (2 + k**2) * b
    cumulant = third + 3 * a * second - 2 * a**3
    curvature = np.maximum(a**2 - second, 0)
    return Tilt(log_mass, -a / root, curvature / root**2, cumulant / root**3, np.zeros_like(z))


def probit_cumulants(z: Array) -> tuple[Array, Array]:
    """Third and fourth cumulant of N(0, 1) truncated to (-inf, -z): derivatives of log Phi(-z)."""
    far = z > 30  # there it is -z minus an exponential variable of rate z
    x = np.where(far, 0.0, z)
    link = Probit()
    r = link.hazard(x)
    kappa = link.ratios(x, r)[0]
    g = kappa**2 + r * kappa - 1
    slope = kappa * (3 * r * kappa - 2) + r * (r * kappa - 1)
    rate = np.where(far, z, 1.0)
    third = np.where(far, -2 / rate**3, -r * g)
    return third, np.where(far, 6 / rate**4, -r * (kappa * g + slope))


def _probit_log_ratio(z: Array, log_first: Array, rho: Array, n_angles: int) -> Array:
    """log E[P^2] - 2 log E[P], P = P(y = 0 | f), where E[P] = Phi(z).

    E[P^2] is the probability that two normals of correlation rho are both below z, which exceeds
    Phi(z)^2 by the integral of exp(-z^2 / (1 + sin t)) / (2 pi) over t from 0 to arcsin(rho):
    nothing cancels, however small it is.
    """
    nodes, weights = legendre(n_angles)
    half = 0.5 * np.arcsin(rho)
    z2 = -z * z
    shares = [(1 / (1 + np.sin(half * (1 + node)))).astype(z.dtype) for node in nodes]
    excess = np.zeros(np.broadcast(z, rho).shape, dtype=z.dtype)
    for share, weight in zip(shares, weights, strict=True):  # in units of the last, the largest
        excess += z.dtype.type(weight) * np.exp(z2 * (share - shares[-1]))
    with np.errstate(divide="ignore"):  # no residual, no excess
        height = np.log(half / (2 * np.pi)).astype(z.dtype)
    log_excess = np.log(excess) + z2 * shares[-1] + height
    return np.logaddexp(z.dtype.type(0), log_excess - 2 * log_first)


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
