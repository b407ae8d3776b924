"""Tables written whole or not at all: CSV, TSV, Parquet, Feather, text also gzipped."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import os
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bagwise.core.files.atomic import atomic_file
from bagwise.io.frames import DELIMITERS, NUMBER, require_io
from bagwise.io.streams import TableError

if TYPE_CHECKING:
    import pandas as pd

# Spreadsheets run a cell that begins with one of these as a formula, unless it is a number.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
WRITABLE = (*DELIMITERS, ".parquet", ".pq", ".feather")


def check_writable(path: str) -> None:
    """Raise where the ending of an output file says no format that is written."""
    if path != "-" and _ending(path) not in WRITABLE:
        raise TableError(
            f"{path} ends in no format that is written; use .csv, .tsv (also .gz), .parquet or "
            ".feather, or - for CSV on standard output"
        )


def has_text(path: str) -> bool:
    """Whether a file of this name is text, in which cells have no types."""
    return path == "-" or _ending(path) in DELIMITERS


def write_table(
    frame: pd.DataFrame, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Write a table in the format that the ending of `path` names; "-" is CSV on standard output.

    In CSV and TSV, text that a spreadsheet would run as a formula (it begins with =, +, -, @, a
    tab or a line break) gets an apostrophe in front; numbers, and all cells of the other formats,
    are written as they are. Where ids may begin like that and are read by a program, write
    Parquet.

    >>> import pandas as pd
    >>> write_table(pd.DataFrame({"bag": ["=1+1", "s2"], "p_mean": [-0.5, 1.0]}), "-")
    bag,p_mean
    '=1+1,-0.5
    s2,1.0
    """
    require_io()
    name = os.fspath(path)
    check_writable(name)
    if name == "-":
        _print(_text(frame, ","))
        return
    with atomic_file(name, overwrite=overwrite) as file:
        _write(frame, file, name)


def _print(text: bytes) -> None:
    """UTF-8 on standard output, whatever the locale: who reads it back expects that."""
    out = getattr(sys.stdout, "buffer", None)
    if out is None:  # it is no file, as in notebooks
        sys.stdout.write(text.decode("utf-8"))
        return
    sys.stdout.flush()
    out.write(text)
    out.flush()


def frame_bytes(frame: pd.DataFrame, name: str) -> bytes:
    """What `write_table` would write to a file of that name."""
    require_io()
    check_writable(name)
    file = io.BytesIO()
    _write(frame, file, name)
    return file.getvalue()


def _write(frame: pd.DataFrame, file: BinaryIO, name: str) -> None:
    ending = _ending(name)
    if ending in (".parquet", ".pq"):
        frame.to_parquet(file, index=False)
    elif ending == ".feather":
        frame.to_feather(file)
    elif name.lower().endswith(".gz"):
        # No name and date inside: equal tables give equal files.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as zipped:
            zipped.write(_text(frame, DELIMITERS[ending]))
    else:
        file.write(_text(frame, DELIMITERS[ending]))


def _text(frame: pd.DataFrame, delimiter: str) -> bytes:
    import pandas as pd

    safe = frame.copy(deep=False)
    safe.columns = [safe_cell(str(c)) for c in frame.columns]
    texts = [i for i in range(frame.shape[1]) if frame.dtypes.iloc[i].kind not in "iufbM"]
    for position in texts:
        cells = frame.iloc[:, position]
        # As objects: whole numbers beside empty cells would become floats.
        safe.isetitem(position, pd.Series(map(safe_cell, cells), dtype=object).to_numpy())
    # The csv module leaves a bare carriage return unquoted, which others take for a new row.
    written = [safe.columns, *(safe.iloc[:, i] for i in texts)]
    returns = any(isinstance(cell, str) and "\r" in cell for part in written for cell in part)
    text = safe.to_csv(
        index=False,
        sep=delimiter,
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL,
    )
    return str(text).encode("utf-8")


def safe_cell(value: object) -> object:
    """A cell that no spreadsheet runs: text that begins like a formula gets an apostrophe.

    >>> safe_cell("@SUM(A1)"), safe_cell(-1.5), safe_cell("a-b")
    ("'@SUM(A1)", -1.5, 'a-b')
    """
    runs = isinstance(value, str) and _visible(value).startswith(_FORMULA_STARTS)
    return f"'{value}" if runs and not NUMBER.fullmatch(str(value)) else value


def _visible(text: str) -> str:
    """Text from its first visible character on: readers drop marks of byte order and the like.

    >>> _visible("\\ufeff\\u2060\\u00ad=1")
    '=1'
    """
    hidden = ("\x00", "\ufffe")
    return "".join(
        itertools.dropwhile(lambda c: c in hidden or unicodedata.category(c) == "Cf", text)
    )


def _ending(path: str) -> str:
    return Path(path.lower().removesuffix(".gz")).suffix
