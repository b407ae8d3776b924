"""Tables as pandas frames: text through a checked stream, Parquet and Feather by Arrow."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.messages import Note
from bagwise.core.files.reading import most_unpacked
from bagwise.io.arrow_files import read_arrow
from bagwise.io.columns import Columns, as_frame, is_number
from bagwise.io.requirements import require
from bagwise.io.streams import (
    CheckedText,
    Places,
    TableError,
    check_distinct,
    one_line,
    open_source,
)

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_SLIDES = (".h5", ".hdf5", ".pt")
_SHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_NAMES_OF = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PADDED = re.compile(r"[+-]?0\d")  # 007 is an id, not 7
_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)  # a decimal comma
_BLOCK_BYTES = 32 * 2**20  # of Arrow's reader: above the longest line that is accepted

Rows = Callable[[list[str]], "pd.DataFrame"]


def require_io() -> None:
    """Raise an ImportError that names the extra where pandas or pyarrow is missing."""
    for package in ("pandas", "pyarrow"):
        require(package, what="reading and writing tables", extra="io")


@dataclass(frozen=True)
class Frame:
    """A table, what its columns are, notes on what was guessed, and how to name its rows.

    `raw` gives columns as they stand in the file.
    """

    table: pd.DataFrame
    columns: Columns
    notes: list[Note]
    places: Places
    raw: Rows


def read_frame(
    path: str,
    name: str,
    find: Callable[[list[str]], tuple[Columns, list[Note]]],
    delimiter: str | None,
    *,
    taken: Sequence[str] = (),
    keep_text: bool = False,
    decimal: str | None = None,
) -> Frame:
    """The whole table; `find` says what its columns are, of which a model has `taken` some.

    With `keep_text`, raw cells of text files that are no features are the text itself, so that
    dates and 0.10 stay what they are.
    """
    ending = _ending(path)
    if path != "-" and os.path.isdir(path):
        raise TableError(f"{path} is a folder; for HDF5 features pass its CSV", argument="slides")
    if ending in (".parquet", ".pq", ".feather", ".arrow"):
        table, frame = read_arrow(path, ending, name)
        # Whole numbers with gaps would become floats, which have fewer digits.
        typed = {"integer_object_nulls": True, "ignore_metadata": True}
        raw: Rows = lambda columns: table.select(columns).to_pandas(**typed)  # noqa: E731
        return Frame(frame, *find([*frame.columns]), Places(name, lines=False), raw)
    if ending in _SLIDES:
        raise TableError(f"{name} has the features of one slide; pass the folder that holds it")
    if ending in _SHEETS:
        raise TableError(f"{name} is a spreadsheet; save it as CSV there, and pass the .csv file")
    if path != "-" and delimiter is None and ending not in DELIMITERS:
        raise TableError(
            f"{name} ends in {ending or 'nothing'!r}, which is none of .csv, .tsv, .parquet, "
            ".feather (or .csv.gz, .tsv.gz); rename it, or say how it is delimited",
            argument="delimiter",
        )
    with open_source(path) as source:
        # Of standard input and pipes nobody knows how many bytes were stored.
        most = most_unpacked(os.path.getsize(path)) if os.path.isfile(path) else math.inf
        checked = CheckedText(source, name, most)
        stream: Any = io.BufferedReader(checked, 2**20)
        header, sep = _header(stream, name, delimiter or DELIMITERS.get(ending))
        found, notes = find(header)
        kept = _not_features(stream, header, sep, taken, found) if keep_text else []
        as_text = [*found.as_text(), *kept]
        frame = _read_text(stream, header, sep, as_text, name, _checked_decimal(decimal, sep))
    raw_frame = _with_types(frame, found, kept, decimal or ".")
    # Not where cells have line ends inside, or lines are empty.
    places = Places(name, lines=checked.n_lines == len(frame) + 1)
    return Frame(frame, found, notes, places, lambda columns: raw_frame[columns])


def _checked_decimal(decimal: str | None, sep: str) -> str:
    if decimal is not None and (len(decimal) != 1 or decimal == sep or decimal.isalnum()):
        raise TableError(
            f"the decimal sign is one character other than the delimiter {sep!r}; got {decimal!r}",
            argument="decimal",
        )
    return decimal or "."


def _with_types(
    frame: pd.DataFrame, found: Columns, kept: Sequence[str], decimal: str
) -> pd.DataFrame:
    """Give columns of text their types; the frame as it stood but for ids that are numbers."""
    for column in found.as_text():
        cells, of_label = frame[column].to_numpy(), column == found.label
        points = _with_points(frame[column], decimal).to_numpy() if of_label else cells
        numbers = plain_values(points, floats=of_label)
        frame[column] = numbers if numbers.dtype.kind in "if" else cells
    raw = frame.copy(deep=False)
    if found.label is not None:
        frame[found.label] = booleans_if_all(frame[found.label].to_numpy())
    for column in set(kept) - set(found.as_text()):
        if column in found.named():  # coordinates and instance labels, which are numbers
            frame[column] = numbers_if_all(_with_points(frame[column], decimal))
    return raw


def _not_features(
    stream: Any, header: list[str], sep: str, taken: Sequence[str], found: Columns
) -> list[str]:
    """Columns that are no features: all but a model's, or what does not begin with a number."""
    if taken:
        return [c for c in header if c not in taken]
    known = [*found.coords, *([found.instance_label] if found.instance_label else [])]
    return [*known, *(c for c in _beginning_with_text(stream, header, sep) if c not in known)]


def _beginning_with_text(stream: Any, header: list[str], sep: str) -> list[str]:
    """Columns whose first cell that is not empty is no number, from a look at the first rows."""
    lines = stream.peek().decode("utf-8", errors="replace").splitlines(keepends=True)
    first: dict[str, str] = {}
    for row in csv.reader(lines[:100], delimiter=sep):
        for column, cell in zip(header, row, strict=False):
            if cell:
                first.setdefault(column, cell)
    plain = ("true", "false")  # which Arrow takes for booleans
    return [c for c, v in first.items() if not NUMBER.fullmatch(v) and v.lower() not in plain]


def _ending(path: str) -> str:
    stem = path.lower().removesuffix(".gz")
    return Path(stem).suffix


def _header(stream: Any, name: str, sep: str | None) -> tuple[list[str], str]:
    """Column names of the first record, and the delimiter."""
    lines = (line.decode("utf-8") for line in iter(stream.readline, b""))
    first = next(lines, "")
    if not first.strip():
        raise TableError(f"{name} is empty; a table starts with a line of column names")
    if sep is None:  # standard input: what stands in the first line
        sep = "\t" if "\t" in first else ","
    if len(sep) != 1:
        raise TableError(f"the delimiter must be one character; got {sep!r}")

    def again() -> Iterator[str]:
        yield first
        yield from lines

    try:
        header = next(csv.reader(again(), delimiter=sep))
    except csv.Error as error:
        raise TableError(f"{name}, line 1: {error}; check its quotes") from error
    _check_delimiter(header, sep, name, stream.peek())
    check_distinct(header, name)
    return header, sep


def _check_delimiter(header: list[str], sep: str, name: str, rows: bytes) -> None:
    if len(header) > 1:
        return
    other = next((d for d in _NAMES_OF if d != sep and d in header[0]), None)
    argument = "delimiter"
    if other is not None:
        hint = f"it looks delimited by {_NAMES_OF[other]}: pass {other!r}"
        first = rows.partition(b"\n")[0].decode("utf-8", errors="replace")
        if any(_COMMA.fullmatch(cell.strip('" \r')) for cell in first.split(other)):
            hint = f"it looks delimited by {_NAMES_OF[other]}, with decimal commas: pass {other!r} "
            hint, argument = f"{hint}and ','", "delimiter decimal"
    else:
        hint = "bags and features need two columns or more"
    split_at = _NAMES_OF.get(sep, repr(sep))
    raise TableError(
        f"{name} has only one column when split at each {split_at}; {hint}", argument=argument
    )


def _read_text(
    stream: Any, header: list[str], sep: str, as_text: Sequence[str], name: str, decimal: str
) -> pd.DataFrame:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    bad: list[Any] = []

    def stop(row: Any) -> str:
        bad.append(row)
        return "error"

    try:
        table = arrow_csv.read_csv(
            stream,
            # One thread: only then does Arrow know the number of a bad row.
            arrow_csv.ReadOptions(column_names=header, block_size=_BLOCK_BYTES, use_threads=False),
            arrow_csv.ParseOptions(
                delimiter=sep, newlines_in_values=True, invalid_row_handler=stop
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(as_text, pa.string()), decimal_point=decimal
            ),
        )
    except pa.ArrowInvalid as error:
        if bad:
            raise TableError(_ragged(bad[0], header, name)) from error
        if "empty" in str(error).lower():
            return _no_rows(header)
        raise TableError(f"{name}: {one_line(error)}") from error
    return as_frame(table)


def _ragged(row: Any, header: list[str], name: str) -> str:
    return (
        f"{name}, line {row.number + 1}: {row.actual_columns} fields, but the header has"
        f" {len(header)}; every row needs as many (quote text that has the delimiter, and write "
        "numbers with a decimal point)"
    )


def _no_rows(header: list[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns=header)


def _with_points(text: pd.Series, decimal: str) -> pd.Series:
    """Cells whose decimal sign is a point."""
    return text if decimal == "." else text.str.replace(decimal, ".", regex=False)


def plain_values(text: NDArray[Any], *, floats: bool = False) -> NDArray[Any]:
    """Integers where the text of all entries is one in its usual form, else the text.

    With `floats`, numbers such as 1.0 become floats too. Ids like 007 stay text.

    >>> plain_values(np.array(["7", "12"])), plain_values(np.array(["007", "12"]))
    (array([ 7, 12]), array(['007', '12'], dtype='<U3'))
    """
    values = text.tolist()
    if not all(map(is_number, values)):
        return text
    with suppress(ValueError):
        numbers = [int(v) for v in values]
        if all(str(n) == v and abs(n) < 2**63 for n, v in zip(numbers, values, strict=True)):
            return np.array(numbers, dtype=np.int64)
    return np.array([float(v) for v in values]) if floats else text


def booleans_if_all(text: NDArray[Any]) -> NDArray[Any]:
    """True and False where all entries are such words, as other kinds of tables have them.

    >>> booleans_if_all(np.array(["TRUE", "False"])), booleans_if_all(np.array(["yes", "true"]))
    (array([ True, False]), array(['yes', 'true'], dtype='<U4'))
    """
    words = [v.lower() if isinstance(v, str) else "" for v in text.tolist()]
    if not words or not set(words) <= {"true", "false"}:
        return text
    return np.array([w == "true" for w in words])


def numbers_if_all(text: pd.Series) -> pd.Series:
    """Numbers where all cells that are not empty are such, else the text.

    >>> import pandas as pd
    >>> [numbers_if_all(pd.Series(cells)).tolist() for cells in (["0.10", ""], ["007"])]
    [[0.1, nan], ['007']]
    """
    import pandas as pd

    cells = text.tolist()
    filled = [v for v in cells if v != ""]
    if not all(NUMBER.fullmatch(v) and not _PADDED.match(v) for v in filled) or not filled:
        return text
    if len(filled) == len(cells):
        return pd.Series(plain_values(np.array(cells), floats=True), index=text.index)
    return pd.Series([float(v) if v else np.nan for v in cells], index=text.index)


def with_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows with numbers in place of their text, for files that have types."""
    typed = frame.copy(deep=False)
    for column in frame.columns:
        if all(isinstance(v, str) for v in frame[column]):
            typed[column] = numbers_if_all(frame[column])
    return typed
