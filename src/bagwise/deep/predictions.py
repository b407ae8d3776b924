"""Predictions of a model whose instances pass through an encoder before its head sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.core.calibration.novelty import Novelty
from bagwise.core.calibration.thresholds import OperatingPoint
from bagwise.models._base import Predictions
from bagwise.models.estimator import TwoClassEstimator
from bagwise.models.inputs import labels_for
from bagwise.models.probit import ProbitVGPMIL

Array = NDArray[Any]
Flags = NDArray[np.bool_]


class EncodedPredictions(TwoClassEstimator):
    """Everything that `head_` predicts, of bags that `transform` has encoded."""

    head_: ProbitVGPMIL

    def transform(self, X: Any) -> Bags:
        """The bags with the encoder's features in place of theirs; all else is kept."""
        raise NotImplementedError

    def predict_proba(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Probability of each class for each bag: see `bagwise.ProbitVGPMIL.predict_proba`."""
        return self._fitted_head().predict_proba(self.transform(X), return_std)

    def predict_instance_proba(
        self, X: Any, return_std: bool = False
    ) -> Array | tuple[Array, Array]:
        """Probability of each class for each instance, rows as in `bags.X`."""
        return self._fitted_head().predict_instance_proba(self.transform(X), return_std)

    def predict_instance_range(self, X: Any) -> tuple[Array, Array]:
        """Both ends of the probability that an instance is positive, low and high (N,) each."""
        return self._fitted_head().predict_instance_range(self.transform(X))

    def instance_posterior(
        self, X: Any, return_std: bool = False, *, y: ArrayLike | None = None
    ) -> Array | tuple[Array, Array]:
        """Probability of each class for each instance, given the label of its bag."""
        told = labels_for(X, y)
        return self._fitted_head().instance_posterior(self.transform(X), return_std, y=told)

    def predict_all(self, X: Any, *, y: ArrayLike | None = None) -> Predictions:
        """Bags and instances, probabilities and deviations, from one pass over the instances."""
        return self._fitted_head().predict_all(self.transform(X), y=labels_for(X, y))

    def predict_instances(self, X: Any) -> Array:
        """The more probable class of each instance."""
        return self._fitted_head().predict_instances(self.transform(X))

    def latent(self, X: Any) -> tuple[Array, Array]:
        """Posterior mean and variance of the latent function at each instance."""
        return self._fitted_head().latent(self.transform(X))

    def top_instances(self, X: Any, k: int = 1) -> list[NDArray[np.intp]]:
        """For each bag the rows of `bags.X` of its `k` most probable instances, best first."""
        return self._fitted_head().top_instances(self.transform(X), k)

    def predict_set(self, X: Any, alpha: float = 0.1) -> Flags:
        """Which classes each bag may have, (B, 2): see `bagwise.ProbitVGPMIL.predict_set`."""
        return self._fitted_head().predict_set(self.transform(X), alpha)

    def possible_positives(self, X: Any, alpha: float = 0.1) -> Flags:
        """Which instances may be positive, where positives were known in `fit`, (N,)."""
        return self._fitted_head().possible_positives(self.transform(X), alpha)

    def choose_threshold(
        self,
        *,
        sensitivity: float | None = None,
        specificity: float | None = None,
        cost: float | None = None,
    ) -> OperatingPoint:
        """Choose from which probability on `predict` calls a bag positive, on held-out bags."""
        return self._fitted_head().choose_threshold(
            sensitivity=sensitivity, specificity=specificity, cost=cost
        )

    @property
    def threshold_(self) -> float:
        """The probability from which on a bag is called positive: 1/2, or as was chosen."""
        return self._fitted_head().threshold_

    def called_positive(self, p: Array) -> Flags:
        """Which bags with the probabilities (B, 2) `predict` calls positive."""
        return self._fitted_head().called_positive(p)

    def novelty(self, X: Any) -> Novelty:
        """How unlike the held-out bags of the fit these are to the encoder, as p-values."""
        return self._fitted_head().novelty(self.transform(X))

    def suggest_instances(self, X: Any, k: int = 10) -> NDArray[np.intp]:
        """Rows of `bags.X` whose labels would tell the head most, at most k, best first."""
        return self._fitted_head().suggest_instances(self.transform(X), k)

    def suggest_bags(self, X: Any, k: int = 10) -> NDArray[np.intp]:
        """Numbers of the bags whose labels would tell the head most, at most k, best first."""
        return self._fitted_head().suggest_bags(self.transform(X), k)

    def _fitted_head(self) -> ProbitVGPMIL:
        check_is_fitted(self)
        return self.head_
