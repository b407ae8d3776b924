"""What the columns of a data frame are to `Bags.from_frame`: named, recognised, or left out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.checks import Array
from bagwise.bags.column_names import (
    OWN,
    counts_rows,
    find,
    find_own_coords,
    is_own,
    numbers_rows,
)
from bagwise.bags.label_like import COPY, copies, describe, look
from bagwise.bags.messages import some

if TYPE_CHECKING:
    import pandas as pd

    from bagwise.bags.container import Bags


class ByName:
    """The default of a column that is recognised where the table has it under its own name."""

    def __repr__(self) -> str:
        return "<by name>"


BY_NAME: Any = ByName()  # None says that there is no such column


def recognise(df: pd.DataFrame, asked: dict[str, Any], features: Any) -> tuple[dict[str, Any], str]:
    """Columns that were not named, under the names that `to_frame` gives; and what was guessed."""
    header = [c for c in df.columns if isinstance(c, str)]
    named = [c for role, c in asked.items() if c is not BY_NAME and role != "coords"]
    coords = asked["coords"]
    coords = [coords] if isinstance(coords, str) else coords
    used = {c for c in named if c is not None} | ({*features} if features is not None else set())
    if coords is not BY_NAME and coords is not None:
        used |= {*coords}
    result, said = dict(asked), []
    for role in (r for r in asked if asked[r] is BY_NAME):
        if role == "coords":
            result[role] = list(find_own_coords(header, used))
            said += [f"coords={result[role]}"] if result[role] else []
        else:
            result[role] = find(header, (OWN[role],), used)
            if role == "group" and not _constant_in_bags(df, result[role], asked["bag"]):
                result[role] = None  # a group of bags would be
            said += [f"{role}={result[role]!r}"] if result[role] is not None else []
    result["coords"] = list(coords or ()) if coords is not BY_NAME else result["coords"]
    return result, ", ".join(said)


def _constant_in_bags(df: pd.DataFrame, column: Any, bag: Any) -> bool:
    if column is None or bag not in df.columns:
        return True
    return bool((df.groupby(bag)[column].nunique(dropna=False) == 1).all())


@dataclass(frozen=True)
class LeftOut:
    """Columns of numbers that are no features: by their names, or since they count rows."""

    by_name: list[Any]
    counts: list[Any]


def choose_features(
    df: pd.DataFrame, used: Sequence[Any], bag: Any = None
) -> tuple[list[Any], LeftOut]:
    """Columns that are features, and those that are none by their names or values."""
    rest = [c for c in df.columns if c not in used]
    by_name = [c for c in rest if is_own(c) or (_is_numeric(df[c]) and numbers_rows(c, df[c]))]
    numbers = [c for c in rest if c not in by_name and df[c].dtype.kind in "iu"]
    counts = rows_counted(df, numbers, bag)
    return [c for c in rest if c not in by_name and c not in counts], LeftOut(by_name, counts)


def rows_counted(df: pd.DataFrame, numbers: Sequence[Any], bag: Any) -> list[Any]:
    """Those columns of whole numbers that count the rows of the table, or of each bag."""
    if bag not in df.columns or not len(numbers):
        return []
    bag_of_row = df[bag].factorize(use_na_sentinel=False)[0]
    return [c for c in numbers if counts_rows(df[c].to_numpy(), bag_of_row)]


def _is_numeric(column: pd.Series) -> bool:
    return column.dtype.kind in "iuf"


def say_columns(guessed: str, left: LeftOut) -> None:
    """Warn of what was guessed from names and values."""
    parts = []
    if guessed:
        parts.append(f"{guessed} recognised by name (name them, or pass None, to say so yourself)")
    reasons = (
        (left.by_name, "row numbers, ids or labels by name"),
        (left.counts, "counting the rows of the table or of each bag"),
    )
    parts += [
        f"{some(columns)} left out, {why} (list them in features=[...] if they are features, or "
        "drop them)"
        for columns, why in reasons
        if columns
    ]
    if parts:
        warnings.warn(f"from_frame: {'; '.join(parts)}", UserWarning, stacklevel=3)


def warn_of_labels(X: Array, offsets: NDArray[np.int64], y: Array | None, names: Any) -> None:
    """Warn of features that look like labels, of instances or of bags."""
    classes = [] if y is None else np.unique(y).tolist()
    positive = classes if len(classes) == 2 and isinstance(classes[0], str) else classes[1:2]
    sides = [np.asarray(y == c) for c in positive] or [np.zeros(len(offsets) - 1, dtype=bool)]
    reasons: dict[str, str] = {}
    for T in sides:  # text does not say which of two labels is positive
        seen = look(X, offsets, T)
        reasons |= describe(seen, T, names)
    for name, reason in reasons.items():
        warnings.warn(
            f"from_frame: the feature {name!r} looks like labels: {reason}; if it is, pass "
            f"instance_label={name!r}, or choose the columns with features=[...]",
            UserWarning,
            stacklevel=3,
        )
    copied = copies(seen, sides[-1], names) if len(classes) == 2 else []
    for name in (n for n in copied if n not in reasons):
        warnings.warn(
            f"from_frame: the feature {name!r} {COPY}; if it is one, choose the columns with "
            "features=[...]",
            UserWarning,
            stacklevel=3,
        )


def own_columns(bags: Bags) -> dict[str, Any]:
    """The columns of `Bags.to_frame`, under the names that `from_frame` recognises."""
    rows = bags.bag_index
    columns: dict[str, Any] = {OWN["bag"]: bags.ids[rows]}
    for role, per_bag in (("label", bags.y), ("group", bags.groups)):
        columns |= {} if per_bag is None else {OWN[role]: per_bag[rows]}
    known = {"instance_id": bags.instance_ids, "instance_label": bags.instance_labels}
    columns |= {OWN[role]: values for role, values in known.items() if values is not None}
    if bags.coords is not None:
        columns |= {f"coord_{j}": c for j, c in enumerate(bags.coords.T)}
    names = bags.feature_names or tuple(f"x{j}" for j in range(bags.n_features))
    features = dict(zip(names, bags.X.T, strict=True))
    if clash := sorted(n for n, x in features.items() if is_own(n) or numbers_rows(n, x)):
        raise ValueError(
            f"features must not be called {clash} in a table; rename them with "
            "bags.with_X(bags.X, feature_names=[...])"
        )
    return columns | features
