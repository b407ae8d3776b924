"""Validation behind `bagwise.bags.Bags` (internal): failures state rule, value and remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_array

from bagwise.bags.messages import ROW, InputError, show, some
from bagwise.bags.rows import RowSource, blocks, is_elsewhere
from bagwise.bags.sparse_rows import SparseRows, checked_sparse

Array = NDArray[Any]

_NO_NUMBERS = (str, bytes, date, timedelta, np.datetime64, np.timedelta64)


def is_missing(value: Any) -> bool:
    """Say whether a single value is None, NaN, NaT or pandas' NA."""
    # By name, so that pandas need not be imported.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def has_index(values: Any) -> bool:
    """Whether values are a Series or table of pandas, by name so that it need not be imported."""
    kind = type(values)
    return kind.__module__.startswith("pandas") and kind.__name__ in ("Series", "DataFrame")


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
    """An object array of plain str, int or bool in a dtype that is stored without pickle."""
    if values.dtype.kind != "O" or not len(values):
        return values
    kinds = {type(v) for v in values}
    for plain in ({str, np.str_}, {bool, np.bool_}, {int}):
        if kinds <= plain:
            return np.array(values.tolist())
    return values


def as_1d(values: ArrayLike, name: str) -> Array:
    """Turn ids, labels or groups into a 1-D array without missing entries."""
    # With mixed types np.asarray would turn numbers into text: keep them as they are.
    mixed = isinstance(values, list | tuple) and len({type(v) for v in values}) > 1
    array = _as_array(values, name)
    _refuse_merging(values, array, name)
    if mixed and _has_text(values):
        array = np.asarray(values, dtype=object)
    if array.ndim != 1:
        columns = getattr(values, "columns", None)  # of a pandas table
        one = f"{name}.ravel()" if columns is None else f"{name}[{columns[0]!r}]"
        remedy = f"for a single column pass {one}" if array.ndim else "pass a list of its entries"
        raise ValueError(f"{name} must be one-dimensional; got shape {array.shape}; {remedy}")
    row = _first_missing(array)
    if row is not None:
        raise InputError(
            f"{name} must not have missing entries; {ROW} is {show(array[row])}; "
            "leave these bags out, or fill the entry in",
            row,
            called="entry",
        )
    return _tidy(array)


def _refuse_merging(values: Any, array: Array, name: str) -> None:
    """Raise where numpy would make one entry of two that differ."""
    if array.ndim == 0:
        return  # not a sequence, an error of its own
    entries = values if isinstance(values, list | tuple) else array
    if isinstance(entries, np.ndarray) and entries.dtype.kind != "O":
        return
    for v in entries:
        if isinstance(v, str | bytes) and v[-1:] in ("\0", b"\0"):
            raise ValueError(
                f"{name} must not end in a NUL character, which arrays of text drop; got {v!r}; "
                "strip it, or name these bags otherwise"
            )
    kinds = {type(v) for v in entries}
    whole = [v for v in entries if type(v) is int] if kinds <= {int, float} else []
    rounded = whole and np.array(list(entries)).dtype.kind == "f"
    if rounded and (kinds == {int} or any(int(float(v)) != v for v in whole)):
        raise ValueError(
            f"{name} must fit into 64 bits together; got numbers from {min(entries)} to "
            f"{max(entries)}, which would be rounded; pass them as text, [str(i) for i in {name}]"
        )


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
            f"np.asarray({name})[np.unique(bag_ids, return_index=True)[1]], or build the bags "
            "with them: Bags.from_arrays, Bags.from_frame"
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


def check_constant(
    values: Array, ids: Array, bag_of_row: Array, what: str, otherwise: str = "instance_label"
) -> NDArray[np.intp]:
    """The first row of each bag, where all rows of a bag have the same value.

    `otherwise` is the argument that takes labels of instances.
    """
    first = np.unique(bag_of_row, return_index=True)[1]
    differs = values != values[first][bag_of_row]
    if differs.any():
        bag = bag_of_row[int(np.argmax(differs))]
        found = list(dict.fromkeys(values[bag_of_row == bag].tolist()))
        raise InputError(
            f"{what} must be constant inside a bag; bag {show(ids[bag])} has {some(found)}; "
            "correct it, or say so if these are labels of instances",
            argument=otherwise,
        )
    return first


def refuse_masked(values: Any, name: str) -> None:
    """Raise where entries of numpy masked arrays are masked: np.asarray would unmask them."""
    if isinstance(values, list | tuple):
        for i, part in enumerate(values):
            if isinstance(part, np.ma.MaskedArray) and part.ndim:  # a single one becomes NaN
                refuse_masked(part, f"{name}[{i}]")
    if not isinstance(values, np.ma.MaskedArray) or not np.ma.is_masked(values):
        return
    first = tuple(int(i) for i in np.argwhere(np.ma.getmaskarray(values))[0])
    place = first[0] if len(first) == 1 else first
    unknown = f"{name}.filled(-1) for unknown labels, or " if name == "instance_labels" else ""
    raise ValueError(
        f"{name} must not be masked; {int(np.ma.count_masked(values))} entries are, the first at "
        f"{place}; {unknown}drop or impute them, or pass {name}.data to use what the mask hides"
    )


def _as_array(values: Any, name: str) -> Array:
    """np.asarray with an error of ours for ragged input and for masked entries."""
    refuse_masked(values, name)
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
    if kind in "USVTmM" or (kind == "O" and any(isinstance(v, _NO_NUMBERS) for v in probe.flat)):
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
    """Check that X is a real (n, D) array and make it float.

    Sparse matrices become `SparseRows`; float32 and float64 arrays come back without a copy,
    float16 becomes float32.
    Infinite features are looked for by `refuse_infinities`, which can name the bag.
    """
    if isinstance(X, RowSource):  # says its shape and dtype, and is read in blocks later
        return cast(Array, X)
    if isinstance(X, Mapping | Iterator) and not sparse.issparse(X):  # one kind of these is a dict
        raise TypeError(
            f"X must be Bags, an array, a table or a list of arrays; got {type(X).__name__}; of "
            "bags by their ids make Bags.from_list(list(bags.values()), ids=list(bags))"
        )
    columns = getattr(X, "columns", None)
    if columns is not None and len(set(columns)) < len(columns):
        raise ValueError(f"column names must be distinct; got {list(columns)}; rename some")
    if hasattr(X, "__arrow_c_stream__") and hasattr(X, "to_numpy") and not has_index(X):
        X = X.to_numpy()  # of polars, whose precision is kept
    if sparse.issparse(X):
        X = checked_sparse(X)
    else:
        _reject_text(X, "X")
    half = getattr(X, "dtype", None) == np.float16
    checked = check_array(
        X,
        accept_sparse="csr",
        dtype=np.float32 if half else [np.float64, np.float32],
        ensure_all_finite=False,
        estimator=estimator_name,
        input_name="X",
    )
    return cast(Array, SparseRows(checked)) if sparse.issparse(checked) else np.asarray(checked)


def check_sortable(X: Any) -> None:
    """Raise where putting rows in order would load a file."""
    if is_elsewhere(X):
        raise ValueError(
            "the rows of a file must be sorted by bag, since it is not loaded; sort the file, or "
            "load it with np.array(X)"
        )


def refuse_infinities(
    X: Array, offsets: Array, ids: Array, row_index: Array, names: tuple[str, ...] | None
) -> None:
    """Raise, naming bag, row and feature, if X has an infinite entry.

    NaN stands for a value that is missing, which bags carry and models refuse.
    """
    if isinstance(X, SparseRows) and not np.any(np.isinf(X.matrix.data)):
        return
    for part in blocks(len(X)):  # which need a few MB however large X is
        block = X[part]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.sum(block)):  # no temporary; a finite sum has finite terms
                continue
        bad = np.isinf(block)
        if bad.any():
            row, column = np.unravel_index(int(np.argmax(bad)), bad.shape)
            at = part.start + int(row)
            raise InputError(
                f"Input X contains infinity or a value too large for {X.dtype!r}: "
                f"{cell(at, int(column), offsets, ids, names)}; features must be finite: correct "
                "the entry, or make it NaN if it is missing and fill it in "
                "(sklearn.impute.SimpleImputer)",
                int(row_index[at]),
            )


def cell(row: int, column: int, offsets: Array, ids: Array, names: tuple[str, ...] | None) -> str:
    """How an error names an entry of X: bag, row and feature."""
    bag = int(np.searchsorted(offsets, row, side="right")) - 1
    feature = str(column) if names is None else f"{column} ({names[column]!r})"
    return f"bag {show(ids[bag])}, row {row - offsets[bag]} of that bag ({ROW}), feature {feature}"


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
        raise InputError(
            f"{rule}; {ROW} is {show(array[row])}; map your two values to 0 (negative) and 1 "
            "(positive)",
            row,
            called="entry",
        )
    return values


def check_coords(coords: Any, n_rows: int, name: str = "coords") -> Array:
    """Check coordinates: (n, k) finite numbers; a flat (n,) array is one column."""
    _reject_text(coords, name)  # and what is masked
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
        raise InputError(
            f"{name} must be finite; {ROW} is {array[row].tolist()} (NaN or infinity); "
            "fill it in, or drop that instance",
            row,
            called="entry",
        )
    return array
