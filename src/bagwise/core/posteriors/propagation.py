"""P0 = E prod_n P(y_n = 0 | f_n) of bags by expectation propagation (EP): no points at all.

In a bag f ~ N(mu, C). EP puts a site exp(nu_n f_n - tau_n f_n^2 / 2) in the place of each
P(y_n = 0 | f_n), such that mean and variance of f_n are those of its tilted density, cavity times
P(y_n = 0 | f_n) (Minka 2001; [M24] truncates the same Gaussians). What that log P0 misses begins
with products of the third and of the fourth cumulants of two tilted densities (Opper, Paquet and
Winther 2013). They are added, and where they are large, as in bags of near copies, EP is not to be
trusted and points take over (`core/posteriors/joint.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.links import Link, Moments, Tilt
from bagwise.core.posteriors.bag_covariances import Covariances, UnderSites, matrices_times
from bagwise.core.residuals import Stack, stacks

Array = NDArray[Any]
Flags = NDArray[np.bool_]

NUMBERS_AT_ONCE = 2**18  # in a stack of covariances, 2 MiB
LARGEST = 1024  # rows of a bag that have to do with each other: matrices are that large
TRUSTED, SHARE = 3e-3, 0.05  # largest correction, of log P0 and relative to it
SECOND_SHARE = 0.2  # largest one of log E[P0^2] - 2 log E[P0], relative to that
MOST_STEPS, SHRINKING = 12, 0.9  # each step's error is at most that share of the last one's
ROUGH_STEPS, WEAK = 2, 0.7  # steps, and the square of |F| up to which they are sound
TOLERANCE = 1e-3  # of means and precisions; the error of log P0 is of second order in it
NO_SITE = 1e-9  # least precision of a site, in units of that of f


def bag_moments(
    link: Link,
    alone: Moments,
    mean: Array,
    starts: Array,
    matter: tuple[Array, Array],
    covariances: Callable[[Stack], Covariances],
    *,
    second: bool,
) -> tuple[Moments, Flags, Flags]:
    """Moments of P0 of each bag, and whether first and second ones are to be trusted.

    `alone` is what is known of each instance (n,), `mean` that of its f; `matter` has the rows by
    falling importance within their bags, and how many of a bag have to do with each other; their
    `covariances` are asked for a stack of bags at a time. Unless asked for, second moments are
    those of independent instances, and not trusted.
    """
    negative = np.add.reduceat(alone.log_negative, starts)
    ratio = np.add.reduceat(alone.log_ratio, starts)
    order, counts = matter
    trusted = counts <= LARGEST
    too = trusted & second
    with np.errstate(all="ignore"):  # what is beyond all numbers is not trusted
        for stack in stacks(order, starts, np.where(trusted, counts, 0), NUMBERS_AT_ONCE):
            bags, own = stack.bags, stack.own
            prior = np.where(own, mean[stack.rows], 0.0), covariances(stack)
            one = propagate(link, *prior, own)
            negative[bags] += one.value
            trusted[bags] = one.small_beside(np.minimum(TRUSTED, SHARE * np.abs(negative[bags])))
            if second:
                two = propagate(link, *prior, own, 2, (2 * one.tau, 2 * one.nu))
                ratio[bags] += two.value - 2 * one.value
                too[bags] = two.small_beside(SECOND_SHARE * ratio[bags] - 2 * one.size)
        positive = np.log(-np.expm1(np.minimum(negative, 0.0)))
    return Moments(negative, positive, np.maximum(ratio, 0.0)), trusted, too


@dataclass(frozen=True)
class Interaction:
    """What the instances of bags (B,) have to do with each other.

    `value` is log E prod_n P_n - sum_n log E P_n, with the correction by cumulants.
    """

    value: Array
    size: Array  # of the correction's terms
    converged: Flags
    tau: Array  # (B, w)
    nu: Array

    def small_beside(self, allowed: Array) -> Flags:
        """Whether cumulants have added no more than that."""
        with np.errstate(invalid="ignore"):  # NaN is not small
            return self.converged & (self.size <= allowed)


@dataclass(frozen=True)
class _Fit:
    """Gaussian posteriors of f under sites, and what is tilted in the places of these."""

    V: UnderSites  # covariance of f
    mean: Array  # (B, w)
    shift: Array  # mean - mu
    cavity_variance: Array
    removed: Array  # mean - cavity mean
    tilt: Tilt


def propagate(
    link: Link,
    mu: Array,
    C: Covariances,
    own: Flags,
    power: int = 1,
    start: tuple[Array, Array] | None = None,
) -> Interaction:
    """Sites for P(y_n = 0 | f_n)^power of bags (B, w); rows that are no bag's own have none.

    A bag stops by its own error, so that its answer does not depend on its company.
    """
    alone = link.tilted(mu, C.variance, power).where(own)
    # Rounding must not leave sites that are none: variances follow from their precisions.
    floor = np.where(own, NO_SITE / np.maximum(C.variance, NO_SITE), 0.0)
    tau, nu = _matched(alone, mu, C.variance, floor) if start is None else start
    tau, nu = _nearer(link, mu, C, own, tau, nu, floor, power)
    value, size = np.full((2, len(mu)), np.nan)
    converged, last = np.zeros(len(mu), dtype=bool), np.full(len(mu), np.inf)
    left = np.flatnonzero(np.all(np.isfinite(tau + nu), axis=1))
    for _ in range(MOST_STEPS):
        fit = _fit(link, mu[left], C.of(left), own[left], tau[left], nu[left], power)
        new = _matched(fit.tilt, fit.mean - fit.removed, fit.cavity_variance, floor[left])
        error = _error(fit, new[0] - tau[left], new[1] - nu[left])
        done = error < TOLERANCE
        at, ended = left[done], _some(fit, done)
        added, size[at] = _cumulants(ended)
        value[at] = _log_mass(ended, tau[at], nu[at]) - alone.log_mass[at].sum(axis=1) + added
        converged[at] = True
        go_on = ~done & (error < SHRINKING * last[left])  # NaN does not
        last[left] = error
        left = left[go_on]
        if len(left) == 0:
            break
        tau[left], nu[left] = new[0][go_on], new[1][go_on]
    return Interaction(value, size, converged, tau, nu)


def _nearer(
    link: Link,
    mu: Array,
    C: Covariances,
    own: Flags,
    tau: Array,
    nu: Array,
    floor: Array,
    power: int,
) -> tuple[Array, Array]:
    """Sites that are nearer to matching, for matrices times vectors only.

    B = d^(1/2) (I + F) d^(1/2), d its diagonal: where F is small, (B^-1)_nn is about
    (1 + sum_j F_nj^2) / d_n, and means follow from Jacobi's iteration.
    """
    variance = C.variance
    weak, shift, new = None, np.zeros_like(mu), (tau, nu)
    for _ in range(ROUGH_STEPS):
        t, n = new
        d = 1 + t * variance
        others = C.others_times(t / d) / d
        if weak is None:
            weak = np.sum(t * others, axis=1) < WEAK  # |F|^2: Jacobi's iteration converges
            if not np.any(weak):
                return tau, nu
        v = np.maximum(variance - others, 0.5 * variance) / d
        for _ in range(2):
            shift = shift + (C.times(n - t * (mu + shift)) - shift) / d
        mean = mu + shift
        cavity = v / np.maximum(1 - t * v, 1e-10)
        before = mean - cavity * (n - t * mean)
        new = _matched(link.tilted(before, cavity, power).where(own), before, cavity, floor)
    usable = weak & np.all(np.isfinite(new), axis=(0, 2))
    return np.where(usable[:, None], new[0], tau), np.where(usable[:, None], new[1], nu)


def _matched(tilt: Tilt, mean: Array, variance: Array, floor: Array) -> tuple[Array, Array]:
    """tau, nu that make the Gaussian N(mean, variance) what the tilted density is in two moments.

    The derivatives of log E P in the mean are slope and -curvature: the tilted mean is mean +
    variance slope, the tilted variance variance (1 - variance curvature).
    """
    kept = np.maximum(1 - variance * tilt.curvature, 1e-10)
    tau = np.maximum(tilt.curvature / kept, floor)
    return tau, (tilt.slope + mean * tilt.curvature) / kept


def _fit(
    link: Link, mu: Array, C: Covariances, own: Flags, tau: Array, nu: Array, power: int
) -> _Fit:
    V = C.under(tau)
    cavity_variance = V.variance / V.share
    shift = V.times(nu - tau * mu)
    mean = mu + shift
    removed = cavity_variance * (nu - tau * mean)
    tilt = link.tilted(mean - removed, cavity_variance, power).where(own)
    return _Fit(V, mean, shift, cavity_variance, removed, tilt)


def _some(fit: _Fit, bags: Flags) -> _Fit:
    own = {
        name: getattr(fit, name)[bags] for name in ("mean", "shift", "cavity_variance", "removed")
    }
    return _Fit(V=fit.V.of(bags), tilt=Tilt(*(x[bags] for x in fit.tilt)), **own)


def _error(fit: _Fit, tau_step: Array, nu_step: Array) -> Array:
    """How far the next sites would move means and variances of f, the worst of each bag.

    Many sites that are each nearly right may be far off together.
    """
    variance = np.maximum(fit.V.variance, 1e-300)
    of_means = np.abs(fit.V.times(nu_step - tau_step * fit.mean)) / np.sqrt(variance)
    of_variances = np.abs(fit.V.squares_times(tau_step)) / variance
    return np.max(np.maximum(of_means, of_variances), axis=1)


def _log_mass(fit: _Fit, tau: Array, nu: Array) -> Array:
    """EP's log P0, sum_n [log E P_n + (nu - tau m)(m - cavity mean - shift) / 2 - log(B^-1)_nn / 2]
    - log |B| / 2.
    """
    linear = (nu - tau * fit.mean) * (fit.removed - fit.shift)
    return np.asarray((fit.tilt.log_mass + 0.5 * linear).sum(axis=1) - 0.5 * fit.V.log_excess)


def _cumulants(fit: _Fit) -> tuple[Array, Array]:
    """sum_(i<j) sum_(l=3,4) c_li c_lj (V_ij / (V_ii V_jj))^l / l!, and the size of both terms.

    c_l is the l-th cumulant of a tilted density, (cavity variance)^l times the l-th derivative.
    """
    each = range(fit.mean.shape[1])
    V = fit.V.matrix() / fit.V.share[:, :, None]  # cavity variances are V_ii / share
    V /= fit.V.share[:, None, :]
    V[:, each, each] = 0.0
    powers = V * V
    powers *= V
    third = np.einsum("bi,bi->b", fit.tilt.third, matrices_times(powers, fit.tilt.third)) / 12
    powers *= V
    fourth = np.einsum("bi,bi->b", fit.tilt.fourth, matrices_times(powers, fit.tilt.fourth)) / 48
    return third + fourth, np.abs(third) + np.abs(fourth)
