"""Validation behind `bagwise.bags.Bags` (internal): failures state rule, value and remedy."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_array

from bagwise.rows import RowSource

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]

# Rows looked at together when searching for the first non-finite feature: the
# search then needs a few MB however large X is.
_BLOCK_ROWS = 4096


def show(value: Any) -> str:
    """Write a scalar as a user would type it: `'a'`, not `np.str_('a')`."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def is_missing(value: Any) -> bool:
    """Say whether a single value is None, NaN, NaT or pandas' NA."""
    # By name, so that pandas need not be imported.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _first_missing(values: Array) -> int | None:
    """Position of the first missing entry of a 1-D array, or None."""
    if values.dtype.kind in "fc":
        missing = np.isnan(values)
    elif values.dtype.kind in "mM":
        missing = np.isnat(values)
    elif values.dtype.kind == "O":
        missing = np.fromiter((is_missing(v) for v in values), bool, len(values))
    else:
        return None
    return int(np.argmax(missing)) if missing.any() else None


def _tidy(values: Array) -> Array:
    """Give an object array of plain str, int or bool its own dtype.

    Object arrays need pickle to be stored; tables deliver them for every column of text.
    """
    if values.dtype.kind != "O" or not len(values):
        return values
    kinds = {type(v) for v in values}
    return np.array(values.tolist()) if kinds in ({str}, {int}, {bool}) else values


def as_1d(values: ArrayLike, name: str) -> Array:
    """Turn ids, labels or groups into a 1-D array without missing entries."""
    # With mixed types np.asarray would turn numbers into text: keep them as they are.
    mixed = isinstance(values, list | tuple) and len({type(v) for v in values}) > 1
    array = _as_array(values, name)
    if mixed and _has_text(values):
        array = np.asarray(values, dtype=object)
    if array.ndim != 1:
        raise ValueError(
            f"{name} must be one-dimensional; got shape {array.shape}; "
            f"for a single column pass {name}.ravel()"
        )
    row = _first_missing(array)
    if row is not None:
        raise ValueError(
            f"{name} must not have missing entries; entry {row} is {show(array[row])}; "
            "leave these bags out, or fill the entry in"
        )
    return _tidy(array)


def _has_text(values: Any) -> bool:
    return any(isinstance(v, str | bytes) for v in values)


def check_per_bag(values: ArrayLike, n_bags: int, n_rows: int, name: str) -> Array:
    """Check labels, groups or ids: one non-missing entry per bag."""
    array = as_1d(values, name)
    if len(array) == n_bags:
        return array
    hint = "pass one entry per bag, in the order of the bags (np.unique(bag_ids) in from_arrays)"
    if len(array) == n_rows:
        hint += (
            "; these look like one per row: take "
            f"{name}[np.unique(bag_ids, return_index=True)[1]], or use Bags.from_frame"
        )
    raise ValueError(f"{name} must have one entry per bag: {n_bags}; got {len(array)}; {hint}")


def check_bag_ids(bag_ids: ArrayLike, n_rows: int) -> tuple[Array, Array]:
    """Return the sorted distinct bag ids and, for each row, the position of its bag."""
    array = as_1d(bag_ids, "bag_ids")
    if len(array) != n_rows:
        raise ValueError(
            f"bag_ids must have one entry per row of X: {n_rows}; got {len(array)}; "
            "repeat the id of a bag for each of its instances"
        )
    try:
        ids, bag_of_row = np.unique(array, return_inverse=True)
    except TypeError as error:
        raise TypeError(
            "bag_ids must be of one type so that bags can be put in order; got a mixture of "
            f"{sorted({type(v).__name__ for v in array})}; convert them, e.g. with "
            "[str(i) for i in bag_ids]"
        ) from error
    return ids, bag_of_row


def _as_array(values: Any, name: str) -> Array:
    """np.asarray with an error of ours for ragged input."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} must be a rectangular array; got rows of different lengths; for bags of "
            "different sizes pass a list with one 2-D array per bag to Bags.from_list"
        ) from error


def _reject_text(values: Any, name: str) -> None:
    """Refuse strings, numeric ones too: check_array would silently convert those."""
    probe = _as_array(values, name)
    kind = probe.dtype.kind
    if kind in "USVTmM" or (kind == "O" and _has_text(probe.flat)):
        raise ValueError(
            f"{name} must be numbers, not bytes/strings or dates; got dtype {probe.dtype} with "
            f"such values; convert them explicitly, e.g. {name}.astype(float)"
        )
    if name == "X" and probe.ndim == 3:
        raise ValueError(
            "Found array with dim 3, while dim <= 2 is required: X is (instances, features); "
            f"got shape {probe.shape}; if the first axis is bags, pass Bags.from_list(list(X))"
        )


def check_features(X: Any, *, estimator_name: str | None = None) -> Array:
    """Check that X is a dense, real (n, D) array and make it float; finiteness comes later.

    float32 and float64 arrays come back without a copy. Non-finite features are looked for by
    `check_finite`, which can name the bag.
    """
    if isinstance(X, RowSource):  # says its shape and dtype, and is read in blocks later
        return cast(Array, X)
    if not sparse.issparse(X):
        _reject_text(X, "X")
    return np.asarray(
        check_array(
            X,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            estimator=estimator_name,
            input_name="X",
        )
    )


def check_sortable(X: Any) -> None:
    """Raise where putting rows in order would load a file."""
    if isinstance(X, RowSource):
        raise ValueError(
            "the rows of a file must be sorted by bag, since it is not loaded; sort the file, or "
            "load it with np.asarray(X)"
        )


def check_finite(
    X: Array, offsets: Array, ids: Array, row_index: Array, names: tuple[str, ...] | None
) -> None:
    """Raise, naming bag, row and feature, if X has a NaN or infinite entry."""
    for start in range(0, len(X), _BLOCK_ROWS):
        block = X[start : start + _BLOCK_ROWS]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.sum(block)):  # no temporary; a finite sum has finite terms
                continue
        bad = ~np.isfinite(block)
        if bad.any():
            row, column = np.unravel_index(int(np.argmax(bad)), bad.shape)
            _raise_non_finite(X, start + int(row), int(column), offsets, ids, row_index, names)


def _raise_non_finite(
    X: Array,
    row: int,
    column: int,
    offsets: Array,
    ids: Array,
    row_index: Array,
    names: tuple[str, ...] | None,
) -> None:
    what = "NaN"
    if np.isinf(X[row][column]):
        what = f"infinity or a value too large for {X.dtype!r}"
    bag = int(np.searchsorted(offsets, row, side="right")) - 1
    feature = str(column) if names is None else f"{column} ({names[column]!r})"
    raise ValueError(
        f"Input X contains {what}: bag {show(ids[bag])}, row {row - offsets[bag]} of that bag "
        f"(input row {row_index[row]}), feature {feature}; features must be finite: drop such "
        "instances, or fill them in first, e.g. with sklearn.impute.SimpleImputer"
    )


def check_instance_labels(labels: Any, n_rows: int) -> NDArray[np.float64]:
    """Check instance labels: 0, 1, or NaN/None/-1 for unknown, which become NaN."""
    array = _as_array(labels, "instance_labels")
    rule = "instance labels must be 0, 1, or NaN or -1 for unknown"
    if array.shape != (n_rows,):
        raise ValueError(
            f"instance_labels must have one entry per row: {n_rows}; got shape {array.shape}; "
            "use NaN for rows whose label is unknown"
        )
    if array.dtype.kind == "O" and not _has_text(array):
        array = np.array([np.nan if is_missing(v) else v for v in array])
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{rule}; got dtype {array.dtype}; convert them to numbers")
    values = np.array(array, dtype=np.float64)
    values[values == -1] = np.nan
    bad = ~(np.isnan(values) | (values == 0) | (values == 1))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"{rule}; row {row} has {show(array[row])}; map your two values to 0 (negative) "
            "and 1 (positive)"
        )
    return values


def check_coords(coords: Any, n_rows: int, name: str = "coords") -> Array:
    """Check coordinates: (n, k) finite numbers; a flat (n,) array is one column."""
    _reject_text(coords, name)
    array = np.asarray(coords)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or len(array) != n_rows or array.shape[1] < 1:
        raise ValueError(
            f"{name} must have one row per instance and at least one column: ({n_rows}, k); "
            f"got shape {np.asarray(coords).shape}; pass them in the row order of X"
        )
    if array.dtype.kind == "c":
        raise ValueError(f"{name} must be real numbers; got dtype {array.dtype}")
    array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise ValueError(
            f"{name} must be finite; row {row} has {array[row].tolist()} (NaN or infinity); "
            "fill it in, or drop that row"
        )
    return array


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


def shared_names(arrays: Sequence[Any], ids: Array) -> tuple[str, ...] | None:
    """Column names of the tables in a list of bags, which must agree."""
    first = names_of(arrays[0])
    for table, bag in zip(arrays, ids, strict=True):
        if names_of(table) != first:
            raise ValueError(
                f"all bags must have the same columns; bag {show(ids[0])} has {first}, bag "
                f"{show(bag)} has {names_of(table)}; reorder them, or pass feature_names"
            )
    return first


def _one_bag(X: Any, label: str) -> Array:
    """One element of Bags.from_list as a numeric 2-D array."""
    if sparse.issparse(X):
        raise TypeError(f"{label} is sparse; Sparse data is not supported; use X.toarray()")
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
    if array.dtype.kind in "fiub":
        return array
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
    offsets = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)
    X = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return check_features(X), offsets


def flatten_rows(values: Any, sizes: Array, ids: Array, name: str) -> Any:
    """Concatenate per-bag arrays of row values; flat values pass through.

    In a list of arrays, None stands for a bag about which nothing is known.
    """
    depth = 2 if name == "coords" else 1
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    if not any(v is not None and np.ndim(v) == depth for v in values):
        return values
    if len(values) != len(sizes):
        raise ValueError(
            f"{name}, given as a list of arrays, must have one array per bag: {len(sizes)}; got "
            f"{len(values)}; pass None for a bag without them"
        )
    parts = []
    for value, size, bag in zip(values, sizes, ids, strict=True):
        part = np.full(size, None) if value is None and depth == 1 else np.asarray(value)
        if part.ndim != depth or len(part) != size:
            raise ValueError(
                f"{name} of bag {show(bag)} must have one entry per instance: {size}; got shape "
                f"{part.shape}; pass them in the row order of that bag"
            )
        parts.append(part)
    return np.concatenate(parts)


def check_frame(
    df: pd.DataFrame, named: list[Any], coords: list[Any], features: Sequence[Any] | None
) -> list[Any]:
    """Check the columns that Bags.from_frame needs and return the feature columns."""
    import pandas as pd

    if not isinstance(df, pd.DataFrame):
        raise TypeError(
            f"from_frame takes a pandas.DataFrame; got {type(df).__name__}; convert it, e.g. with "
            ".to_pandas(), or use Bags.from_arrays"
        )
    there = list(df.columns)
    if not df.columns.is_unique:
        raise ValueError(f"column names must be distinct; got {there}; rename the repeated ones")
    used = [*named, *coords]
    chosen = [c for c in there if c not in used] if features is None else list(features)
    for name in (*used, *chosen):
        if name not in there:
            raise ValueError(
                f"the table has no column {name!r}; its columns are {there}; name the right one "
                "(label=None if the bags have no labels)"
            )
    if not chosen:
        raise ValueError(f"no feature columns are left among {there}; pass features=[...]")
    for name in (*chosen, *coords):
        if not pd.api.types.is_numeric_dtype(df[name].dtype):
            raise ValueError(
                f"features and coords must be numeric; column {name!r} has dtype "
                f"{df[name].dtype}; choose the columns with features=[...], or convert it"
            )
    return chosen


def frame_column(df: pd.DataFrame, column: Any) -> Array:
    """One column of ids, labels or groups, without missing entries."""
    return as_1d(df[column].to_numpy(), f"column {column!r}")


def frame_per_bag(df: pd.DataFrame, column: Any, bag_ids: Array) -> Array:
    """The value of each bag in a column that must be constant inside bags."""
    values = frame_column(df, column)
    ids, bag_of_row = check_bag_ids(bag_ids, len(values))
    first = np.unique(bag_of_row, return_index=True)[1]
    differs = values != values[first][bag_of_row]
    if differs.any():
        bag = bag_of_row[int(np.argmax(differs))]
        found = list(dict.fromkeys(values[bag_of_row == bag].tolist()))
        raise ValueError(
            f"column {column!r} must be constant inside a bag; bag {show(ids[bag])} has {found}; "
            "correct the table (labels of instances go to instance_label=)"
        )
    return values[first]


def resolve_key(key: Any, n_bags: int) -> slice | NDArray[np.intp]:
    """Turn any accepted key into a step-1 slice (a view) or an array of bag positions."""
    if isinstance(key, tuple):
        if not key or any(k is not Ellipsis and k != slice(None) for k in key[1:]):
            raise IndexError(
                f"Bags are indexed by bag only; got the key {key!r}; to choose features use "
                "bags.with_X(bags.X[:, columns])"
            )
        key = key[0]
    if key is Ellipsis:
        key = slice(None)
    if isinstance(key, slice):
        start, stop, step = key.indices(n_bags)
        if step == 1:
            return slice(start, max(start, stop), 1)
        return np.arange(start, stop, step, dtype=np.intp)
    if isinstance(key, bool | np.bool_):
        raise IndexError(f"a single {bool(key)} is no index; pass a mask with one entry per bag")
    if hasattr(key, "__index__") and np.ndim(key) == 0:
        position = _positions(np.array([operator.index(key)]), n_bags)[0]
        return slice(int(position), int(position) + 1, 1)
    return _resolve_array(np.asarray(key), n_bags)


def _resolve_array(key: Array, n_bags: int) -> slice | NDArray[np.intp]:
    if key.ndim == 1 and key.dtype.kind == "b":
        if len(key) != n_bags:
            raise IndexError(
                f"a boolean mask must have one entry per bag: {n_bags}; got {len(key)}; "
                "a mask over instances does not select bags"
            )
        return np.flatnonzero(key)
    if key.ndim != 1 or (key.dtype.kind not in "iu" and len(key)):
        raise IndexError(
            "bags are chosen by an int, a slice, a boolean mask or a 1-D array of ints; got "
            f"an array of shape {key.shape} and dtype {key.dtype}; to find bags by id use "
            "np.isin(bags.ids, wanted)"
        )
    positions = _positions(key.astype(np.intp), n_bags)
    if len(positions) and (np.diff(positions) == 1).all():
        return slice(int(positions[0]), int(positions[-1]) + 1, 1)
    return positions


def _positions(index: NDArray[np.intp], n_bags: int) -> NDArray[np.intp]:
    """Wrap negative positions; raise for those out of range."""
    bad = (index < -n_bags) | (index >= n_bags)
    if bad.any():
        raise IndexError(
            f"bag positions must lie in -{n_bags}..{n_bags - 1} for {n_bags} bags; "
            f"got {index[int(np.argmax(bad))]}"
        )
    return np.where(index < 0, index + n_bags, index)


def check_marks(marks: ArrayLike, radius: float, n_dims: int) -> Array:
    """Check a radiologist's marks: (M, k) finite positions, k as in coords; and the radius."""
    if not (isinstance(radius, Real) and 0 < radius < np.inf):
        raise ValueError(
            f"radius must be a positive finite number in the units of coords; got {radius!r}"
        )
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


def check_concat(parts: Sequence[Any], optional: Sequence[str]) -> None:
    """Check that Bags can be put after each other."""
    if not parts:
        raise ValueError("concat needs at least one Bags; got an empty list")
    for name in ("n_features", "feature_names"):
        found = list(dict.fromkeys(getattr(p, name) for p in parts))
        if len(found) > 1 and None not in found:
            raise ValueError(
                f"all Bags must have the same {name}; got {found}; align their columns"
            )
    for name in optional:
        have = [getattr(p, name) is not None for p in parts]
        if any(have) and not all(have):
            raise ValueError(
                f"{name} must be in all Bags or in none; Bags {have.index(False)} of {len(parts)} "
                f"has none; add it there, or build the others without {name}"
            )
    for name in ("y", "groups"):
        kinds = {p_field.dtype.kind for p in parts if (p_field := getattr(p, name)) is not None}
        if len(kinds) > 1 and "U" in kinds:
            raise ValueError(f"{name} mixes text and other types; give all Bags the same type")
    if parts[0].coords is not None and len(widths := {p.coords.shape[1] for p in parts}) > 1:
        raise ValueError(f"coords must have the same number of columns; got {sorted(widths)}")


def check_strata(y: Array, unit_of_bag: Array) -> Array:
    """Class of each unit (bag or group) for a stratified split; each needs two units.

    A group of bags with several labels counts for the label it has the largest share of.
    """
    classes, code = np.unique(y, return_inverse=True)
    counts = np.zeros((unit_of_bag.max() + 1, len(classes)))
    np.add.at(counts, (unit_of_bag, code), 1)
    strata = np.argmax(counts / counts.sum(axis=0), axis=1)
    found, n_units = np.unique(strata, return_counts=True)
    if n_units.min() < 2:
        label = classes[found[int(np.argmin(n_units))]]
        raise ValueError(
            f"a stratified split needs two bags (or groups) of each label; label {show(label)} "
            "has 1; pass stratify=False, or add bags"
        )
    return strata
