"""`OneVsRestMIL`: bags of several classes, or with several labels at once, one model per class."""

from __future__ import annotations

import os
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, column_or_1d

from bagwise.bags import Bags, as_bags
from bagwise.bags.alignment import has_index, in_bag_order
from bagwise.bags.checks import as_1d, refuse_masked
from bagwise.bags.messages import show
from bagwise.core.files.codec import describe
from bagwise.core.files.modelfile import ModelFileError, register_kernels, write_state
from bagwise.core.inducing import kmeans_points
from bagwise.core.parameters import check_integer
from bagwise.core.warnings import NearChanceWarning, warn_user
from bagwise.models._base import bag_accuracy
from bagwise.models._preparation import same_unit
from bagwise.models.fitting import all_or_nothing
from bagwise.models.inputs import (
    bags_to_predict,
    check_magnitude,
    labels_for,
    record_features,
    sample_weights,
)
from bagwise.models.states import (
    classes_from,
    estimator_from_state,
    estimator_state,
    fitted_models,
    fitted_states,
    plain_classes,
    set_feature_names,
)

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Said = list[tuple[type[Warning], str]]


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
    features, see its `standardize`.

    Parameters
    ----------
    estimator : the model to clone for each class, e.g. `ProbitVGPMIL()`. To transform features
        first, put the OneVsRestMIL at the end of a pipeline rather than a pipeline inside.
    class_names : K names for the columns of a label matrix; default the columns' own names in a
        pandas table, else 0, 1, ..., K - 1. Not for labels (B,), which are the names already.
    n_jobs : classes fitted at the same time; None is 1, -1 is one for each core. It does not
        change the result.

    Attributes
    ----------
    classes_ : (K,) sorted classes, or the names of the columns of the label matrix.
    estimators_ : list of the K fitted models; their class 1 is the class, 0 the rest.
    multilabel_ : whether the model was fitted on a label matrix.
    n_features_in_ : number of features seen in `fit`.

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
        self, X: Any, y: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit one model per class.

        Parameters
        ----------
        X : Bags, a list of (n_b, D) arrays, or a 2-D array with one instance per bag.
        y : (B,) the class of each bag, or (B, K) a matrix of 0 and 1; overrides the labels of
            the bags. A pandas Series or table whose index holds the bag ids is put in their order,
            and the columns of a table name the classes.
        sample_weight : how many times each bag counts in all models; see `ProbitVGPMIL.fit`. A
            `class_weight` of the estimator is of its classes 1, the class, and 0, the rest.
        """
        _check_estimator(self.estimator)
        bags = as_bags(X, estimator_name=type(self).__name__)
        y = _in_class_order(y, self.class_names)
        labels = _labels(self, bags, labels_for(X, y))
        multilabel = labels.ndim == 2
        if multilabel:
            classes, T = _matrix_targets(labels, _column_names(self.class_names, y))
        else:
            classes, T = _class_targets(labels, self.class_names)
        _check_classes(classes, T)
        weights: dict[str, Array] = {}  # none for models that take none
        if sample_weight is not None:
            weights["sample_weight"] = sample_weights(X, bags, sample_weight)
            _check_counting(classes, T, weights["sample_weight"])
        _check_no_instance_labels(bags)
        check_magnitude(bags, self.estimator)
        shared = _with_shared_inducing(self.estimator, bags.X)
        fits = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_class)(shared, bags, T[:, k], weights) for k in range(len(classes))
        )
        _warn_by_class(classes, [said for _, said in fits])
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
        p = np.column_stack([model.predict_proba(bags)[:, 1] for model in self.estimators_])
        return p if self.multilabel_ else _given_one_class(p)

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
        share = self._share_of_own(bags)
        if not return_std:
            return share * np.column_stack(
                [model.predict_instance_proba(bags)[:, 1] for model in self.estimators_]
            )
        parts = [model.predict_instance_proba(bags, return_std=True) for model in self.estimators_]
        p, std = (np.column_stack(x) for x in zip(*((p[:, 1], s) for p, s in parts), strict=True))
        return share * p, share * std

    def predict_instance_range(self, X: Any) -> tuple[Array, Array]:
        """Both ends of the probability that an instance is of each class, (N, K) each.

        See `ProbitVGPMIL.predict_instance_range`.
        """
        bags = bags_to_predict(self, X)
        both = [model.predict_instance_range(bags) for model in self.estimators_]
        share = self._share_of_own(bags)
        low, high = (share * np.column_stack(ends) for ends in zip(*both, strict=True))
        return low, high

    def _share_of_own(self, bags: Bags) -> Array:
        """By how much a bag's being of exactly one class changes what models say of instances.

        (N, K) or 1: calibrated instances stay no more probable than their bag, whose probability
        of a class is P(instance | bag of that class) times that of the bag.
        """
        calibrated = [getattr(m, "instance_score_", "") == "calibrated" for m in self.estimators_]
        if self.multilabel_ or not all(calibrated):
            return np.ones(1)
        own = np.column_stack([model.predict_proba(bags)[:, 1] for model in self.estimators_])
        ratio = np.divide(_given_one_class(own), own, out=np.ones_like(own), where=own > 0)
        return np.repeat(ratio, bags.sizes, axis=0)

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
        _check_no_instance_labels(bags)
        labels = _labels(self, bags, labels_for(X, _in_class_order(y, self.classes_)))
        T = _told_classes(self, labels).astype(np.int64)
        bags = bags.with_labels(None)
        parts = [
            model.instance_posterior(bags, return_std=True, y=T[:, k])
            for k, model in enumerate(self.estimators_)
        ]
        p = np.column_stack([both[:, 1] for both, _ in parts])
        return (p, np.column_stack([std for _, std in parts])) if return_std else p

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
        truth = labels_for(X, _in_class_order(y, self.classes_))
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
        names = getattr(self, "feature_names_in_", None)
        given = self.class_names
        return {
            "estimator": estimator_state(self.estimator),
            "class_names": None if given is None else np.asarray(given).tolist(),
            "n_jobs": self.n_jobs,
            "classes": plain_classes(self.classes_),
            "multilabel": self.multilabel_,
            "models": fitted_states(self.estimators_),
            "n_features": self.n_features_in_,
            "feature_names": None if names is None else [str(n) for n in names],
        }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def one_vs_rest_from_state(state: Any) -> OneVsRestMIL:
    """The fitted models whose `OneVsRestMIL.to_state` this is."""
    try:
        model = OneVsRestMIL(
            estimator_from_state(state["estimator"]),
            class_names=state["class_names"],
            n_jobs=state["n_jobs"],
        )
        model.classes_ = classes_from(state["classes"])
        model.multilabel_ = bool(state["multilabel"])
        model.estimators_ = fitted_models(state["models"], len(model.classes_))
        model.n_features_in_ = int(state["n_features"])
        set_feature_names(model, state["feature_names"])
    except Exception as error:  # values of any type reach every check
        raise ModelFileError(f"not a complete OneVsRestMIL: {describe(error)}") from None
    return model


# --- Labels --------------------------------------------------------------------------------------


def _labels(model: OneVsRestMIL, bags: Bags, y: Any) -> Array:
    """(B,) classes or (B, K) matrix, one row per bag."""
    labels = bags.y if y is None else in_bag_order(y, bags.ids, "y")
    refuse_masked(labels, "y")
    if labels is None:
        raise ValueError(
            f"{type(model).__name__} requires y to be passed, but the target y is None and the "
            "bags have no labels: give fit(bags, y) one class per bag or a matrix of 0 and 1"
        )
    labels = labels.toarray() if hasattr(labels, "toarray") else labels
    try:
        labels = np.asarray(labels)
    except ValueError:
        raise ValueError(
            "y must be one class per bag, (B,), or a matrix (B, K) of 0 and 1; got rows of "
            "different lengths; make the matrix with sklearn.preprocessing.MultiLabelBinarizer"
        ) from None
    if labels.ndim not in (1, 2):
        raise ValueError(
            "y must be one class per bag, (B,), or a matrix (B, K) of 0 and 1; got an array of "
            f"shape {labels.shape}; reshape it"
        )
    if labels.ndim == 1 or labels.shape[1] == 1:
        labels = column_or_1d(labels, warn=True)
    if len(labels) != len(bags):
        raise ValueError(
            f"y must have one row per bag, {len(bags)}; got shape {labels.shape}: Found input "
            "variables with inconsistent numbers of samples; label bags, not instances"
        )
    return labels


def _class_targets(y: Array, names: ArrayLike | None) -> tuple[Array, Flags]:
    """Sorted classes (K,) and which bags are of each, (B, K)."""
    if names is not None:
        raise ValueError(
            "class_names are for the columns of a label matrix (B, K), but y has one class per "
            "bag; leave class_names out, or give a matrix"
        )
    if y.dtype.kind == "f" and not np.all(np.isfinite(y)):
        raise ValueError("Input y contains NaN or infinity; classes must be finite values or names")
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind not in ("binary", "multiclass"):
        raise ValueError(
            f"Unknown label type: {kind}; y must be one class per bag or a matrix of 0 and 1, "
            f"got values such as {y[:3].tolist()}"
        )
    classes = np.unique(y)
    return classes, y[:, None] == classes


def _column_names(given: ArrayLike | None, y: Any) -> ArrayLike | None:
    """The names of the columns of a label matrix: given, or those of a table."""
    if given is not None or not has_index(y):
        return given
    return as_1d(y.columns.tolist(), "the columns of y")


def _in_class_order(y: Any, classes: Any) -> Any:
    """The columns of a table in the order of the classes, where they have their names."""
    if not has_index(y) or y.ndim != 2 or classes is None:
        return y
    wanted = np.asarray(classes).tolist()
    return y[wanted] if set(wanted) == set(y.columns) and y.columns.is_unique else y


def _matrix_targets(Y: Array, names: ArrayLike | None) -> tuple[Array, Flags]:
    """Names of the columns (K,) and which bags hold each class, (B, K)."""
    flags = Y.astype(object) if Y.dtype.kind not in "biuf" else Y
    wrong = ~((flags == 0) | (flags == 1))
    if np.any(wrong):
        b, k = (int(i[0]) for i in np.nonzero(wrong))
        raise ValueError(
            f"a label matrix holds 0 and 1 only; got {Y[b, k]!s} in row {b}, column {k}; give one "
            "class per bag as (B,), or make the matrix with "
            "sklearn.preprocessing.MultiLabelBinarizer"
        )
    classes = np.arange(Y.shape[1]) if names is None else np.asarray(names)
    if classes.shape != (Y.shape[1],) or len(np.unique(classes)) < len(classes):
        raise ValueError(
            f"class_names must be {Y.shape[1]} different names, one per column of y; got {names!r}"
        )
    return classes, flags == 1


def _told_classes(model: OneVsRestMIL, labels: Array) -> Flags:
    """Which bags hold which class of a fitted model, (B, K)."""
    classes = model.classes_
    if labels.ndim == 2:
        if labels.shape[1] != len(classes):
            raise ValueError(
                f"y must have a column for each of the {len(classes)} classes "
                f"{classes.tolist()[:10]}; got shape {labels.shape}"
            )
        return _matrix_targets(labels, classes)[1]
    strange = ~np.isin(labels, classes)
    if np.any(strange):
        raise ValueError(
            f"labels must be among the classes {classes.tolist()[:10]} of the fit; got "
            f"{show(labels[strange][0])}; translate them, or drop such bags"
        )
    return np.asarray(labels[:, None] == classes, dtype=bool)


def _check_classes(classes: Array, T: Flags) -> None:
    """Every model needs bags that hold its class and bags that do not."""
    if len(classes) < 2:
        raise ValueError(
            f"OneVsRestMIL needs at least 2 classes, but the {len(T)} labels are of "
            f"{len(classes)} class: {classes.tolist()}; add bags of other classes"
        )
    for name, count in zip(classes.tolist(), T.sum(axis=0), strict=True):
        if count == 0:
            raise ValueError(
                f"class {name!r} has no positive bag; add bags that hold it, or drop its column"
            )
        if count == len(T):
            raise ValueError(
                f"class {name!r} has no negative bag; add bags without it, or drop its column"
            )


def _check_counting(classes: Array, T: Flags, weights: Array) -> None:
    """Every model needs bags that count, with its class and without."""
    for name, own in zip(classes.tolist(), T.T, strict=True):
        for side, which in ((own, "with"), (~own, "without")):
            if not np.any(weights[side]):
                raise ValueError(
                    f"the {int(side.sum())} bags {which} class {name!r} have a weight of zero; "
                    "give some of them a positive sample_weight"
                )


def _check_no_instance_labels(bags: Bags) -> None:
    known = bags.instance_labels
    if known is not None and not np.all(np.isnan(known)):
        raise ValueError(
            "instance labels 0 and 1 do not say of which class an instance is, but "
            f"{int(np.sum(~np.isnan(known)))} are known; remove them with "
            "bags.with_instance_labels(None), or fit one binary model per class by hand"
        )


# --- Models --------------------------------------------------------------------------------------


def _check_estimator(estimator: Any) -> None:
    methods = ("fit", "predict_proba", "get_params")
    if isinstance(estimator, type) or not all(hasattr(estimator, m) for m in methods):
        raise TypeError(
            f"estimator must be a model of bags; got {estimator!r}; pass e.g. "
            "bagwise.ProbitVGPMIL()"
        )


def _with_shared_inducing(estimator: Any, X: Array) -> Any:
    """A clone of the estimator that has common inducing points in place of its own k-means."""
    settings = estimator.get_params(deep=False)
    kind = settings.get("inducing")
    if not (isinstance(kind, str) and kind == "kmeans"):
        return clone(estimator)
    n = check_integer("n_inducing", settings["n_inducing"], at_least=1)
    seed = check_random_state(settings.get("random_state")).randint(2**31)
    scale = _kernel_units(X, settings.get("standardize"))
    one_group = np.zeros(len(X), dtype=np.int64)
    Z = kmeans_points(X / scale, one_group, n, np.random.default_rng(seed)) * scale
    return clone(estimator).set_params(inducing=Z)


def _kernel_units(X: Array, standardize: Any) -> Array:
    """(D,) the spread of each feature if the estimator will divide by it, ones otherwise."""
    spread = X.std(axis=0, dtype=np.float64)
    constant = spread <= 1e-12 * np.abs(X.mean(axis=0, dtype=np.float64))
    auto = isinstance(standardize, str) and standardize == "auto"
    if standardize is True or (auto and not same_unit(spread[~constant])):
        return np.where(constant, 1.0, spread).astype(X.dtype)
    return np.ones(X.shape[1], dtype=X.dtype)


def _fit_class(
    estimator: Any, bags: Bags, positive: Flags, weights: dict[str, Array]
) -> tuple[Any, Said]:
    """The model of one class and its warnings, which would be lost or nameless in a process."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = clone(estimator).fit(bags.with_labels(positive.astype(np.int64)), **weights)
    return model, [(w.category, str(w.message)) for w in caught]


def _warn_by_class(classes: Array, said: list[Said]) -> None:
    """Give the warnings of every class once, with its name, at the line that called `fit`.

    Those of features, which all classes share, are given without one; how well bags are ranked is
    about one class, also where all are ranked alike.
    """
    common = [each for each in dict.fromkeys(said[0]) if all(each in own for own in said)]
    shared = [each for each in common if each[0] is not NearChanceWarning]
    for category, message in shared:
        warn_user(message, category)
    for name, own in zip(classes.tolist(), said, strict=True):
        for category, message in dict.fromkeys(own):
            if (category, message) not in shared:
                warn_user(f"class {name!r}: {message}", category)


def _given_one_class(p: Array) -> Array:
    """P(class k | exactly one class) from independent P(class k): odds scaled to sum to 1.

    Probabilities that round to 0 or 1 are told apart as far as floats go.

    >>> _given_one_class(np.array([[0.2, 0.5], [0.0, 0.0], [0.1, 1.0]])).round(2)
    array([[0.2, 0.8],
           [0.5, 0.5],
           [0. , 1. ]])
    """
    floats = np.finfo(np.float64)
    log_odds = special.logit(np.clip(p, floats.tiny, 1 - floats.epsneg))
    return special.softmax(log_odds, axis=1)
