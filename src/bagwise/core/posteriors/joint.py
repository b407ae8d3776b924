"""Joint bag probabilities: P0 = E prod_n P(y_n = 0 | f_n) of many bags over shared Sobol points.

In a bag f = mu + U e + r, with e ~ N(0, I) shared by its instances and r_n independent. The points
e are the same for all bags, so that a bag's answer does not depend on its company, and all bags
are one matrix product. What the points get wrong about the expected number of positive instances,
which is known, tells what they get wrong about P0 (a control variate). Bags whose P0 still
scatters too much between parts of the points get more of them, mirrored so that the direction that
matters most to the bag is the points' first; where P0 is small, moved to where
exp(log P0(e) - |e|^2 / 2) is largest, with their weights: for links that are log-concave, as these
are, no weighted point can then exceed the value at the centre.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.links import Link, Moments, log_expm1
from bagwise.core.posteriors.points import Draws, Latents, Shift, newton_shift

Array = NDArray[Any]

PROPAGATED = 0  # draws: a first stage, of bags in which expectation propagation is exact enough
STAGES = (PROPAGATED, 64, 256, 1024, 4096)  # a bag goes on to more while its error is too large
ROUGH = (64,)  # where scores are only to be put in order
LAST_SECOND = 1024  # draws that E[P0^2] is averaged over at most
CONTROLLED = 0.03  # P0 above which the number of positive instances tells much about it
DOUBT = 0.4  # share of what that number changes which may be wrong: 1e-3 of it may go unseen
MOVED = 0.1  # P0 up to which points are moved to where a bag is negative
REPLICATES = 8  # parts of the draws whose scatter tells the error
RATE, LEAST_PART = (
    0.75,
    128,
)  # errors of Sobol points fall with that power of n, once parts are large
ABSOLUTE = 4e-4  # standard error of P(bag) that will do: 1e-3 is aimed at
RELATIVE = 0.01  # and of P0, relative to it: 0.02 is aimed at
MOST_NUMBERS = 2**26  # rows times draws of a bag: the largest make do with fewer draws
NUMBERS_AT_ONCE = 2**20  # rows times draws, 8 MiB


@dataclass(frozen=True)
class Sampled:
    """What bags do at points: (B, S) each."""

    log_p0: Array
    excess: Array  # positive instances, beyond their expected number
    log_ratio: Array | None  # log E[P0^2] - 2 log P0 over the residuals
    log_weight: Array | None  # of moved points
    squares: Array | None = None  # sum_n P(y_n = 1)^2, beyond its expectation

    def of(self, bags: Array) -> Sampled:
        """Some of the bags."""
        ratio = None if self.log_ratio is None else self.log_ratio[bags]
        weight = None if self.log_weight is None else self.log_weight[bags]
        squares = None if self.squares is None else self.squares[bags]
        return Sampled(self.log_p0[bags], self.excess[bags], ratio, weight, squares)

    def joined(self, more: Sampled) -> Sampled:
        """More points of the same bags; second moments stay with the first of them."""
        pairs = zip(self._parts(), more._parts(), strict=True)
        return Sampled(*(a if b is None else np.hstack([a, b]) for a, b in pairs))

    @property
    def log_terms(self) -> Array:
        """Logs of what P0 is the average of."""
        return self.log_p0 if self.log_weight is None else self.log_p0 + self.log_weight

    def _parts(self) -> tuple[Any, Any, Any, Any, Any]:
        return self.log_p0, self.excess, self.log_ratio, self.log_weight, self.squares


@dataclass(frozen=True)
class Estimate:
    """log P0, log(1 - P0), and the scatter of P0 relative to itself, (B,) each."""

    log_negative: Array
    log_positive: Array
    error: Array

    @property
    def too_wide(self) -> NDArray[np.bool_]:
        """Whether more points are needed."""
        allowed = ABSOLUTE * np.exp(np.minimum(-self.log_negative, 50.0))
        return ~(self.error <= np.minimum(RELATIVE, allowed))  # NaN is not small


def joint_moments(
    latents: Latents,
    link: Link,
    draws: Callable[[int], Draws],
    root: Array,
    *,
    second: bool,
    stages: tuple[int, ...] = STAGES,
) -> Moments:
    """log P0, log(1 - P0) and, if `second`, log E[P0^2] - 2 log E[P0] of each bag.

    `draws(n)` gives n points, the first of which are those of `draws` of fewer; `root` (M, M)
    turns standard normal points into deviations of v.
    """
    found = sample(latents, link, draws(stages[0]), slice(0, stages[0]), second=second)
    estimate = estimated(found)
    moments = Moments(estimate.log_negative, estimate.log_positive, _log_ratio(found, estimate))
    todo = np.flatnonzero(estimate.too_wide)
    if len(todo) == 0 or len(stages) == 1:
        return moments
    latents = latents.of(todo)
    rare = estimate.log_negative[todo] < np.log(MOVED)
    shift = newton_shift(latents, link, root, rare)
    far, log_second = todo[rare], np.zeros(int(rare.sum()))
    if second and len(far):
        log_second = _log_second(latents.of(np.flatnonzero(rare)), link, draws(stages[1]), root)
    before, sampled = 0, None
    for n in stages[1:]:
        again = second and n <= max(LAST_SECOND, stages[1])
        more = sample(latents, link, draws(n), slice(before, n), shift, root, second=again)
        sampled = more if sampled is None else sampled.joined(more)
        estimate = estimated(sampled)
        moments.log_negative[todo] = estimate.log_negative
        moments.log_positive[todo] = estimate.log_positive
        moments.log_ratio[todo] = _log_ratio(sampled, estimate)
        affordable = latents.sizes * 4 * n <= MOST_NUMBERS
        large = np.flatnonzero(estimate.too_wide & affordable)
        if len(large) == 0:
            break
        todo, before = todo[large], n
        latents, shift, sampled = latents.of(large), shift.of(large), sampled.of(large)
    if second:
        negative = moments.log_negative[far]
        moments.log_ratio[far] = np.clip(log_second - 2 * negative, 0, -negative)
    return moments


def _log_second(latents: Latents, link: Link, draws: Draws, root: Array) -> Array:
    """log E[P0^2] of bags whose P0 is small, at points moved to where P0^2 is: further than P0."""
    n = len(draws.normal)
    shift = newton_shift(latents, link, root, np.ones(len(latents.starts), dtype=bool), power=2)
    found = sample(latents, link, draws, slice(0, n), shift, root, second=True)
    return special.logsumexp(found.log_terms + found.log_p0 + found.log_ratio, axis=1) - np.log(n)


def sample(
    latents: Latents,
    link: Link,
    draws: Draws,
    some: slice,
    shift: Shift | None = None,
    root: Array | None = None,
    *,
    second: bool,
) -> Sampled:
    """log prod_n P(y_n = 0 | e) and sum_n P(y_n = 1 | e) of each bag at some of the points."""
    n_bags, n_draws = len(latents.starts), some.stop - some.start
    log_p0, excess, log_ratio, squares = np.zeros((4, n_bags, n_draws))
    e = draws.residual[some, : latents.G.shape[1]]
    mu = latents.mu
    if shift is not None:
        assert root is not None
        moved, of_mirror = shift.in_f(latents, root)
        mu, mirrored = mu + moved, shift.mirrored(draws, some)
    of_row = latents.bag_index
    at_once = max(1, NUMBERS_AT_ONCE // n_draws)
    for first in range(0, len(mu), at_once):
        rows = slice(first, min(first + at_once, len(mu)))
        f = draws.deviations(latents.A[rows], some)
        f += latents.G[rows] @ e.T
        f += mu[rows, None]
        if shift is not None:
            f -= of_mirror[rows, None] * mirrored[of_row[rows]]
        logs, ratios = link.log_smoothed(f, latents.rest[rows], second=second)
        bags = slice(of_row[rows.start], of_row[rows.stop - 1] + 1)
        begins = np.maximum(latents.starts[bags] - first, 0)
        log_p0[bags] += np.add.reduceat(logs, begins, axis=0)
        # Only points that stay may meet bags whose every positive is rare.
        positive = -np.expm1(logs) if shift is None else 1 - np.exp(logs)
        beyond = positive - latents.expected[rows, None]
        excess[bags] += np.add.reduceat(beyond, begins, axis=0)
        if ratios is not None:
            log_ratio[bags] += np.add.reduceat(ratios, begins, axis=0)
            square = positive**2 + np.exp(2 * logs) * np.expm1(np.minimum(ratios, 50.0))
            square -= latents.square[rows, None]
            squares[bags] += np.add.reduceat(square, begins, axis=0)
    weights = None if shift is None else shift.log_weights(draws, some)
    return Sampled(
        log_p0, excess, log_ratio if second else None, weights, squares if second else None
    )


def estimated(found: Sampled) -> Estimate:
    """P0 as the average over points, controlled by the number of positive instances."""
    terms = found.log_terms
    negative = special.logsumexp(terms, axis=1) - np.log(terms.shape[1])
    relative = np.exp(terms - negative[:, None])  # averages to one
    positive = np.log(-np.expm1(np.minimum(negative, -1e-300)))
    error = _scatter(relative)
    some = np.flatnonzero(negative > np.log(CONTROLLED))
    if len(some):
        of_some = found.of(some)
        negative[some], positive[some], error[some] = _controlled(of_some)
    return Estimate(negative, positive, error)


def _controlled(found: Sampled) -> tuple[Array, Array, Array]:
    """log P0, log(1 - P0) and the relative scatter, with what is known subtracted from each term.

    Terms are w (P0 - 1): rare positives keep their digits, as their number has them.
    Where points miss positives, that a bag may have many at once is missed too: terms then say that
    each unseen one makes a bag positive, and agree. So what they change P0 by is in doubt.
    """
    terms, known = np.expm1(found.log_p0), found.excess[:, None, :]
    if found.log_weight is not None:
        weight = np.exp(found.log_weight)
        terms = weight * terms
        known = np.concatenate([weight[:, None, :] * known, (weight - 1)[:, None, :]], axis=1)
    known = np.einsum("bk,bks->bs", _regression(terms, known), known)
    terms = terms - known
    positive = -terms.mean(axis=1)
    if found.log_weight is not None:
        positive = np.maximum(positive, 1e-12)
    positive = np.minimum(positive, 1 - CONTROLLED / 10)
    error = np.maximum(_scatter(terms), DOUBT * np.abs(known.mean(axis=1)))
    negative = np.log1p(-positive)
    log_positive = np.log(np.maximum(positive, np.finfo(np.float64).tiny))
    return negative, log_positive, error * np.exp(-negative)


def _controlled_spread(found: Sampled, estimate: Estimate, n: int) -> Array:
    """Var[P0] / E[P0]^2 where P0 is large, controlled by what is known of single instances.

    Few points see the rare positives that make up the variance; their squares are known.
    """
    assert found.squares is not None and found.log_ratio is not None
    L, squares = found.log_p0[:, :n], found.squares
    with np.errstate(over="ignore"):
        terms = np.expm1(L) ** 2 + np.exp(2 * L) * np.expm1(np.minimum(found.log_ratio, 50.0))
    known = squares[:, None, :]
    # More than one would trust in few points what instances have in common.
    share = np.clip(_regression(terms, known), 0, 1)
    terms = terms - np.einsum("bk,bks->bs", share, known)
    p = np.exp(estimate.log_positive)
    spread = np.maximum(terms.mean(axis=1) - p**2, 0)
    return spread * np.exp(np.minimum(-2 * estimate.log_negative, 50.0))  # P0 is not that small


def _regression(terms: Array, known: Array) -> Array:
    """Coefficients (B, k) of `known` (B, k, S), which average to zero, in terms (B, S)."""
    centred = known - known.mean(axis=2, keepdims=True)
    gram = centred @ centred.transpose(0, 2, 1)
    k = known.shape[1]
    floor = 1e-12 * np.trace(gram, axis1=1, axis2=2)[:, None] + np.finfo(np.float64).tiny
    gram[:, range(k), range(k)] += floor
    right = np.einsum("bks,bs->bk", centred, terms)
    return np.linalg.solve(gram, right[:, :, None])[:, :, 0]


def _scatter(terms: Array) -> Array:
    """Standard error of the mean of each row, from that of its parts."""
    parts = terms.reshape(len(terms), REPLICATES, -1)
    n = parts.shape[2]
    caution = 1 + REPLICATES / n  # parts of few points may agree by chance
    rate = RATE if n >= LEAST_PART else 0.5  # of few points: as if they were independent
    return caution * np.std(parts.mean(axis=2), axis=1, ddof=1) / REPLICATES**rate


def _log_ratio(found: Sampled, estimate: Estimate) -> Array:
    """log E[P0^2] - 2 log E[P0]; about its centre where that is small, else nothing would be left.

    E[P0^2] = E exp(2 L + D), D what the residuals add.
    """
    negative = estimate.log_negative
    if found.log_ratio is None:
        return np.zeros(len(negative))
    D, n = found.log_ratio, found.log_ratio.shape[1]
    L, terms = found.log_p0[:, :n], found.log_terms[:, :n]
    log_second = special.logsumexp(terms + L + D, axis=1) - np.log(n)
    ratio = np.maximum(log_second - 2 * negative, 0)
    moved = np.any(terms != L, axis=1)
    with np.errstate(over="ignore"):  # where it overflows, the other is taken
        centred = np.expm1(L - negative[:, None])
        more = np.exp(2 * (L - negative[:, None]) + log_expm1(D))
        relative = np.mean(centred**2 + more, axis=1)
    if found.squares is not None:
        likely = negative > np.log(0.5)
        relative = np.where(likely, _controlled_spread(found, estimate, n), relative)
    ratio = np.where(moved | (ratio > 1), ratio, np.log1p(relative))
    return np.minimum(ratio, -negative)  # E[P0^2] <= E[P0]
