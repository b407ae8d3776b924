"""Sites of the Ising-coupled probit model: neighbours in a bag tend to share their label [M24]."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.sites import (
    Chunk,
    ClimbableSites,
    Derivatives,
    FoldedLikelihood,
    Precision,
    Q,
    Sites,
    Stats,
    latent,
    latent_mean,
    project,
    trace_bound,
)
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.coupled.blocks import CoupledPrior, Coupling
from bagwise.core.likelihoods.coupled.moments import (
    BagMoments,
    bag_moments,
    neg_hessian,
    orthant_diagonal,
)
from bagwise.core.links import Probit

Array = NDArray[Any]

EP_TOLERANCE = 1e-5  # the bound's error is its square


class CoupledSites(Sites):
    """m_b ~ N(Sigma f_b, Sigma), Sigma = (I + lam R_b)^-1, a bag negative if all its m are.

    Lambda = Sigma, eta = E[m] ("vfe", [M24, Eq. 16-18]) or, with residuals integrated out
    ("fitc"), Lambda = (Q + Kt)^-1, eta = Lambda Q E[m]. Subclasses say where E[m] comes from.
    """

    bound_learns_mean = True

    def __init__(self, lam: float, *, integrate_residual: bool = True) -> None:
        self.lam = lam
        self.integrate_residual = integrate_residual
        self._priors: dict[int, CoupledPrior] = {}
        self._precisions: dict[int, Precision] = {}

    @abstractmethod
    def moments(self, chunk: Chunk, mu: Array) -> BagMoments:
        """E[m | T] and log P(T) at E f = mu."""

    def local_step(self, chunk: Chunk, q: Q) -> Stats:
        found = self.moments(chunk, latent_mean(chunk, q))
        eta = self.prior(chunk).eta(found.Em)
        bound = float(np.sum(found.log_prob)) + self.constant_bound(chunk)
        return Stats(project(chunk.A, eta), float(eta.sum()), bound, self.precision(chunk))

    def precision(self, chunk: Chunk) -> Precision:
        """Statistics of a Lambda that couples the instances of a bag."""
        if chunk.start not in self._precisions:
            self._precisions[chunk.start] = coupled_precision(self.prior(chunk), chunk.A)
        return self._precisions[chunk.start]

    def constant_bound(self, chunk: Chunk) -> float:
        """-1/2 tr(Lambda Kt), where the residual is part of the bound."""
        if self.integrate_residual:
            return 0.0
        return -0.5 * float(np.sum(chunk.kt * self.prior(chunk).coupling.diag()))

    def global_bound(self, q: Q, precision: Precision) -> float:
        return trace_bound(q, precision)

    def prior(self, chunk: Chunk) -> CoupledPrior:
        """m of the chunk's bags before their labels are known, kept from pass to pass."""
        if chunk.start not in self._priors:
            kt = np.asarray(chunk.kt, dtype=np.float64)
            coupling = Coupling(chunk.graph, self.lam)
            self._priors[chunk.start] = coupling.prior(kt if self.integrate_residual else None)
        return self._priors[chunk.start]


class IsingSites(CoupledSites, ClimbableSites):
    """Coupled sites with moments from expectation propagation."""

    def __init__(self, lam: float, *, integrate_residual: bool = True) -> None:
        super().__init__(lam, integrate_residual=integrate_residual)
        self.uncoupled = FoldedLikelihood(BagLikelihood(Probit()), float(integrate_residual))
        self._moments: dict[int, BagMoments] = {}  # where EP starts from the next time

    def moments(self, chunk: Chunk, mu: Array) -> BagMoments:
        warm = self._moments.get(chunk.start)
        found = bag_moments(self.prior(chunk), mu, chunk.targets, warm, tol=EP_TOLERANCE)
        self._moments[chunk.start] = found
        return found

    def log_prob(self, chunk: Chunk, m: Array, c0: float) -> float:
        if self.prior(chunk).independent:
            return self.uncoupled.log_prob(chunk, m, c0)
        return float(np.sum(self.moments(chunk, latent(chunk, m, c0)).log_prob))

    def derivatives(self, chunk: Chunk, m: Array, c0: float) -> Derivatives:
        prior = self.prior(chunk)
        if prior.independent:
            return self.uncoupled.derivatives(chunk, m, c0)
        mu = latent(chunk, m, c0)
        found = self.moments(chunk, mu)
        A1 = np.column_stack([chunk.A, np.ones(len(mu))]).astype(np.float64)
        g = prior.eta(found.Em) - prior.weigh(mu)
        P = neg_hessian(prior, A1, mu, found, chunk.targets)
        return Derivatives(float(np.sum(found.log_prob)), A1.T @ g, P)


class DiagonalIsingSites(CoupledSites):
    """The published moments: E[m] truncates with the diagonal of Sigma [M24, Eq. 19-20].

    They are the moments of no distribution, so that there is no bound to climb.
    """

    def moments(self, chunk: Chunk, mu: Array) -> BagMoments:
        prior = self.prior(chunk)
        return orthant_diagonal(prior.mean(mu), prior.variance, chunk.targets)


def coupled_precision(prior: CoupledPrior, A: Array) -> Precision:
    """Statistics of a Lambda that couples the instances of a bag."""
    A = np.asarray(A, dtype=np.float64)
    LA = prior.weigh(A)
    return Precision(A.T @ LA, LA.sum(axis=0), float(np.sum(prior.weigh(np.ones(len(A))))))
