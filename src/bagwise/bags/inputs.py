"""Lists of arrays, tables and marks as the parts of `Bags` (internal)."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from bagwise.bags.checks import (
    Array,
    as_1d,
    check_bag_ids,
    check_constant,
    check_coords,
    check_features,
    has_index,
    refuse_masked,
)
from bagwise.bags.labels import refuse_other_row_order
from bagwise.bags.messages import show
from bagwise.bags.number_text import dressed_numbers, has_decimal_commas
from bagwise.bags.sparse_rows import SparseRows
from bagwise.bags.subsets import offsets_of

if TYPE_CHECKING:
    import pandas as pd


REMEDY = (
    "write numbers with a decimal point and without thousands separators, e.g. with "
    "pandas.read_csv(file, sep=';', decimal=',')"
)
PLAIN = "write plain numbers such as 1234.5, with the unit in the column's name"
_CONVERT = "choose the columns with features=[...], or convert it"
_DUMMIES = "choose the columns with features=[...], or make 0 and 1 of it with pandas.get_dummies"


def _one_bag(X: Any, label: str) -> Array:
    """One element of Bags.from_list as a numeric 2-D array."""
    if sparse.issparse(X):
        return _checked_bag(X, label)
    refuse_masked(X, label)
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise ValueError(
            f"{label} must be a 2-D array (instances, features); its rows differ in length; "
            "give each instance the same features"
        ) from error
    if array.size == 0 and (array.ndim == 1 or len(array) == 0):
        raise ValueError(f"{label} has 0 instances; a bag needs at least one: drop it")
    if array.ndim != 2:
        raise ValueError(
            f"{label} must be 2-D (instances, features); got shape {array.shape}; "
            "Reshape your data: x.reshape(1, -1) makes one instance a bag"
        )
    return array if array.dtype.kind in "fiub" else _checked_bag(X, label)


def _checked_bag(X: Any, label: str) -> Array:
    try:
        return check_features(X)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{label}: {error}") from error


def stack_bags(arrays: Sequence[Any], ids: Array) -> tuple[Array, NDArray[np.int64]]:
    """Put a list of (n_b, D) arrays on top of each other; return X and offsets."""
    parts = [_one_bag(x, f"bag {show(i)}") for x, i in zip(arrays, ids, strict=True)]
    widths = np.array([p.shape[1] for p in parts])
    if (widths != widths[0]).any():
        odd = int(np.argmax(widths != widths[0]))
        raise ValueError(
            f"all bags must have the same features; bag {show(ids[0])} has {widths[0]}, bag "
            f"{show(ids[odd])} has {widths[odd]}; give every bag the same columns"
        )
    offsets = offsets_of(np.array([len(p) for p in parts]))
    X = parts[0] if len(parts) == 1 else joined(parts)
    return check_features(X), offsets


def joined(parts: Sequence[Any]) -> Array:
    """Arrays, or features of which some are sparse, after each other."""
    if any(isinstance(part, SparseRows) for part in parts):
        return cast(Array, SparseRows.stacked(parts))
    return np.concatenate(parts)


def flatten_rows(values: Any, arrays: Sequence[Any], sizes: Array, ids: Array, name: str) -> Any:
    """Concatenate per-bag arrays of row values; flat values pass through.

    In a list of arrays, None stands for a bag about which nothing is known. `arrays` has the
    features of the bags, whose index, if they are tables, must not tell another order of rows.
    """
    depth = 2 if name == "coords" else 1
    if isinstance(values, np.ndarray) and values.dtype != object:
        refuse_masked(values, name)
        return values
    if not any(v is not None and np.ndim(v) == depth for v in values):
        return values
    if len(values) != len(sizes):
        raise ValueError(
            f"{name}, given as a list of arrays, must have one array per bag: {len(sizes)}; got "
            f"{len(values)}; pass None for a bag without them"
        )
    parts = []
    for b, (value, size, bag) in enumerate(zip(values, sizes, ids, strict=True)):
        refuse_masked(value, f"{name} of bag {show(bag)}")
        refuse_other_row_order(arrays[b], value, f"{name}[{b}]", rows=f"arrays[{b}]")
        part = np.full(size, None) if value is None and depth == 1 else np.asarray(value)
        if part.ndim != depth or len(part) != size:
            raise ValueError(
                f"{name} of bag {show(bag)} must have one entry per instance: {size}; got shape "
                f"{part.shape}; pass them in the row order of that bag"
            )
        parts.append(part)
    return np.concatenate(parts)


def check_instance_ids(instance_ids: ArrayLike, n_rows: int) -> Array:
    """Check instance ids: one non-missing entry per row."""
    array = as_1d(instance_ids, "instance_ids")
    if len(array) != n_rows:
        raise ValueError(
            f"instance_ids must have one entry per row: {n_rows}; got {len(array)}; "
            "pass them in the row order of X"
        )
    return array


def check_feature_names(names: Sequence[str] | None, n_features: int) -> tuple[str, ...] | None:
    """Check feature names: D distinct strings."""
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(n, str) for n in names):
        raise TypeError(
            f"feature_names must be a sequence of strings; got {names!r}; "
            "convert them, e.g. with [str(n) for n in names]"
        )
    result = tuple(str(n) for n in names)
    if len(result) != n_features or len(set(result)) != len(result):
        raise ValueError(
            f"feature_names must be {n_features} distinct names, one per feature; got "
            f"{len(result)}, {len(set(result))} of them distinct; leave them out or correct them"
        )
    return result


def names_of(X: Any) -> tuple[str, ...] | None:
    """Column names of a table if all are strings, else None."""
    columns = getattr(X, "columns", None)
    if columns is None or not all(isinstance(c, str) for c in columns):
        return None
    return tuple(str(c) for c in columns)


def refuse_table_of_other_rows(values: Any, row_index: Array, call: str) -> None:
    """Raise where rows of a table may be in the order in which bags were built, not in theirs."""
    if has_index(values) and len(values) == len(row_index) and np.any(np.diff(row_index) != 1):
        raise ValueError(
            f"{call} takes rows in the order of bags.X, which is not that of the table that the "
            "bags were built from, and a pandas index does not say which one is meant; pass "
            "values.to_numpy()[bags.row_index] of rows in the order of that table, or "
            "values.to_numpy() if they are in the order of bags.X"
        )


def shared_names(arrays: Sequence[Any], ids: Array) -> tuple[str, ...] | None:
    """Column names of the tables in a list of bags, which must agree."""
    first = _columns(arrays[0])
    for table, bag in zip(arrays, ids, strict=True):
        if _columns(table) != first:
            raise ValueError(
                f"all bags must have the same columns; bag {show(ids[0])} has {first}, bag "
                f"{show(bag)} has {_columns(table)}; reorder them, or pass feature_names"
            )
    return names_of(arrays[0])


def _columns(table: Any) -> list[Any] | None:
    """Column names of a table, which may be numbers; None of an array or without names."""
    columns = list(getattr(table, "columns", ()))
    return None if columns == list(range(len(columns))) else columns


def as_pandas(df: Any) -> Any:
    """A table of polars, pyarrow or another package that hands over Arrow data, as one of pandas.

    Categories keep their order, and text stays text; others come back as they are.
    """
    if has_index(df) or not hasattr(df, "__arrow_c_stream__"):
        return df
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ImportError(
            f"a {type(df).__name__} of another package is read with pyarrow, which is not "
            "installed; run: pip install pyarrow, or pass df.to_pandas()"
        ) from error
    return pa.table(df).to_pandas()


def check_is_frame(df: Any, features: Any) -> None:
    """Check that Bags.from_frame was given a table whose columns can be told apart."""
    import pandas as pd

    if not isinstance(df, pd.DataFrame):
        lazy = "collect it first, df.collect(), " if hasattr(df, "collect") else "convert it "
        raise TypeError(
            "from_frame takes a table of pandas, polars or pyarrow; got "
            f"{type(df).__name__}; {lazy}or use Bags.from_arrays"
        )
    if isinstance(features, str):
        raise TypeError(
            f"features must be a list of column names, got the string {features!r}; pass "
            f"[{features!r}]"
        )
    if not df.columns.is_unique:
        names = list(df.columns)
        raise ValueError(f"column names must be distinct; got {names}; rename the repeated ones")


def check_frame(df: pd.DataFrame, used: list[Any], chosen: list[Any], coords: list[Any]) -> None:
    """Check that the columns of Bags.from_frame are there, and that features are numbers."""
    import pandas as pd

    there = list(df.columns)
    for name in (*used, *chosen):
        if name not in there:
            in_index = name in df.index.names
            remedy = (
                "it is in the index: pass df.reset_index()"
                if in_index
                else "name the right one (label=None if the bags have no labels)"
            )
            raise ValueError(f"the table has no column {name!r}; its columns are {there}; {remedy}")
    if not chosen:
        raise ValueError(f"no feature columns are left among {there}; pass features=[...]")
    for name in (*chosen, *coords):
        if not pd.api.types.is_numeric_dtype(df[name].dtype):
            raise ValueError(
                f"features and coords must be numeric; column {name!r} has dtype "
                f"{df[name].dtype}; {_remedy(df[name])}"
            )


def _remedy(column: pd.Series) -> str:
    """What to do with a column of text that should be a feature."""
    if has_decimal_commas(column):
        return f"it has decimal commas: {REMEDY}"
    if dressed := dressed_numbers(column):
        return f"it has {dressed.what}, such as {dressed.cell!r:.40}: {PLAIN}"
    return _DUMMIES if str(column.dtype) == "category" else _CONVERT


def frame_column(df: pd.DataFrame, column: Any) -> Array:
    """One column of ids, labels or groups, without missing entries."""
    return as_1d(df[column].to_numpy(), f"column {column!r}")


def frame_labels(df: pd.DataFrame, column: Any, bag_ids: Array) -> Any:
    """The label of each bag; of ordered categories with their order."""
    import pandas as pd

    labels, dtype = frame_per_bag(df, column, bag_ids), df[column].dtype
    return pd.Categorical(labels, dtype=dtype) if getattr(dtype, "ordered", False) else labels


def frame_per_bag(df: pd.DataFrame, column: Any, bag_ids: Array) -> Array:
    """The value of each bag in a column that must be constant inside bags."""
    values = frame_column(df, column)
    ids, bag_of_row = check_bag_ids(bag_ids, len(values))
    return values[check_constant(values, ids, bag_of_row, f"column {column!r}")]


def check_marks(marks: ArrayLike, radius: float, n_dims: int) -> Array:
    """Check a radiologist's marks: (M, k) finite positions, k as in coords; and the radius."""
    if not (isinstance(radius, Real) and 0 < radius < np.inf):
        raise ValueError(
            f"radius must be a positive finite number in the units of coords; got {radius!r}"
        )
    refuse_masked(marks, "marks")
    array = np.asarray(marks)
    if array.size == 0:
        return np.empty((0, n_dims))
    if array.ndim != 2 or array.shape[1] != n_dims:
        raise ValueError(
            f"marks must have the dimensions of coords: (M, {n_dims}); got shape {array.shape}; "
            "pass one row per mark"
        )
    return check_coords(array, len(array), "marks")


def check_scans(
    groups: ArrayLike | None, mark_groups: ArrayLike | None, n_rows: int, n_marks: int
) -> tuple[Array, Array] | None:
    """Check which scan each candidate and each mark belongs to: both given, or none."""
    if groups is None and mark_groups is None:
        return None
    if groups is None or mark_groups is None:
        raise ValueError(
            "groups (one per candidate) and mark_groups (one per mark) go together; only "
            f"{'mark_groups' if groups is None else 'groups'} was given; pass both or none"
        )
    pair = as_1d(groups, "groups"), as_1d(mark_groups, "mark_groups")
    if (len(pair[0]), len(pair[1])) != (n_rows, n_marks):
        raise ValueError(
            f"groups needs one entry per candidate: {n_rows}, mark_groups one per mark: {n_marks}; "
            f"got {len(pair[0])} and {len(pair[1])}"
        )
    return pair


def nearest_mark(xy: Array, marks: Array, radius: float, scans: Any) -> NDArray[np.int64]:
    """(N,) nearest mark of the same scan within the radius of each candidate, else -1."""
    nearest = np.full(len(xy), -1, dtype=np.int64)
    row_scans, mark_scans = scans or (np.zeros(len(xy)), np.zeros(len(marks)))
    for scan in np.unique(mark_scans):
        rows, here = np.flatnonzero(row_scans == scan), np.flatnonzero(mark_scans == scan)
        distance, mark = cKDTree(marks[here]).query(xy[rows])
        close = distance <= radius
        nearest[rows[close]] = here[mark[close]]
    return nearest
