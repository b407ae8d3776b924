"""A posterior and the likelihood whose bag labels are asked for: what predictions go through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.bag_scores import Predicted
from bagwise.core.posteriors.given_labels import BagLabels

Array = NDArray[Any]


@dataclass(frozen=True)
class Predictor:
    """A posterior with the likelihood whose bag labels are asked for."""

    posterior: Any  # a FeaturePosterior, or what answers in its place
    likelihood: BagLikelihood

    def instances(self, X: Array) -> tuple[Array, Array]:
        """P(y_n = 1) and its standard deviation; see `FeaturePosterior.instances`."""
        found: tuple[Array, Array] = self.posterior.instances(X)
        return found

    def predicted(self, X: Array, offsets: Array, **asked: Any) -> Predicted:
        """What predictions are made of; see `FeaturePosterior.predicted`."""
        found = self.posterior.predicted(X, offsets, **asked)
        return replace(found, likelihood=self.likelihood)

    def given_labels(
        self, X: Array, offsets: Array, labels: Sequence[BagLabels]
    ) -> tuple[Array, Array]:
        """P(y_n | bag label, known labels), (n, 2), and its standard deviation, (n,)."""
        found: tuple[Array, Array]
        found = self.posterior.given_labels(X, offsets, labels, self.likelihood)
        return found
