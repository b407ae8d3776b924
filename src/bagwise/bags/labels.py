"""Labels of bags: put in the order of the bags, and which of two is positive (internal)."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.checks import Array, as_1d, check_constant, check_per_bag, has_index
from bagwise.bags.messages import show, some

# Pairs of text labels that say by themselves which is positive, in lower case.
_OBVIOUS = {
    ("no", "yes"),
    ("n", "y"),
    ("false", "true"),
    ("neg", "pos"),
    ("negative", "positive"),
}


def in_bag_order(values: Any, ids: Array, name: str, *, building: bool = False) -> Any:
    """One entry per bag; those of a pandas Series or a dict are found by the bag ids they hold.

    - An index that holds the bag ids puts the entries in the order of the bags; so do the keys of
      a dict. A table of one column is this column.
    - Row numbers say nothing about bags, and entries are taken in their order, as those of an
      array: pandas' own 0, 1, 2, ...; or an index without a name, of whole numbers, none of which
      is a bag id, as splitters choose it along with the bags. Not where bags are `building`:
      there such numbers are rows of some other table.
    - Anything else is refused: other ids, ids that are missing or come twice.
    """
    wanted = _entries(ids)
    if isinstance(values, Mapping):
        _check_same_ids(
            list(values), wanted, f"the keys of {name}", f"{{i: {name}[i] for i in bag_ids}}"
        )
        return [values[i] for i in wanted]
    if not has_index(values):
        return values
    if values.ndim == 2 and values.shape[1] == 1:
        values = values.iloc[:, 0]
    index = values.index.tolist()
    if index == wanted:
        return values
    place = {label: i for i, label in enumerate(index)}
    shared = sum(i in place for i in wanted)
    if len(values) != len(ids):
        if shared and len(place) == len(index) and not _are_row_numbers(values.index):
            _check_same_ids(
                index, wanted, f"the index of {name}", f"{name}.loc[np.unique(bag_ids)]"
            )
        return values  # a wrong length is an error of its own
    if _is_default(values.index):
        _refuse_ambiguous(index, wanted, name)
        return values
    if shared == 0 and _are_row_numbers(values.index):
        if building:
            _refuse_row_numbers(index, name)
        return values
    _check_holds(index, place, wanted, name)
    return values.iloc[[place[i] for i in wanted]]


def from_rows(values: Any, X: Any, bag_ids: Any, ids: Array, bag_of_row: Array, name: str) -> Any:
    """One entry per bag, of labels or groups that may have one per row of X.

    Entries of rows must agree inside each bag. Where every bag has one row, an array has the order
    of the bags; a Series that shares its index with the rows, which are in another order, is
    refused.
    """
    if values is None or isinstance(values, Mapping) or not hasattr(values, "__len__"):
        return values
    if has_index(values) and values.ndim == 2 and values.shape[1] == 1:
        values = values.iloc[:, 0]
    if len(values) != len(bag_of_row) or getattr(values, "ndim", 1) != 1:
        return values
    if len(ids) == len(bag_of_row):
        _refuse_row_order(values, X, bag_ids, bag_of_row, name)
        return values
    _check_rows(values, X, bag_ids, ids, bag_of_row, name)
    plain = as_1d(values, name)
    what = f"{name}, with one entry per row,"
    first = check_constant(plain, ids, bag_of_row, what, otherwise="instance_labels")
    if hasattr(getattr(values, "dtype", None), "ordered"):
        return getattr(values, "array", values)[first]  # categories keep their order
    return plain[first]


def _check_rows(
    values: Any, X: Any, bag_ids: Any, ids: Array, bag_of_row: Array, name: str
) -> None:
    """Raise where the index of a Series says that its entries are not in the order of the rows."""
    refuse_other_row_order(X, values, name)
    refuse_other_row_order(bag_ids, values, name, rows="bag_ids")
    if not has_index(values):
        return
    index, of_rows = values.index.tolist(), _entries(ids[bag_of_row])
    if index != of_rows and set(index) <= set(of_rows):
        raise ValueError(
            f"{name} has one entry per row, and its index has the bag ids in another order than "
            f"the rows; give one entry per bag: {name}.groupby(level=0).first()"
        )


def _refuse_row_order(values: Any, X: Any, bag_ids: Any, bag_of_row: Array, name: str) -> None:
    """Raise where a Series has the rows' own index, and rows are in another order than bags."""
    if not has_index(values) or not _is_default(values.index):
        return
    tables = [t for t in (X, bag_ids) if has_index(t)]
    entries = np.asarray(values)
    in_place = np.asarray(entries[np.argsort(bag_of_row)] == entries)
    if tables and all(t.index.equals(values.index) for t in tables) and not in_place.all():
        raise ValueError(
            f"every bag has one row, and {name} has the index of the rows, which are not in the "
            "order of the bags (sorted ids); say which order is meant: "
            f"{name}.set_axis(bag_ids) is found by the ids of the rows, {name}.to_numpy() is in "
            "the order of the bags"
        )


def _entries(ids: Array) -> list[Any]:
    """Ids as an index has them: dates and times in nanoseconds would become whole numbers.

    >>> _entries(np.array(["2020-01-02"], dtype="datetime64[ns]"))
    [datetime.datetime(2020, 1, 2, 0, 0)]
    """
    if ids.dtype.kind in "mM":
        coarser = ids.astype(f"{ids.dtype.kind}8[us]")
        if np.array_equal(coarser, ids):
            return coarser.tolist()
    return ids.tolist()


def _is_default(index: Any) -> bool:
    """Whether pandas numbered the rows by itself."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _are_row_numbers(index: Any) -> bool:
    return index.nlevels == 1 and index.name is None and index.dtype.kind in "iu"


def _refuse_ambiguous(index: list[Any], wanted: list[Any], name: str) -> None:
    """Bag ids that are 0, 1, 2, ... in another order may or may not be what an index counts."""
    if {str(i) for i in index} == {str(i) for i in wanted}:
        raise ValueError(
            f"{name} has the index 0, 1, 2, ..., and the bag ids are these numbers in another "
            f"order, {some(wanted)}; say which is meant: {name}.to_numpy() is in the order of the "
            f"bags, {name}.set_axis(ids_of_the_entries) is found by its ids"
        )


def _refuse_row_numbers(index: list[Any], name: str) -> None:
    """Numbers of rows that were chosen from a table are in no order that bags know of."""
    raise ValueError(
        f"{name} has an index of whole numbers, {some(index)}, that are neither the bag ids nor "
        f"0, 1, 2, ..., so that nobody knows which bags its entries are of; give {name} an index "
        f"with the ids of the bags, e.g. df.groupby(bag)[label].first(), or pass "
        f"{name}.to_numpy() if it is in the order of the bags (sorted ids in from_arrays)"
    )


def _check_same_ids(found: list[Any], wanted: list[Any], whose: str, chosen: str) -> None:
    """Raise unless ids are those of the bags, in any order; `chosen` leaves others out."""
    there, known = set(found), set(wanted)
    missing = [i for i in dict.fromkeys(wanted) if i not in there]
    other = [i for i in found if i not in known]
    if missing or other:
        parts, remedies = [], []
        if missing:
            parts.append(f"it lacks {some(missing)}")
            remedies.append("give these bags an entry, or leave them out of the bags")
        if other:
            parts.append(f"it has {some(other)} besides")
            remedies.append(f"leave the others out: {chosen}")
        raise ValueError(
            f"{whose} must hold the bag ids, {len(wanted)}; got {len(found)}: "
            f"{' and '.join(parts)}; {'; '.join(remedies)}"
        )


def _check_holds(index: list[Any], place: dict[Any, int], wanted: list[Any], name: str) -> None:
    """Raise unless an index holds each bag id once, and no other."""
    remedy = (
        f"give {name} an index with the ids of the bags, or pass {name}.to_numpy() if it is in "
        "their order"
    )
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"bag ids repeat, so that {name} cannot be found by its index; {remedy}")
    if len(place) < len(index):
        twice = [i for i, count in Counter(index).items() if count > 1]
        raise ValueError(f"the index of {name} has {some(twice)} more than once; {remedy}")
    missing = [i for i in wanted if i not in place]
    if missing:
        known = set(wanted)
        other = [i for i in index if i not in known]
        raise ValueError(
            f"the index of {name} must hold the bag ids; it lacks {some(missing)} and has "
            f"{some(other)}; {remedy}"
        )


def refuse_other_row_order(X: Any, values: Any, name: str, rows: str = "X") -> None:
    """Raise where a Series or table has other rows than X by its index, or in another order.

    An index that shares nothing with that of X, and pandas' own 0, 1, 2, ... beside another one,
    say nothing of its rows.
    """
    if not (has_index(X) and has_index(values)) or len(X) != len(values):
        return
    if X.index.equals(values.index) or not (X.index.is_unique and values.index.is_unique):
        return
    shared = len(X.index.intersection(values.index))
    if shared == len(X):
        raise ValueError(
            f"{name} has the rows of {rows} in another order, by its index; pass "
            f"{name}.loc[{rows}.index], or {name}.to_numpy() if it is in the order of {rows}"
        )
    if shared and not (_is_default(X.index) or _is_default(values.index)):
        raise ValueError(
            f"{name} has other rows than {rows}, by its index: {shared} of {len(X)} are in both; "
            f"choose the same rows of both, or pass {name}.to_numpy() if it is in the order of "
            f"{rows}"
        )


# --- Which label is positive ---------------------------------------------------------------------


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
