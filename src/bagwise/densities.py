"""Gaussian scale mixtures psi(f) that stand for the logistic likelihood's symmetric part.

[C24] writes the Bernoulli-logistic likelihood as exp((y - 1/2) f) psi(f) with the hyperbolic
secant psi; its mixing variable is Polya-Gamma. `theta` is the expected precision at xi.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.warnings import warn_user

Array = NDArray[Any]


class Density(Protocol):
    """What a scale mixture has to offer."""

    def log_psi(self, xi: Array) -> Array:
        """log psi(xi), constants included where the density has a bound."""

    def theta(self, xi: Array) -> Array:
        """-psi'(xi) / (xi psi(xi)) [C24, Eq. 28], for xi >= 0."""


@runtime_checkable
class SmoothDensity(Density, Protocol):
    """A density whose second derivatives are known too: Newton's method can use it."""

    def theta_slope(self, xi: Array) -> Array:
        """theta'(xi) / xi, for xi >= 0."""


@dataclass(frozen=True)
class HyperbolicSecant:
    """psi(x) = 1 / (2 cosh(x / 2)): the logistic likelihood itself [C24, Eq. 14-16].

    >>> HyperbolicSecant().theta(np.array([0.0, 2.0])).round(4)
    array([0.25  , 0.1904])
    """

    def log_psi(self, xi: Array) -> Array:
        """-log(2 cosh(xi / 2)) = log sigmoid(xi) - xi / 2."""
        return -0.5 * xi - np.log1p(np.exp(-xi))

    def theta(self, xi: Array) -> Array:
        """tanh(xi / 2) / (2 xi), 1/4 at zero; Jaakkola's lambda [V17, Eq. 10] is half of it."""
        small = np.abs(xi) < 1e-3
        safe = np.where(small, 1, xi)
        return np.where(small, 0.25 - xi**2 / 48, np.tanh(safe / 2) / (2 * safe))

    def theta_slope(self, xi: Array) -> Array:
        """theta'(xi) / xi, -1/24 at zero."""
        small = np.abs(xi) < 0.1
        safe = np.where(small, 1, xi)
        t = np.tanh(safe / 2)
        series = -1 / 24 + xi**2 / 120 - 17 * xi**4 / 13440 + 31 * xi**6 / 181440
        return np.where(small, series, (0.5 * safe * (1 - t**2) - t) / (2 * safe**3))


@dataclass(frozen=True)
class Gamma:
    """psi(x) = (beta + x^2 / 2)^-alpha: a Gamma(alpha, beta) mixing variable [C24, Eq. 38].

    Its normaliser over x exists for alpha > 1/2 and is left out: it does not change q.

    >>> Gamma(1.0, 4.0).theta(np.array([0.0, 2.0]))
    array([0.25      , 0.16666667])
    """

    alpha: float = 1.0
    beta: float = 4.0

    def __post_init__(self) -> None:
        _check_positive(self, "alpha", "beta")
        if self.alpha <= 0.5:
            warn_user(
                f"psi with alpha = {self.alpha:g} <= 1/2 is not a proper density; the updates are "
                "still defined, but the model is not: use alpha > 1/2"
            )

    def log_psi(self, xi: Array) -> Array:
        """-alpha log(beta + xi^2 / 2)."""
        return -self.alpha * np.log(self.beta + 0.5 * xi**2)

    def theta(self, xi: Array) -> Array:
        """alpha / (beta + xi^2 / 2) [C24, Section 5]."""
        return self.alpha / (self.beta + 0.5 * xi**2)


@dataclass(frozen=True)
class StudentT:
    """Student's t with `df` degrees of freedom: omega ~ Gamma(df / 2, df scale^2 / 2).

    It is `Gamma((df + 1) / 2, df scale^2 / 2)` with its constant, so that it integrates to 1.

    >>> StudentT(3.0, 2.0).theta(np.array([0.0, 2.0]))
    array([0.33333333, 0.25      ])
    """

    df: float = 3.0
    scale: float = 2.0

    def __post_init__(self) -> None:
        _check_positive(self, "df", "scale")

    def log_psi(self, xi: Array) -> Array:
        """log of the density, every constant kept."""
        nu = self.df
        constant = special.gammaln((nu + 1) / 2) - special.gammaln(nu / 2)
        constant -= 0.5 * np.log(nu * np.pi) + np.log(self.scale)
        return constant - 0.5 * (nu + 1) * np.log1p((xi / self.scale) ** 2 / nu)

    def theta(self, xi: Array) -> Array:
        """(df + 1) / (df scale^2 + xi^2)."""
        return (self.df + 1) / (self.df * self.scale**2 + xi**2)


@dataclass(frozen=True)
class Laplace:
    """psi(x) = `exp(-|x| / scale) / (2 scale)`: variances 1 / omega are exponential.

    With scale 2 it falls as the hyperbolic secant does far from zero. theta has a pole at zero;
    below xi = 1e-6 it is taken there.

    >>> Laplace(2.0).theta(np.array([0.5, 2.0]))
    array([1.  , 0.25])
    """

    scale: float = 2.0

    def __post_init__(self) -> None:
        _check_positive(self, "scale")

    def log_psi(self, xi: Array) -> Array:
        """log of the density, every constant kept."""
        return -np.abs(xi) / self.scale - np.log(2 * self.scale)

    def theta(self, xi: Array) -> Array:
        """1 / (scale xi)."""
        return 1 / (self.scale * np.maximum(np.abs(xi), 1e-6))


@dataclass(frozen=True)
class PolyaGamma:
    """psi(x) = (2 cosh(x / 2))^-b: omega ~ PG(b, 0). b = 1 is the logistic likelihood itself.

    Over x it integrates to the Beta function B(b / 2, b / 2).

    >>> PolyaGamma(2.0).theta(np.array([0.0, 2.0])).round(4)
    array([0.5   , 0.3808])
    """

    b: float = 1.0

    def __post_init__(self) -> None:
        _check_positive(self, "b")

    def log_psi(self, xi: Array) -> Array:
        """-b log(2 cosh(xi / 2))."""
        return self.b * HyperbolicSecant().log_psi(xi)

    def theta(self, xi: Array) -> Array:
        """b tanh(xi / 2) / (2 xi), b / 4 at zero."""
        return self.b * HyperbolicSecant().theta(xi)


@dataclass(frozen=True)
class FunctionDensity:
    """A scale mixture given by log psi and its derivative, as functions of arrays xi >= 0.

    >>> psi = FunctionDensity(lambda x: -np.log(4 + x**2 / 2), lambda x: -x / (4 + x**2 / 2))
    >>> psi.theta(np.array([0.0, 2.0])).round(4)
    array([0.25  , 0.1667])
    """

    function: Callable[[Array], Array]
    derivative: Callable[[Array], Array]

    def log_psi(self, xi: Array) -> Array:
        """log psi(xi) as given."""
        return np.asarray(self.function(xi), dtype=np.float64)

    def theta(self, xi: Array) -> Array:
        """-(log psi)'(xi) / xi; near zero the limit is taken at 1e-3."""
        safe = np.maximum(xi, 1e-3)
        return -np.asarray(self.derivative(safe), dtype=np.float64) / safe


def log_excess(density: Density, f: Array) -> Array:
    """log sum_y exp((y - 1/2) f) psi(f) = log(2 cosh(f / 2) psi(f)) for any f.

    It is 0 for the logistic likelihood. Any other psi multiplies the prior of f by its
    exponential [C24, Eq. 21].
    """
    return density.log_psi(np.abs(f)) - HyperbolicSecant().log_psi(np.abs(f))


def is_normalised(density: Density) -> bool:
    """Whether psi is the hyperbolic secant up to a constant, so that labels sum to 1.

    >>> is_normalised(PolyaGamma(1.0)), is_normalised(Gamma(1.0, 4.0))
    (True, False)
    """
    return bool(np.ptp(log_excess(density, np.linspace(0, 30, 61))) < 1e-6)


_ARRAYS = (
    "the functions of psi take arrays and return one value for each number in them, but one {}; "
    "write them with numpy, as np.log(x) in place of math.log(x), and constants as 0 * x + c"
)


def as_density(psi: Any) -> Density:
    """A density object, or one made of a pair (log_psi, its derivative)."""
    density: Any = FunctionDensity(*psi) if isinstance(psi, tuple) and len(psi) == 2 else psi
    if not (hasattr(density, "log_psi") and hasattr(density, "theta")):
        raise TypeError(
            "psi must be a density with log_psi and theta, such as bagwise.densities.Gamma(1, 4), "
            f"or a pair (log_psi, derivative) of functions, got {psi!r}"
        )
    return density


def check_density(psi: Any) -> Density:
    """A usable density: a density object or a pair (log_psi, its derivative).

    Rejects NaN, negative precisions and a theta that is not that of log_psi; warns where theta
    grows, since then psi is not a mixture of Gaussians and the bound does not hold.
    """
    density = as_density(psi)
    grid = np.concatenate([[0.0], np.geomspace(1e-2, 1e2, 200)])
    theta, log_psi = _of_arrays(density.theta, grid), _of_arrays(density.log_psi, grid)
    if not (np.all(np.isfinite(theta)) and np.all(np.isfinite(log_psi)) and np.all(theta > 0)):
        raise ValueError(
            "psi must give finite log_psi and positive finite theta = -(log psi)'(x)/x for x in "
            f"[0, 100]; {type(density).__name__} gives NaN, infinity or theta <= 0: psi has to "
            "fall as |x| grows"
        )
    _check_agreement(density, grid[1:])
    if np.any(np.diff(theta) > 1e-9 * theta[0]):
        warn_user(
            "psi is not a Gaussian scale mixture: theta(x) = -(log psi)'(x)/x is not decreasing, "
            "so the updates need not raise the bound"
        )
    return density


def _of_arrays(function: Callable[[Array], Array], x: Array) -> Array:
    """One value for each of x; functions that take single numbers only are refused."""
    try:
        values = np.asarray(function(x))
    except (TypeError, ValueError) as error:
        raise TypeError(_ARRAYS.format(f"fails for one: {error}")) from error
    if values.shape != x.shape:
        raise TypeError(_ARRAYS.format(f"returns shape {values.shape} for shape {x.shape}"))
    return values


def _check_agreement(density: Density, x: Array) -> None:
    """theta = -(log psi)'(x) / x, against central differences."""
    h = 1e-4 * x
    rise = density.log_psi(x + h) - density.log_psi(x - h)
    rounding = 1e-14 * np.abs(density.log_psi(x)) / (2 * h)
    slope = density.theta(x) * x
    wrong = np.abs(slope + rise / (2 * h)) > 1e-2 * slope + rounding
    if np.any(wrong):
        at = x[wrong][0]
        raise ValueError(
            "theta (or the derivative) must be that of log_psi: theta(x) = -(log psi)'(x)/x, but "
            f"at x = {at:.3g} {type(density).__name__} has theta = {slope[wrong][0] / at:.4g} and "
            f"a log_psi whose slope asks for {-(rise / (2 * h * x))[wrong][0]:.4g}; correct one "
            "of the two"
        )


def _check_positive(density: Any, *names: str) -> None:
    """Parameters of a density are positive finite numbers."""
    for name in names:
        value = getattr(density, name)
        if not (isinstance(value, int | float | np.number) and 0 < value < np.inf):
            raise ValueError(f"{name} must be a positive finite number, got {value!r}")
