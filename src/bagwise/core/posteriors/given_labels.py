"""Which instances of a labelled bag are positive: P(y_n = 1 | x, bag label, known labels).

For draws v_s of the posterior of v, and p_ns = P(y_n = 1 | v_s), the labels of a bag are
independent given v_s but for what is known of the bag: T_b and some y_k. So

    P(y_n = 1 | T_b, y_k) = sum_s w_s r_ns,  w_s proportional to P(T_b, y_k | v_s),

with r_ns = P(y_n = 1 | v_s, T_b, y_k) in closed form [C24, Alg. 1]: p_ns / (1 - P0_s) in a
positive bag at H = inf. The labels of the bag thus also say which v are probable; without known
labels and at H = inf the sum is E[p_n] / (1 - E[P0]).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Link

Array = NDArray[Any]

ROWS_PER_BLOCK = 1024
LARGEST_LOG = 1e300  # differences of logs beyond it may be none
SPREAD_DRAWS = 128  # for what residuals add to a standard deviation


@dataclass(frozen=True)
class BagDraws:
    """Latent values of one bag: f = base + loadings points' + r, r_n ~ N(0, kt_n)."""

    link: Link
    base: Array  # (n,)
    loadings: Array  # (n, k)
    points: Array  # (draws, k)
    kt: Array  # (n,)

    def log_probabilities(self) -> Iterator[tuple[slice, Array, Array]]:
        """Rows, log P(y = 1 | draw) and log P(y = 0 | draw), (rows, draws), block by block."""
        if len(self.base) <= ROWS_PER_BLOCK:
            yield self._only_block
            return
        for start in range(0, len(self.base), ROWS_PER_BLOCK):
            yield self._block(start)

    @cached_property
    def _only_block(self) -> tuple[slice, Array, Array]:
        """That of a bag which has no other, kept since a bag is gone through twice."""
        return self._block(0)

    def _block(self, start: int) -> tuple[slice, Array, Array]:
        rows = slice(start, start + ROWS_PER_BLOCK)
        f = self.base[rows, None] + self.loadings[rows] @ self.points.T
        # P(y = 1 | f) = P(y = 0 | -f) for both links.
        log_p, log_q = (
            self.link.log_smoothed(sign * f, self.kt[rows], second=False)[0] for sign in (-1.0, 1.0)
        )
        return rows, log_p, log_q

    def residual_variance(self, rows: slice) -> Array:
        """Variance of P(y = 1 | draw, r) over r, (rows, draws), of the first draws."""
        f = self.base[rows, None] + self.loadings[rows] @ self.points[:SPREAD_DRAWS].T
        log_p, log_ratio = self.link.log_smoothed(-f, self.kt[rows], second=True)
        assert log_ratio is not None
        return np.exp(2 * log_p + log_ratio) * -np.expm1(-log_ratio)


@dataclass(frozen=True)
class BagLabels:
    """What is known of the labels of one bag."""

    T: Any  # True or False, or a share
    known: Array  # (n,) 1, 0, NaN where unknown

    @property
    def free(self) -> NDArray[np.bool_]:
        """Instances whose label is unknown."""
        return np.isnan(self.known)

    @property
    def settled(self) -> bool:
        """Whether a known positive leaves the bag's label nothing to say."""
        return bool(np.any(self.known == 1))

    def as_columns(self) -> Array:
        """Known labels as probabilities of both, (n, 2); unknown ones are negative."""
        return np.column_stack([self.known != 1, self.known == 1]).astype(np.float64)

    def excluded(self, likelihood: BagLikelihood) -> bool:
        """Whether the label leaves no instance a chance: a negative bag at H = inf."""
        return not self.T and likelihood.h[0] == 0


def given_labels(
    draws: BagDraws, labels: BagLabels, likelihood: BagLikelihood
) -> tuple[Array, Array]:
    """P(y_n = 0) and P(y_n = 1) given T_b and known labels, (n, 2), and their deviation over f.

    What the residual r_n adds to the deviation is taken to first order. A known label comes back as
    it is, with deviation 0.
    """
    both, std = labels.as_columns(), np.zeros(len(labels.known))
    if labels.excluded(likelihood) or not np.any(labels.free):
        return both, std
    seen = _evidence(draws, labels)
    log_label, shift = likelihood.log_label(seen.x_log, labels.T)
    if labels.settled:
        log_label, shift = np.zeros_like(seen.x_log), np.zeros_like(seen.x_log)
    weights = special.softmax(seen.log_known + log_label)
    for rows, log_p, log_q in draws.log_probabilities():
        r = np.exp(np.minimum(log_p + shift, 0.0))  # (rows, draws)
        free = labels.free[rows]
        average = np.minimum(r @ weights, 1.0)  # weights sum to 1 up to rounding
        rest, often = 1 - average, np.flatnonzero(average >= 0.5)
        if len(often):  # the rarer label has the digits
            own = (rows.start + often, log_p[often], log_q[often])
            rest[often] = _negative(*own, seen, labels, likelihood) @ weights
        few = slice(SPREAD_DRAWS)
        slope = _slope(log_p[:, few], log_q[:, few], seen.x_log[few], labels, likelihood)
        variance = (r - average[:, None]) ** 2 @ weights
        variance += slope**2 * draws.residual_variance(rows) @ _share(weights)
        both[rows] = np.where(free[:, None], np.column_stack([rest, average]), both[rows])
        std[rows] = np.where(free, np.sqrt(np.minimum(variance, average * rest)), 0.0)
    return both, std


def _negative(
    places: NDArray[np.intp],
    log_p: Array,
    log_q: Array,
    seen: _Evidence,
    labels: BagLabels,
    likelihood: BagLikelihood,
) -> Array:
    """P(y_n = 0 | v_s, T_b) = P(y_n = 0) P(T_b | the others) / P(T_b), (rows, draws)."""
    if labels.settled:
        return np.exp(log_q)
    with np.errstate(divide="ignore", invalid="ignore"):  # no other instance: no other positive
        others = likelihood.log_label(seen.without(places, log_p, log_q), labels.T)[0]
        log_r = log_q + others - likelihood.log_label(seen.x_log, labels.T)[0]
    return np.exp(np.minimum(log_r, 0.0))


def _share(weights: Array) -> Array:
    """The weights of the draws for spreads alone, which need fewer digits than means."""
    few = weights[:SPREAD_DRAWS]
    return few / max(float(few.sum()), 1e-300)


def _slope(
    log_p: Array, log_q: Array, x_log: Array, labels: BagLabels, likelihood: BagLikelihood
) -> Array:
    """d P(y_n = 1 | f, T) / d p_n, (n, draws): what a change of f_n alone does.

    With Q = P0 / (1 - p_n) of the others and B = 1 - c Q it is B / (p_n + (1 - p_n) B)^2 in a
    positive bag, h (h + c Q) / (h + c (1 - p_n) Q)^2 in a negative one, and 1 in a settled one.
    """
    if labels.settled:
        return np.ones_like(log_p)
    p, q, h = np.exp(log_p), np.exp(log_q), likelihood.h[labels.T]
    log_cQ = np.minimum(np.log1p(-h) - np.exp(np.minimum(x_log, 700.0)) - log_q, 0.0)
    if labels.T:
        top, root = -np.expm1(log_cQ), p - q * np.expm1(log_cQ)
    else:
        top, root = h * (h + np.exp(log_cQ)), h + q * np.exp(log_cQ)
    usable = root > 1e-150  # below, its square is no number
    return np.divide(top, root**2, out=np.zeros_like(p), where=usable)


@dataclass(frozen=True)
class _Evidence:
    """What draws say of the labels of a bag; x = -log P0 of its free instances, all (draws,)."""

    log_known: Array  # log P(known labels | v_s)
    peak: Array  # log of the largest part of x
    top: Array  # the row that it is of
    rest: Array  # log of x without it

    @property
    def x_log(self) -> Array:
        """log x."""
        return np.logaddexp(self.peak, self.rest)

    def without(self, places: NDArray[np.intp], log_p: Array, log_q: Array) -> Array:
        """log of x without the part of each row, (rows, draws); it cancels for none but `top`."""
        x_log = self.x_log
        share = np.exp(np.minimum(log_minus_log(log_p, log_q) - x_log, 0.0))
        return np.where(places[:, None] == self.top, self.rest, x_log + np.log1p(-share))


def _evidence(draws: BagDraws, labels: BagLabels) -> _Evidence:
    n = len(draws.points)
    log_known, top = np.zeros(n), np.zeros(n, dtype=np.int64)
    peak, rest = np.full((2, n), -np.inf)
    for rows, log_p, log_q in draws.log_probabilities():
        free, known = labels.free[rows], labels.known[rows]
        log_known += log_p[known == 1].sum(axis=0) + log_q[known == 0].sum(axis=0)
        terms = np.where(free[:, None], log_minus_log(log_p, log_q), -np.inf)
        its_top = np.argmax(terms, axis=0)
        its_peak = terms[its_top, range(n)]
        terms[its_top, range(n)] = -np.inf
        level = np.clip(its_peak, -LARGEST_LOG, LARGEST_LOG)
        with np.errstate(divide="ignore"):  # no other instance
            others = level + np.log(np.exp(terms - level).sum(axis=0))
        rest = np.logaddexp(rest, others)
        rest = np.logaddexp(rest, np.minimum(peak, its_peak))
        top = np.where(its_peak > peak, rows.start + its_top, top)
        peak = np.maximum(peak, its_peak)
    return _Evidence(log_known, peak, top, rest)


def log_minus_log(log_p: Array, log_q: Array) -> Array:
    """log(-log q) of q = 1 - p, which is log p where q rounds to 1.

    >>> log_minus_log(np.array([-40.0]), np.array([0.0]))
    array([-40.])
    """
    small = log_p < -36
    return np.where(small, log_p, np.log(-np.where(small, -1.0, log_q)))
