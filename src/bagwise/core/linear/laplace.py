"""Mode, covariance and Laplace evidence of a linear noisy-or model for given alpha [R08, 4-7]."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference import laplace
from bagwise.core.inference.monitor import Note
from bagwise.core.inference.newton import climb
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.linear.design import Coordinates

Array = NDArray[Any]

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Mode(laplace.Mode):
    """Laplace posterior of weights and intercept for given alpha."""

    coordinates: Coordinates

    remedy: ClassVar[str] = "raise max_iter, or use a larger alpha"

    @cached_property
    def w(self) -> Array:
        """Weights at the mode, (d,)."""
        return self.coordinates.weights(self.v)

    @property
    def b(self) -> float:
        """Intercept at the mode."""
        return float(self.v[-1])

    @cached_property
    def variances(self) -> Array:
        """Sigma_ii of the weights, Sigma = (-H)^-1; [R08, Eq. 16] has the wrong sign."""
        return self.coordinates.variances(self.P_inv)

    @cached_property
    def covariance(self) -> Array:
        """Sigma of weights and intercept, (d + 1, d + 1)."""
        return self.coordinates.covariance(self.P_inv)

    @cached_property
    def least_precision(self) -> float:
        """Lowest eigenvalue of the whitened weights' posterior precision, b integrated out.

        The prior's is 1, and labels with a concave log-likelihood only add to it. Towards 0 two
        modes part (or meet), and Laplace's volume of a mode, -log|P|/2, diverges.
        """
        P = self.P
        marginal = P[:-1, :-1] - np.outer(P[:-1, -1], P[-1, :-1]) / P[-1, -1]
        return float(np.min(np.linalg.eigvalsh(marginal), initial=np.inf))

    @property
    def log_volume(self) -> float:
        """The same for what has a flat prior, that of b included, which has density 1 [R08, 14]."""
        n_flat = 1 + np.sum(self.coordinates.penalty == 0)
        return super().log_volume + 0.5 * float(n_flat) * LOG_2PI


def find_mode(
    likelihood: BagLikelihood,
    coordinates: Coordinates,
    w: Array,
    b: float,
    *,
    note: Note | None = None,
    tol: float = 1e-9,
    **limits: Any,
) -> Mode:
    """Damped Newton with a line search from (w, b) [R08, Algorithm 1, inner loop].

    The mode need not be reached: see `trace.converged`. Limits are those of `climb`.
    """
    heard = None if note is None else lambda _, past: note(len(past) - 1, past[-1])
    target = coordinates.log_joint(likelihood)
    summit = climb(target, coordinates.start(w, b), tol=tol, note=heard, **limits)
    return Mode(**vars(summit), coordinates=coordinates)
