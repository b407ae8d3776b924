"""What passes over the data add up, and the sites of which each model has its own.

Sites say how a model turns bag labels into a quadratic in f: every instance gets a precision Lambda
and a linear term eta (design: P = I + A' Lambda A, m = P^-1 A'(eta - c0 Lambda 1)). `local_step` is
pure: it reads a chunk and the current q and returns additive `Stats`; chunks are cut between bags,
so that sums over chunks are all that a fit gathers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from bagwise.core.likelihoods.at_least_one import BagLikelihood, SecondOrder, Targets
from bagwise.core.linalg import weighted_gram

Array = NDArray[Any]
Values = dict[str, Array]  # of instances, by name


@dataclass(frozen=True)
class Chunk:
    """Consecutive whole bags with their whitened features."""

    X: Any  # (n, D), in the units the kernel sees; read when converted to an array
    A: Array  # (n, M)
    kt: Array  # (n,)
    targets: Targets
    start: int = 0  # first row in the whole data
    graph: Any = None  # sparse (n, n) neighbours, for coupled models

    @cached_property
    def squares(self) -> Array:
        """|a_n|^2, (n,)."""
        return np.einsum("nm,nm->n", self.A, self.A)


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
class Sums:
    """What is known of chunks together is the sum of what is known of each."""

    def __add__(self, other: Self) -> Self:
        pairs = ((getattr(self, own.name), getattr(other, own.name)) for own in fields(self))
        return type(self)(*(one + another for one, another in pairs))


@dataclass(frozen=True)
class Precision(Sums):
    """The part of the statistics that depends on Lambda alone."""

    AtLA: Array  # (M, M) A' Lambda A
    AtL1: Array  # (M,) A' Lambda 1
    oneL1: float  # 1' Lambda 1


@dataclass(frozen=True)
class Stats(Sums):
    """What a sweep gathers: additive over chunks."""

    AtEta: Array  # (M,) A' eta
    oneEta: float  # 1' eta
    bound: float  # ELBO terms of these bags at the incoming q
    precision: Precision

    def as_vector(self) -> Array:
        """What acceleration extrapolates."""
        p = self.precision
        return np.concatenate([self.AtEta, [self.oneEta], p.AtL1, [p.oneL1], p.AtLA.ravel()])

    @classmethod
    def from_vector(cls, x: Array, M: int) -> Stats:
        """Statistics of `as_vector`; their bound is unknown (NaN)."""
        precision = Precision(x[2 * M + 2 :].reshape(M, M), x[M + 1 : 2 * M + 1], x[2 * M + 1])
        return cls(x[:M], float(x[M]), np.nan, precision)


@dataclass(frozen=True)
class Slope(Sums):
    """log p(T | m, c0) of some bags, with its gradient in (m, c0)."""

    log_prob: float
    gradient: Array  # (M + 1,)


@dataclass(frozen=True)
class Derivatives(Sums):
    """log p(T | m, c0) of some bags, with gradient and negative Hessian in (m, c0)."""

    log_prob: float
    gradient: Array  # (M + 1,)
    neg_hessian: Array  # (M + 1, M + 1)


class LogLikelihood(Protocol):
    """log p(T | m, c0) of a chunk's bags as Newton's method sees it."""

    def log_prob(self, chunk: Chunk, m: Array, c0: float) -> float:
        """Sum of log p(T_b | m, c0)."""

    def derivatives(self, chunk: Chunk, m: Array, c0: float) -> Derivatives:
        """The same with gradient and negative Hessian."""


class Sites(ABC):
    """A model of bag labels given f, seen by the variational loop."""

    solver = "sweeps"  # a key of `solvers.SOLVERS`: how the bound is climbed
    stateful = False  # local values depend on earlier sweeps, not on q alone
    bound_learns_mean = False  # c0 may follow the bound: true where that behaves
    warm_start: Sites | None = None  # sites whose optimal q is a better start than N(0, I)
    plain_start_too = False  # N(0, I) may lead to a better optimum all the same

    def start(self, chunk: Chunk, q: Q) -> Stats:
        """Statistics from which the first q is solved."""
        return self.local_step(chunk, q)

    def snapshot(self) -> Callable[[], dict[str, Array]]:
        """Makes the values per instance as they are now, for models that carry any."""
        return dict

    def restore(self, values: dict[str, Array], first_row: int = 0) -> None:
        """Go on from values that `snapshot` made, of rows from `first_row` on."""

    @abstractmethod
    def local_step(self, chunk: Chunk, q: Q) -> Stats:
        """Update the local variables at `q` and return this chunk's statistics."""

    def with_likelihood(self, likelihood: BagLikelihood) -> Sites:
        """The same model with another H, for models that can learn it."""
        raise NotImplementedError

    def global_bound(self, q: Q, precision: Precision) -> float:
        """ELBO terms that need no pass over the data, besides -KL."""
        return 0.0


class ClimbableSites(Sites):
    """Sites whose Lambda does not depend on q.

    Over q(v) the bound is log p(T | m, c0) - |m|^2 / 2 plus a constant, which Newton's method
    maximises in fewer passes than coordinate ascent.
    """

    solver = "newton"
    bound_learns_mean = True  # the logistic bound drives it far down instead

    @abstractmethod
    def precision(self, chunk: Chunk) -> Precision:
        """Statistics of Lambda."""

    @abstractmethod
    def constant_bound(self, chunk: Chunk) -> float:
        """ELBO terms that depend neither on m nor on S."""

    @abstractmethod
    def log_prob(self, chunk: Chunk, m: Array, c0: float) -> float:
        """Sum of log p(T_b | m, c0)."""

    @abstractmethod
    def derivatives(self, chunk: Chunk, m: Array, c0: float) -> Derivatives:
        """The same with gradient and negative Hessian."""

    def global_bound(self, q: Q, precision: Precision) -> float:
        return trace_bound(q, precision)


class StatefulSites(Sites):
    """Local values that the next sweep starts from, kept by chunk.

    They start from `init` (by name, in the row order of ``bags.X``) or from q.
    """

    stateful = True

    def __init__(self, likelihood: BagLikelihood, init: Values | None = None) -> None:
        self.likelihood = likelihood
        self.init = init or {}
        self._kept: dict[int, Values] = {}
        self._restored: Values = {}
        self._first_row = 0  # of the values restored

    def snapshot(self) -> Callable[[], Values]:
        kept = dict(self._kept)  # updates replace values, they do not change them

        def join() -> Values:
            parts = [kept[start] for start in sorted(kept)]
            return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}

        return join

    def restore(self, values: Values, first_row: int = 0) -> None:
        self._kept = {}
        self._restored, self._first_row = values, first_row

    def start(self, chunk: Chunk, q: Q) -> Stats:
        """Statistics of the starting values, before any update."""
        values = self.starting_values(chunk, q)
        rows = slice(chunk.start, chunk.start + len(chunk.A))
        values |= {name: np.asarray(v, float)[rows] for name, v in self.init.items()}
        self._kept[chunk.start] = values
        return self.stats(chunk, q, values)

    def local_step(self, chunk: Chunk, q: Q) -> Stats:
        values = self.update(chunk, q, self._values_of(chunk))
        self._kept[chunk.start] = values
        return self.stats(chunk, q, values)

    def _values_of(self, chunk: Chunk) -> Values:
        if chunk.start not in self._kept:
            start = chunk.start - self._first_row
            rows = slice(start, start + len(chunk.A))
            self._kept[chunk.start] = {name: v[rows] for name, v in self._restored.items()}
        return self._kept[chunk.start]

    @abstractmethod
    def starting_values(self, chunk: Chunk, q: Q) -> Values:
        """What is taken for values that `init` does not give."""

    @abstractmethod
    def update(self, chunk: Chunk, q: Q, old: Values) -> Values:
        """One pass of local updates."""

    @abstractmethod
    def stats(self, chunk: Chunk, q: Q, values: Values) -> Stats:
        """Gaussian sites and objective for given local values."""


def trace_bound(q: Q, precision: Precision) -> float:
    """-1/2 tr(Lambda A S A')."""
    return -0.5 * float(np.sum(precision.AtLA * q.S))


@dataclass(frozen=True)
class FoldedLikelihood:
    """Bag likelihood of z_n = b_n (c0 + a_n'm), b_n = (1 + w kt_n)^(-1/2).

    The scale b folds the residual variance kt into the link: exact for the probit (w = 1),
    MacKay's approximation for the logistic; w = 0 leaves it out.
    """

    likelihood: BagLikelihood
    residual_weight: float

    def scale(self, kt: Array) -> Array:
        """b_n in float64."""
        return 1 / np.sqrt(1 + self.residual_weight * np.asarray(kt, dtype=np.float64))

    def log_prob(self, chunk: Chunk, m: Array, c0: float) -> float:
        """Sum of log p(T_b | m, c0)."""
        z = self.scale(chunk.kt) * latent(chunk, m, c0)
        return chunk.targets.total_of_bags(self.likelihood.log_prob(z, chunk.targets))

    def derivatives(self, chunk: Chunk, m: Array, c0: float) -> Derivatives:
        """The same with gradient and negative Hessian."""
        b = self.scale(chunk.kt)
        z = b * latent(chunk, m, c0)
        log_prob, curvature = self.likelihood.log_prob_and_curvature(z, chunk.targets)
        total = chunk.targets.total_of_bags(log_prob)
        return projected(chunk.A, total, curvature.scaled(b))

    def slope(self, chunk: Chunk, m: Array, c0: float) -> Slope:
        """The same without the Hessian, at a fifth of the time where M is in the hundreds."""
        b = self.scale(chunk.kt)
        log_prob, g = self.likelihood.log_prob_and_gradient(b * latent(chunk, m, c0), chunk.targets)
        return sloping(chunk, chunk.targets.total_of_bags(log_prob), b * g)


def sloping(chunk: Chunk, log_prob: float, g: Array) -> Slope:
    """The gradient in (m, c0) from that of one bag each in mu = c0 + A m."""
    g = chunk.targets.counted_rows(g)
    return Slope(log_prob, np.append(project(chunk.A, g), g.sum()))


def projected(A: Array, log_prob: float, second: SecondOrder) -> Derivatives:
    """Derivatives in (m, c0) from those of one bag each in mu = c0 + A m."""
    second, M = second.counted(), A.shape[1]
    W1 = second.apply(np.ones(len(A)))
    neg_hessian = np.empty((M + 1, M + 1))
    neg_hessian[:M, :M] = second.weigh(A)
    along, neg_hessian[M, :M] = project(A, np.stack([second.g, W1]))
    neg_hessian[:M, M] = neg_hessian[M, :M]
    neg_hessian[M, M] = W1.sum()
    return Derivatives(log_prob, np.append(along, second.g.sum()), neg_hessian)


def latent(chunk: Chunk, m: Array, c0: float) -> Array:
    """mu_n = c0 + a_n'm in float64."""
    return c0 + np.asarray(chunk.A @ m.astype(chunk.A.dtype), dtype=np.float64)


def latent_mean(chunk: Chunk, q: Q) -> Array:
    """E f_n under q."""
    return latent(chunk, q.m, q.c0)


def second_moment(chunk: Chunk, q: Q, mu: Array) -> Array:
    """E f_n^2 = mu_n^2 + a_n'S a_n + kt_n."""
    return mu**2 + latent_variance(chunk, q.S)


def latent_variance(chunk: Chunk, S: Array) -> Array:
    """Var f_n = a_n'S a_n + kt_n."""
    A = chunk.A
    return np.maximum(np.einsum("nm,nm->n", A @ S.astype(A.dtype), A), 0) + chunk.kt


def diagonal_stats(chunk: Chunk, eta: Array, lam: Array, bound: float) -> Stats:
    """Statistics of sites with linear terms eta and a diagonal Lambda, as bags count."""
    eta = chunk.targets.counted_rows(eta)
    precision = diagonal_precision(chunk.A, chunk.targets.counted_rows(lam))
    return Stats(project(chunk.A, eta), float(eta.sum()), bound, precision)


def diagonal_precision(A: Array, lam: Array) -> Precision:
    """Statistics of a diagonal Lambda."""
    return Precision(weighted_gram(A, lam), project(A, lam), float(np.sum(lam, dtype=np.float64)))


def project(A: Array, eta: Array) -> Array:
    """A' eta of one eta (n,) or some (k, n), in float64."""
    return np.asarray(eta.astype(A.dtype, copy=False) @ A, dtype=np.float64)
