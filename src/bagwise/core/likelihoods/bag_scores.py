"""From what a pass over instances finds to whether a bag holds a positive one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Moments
from bagwise.core.parameters import check_choice

Array = NDArray[Any]

BAG_SCORES = ("joint", "noisy-or", "max")
CLOSEST = 1e-9  # to 0 and to 1, of a probability whose logit is compared or averaged


@dataclass(frozen=True)
class Predicted:
    """What one pass over the features finds out about bags and their instances."""

    offsets: Array  # (B + 1,)
    instances: Moments | None  # (N,)
    joint: Moments | None  # (B,) of P0 = prod_n P(y_n = 0 | f_n)
    likelihood: BagLikelihood | None = None  # whose bag labels are asked for
    pooled: Array | None = None  # (B,) logits of mean features, where bags are calibrated by them
    readout: Array | None = None  # (B,) mean of what was to be read out of the features

    def bags(self, score: str) -> Moments:
        """P(T) of each bag by a score; without a likelihood, whether it holds a positive."""
        some = self.some_positive(score)
        return some if self.likelihood is None else self.likelihood.of_bags(some)

    def some_positive(self, score: str) -> Moments:
        """Whether each bag holds a positive instance, by a score whose parts were asked for.

        ``joint`` integrates over what all instances of a bag share, ``noisy-or`` takes
        instances as independent [C24, Eq. 34-37], ``max`` is the most probable instance (the k-th,
        where a bag needs k of them).
        """
        check_choice("bag_score", score, BAG_SCORES)
        found = self.joint if score == "joint" else self.instances
        if found is None:
            raise ValueError(f"bag_score={score!r} needs what this pass was not asked for")
        if score == "joint":
            return found
        if score == "max":
            rank = 1 if self.likelihood is None else self.likelihood.fewest
            return most_probable(found, self.offsets, rank)
        return noisy_or(found, self.offsets)


def joined(offsets: Array, parts: Sequence[Predicted]) -> Predicted:
    """What was found out about one chunk of bags after the other, as one."""

    def moments(name: str) -> Moments | None:
        found = [getattr(part, name) for part in parts]
        if not found or found[0] is None:
            return None
        return Moments(*(np.concatenate(part) for part in zip(*found, strict=True)))

    read = [part.readout for part in parts if part.readout is not None]
    return Predicted(
        offsets,
        moments("instances"),
        moments("joint"),
        readout=np.concatenate(read) if read else None,
    )


def parts_of(score: str) -> dict[str, bool]:
    """What a pass must find for a bag score."""
    check_choice("bag_score", score, BAG_SCORES)
    return {"joint": score == "joint", "instances": score != "joint"}


def columns(found: Moments | None) -> tuple[Array, Array]:
    """Probabilities of both labels, each with all its digits, and their standard deviation."""
    assert found is not None
    return np.exp(np.column_stack([found.log_negative, found.log_positive])), found.std


def log_odds(found: Moments) -> Array:
    """log P(y = 1) - log P(y = 0): no ties where probabilities round to 0 or 1."""
    return found.log_positive - found.log_negative


def most_probable(found: Moments, offsets: Array, rank: int = 1) -> Moments:
    """Each bag's most probable instance, or the one of that rank; of smaller bags the last."""
    logit = log_odds(found)
    if rank == 1:
        top = np.array([a + np.argmax(logit[a:b]) for a, b in itertools.pairwise(offsets)])
    else:
        bags = itertools.pairwise(offsets)
        top = np.array([a + np.argsort(-logit[a:b])[: min(rank, b - a)][-1] for a, b in bags])
    return Moments(*(x[top] for x in found))


def noisy_or(found: Moments, offsets: Array) -> Moments:
    """1 - prod_n E[P(y_n = 0)] of each bag [C24, Eq. 34-37]."""
    negative = np.add.reduceat(found.log_negative, offsets[:-1])
    with np.errstate(divide="ignore"):  # a bag that cannot be positive
        positive = np.log(-np.expm1(negative))
    return Moments(negative, positive, np.add.reduceat(found.log_ratio, offsets[:-1]))


def within_bounds(bags: Moments, instances: Moments, starts: Array) -> Moments:
    """max_n P(y_n = 1) <= 1 - P0 <= sum_n P(y_n = 1), which averages may miss by their error."""
    low = np.maximum.reduceat(instances.log_positive, starts)
    high = np.logaddexp.reduceat(instances.log_positive, starts)
    positive = np.clip(bags.log_positive, low, np.minimum(high, 0.0))
    most = np.minimum.reduceat(instances.log_negative, starts)
    rare = positive < np.log(0.5)
    with np.errstate(divide="ignore"):  # the rarer label has the digits
        least = np.log1p(-np.exp(np.minimum(high, 0.0)))
        negative = np.clip(bags.log_negative, least, most)
        negative = np.where(rare, np.log1p(-np.exp(positive)), negative)
        positive = np.where(rare, positive, np.log1p(-np.exp(negative)))
    return Moments(negative, positive, np.minimum(bags.log_ratio, -negative))
