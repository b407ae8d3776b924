"""What to ask: labels whose answers would tell most of all the others, as batches of questions.

Given v the label of an instance, or of a bag, is a coin of probability p(v), where v is drawn from
the posterior. In a labelled bag p is P(y_n = 1 | v, T_b): where the label of the bag, or known
instances, settle an instance, nothing is to be asked. An answer y_j leaves of the variance of
another p_m, on average, exactly

    Var(p_m) - Cov(p_m, p_j)^2 / Var(y_j),    Var(y_j) = Var(p_j) + E[p_j (1 - p_j)],

and tells of its label, to second order, the information [Bickford Smith et al. 2023]

    I(y_m; y_j) = Cov(p_m, p_j)^2 / (2 Var(y_m) Var(y_j)).

A question is worth the sum of it over the labels that are still open. Further answers leave about
what conditioning Gaussians gives, so that what is alike is not worth ten times one; copies are
asked about once. Questions are first thinned by what they tell of v alone, I = H(E[p]) - E[H(p)]
[Houlsby et al. 2011].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.posteriors.given_labels import BagDraws

Array = NDArray[Any]
Flags = NDArray[np.bool_]

DRAWS = 512  # of v
TINY = 1e-12  # a probability whose logit is finite
SAME = 1e-9  # difference of probabilities of what is the same question
POOL = 2000  # questions that a batch is chosen from
OTHERS = 1000  # labels that they are to tell of


@dataclass(frozen=True)
class BagStates:
    """What is known of bags that are asked about."""

    offsets: Array  # (B + 1,)
    T: Array  # (B,) 1, 0, or NaN where the label of the bag is not known
    known: Array  # (N,) 1, 0, or NaN where that of the instance is not
    level: Array | None = None  # (N,) calibrated P(y_n = 1 | T_b), which draws are moved to


def information(p: Array) -> Array:
    """(n,) mutual information of labels with probabilities p (n, draws) and what is drawn, in nats.

    >>> information(np.array([[0.5, 0.5], [0.0, 1.0]])).round(3)  # noise, and all there is to know
    array([0.   , 0.693])
    """
    return np.maximum(_entropy(p.mean(axis=1)) - _entropy(p).mean(axis=1), 0.0)


def _entropy(p: Array) -> Array:
    return special.entr(p) + special.entr(1 - p)


def batch(p: Array, others: Array, k: int) -> NDArray[np.intp]:
    """k rows of p (n, draws) whose labels tell most of those of `others` (m, draws), best first.

    >>> same = np.array([0.01, 0.99, 0.01, 0.99])
    >>> p = np.array([same, same, same, [0.2, 0.2, 0.8, 0.8]])
    >>> batch(p, p, 2)  # no copy of the first
    array([0, 3])
    """
    centred, noise = _centred(p), np.mean(p * (1 - p), axis=1)
    own, mean = np.mean(centred**2, axis=1), others.mean(axis=1, keepdims=True)
    scale = np.sqrt(np.maximum(mean * (1 - mean), TINY))  # of their labels
    shared = (others - mean) / scale @ centred.T / p.shape[1]  # (m, n)
    factors, open_ = np.zeros((len(p), 0)), np.ones(len(p), dtype=bool)
    chosen: list[int] = []
    for _ in range(min(k, len(p))):
        spread = np.maximum(own, 0.0) + noise
        worth = np.where(open_, np.sum(shared**2, axis=0) / np.maximum(spread, TINY), -1.0)
        j = int(np.argmax(worth))
        chosen.append(j)
        open_ &= np.max(np.abs(p - p[j]), axis=1) > SAME  # a copy has the same answer
        if not open_.any():
            break
        column = centred @ centred[j] / p.shape[1] - factors @ factors[j]
        column /= np.sqrt(max(spread[j], TINY))
        shared = shared - np.outer(shared[:, j] / np.sqrt(max(spread[j], TINY)), column)
        own, factors = own - column**2, np.column_stack([factors, column])
    return np.array(chosen, dtype=np.intp)


def _centred(p: Array) -> Array:
    return p - p.mean(axis=1, keepdims=True)


def suggested_instances(
    draws: Iterator[BagDraws], states: BagStates, likelihood: BagLikelihood, k: int, seed: int
) -> NDArray[np.intp]:
    """At most k rows whose labels tell most together, best first."""
    questions = _Questions(max(POOL, k), seed)
    for rows, bags, log_p, log_q in _blocks(draws, states.offsets):
        T, known = states.T[bags], states.known[rows]
        starts = states.offsets[bags] - rows.start
        log_p = log_p + _shift(log_q, starts, T, known, likelihood)
        of_bag = np.repeat(np.arange(len(T)), np.diff(np.append(starts, len(known))))
        free = np.isnan(known) & ~((T[of_bag] == 0) & (likelihood.h[0] == 0))
        p = np.exp(np.minimum(log_p[free], 0.0))
        if states.level is not None:
            p = moved(p, states.level[rows][free])
        questions.add(np.flatnonzero(free) + rows.start, p)
    return questions.batch(k)


def moved(p: Array, level: Array) -> Array:
    """p (n, draws) with all logits of a row shifted by what its mean is off the level (n,).

    >>> moved(np.array([[0.1, 0.3]]), np.array([0.2])).round(3)
    array([[0.1, 0.3]])
    """
    mean = np.clip(p.mean(axis=1), TINY, 1 - TINY)
    shift = special.logit(np.clip(level, TINY, 1 - TINY)) - special.logit(mean)
    return special.expit(special.logit(np.clip(p, TINY, 1 - TINY)) + shift[:, None])


def suggested_bags(
    draws: Iterator[BagDraws], offsets: Array, likelihood: BagLikelihood, k: int, seed: int
) -> NDArray[np.intp]:
    """At most k bags whose labels tell most together, best first."""
    alpha, beta = likelihood.rates()
    questions = _Questions(max(POOL, k), seed)
    for rows, bags, _, log_q in _blocks(draws, offsets):
        P0 = np.exp(np.add.reduceat(log_q, offsets[bags] - rows.start, axis=0))
        questions.add(np.arange(bags.start, bags.stop), 1 - beta - (1 - alpha - beta) * P0)
    return questions.batch(k)


def _blocks(
    draws: Iterator[BagDraws], offsets: Array
) -> Iterator[tuple[slice, slice, Array, Array]]:
    """Rows and bags of consecutive draws, log P(y = 1 | v) and log P(y = 0 | v) of the rows."""
    first, offsets = 0, np.asarray(offsets)
    for found in draws:
        start = int(offsets[first])
        last = int(np.searchsorted(offsets, start + len(found.base)))
        parts = [(log_p, log_q) for _, log_p, log_q in found.log_probabilities()]
        log_p, log_q = (np.concatenate(part) for part in zip(*parts, strict=True))
        yield slice(start, start + len(found.base)), slice(first, last), log_p, log_q
        first = last


def _shift(log_q: Array, starts: Array, T: Array, known: Array, likelihood: BagLikelihood) -> Array:
    """(n, draws) what the label of the bag adds to log P(y_n = 1 | v); 0 where it is not known.

    A known positive leaves the label of its bag nothing to say.
    """
    free = np.isnan(known)
    settled = np.add.reduceat(known == 1, starts, dtype=np.int64) > 0
    minus_log = -np.add.reduceat(np.where(free[:, None], log_q, 0.0), starts, axis=0)  # (B, draws)
    with np.errstate(divide="ignore"):
        x_log = np.log(minus_log)
    shift = np.zeros_like(x_log)
    for label in (False, True):
        told = (label == T) & ~settled
        if told.any() and (label or likelihood.h[0] > 0):
            shift[told] = likelihood.log_label(x_log[told], label)[1]
    return np.repeat(shift, np.diff(np.append(starts, len(known))), axis=0)


class _Questions:
    """Labels that are open: those worth most by themselves, and some of all to be told of."""

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.numbers, self.places = np.empty(0, dtype=np.intp), np.empty(0)
        self.p = self.others = np.empty((0, 0))
        self.rng = np.random.default_rng(seed)

    def add(self, numbers: Array, p: Array) -> None:
        """Add labels with probabilities p (n, draws)."""
        if not len(self.numbers):
            self.p = self.others = p[:0]
        self.numbers, self.p = np.append(self.numbers, numbers), np.concatenate([self.p, p])
        if len(self.numbers) > self.size:
            top = np.sort(np.argsort(-information(self.p), kind="stable")[: self.size])
            self.numbers, self.p = self.numbers[top], self.p[top]
        # Those with the lowest of random numbers, which are a sample of all however they come.
        places = np.append(self.places, self.rng.random(len(p)))
        some = np.sort(np.argsort(places, kind="stable")[:OTHERS])
        self.others, self.places = np.concatenate([self.others, p])[some], places[some]

    def batch(self, k: int) -> NDArray[np.intp]:
        """Numbers of at most k of them."""
        return self.numbers[batch(self.p, self.others, k)]
