"""What estimators check before any work is done: bags, labels, weights, features."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import get_tags
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d

from bagwise.bags import Bags, as_bags, is_bagged
from bagwise.bags.checks import has_index, refuse_masked
from bagwise.bags.labels import in_bag_order, larger_category, put_positive_last, refuse_text
from bagwise.bags.messages import ROW, InputError, count, show
from bagwise.bags.missing import refuse_missing
from bagwise.bags.rows import column_range, warn_of_missing_codes
from bagwise.bags.sparse_rows import SparseRows
from bagwise.core.parameters import check_dtype
from bagwise.core.warnings import ConstantFeaturesWarning, called_by, warn_user

Array = NDArray[Any]
Flags = NDArray[np.bool_]

_LARGEST = {"float64": 1e100, "float32": 1e30}
_SMALLEST = {"float64": 1e-45, "float32": 1e-15}  # model files hold inverse squares of them


def check_magnitude(bags: Bags, estimator: Any, *, spread: bool = False) -> tuple[Array, Array]:
    """Raise where features are missing or too large: models square them, and files hold them.

    The limit is that of the precision in which the estimator works, its `dtype` if it has one.
    `spread` also refuses features that differ so little that their squares are zero.
    Returns the lowest and the highest value of each feature.
    """
    precision = (check_dtype(getattr(estimator, "dtype", None)) or bags.dtype).name
    limit = _LARGEST[precision]
    low, high = column_range(bags.X)
    if np.any(np.isnan(low)):
        refuse_missing(bags, int(np.argmax(np.isnan(low))), type(estimator).__name__)
    if spread:
        _check_spread(float(np.max(high / 2 - low / 2, initial=0.0)), precision)
    size = np.maximum(np.abs(low), np.abs(high))
    if np.all(size < limit):
        return low, high
    column = int(np.argmax(size >= limit))
    where, at = "", None
    if isinstance(bags.X, np.ndarray):
        row = int(np.argmax(np.abs(bags.X[:, column])))
        where, at = f" (bag {show(bags.ids[bags.bag_index[row]])}, {ROW})", int(bags.row_index[row])
    name = "" if bags.feature_names is None else f" ({bags.feature_names[column]!r})"
    raise InputError(
        f"features must be below {limit:g} in size ({precision}); feature {column}{name} has "
        f"{size[column]:.3g}{where}; correct the entry, or divide the feature by a power of ten",
        at,
    )


def _check_spread(half: float, precision: str) -> None:
    limit = _SMALLEST[precision]
    if 0 < half < limit:
        raise ValueError(
            f"features must differ by more than {limit:g} ({precision}), since models square them; "
            f"those of all instances lie within {2 * half:.3g}; multiply them by a power of ten"
        )


def bags_to_fit(estimator: Any, X: Any, y: ArrayLike | None) -> Bags:
    """Labelled bags from whatever `fit` was given."""
    name = type(estimator).__name__
    bags = as_bags(X, estimator_name=name)
    refuse_sparse(estimator, bags)
    if y is None and bags.y is None:
        raise ValueError(
            f"{name} requires y to be passed, but the target y is None and the bags have no "
            "labels: give one label per bag, fit(bags, y) or Bags.from_arrays(..., y=...)"
        )
    if y is not None:
        refuse_masked(y, "y")
        in_order = in_bag_order(labels_for(X, y), bags.ids, "y")
        bags = bags.with_labels(column_or_1d(in_order, warn=True))
    low, high = check_magnitude(bags, estimator, spread=True)
    warn_of_missing_codes(bags.X, low, high, bags.feature_names)
    if bags.n_instances > 1 and np.all(low == high):
        warn_user(
            f"all {count(bags.n_features, 'feature')} have one value in all instances (the first "
            f"{low[0]:g}), so that no instance differs from another, and models learn nothing from "
            "them; check which columns are features",
            ConstantFeaturesWarning,
        )
    return bags


def refuse_sparse(estimator: Any, bags: Bags) -> None:
    """Raise where features are sparse and the estimator would have to make them dense at once."""
    if isinstance(bags.X, SparseRows) and not get_tags(estimator).input_tags.sparse:
        raise TypeError(
            f"{type(estimator).__name__} takes dense features, but these are sparse: pass "
            "X.toarray(), where that fits in memory, fewer of them (bagwise.InstanceTransformer("
            "TruncatedSVD(100))), or use MIRVM or ProbitVGPMIL"
        )


def labels_for(X: Any, y: Any) -> Any:
    """Labels, without their index where X has no bag ids that it could hold.

    Lists of arrays and single arrays are taken in their order, and labels with them, as by
    scikit-learn, whose splitters choose from both.
    """
    has_ids = isinstance(X, Bags) or (is_bagged(X) and all(isinstance(x, Bags) for x in X))
    if has_ids or not has_index(y):
        return y
    return y.array if y.ndim == 1 else y.to_numpy()


def record_features(estimator: Any, bags: Bags) -> None:
    """Note what a successful fit was given, as scikit-learn does."""
    estimator.n_features_in_ = bags.n_features
    if bags.feature_names is not None:
        estimator.feature_names_in_ = np.array(bags.feature_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def binary_targets(
    bags: Bags, given: Any = None, positive: Any = None
) -> tuple[Array, NDArray[np.bool_]]:
    """The negative and the positive class, and which bags belong to the second.

    `given` are the labels as `fit` got them, of which ordered categories say which is positive.
    Where every bag has one instance, the two classes have the same standing, and text is taken in
    sorted order as by scikit-learn's own classifiers.
    """
    y = np.asarray(bags.y)
    if y.dtype.kind == "f" and not np.all(np.isfinite(y)):
        raise ValueError("Input y contains infinity; bag labels must be two finite values or names")
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    classes = np.unique(y)
    if kind not in ("binary", "multiclass"):
        raise ValueError(
            f"Unknown label type: {kind}; bag labels must be two classes, got values such as "
            f"{y[:3].tolist()}"
        )
    if len(classes) == 1:
        raise ValueError(
            f"a classifier needs bags of both classes, but all {len(y)} labels are of 1 class: "
            f"{show(classes[0])}; add bags of the other class"
        )
    if len(classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass: "
            f"{len(classes)} label values, {classes[:5].tolist()}; for more than two classes use "
            "bagwise.OneVsRestMIL, one class against the rest"
        )
    if positive is None:
        positive = larger_category(given)
    if positive is not None:
        classes = put_positive_last(classes, positive)
        _warn_of_scorers(classes)
    elif bags.n_instances > len(bags):
        refuse_text(classes)
    return classes, y == classes[1]


def _warn_of_scorers(classes: Array) -> None:
    """Warn in a cross-validation of scikit-learn where the positive class is not the last sorted.

    Its scorers by name take the last in sorted order for positive, and turn scores around.
    """
    if classes[0] < classes[1] or not called_by("sklearn.model_selection"):
        return
    warn_user(
        f"positive={show(classes[1])} comes before {show(classes[0])} in sorted order, and "
        "scikit-learn's scorers by name take the last for positive: 'roc_auc' would be 1 - AUC. "
        "Pass scoring=bagwise.metrics.scorer('roc_auc'), or labels 0 and 1, as Bags have that are "
        f"built with positive={show(classes[1])}"
    )


def bag_targets(estimator: Any, bags: Bags, y: ArrayLike | None) -> NDArray[np.bool_]:
    """Which bags are of the positive class of a fitted model, by `y` or their own labels."""
    if y is not None:
        bags = bags.with_labels(column_or_1d(in_bag_order(y, bags.ids, "y"), warn=True))
    if bags.y is None:
        raise ValueError(
            "instance_posterior needs the label of every bag, but the bags have none; pass y= or "
            "Bags with y, or ask predict_instance_proba, which needs none"
        )
    classes = estimator.classes_
    strange = ~np.isin(bags.y, classes)
    if np.any(strange):
        raise ValueError(
            f"bag labels must be the model's classes {classes.tolist()}, but bag "
            f"{show(bags.ids[int(np.argmax(strange))])} has {show(bags.y[strange][0])}; translate "
            "the labels, or drop such bags"
        )
    return np.asarray(bags.y == classes[1], dtype=bool)


def known_labels(
    bags: Bags, T: NDArray[np.bool_], *, noisy: bool = False
) -> NDArray[np.float64] | None:
    """Instance labels that agree with the bag labels, or None where nothing is known.

    With `noisy` bag labels may be wrong, so that instance labels may contradict them.
    """
    known = bags.instance_labels
    if known is None or np.all(np.isnan(known)):
        return None
    if noisy:
        return known
    wrong = (known == 1) & ~np.repeat(T, bags.sizes)
    if np.any(wrong):
        row = int(np.argmax(wrong))
        raise InputError(
            f"a negative bag has no positive instance, but {ROW}, of bag "
            f"{show(bags.ids[bags.bag_index[row]])}, has instance label 1; correct the bag's "
            "label, set the instance label to NaN (unknown), or say that bag labels may be wrong: "
            "VGPMIL(H=100)",
            int(bags.row_index[row]),
        )
    hopeless = T & (np.add.reduceat(known == 0, bags.offsets[:-1], dtype=np.int64) == bags.sizes)
    if np.any(hopeless):
        raise ValueError(
            "a positive bag has at least one positive instance, but all instances of bag "
            f"{show(bags.ids[int(np.argmax(hopeless))])} have instance label 0; correct the bag's "
            "label, set some instance labels to NaN (unknown), or say that bag labels may be "
            "wrong: VGPMIL(H=100)"
        )
    return known


def bags_to_predict(estimator: Any, X: Any) -> Bags:
    """Bags with the features the estimator was fitted on."""
    check_is_fitted(estimator)
    name = type(estimator).__name__
    bags = as_bags(X, estimator_name=name)
    refuse_sparse(estimator, bags)
    check_names(estimator, bags.feature_names)
    if bags.n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {bags.n_features} features, but {name} is expecting "
            f"{estimator.n_features_in_} features as input: give the features it was fitted on, "
            "in the same order"
        )
    check_magnitude(bags, estimator)
    return bags


def check_names(estimator: Any, names: tuple[str, ...] | None) -> None:
    """Compare feature names as scikit-learn does, so that its users meet what they know."""
    fitted = getattr(estimator, "feature_names_in_", None)
    kind = type(estimator).__name__
    if fitted is None and names is None:
        return
    if fitted is None:
        warnings.warn(
            f"X has feature names, but {kind} was fitted without feature names", stacklevel=4
        )
    elif names is None:
        warnings.warn(
            f"X does not have valid feature names, but {kind} was fitted with feature names",
            stacklevel=4,
        )
    elif list(names) != fitted.tolist():
        raise ValueError(_name_difference(set(names), set(fitted)))


def _name_difference(names: set[str], fitted: set[str]) -> str:
    message = "The feature names should match those that were passed during fit.\n"
    if unseen := sorted(names - fitted):
        message += "Feature names unseen at fit time:\n" + _listing(unseen)
    if missing := sorted(fitted - names):
        message += "Feature names seen at fit time, yet now missing:\n" + _listing(missing)
    if not unseen and not missing:
        message += "Feature names must be in the same order as they were in fit.\n"
    if not missing:
        message += (
            "Build the bags with features=list(model.feature_names_in_) in Bags.from_frame, or "
            "give X[model.feature_names_in_].\n"
        )
    return message


def _listing(names: list[str]) -> str:
    shown = "".join(f"- {n}\n" for n in names[:5])
    return shown + ("- ...\n" if len(names) > 5 else "")


# --- How many times each bag counts: `sample_weight` and `class_weight` --------------------------
