"""Sites of the Ising-coupled probit model: neighbours in a bag tend to share their label [M24]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.couplings import CoupledPrior, Coupling
from bagwise.orthants import (
    BagMoments,
    bag_moments,
    lambda_gradient,
    orthant_diagonal,
    residual_trace_gradient,
    trace_gradient,
)
from bagwise.sites import Chunk, Precision, Q, Sites, Stats, latent_mean, project

Array = NDArray[Any]

EP_TOLERANCE = 1e-6  # the bound's error is its square


class IsingSites(Sites):
    """m_b ~ N(Sigma f_b, Sigma), Sigma = (I + lam R_b)^-1, a bag negative if all its m are.

    Lambda = Sigma, eta = E[m] ("vfe", [M24, Eq. 16-18]) or, with residuals integrated out
    ("fitc"), Lambda = (Q + Kt)^-1, eta = Lambda Q E[m]. `exact_moments` takes E[m] from EP
    instead of truncating with the diagonal of Sigma as published.
    """

    constant_precision = True
    bound_learns_mean = True

    def __init__(
        self, lam: float, *, integrate_residual: bool = True, exact_moments: bool = True
    ) -> None:
        self.lam = lam
        self.integrate_residual = integrate_residual
        self.exact_moments = exact_moments
        self._priors: dict[int, CoupledPrior] = {}
        self._moments: dict[int, BagMoments] = {}  # where EP starts from in the next sweep

    def local_step(self, chunk: Chunk, q: Q, with_precision: bool) -> Stats:
        prior = self._prior(chunk)
        found = self._find_moments(chunk, prior, latent_mean(chunk, q))
        self._moments[chunk.start] = found
        eta = prior.eta(found.Em)
        bound = float(np.sum(found.log_prob))
        if not self.integrate_residual:
            bound -= 0.5 * float(np.sum(chunk.kt * prior.coupling.diag()))
        precision = coupled_precision(prior, chunk.A) if with_precision else None
        return Stats(project(chunk.A, eta), float(eta.sum()), bound, precision)

    def global_bound(self, q: Q, precision: Precision) -> float:
        """-1/2 tr(Lambda A S A')."""
        return -0.5 * float(np.sum(precision.AtLA * q.S))

    def coupling_gradient(self, chunk: Chunk, q: Q) -> float:
        """d bound / d lam of a chunk's bags at a converged q."""
        prior = self._prior(chunk)
        mu = latent_mean(chunk, q)
        found = self._find_moments(chunk, prior, mu)
        slope = float(np.sum(lambda_gradient(prior, mu, found, chunk.targets)))
        slope += trace_gradient(prior, np.asarray(chunk.A, dtype=np.float64), q.S)
        if not self.integrate_residual:
            slope += residual_trace_gradient(prior.coupling, chunk.kt)
        return slope

    def _find_moments(self, chunk: Chunk, prior: CoupledPrior, mu: Array) -> BagMoments:
        if not self.exact_moments:
            return orthant_diagonal(prior.mean(mu), prior.variance, chunk.targets)
        warm = self._moments.get(chunk.start)
        return bag_moments(prior, mu, chunk.targets, warm, tol=EP_TOLERANCE)

    def _prior(self, chunk: Chunk) -> CoupledPrior:
        if chunk.start not in self._priors:
            kt = np.asarray(chunk.kt, dtype=np.float64)
            coupling = Coupling(chunk.graph, self.lam)
            self._priors[chunk.start] = coupling.prior(kt if self.integrate_residual else None)
        return self._priors[chunk.start]


def coupled_precision(prior: CoupledPrior, A: Array) -> Precision:
    """Statistics of a Lambda that couples the instances of a bag."""
    A = np.asarray(A, dtype=np.float64)
    LA = prior.weigh(A)
    return Precision(A.T @ LA, LA.sum(axis=0), float(np.sum(prior.weigh(np.ones(len(A))))))
