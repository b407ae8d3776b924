"""Exact draws of m given its mean, independent noise and the labels of bags and instances [W21]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.likelihoods.at_least_one import Targets

Array = NDArray[Any]

FAR = 200.0  # standard deviations beyond which truncated normals use their limit, good to 1e-9
NEVER = -50.0  # a log-probability that no run of ours is long enough to meet


def truncated_normal(mean: Array, scale: Array, side: Array, log_u: Array) -> Array:
    """Draws of N(mean, scale^2) below zero (side -1), above it (+1) or anywhere (0).

    `log_u` are logarithms of uniforms, i.e. minus standard exponentials. [W21, Eq. 26-28]

    >>> truncated_normal(np.zeros(3), np.ones(3), np.array([-1, 0, 1]), np.log([0.5, 0.9, 0.5]))
    array([-0.67448975,  1.28155157,  0.67448975])
    """
    above = side > 0
    z = np.where(above, -mean, mean) / scale  # a draw above zero is minus one below zero
    far = (side != 0) & (z > FAR)
    log_mass = np.where(side == 0, 0.0, special.log_ndtr(-np.where(far, 0.0, z)))
    below = z + special.ndtri_exp(log_u + log_mass)
    below = np.where(far, -_excess(np.where(far, z, 1.0), -log_u), below)
    # Rounding alone may leave a draw at the border on the wrong side.
    below = np.where(side == 0, below, np.minimum(below, 0.0))
    return scale * np.where(above, -below, below)


def _excess(z: Array, e: Array) -> Array:
    """x > 0 with log P(m < -x | m < 0) = -e for m ~ N(z, 1) and large z, without cancellation.

    The exponent of that probability is (z + 1/z) x + x^2/2 up to terms of order z^-4.
    """
    slope = z + 1 / z
    return 2 * e / (slope + np.sqrt(slope**2 + 2 * e))


def log_first_positive(z: Array, targets: Targets) -> Array:
    """log P(the first positive instance of its bag is n | z), -inf for known rows, shape (n,).

    prod_{i<n} P(m_i < 0) P(m_n > 0) over the free instances of the bag; not normalised: its sum
    over a bag is 1 - P0.
    """
    log_negative = np.where(targets.free, special.log_ndtr(-z), 0.0)
    # After an instance with P(m < 0) < exp(NEVER) none is ever the first; without the bound
    # cumulative sums over long chunks would lose digits.
    before = np.cumsum(np.maximum(log_negative, NEVER)) - np.maximum(log_negative, NEVER)
    before -= targets.spread(before[targets.starts])
    return np.where(targets.free, before + special.log_ndtr(z), -np.inf)


def first_positive(log_weights: Array, targets: Targets, exponentials: Array) -> Array:
    """One row per bag, row n with probability proportional to exp(log_weights), shape (B,).

    The row that wins a race of exponential clocks; `exponentials` are standard, one per row.
    """
    score = log_weights - np.log(exponentials)
    best = np.maximum.reduceat(score, targets.starts)
    winners = np.flatnonzero(score == targets.spread(best))
    return winners[np.searchsorted(winners, targets.starts)]


def fixed_sides(targets: Targets) -> Array:
    """Side of zero on which each m_n lies whatever v: -1, +1, or 0 where it is open."""
    side = np.where(targets.spread(targets.T), 0, -1)
    if targets.known is not None:
        side = np.where(targets.known == 1, 1, np.where(targets.known == 0, -1, side))
    return side


def draw_sides(
    z: Array, fixed: Array, targets: Targets, exponentials: Array
) -> tuple[Array, Array]:
    """Side of zero of each m_n given z, an exact joint draw per bag, and log p(T_b | z) (B,).

    Up to the first positive instance of a bag all sides are settled, after it none is.
    """
    undecided = targets.T & ~targets.settled
    own = np.where(fixed == 0, 0.0, special.log_ndtr(fixed * z))
    log_prob = targets.sum_bags(own)
    if not np.any(undecided):
        return fixed, log_prob
    log_weights = log_first_positive(z, targets)
    first = targets.spread(first_positive(log_weights, targets, exponentials))
    rows = np.arange(len(z))
    drawn = np.where(rows < first, -1, np.where(rows == first, 1, 0))
    side = np.where(targets.spread(undecided) & targets.free, drawn, fixed)
    top = np.maximum.reduceat(log_weights, targets.starts)
    top = np.where(undecided, top, 0.0)  # bags without a free instance have no weights
    mass = targets.sum_bags(np.exp(np.minimum(log_weights - targets.spread(top), 0.0)))
    return side, log_prob + np.where(undecided, top + np.log(np.where(undecided, mass, 1.0)), 0.0)
