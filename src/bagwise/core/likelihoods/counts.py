"""The number of positive instances of a bag, and what a label of the bag says of each of them.

Instances are positive with probability p_n, independently, so that their number K has the
Poisson-binomial distribution. A rule gives w(k) = p(label | K = k), and

    log p(label) = log E[w(K)],    P(y_n = 1 | label),    Cov(y_n, y_m | label)

are sums over the characteristic function prod_n (1 - p_n + p_n e^it) at a few t. All odds of a bag
are first multiplied by e^s (and w by e^-sk, which leaves p(y | label) as it is), with the s that
makes Chernoff's bound E[w(K)] <= E[e^sK] max_k w(k) e^-sk smallest: the sums then have no small
terms to lose, however improbable the label is. K lies within a window of a few deviations, so that
a bag of n instances takes O(n^1.5) operations, and its error is that of rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[Any]
LogWeights = Callable[[Array], Array]  # of k (B, C), log w(k)

BISECTIONS = 40
CLOSE = 0.02  # a tilt that is off by less moves E[K] by less than a hundredth of its deviation
LOG_NOTHING = 38.0  # exp(-38): what a window may leave out
LOST = 1e-9  # of Chernoff's bound: below it rounding would show in what is left
NEGLIGIBLE = 1e-18
IMPROBABLE = (
    "labels of bags are too improbable to tell what they say: no number of positives allows them, "
    "or the rule is not log-concave in that number; check the labels of bags and instances"
)


@dataclass(frozen=True)
class Counts:
    """p(label) of bags and p(y_n | label) of their instances."""

    log_prob: Array  # (B,)
    p: Array  # (n,) tilted probabilities
    q: Array  # (n,) 1 - p
    slope: Array  # (n,) d log E[w] / d p_n
    terms: Array  # (B, J) complex: what E[w] is the sum of, relative to it
    steps: Array  # (J,) e^it - 1
    bag: NDArray[np.intp]  # (n,) number of each row's bag

    @property
    def positive(self) -> Array:
        """P(y_n = 1 | label)."""
        return np.clip(self.p * (1 + self.q * self.slope), 0.0, 1.0)  # where it cancels to 0

    @property
    def negative(self) -> Array:
        """P(y_n = 0 | label)."""
        return np.clip(self.q * (1 - self.p * self.slope), 0.0, 1.0)

    @cached_property
    def factors(self) -> tuple[Array, Array]:
        """F (n, R) and signs (R,): Cov(y_n, y_m | label) = sum_r sign_r F_nr F_mr, n != m.

        Products of complex terms are differences of two squares.
        """
        ratio = self.steps / (1 + self.p[:, None] * self.steps)  # (n, J)
        scaled = np.sqrt(self.terms)[self.bag] * ratio
        F = np.column_stack([scaled.real, scaled.imag, self.slope])
        J = len(self.steps)
        signs = np.concatenate([np.ones(J), -np.ones(J), [-1.0]])
        return (self.p * self.q)[:, None] * F, signs


def counted(
    logit: Array, starts: Array, sizes: Array, log_weights: LogWeights, known: Array | None = None
) -> Counts:
    """What labels say of instances with these log-odds, in consecutive bags.

    Of `known` labels, 1 or 0, nothing is left to say. Raises where rounding would show.

    >>> two = counted(np.zeros(3), np.array([0]), np.array([3]), lambda k: np.log(1e-300 + (k > 1)))
    >>> np.exp(two.log_prob).round(6), two.positive.round(6)  # at least two of three fair coins
    (array([0.5]), array([0.75, 0.75, 0.75]))
    """
    bag = np.repeat(np.arange(len(sizes)), sizes)
    free = np.ones(len(logit), dtype=bool) if known is None else np.isnan(known)
    sure = np.zeros(len(logit)) if known is None else np.where(free, 0.0, known)
    k_all = np.tile(np.arange(int(sizes.max()) + 1.0), (len(sizes), 1))
    fewest, left = (np.add.reduceat(x, starts)[:, None] for x in (sure, free.astype(float)))
    possible = (k_all >= fewest) & (k_all <= fewest + left)
    log_w = np.where(possible, log_weights(k_all), -np.inf)
    if not np.all(np.isfinite(np.max(log_w, axis=1))):
        raise FloatingPointError(IMPROBABLE)
    s = _tilts(logit, free, sure, starts, log_w)[bag]
    tilted = np.where(free, logit + s, np.where(sure == 1, np.inf, -np.inf))
    p, q = special.expit(tilted), special.expit(-tilted)
    with np.errstate(invalid="ignore"):
        growth = np.where(free, _softplus_change(logit, s), sure * s)
    log_M = np.add.reduceat(growth, starts)
    s = s[starts]
    height = log_w - s[:, None] * k_all
    top = np.max(height, axis=1)
    terms, steps = _terms(p, q, starts, sizes, np.exp(height - top[:, None]))
    total = np.sum(terms.real, axis=1)
    if not np.all(total > LOST):
        raise FloatingPointError(IMPROBABLE)
    terms = terms / total[:, None]
    heavy = np.max(np.abs(terms), axis=0) > NEGLIGIBLE
    terms, steps = terms[:, heavy], steps[heavy]
    slope = np.einsum("nj,nj->n", terms[bag], steps / (1 + p[:, None] * steps)).real
    return Counts(log_M + top + np.log(total), p, q, slope, terms, steps, bag)


def _softplus_change(x: Array, s: Array) -> Array:
    """log(1 + e^(x + s)) - log(1 + e^x), without a difference where both are large."""
    up = x > 0
    small = np.log1p(np.exp(-np.abs(x + s))) - np.log1p(np.exp(-np.abs(x)))
    return small + np.maximum(x + s, 0) - np.where(up, x, 0)


def _tilts(logit: Array, free: Array, sure: Array, starts: Array, log_w: Array) -> Array:
    """(B,) the s at which E[K] under tilted odds is where w(k) e^-sk is largest.

    Both fall towards each other as s changes: bisection finds where they meet.
    """
    sizes = np.diff(np.append(starts, len(logit)))
    bag = np.repeat(np.arange(len(sizes)), sizes)
    fixed = np.add.reduceat(sure, starts)
    k, room = np.arange(log_w.shape[1]), np.log(sizes) + 3
    low = -np.maximum.reduceat(np.where(free, logit, -30.0), starts) - room
    high = -np.minimum.reduceat(np.where(free, logit, 30.0), starts) + room
    low, high = np.minimum(low, -1.0), np.maximum(high, 1.0)
    for _ in range(BISECTIONS):
        s = 0.5 * (low + high)
        mean = fixed + np.add.reduceat(np.where(free, special.expit(logit + s[bag]), 0.0), starts)
        best = np.argmax(log_w - s[:, None] * k, axis=1)
        above = mean > best
        low, high = np.where(above, low, s), np.where(above, s, high)
        if np.max(high - low) < CLOSE / np.sqrt(np.max(sizes)):
            break
    return 0.5 * (low + high)


def _terms(p: Array, q: Array, starts: Array, sizes: Array, w: Array) -> tuple[Array, Array]:
    """Terms (B, J) whose real parts sum to E[w(K)], and e^it - 1 (J,).

    The window has an odd number of k: at t = pi a fair coin's characteristic function is zero.
    """
    mean, variance = np.add.reduceat(p, starts), np.add.reduceat(p * q, starts)
    third = LOG_NOTHING / 3  # Bernstein's bound on what lies further away
    reach = np.ceil(third + np.sqrt(third**2 + 2 * LOG_NOTHING * variance.max()))
    C = int(min(2 * reach + 1, sizes.max() + 1)) | 1
    first = np.clip(np.floor(mean) - C // 2, 0, np.maximum(sizes + 1 - C, 0)).astype(np.int64)
    k = first[:, None] + np.arange(C)
    inside = np.minimum(k, w.shape[1] - 1)
    there = np.where(k < w.shape[1], np.take_along_axis(w, inside, axis=1), 0.0)
    t = 2 * np.pi * np.arange(C // 2 + 1) / C
    steps = np.exp(1j * t) - 1
    phi = np.multiply.reduceat(1 + p[:, None] * steps, starts, axis=0)  # (B, J)
    spectrum = there @ np.exp(-1j * np.outer(np.arange(C), t))
    twice = np.where(t > 0, 2.0, 1.0) / C
    return twice * spectrum * phi * np.exp(-1j * first[:, None] * t), steps
