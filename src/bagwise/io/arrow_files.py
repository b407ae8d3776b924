"""Files of Arrow's formats, Parquet and Feather, as tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bagwise.core.files.reading import check_regular, most_unpacked, one_error
from bagwise.io.columns import as_frame
from bagwise.io.requirements import require
from bagwise.io.streams import TableError, check_distinct

if TYPE_CHECKING:
    import pandas as pd


def read_arrow(path: str, ending: str, name: str) -> tuple[Any, pd.DataFrame]:
    """A file as Arrow's table and as a frame."""
    from pyarrow import feather

    if ending in (".parquet", ".pq"):
        with open_parquet(path) as file:
            return _checked_table(file.read(), name)
    check_regular(path, TableError)
    with one_error(path, TableError, f"it is no {ending[1:]} file, or damaged or cut off"):
        return _checked_table(feather.read_table(path), name)


def _checked_table(table: Any, name: str) -> tuple[Any, pd.DataFrame]:
    table.validate(full=True)  # Arrow takes offsets and indices on trust, and reads beyond the end
    check_distinct(table.column_names, name)
    return table, as_frame(table)


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """A Parquet file that claims no more than its bytes can hold; its faults are errors of ours."""
    parquet = require("pyarrow.parquet", what="reading Parquet files", extra="io")
    check_regular(path, TableError)
    what = "it is no Parquet file, or damaged or cut off; copy it, or write it, again"
    with one_error(path, TableError, what), parquet.ParquetFile(path) as file:
        stored, found = os.path.getsize(path), file.metadata
        claimed = 8 * found.num_rows * found.num_columns
        if claimed > most_unpacked(stored):
            raise TableError(
                f"{path} claims {found.num_rows} rows of {found.num_columns} columns in {stored} "
                "bytes, more than tables of measurements pack into; it is damaged or crafted"
            )
        yield file
