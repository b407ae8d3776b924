"""What all models share: predictions for bags and instances, scaling, model files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.bags.alignment import in_bag_order
from bagwise.core.calibration.instance_ends import Ends, InstanceCalibration, calibrated_ends
from bagwise.core.calibration.ranking import check_ranking
from bagwise.core.files.modelfile import register_kernels, write_state
from bagwise.core.inference.monitor import Callback, listening
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.bag_scores import Predicted, columns, parts_of
from bagwise.core.parameters import check_integer, generator, plain_seed
from bagwise.core.posteriors.gaussian import Predictor
from bagwise.core.posteriors.given_labels import BagLabels
from bagwise.core.threads import suitable_threads
from bagwise.distributed import connected
from bagwise.models.fitting import all_or_nothing, forget_earlier_fit
from bagwise.models.inputs import (
    bag_counts,
    bag_targets,
    bags_to_fit,
    bags_to_predict,
    binary_targets,
    check_class_weight,
    known_labels,
    labels_for,
    record_features,
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


class BagClassifierMIL(ClassifierMixin, BaseEstimator):
    """Predictions from a fitted `posterior_`; subclasses fit it."""

    classes_: Array
    posterior_: Any
    bag_score: str
    standardize: str | bool
    class_weight: Any
    random_state: Any
    _posterior_type: ClassVar[type]
    _remedies: str  # what may help where bags are ranked near chance

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

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        positive: Any = None,
        callbacks: Sequence[Callback] = (),
        client: Any = None,
    ) -> Self:
        """Fit from bag labels.

        Parameters
        ----------
        X : Bags, a list of (n_b, D) arrays, a 2-D array with one instance per bag, or
            `bagwise.distributed.DaskBags`.
        y : one label per bag; overrides the labels of the bags. Two classes of any type. A pandas
            Series whose index holds the bag ids is put in their order.
        sample_weight : how many times each bag counts, one number per bag in the order of the
            bags, or in a pandas Series as `y`. 2 is the same as two copies of the bag in the sum of
            log-likelihoods, 0 leaves it out of that. Scaling, inducing points and the default
            kernel see every instance once. Weights of `class_weight` multiply it.
        positive : the label of bags with a positive instance, `classes_[1]`. By default the larger
            of two numbers or of two ordered categories; text needs it, but for pairs such as no
            and yes.
        callbacks : functions called after every step as f(stage, step, objective, seconds).
            `begin(model)` and `end()` of those that have them are called before and after.
        client : the Dask client whose workers hold `DaskBags`.

        A fit that does not finish (an error, Ctrl-C) leaves the model as it was before.
        Instance labels of the bags (1, 0; NaN or -1 where unknown) are used where known.
        """
        return self._fit(
            X, y, client, sample_weight=sample_weight, positive=positive, callbacks=callbacks
        )

    def _fit(
        self,
        X: Any,
        y: ArrayLike | None,
        client: Any,
        *,
        sample_weight: ArrayLike | None,
        positive: Any,
        callbacks: Sequence[Callback],
        **more: Any,
    ) -> Self:
        """Check, fit and record; `more` goes to `_fit_bags`."""
        self._check_parameters()
        with all_or_nothing(self), listening(callbacks, self):
            forget_earlier_fit(self)
            X = connected(X, client)
            bags = bags_to_fit(self, X, y)
            classes, T = binary_targets(bags, y, positive)
            counts = bag_counts(X, bags, sample_weight, self.class_weight, classes, T)
            known = known_labels(bags, T, noisy=self._bag_labels_may_be_wrong())
            rng = generator(self.random_state)
            with self._threads(bags):
                self._fit_bags(bags, T, known, rng, counts=counts, callbacks=callbacks, **more)
                self._check_ranking(bags, T, counts)
                self._keep_seen(bags, counts)
            self.classes_ = classes
            self.metadata_: dict[str, Any] = {}  # what was said of an earlier fit no longer holds
            record_features(self, bags)
        return self

    def _fit_bags(
        self,
        bags: Bags,
        T: NDArray[np.bool_],
        known: Array | None,
        rng: np.random.Generator,
        *,
        counts: Array | None,
        callbacks: Sequence[Callback],
    ) -> None:
        """Fit `posterior_` and what belongs to it.

        Known labels are NaN where they are not; `counts` say how many times each bag counts.
        """
        raise NotImplementedError

    def predict_proba(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Probability of each class for each bag, columns in the order of `classes_`.

        With `return_std`, also the posterior standard deviation of that probability.
        """
        bags = bags_to_predict(self, X)
        with self._predicting(bags):
            both, std = self._bag_probability(self._predicted(bags, second=return_std))
        return (both, std) if return_std else both

    def predict(self, X: Any) -> Array:
        """The more probable class of each bag, or that of a threshold that was chosen."""
        called = self.called_positive(np.asarray(self.predict_proba(X)))
        return self.classes_[called.astype(np.intp)]

    def called_positive(self, p: Array) -> NDArray[np.bool_]:
        """Which bags with the probabilities (B, 2) `predict` calls positive."""
        return p[:, 1] > p[:, 0]

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
        T = bag_targets(self, bags, labels_for(X, y))
        known = known_labels(bags, T, noisy=self._bag_labels_may_be_wrong())
        unknown = np.full(bags.n_instances, np.nan) if known is None else known
        parts = np.split(unknown, bags.offsets[1:-1])
        labels = [BagLabels(bool(t), part) for t, part in zip(T, parts, strict=True)]
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

    def score(self, X: Any, y: ArrayLike | None = None, sample_weight: Any = None) -> float:
        """Accuracy on bags; `y` defaults to the labels of the bags."""
        return bag_accuracy(self, bags_to_predict(self, X), labels_for(X, y), sample_weight)

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
        tags.classifier_tags.multi_class = False
        return tags

    def _predictor(self, bags: Bags) -> Any:
        """What answers questions about these bags."""
        return Predictor(self.posterior_, self._fitted_likelihood())

    def _likelihood(self) -> BagLikelihood:
        """What bag labels say about instances, as a fit begins."""
        raise NotImplementedError

    def _fitted_likelihood(self) -> BagLikelihood:
        """The same with what a fit has learned of it."""
        return self._likelihood()

    def _predicted(self, bags: Bags, *, second: bool = True, instances: bool = False) -> Predicted:
        """One pass over the features that finds what bag probabilities need."""
        parts = self._score_parts()
        if instances:
            parts = parts | {"instances": True}
        found: Predicted = self._predictor(bags).predicted(
            bags.X, bags.offsets, **parts, second=second
        )
        return found

    def _score_parts(self) -> dict[str, bool]:
        """What bag probabilities are made of."""
        return parts_of(self.bag_score)

    def _bag_probability(self, found: Predicted) -> tuple[Array, Array]:
        """(B, 2) probabilities and the posterior standard deviation of each bag's."""
        return columns(found.bags(self.bag_score))

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
        return None

    def _n_basis(self, bags: Bags) -> int:
        """How many features the model makes of an instance, at most."""
        raise NotImplementedError

    def _threads(self, bags: Bags) -> AbstractContextManager[None]:
        """The threads that suit a fit to these bags."""
        return suitable_threads(bags.n_instances, bags.n_features, self._n_basis(bags))

    def _predicting(self, bags: Bags) -> AbstractContextManager[None]:
        """The threads that suit predictions for these bags."""
        return suitable_threads(bags.n_instances, bags.n_features, len(self.posterior_.m))

    def _check_ranking(self, bags: Bags, T: NDArray[np.bool_], counts: Array | None = None) -> None:
        """Warn where even the bags of the fit are ranked near chance."""
        check_ranking(self._predictor, bags, T, self.bag_score, self._remedies, counts=counts)

    def _keep_seen(self, bags: Bags, counts: Array | None) -> None:
        """Keep what instances of the fit look like."""

    def _check_parameters(self) -> None:
        check_class_weight(self.class_weight)

    def _bag_labels_may_be_wrong(self) -> bool:
        """Whether known instance labels may contradict the label of their bag."""
        return False


def bag_accuracy(model: Any, bags: Bags, y: ArrayLike | None, sample_weight: Any = None) -> float:
    """Share of bags that a model predicts rightly; `y` defaults to the labels of the bags."""
    truth = bags.y if y is None else in_bag_order(y, bags.ids, "y")
    if truth is None:
        raise ValueError("score needs labels: pass y, or Bags with y")
    return float(accuracy_score(truth, model.predict(bags), sample_weight=sample_weight))
