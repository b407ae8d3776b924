"""Moments of coupled bags given their labels, with derivatives in f [M24]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.likelihoods.coupled.blocks import CoupledPrior
from bagwise.core.likelihoods.coupled.ep import Orthant, Signs, orthant_ep
from bagwise.core.likelihoods.coupled.tridiagonal import Factor
from bagwise.core.links import Probit

Array = NDArray[Any]

TINY = 1e-280  # probabilities of a positive bag below it are computed in logarithms
STEEP = 1e4  # from this slope d log(1 - P0) / d log P0 on a positive bag holds one positive


@dataclass(frozen=True)
class BagMoments:
    """E[m_b | T_b], log P(T_b), and what a warm start and the derivatives need."""

    Em: Array  # (n,)
    log_prob: Array  # (B,)
    known: Orthant | None = None  # signs of known negatives in otherwise open positive bags
    signs: Orthant | None = None  # all other signs, given those
    slope: Array | None = None  # (B,) d log P(T_b) / d log P(signs): 1, or -P0 / (1 - P0)

    def require_signs(self) -> tuple[Orthant, Array]:
        """EP's result and the slope, which diagonal moments do not have."""
        if self.signs is None or self.slope is None:
            raise ValueError("derivatives need EP moments; got diagonal ones")
        return self.signs, self.slope


def orthant_diagonal(mean: Array, variance: Array, targets: Targets) -> BagMoments:
    """Moments if m_1, ..., m_n were independent with these variances [M24, Eq. 19-20].

    Exact for lam = 0; the published approximation (`moments="diagonal"`) otherwise.
    """
    sd = np.sqrt(variance)
    likelihood = BagLikelihood(Probit())
    z = mean / sd
    Em = mean + sd * likelihood.gradient(z, targets)
    return BagMoments(Em, likelihood.log_prob(z, targets))


def bag_moments(
    prior: CoupledPrior,
    mu: Array,
    targets: Targets,
    warm: BagMoments | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 200,
) -> BagMoments:
    """E[m_b | T_b, known labels] and log P(T_b, known labels) by EP; start from `warm` if given.

    Positive bags by complement, E[m | some m > 0] = E m - (E[m | all m < 0] - E m) P0 / (1 - P0).
    """
    mean = prior.mean(mu)
    if prior.independent:
        return orthant_diagonal(mean, prior.variance, targets)
    known_signs, signs = _split_signs(targets)
    known, log_known = None, np.zeros(len(targets.starts))
    if np.any(known_signs):
        old = warm.known.sites if warm and warm.known else None
        known = orthant_ep(
            prior, mean, known_signs, targets.starts, old, tol=tol, max_iter=max_iter
        )
        mean, log_known = mean + known.shift, known.log_prob
    found = orthant_ep(
        prior,
        mean,
        signs,
        targets.starts,
        warm.signs.sites if warm and warm.signs else None,
        given=known.sites if known else None,
        tol=tol,
        max_iter=max_iter,
    )
    by_complement = targets.T & ~targets.settled
    log_prob, slope = _complement(found.log_prob, by_complement)
    Em = mean + targets.spread(slope) * found.shift
    lost = by_complement & ~(found.log_prob < -TINY)
    if np.any(lost):
        base = known.sites.require_factor() if known else prior.start
        Em, log_prob = _rare_positives(Em, log_prob, mean, base, signs, targets, lost)
    return BagMoments(Em, log_known + log_prob, known, found, slope)


def _split_signs(targets: Targets) -> tuple[Signs, Signs]:
    """Signs that come first (known negatives of open positive bags), and all the others."""
    open_bag = targets.spread(targets.T & ~targets.settled)
    own = np.zeros(len(open_bag), dtype=np.int8)
    if targets.known is not None:
        own = np.where(targets.free, 0, np.where(targets.known == 1, 1, -1)).astype(np.int8)
    first = np.where(open_bag, own, 0).astype(np.int8)
    unsettled = targets.free & ~targets.spread(targets.settled)
    second = np.where(unsettled, -1, np.where(open_bag, 0, own)).astype(np.int8)
    return first, second


def _complement(log_P0: Array, by_complement: Array) -> tuple[Array, Array]:
    """log P(T_b) and d log P(T_b) / d log P0: log P0 itself, or log(1 - P0) where asked."""
    safe = np.where(by_complement, np.minimum(log_P0, -TINY), -1.0)
    slope = np.where(by_complement, -1 / np.expm1(np.minimum(-safe, 700.0)), 1.0)
    return np.where(by_complement, np.log(-np.expm1(safe)), log_P0), slope


def _rare_positives(
    Em: Array,
    log_prob: Array,
    mean: Array,
    base: Factor,
    signs: Signs,
    targets: Targets,
    bags: Array,
) -> tuple[Array, Array]:
    """Limit for P0 -> 1: one positive, n with weight w_n ~ Phi(z_n); C[w phi(z)/(sd Phi(z))]."""
    w, hazard, _, log_total = _one_positive(mean, base, signs, targets)
    limit = mean + base.solve(w * hazard)
    return np.where(targets.spread(bags), limit, Em), np.where(bags, log_total, log_prob)


def _one_positive(
    mean: Array, base: Factor, signs: Signs, targets: Targets
) -> tuple[Array, Array, Array, Array]:
    """Weights w_n ~ Phi(z_n), phi(z)/(sd Phi(z)), z / sd, and log sum_n Phi(z_n) per bag."""
    sd = np.sqrt(base.variance)
    z = mean / sd
    log_tail = np.where(signs != 0, special.log_ndtr(z), -np.inf)
    top = np.maximum.reduceat(log_tail, targets.starts)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        log_total = top + np.log(targets.sum_bags(np.exp(log_tail - targets.spread(top))))
    some = np.where(np.isfinite(log_total), log_total, 0.0)
    w = np.exp(log_tail - targets.spread(some))
    return w, Probit().hazard(-z) / sd, z / sd, log_total


def neg_hessian(
    prior: CoupledPrior, A: Array, mu: Array, moments: BagMoments, targets: Targets
) -> Array:
    """-d2 log P(T | mu = A x) / dx dx', with the covariances of m that EP found, (k, k).

    Given signs, log P has the Hessian G'(Cov[m | signs] - Cov[m])G, G = Q Lambda A; positive
    bags follow by the chain rule from log P0 to log(1 - P0). Next to P0 = 1, where that is a
    difference of huge numbers, they take the limit log sum_n Phi(z_n). Bags count as they do in the
    sum of log P(T).
    """
    G = prior.pull(A)
    counted_G = targets.counted_rows(G)
    J = prior.mean(A)  # d E[m] / dx
    mean, base = prior.mean(mu), prior.start
    total = np.zeros((A.shape[1], A.shape[1]))
    if moments.known is not None:
        mean, base = mean + moments.known.shift, moments.known.sites.require_factor()
        J, before = base.solve(G), J
        total += counted_G.T @ (before - J)
    found, slope = moments.require_signs()
    steep, by_complement = slope < -STEEP, slope < 0
    after = found.sites.require_factor().solve(G)
    rows = targets.spread(np.where(steep, 0.0, slope))[:, None]
    total += (rows * counted_G).T @ (J - after)
    B = np.where(steep, 0.0, slope)[:, None] * targets.sum_bags(found.shift[:, None] * G)
    if np.any(steep):
        _, signs = _split_signs(targets)
        w, hazard, z, _ = _one_positive(mean, base, signs, targets)
        w = np.where(targets.spread(steep), w * hazard, 0.0)[:, None]
        total += targets.counted_rows(w * z[:, None] * J).T @ J
        B += targets.sum_bags(w * J)
    # B = d log(1 - P0) / dx, and -F'' = F'^2 - F' for F = log(1 - P0) in terms of log P0.
    steepness = np.where(by_complement, 1 - 1 / np.where(by_complement, slope, -1.0), 0.0)
    total += (targets.counted_bags(steepness)[:, None] * B).T @ B
    return 0.5 * (total + total.T)
