"""Labels in a pandas Series or table, put in the order of the bags by their index (internal)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bagwise.bags.checks import Array, some


def has_index(values: Any) -> bool:
    """Whether values are a Series or table of pandas, by name so that it need not be imported."""
    kind = type(values)
    return kind.__module__.startswith("pandas") and kind.__name__ in ("Series", "DataFrame")


def in_bag_order(values: Any, ids: Array, name: str) -> Any:
    """One entry per bag; those of a pandas Series are found by their index where it holds ids.

    - An index that holds the bag ids puts the entries in the order of the bags.
    - Row numbers say nothing about bags, and entries are taken in their order, as those of an
      array: an index without a name, of whole numbers, none of which is a bag id; or pandas'
      own 0, 1, 2, ...
    - Anything else is refused: other ids, ids that are missing or come twice.
    """
    if not has_index(values) or len(values) != len(ids):
        return values  # a wrong length is an error of its own
    index, wanted = values.index.tolist(), ids.tolist()
    if index == wanted:
        return values
    place = {label: i for i, label in enumerate(index)}
    shared = sum(i in place for i in wanted)
    if _is_default(values.index):
        _refuse_ambiguous(index, wanted, name)
        return values
    if shared == 0 and _are_row_numbers(values.index):
        return values
    _check_holds(index, place, wanted, name)
    return values.iloc[[place[i] for i in wanted]]


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


def refuse_other_row_order(X: Any, values: Any, name: str) -> None:
    """Raise where a Series has the rows of the table X, by its index, in another order."""
    if not (has_index(X) and has_index(values)) or len(X) != len(values):
        return
    if X.index.equals(values.index) or not (X.index.is_unique and values.index.is_unique):
        return
    if len(X.index.intersection(values.index)) == len(X):
        raise ValueError(
            f"{name} has the rows of X in another order, by its index; pass {name}.loc[X.index], "
            f"or {name}.to_numpy() if it is in the order of X"
        )
