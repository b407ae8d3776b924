"""Tables of instances, one row each, read into Bags: CSV, TSV, Parquet, Feather, also gzip."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.bags.inputs import PLAIN
from bagwise.bags.messages import ROW, InputError, show
from bagwise.bags.number_text import dressed_numbers, has_decimal_commas, has_decimal_points
from bagwise.io.columns import (
    ROLES,
    Columns,
    almost_numeric,
    candidates,
    check_bag_column,
    guess,
    is_list_valued,
    is_number,
    pick_features,
    show_names,
    spellings,
)
from bagwise.io.frames import read_frame, require_io
from bagwise.io.streams import Places, TableError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TileImage:
    """The tiles of one slide: `rows` of a table, which are those of its bags too."""

    name: str
    rows: slice
    tile_size: float | None  # pixels, or None where the file does not say
    unit: str = "px"


@dataclass(frozen=True)
class Table:
    """Bags with the rows of the table they came from."""

    bags: Bags
    rows: pd.DataFrame  # all columns that are not features, in the order of the file
    columns: Columns
    notes: tuple[str, ...]  # notes of guesses among them
    places: Places
    pixels: NDArray[Any] | None = None  # of the rows, where coords of the bags count grid cells
    images: tuple[TileImage, ...] = ()  # of the rows, in their order, where they are tiles

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.places.name


def read_table(
    path: str | os.PathLike[str],
    columns: Columns | None = None,
    *,
    feature_names: Sequence[str] | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    skip: Sequence[str] = (),
    remembered: Columns | None = None,
    keep_text: bool = False,
) -> Table:
    """Read a table with one row per instance into Bags.

    Parameters
    ----------
    path : .csv, .tsv, .parquet or .feather, text also gzipped (.csv.gz); "-" is standard input.
    columns : what the columns are; those not named are guessed, and `notes` says so.
    delimiter, decimal : of text; by the ending of the file, and a point.
    feature_names : the features of a fitted model, found by name and put in that order.
    skip : roles ("label", ...) that are not looked for.
    remembered : columns of an earlier table, taken where this one has them too.
    keep_text : `rows` of a text file hold what stands there, not dates and numbers read from it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "cells.csv"
    ...     _ = file.write_text("slide,label,area\\ns2,0,3\\ns1,1,4\\ns2,0,5\\n")
    ...     table = read_table(file)
    >>> table.bags
    Bags(2 bags: 1 positive, 1 negative; 3 instances x 1 feature, 1-2 per bag; float64; with feature_names)
    >>> table.rows["slide"].tolist()
    ['s2', 's1', 's2']
    """  # noqa: E501
    require_io()
    name = "standard input" if str(path) == "-" else Path(path).name
    asked = columns or Columns()
    # A column named as a feature is not taken for anything else; a pattern may well match ids.
    taken = (*_taken(feature_names), *asked.features)
    find = partial(guess, asked=asked, taken=taken, skip=skip, source=name, remembered=remembered)
    text: dict[str, Any] = {"decimal": decimal, "keep_text": keep_text}
    read = read_frame(os.fspath(path), name, find, delimiter, taken=taken, **text)
    frame, found, places = read.table, read.columns, read.places
    if len(frame) == 0:
        raise TableError(f"{name} has a header but no rows; one row per instance is needed")
    check_bag_column(frame, found, read.notes)
    signs = (name, decimal, (delimiter or ("\t" if ".tsv" in name else ",")) == ",")
    if feature_names is None:
        if not found.chooses_features():
            others = candidates(frame.columns, found, name)
            _refuse_decimal_commas(frame, others, *signs)
            _refuse_text_for_numbers(frame, others, places)
        chosen, more = pick_features(frame, found, name)
    else:
        chosen, more = _by_name(frame, found, feature_names, name), []
    _refuse_decimal_commas(frame, [*chosen, *found.coords], *signs)
    X, names = _feature_matrix(frame, chosen, places)
    if feature_names is not None:
        names = _same_length(names, feature_names, name)
    bags = _make_bags(frame, found, X, names, places)
    features = set(chosen)
    rest = read.raw([c for c in frame.columns if c not in features])
    if same := spellings(bags.ids):
        warnings.warn(
            f"{name}: {show_names(same)} are bags of their own, but differ only in case or spaces "
            "around them; if they are the same, write them alike",
            UserWarning,
            stacklevel=2,
        )
    return Table(bags, rest, replace(found, features=tuple(chosen)), (*read.notes, *more), places)


def _taken(feature_names: Sequence[str] | None) -> tuple[str, ...]:
    """Columns that a model's features occupy: their names, or the one list-valued column."""
    if feature_names is None:
        return ()
    stem = list_column(feature_names)
    return tuple(feature_names) if stem is None else (*feature_names, stem)


def list_column(names: Sequence[str]) -> str | None:
    """The list-valued column that all names come from: 'f' for f[0], f[1]; else None.

    >>> list_column(["f[0]", "f[1]"]), list_column(["a", "b"])
    ('f', None)
    """
    stem = names[0].removesuffix("[0]") if len(names) else ""
    fits = all(n == f"{stem}[{i}]" for i, n in enumerate(names))
    return stem if stem and fits else None


def _refuse_text_for_numbers(frame: pd.DataFrame, columns: Sequence[str], places: Places) -> None:
    """Refuse to leave out a column of numbers for units, separators, or a few cells."""
    for column in columns:
        remedy = f"leave the column out with '!{column}'"
        if slip := almost_numeric(frame[column]):
            raise TableError(
                f"{places.name}, {places.of(slip[0])}: column {column!r} is numeric but for a few "
                f"cells such as {slip[1]!r:.40}; correct them, or {remedy}",
                argument="features",
            )
        if frame[column].dtype.kind not in "iufb" and (found := dressed_numbers(frame[column])):
            raise TableError(
                f"{places.name}, {places.of(found.row)}: column {column!r} has numbers with "
                f"{found.what}, such as {found.cell!r:.40}, and would be no feature; {PLAIN}, or "
                f"{remedy}",
                argument="features",
            )


def _refuse_decimal_commas(
    frame: pd.DataFrame, columns: Sequence[str], name: str, decimal: str | None, comma: bool
) -> None:
    """Raise where numbers have another decimal sign: as text they would be no features.

    `comma` says that one stands between columns, and cannot be the decimal sign too.
    """
    text = [c for c in columns if frame[c].dtype.kind not in "iufb"]
    if bad := [c for c in text if has_decimal_commas(frame[c])]:
        signs = (",", ".") if decimal == "," else (",",)
        texts = (v for v in frame[bad[0]] if isinstance(v, str))
        cell = next(v for v in texts if all(sign in v for sign in signs))
        remedy = "pass ',' as decimal sign, or write numbers with a decimal point"
        if decimal == ",":
            remedy = "write them without thousands separators"
        elif comma:
            remedy = f"write numbers with a decimal point, or leave columns out ('!{bad[0]}')"
        raise TableError(
            f"{name} has decimal commas in {_columns(bad)}, such as {cell!r:.40}; {remedy}",
            argument="features" if comma else "decimal",
        )
    if decimal == "," and (bad := [c for c in text if has_decimal_points(frame[c])]):
        raise TableError(
            f"{name} has decimal points in {_columns(bad)}, but the decimal sign is ','; write all "
            "numbers with one sign, or leave that one away",
            argument="decimal",
        )


def _columns(names: Sequence[str]) -> str:
    return f"{'column' if len(names) == 1 else 'the columns'} {show_names(names)}"


def _by_name(frame: pd.DataFrame, columns: Columns, wanted: Sequence[str], name: str) -> list[str]:
    if twice := [c for c in columns.named() if c in wanted]:
        raise TableError(
            f"column {twice[0]!r} of {name} is a feature of the model, so it has no other meaning; "
            "name another column, or fit again with other features"
        )
    missing = [f for f in wanted if f not in frame.columns]
    stem = list_column(wanted)
    if missing and stem in frame.columns:
        return [str(stem)]
    if missing:
        raise TableError(
            f"{name} lacks {len(missing)} of the {len(wanted)} features that the model was fitted "
            f"on: {show_names(missing)}; give the same columns"
        )
    return list(wanted)


def _same_length(names: list[str], wanted: Sequence[str], name: str) -> list[str]:
    if len(names) != len(wanted):
        raise TableError(
            f"{name} has lists of {len(names)} features, the model was fitted on {len(wanted)}"
        )
    return list(wanted)


def _feature_matrix(
    frame: pd.DataFrame, chosen: list[str], places: Places
) -> tuple[NDArray[Any], list[str]]:
    """(N, D) features and their D names, from wide columns or from one of lists."""
    if len(chosen) == 1 and is_list_valued(frame[chosen[0]]):
        X = _stack_lists(frame[chosen[0]], places)
        return X, [f"{chosen[0]}[{j}]" for j in range(X.shape[1])]
    # A column without any value has no type; what it lacks is dealt with as other missing values.
    empty = [c for c in chosen if frame[c].dtype.kind not in "iufb" and frame[c].isna().all()]
    frame = frame[chosen].astype(dict.fromkeys(empty, np.float64))
    for column in chosen:
        if frame[column].dtype.kind not in "iufb":
            _refuse_text(frame[column], places)
    X = frame.to_numpy()
    return (X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)), chosen


def _refuse_text(column: pd.Series, places: Places) -> NoReturn:
    rule, remedy = f"the feature {column.name!r} must be a number", "choose other columns"
    for row, value in enumerate(column):
        if not is_number(value):
            raise TableError(
                f"{places.name}, {places.of(row)}: {rule}; got {value!r:.40}; correct it, or "
                f"{remedy}",
                argument="features",
            )
    raise TableError(f"{places.name}: {rule}; got {column.dtype}; {remedy}", argument="features")


def _stack_lists(column: pd.Series, places: Places) -> NDArray[Any]:
    rows: list[NDArray[Any]] = []
    for i, cell in enumerate(column):
        where = f"{places.name}, {places.of(i)}"
        try:
            row = np.asarray(json.loads(cell) if isinstance(cell, str) else cell)
        except ValueError as error:
            raise TableError(f"{where}: {column.name!r} is not a list ({error})") from error
        if row.ndim != 1 or row.dtype.kind not in "iufb":
            raise TableError(f"{where}: {column.name!r} must be a list of numbers")
        if rows and len(row) != len(rows[0]):
            raise TableError(
                f"{where}: {column.name!r} has {len(row)} numbers, the first row has "
                f"{len(rows[0])}; all lists must be of one length"
            )
        rows.append(row if row.dtype in (np.float32, np.float64) else row.astype(np.float64))
    return np.vstack(rows)


def _make_bags(
    frame: pd.DataFrame, columns: Columns, X: NDArray[Any], names: list[str], places: Places
) -> Bags:
    if columns.label is not None:  # categories are as good as text: choose_classes orders them
        frame = frame.assign(**{columns.label: frame[columns.label].to_numpy()})
    try:
        _check_text(frame, columns)
        _check_instance_ids(frame, columns)
        for column in columns.coords:
            if frame[column].dtype.kind not in "iuf":
                raise InputError(f"coordinates must be numbers; column {column!r} is not")
        roles = {role: getattr(columns, role) for role in ROLES}
        return Bags._from_columns(frame, X, names, **roles, coords=[*columns.coords])
    except (TypeError, ValueError) as error:
        raise places.error(error) from error


def _check_text(frame: pd.DataFrame, columns: Columns) -> None:
    """Refuse empty cells among ids and labels: text that is empty is a missing value."""
    for column in columns.as_text():
        values = frame[column]
        empty = values.isna().to_numpy() | (values == "").to_numpy()
        if empty.any():
            raise InputError(
                f"{ROW} has no value in column {column!r}; every instance needs one: fill it in, "
                "or drop these rows",
                int(np.argmax(empty)),
            )


def _check_instance_ids(frame: pd.DataFrame, columns: Columns) -> None:
    if columns.instance_id is None:
        return
    again = frame.duplicated([columns.bag, columns.instance_id]).to_numpy()
    if again.any():
        row = int(np.argmax(again))
        bag, instance = (frame[c].iloc[row] for c in (columns.bag, columns.instance_id))
        raise InputError(
            f"{ROW} repeats the instance id {show(instance)} of bag {show(bag)}; ids must be "
            "distinct inside a bag: correct or drop one of the rows",
            row,
        )
