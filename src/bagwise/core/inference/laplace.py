"""Laplace approximation on log p(T_b | f_b), with instance labels integrated out.

Scaled features a_n b_n with b_n = (1 + w kt_n)^(-1/2) fold the residual variance into the link:
exact for the probit, MacKay's approximation for the logistic. With z_n = b_n (c0 + a_n'v)

    evidence(theta, c0) = log p(T | v^) - |v^|^2 / 2 - log|P| / 2,  P = I + A' W A

at the mode v^ [R08, Section 4, with the signs of its Eq. 15-16 corrected]. W holds the
Hessian of the noisy-or likelihood, which is not concave (`newton` damps its steps).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise.core.features import FeatureGradient
from bagwise.core.inference.loop import Trace
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.newton import Summit, cholesky_at_mode, climb
from bagwise.core.inference.newton_probit import LogJoint, watched_climb
from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.stats import Chunk, FoldedLikelihood, Q
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Curvature
from bagwise.core.linalg import inverse_from_cholesky, logdet_from_cholesky

Array = NDArray[Any]


@dataclass(frozen=True)
class Mode(Summit):
    """Laplace posterior N(v, P^-1) and its evidence; at a saddle there are none, and they raise."""

    remedy: ClassVar[str] = "use inference='vi' or raise max_iter"

    @cached_property
    def L(self) -> Array:
        """Cholesky factor of P."""
        return cholesky_at_mode(self.P, self.remedy)

    @cached_property
    def P_inv(self) -> Array:
        """Covariance of v."""
        return inverse_from_cholesky(self.L)

    @property
    def log_volume(self) -> float:
        """What the integral over v adds to the log joint at the mode: -log|P|/2."""
        return -0.5 * logdet_from_cholesky(self.L)

    @property
    def evidence(self) -> float:
        """log p(T) up to the Laplace approximation."""
        return self.value + self.log_volume

    def evidence_trace(self) -> Trace:
        """Newton's path, each log joint with the final curvature: it ends at the evidence."""
        shifted = tuple(value + self.log_volume for value in self.trace.history)
        return Trace(shifted, self.trace.converged)

    def as_q(self, c0: float) -> Q:
        """The posterior in the form the predictions use."""
        return Q(self.v, self.P_inv, c0, 2 * self.log_volume)


class Laplace:
    """Newton's method and evidence for one bag likelihood on one set of chunks."""

    def __init__(self, likelihood: BagLikelihood, sweeper: Sweeper) -> None:
        self.likelihood = likelihood
        self.sweeper = sweeper
        self._folded = FoldedLikelihood(likelihood, likelihood.link.residual_weight)

    def start(self, c0: float) -> Array:
        """Where to climb from: v = 0, or the exact rule's mode where that leads higher.

        With a finite H, v = 0 may lie where all negative bags of some size look mislabelled.
        """
        v = np.zeros(len(self.sweeper.whitener))
        if np.isinf(self.likelihood.H):
            return v
        warm = Laplace(self.likelihood.as_exact_rule(), self.sweeper)._climb(v, c0).v
        return max(v, warm, key=lambda x: self._climb(x, c0).value)

    def _climb(self, v: Array, c0: float) -> Summit:
        """The mode that Newton's method reaches from v, without its curvature."""
        return climb(LogJoint(self._folded, self.sweeper, c0), v, max_iter=100, tol=1e-9)

    def mode(
        self,
        v: Array,
        c0: float,
        *,
        max_iter: int = 100,
        tol: float = 1e-9,
        verbose: int = 0,
        monitor: Monitor | None = None,
        state: State | None = None,
        curvature: bool = True,
    ) -> Mode:
        """Maximise log p(T | v) - |v|^2/2, and take its `curvature` there, or a step before."""
        target = LogJoint(self._folded, self.sweeper, c0)
        summit = watched_climb(target, v, monitor, state, max_iter, tol, verbose, curvature)
        mode = Mode(**vars(summit))
        _ = mode.L  # raises at a saddle, before anything is made of it
        return mode

    def evidence_gradient(self, mode: Mode, c0: float) -> tuple[FeatureGradient, float]:
        """Gradient of the evidence in the features (for theta) and in c0, mode shift included."""
        shift = self._shift(mode, c0)
        return self.sweeper.total(lambda c: self._chunk_gradient(c, mode, c0, shift)).unpack()

    def mean_gradient(self, mode: Mode, c0: float) -> float:
        """Gradient of the evidence in c0 alone."""
        shift = self._shift(mode, c0)
        return self.sweeper.total(lambda c: self._mean_slope(c, mode, c0, shift))

    def _shift(self, mode: Mode, c0: float) -> Array:
        """dE/dv^ turned into a change of gradient."""
        pull = self.sweeper.total(lambda c: self._log_det_pull(c, mode, c0))
        return mode.P_inv @ pull.vector

    def _curvature(self, chunk: Chunk, mode: Mode, c0: float) -> tuple[Array, Array, Curvature]:
        """a_n b_n, b_n, and the derivatives of log p(T) at the mode, as bags count."""
        A, b = self.scaled(chunk)
        return A, b, self.likelihood.curvature(A @ mode.v + c0 * b, chunk.targets).counted()

    def _log_det_pull(self, chunk: Chunk, mode: Mode, c0: float) -> _Vector:
        """A' t: derivative of log|P| with respect to v^."""
        A, _, curvature = self._curvature(chunk, mode, c0)
        return _Vector(A.T @ curvature.trace_gradient(A, mode.P_inv))

    def _chunk_gradient(self, chunk: Chunk, mode: Mode, c0: float, shift: Array) -> _Gradient:
        A, b, curvature = self._curvature(chunk, mode, c0)
        z_bar = self._z_bar(curvature, A, mode, shift)
        WAP = curvature.apply(A @ mode.P_inv)  # half the derivative of log|P| in A
        A_bar = np.outer(z_bar, mode.v) - WAP - 0.5 * np.outer(curvature.g, shift)
        return self._pull_scaling(chunk, A_bar, z_bar, c0, b)

    def _mean_slope(self, chunk: Chunk, mode: Mode, c0: float, shift: Array) -> float:
        A, b, curvature = self._curvature(chunk, mode, c0)
        return float(self._z_bar(curvature, A, mode, shift) @ b)

    def _z_bar(self, curvature: Curvature, A: Array, mode: Mode, shift: Array) -> Array:
        """z moves the log joint by g, log|P| by t, and the mode through W A P^-1 A't."""
        t = curvature.trace_gradient(A, mode.P_inv)
        return curvature.g - 0.5 * t + 0.5 * curvature.apply(A @ shift)

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
        b = self._folded.scale(chunk.kt)
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
