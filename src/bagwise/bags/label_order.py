"""Which of two bag labels is positive: named, ordered, or plain from the values (internal)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.alignment import in_bag_order
from bagwise.bags.checks import Array, check_per_bag
from bagwise.bags.messages import show, some

# Pairs of text labels that say by themselves which is positive, in lower case.
_OBVIOUS = {
    ("no", "yes"),
    ("n", "y"),
    ("false", "true"),
    ("neg", "pos"),
    ("negative", "positive"),
}


def is_text(values: Any) -> bool:
    """Whether labels are text, of which the alphabet does not say which is positive."""
    return any(isinstance(v, str | bytes) for v in np.asarray(values).ravel()[:2].tolist())


def is_obvious(pair: Any) -> bool:
    """Whether two sorted text labels are such as no and yes.

    >>> is_obvious(["No", "Yes"]), is_obvious(["cancer", "healthy"])
    (True, False)
    """
    return tuple(str(v).lower() for v in pair) in _OBVIOUS


def put_positive_last(classes: Array, positive: Any) -> Array:
    """Two sorted classes as (negative, positive).

    >>> put_positive_last(np.array(["cancer", "healthy"]), "cancer").tolist()
    ['healthy', 'cancer']
    """
    found = classes.tolist()
    if positive not in found:
        raise ValueError(
            f"positive={positive!r} is none of the labels {some(found)}; name one of them as it "
            "stands there"
        )
    return classes if found[1] == positive else classes[::-1]


def refuse_text(classes: Array) -> None:
    """Raise where two sorted text labels do not say which is positive."""
    if is_text(classes) and not is_obvious(classes.tolist()):
        first, second = classes.tolist()
        raise ValueError(
            f"the labels are text, {first!r} and {second!r}; say which one a bag has when at least "
            f"one instance is positive: positive={first!r} or positive={second!r}, in fit(...) or "
            "where the bags are built"
        )


def larger_category(y: Any) -> Any:
    """The positive one of two ordered categories (pandas), the larger; None for other labels.

    Where more than two categories are ordered, two of them must occur.
    """
    values = getattr(y, "array", y)
    dtype = getattr(values, "dtype", None)
    if not getattr(dtype, "ordered", False):
        return None
    names = list(dtype.categories)  # type: ignore[union-attr]
    present = set(np.asarray(values).tolist())
    pair = names if len(names) == 2 else [c for c in names if c in present]
    return pair[1] if len(pair) == 2 else None


def bag_labels(
    y: Any, ids: Array, n_rows: int, positive: Any = None, *, building: bool = False
) -> Array:
    """(B,) labels in the order of the bags; 0 and 1 where it is known which is positive."""
    y = in_bag_order(y, ids, "y", building=building)
    labels = check_per_bag(y, len(ids), n_rows, "y")
    if positive is None:
        positive = larger_category(y)
    return labels if positive is None else zero_one(labels, positive)


def zero_one(labels: Array, positive: Any) -> NDArray[np.int64]:
    """1 where the label is `positive`, else 0; of at most two labels.

    >>> zero_one(np.array(["healthy", "cancer"]), "cancer")
    array([0, 1])
    """
    found = list(dict.fromkeys(labels.tolist()))
    if len(found) > 2:
        raise ValueError(
            f"positive={positive!r} is for labels of two classes; got {some(found)}; leave it out "
            "and use bagwise.OneVsRestMIL, or make two classes of them"
        )
    if positive not in found and len(found) == 2:
        put_positive_last(np.unique(labels), positive)
    if positive not in found:
        warnings.warn(
            f"no bag has the label positive={positive!r}: all {len(labels)} have "
            f"{show(labels[0])} and count as negative",
            UserWarning,
            stacklevel=4,
        )
    return np.array([v == positive for v in labels.tolist()], dtype=np.int64)
