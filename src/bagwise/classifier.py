"""What all models share: predictions for bags and instances, scaling, model files."""

from __future__ import annotations

import inspect
import numbers
import os
from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.distributed import connected
from bagwise.infer.monitor import Callback, listening
from bagwise.io.modelfile import register, write_state
from bagwise.kernels import Kernel
from bagwise.links import Moments
from bagwise.parameters import check_integer
from bagwise.posterior import Predicted, parts_of
from bagwise.rows import column_moments
from bagwise.validation import (
    bags_to_fit,
    bags_to_predict,
    binary_targets,
    known_labels,
    record_features,
)

Array = NDArray[Any]


@dataclass(frozen=True)
class Predictions:
    """Probabilities of bags and of instances, in the order of the Bags."""

    bag_p: Array  # (B, 2)
    bag_std: Array  # (B,)
    p: Array  # (N, 2)
    std: Array  # (N,)


class BagClassifierMIL(ClassifierMixin, BaseEstimator):
    """Predictions from a fitted `posterior_`; subclasses fit it."""

    classes_: Array
    posterior_: Any
    bag_score: str
    standardize: str | bool
    random_state: Any
    _posterior_type: ClassVar[type]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show a model's own arguments and the shared ones in one signature.

        scikit-learn (`get_params`, `clone`) and `help` read it; the arguments that all models
        share are written down once, above.
        """
        super().__init_subclass__(**kwargs)
        if "__init__" not in vars(cls):
            return
        own = _named(inspect.signature(cls.__init__))
        shared = _named(inspect.signature(super(cls, cls).__init__))
        merged = [*own.values(), *(p for n, p in shared.items() if n not in own)]
        cls.__init__.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        client: Any = None,
    ) -> Self:
        """Fit from bag labels.

        Parameters
        ----------
        X : Bags, a list of (n_b, D) arrays, a 2-D array with one instance per bag, or
            `bagwise.distributed.DaskBags`.
        y : one label per bag; overrides the labels of the bags. Two classes of any type;
            the larger one in sorted order is the positive class.
        callbacks : functions called after every step as f(stage, step, objective, seconds).
            `begin(model)` and `end()` of those that have them are called before and after.
        client : the Dask client whose workers hold `DaskBags`.

        Instance labels of the bags (1, 0; NaN or -1 where unknown) are used where known.
        """
        return self._fit(X, y, client, callbacks=callbacks)

    def _fit(
        self,
        X: Any,
        y: ArrayLike | None,
        client: Any,
        *,
        callbacks: Sequence[Callback],
        **more: Any,
    ) -> Self:
        """Check, fit and record; `more` goes to `_fit_bags`."""
        self._check_parameters()
        with listening(callbacks, self):
            bags = bags_to_fit(self, connected(X, client), y)
            classes, T = binary_targets(bags)
            known, rng = known_labels(bags, T), generator(self.random_state)
            self._fit_bags(bags, T, known, rng, callbacks=callbacks, **more)
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
        callbacks: Sequence[Callback],
    ) -> None:
        """Fit `posterior_` and what belongs to it; known labels are NaN where they are not."""
        raise NotImplementedError

    def predict_proba(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Probability of each class for each bag, columns in the order of `classes_`.

        With `return_std`, also the posterior standard deviation of that probability.
        """
        bags = bags_to_predict(self, X)
        both, std = self._bag_probability(self._predicted(bags, second=return_std))
        return (both, std) if return_std else both

    def predict(self, X: Any) -> Array:
        """The more probable class of each bag."""
        p = self.predict_proba(X)
        return self.classes_[np.argmax(p, axis=1)]

    def predict_instance_proba(
        self, X: Any, return_std: bool = False
    ) -> Array | tuple[Array, Array]:
        """Probability of each class for each instance, rows as in `bags.X`.

        With `return_std`, also the posterior standard deviation of that probability.
        """
        bags = bags_to_predict(self, X)
        found = self._predictor(bags).predicted(bags.X, bags.offsets, joint=False, instances=True)
        both, std = columns(found.instances)
        return (both, std) if return_std else both

    def predict_all(self, X: Any) -> Predictions:
        """Bags and instances, probabilities and deviations, from one pass over the features.

        The same numbers as those of `predict_proba` and `predict_instance_proba` with
        `return_std=True`, for about half of the work.
        """
        bags = bags_to_predict(self, X)
        found = self._predicted(bags, instances=True)
        return Predictions(*self._bag_probability(found), *columns(found.instances))

    def predict_instances(self, X: Any) -> Array:
        """The more probable class of each instance."""
        p = self.predict_instance_proba(X)
        return self.classes_[np.argmax(p, axis=1)]

    def latent(self, X: Any) -> tuple[Array, Array]:
        """Posterior mean and variance of the latent function at each instance."""
        bags = bags_to_predict(self, X)
        return self.posterior_.latent(bags.X)

    def top_instances(self, X: Any, k: int = 1) -> list[NDArray[np.intp]]:
        """For each bag the rows of `bags.X` of its `k` most probable instances, best first."""
        check_integer("k", k, at_least=1)
        bags = bags_to_predict(self, X)
        p, _ = self._predictor(bags).instances(bags.X)
        ranges = zip(bags.offsets[:-1], bags.offsets[1:], strict=True)
        return [a + np.argsort(-p[a:b], kind="stable")[:k] for a, b in ranges]

    def score(self, X: Any, y: ArrayLike | None = None, sample_weight: Any = None) -> float:
        """Accuracy on bags; `y` defaults to the labels of the bags."""
        return bag_accuracy(self, bags_to_predict(self, X), y, sample_weight)

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
        if parameters.get("dtype") is not None:
            parameters["dtype"] = np.dtype(parameters["dtype"]).name
        return parameters

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")  # a fit that failed leaves n_features_in_ only

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _predictor(self, bags: Bags) -> Any:
        """What answers `instances` and `bags` for these bags."""
        return self.posterior_

    def _predicted(self, bags: Bags, *, second: bool = True, instances: bool = False) -> Predicted:
        """One pass over the features that finds what bag probabilities need."""
        parts = self._parts()
        if instances:
            parts = parts | {"instances": True}
        found: Predicted = self._predictor(bags).predicted(
            bags.X, bags.offsets, **parts, second=second
        )
        return found

    def _parts(self) -> dict[str, bool]:
        """What bag probabilities are made of."""
        return parts_of(self.bag_score)

    def _bag_probability(self, found: Predicted) -> tuple[Array, Array]:
        """(B, 2) probabilities and the posterior standard deviation of each bag's."""
        return columns(found.bags(self.bag_score))

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _scaling(self, X: Any) -> tuple[Array, Array]:
        """Shift and scale of each feature; a constant feature is only shifted."""
        unscaled = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if self.standardize is False:
            return unscaled
        shift, variance = column_moments(X)
        spread = np.sqrt(variance)
        constant = spread <= 1e-12 * np.abs(shift)
        if self.standardize == "auto" and same_unit(spread[~constant]):
            return unscaled
        return shift, np.where(constant, 1.0, spread)


def columns(found: Moments | None) -> tuple[Array, Array]:
    """Probabilities of both labels, each with all its digits, and their standard deviation."""
    assert found is not None
    return np.exp(np.column_stack([found.log_negative, found.log_positive])), found.std


def _named(signature: inspect.Signature) -> dict[str, inspect.Parameter]:
    """The parameters of a signature but for *args and **kwargs."""
    collecting = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {n: p for n, p in signature.parameters.items() if p.kind not in collecting}


def register_kernels() -> None:
    """Let model files hold every kernel there is, also those written elsewhere."""
    waiting = Kernel.__subclasses__()
    while waiting:
        kernel = waiting.pop()
        waiting += kernel.__subclasses__()
        if is_dataclass(kernel):
            register(kernel)


def generator(random_state: Any) -> np.random.Generator:
    """A numpy Generator from whatever scikit-learn or numpy take for a seed."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def plain_seed(random_state: Any) -> int | None:
    """A seed that can be written to a file; a generator's state is not part of a model."""
    return int(random_state) if isinstance(random_state, numbers.Integral) else None


def bag_accuracy(model: Any, bags: Bags, y: ArrayLike | None, sample_weight: Any = None) -> float:
    """Share of bags that a model predicts rightly; `y` defaults to the labels of the bags."""
    truth = bags.y if y is None else y
    if truth is None:
        raise ValueError("score needs labels: pass y, or Bags with y")
    return float(accuracy_score(truth, model.predict(bags), sample_weight=sample_weight))


def same_unit(spread: Array) -> bool:
    """Whether no feature's spread dwarfs the others', as a different unit would make it."""
    return len(spread) == 0 or float(np.max(spread)) <= 20 * float(np.median(spread))
