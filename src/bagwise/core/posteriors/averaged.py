"""Predictions by several posteriors at once: their logits, averaged.

Left-out bags seldom tell the best of a few kernels from the next. Where they do not, the average
of what their posteriors say is a better guess than either, and a steadier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.inference.passes import by_chunk
from bagwise.core.likelihoods.bag_scores import CLOSEST, Predicted, joined, log_odds
from bagwise.core.links import Moments, log_expm1
from bagwise.core.posteriors.gaussian import Posterior, check_part
from bagwise.core.posteriors.joint import STAGES

Array = NDArray[Any]

FURTHEST = float(special.logit(1 - CLOSEST))  # logit that counts in an average


@dataclass(frozen=True)
class AveragedPosterior(Posterior):
    """The leading posterior, and others beside it whose predictions are averaged with its own.

    Probabilities of instances and of bags are those of the weighted mean of all logits. What is
    asked of f itself (`latent`, draws, what labels tell) is answered by the leading one.
    """

    others: tuple[Posterior, ...]
    weights: Array  # (1 + number of others,), of the leading one first; their sum is 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.others and all(type(other) is Posterior for other in self.others)):
            raise ValueError("posterior: what is averaged must be posteriors")
        check_part("weights", self.weights, (1 + len(self.others),))
        if np.any(self.weights <= 0) or abs(np.sum(self.weights) - 1) > 1e-6:
            raise ValueError("posterior: weights must be positive and add up to 1")
        if any(len(other.shift) != len(self.shift) for other in self.others):
            raise ValueError("posterior: what is averaged must have the same features")

    @classmethod
    def of(cls, members: Sequence[Posterior], weights: Array) -> AveragedPosterior:
        """The average of several, the leading one first."""
        own = {f.name: getattr(members[0], f.name) for f in fields(Posterior)}
        return cls(**own, others=tuple(members[1:]), weights=np.asarray(weights, dtype=np.float64))

    @cached_property
    def members(self) -> tuple[Posterior, ...]:
        """The leading posterior and the others."""
        own = {f.name: getattr(self, f.name) for f in fields(Posterior)}
        return (Posterior(**own), *self.others)

    @property
    def shares(self) -> Array:
        """(1 + number of others,) the weights."""
        return self.weights

    def pooled_rows(self, X: Array) -> Array:
        """Features of all members side by side, in proportion to the roots of their weights."""
        parts = zip(np.sqrt(self.weights), self.members, strict=True)
        return np.column_stack([root * member.features(X)[0] for root, member in parts])

    def predicted(
        self,
        X: Array,
        offsets: Array,
        *,
        joint: bool,
        instances: bool,
        second: bool = True,
        stages: tuple[int, ...] = STAGES,
        readout: Array | None = None,
    ) -> Predicted:
        """Everything that predictions are made of; see `FeaturePosterior.predicted`.

        The rows of some bags are read once for all members.
        """
        readouts = self._split(readout)
        asked: dict[str, Any]
        asked = {"joint": joint, "instances": instances, "second": second, "stages": stages}

        def of_chunk(some: Array, rows: slice, own: Array) -> Predicted:
            pairs = zip(self.members, readouts, strict=True)
            parts = [member.predicted(some, own, **asked, readout=part) for member, part in pairs]
            return averaged_predictions(parts, self.weights)

        return joined(np.asarray(offsets), by_chunk(X, offsets, of_chunk))

    def _split(self, readout: Array | None) -> list[Array | None]:
        """What of a readout of `pooled_rows` is for the features of each member."""
        if readout is None:
            return [None] * len(self.members)
        cuts = np.cumsum([len(member.m) for member in self.members])[:-1]
        roots = np.sqrt(self.weights)
        return [root * part for root, part in zip(roots, np.split(readout, cuts), strict=True)]


def averaged_predictions(parts: Sequence[Predicted], weights: Array) -> Predicted:
    """What several posteriors have found about the same bags, as one."""
    first = parts[0]
    of_rows = of_bags = readout = None
    if first.instances is not None:
        of_rows = averaged_logits([p.instances for p in parts if p.instances], weights)
    if first.joint is not None:
        of_bags = averaged_logits([p.joint for p in parts if p.joint], weights)
    if first.readout is not None:
        readout = np.sum([p.readout for p in parts if p.readout is not None], axis=0)
    return replace(first, instances=of_rows, joint=of_bags, readout=readout)


def averaged_logits(parts: Sequence[Moments], weights: Array) -> Moments:
    """The probability whose logit is the weighted mean of several logits.

    Its logit is as wide as theirs are on average: posteriors of the same data err together. A bag
    is at least as probable as its instances wherever that holds for each posterior.

    >>> both = [Moments(np.log([1 - p]), np.log([p]), np.zeros(1)) for p in (0.9, 0.5)]
    >>> np.exp(averaged_logits(both, np.array([0.5, 0.5])).log_positive)  # 9 : 1, 1 : 1; 3 : 1
    array([0.75])
    """
    logits = np.array([np.clip(log_odds(part), -FURTHEST, FURTHEST) for part in parts])
    z = weights @ logits
    negative, positive = special.log_expit(-z), special.log_expit(z)
    widths = special.logsumexp(
        np.array([_log_width(part) for part in parts]) + np.log(weights)[:, None], axis=0
    )
    most = negative + positive
    log_variance = most + special.log_expit(most + 2 * widths)
    return Moments(negative, positive, np.logaddexp(0.0, log_variance - 2 * negative))


def _log_width(found: Moments) -> Array:
    """log of the width w of a logit: the variance of p is m^2 w^2 / (1 + m w^2), m = p (1 - p)."""
    most = found.log_negative + found.log_positive
    share = 2 * found.log_negative + log_expm1(found.log_ratio) - most  # of the largest variance
    share = np.minimum(share, -1e-12)
    return 0.5 * (share - np.log(-np.expm1(share)) - most)
