"""`OneVsRestMIL`: bags of several classes, or with several labels at once, one model per class."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags, as_bags
from bagwise.core.files.modelfile import register_kernels, write_state
from bagwise.distributed import DaskRows, connected
from bagwise.models._base import Predictions
from bagwise.models._preparation import sharing_features, with_shared_inducing
from bagwise.models.bag_weights import sample_weights
from bagwise.models.class_matrices import (
    Said,
    check_counting,
    check_no_instance_labels,
    classes_to_fit,
    classes_told,
    given_one_class,
    in_class_order,
    warn_by_class,
)
from bagwise.models.estimator import all_or_nothing, bag_accuracy
from bagwise.models.inputs import (
    bags_to_predict,
    check_magnitude,
    labels_for,
    record_features,
    refuse_sparse,
)
from bagwise.models.states import estimator_state, fitted_states, plain_classes

Array = NDArray[Any]
Flags = NDArray[np.bool_]


class OneVsRestMIL(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """One model per class, each against all other classes.

    A bag belongs to a class if at least one of its instances does. Labels are either one class
    per bag, (B,), or a matrix (B, K) of 0 and 1 that says which of K classes occur in each bag
    (multi-instance multi-label learning). A class that means "none of the others" has no
    instances of its own to be found: leave it out and give a matrix, in which such bags have
    rows of zeros. Two classes also get two models, since each has instances of its own.

    The classes are independent but for their inducing points: where `estimator` would place
    them by k-means (`inducing="kmeans"`), one set is found on the instances of all bags and given
    to every class. k-means runs in the units in which the estimator's kernel will see the
    features, see its `standardize`. What kernels that are not learned make of the instances is
    computed once for all classes of a process.

    Parameters
    ----------
    estimator : the model to clone for each class, e.g. `ProbitVGPMIL()`. To transform features
        first, put the OneVsRestMIL at the end of a pipeline rather than a pipeline inside.
    class_names : K names for the columns of a label matrix; default the columns' own names in a
        pandas table, else 0, 1, ..., K - 1. Not for labels (B,), which are the names already.
    n_jobs : classes fitted at the same time; None is 1, -1 is one for each core. It does not
        change the result. The workers of `DaskBags` fit one class after the other.

    Attributes
    ----------
    classes_ : (K,) sorted classes, or the names of the columns of the label matrix.
    estimators_ : list of the K fitted models; their class 1 is the class, 0 the rest.
    multilabel_ : whether the model was fitted on a label matrix.
    n_features_in_ : number of features seen in `fit`.
    metadata_ : where the model comes from, where the command line fitted it; saved in its file.

    Examples
    --------
    >>> from bagwise import ProbitVGPMIL
    >>> rng = np.random.default_rng(0)
    >>> kinds = ["bee", "cow", "owl"] * 4
    >>> places = {"bee": [3.0, 0.0], "cow": [0.0, 3.0], "owl": [-3.0, -3.0]}
    >>> bags = [rng.normal(size=(4, 2)) * 0.3 + [places[k], *[[0.0, 0.0]] * 3] for k in kinds]
    >>> model = OneVsRestMIL(ProbitVGPMIL(random_state=0)).fit(bags, kinds)
    >>> model.predict(bags[:3]).tolist()
    ['bee', 'cow', 'owl']
    >>> model.predict_instances(bags[:1], none="nothing").tolist()
    ['bee', 'nothing', 'nothing', 'nothing']

    Several classes in one bag:

    >>> Y = [[1, 0], [0, 1], [1, 1], [0, 0]] * 3
    >>> parts = np.array([[3.0, 0.0], [0.0, 3.0]])
    >>> bags = [np.vstack([parts * np.array([y]).T, np.zeros((2, 2))]) for y in Y]
    >>> bags = [X + 0.3 * rng.normal(size=X.shape) for X in bags]
    >>> model = OneVsRestMIL(ProbitVGPMIL(random_state=0), class_names=["bee", "cow"])
    >>> model.fit(bags, Y).predict(bags[:4]).tolist()
    [[1, 0], [0, 1], [1, 1], [0, 0]]
    """

    def __init__(
        self, estimator: Any, *, class_names: ArrayLike | None = None, n_jobs: int | None = None
    ) -> None:
        self.estimator = estimator
        self.class_names = class_names
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        client: Any = None,
    ) -> Self:
        """Fit one model per class.

        Parameters
        ----------
        X : Bags, a list of (n_b, D) arrays, a 2-D array with one instance per bag, or
            `bagwise.distributed.DaskBags`, which workers read once for all classes.
        y : (B,) the class of each bag, or (B, K) a matrix of 0 and 1; overrides the labels of
            the bags. A pandas Series or table whose index holds the bag ids is put in their order,
            and the columns of a table name the classes.
        sample_weight : how many times each bag counts in all models; see `ProbitVGPMIL.fit`. A
            `class_weight` of the estimator is of its classes 1, the class, and 0, the rest.
        client : the Dask client whose workers hold `DaskBags`.
        """
        _check_estimator(self.estimator)
        X = connected(X, client)
        bags = as_bags(X, estimator_name=type(self).__name__)
        refuse_sparse(self, bags)
        classes, T, multilabel = classes_to_fit(X, bags, y, self.class_names)
        weights: dict[str, Array] = {}  # none for models that take none
        if sample_weight is not None:
            weights["sample_weight"] = sample_weights(X, bags, sample_weight)
            check_counting(classes, T, weights["sample_weight"])
        check_no_instance_labels(bags)
        check_magnitude(bags, self.estimator)
        shared = with_shared_inducing(self.estimator, bags.X)
        # Workers are busy with one class at a time; what they hold cannot go to other processes.
        n_jobs = None if isinstance(bags.X, DaskRows) else self.n_jobs
        with sharing_features(shared, bags.X):
            fits = Parallel(n_jobs=n_jobs)(
                delayed(_fit_class)(shared, bags, T[:, k], weights) for k in range(len(classes))
            )
        warn_by_class(classes, [said for _, said in fits])
        with all_or_nothing(self):
            self.estimators_: list[Any] = [model for model, _ in fits]
            self.classes_ = classes
            self.multilabel_ = multilabel
            record_features(self, bags)
        return self

    def predict_proba(self, X: Any) -> Array:
        """(B, K) probability of each class for each bag, columns in the order of `classes_`.

        After a fit on a label matrix, these are the probabilities of the K models, each of its
        own: a bag may hold several classes or none. After a fit on classes (B,) they are
        conditioned on the bag being of exactly one class, so they sum to 1: each is proportional
        to its odds p / (1 - p). (Scaling p itself leaves too much to the other classes.)
        """
        bags = bags_to_predict(self, X)
        p = self._own_probability(bags)
        return p if self.multilabel_ else given_one_class(p)

    def _own_probability(self, bags: Bags) -> Array:
        """(B, K) probabilities of the K models, each of its own."""
        return np.column_stack([model.predict_proba(bags)[:, 1] for model in self.estimators_])

    def predict(self, X: Any) -> Array:
        """The most probable class of each bag, (B,); or a (B, K) matrix of 0 and 1.

        The matrix, after a fit on a label matrix, has 1 where the probability exceeds one half.
        """
        p = self.predict_proba(X)
        if self.multilabel_:
            return (p > 0.5).astype(np.int64)
        return self.classes_[np.argmax(p, axis=1)]

    def predict_instance_proba(
        self, X: Any, return_std: bool = False
    ) -> Array | tuple[Array, Array]:
        """(N, K) probability that each instance is of each class, rows as in `bags.X`.

        Most instances are of no class, so the rows do not sum to 1. With `return_std`, also the
        (N, K) standard deviations of these probabilities. Where they are calibrated, no instance
        is more probable than `predict_proba` makes its bag.
        """
        bags = bags_to_predict(self, X)
        if self._of_one_class:
            found, share = self._all_of_models(bags)
            p, std = _side_by_side((each.p, each.std) for each in found)
            return (share * p, share * std) if return_std else share * p
        if not return_std:
            each = [model.predict_instance_proba(bags)[:, 1] for model in self.estimators_]
            return np.column_stack(each)
        return _side_by_side(
            model.predict_instance_proba(bags, return_std=True) for model in self.estimators_
        )

    def predict_instance_range(self, X: Any) -> tuple[Array, Array]:
        """Both ends of the probability that an instance is of each class, (N, K) each.

        See `ProbitVGPMIL.predict_instance_range`.
        """
        bags = bags_to_predict(self, X)
        share: Array = np.ones(1)
        if self._of_one_class:
            found, share = self._all_of_models(bags)
            both = [(each.low, each.high) for each in found]
        else:
            both = [model.predict_instance_range(bags) for model in self.estimators_]
        low, high = (share * np.column_stack(ends) for ends in zip(*both, strict=True))
        return low, high

    @property
    def _of_one_class(self) -> bool:
        """Whether a bag's being of exactly one class changes what models say of instances."""
        calibrated = [getattr(m, "instance_score_", "") == "calibrated" for m in self.estimators_]
        return not self.multilabel_ and all(calibrated)

    def _all_of_models(self, bags: Bags) -> tuple[list[Predictions], Array]:
        """What each model predicts, from one pass, and by how much that changes, (N, K).

        Calibrated instances stay no more probable than their bag, whose probability of a class is
        P(instance | bag of that class) times that of the bag.
        """
        found = [model.predict_all(bags) for model in self.estimators_]
        own = np.column_stack([each.bag_p[:, 1] for each in found])
        ratio = np.divide(given_one_class(own), own, out=np.ones_like(own), where=own > 0)
        return found, np.repeat(ratio, bags.sizes, axis=0)

    def instance_posterior(
        self, X: Any, return_std: bool = False, *, y: ArrayLike | None = None
    ) -> Array | tuple[Array, Array]:
        """(N, K) probability that each instance is of each class, given the classes of its bag.

        Each model is told whether the bag holds its class; see `ProbitVGPMIL.instance_posterior`.

        Parameters
        ----------
        X : labelled bags, or any bags with `y`.
        return_std : also return the (N, K) posterior standard deviations.
        y : (B,) classes or, after a fit on one, a matrix (B, K) of 0 and 1; overrides the labels
            of the bags.
        """
        bags = bags_to_predict(self, X)
        check_no_instance_labels(bags)
        T = classes_told(X, bags, y, self.classes_).astype(np.int64)
        bags = bags.with_labels(None)
        told = zip(self.estimators_, T.T, strict=True)
        each = (model.instance_posterior(bags, return_std=True, y=t) for model, t in told)
        p, std = _side_by_side(each)
        return (p, std) if return_std else p

    def predict_instances(self, X: Any, none: Any = None) -> Array:
        """(N,) the most probable class of each instance.

        Give a value as `none`, e.g. -1 or "background", to get it for the instances that have
        a probability below one half for every class.
        """
        p = np.asarray(self.predict_instance_proba(X))
        labels = self.classes_[np.argmax(p, axis=1)]
        if none is None:
            return labels
        if np.asarray(none).dtype.kind != labels.dtype.kind:
            labels = labels.astype(object)  # numpy would turn 3 and "background" into text
        return np.where(np.max(p, axis=1) < 0.5, none, labels)

    def score(self, X: Any, y: ArrayLike | None = None, sample_weight: Any = None) -> float:
        """Share of bags with the right class, or with all of their labels right.

        `y` defaults to the labels of the bags.
        """
        bags = bags_to_predict(self, X)
        truth = labels_for(X, in_class_order(y, self.classes_))
        return bag_accuracy(self, bags, truth, sample_weight)

    @property
    def inducing_points_(self) -> Array:
        """(M, D) inducing points of all classes, in the units of the raw features."""
        points: Array = self.estimators_[0].inducing_points_
        return points

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the fitted models to one file that `bagwise.load` reads without running code."""
        register_kernels()
        write_state(path, self.to_state(), kind=type(self).__name__, overwrite=overwrite)

    def to_state(self) -> dict[str, Any]:
        """What a file holds of the fitted models."""
        check_is_fitted(self)
        names, given = getattr(self, "feature_names_in_", None), self.class_names
        return {
            "estimator": estimator_state(self.estimator),
            "class_names": None if given is None else np.asarray(given).tolist(),
            "n_jobs": self.n_jobs,
            "classes": plain_classes(self.classes_),
            "multilabel": self.multilabel_,
            "models": fitted_states(self.estimators_),
            "n_features": self.n_features_in_,
            "feature_names": None if names is None else [str(n) for n in names],
            "metadata": getattr(self, "metadata_", {}),
        }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags


def _side_by_side(each: Iterable[tuple[Array, Array]]) -> tuple[Array, Array]:
    """(N, K) probabilities and deviations, of (N, 2) and (N,) of each model."""
    p, std = zip(*((both[:, 1], std) for both, std in each), strict=True)
    return np.column_stack(p), np.column_stack(std)


def _check_estimator(estimator: Any) -> None:
    methods = ("fit", "predict_proba", "get_params")
    if isinstance(estimator, type) or not all(hasattr(estimator, m) for m in methods):
        raise TypeError(
            f"estimator must be a model of bags; got {estimator!r}; pass e.g. "
            "bagwise.ProbitVGPMIL()"
        )


def _fit_class(
    estimator: Any, bags: Bags, positive: Flags, weights: dict[str, Array]
) -> tuple[Any, Said]:
    """The model of one class and its warnings, which would be lost or nameless in a process."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = clone(estimator).fit(bags.with_labels(positive.astype(np.int64)), **weights)
    return model, [(w.category, str(w.message)) for w in caught]
