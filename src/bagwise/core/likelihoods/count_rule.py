"""Bag likelihoods of rules about the number of positive instances.

log p(label_b | z_b) and its derivatives follow from what the label says of the instances
(`counts.counted`). With r(z) the link's hazard, g the gradient and W minus the Hessian,

    g_n = P(y_n = 1 | label) r(-z_n) - P(y_n = 0 | label) r(z_n)                         [Fisher]
    W = E[-d2 log p(y | z) | label] - Cov(d log p(y | z) | label)                         [Louis]

where d log p(y_n | z_n) / dz_n is r(-z_n) for y_n = 1 and -r(z_n) for y_n = 0, so that W is a
diagonal and a few signed squares inside each bag.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.likelihoods.counts import Counts, counted
from bagwise.core.likelihoods.rules import BagRule
from bagwise.core.links import Link

Array = NDArray[Any]

ALMOST_SURE = 1 - 1e-9
STEP = 1e-3  # of differences of gradients, in z
NO_RANK = 1e-9  # of an eigenvalue relative to the largest, that adds nothing


class CountRule(BagLikelihood):
    """log p(label_b | z_b) of a rule over a link, with its derivatives.

    >>> from bagwise.core.likelihoods.rules import AtLeast
    >>> from bagwise.core.links import Logistic
    >>> t = Targets(np.array([0]), np.array([3]), np.array([True]))
    >>> CountRule(Logistic(), AtLeast(2)).log_prob(np.zeros(3), t).round(4)  # log(1/2)
    array([-0.6931])
    """

    takes_weights = False

    def __init__(self, link: Link, rule: BagRule, H: float = np.inf) -> None:
        super().__init__(link, H)
        self.rule = rule
        self.fewest = rule.fewest
        self.highest = max(rule.highest, 0.0)
        self._least_reliable = 0.0

    def with_H(self, H: float) -> CountRule:
        """A finite H says that labels may be wrong; how probably, targets say of each bag."""
        return CountRule(self.link, self.rule, H)

    def as_exact_rule(self) -> CountRule:
        """The same as if all labels were almost surely right, from which a fit may start."""
        exact = self.with_H(np.inf)
        exact._least_reliable = ALMOST_SURE
        return exact

    def log_prob(self, z: Array, targets: Targets) -> Array:
        """log p(label_b, known y | z_b) for each bag, shape (B,)."""
        return self._of_known(z, targets)[0] + self.counts(z, targets).log_prob

    def gradient(self, z: Array, targets: Targets) -> Array:
        """d log p / d z_n, shape (n,)."""
        return self.log_prob_and_gradient(z, targets)[1]

    def log_prob_and_gradient(self, z: Array, targets: Targets) -> tuple[Array, Array]:
        """Both of the above from one pass."""
        known, own = self._of_known(z, targets)
        found = self.counts(z, targets)
        up, down = self.link.hazard(-z), self.link.hazard(z)
        g = found.positive * up - found.negative * down
        return known + found.log_prob, np.where(targets.free, g, own)

    def curvature(self, z: Array, targets: Targets) -> CountCurvature:  # type: ignore[override]
        """Second derivatives."""
        return self.log_prob_and_curvature(z, targets)[1]

    def log_prob_and_curvature(  # type: ignore[override]
        self, z: Array, targets: Targets
    ) -> tuple[Array, CountCurvature]:
        """Both for one pass."""
        known, own = self._of_known(z, targets)
        found = self.counts(z, targets)
        up, down = self.link.hazard(-z), self.link.hazard(z)
        g = found.positive * up - found.negative * down
        bent_up, bent_down = up * self.link.kappa(-z), down * self.link.kappa(z)
        expected = found.positive * bent_up + found.negative * bent_down
        steep = up + down
        F, signs = found.factors
        omega = np.where(targets.free, steep, 0.0)[:, None] * F
        variance = steep**2 * found.positive * found.negative
        w = expected - variance + (omega**2) @ signs
        if targets.known is not None:
            sure = np.where(targets.known == 1, bent_up, bent_down)
            g, w = np.where(targets.free, g, own), np.where(targets.free, w, sure)
        W = CountCurvature(targets, g, w, omega, -signs, z, self)
        return known + found.log_prob, W

    def counts(self, z: Array, targets: Targets) -> Counts:
        """What the labels say of the instances at z."""
        if targets.weights is not None:
            raise ValueError("a rule about counts needs whole bags: rows stand for themselves only")
        logit = self.link.log_negative(-z) - self.link.log_negative(z)
        return self.of_odds(logit, targets)

    def of_odds(self, logit: Array, targets: Targets) -> Counts:
        """The same at log-odds of instances."""
        reliability: Array | float = 1.0
        if targets.reliability is not None:
            reliability = np.maximum(targets.reliability, self._least_reliable)[:, None]
        n, label = targets.sizes[:, None], targets.T[:, None]

        def log_weights(k: Array) -> Array:
            return self.rule.log_label(k, n, label, reliability)

        return counted(logit, targets.starts, targets.sizes, log_weights, targets.known)

    def _of_known(self, z: Array, targets: Targets) -> tuple[Array | float, Array | float]:
        """log P(known y | z) of each bag and its gradient."""
        if targets.known is None:
            return 0.0, 0.0
        sign = np.where(targets.known == 1, -1.0, 1.0)
        own = np.where(targets.free, 0.0, self.link.log_negative(sign * z))
        return targets.sum_bags(own), -sign * self.link.hazard(sign * z)


@dataclass(frozen=True)
class CountCurvature:
    """Gradient g and W = diag(w) + sum_r sign_r omega_r omega_r' inside each bag."""

    targets: Targets
    g: Array  # (n,)
    w: Array  # (n,)
    omega: Array  # (n, R)
    sign: Array  # (R,)
    z: Array  # (n,) where it was taken
    likelihood: CountRule

    def counted(self) -> Self:
        """Derivatives of c_b log p(label_b)."""
        targets = self.targets
        if targets.counts is None:
            return self
        root = targets.spread(np.sqrt(targets.counts))[:, None]
        g, w = targets.counted_rows(self.g), targets.counted_rows(self.w)
        return replace(self, g=g, w=w, omega=root * self.omega)

    def scaled(self, b: Array) -> Self:
        """Gradient and curvature in x of z_n = b_n x_n."""
        return replace(self, g=b * self.g, w=b**2 * self.w, omega=b[:, None] * self.omega)

    def weigh(self, A: Array) -> Array:
        """A' W A, shape (M, M) float64."""
        A = np.asarray(A, dtype=np.float64)
        W = A.T @ self.apply(A)
        return 0.5 * (W + W.T)

    def apply(self, x: Array) -> Array:
        """W x for x of shape (n,) or (n, k)."""
        columns = x.reshape(len(x), -1)
        out = self.w[:, None] * columns
        for rows in self._bags():
            omega = self.omega[rows]
            out[rows] += omega @ (self.sign[:, None] * (omega.T @ columns[rows]))
        return out.reshape(x.shape)

    def trace_gradient(self, A: Array, P_inv: Array) -> Array:
        """t_k = tr(A P^-1 A' dW/dz_k), shape (n,).

        Along eigenvectors of A P^-1 A' within bags, by second differences of the gradient.
        """
        targets, directions = self.targets, self._directions(A, P_inv)
        here = self.likelihood.gradient(self.z, targets)
        t = np.zeros(len(self.z))
        for d in directions.T:
            longest = np.maximum.reduceat(np.abs(d), targets.starts)
            step = STEP / np.where(longest > 0, longest, 1.0)
            move = targets.spread(step) * d
            up, down = (self.likelihood.gradient(self.z + s * move, targets) for s in (1, -1))
            t -= targets.counted_rows((up - here) + (down - here)) / targets.spread(step) ** 2
        return t

    def _directions(self, A: Array, P_inv: Array) -> Array:
        """D (n, most instances of a bag): D D' = A P^-1 A' inside each bag."""
        directions = np.zeros((len(self.z), int(self.targets.sizes.max())))
        for rows in self._bags():
            values, vectors = np.linalg.eigh(A[rows] @ P_inv @ A[rows].T)
            some = values > NO_RANK * values[-1]
            directions[rows, : np.sum(some)] = (vectors * np.sqrt(np.maximum(values, 0)))[:, some]
        return directions[:, np.any(directions != 0, axis=0)]

    def _bags(self) -> list[slice]:
        ends = itertools.pairwise(np.append(self.targets.starts, len(self.w)).tolist())
        return [slice(a, b) for a, b in ends]
