"""Mode, covariance and Laplace evidence of a linear noisy-or model for given alpha [R08, 4-7]."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference import laplace
from bagwise.core.inference.monitor import Note
from bagwise.core.inference.newton import climb, finite_expansion
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.linalg import try_cholesky
from bagwise.core.linear.approach import WIDE, approach
from bagwise.core.linear.design import Coordinates

Array = NDArray[Any]

STILL = 1e-14  # promise of a step, relative to the log density, that P does not notice
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

    def firmer_than(self, precision: float) -> bool:
        """Whether the whitened weights' posterior precision, b integrated out, is so everywhere.

        The prior's is 1, and labels with a concave log-likelihood only add to it. Towards 0 two
        modes part (or meet), and Laplace's volume of a mode, -log|P|/2, diverges. At a saddle
        there are directions, or b, in which it is negative.
        """
        P = self.P
        if P[-1, -1] <= 0:
            return False
        marginal = P[:-1, :-1] - np.outer(P[:-1, -1], P[-1, :-1]) / P[-1, -1]
        marginal[np.diag_indices_from(marginal)] -= precision
        return try_cholesky(marginal) is not None

    def curvature_of(self, keep: NDArray[np.bool_] | slice = slice(None)) -> Array | None:
        """-Hessian of log p(T | w, b) in some weights and b, where those are many; else None."""
        if self.coordinates.V is not None:
            return None
        kept = np.append(np.arange(len(self.v) - 1)[keep], len(self.v) - 1)
        return self.coordinates.curvature(self.P, kept) if len(kept) > WIDE else None

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
    max_iter: int,
    note: Note | None = None,
    tol: float = 1e-9,
    near: Array | None = None,
    **how: Any,
) -> Mode:
    """Damped Newton with a line search from (w, b) [R08, Algorithm 1, inner loop].

    Many weights come near the mode by gradients before. `near` is about the curvature of the log
    likelihood in (w, b), where that is known. The mode need not be reached: see
    `trace.converged`. There are at most `max_iter` steps of each kind; `how` is told to `climb`.
    """

    def heard(values: list[float]) -> None:
        if note is not None:
            note(len(values) - 1, values[-1])

    target, v = coordinates.log_joint(likelihood), coordinates.start(w, b)
    past: list[float] = []
    if len(v) > WIDE and np.all(coordinates.penalty > 0):
        P = finite_expansion(target, v).P if near is None else coordinates.precision(near)
        v, past = approach(target.slope, v, P, max_iter, heard)
        max_iter += len(past) - 1
        how["still"] = STILL
    how |= {"max_iter": max_iter, "tol": tol, "past": tuple(past)}
    summit = climb(target, v, **how, note=lambda _, values: heard(values))
    return Mode(**vars(summit), coordinates=coordinates)
