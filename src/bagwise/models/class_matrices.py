"""Labels of several classes: one class per bag, or a matrix that says which occur in each bag."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

from bagwise.bags import Bags
from bagwise.bags.checks import as_1d, has_index, refuse_masked
from bagwise.bags.labels import in_bag_order
from bagwise.bags.messages import show
from bagwise.core.warnings import NearChanceWarning, warn_user
from bagwise.models.inputs import labels_for

Array = NDArray[Any]
Said = list[tuple[type[Warning], str]]
Flags = NDArray[np.bool_]


def classes_to_fit(
    X: Any, bags: Bags, y: Any, names: ArrayLike | None
) -> tuple[Array, Flags, bool]:
    """Classes (K,), which bags hold each, (B, K), and whether the labels are such a matrix."""
    y = in_class_order(y, names)
    labels = _labels(bags, labels_for(X, y))
    multilabel = labels.ndim == 2
    if multilabel:
        classes, T = _matrix_targets(labels, _column_names(names, y))
    else:
        classes, T = _class_targets(labels, names)
    _check_classes(classes, T)
    return classes, T, multilabel


def classes_told(X: Any, bags: Bags, y: Any, classes: Array) -> Flags:
    """Which bags hold which class of a fitted model, (B, K)."""
    labels = _labels(bags, labels_for(X, in_class_order(y, classes)))
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


def _labels(bags: Bags, y: Any) -> Array:
    """(B,) classes or (B, K) matrix, one row per bag."""
    labels = bags.y if y is None else in_bag_order(y, bags.ids, "y")
    refuse_masked(labels, "y")
    if labels is None:
        raise ValueError(
            "OneVsRestMIL requires y to be passed, but the target y is None and the bags "
            "have no labels: give fit(bags, y) one class per bag or a matrix of 0 and 1"
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


def in_class_order(y: Any, classes: Any) -> Any:
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


def check_counting(classes: Array, T: Flags, weights: Array) -> None:
    """Every model needs bags that count, with its class and without."""
    for name, own in zip(classes.tolist(), T.T, strict=True):
        for side, which in ((own, "with"), (~own, "without")):
            if not np.any(weights[side]):
                raise ValueError(
                    f"the {int(side.sum())} bags {which} class {name!r} have a weight of zero; "
                    "give some of them a positive sample_weight"
                )


def check_no_instance_labels(bags: Bags) -> None:
    """Instance labels say nothing of classes."""
    known = bags.instance_labels
    if known is not None and not np.all(np.isnan(known)):
        raise ValueError(
            "instance labels 0 and 1 do not say of which class an instance is, but "
            f"{int(np.sum(~np.isnan(known)))} are known; remove them with "
            "bags.with_instance_labels(None), or fit one binary model per class by hand"
        )


def given_one_class(p: Array) -> Array:
    """P(class k | exactly one class) from independent P(class k): odds scaled to sum to 1.

    Probabilities that round to 0 or 1 are told apart as far as floats go.

    >>> given_one_class(np.array([[0.2, 0.5], [0.0, 0.0], [0.1, 1.0]])).round(2)
    array([[0.2, 0.8],
           [0.5, 0.5],
           [0. , 1. ]])
    """
    floats = np.finfo(np.float64)
    log_odds = special.logit(np.clip(p, floats.tiny, 1 - floats.epsneg))
    return special.softmax(log_odds, axis=1)


def warn_by_class(classes: Array, said: list[Said]) -> None:
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
