"""Gaussian scale mixtures psi(f) that stand for the logistic likelihood's symmetric part.

[C24] writes the Bernoulli-logistic likelihood as exp((y - 1/2) f) psi(f) with the hyperbolic
secant psi; its mixing variable is Polya-Gamma. `theta` is the expected precision at xi.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Density(Protocol):
    """What a scale mixture has to offer."""

    def log_psi(self, xi: Array) -> Array:
        """log psi(xi), constants included where the density has a bound."""

    def theta(self, xi: Array) -> Array:
        """-psi'(xi) / (xi psi(xi)) [C24, Eq. 28], for xi >= 0."""


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
        small = xi < 1e-3
        safe = np.where(small, 1, xi)
        return np.where(small, 0.25 - xi**2 / 48, np.tanh(safe / 2) / (2 * safe))
