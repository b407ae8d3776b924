"""What all fitted models share: predictions for bags and instances, model files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.bags.rows import is_elsewhere
from bagwise.core.calibration.bags import BagCalibration, calibrated_probability
from bagwise.core.calibration.instance_ends import Ends, InstanceCalibration, calibrated_ends
from bagwise.core.calibration.instances import no_calibration
from bagwise.core.files.modelfile import register_kernels, write_state
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.bag_scores import Predicted, columns, parts_of
from bagwise.core.parameters import check_integer, plain_seed
from bagwise.core.posteriors.given_labels import BagLabels
from bagwise.core.posteriors.predictor import Predictor
from bagwise.core.threads import suitable_threads
from bagwise.models.bag_weights import check_class_weight
from bagwise.models.estimator import TwoClassEstimator
from bagwise.models.inputs import (
    bag_targets,
    bags_to_predict,
    known_labels,
    labels_for,
)
from bagwise.models.registry import add_model, complete_signature

Array = NDArray[Any]


@dataclass(frozen=True)
class Predictions:
    """Probabilities of bags and of instances, in the order of the Bags."""

    bag_p: Array  # (B, 2)
    bag_std: Array  # (B,)
    p: Array  # (N, 2)
    std: Array  # (N,)
    low: Array | None = None  # (N,) both ends of P(positive) of instances that are calibrated
    high: Array | None = None  # (N,)
    given: Array | None = None  # (N, 2) where the labels of bags were told
    given_std: Array | None = None  # (N,)


class BagClassifierMIL(TwoClassEstimator):
    """Predictions from a fitted `posterior_`, calibrated where they can be; subclasses fit it."""

    posterior_: Any
    bag_score: str
    instance_score: str
    class_weight: Any
    calibration_: BagCalibration | None
    why_not_calibrated_: str | None
    instance_calibration_: InstanceCalibration | None
    why_instances_not_calibrated_: str | None
    _posterior_type: ClassVar[Any]

    def __init_subclass__(
        cls, *, alias: str | None = None, abstract: bool = False, **kwargs: Any
    ) -> None:
        """Add a model to those that files and commands know, and complete its signature.

        `alias` is its name on the command line; an `abstract` class is no model yet. The signature
        has a model's own arguments and those that it shares, which are written down once, above:
        scikit-learn (`get_params`, `clone`) and `help` read it.
        """
        super().__init_subclass__(**kwargs)
        if not abstract:
            add_model(cls, alias)
        complete_signature(cls)

    def predict_proba(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Probability of each class for each bag, columns in the order of `classes_`.

        With `return_std`, also the posterior standard deviation of that probability.
        """
        bags = bags_to_predict(self, X)
        with self._predicting(bags):
            both, std = self._bag_probability(self._predicted(bags, second=return_std))
        return (both, std) if return_std else both

    def predict_instance_proba(
        self, X: Any, return_std: bool = False
    ) -> Array | tuple[Array, Array]:
        """Probability of each class for each instance, rows as in `bags.X`.

        Where instances are calibrated (`instance_score_`), it lies between the two ends of
        `predict_instance_range`, and no instance is more probable than its bag. With
        `return_std`, also the standard deviation of that probability: of the posterior, and of
        what lies between the ends.
        """
        bags = bags_to_predict(self, X)
        with self._predicting(bags):
            found = self._instance_ends(bags, with_std=return_std)
        if not return_std:
            return found.p
        assert found.std is not None
        return found.p, found.std

    def predict_instance_range(self, X: Any) -> tuple[Array, Array]:
        """Both ends of the probability that an instance is positive, low and high (N,) each.

        Bag labels do not tell how many instances of a positive bag are positive. The low end is
        as few as they require; at the high end all instances of positive bags are positive that
        look unlike those of negative bags. No number of bags brings the ends together; known
        instance labels and `witness_rate` do.
        """
        bags = bags_to_predict(self, X)
        with self._predicting(bags):
            found = self._instance_ends(bags, with_std=False)
        if found.low is None or found.high is None:
            reason = getattr(self, "why_instances_not_calibrated_", None) or "it never does"
            raise ValueError(
                f"this {type(self).__name__} does not calibrate instances, so that it knows no "
                f"range of theirs: {reason}; see instance_score"
            )
        return found.low, found.high

    def instance_posterior(
        self, X: Any, return_std: bool = False, *, y: ArrayLike | None = None
    ) -> Array | tuple[Array, Array]:
        """Probability of each class for each instance, given the label of its bag.

        Where `predict_instance_proba` sees features alone, this sees what is known of the bag
        too: P(y_n = 1 | x, label of the bag, known labels of its instances), (N, 2), for training
        bags and any others with labels. In a negative bag no instance is positive, in a positive
        one at least one is; under a finite `H` the label of a bag is evidence, not proof. Known
        instance labels come back as 0 and 1.

        This is the posterior of the model as it is: it takes the low end of
        `predict_instance_range`, as few positives as the labels require, and is not calibrated.

        Parameters
        ----------
        X : labelled Bags, or any bags with `y`.
        return_std : also return the posterior standard deviation of that probability, (N,).
        y : one label per bag, of `classes_`; overrides the labels of the bags.
        """
        bags = bags_to_predict(self, X)
        T = self._told_targets(bags, labels_for(X, y))
        known = known_labels(bags, T, noisy=self._bag_labels_may_be_wrong())
        unknown = np.full(bags.n_instances, np.nan) if known is None else known
        parts = np.split(unknown, bags.offsets[1:-1])
        labels = [BagLabels(t, part) for t, part in zip(T.tolist(), parts, strict=True)]
        with self._predicting(bags):
            both, std = self._predictor(bags).given_labels(bags.X, bags.offsets, labels)
        return (both, std) if return_std else both

    def predict_all(self, X: Any, *, y: ArrayLike | None = None) -> Predictions:
        """Bags and instances, probabilities and deviations, from one pass over the features.

        The same numbers as those of `predict_proba` and `predict_instance_proba` with
        `return_std=True`, for about half of the work. With `y`, the labels of the bags, also
        those of `instance_posterior`.
        """
        bags = bags_to_predict(self, X)
        with self._predicting(bags):
            found = self._predicted(bags, instances=True)
        given: Any = (None, None)
        if y is not None:
            given = self.instance_posterior(bags, return_std=True, y=y)
        both, std = self._bag_probability(found)
        ends = self._ends(found, (both, std))
        assert ends.std is not None
        return Predictions(both, std, ends.p, ends.std, ends.low, ends.high, *given)

    def predict_instances(self, X: Any) -> Array:
        """The more probable class of each instance."""
        p = self.predict_instance_proba(X)
        return self.classes_[np.argmax(p, axis=1)]

    def latent(self, X: Any) -> tuple[Array, Array]:
        """Posterior mean and variance of the latent function at each instance."""
        bags = bags_to_predict(self, X)
        with self._predicting(bags):
            return self.posterior_.latent(bags.X)

    def top_instances(self, X: Any, k: int = 1) -> list[NDArray[np.intp]]:
        """For each bag the rows of `bags.X` of its `k` most probable instances, best first."""
        check_integer("k", k, at_least=1)
        bags = bags_to_predict(self, X)
        with self._predicting(bags):
            p, _ = self._predictor(bags).instances(bags.X)
        ranges = zip(bags.offsets[:-1], bags.offsets[1:], strict=True)
        return [a + np.argsort(-p[a:b], kind="stable")[:k] for a, b in ranges]

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the fitted model to one file that `bagwise.load` reads without running code.

        With `overwrite=False` an existing file is kept and FileExistsError raised. If the model
        has a dictionary `metadata_` of plain values, it is kept in the file; the command line
        notes there which columns and classes the model was fitted on.
        """
        register_kernels()
        write_state(path, self.to_state(), kind=type(self).__name__, overwrite=overwrite)

    def to_state(self) -> dict[str, Any]:
        """What a file holds of the fitted model: plain values, arrays, registered dataclasses."""
        check_is_fitted(self)
        fitted = {name: getattr(self, name) for name in self._fitted_names()}
        names = getattr(self, "feature_names_in_", None)
        state = {
            "parameters": self._storable_parameters(),
            "fitted": fitted,
            "feature_names": None if names is None else [str(n) for n in names],
        }
        if getattr(self, "metadata_", None):
            state["metadata"] = self.metadata_
        return state

    def _fitted_names(self) -> tuple[str, ...]:
        """Attributes that make a fitted model."""
        raise NotImplementedError

    def _storable_parameters(self) -> dict[str, Any]:
        """Arguments as plain values."""
        parameters = self.get_params(deep=False)
        parameters["random_state"] = plain_seed(parameters["random_state"])
        if isinstance(self.class_weight, Mapping):  # keys of any type, which files do not hold
            parameters["class_weight"] = [list(item) for item in self.class_weight.items()]
        if parameters.get("dtype") is not None:
            parameters["dtype"] = np.dtype(parameters["dtype"]).name
        return parameters

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _told_targets(self, bags: Bags, y: ArrayLike | None) -> Array:
        """Labels of bags as the likelihood takes them."""
        return bag_targets(self, bags, y)

    def _predictor(self, bags: Bags) -> Any:
        """What answers questions about these bags."""
        return Predictor(self.posterior_, self._fitted_likelihood())

    def _likelihood(self) -> BagLikelihood:
        """What bag labels say about instances, as a fit begins."""
        raise NotImplementedError

    def _fitted_likelihood(self) -> BagLikelihood:
        """The same with what a fit has learned of it."""
        return self._likelihood()

    @property
    def bag_score_(self) -> str:
        """Where bag probabilities come from; it says what `bag_score="auto"` came to."""
        if self.bag_score != "auto":
            return self.bag_score
        return "joint" if getattr(self, "calibration_", None) is None else "calibrated"

    @property
    def instance_score_(self) -> str:
        """Where instance probabilities come from: "calibrated" or "posterior"."""
        if self.instance_score != "auto":
            return self.instance_score
        there = getattr(self, "instance_calibration_", None) is not None
        return "calibrated" if there else "posterior"

    def _predicted(self, bags: Bags, *, second: bool = True, instances: bool = False) -> Predicted:
        """One pass over the features that finds what bag probabilities need."""
        calibrated = self.bag_score_ == "calibrated"
        parts = {"joint": True, "instances": True} if calibrated else parts_of(self.bag_score_)
        if instances:
            parts["instances"] = True
        calibration = getattr(self, "calibration_", None) if calibrated else None
        found: Predicted = self._predictor(bags).predicted(
            bags.X,
            bags.offsets,
            **parts,
            second=second,
            readout=None if calibration is None else calibration.readout,
        )
        if calibration is None:
            return found
        return replace(found, pooled=calibration.pooled_logits(found, bags.X))

    def _bag_probability(self, found: Predicted) -> tuple[Array, Array]:
        """(B, 2) probabilities and the posterior standard deviation of each bag's."""
        if self.bag_score_ != "calibrated":
            return columns(found.bags(self.bag_score_))
        why_not = getattr(self, "why_not_calibrated_", None)
        return calibrated_probability(getattr(self, "calibration_", None), found, why_not)

    def _instance_ends(self, bags: Bags, *, with_std: bool) -> Ends:
        """Probabilities of instances; those of their bags are found too where they matter."""
        if self._used_instance_calibration() is None:
            found = self._predictor(bags).predicted(
                bags.X, bags.offsets, joint=False, instances=True
            )
            return self._ends(found, None)
        found = self._predicted(bags, second=with_std, instances=True)
        both, std = self._bag_probability(found)
        return self._ends(found, (both, std if with_std else None))

    def _ends(self, found: Predicted, bags: tuple[Array, Array | None] | None) -> Ends:
        """Probabilities of instances, from those of their bags where they are calibrated."""
        calibration = self._used_instance_calibration()
        if calibration is None or bags is None:
            return Ends(*columns(found.instances))
        return calibrated_ends(calibration, found, *bags)

    def _used_instance_calibration(self) -> InstanceCalibration | None:
        """What instance probabilities are calibrated by, if they are."""
        if self.instance_score_ != "calibrated":
            return None
        calibration: InstanceCalibration | None = getattr(self, "instance_calibration_", None)
        if calibration is None:
            raise ValueError(no_calibration(getattr(self, "why_instances_not_calibrated_", None)))
        return calibration

    def _predicting(self, bags: Bags) -> AbstractContextManager[None]:
        """The threads that suit predictions for these bags."""
        sizes = (bags.n_instances, bags.n_features, len(self.posterior_.m))
        return suitable_threads(*sizes, by_chunk=not is_elsewhere(bags.X))

    def _check_parameters(self) -> None:
        check_class_weight(self.class_weight)

    def _bag_labels_may_be_wrong(self) -> bool:
        """Whether known instance labels may contradict the label of their bag."""
        return False
