"""Features that stay in HDF5 or Parquet files: rows are read when a model asks for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.rows import RowSource
from bagwise.io.arrow_files import open_parquet
from bagwise.io.hdf5 import check_claim, names_in, open_hdf5, own_dataset
from bagwise.io.requirements import require
from bagwise.io.slide_features import SlideFileError
from bagwise.io.streams import TableError

Array = NDArray[Any]
Path = str | os.PathLike[str]


class FileRows(RowSource):
    """The rows of several files after each other, read file by file.

    `sizes` has the number of rows of each file, so that
    ``np.repeat(np.arange(len(rows.sizes)), rows.sizes)`` are the bag ids if a file is a bag.
    """

    def __init__(
        self, paths: Sequence[Path], headers: Sequence[tuple[tuple[int, ...], Any]]
    ) -> None:
        self.paths = [os.fspath(p) for p in paths]
        for path, (shape, dtype) in zip(self.paths, headers, strict=True):
            if len(shape) != 2 or shape[1] != headers[0][0][1]:
                raise SlideFileError(
                    f"features must be (n, D) with the same D in all files: {self.paths[0]} has "
                    f"{headers[0][0]}, {path} has {shape}"
                )
            if dtype not in (np.float32, np.float64):
                raise SlideFileError(
                    f"features must be float32 or float64, {path} has {dtype}; convert the file"
                )
        self.sizes = np.array([shape[0] for shape, _ in headers], dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self.shape = (int(self._starts[-1]), int(headers[0][0][1]))
        self.dtype = np.dtype(np.result_type(*(dtype for _, dtype in headers)))

    def read(self, start: int, stop: int) -> Array:
        out = np.empty((stop - start, self.shape[1]), dtype=self.dtype)
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        for i in range(first, len(self.paths)):
            a, b = max(start, int(self._starts[i])), min(stop, int(self._starts[i + 1]))
            if a >= stop:
                break
            begin = int(self._starts[i])
            out[a - start : b - start] = self.read_file(i, a - begin, b - begin)
        return out

    def read_file(self, i: int, start: int, stop: int) -> Array:
        """Rows start..stop-1 of the i-th file."""
        raise NotImplementedError


class Hdf5Rows(FileRows):
    """Rows of one dataset in one HDF5 file or several, e.g. one file per slide.

    Parameters
    ----------
    paths : a file, or a list of files in the order of their rows.
    dataset : the name of the (n, D) dataset; CLAM and TRIDENT call it "features".
    """

    def __init__(self, paths: Path | Sequence[Path], dataset: str = "features") -> None:
        h5py = require("h5py", what="reading HDF5 files", extra="io")
        self.dataset = dataset
        files = _as_list(paths)
        headers = []
        for path in files:
            name = os.fspath(path)
            with open_hdf5(name) as file:
                found = own_dataset(h5py, file, dataset, name)
                if found is None:
                    raise SlideFileError(
                        f"{name} has no dataset {dataset!r}; there is {names_in(file)}"
                    )
                check_claim(found, name)
                headers.append((found.shape, found.dtype))
        super().__init__(files, headers)

    def read_file(self, i: int, start: int, stop: int) -> Array:
        # Opened anew each time: handles cannot be shared with other processes.
        with open_hdf5(self.paths[i]) as file:
            return np.asarray(file[self.dataset][start:stop])


class ParquetRows(FileRows):
    """Rows of Parquet files, read by row groups.

    Parameters
    ----------
    paths : a file, or a list of files in the order of their rows.
    columns : the feature columns.
    dtype : float32 or float64, what the columns become.
    """

    def __init__(
        self, paths: Path | Sequence[Path], columns: Sequence[str], dtype: Any = np.float32
    ) -> None:
        self.columns = list(columns)
        files = _as_list(paths)
        self._ends: list[NDArray[np.int64]] = []
        self._kept: tuple[tuple[int, int, int], Array] | None = None
        headers = []
        for path in files:
            with open_parquet(os.fspath(path)) as file:
                missing = [c for c in self.columns if c not in file.schema_arrow.names]
                if missing:
                    raise TableError(f"{os.fspath(path)} has no column {missing[0]!r}")
                groups = range(file.metadata.num_row_groups)
                sizes = [file.metadata.row_group(g).num_rows for g in groups]
                self._ends.append(np.cumsum(sizes, dtype=np.int64))
            headers.append(((int(sum(sizes)), len(self.columns)), np.dtype(dtype)))
        super().__init__(files, headers)

    def read_file(self, i: int, start: int, stop: int) -> Array:
        ends = self._ends[i]
        first, last = np.searchsorted(ends, [start, stop - 1], side="right").tolist()
        begin = int(ends[first - 1]) if first else 0
        return self._groups(i, first, last)[start - begin : stop - begin]

    def _groups(self, i: int, first: int, last: int) -> Array:
        """Row groups first..last of the i-th file.

        The last ones are kept: a group is decoded as a whole, and blocks of it follow each other.
        """
        if self._kept is None or self._kept[0] != (i, first, last):
            with open_parquet(self.paths[i]) as file:
                table = file.read_row_groups(list(range(first, last + 1)), columns=self.columns)
                table.validate(full=True)
                X = np.column_stack([table[c].to_numpy().astype(self.dtype) for c in self.columns])
            self._kept = ((i, first, last), X)
        return self._kept[1]


def _as_list(paths: Path | Sequence[Path]) -> list[Path]:
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not files:
        raise ValueError("no files given; pass a path or a list of paths")
    return files
