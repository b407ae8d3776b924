"""Covariance functions: cross-covariances, diagonals and gradients in log-parameters.

A kernel is a frozen dataclass with positive parameters. `theta` is the vector of their
logarithms, which is what learning moves. A new kernel is one such class below `Kernel`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Lengthscale = float | tuple[float, ...]

# Python floats: numpy scalars would turn float32 arrays into float64.
SQRT3, SQRT5 = math.sqrt(3.0), math.sqrt(5.0)


class Kernel(ABC):
    """A positive semi-definite function k(x, x') with log-parameters `theta`.

    A kernel is a frozen dataclass whose fields are its positive parameters, with five methods:
    `cross` and `diag` are its values, `pullback` and `pullback_diag` their gradients in `theta`,
    and `anchored` says where learning starts; `check_features` where it needs that many features.
    Model files hold every kernel whose module has been imported.
    """

    @abstractmethod
    def cross(self, X: Array, Z: Array) -> Array:
        """k(x_n, z_m), shape (N, M), in the dtype of `X`."""

    @abstractmethod
    def diag(self, X: Array) -> Array:
        """k(x_n, x_n), shape (N,)."""

    @abstractmethod
    def pullback(self, X: Array, Z: Array, G: Array) -> Array:
        """Gradient of ``sum(G * cross(X, Z))`` with respect to `theta`, shape (n_theta,)."""

    @abstractmethod
    def pullback_diag(self, X: Array, g: Array) -> Array:
        """Gradient of ``sum(g * diag(X))`` with respect to `theta`, shape (n_theta,)."""

    @property
    def theta(self) -> Array:
        """Logarithms of all parameters, in the order of the class's fields."""
        return np.concatenate([np.log(np.atleast_1d(v)) for v in self._parameters().values()])

    def with_theta(self, theta: Array) -> Kernel:
        """The same kernel with other log-parameters."""
        values: dict[str, Any] = {}
        start = 0
        for name, value in self._parameters().items():
            size = np.size(value)
            new = np.exp(np.asarray(theta[start : start + size], dtype=np.float64))
            values[name] = tuple(new.tolist()) if isinstance(value, tuple) else float(new[0])
            start += size
        return replace(self, **values)  # type: ignore[type-var]

    def check_features(self, n_features: int) -> None:
        """Raise where the kernel cannot be used with that many features."""

    @abstractmethod
    def anchored(self, variance: float, lengthscale: float) -> Kernel:
        """The same kind of kernel with parameters that suit data of that spread.

        It is where learning starts, and the centre of the prior of `theta`.
        """

    def __add__(self, other: Kernel) -> Sum:
        return Sum((*_terms(self), *_terms(other)))

    def _parameters(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


class _Stationary(Kernel):
    """k = variance * rho(r^2), r^2 = sum_d (x_d - x'_d)^2 / lengthscale_d^2."""

    variance: float
    lengthscale: Lengthscale

    @abstractmethod
    def _rho(self, r2: Array) -> Array:
        """Correlation at squared scaled distance."""

    @abstractmethod
    def _slope(self, r2: Array) -> Array:
        """-2 d rho / d r^2, finite at zero or multiplied by zero there."""

    def check_features(self, n_features: int) -> None:
        if isinstance(self.lengthscale, tuple) and len(self.lengthscale) != n_features:
            raise ValueError(
                f"an ARD kernel needs one lengthscale per feature: {type(self).__name__} has "
                f"{len(self.lengthscale)}, the data have {n_features} features"
            )

    def anchored(self, variance: float, lengthscale: float) -> Kernel:
        shape = self.lengthscale
        same = (lengthscale,) * len(shape) if isinstance(shape, tuple) else lengthscale
        return replace(self, variance=variance, lengthscale=same)  # type: ignore[type-var]

    def cross(self, X: Array, Z: Array) -> Array:
        K = self._rho(self._r2(X, Z))
        K *= X.dtype.type(self.variance)
        return K

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self.variance, dtype=X.dtype)

    def pullback(self, X: Array, Z: Array, G: Array) -> Array:
        r2 = self._r2(X, Z)
        d_log_variance = self.variance * float(np.sum(G * self._rho(r2)))
        E = self.variance * G * self._slope(r2)  # d K / d log l_d = E_nm * r2_nm,d
        if isinstance(self.lengthscale, tuple):
            d_log_lengthscale = self._ard_gradient(X, Z, E)
        else:
            d_log_lengthscale = np.array([float(np.sum(E * r2))])
        return np.concatenate([[d_log_variance], d_log_lengthscale])

    def pullback_diag(self, X: Array, g: Array) -> Array:
        gradient = np.zeros(1 + np.size(self.lengthscale))
        gradient[0] = self.variance * float(np.sum(g))
        return gradient

    def _scaled(self, X: Array) -> Array:
        return X / np.asarray(self.lengthscale, dtype=X.dtype)

    def _r2(self, X: Array, Z: Array) -> Array:
        Z = Z.astype(X.dtype, copy=False)
        # A common origin near the data keeps |x|^2 + |z|^2 - 2 x'z from cancelling.
        origin = Z.mean(axis=0)
        Xs, Zs = self._scaled(X - origin), self._scaled(Z - origin)
        r2 = Xs @ (-2 * Zs).T
        r2 += np.einsum("nd,nd->n", Xs, Xs)[:, None]
        r2 += np.einsum("md,md->m", Zs, Zs)
        return np.maximum(r2, 0, out=r2)  # squared distances; rounding may leave -1e-16

    def _ard_gradient(self, X: Array, Z: Array, E: Array) -> Array:
        origin = Z.mean(axis=0)
        Xs, Zs = self._scaled(X - origin), self._scaled(Z - origin)
        return (Xs**2).T @ E.sum(axis=1) + (Zs**2).T @ E.sum(axis=0) - 2 * np.sum(Xs * (E @ Zs), 0)


@dataclass(frozen=True)
class RBF(_Stationary):
    """Squared exponential: variance * exp(-d^2 / (2 lengthscale^2)), d the distance.

    A sequence of lengthscales, one per feature, makes it an ARD kernel.

    >>> RBF(1.0, 2.0).cross(np.zeros((1, 3)), np.array([[2.0, 0.0, 0.0]])).round(4)
    array([[0.6065]])
    """

    variance: float = 1.0
    lengthscale: Lengthscale = 1.0

    def __post_init__(self) -> None:
        _check_stationary(self)

    def _rho(self, r2: Array) -> Array:
        half = -0.5 * r2
        return np.exp(half, out=half)

    def _slope(self, r2: Array) -> Array:
        return np.exp(-0.5 * r2)


@dataclass(frozen=True)
class Matern(_Stationary):
    """Matern kernel with nu = 0.5 (the exponential kernel of [W21]), 1.5 or 2.5.

    >>> Matern(0.5, 1.0, 1.0).cross(np.zeros((1, 1)), np.ones((1, 1))).round(4)
    array([[0.3679]])
    """

    nu: float = 1.5
    variance: float = 1.0
    lengthscale: Lengthscale = 1.0

    def __post_init__(self) -> None:
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(
                f"Matern nu must be 0.5, 1.5 or 2.5, got {self.nu!r}; for a smoother kernel use RBF"
            )
        _check_stationary(self)

    def _parameters(self) -> dict[str, Any]:
        return {"variance": self.variance, "lengthscale": self.lengthscale}

    def _rho(self, r2: Array) -> Array:
        r = np.sqrt(r2)
        if self.nu == 0.5:
            return np.exp(-r)
        if self.nu == 1.5:
            return (1 + SQRT3 * r) * np.exp(-SQRT3 * r)
        return (1 + SQRT5 * r + 5 / 3 * r2) * np.exp(-SQRT5 * r)

    def _slope(self, r2: Array) -> Array:
        r = np.sqrt(r2)
        if self.nu == 0.5:
            return np.exp(-r) / np.where(r > 0, r, np.inf)  # times r2: no gradient at r = 0
        if self.nu == 1.5:
            return 3 * np.exp(-SQRT3 * r)
        return 5 / 3 * (1 + SQRT5 * r) * np.exp(-SQRT5 * r)


@dataclass(frozen=True)
class Linear(Kernel):
    """variance * x'x', a straight line through the origin of the features.

    >>> Linear(2.0).diag(np.array([[1.0, 2.0]]))
    array([10.])
    """

    variance: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", _positive("variance", self.variance, self))

    def anchored(self, variance: float, lengthscale: float) -> Kernel:
        return Linear(variance / lengthscale**2)

    def cross(self, X: Array, Z: Array) -> Array:
        return X.dtype.type(self.variance) * (X @ Z.T.astype(X.dtype, copy=False))

    def diag(self, X: Array) -> Array:
        return X.dtype.type(self.variance) * np.einsum("nd,nd->n", X, X)

    def pullback(self, X: Array, Z: Array, G: Array) -> Array:
        return np.array([float(np.sum(G * self.cross(X, Z)))])

    def pullback_diag(self, X: Array, g: Array) -> Array:
        return np.array([float(np.sum(g * self.diag(X)))])


@dataclass(frozen=True)
class Constant(Kernel):
    """The same covariance everywhere: an uncertain offset shared by all instances.

    >>> Constant(3.0).cross(np.zeros((1, 2)), np.ones((2, 2)))
    array([[3., 3.]])
    """

    variance: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", _positive("variance", self.variance, self))

    def anchored(self, variance: float, lengthscale: float) -> Kernel:
        return Constant(variance)

    def cross(self, X: Array, Z: Array) -> Array:
        return np.full((len(X), len(Z)), self.variance, dtype=X.dtype)

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self.variance, dtype=X.dtype)

    def pullback(self, X: Array, Z: Array, G: Array) -> Array:
        return np.array([self.variance * float(np.sum(G))])

    def pullback_diag(self, X: Array, g: Array) -> Array:
        return np.array([self.variance * float(np.sum(g))])


@dataclass(frozen=True)
class Sum(Kernel):
    """Sum of kernels; write ``RBF() + Linear()``.

    >>> (RBF() + Constant(2.0)).diag(np.zeros((1, 1)))
    array([3.])
    """

    terms: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        if not self.terms or not all(isinstance(t, Kernel) for t in self.terms):
            raise TypeError(f"Sum takes a non-empty tuple of kernels, got {self.terms!r}")
        object.__setattr__(self, "terms", tuple(self.terms))

    @property
    def theta(self) -> Array:
        return np.concatenate([t.theta for t in self.terms])

    def with_theta(self, theta: Array) -> Sum:
        cuts = np.cumsum([t.theta.size for t in self.terms])[:-1]
        parts = np.split(np.asarray(theta), cuts)
        return Sum(tuple(t.with_theta(p) for t, p in zip(self.terms, parts, strict=True)))

    def check_features(self, n_features: int) -> None:
        for term in self.terms:
            term.check_features(n_features)

    def anchored(self, variance: float, lengthscale: float) -> Sum:
        share = variance / len(self.terms)
        return Sum(tuple(t.anchored(share, lengthscale) for t in self.terms))

    def cross(self, X: Array, Z: Array) -> Array:
        return sum((t.cross(X, Z) for t in self.terms[1:]), self.terms[0].cross(X, Z))

    def diag(self, X: Array) -> Array:
        return sum((t.diag(X) for t in self.terms[1:]), self.terms[0].diag(X))

    def pullback(self, X: Array, Z: Array, G: Array) -> Array:
        return np.concatenate([t.pullback(X, Z, G) for t in self.terms])

    def pullback_diag(self, X: Array, g: Array) -> Array:
        return np.concatenate([t.pullback_diag(X, g) for t in self.terms])


def _terms(kernel: Kernel) -> tuple[Kernel, ...]:
    return kernel.terms if isinstance(kernel, Sum) else (kernel,)


def _check_stationary(kernel: RBF | Matern) -> None:
    """Replace arrays and lists of lengthscales by tuples of floats; reject bad values."""
    object.__setattr__(kernel, "variance", _positive("variance", kernel.variance, kernel))
    raw = kernel.lengthscale
    if np.ndim(raw) == 0:
        value: Lengthscale = _positive("lengthscale", raw, kernel)
    else:
        value = tuple(_positive("lengthscale", v, kernel) for v in np.ravel(raw))
    object.__setattr__(kernel, "lengthscale", value)


def _positive(name: str, value: Any, kernel: Kernel) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not (np.isfinite(number) and number > 0):
        raise ValueError(
            f"{name} of {type(kernel).__name__} must be a positive finite number, got {value!r}"
        )
    return number
