"""Laplace approximation on log p(T_b | f_b), with instance labels integrated out.

Scaled features a_n b_n with b_n = (1 + w kt_n)^(-1/2) fold the residual variance into the link:
exact for the probit, MacKay's approximation for the logistic. With z_n = b_n (c0 + a_n'v)

    evidence(theta, c0) = log p(T | v^) - |v^|^2 / 2 - log|P| / 2,  P = I + A' W A

at the mode v^ [R08, Section 4, with the signs of its Eq. 15-16 corrected]. W holds the
Hessian of the noisy-or likelihood, which is not concave: Newton steps are damped on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.execution import Sweeper
from bagwise.features import FeatureGradient
from bagwise.infer.loop import Trace
from bagwise.infer.newton import cholesky_at_mode, climb
from bagwise.labels import BagLikelihood
from bagwise.linalg import inverse_from_cholesky, logdet_from_cholesky
from bagwise.sites import Chunk, Q

Array = NDArray[Any]


@dataclass(frozen=True)
class _Sums:
    """Additive pieces of the log joint density at one v."""

    log_prob: float
    gradient: Array  # (M,)
    hessian: Array  # (M, M) of -log p

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.log_prob + other.log_prob,
            self.gradient + other.gradient,
            self.hessian + other.hessian,
        )


@dataclass(frozen=True)
class Mode:
    """Laplace posterior N(v, P^-1) and its evidence."""

    v: Array
    P_inv: Array
    log_det_P: float
    log_joint: float
    trace: Trace

    @property
    def evidence(self) -> float:
        """log p(T) up to the Laplace approximation."""
        return self.log_joint - 0.5 * self.log_det_P

    def evidence_trace(self) -> Trace:
        """Newton's path, each log joint with the final curvature: it ends at the evidence."""
        shifted = tuple(value - 0.5 * self.log_det_P for value in self.trace.history)
        return Trace(shifted, self.trace.converged)

    def as_q(self, c0: float) -> Q:
        """The posterior in the form the predictions use."""
        return Q(self.v, self.P_inv, c0, -self.log_det_P)


class _LogJoint:
    """log p(T, v) as a function of v alone."""

    def __init__(self, laplace: Laplace, c0: float) -> None:
        self.laplace = laplace
        self.c0 = c0

    def value(self, v: Array) -> float:
        return self.laplace.log_joint(v, self.c0)

    def derivatives(self, v: Array) -> tuple[Array, Array]:
        sums = self.laplace.sums(v, self.c0)
        return sums.gradient - v, np.eye(len(v)) + sums.hessian


class Laplace:
    """Newton's method and evidence for one bag likelihood on one set of chunks."""

    def __init__(self, likelihood: BagLikelihood, sweeper: Sweeper) -> None:
        self.likelihood = likelihood
        self.sweeper = sweeper

    def mode(
        self, v: Array, c0: float, *, max_iter: int = 100, tol: float = 1e-9, verbose: int = 0
    ) -> Mode:
        """Maximise log p(T | v) - |v|^2/2 by damped Newton steps with a line search."""
        summit = climb(_LogJoint(self, c0), v, max_iter=max_iter, tol=tol, verbose=verbose)
        L = cholesky_at_mode(summit.P)
        P_inv, log_det = inverse_from_cholesky(L), logdet_from_cholesky(L)
        return Mode(summit.v, P_inv, log_det, summit.value, summit.trace)

    def evidence_gradient(self, mode: Mode, c0: float) -> tuple[FeatureGradient, float]:
        """Gradient of the evidence in the features (for theta) and in c0, mode shift included."""
        pull = self.sweeper.total(lambda c: self._log_det_pull(c, mode, c0))
        shift = mode.P_inv @ pull.vector  # dE/dv^ turned into a change of gradient
        return self.sweeper.total(lambda c: self._chunk_gradient(c, mode, c0, shift)).unpack()

    def log_joint(self, v: Array, c0: float) -> float:
        """log p(T | v) - |v|^2/2, without derivatives."""
        return self.sweeper.total(lambda c: self._chunk_log_prob(c, v, c0)) - 0.5 * float(v @ v)

    def _chunk_log_prob(self, chunk: Chunk, v: Array, c0: float) -> float:
        A, b = self.scaled(chunk)
        return float(np.sum(self.likelihood.log_prob(A @ v + c0 * b, chunk.targets)))

    def sums(self, v: Array, c0: float) -> _Sums:
        """log p(T | v) with its derivatives."""
        return self.sweeper.total(lambda c: self._chunk_sums(c, v, c0))

    def _chunk_sums(self, chunk: Chunk, v: Array, c0: float) -> _Sums:
        A, b = self.scaled(chunk)
        z = A @ v + c0 * b
        curvature = self.likelihood.curvature(z, chunk.targets)
        log_prob = float(np.sum(self.likelihood.log_prob(z, chunk.targets)))
        return _Sums(log_prob, A.T @ curvature.g, curvature.weigh(A))

    def _log_det_pull(self, chunk: Chunk, mode: Mode, c0: float) -> _Vector:
        """A' t: derivative of log|P| with respect to v^."""
        A, b = self.scaled(chunk)
        curvature = self.likelihood.curvature(A @ mode.v + c0 * b, chunk.targets)
        return _Vector(A.T @ curvature.trace_gradient(A, mode.P_inv))

    def _chunk_gradient(self, chunk: Chunk, mode: Mode, c0: float, shift: Array) -> _Gradient:
        A, b = self.scaled(chunk)
        curvature = self.likelihood.curvature(A @ mode.v + c0 * b, chunk.targets)
        t = curvature.trace_gradient(A, mode.P_inv)
        # z moves the log joint by g, log|P| by t, and the mode through W A P^-1 A't.
        moved = A @ shift
        z_bar = curvature.g - 0.5 * t + 0.5 * curvature.apply(moved)
        WAP = curvature.apply(A @ mode.P_inv)  # half the derivative of log|P| in A
        A_bar = np.outer(z_bar, mode.v) - WAP - 0.5 * np.outer(curvature.g, shift)
        return self._pull_scaling(chunk, A_bar, z_bar, c0, b)

    def _pull_scaling(
        self, chunk: Chunk, A_bar: Array, z_bar: Array, c0: float, b: Array
    ) -> _Gradient:
        """Undo the scaling a_n b_n, c0 b_n and pull back to kernel hyperparameters."""
        raw = np.asarray(chunk.A, dtype=np.float64)
        b_bar = np.einsum("nm,nm->n", A_bar, raw) + c0 * z_bar
        kt_bar = -0.5 * self.likelihood.link.residual_weight * b**3 * b_bar
        X = np.asarray(chunk.X, dtype=np.float64)
        features = self.sweeper.whitener.pullback(X, raw, A_bar * b[:, None], kt_bar)
        return _Gradient(features, float(z_bar @ b))

    def scaled(self, chunk: Chunk) -> tuple[Array, Array]:
        """a_n b_n and b_n, in float64."""
        kt = np.asarray(chunk.kt, dtype=np.float64)
        b = 1 / np.sqrt(1 + self.likelihood.link.residual_weight * kt)
        return np.asarray(chunk.A, dtype=np.float64) * b[:, None], b


@dataclass(frozen=True)
class _Vector:
    vector: Array

    def __add__(self, other: _Vector) -> _Vector:
        return _Vector(self.vector + other.vector)


@dataclass(frozen=True)
class _Gradient:
    features: FeatureGradient
    c0: float

    def __add__(self, other: _Gradient) -> _Gradient:
        return _Gradient(self.features + other.features, self.c0 + other.c0)

    def unpack(self) -> tuple[FeatureGradient, float]:
        return self.features, self.c0
