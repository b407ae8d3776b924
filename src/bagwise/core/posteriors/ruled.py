"""Predictions for bags whose labels are about numbers of positive instances.

Over draws v_s of the posterior the labels of a bag are independent, so that what a label says, and
how probable it is, are those of `counts.counted` for every draw, and are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.likelihoods.at_least_one import Targets
from bagwise.core.likelihoods.bag_scores import Predicted, log_odds
from bagwise.core.likelihoods.count_rule import CountRule
from bagwise.core.likelihoods.counts import Counts
from bagwise.core.likelihoods.rules import AtLeast
from bagwise.core.links import Moments
from bagwise.core.posteriors.given_labels import SPREAD_DRAWS, BagDraws, BagLabels
from bagwise.core.posteriors.predictor import Predictor

Array = NDArray[Any]

DRAWS = 256  # of v
SMALLEST = -300.0  # log p q of an instance whose label may still change
ROWS_AT_ONCE = 2**16  # rows times draws


@dataclass(frozen=True)
class RulePredictor(Predictor):
    """A posterior with a rule about numbers of positives."""

    likelihood: CountRule

    def predicted(self, X: Array, offsets: Array, **asked: Any) -> Predicted:
        """What predictions are made of; `joint` is P(label) of rules whose labels are classes."""
        rule = self.likelihood.rule
        joint = asked.get("joint", False) and not rule.shares
        # P0 of "at least one" is known more exactly than numbers of positives are.
        one = joint and isinstance(rule, AtLeast) and rule.k == 1
        found = self.posterior.predicted(X, offsets, **{**asked, "joint": one, "instances": True})
        of_bags = self._label_moments(X, np.asarray(offsets)) if joint and not one else found.joint
        return replace(found, joint=of_bags, likelihood=self.likelihood)

    def given_labels(
        self, X: Array, offsets: Array, labels: Sequence[BagLabels]
    ) -> tuple[Array, Array]:
        """P(y_n | bag label, known labels), (n, 2), and its standard deviation, (n,)."""
        bags = zip(self._draws(X, offsets), labels, strict=True)
        found = [_given(draws, known, self.likelihood) for draws, known in bags]
        mean, std = (np.concatenate(part) for part in zip(*found, strict=True))
        return mean, std

    def shares(self, X: Array, offsets: Array) -> tuple[Array, Array]:
        """The expected share of positives of each bag, and its standard deviation."""
        found = self.posterior.predicted(X, offsets, joint=False, instances=True)
        sizes = np.diff(offsets)
        mean = np.add.reduceat(np.exp(found.instances.log_positive), offsets[:-1]) / sizes
        variances = [_share_variance(draws) for draws in self._draws(X, offsets)]
        return mean, np.sqrt(variances)

    def _label_moments(self, X: Array, offsets: Array) -> Moments:
        """P(T_b) of each bag."""
        found = [self._of_bag(draws) for draws in self._draws(X, offsets)]
        return Moments(*(np.array(part) for part in zip(*found, strict=True)))

    def _of_bag(self, draws: BagDraws) -> tuple[float, float, float]:
        """log E[P(T = 0)], log E[P(T = 1)], log E[P(T = 0)^2] - 2 log E[P(T = 0)]."""
        if len(draws.base) < self.likelihood.fewest:
            return 0.0, -np.inf, 0.0
        negative, positive = (
            np.concatenate([c.log_prob for c in _counts(draws, label, self.likelihood)])
            for label in (False, True)
        )
        log_n = np.log(len(draws.points))
        first = float(special.logsumexp(negative) - log_n)
        second = float(special.logsumexp(2 * negative) - log_n)
        return first, float(special.logsumexp(positive) - log_n), max(second - 2 * first, 0.0)

    def _draws(self, X: Array, offsets: Array) -> Iterator[BagDraws]:
        nothing_settled = np.ones(len(offsets) - 1, dtype=bool)  # both labels matter
        for draws in self.posterior.bag_draws(X, np.asarray(offsets), nothing_settled):
            yield replace(draws, points=draws.points[:DRAWS])


def _log_both(draws: BagDraws) -> tuple[Array, Array]:
    """log P(y = 1 | draw) and log P(y = 0 | draw), (n, draws)."""
    parts = [(p, q) for _, p, q in draws.log_probabilities()]
    log_p, log_q = (np.concatenate(part).astype(np.float64) for part in zip(*parts, strict=True))
    return log_p, log_q


def _counts(
    draws: BagDraws, label: Any, likelihood: CountRule, known: Array | None = None
) -> Iterator[Counts]:
    """What the label says for some of the draws at a time, each as if it were a bag."""
    log_p, log_q = _log_both(draws)
    n, many = log_p.shape
    at_once = max(1, ROWS_AT_ONCE // n)
    for first in range(0, many, at_once):
        logit = (log_p - log_q)[:, first : first + at_once]
        S = logit.shape[1]
        told = None if known is None or np.all(np.isnan(known)) else np.tile(known, S)
        targets = Targets(n * np.arange(S), np.full(S, n), np.full(S, label), told)
        yield likelihood.of_odds(logit.T.ravel(), targets)


def _given(draws: BagDraws, labels: BagLabels, likelihood: CountRule) -> tuple[Array, Array]:
    """P(y_n = 0), P(y_n = 1) given what is known of a bag, and their deviation over f."""
    both, free = labels.as_columns(), labels.free
    if not np.any(free):
        return both, np.zeros(len(free))
    found = list(_counts(draws, labels.T, likelihood, labels.known))
    n = len(free)
    positive = np.concatenate([c.positive.reshape(-1, n) for c in found])  # (draws, n)
    negative = np.concatenate([c.negative.reshape(-1, n) for c in found])
    log_p, log_q = _log_both(draws)
    log_known = log_p[labels.known == 1].sum(axis=0) + log_q[labels.known == 0].sum(axis=0)
    weights = special.softmax(np.concatenate([c.log_prob for c in found]) + log_known)
    mean = weights @ positive
    both[free] = np.clip(np.column_stack([weights @ negative, mean]), 0.0, 1.0)[free]
    # d P(y = 1 | label) / dp = P(y = 1 | label) P(y = 0 | label) / (p q): of f_n's own residual.
    few = slice(0, SPREAD_DRAWS)
    log_pq = (log_p + log_q).T[few]
    usable = log_pq > SMALLEST  # what is as good as certain does not move
    slope = np.where(
        usable, (positive * negative)[few] * np.exp(-np.maximum(log_pq, SMALLEST)), 0.0
    )
    share = weights[few] / max(float(weights[few].sum()), 1e-300)
    variance = weights @ (positive - mean) ** 2
    variance += share @ (slope**2 * draws.residual_variance(slice(0, n)).T)
    std = np.sqrt(np.minimum(variance, both[:, 0] * both[:, 1]))
    return both, np.where(free, std, 0.0)


def _share_variance(draws: BagDraws) -> float:
    """Var(K / n) = E[Var(K | v)] / n^2 + Var(E[K | v]) / n^2."""
    log_p, log_q = _log_both(draws)
    within = np.exp(log_p + log_q).sum(axis=0).mean()
    between = np.var(np.exp(log_p).sum(axis=0))
    return float(within + between) / len(log_p) ** 2


def share_scores(found: Predicted, T: Array) -> tuple[Array, Array]:
    """Of each bag the log density of its share, relative to the largest that it may have, and the
    expected share, (B, 2); logits of instances, which are taken as independent.
    """
    assert found.instances is not None and isinstance(found.likelihood, CountRule)
    starts, sizes = found.offsets[:-1], np.diff(found.offsets)
    logit = log_odds(found.instances)
    targets = Targets(starts, sizes, T)
    rule = found.likelihood.rule
    highest = rule.log_label(sizes[:, None] * T[:, None], sizes[:, None], T[:, None], 1.0)[:, 0]
    log_density = found.likelihood.of_odds(logit, targets).log_prob - highest
    expected = np.add.reduceat(special.expit(logit), starts) / sizes
    return np.column_stack([np.minimum(log_density, 0.0), expected]), logit
