"""Fewer rows that say the same: a weighted sample of the rows of every bag.

A bag says what it says through L_b = sum_n l(z_n). With inclusion probabilities pi_n > 0 and
weights 1 / pi_n the sum over a sample is unbiased for every z [Horvitz & Thompson 1952], so that
a positive bag keeps its meaning and c0 needs no correction for rows left out. The sum varies
little where pi_n follows |l(z_n)|: rows that may make a bag positive are all kept and stand for
themselves, and some of the many others stand for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.features import Whitener
from bagwise.core.inference.newton import climb
from bagwise.core.inference.newton_probit import LogJoint
from bagwise.core.inference.passes import Sweeper, TrainingData
from bagwise.core.inference.stats import Chunk, FoldedLikelihood, latent
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.likelihoods.targets import halves

Array = NDArray[Any]
Rows = NDArray[np.int64]

ROWS_PER_BAG = 5  # fewer say little about their bag: bags are left out instead
BAGS_OF_EACH = 5  # larger and smaller labels, where whole bags are drawn
EVENLY = 0.5  # share of the inclusion probabilities that does not look at the fit
ROUNDS = 2  # of a sample, a fit to it, and a pass that scores all rows for the next sample
FIT_STEPS, FIT_TOL = 30, 1e-4  # a rough fit ranks rows as well
START_MEAN = -1.0  # most instances are negative before anything is known


@dataclass(frozen=True)
class Sample:
    """Rows, with the number of rows that each stands for."""

    rows: Rows
    weights: Array

    def __add__(self, other: Sample) -> Sample:
        return Sample(
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.weights, other.weights]),
        )


@dataclass(frozen=True)
class Scorer:
    """A fit to one sample, by which the next one is drawn."""

    folded: FoldedLikelihood
    v: Array
    c0: float

    def cost(self, chunk: Chunk) -> Array:
        """log(-log P(y_n | z_n)), y_n = 0 where it is unknown."""
        z = self.folded.scale(chunk.kt) * latent(chunk, self.v, self.c0)
        known = chunk.targets.known
        z = z if known is None else np.where(known == 1, -z, z)
        return self.folded.likelihood.link.log_minus_log_negative(z)


@dataclass(frozen=True)
class Thinning:
    """How many rows of each bag stay, and one uniform number for each by which they are drawn."""

    offsets: Rows  # (B + 1,)
    k: Rows  # (B,) at most; 0 for bags that are left out
    u: Array  # (B,) so that draws do not depend on chunks

    @property
    def leaves_out(self) -> bool:
        """Whether rows of bags that stay are left out."""
        return bool(np.any((self.k > 0) & (self.k < np.diff(self.offsets))))

    def evenly(self, data: TrainingData) -> Sample:
        """Rows that are drawn without looking at them."""
        cuts = pairwise(data.cuts.tolist())
        chunks = ((data.targets(a, b), int(data.offsets[a])) for a, b in cuts)
        parts = (self.of_bags(t, np.zeros(int(t.sizes.sum())), row) for t, row in chunks)
        return reduce(add, parts)

    def of_chunk(self, chunk: Chunk, scorer: Scorer) -> Sample:
        """Rows of a chunk's bags, drawn by what a fit says of them."""
        return self.of_bags(chunk.targets, scorer.cost(chunk), chunk.start)

    def of_bags(self, targets: Targets, cost: Array, start: int) -> Sample:
        """Rows of consecutive bags, the first of which begins at row `start`."""
        first = int(np.searchsorted(self.offsets, start))
        sure = indispensable(targets, cost)
        rows, weights = [], []
        for b in np.flatnonzero(self.k[first : first + len(targets.T)]).tolist():
            own = slice(int(targets.starts[b]), int(targets.starts[b] + targets.sizes[b]))
            drawn, pi = draw(cost[own], sure[own], int(self.k[first + b]), self.u[first + b])
            rows.append(start + own.start + drawn)
            weights.append(1 / pi)
        none = np.empty(0)
        return Sample(
            np.concatenate([none.astype(np.int64), *rows]), np.concatenate([none, *weights])
        )


def draw(cost: Array, sure: NDArray[np.bool_], k: int, u: float) -> tuple[Rows, Array]:
    """k rows of a bag with their probabilities, or all rows if there are no more."""
    n = len(cost)
    if n <= k:
        return np.arange(n), np.ones(n)
    size = np.exp(cost - cost.max())
    pi = inclusion((1 - EVENLY) * size / size.sum() + EVENLY / n, k, sure)
    rows = systematic(pi, np.argsort(cost, kind="stable"), u)
    return rows, pi[rows]


def indispensable(targets: Targets, cost: Array) -> NDArray[np.bool_]:
    """The costliest free row of each bag, and the costliest known positive one.

    Without the former, a bag could have no row left that may be positive; without the latter, a
    bag that a known positive settles would look unsettled.
    """
    sure = np.zeros(len(cost), dtype=bool)
    kinds = [targets.free] if targets.known is None else [targets.free, targets.known == 1]
    for kind in kinds:
        here = np.where(kind, cost, -np.inf)
        top = targets.spread(np.maximum.reduceat(here, targets.starts))
        best = np.flatnonzero(kind & (here == top))
        sure[best[np.unique(targets.bag_index[best], return_index=True)[1]]] = True
    return sure


def inclusion(size: Array, k: int, sure: NDArray[np.bool_]) -> Array:
    """Probabilities that sum to k, proportional to size where that is less than 1.

    `sure` rows, fewer than k, have 1 in any case.

    >>> inclusion(np.array([6.0, 1.0, 1.0, 2.0]), 3, np.zeros(4, dtype=bool))
    array([1. , 0.5, 0.5, 1. ])
    """
    pi, open_ = np.ones(len(size)), ~sure
    while True:
        left = k - (len(size) - np.count_nonzero(open_))
        pi[open_] = left * size[open_] / size[open_].sum()
        still = pi < 1
        if np.array_equal(still, open_):
            return pi
        pi, open_ = np.where(still, pi, 1.0), still


def systematic(pi: Array, order: Rows, u: float) -> Rows:
    """Rows drawn with probabilities pi, whose sum is whole, by one uniform number u.

    Each unit of their sum along `order` gives one row, so that samples spread over it evenly.

    >>> systematic(np.array([0.5, 1.0, 0.25, 0.25]), np.array([3, 2, 1, 0]), 0.3)
    array([1, 2])
    """
    certain = pi >= 1
    rest = order[~certain[order]]
    sums = np.cumsum(pi[rest])
    n = round(float(sums[-1])) if len(rest) else 0
    # Rounding may leave the last sum below n; what is beyond all others is the last row.
    drawn = np.searchsorted(sums[:-1], u + np.arange(n), side="right")
    return np.sort(np.concatenate([np.flatnonzero(certain), rest[drawn]]))


def water_level(sizes: Rows, max_rows: int) -> int:
    """The largest k for which min(n_b, k) rows of every bag are at most `max_rows`.

    >>> water_level(np.array([1, 5, 100, 100]), 46)
    20
    """
    ordered = np.sort(sizes)
    below = np.concatenate([[0], np.cumsum(ordered)])
    # With the j smallest bags whole, the others share what is left.
    shares = (max_rows - below[:-1]) // np.arange(len(sizes), 0, -1)
    j = int(np.argmax(shares < ordered)) if np.any(shares < ordered) else len(sizes) - 1
    return int(shares[j])


def rows_per_bag(
    data: TrainingData, max_rows: int, rng: np.random.Generator, least: int = ROWS_PER_BAG
) -> Rows:
    """How many rows of each bag make about `max_rows`: the same number, or all of smaller bags.

    Bags are left out, the same share of both labels, only where they would have fewer than `least`,
    and in any case where they count nothing.
    """
    sizes, counting = np.diff(data.offsets), data.counting
    share = min(1.0, max_rows / int(np.minimum(sizes, least)[counting].sum()))
    by_label = [rng.permutation(counting[t == data.T[counting]]) for t in (True, False)]
    stay = np.concatenate([b[: max(1, round(share * len(b)))] for b in by_label])
    k = np.zeros(len(sizes), dtype=np.int64)
    k[stay] = np.minimum(sizes[stay], max(least, water_level(sizes[stay], max_rows)))
    return k


def some_bags(data: TrainingData, max_rows: int, seed: int) -> NDArray[np.intp]:
    """Numbers of bags with about `max_rows` rows in all, for rules that need whole bags.

    They are drawn by turns from the bags with larger and with smaller labels, `BAGS_OF_EACH` of
    both where there are as many, however large they are.
    """
    counting = np.random.default_rng(seed).permutation(data.counting)
    large = halves(data.T[counting])
    turn = np.empty(len(counting), dtype=np.int64)
    for half in (large, ~large):
        turn[half] = np.arange(int(half.sum()))
    order = np.argsort(turn, kind="stable")
    rows = np.cumsum(np.diff(data.offsets)[counting[order]])
    stay = (rows <= max_rows) | (turn[order] < BAGS_OF_EACH)
    return np.sort(counting[order][stay])


def thin(
    data: TrainingData,
    likelihood: BagLikelihood,
    whitener: Whitener,
    c0: float | None,
    max_rows: int,
    rng: np.random.Generator,
) -> Sample:
    """About `max_rows` rows of all bags, or of many where bags are too many.

    The first sample is even. Those that follow are drawn by a fit with the whitener's kernel to
    the sample before, which costs one pass over all rows; `c0=None` fits the mean too.
    """
    k = rows_per_bag(data, max_rows, rng)
    rule = Thinning(data.offsets, k, rng.random(len(k)))
    sample = rule.evenly(data)
    folded = FoldedLikelihood(likelihood, likelihood.link.residual_weight)
    for _ in range(ROUNDS if rule.leaves_out else 0):
        part = data.of_rows(sample.rows, sample.weights)
        scorer = fitted(folded, Sweeper(part, whitener), c0)
        rule = replace(rule, u=rng.random(len(k)))
        sample = data.one_pass(whitener, partial(rule.of_chunk, scorer=scorer))
    return sample


def fitted(folded: FoldedLikelihood, sweeper: Sweeper, c0: float | None) -> Scorer:
    """The mode of v, and of c0 unless it is given."""
    target = LogJoint(folded, sweeper, c0)
    v = np.zeros(len(sweeper.whitener))
    start = np.append(v, START_MEAN) if c0 is None else v
    summit = climb(target, start, max_iter=FIT_STEPS, tol=FIT_TOL)
    return Scorer(folded, *target.split(summit.v))
