"""Gaussian sites: how each model turns bag labels into a quadratic in f.

A site gives every instance a precision Lambda and a linear term eta (design: P = I + A' Lambda A,
m = P^-1 A'(eta - c0 Lambda 1)). `local_step` is pure: it reads a chunk and the current q and
returns additive `Stats`; chunks are cut between bags, so that sums over chunks are all that
a fit gathers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.densities import Density, HyperbolicSecant
from bagwise.labels import BagLikelihood, Targets

Array = NDArray[Any]


@dataclass(frozen=True)
class Chunk:
    """Consecutive whole bags with their whitened features."""

    X: Array  # (n, D), in the units the kernel sees
    A: Array  # (n, M)
    kt: Array  # (n,)
    targets: Targets
    start: int = 0  # first row in the whole data
    graph: Any = None  # sparse (n, n) neighbours, for coupled models


@dataclass(frozen=True)
class Q:
    """q(v) = N(m, S) with the constant mean c0."""

    m: Array  # (M,)
    S: Array  # (M, M)
    c0: float
    log_det_S: float

    def kl(self) -> float:
        """KL(q(v) || N(0, I))."""
        M = len(self.m)
        return 0.5 * float(np.trace(self.S) + self.m @ self.m - M - self.log_det_S)


def standard_q(n_inducing: int, c0: float) -> Q:
    """q(v) = N(0, I): where every fit starts."""
    return Q(np.zeros(n_inducing), np.eye(n_inducing), c0, 0.0)


@dataclass(frozen=True)
class Precision:
    """The part of the statistics that depends on Lambda alone."""

    AtLA: Array  # (M, M) A' Lambda A
    AtL1: Array  # (M,) A' Lambda 1
    oneL1: float  # 1' Lambda 1

    def __add__(self, other: Precision) -> Precision:
        return Precision(self.AtLA + other.AtLA, self.AtL1 + other.AtL1, self.oneL1 + other.oneL1)


@dataclass(frozen=True)
class Stats:
    """What a sweep gathers: additive over chunks."""

    AtEta: Array  # (M,) A' eta
    oneEta: float  # 1' eta
    bound: float  # ELBO terms of these bags at the incoming q
    precision: Precision | None = None  # None where an earlier sweep's still holds

    def __add__(self, other: Stats) -> Stats:
        both = self.precision is not None and other.precision is not None
        return Stats(
            self.AtEta + other.AtEta,
            self.oneEta + other.oneEta,
            self.bound + other.bound,
            self.precision + other.precision if both else None,  # type: ignore[operator]
        )

    def require_precision(self) -> Precision:
        """The precision, which statistics that are to be solved always carry."""
        if self.precision is None:
            raise RuntimeError("statistics without a precision cannot be solved")
        return self.precision

    def as_vector(self, with_precision: bool) -> Array:
        """What acceleration extrapolates."""
        linear = np.append(self.AtEta, self.oneEta)
        if not with_precision:
            return linear
        p = self.require_precision()
        return np.concatenate([linear, p.AtL1, [p.oneL1], p.AtLA.ravel()])

    def from_vector(self, x: Array, with_precision: bool) -> Stats:
        """Statistics with the entries of `as_vector` replaced; their bound is unknown (NaN)."""
        M = len(self.AtEta)
        precision = self.precision
        if with_precision:
            precision = Precision(x[2 * M + 2 :].reshape(M, M), x[M + 1 : 2 * M + 1], x[2 * M + 1])
        return Stats(x[:M], float(x[M]), np.nan, precision)


class Sites(ABC):
    """A model of bag labels given f, seen by the variational loop."""

    constant_precision: bool  # Lambda does not depend on q
    stateful = False  # local values depend on earlier sweeps, not on q alone
    bound_learns_mean = False  # c0 may follow the bound: true where that behaves
    warm_start: Sites | None = None  # sites whose optimal q is a better start than N(0, I)

    def start(self, chunk: Chunk, q: Q) -> Stats:
        """Statistics from which the first q is solved."""
        return self.local_step(chunk, q, True)

    @abstractmethod
    def local_step(self, chunk: Chunk, q: Q, with_precision: bool) -> Stats:
        """Update the local variables at `q` and return this chunk's statistics."""

    def global_bound(self, q: Q, precision: Precision) -> float:
        """ELBO terms that need no pass over the data, besides -KL."""
        return 0.0


@dataclass(frozen=True)
class LogisticSites(Sites):
    """Logistic likelihood by Polya-Gamma or Jaakkola with a joint posterior over bag labels."""

    likelihood: BagLikelihood
    density: Density = field(default_factory=HyperbolicSecant)
    constant_precision = False

    def local_step(self, chunk: Chunk, q: Q, with_precision: bool) -> Stats:
        mu = latent_mean(chunk, q)
        xi = np.sqrt(second_moment(chunk, q, mu))  # [V17, below Eq. 12]
        log_prob, g = self.likelihood.log_prob_and_gradient(mu, chunk.targets)
        Ey = self.likelihood.link.hazard(mu) + g  # sigmoid(mu) + d log Z / d mu
        eta = Ey - 0.5  # [V17, Eq. 12]
        bound = float(
            np.sum(log_prob) + np.sum(np.logaddexp(0, mu) - 0.5 * mu + self.density.log_psi(xi))
        )
        precision = diagonal_precision(chunk.A, self.density.theta(xi))  # [C24, Eq. 27-28]
        return Stats(project(chunk.A, eta), float(eta.sum()), bound, precision)


@dataclass(frozen=True)
class ProbitSites(Sites):
    """Probit likelihood with augmented m_n ~ N(f_n, 1) and exact joint moments per bag [W21].

    `integrate_residual=True` ("fitc") integrates f out exactly: m_n has noise s_n^2 = 1 + kt_n.
    False ("vfe") keeps f in the bound, s_n = 1: the paper's updates [W21, Eq. 17-23].
    """

    likelihood: BagLikelihood
    integrate_residual: bool = True
    constant_precision = True
    bound_learns_mean = True  # the logistic bound drives it far down instead

    def local_step(self, chunk: Chunk, q: Q, with_precision: bool) -> Stats:
        s = self.noise_scale(chunk.kt)
        mu = latent_mean(chunk, q)
        z = mu / s
        log_prob, g = self.likelihood.log_prob_and_gradient(z, chunk.targets)
        Em = mu + s * g  # [W21, Eq. 21-23]
        eta = Em / s**2
        bound = float(np.sum(log_prob))
        if not self.integrate_residual:
            bound -= 0.5 * float(np.sum(chunk.kt, dtype=np.float64))
        precision = diagonal_precision(chunk.A, 1 / s**2) if with_precision else None
        return Stats(project(chunk.A, eta), float(eta.sum()), bound, precision)

    def global_bound(self, q: Q, precision: Precision) -> float:
        """-1/2 tr(Lambda A S A')."""
        return -0.5 * float(np.sum(precision.AtLA * q.S))

    def noise_scale(self, kt: Array) -> Array:
        """s_n."""
        kt = np.asarray(kt, dtype=np.float64)
        return np.sqrt(1 + kt) if self.integrate_residual else np.ones_like(kt)


def latent_mean(chunk: Chunk, q: Q) -> Array:
    """mu_n = c0 + a_n'm in float64."""
    return q.c0 + np.asarray(chunk.A @ q.m.astype(chunk.A.dtype), dtype=np.float64)


def second_moment(chunk: Chunk, q: Q, mu: Array) -> Array:
    """E f_n^2 = mu_n^2 + a_n'S a_n + kt_n."""
    A = chunk.A
    spread = np.einsum("nm,nm->n", A @ q.S.astype(A.dtype), A)
    return mu**2 + np.maximum(spread, 0) + chunk.kt


def expected_labels(likelihood: BagLikelihood, mu: Array, targets: Targets) -> Array:
    """E y_n under the exact joint posterior of a bag's labels: sigmoid(mu) + d log Z / d mu."""
    return likelihood.link.hazard(mu) + likelihood.gradient(mu, targets)


def diagonal_precision(A: Array, lam: Array) -> Precision:
    """Statistics of a diagonal Lambda; `(A * w).T @ A` avoids BLAS's slow syrk path."""
    lam = lam.astype(A.dtype, copy=False)
    weighted = A * lam[:, None]
    return Precision(
        np.asarray(weighted.T @ A, dtype=np.float64),
        np.asarray(weighted.sum(axis=0), dtype=np.float64),
        float(np.sum(lam, dtype=np.float64)),
    )


def project(A: Array, eta: Array) -> Array:
    """A' eta in float64."""
    return np.asarray(eta.astype(A.dtype, copy=False) @ A, dtype=np.float64)
