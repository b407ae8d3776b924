"""Reading the files of data sets: nothing is unpacked to disk, nothing in them is executed."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.files.reading import UnreadableFileError, one_error

Ints = NDArray[np.int64]

MAX_MEMBER = 256 * 2**20  # bytes; the largest file of any set has 47 MB
IDX_BYTES = 0x08  # the type code of unsigned bytes


@dataclass(frozen=True)
class Table:
    """Instances in bag order, as every reader gives them.

    `y` is (B,) 0/1 or (B, classes) 0/1; `truth` is (N,) for evaluation, or None.
    """

    X: NDArray[Any]
    bag: Ints
    y: Ints
    truth: Ints | None = None
    names: tuple[str, ...] = ()

    def digest(self) -> str:
        """SHA-256 of what is in the table, whatever file it was read from.

        Features count in single precision: some files hold them in more digits than others.
        """
        parts = [np.asarray(self.X, dtype="<f4"), self.bag.astype("<i8"), self.y.astype("<i8")]
        if self.truth is not None:
            parts.append(self.truth.astype("<i8"))
        total = hashlib.sha256()
        for part in parts:
            total.update(repr(part.shape).encode())
            total.update(np.ascontiguousarray(part).tobytes())
        return total.hexdigest()


# --- Members of archives -------------------------------------------------------------------------


def zip_member(path: Path, name: str) -> bytes:
    """One file of a zip archive (a wheel is one)."""
    what = "it is no zip archive with that member; fetch it again"
    with one_error(path, UnreadableFileError, what), zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
        _check_size(info.file_size, name, path)
        return archive.read(info)


def tar_member(path: Path, name: str) -> bytes:
    """One regular file of a tar archive, by its path there or the last part of it."""
    what = "it is no tar archive; fetch it again"
    with one_error(path, UnreadableFileError, what), tarfile.open(path, "r:*") as archive:
        for member in archive:
            if member.isreg() and (member.name == name or member.name.endswith(f"/{name}")):
                _check_size(member.size, name, path)
                stream = archive.extractfile(member)
                if stream is not None:
                    return stream.read()
    raise UnreadableFileError(f"{path} has no member {name}; delete it and fetch it again")


def gzip_content(path: Path) -> bytes:
    """What a gzip file holds; a plain file is read as it is."""
    data = path.read_bytes() if path.stat().st_size <= MAX_MEMBER else b""
    if not data.startswith(b"\x1f\x8b"):
        _check_size(path.stat().st_size, path.name, path)
        return data
    with (
        one_error(path, UnreadableFileError, "it is a damaged gzip file; fetch it again"),
        gzip.open(io.BytesIO(data)) as stream,
    ):
        content = stream.read(MAX_MEMBER + 1)
    _check_size(len(content), path.name, path)
    return content


def _check_size(size: int, name: str, path: Path) -> None:
    if size > MAX_MEMBER:
        raise UnreadableFileError(
            f"a file of a data set has at most {MAX_MEMBER} bytes, but {name} in {path} has "
            f"{size} or more; it is not the published one"
        )


# --- Tables --------------------------------------------------------------------------------------


def npz_table(path: Path) -> Table:
    """A `.npz` with X, bag, y_bag and, where known, y_inst; no pickles."""
    with one_error(path, UnreadableFileError, "it is no npz of plain arrays"):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                _check_size(member.file_size, member.filename, path)
        with np.load(path, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
        if missing := sorted({"X", "bag", "y_bag"} - set(arrays)):
            lacks = ", ".join(missing)
            raise UnreadableFileError(f"{path} must hold X, bag and y_bag, but has no {lacks}")
        truth = arrays.get("y_inst")
        return Table(
            arrays["X"],
            arrays["bag"].astype(np.int64),
            arrays["y_bag"].astype(np.int64),
            None if truth is None else truth.astype(np.int64),
            tuple(map(str, arrays.get("class_names", ()))),
        )


def csv_table(content: bytes) -> Table:
    """Rows of bag label, bag number, features; the bags in ascending order."""
    with one_error("the table", UnreadableFileError, "it is no table of numbers; fetch it again"):
        rows = np.loadtxt(io.BytesIO(content), delimiter=",", ndmin=2)
        return _table(rows[:, 2:], rows[:, 1], rows[:, 0] > 0)


def mat_table(content: bytes) -> Table:
    """Andrews' MATLAB files: sparse `features`, `bag_ids` and `labels` (-1, 1) of each row."""
    from scipy.io import loadmat

    what = "it is no MATLAB file, or damaged; fetch it again"
    with one_error("the MATLAB file", UnreadableFileError, what):
        data = loadmat(io.BytesIO(content))
        if missing := sorted({"features", "bag_ids", "labels"} - set(data)):
            lacks = ", ".join(missing)
            raise UnreadableFileError(f"the MATLAB file must hold {lacks}; it is another one")
        X, ids, labels = (_dense(data[k]) for k in ("features", "bag_ids", "labels"))
        return _table(X, ids.ravel(), labels.ravel() > 0)


def _dense(matrix: Any) -> NDArray[Any]:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix)


def _table(X: NDArray[Any], ids: NDArray[Any], positive: NDArray[np.bool_]) -> Table:
    if not len(X) == len(ids) == len(positive):
        raise UnreadableFileError(
            f"{len(X)} rows of features, {len(ids)} bags, {len(positive)} labels; "
            "there must be one of each for every instance"
        )
    order = np.argsort(ids, kind="stable")
    _, first, bag = np.unique(ids[order], return_index=True, return_inverse=True)
    y = positive[order][first].astype(np.int64)
    return Table(X[order], bag.astype(np.int64), y)


# --- Images --------------------------------------------------------------------------------------


def idx_array(content: bytes) -> NDArray[np.uint8]:
    """An array of unsigned bytes in the idx format of MNIST.

    Two zero bytes, the type, the number of axes, their lengths as big-endian integers, the data.

    >>> idx_array(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    array([7, 8, 9], dtype=uint8)
    """
    stream: IO[bytes] = io.BytesIO(content)
    zero, code, axes = (int.from_bytes(stream.read(n), "big") for n in (2, 1, 1))
    if zero != 0 or code != IDX_BYTES or not 1 <= axes <= 4:
        raise UnreadableFileError(
            f"an idx file of bytes starts with 0, 0, 8 and 1 to 4 axes, got {list(content[:4])}; "
            "it is another file"
        )
    shape = tuple(int.from_bytes(stream.read(4), "big") for _ in range(axes))
    expected = 4 + 4 * axes + int(np.prod(shape, dtype=object))
    if len(content) != expected:
        raise UnreadableFileError(
            f"an idx file of shape {shape} has {expected} bytes, got {len(content)}; it is cut off "
            "or another file"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)
