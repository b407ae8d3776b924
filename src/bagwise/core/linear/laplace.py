"""Mode, covariance and Laplace evidence of a linear noisy-or model for given alpha [R08, 4-7]."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.loop import Trace
from bagwise.core.inference.monitor import Note
from bagwise.core.inference.newton import Expansion, Summit, cholesky_at_mode, climb
from bagwise.core.inference.stats import Derivatives
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.linalg import inverse_from_cholesky, logdet_from_cholesky
from bagwise.core.linear.design import Coordinates

Array = NDArray[Any]

LOG_2PI = float(np.log(2 * np.pi))


class LogJoint:
    """log p(T | w) + log p(w | A) [R08, Eq. 7] without the prior's constants, and derivatives."""

    def __init__(self, likelihood: BagLikelihood, coordinates: Coordinates) -> None:
        self.likelihood = likelihood
        self.coordinates = coordinates

    def log_likelihood(self, v: Array) -> float:
        """log p(T | w) [R08, Eq. 5]."""
        return float(self.coordinates.total(partial(_log_prob, likelihood=self.likelihood, v=v)))

    def value(self, v: Array) -> float:
        """The log joint density."""
        return self.log_likelihood(v) - 0.5 * float(self.coordinates.penalty @ v**2)

    def expand(self, v: Array) -> Expansion:
        """The same with gradient [R08, Eq. 9] and minus the Hessian [R08, Eq. 10]."""
        penalty = self.coordinates.penalty
        labels = self.coordinates.total(partial(_derivatives, likelihood=self.likelihood, v=v))
        return Expansion(
            v,
            labels.log_prob - 0.5 * float(penalty @ v**2),
            labels.gradient - penalty * v,
            labels.neg_hessian + np.diag(penalty),
        )


def _log_prob(F: Array, targets: Targets, likelihood: BagLikelihood, v: Array) -> float:
    """log p(T | w) of some bags with features F."""
    return float(np.sum(likelihood.log_prob(F @ v, targets)))


def _derivatives(F: Array, targets: Targets, likelihood: BagLikelihood, v: Array) -> Derivatives:
    """The same with gradient and negative Hessian."""
    log_prob, curvature = likelihood.log_prob_and_curvature(F @ v, targets)
    return Derivatives(float(np.sum(log_prob)), F.T @ curvature.g, curvature.weigh(F))


@dataclass(frozen=True)
class Mode:
    """Laplace posterior of weights and intercept for given alpha."""

    coordinates: Coordinates
    summit: Summit

    @cached_property
    def w(self) -> Array:
        """Weights at the mode, (d,)."""
        return self.coordinates.weights(self.summit.v)

    @property
    def b(self) -> float:
        """Intercept at the mode."""
        return float(self.summit.v[-1])

    @cached_property
    def variances(self) -> Array:
        """Sigma_ii of the weights, Sigma = (-H)^-1; [R08, Eq. 16] has the wrong sign."""
        return self.coordinates.variances(self._P_inv)

    @cached_property
    def covariance(self) -> Array:
        """Sigma of weights and intercept, (d + 1, d + 1)."""
        return self.coordinates.covariance(self._P_inv)

    @property
    def converged(self) -> bool:
        """Whether Newton's method reached the mode."""
        return self.summit.trace.converged

    @property
    def log_evidence(self) -> float:
        """log p(T | A) [R08, Eq. 14]; what has a flat prior is integrated with density 1."""
        return self.summit.value + self._log_volume

    def evidence_trace(self) -> Trace:
        """Newton's path, each log joint with the final curvature: it ends at the evidence."""
        history = tuple(value + self._log_volume for value in self.summit.trace.history)
        return Trace(history, self.summit.trace.converged)

    @cached_property
    def least_precision(self) -> float:
        """Lowest eigenvalue of the whitened weights' posterior precision, b integrated out.

        The prior's is 1, and labels with a concave log-likelihood only add to it. Towards 0 two
        modes part (or meet), and Laplace's volume of a mode, -log|P|/2, diverges.
        """
        P = self.summit.P
        marginal = P[:-1, :-1] - np.outer(P[:-1, -1], P[-1, :-1]) / P[-1, -1]
        return float(np.min(np.linalg.eigvalsh(marginal), initial=np.inf))

    @property
    def _log_volume(self) -> float:
        """-log|P|/2, and log(2 pi)/2 for each coordinate without a normalised prior."""
        n_flat = float(np.sum(self.coordinates.penalty == 0))
        return 0.5 * (n_flat * LOG_2PI - logdet_from_cholesky(self._L))

    @cached_property
    def _L(self) -> Array:
        return cholesky_at_mode(self.summit.P, "raise max_iter, or use a larger alpha")

    @cached_property
    def _P_inv(self) -> Array:
        return inverse_from_cholesky(self._L)


def find_mode(
    likelihood: BagLikelihood,
    coordinates: Coordinates,
    w: Array,
    b: float,
    *,
    max_iter: int,
    tol: float = 1e-9,
    enough: float = np.inf,
    verbose: int = 0,
    note: Note | None = None,
) -> Mode:
    """Damped Newton with a line search from (w, b) [R08, Algorithm 1, inner loop].

    The mode need not be reached: see `Mode.converged`.
    """
    density = LogJoint(likelihood, coordinates)
    start = coordinates.start(w, b)
    summit = climb(
        density,
        start,
        max_iter=max_iter,
        tol=tol,
        enough=enough,
        verbose=verbose,
        note=None if note is None else lambda v, past: note(len(past) - 1, past[-1]),
    )
    return Mode(coordinates, summit)
