"""Arrays and groups of an HDF5 file or a Zarr store, read one by one and with their limits.

Both kinds of store can name other files, claim more than they hold, and keep Python objects: none
of that is followed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bagwise.core.files.reading import (
    LARGE,
    MAX_EXPANSION,
    UnreadableFileError,
    check_regular,
    one_error,
)
from bagwise.io.hdf5 import check_claim, check_links, own_dataset
from bagwise.io.requirements import require

Array = NDArray[Any]
ErrorType = type[UnreadableFileError]

# Codecs that turn bytes into bytes, numbers or text, by their names in both versions of Zarr.
CODECS = {
    *("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma", "shuffle", "crc32", "crc32c"),
    *("bytes", "vlen-utf8", "vlen-bytes", "transpose", "sharding_indexed", "delta", "adler32"),
}
MAX_METADATA = 2**24  # bytes of the description of one array


class Store(Protocol):
    """What readers ask of a file: keys are paths inside it, such as obs/donor."""

    name: str

    def keys(self, group: str) -> list[str]:
        """The names in a group; none where there is no such group."""
        ...

    def is_array(self, key: str) -> bool:
        """Whether there is an array of that name."""
        ...

    def attributes(self, key: str) -> dict[str, Any]:
        """Attributes of an array or a group."""
        ...

    def values(self, key: str) -> Array:
        """A whole array of numbers, booleans or text."""
        ...


class Hdf5Store:
    """An open HDF5 file as a `Store`."""

    def __init__(self, file: Any, name: str, error: ErrorType) -> None:
        self.file, self.name, self.error = file, name, error
        self._h5py = require("h5py", what="reading HDF5 files", extra="io")

    def keys(self, group: str) -> list[str]:
        check_links(self._h5py, self.file, group, self.name, self.error)
        found = self.file if group == "" else self.file.get(group)
        return [str(k) for k in found] if isinstance(found, self._h5py.Group) else []

    def is_array(self, key: str) -> bool:
        return self._dataset(key) is not None

    def attributes(self, key: str) -> dict[str, Any]:
        check_links(self._h5py, self.file, key, self.name, self.error)
        found = self.file if key == "" else self.file[key]
        return {str(k): v for k, v in found.attrs.items()}

    def values(self, key: str) -> Array:
        dataset = self._dataset(key)
        if dataset is None:
            raise self.error(f"{self.name}: no dataset {key!r}; write the file again")
        check_claim(dataset, self.name, self.error)
        if self._h5py.check_string_dtype(dataset.dtype) is not None:
            return np.asarray(dataset.asstr()[()], dtype=object)
        _check_plain(dataset.dtype, key, self.name, self.error)
        return np.asarray(dataset[()])

    def _dataset(self, key: str) -> Any:
        return own_dataset(self._h5py, self.file, key, self.name, self.error)


class ZarrStore:
    """A folder in the Zarr format (versions 2 and 3) as a `Store`."""

    def __init__(self, root: Any, path: Path, name: str, error: ErrorType) -> None:
        self.root, self.path, self.name, self.error = root, path, name, error

    def keys(self, group: str) -> list[str]:
        folder = self._folder(group)
        if self._kind(folder) != "group":
            return []
        return sorted(p.name for p in folder.iterdir() if self._kind(p) is not None)

    def is_array(self, key: str) -> bool:
        return self._kind(self._folder(key)) == "array"

    def attributes(self, key: str) -> dict[str, Any]:
        found = self.root if key == "" else self.root[key]
        return dict(found.attrs)

    def values(self, key: str) -> Array:
        folder = self._folder(key)
        if self._kind(folder) != "array":
            raise self.error(f"{self.name}: no array {key!r}; write the store again")
        self._check_codecs(folder, key)
        array = self.root[key]
        self._check_claim(array, folder, key)
        values = np.asarray(array[...])
        if values.dtype.kind in "OTU":
            return _as_text(values, key, self.name, self.error)
        _check_plain(values.dtype, key, self.name, self.error)
        return values

    def _folder(self, key: str) -> Path:
        """The folder of a key, which is inside of the store also where links are followed."""
        folder = self.path
        for step in (s for s in key.split("/") if s):
            folder = folder / step
            if step in (".", "..") or folder.is_symlink():
                raise self.error(
                    f"{self.name}: {key!r} leads out of the store, and only what is inside is read"
                )
        return folder

    def _kind(self, folder: Path) -> str | None:
        if (folder / "zarr.json").is_file():
            return str(self._metadata(folder / "zarr.json").get("node_type"))
        for file, kind in ((".zarray", "array"), (".zgroup", "group")):
            if (folder / file).is_file():
                return kind
        return None

    def _metadata(self, path: Path) -> dict[str, Any]:
        if path.is_symlink() or path.stat().st_size > MAX_METADATA:
            raise self.error(f"{self.name}: {path.name} is a link, or too large to describe data")
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise self.error(f"{self.name}: {path.name} describes no array; write it again")
        return found

    def _check_codecs(self, folder: Path, key: str) -> None:
        """Raise for codecs that make Python objects of bytes, or that nobody knows."""
        described = "zarr.json" if (folder / "zarr.json").is_file() else ".zarray"
        for codec in _codecs(self._metadata(folder / described)):
            if codec.removeprefix("numcodecs.") not in CODECS:
                raise self.error(
                    f"{self.name}: {key!r} is packed by {codec!r:.40}, which is not read (pickled "
                    "objects would run code); write it as numbers or text"
                )

    def _check_claim(self, array: Any, folder: Path, key: str) -> None:
        stored = 0
        for place, folders, files in os.walk(folder):
            for file in (Path(place, name) for name in (*folders, *files)):
                if file.is_symlink():
                    raise self.error(f"{self.name}: {key!r} has links, which are not followed")
                stored += file.stat().st_size
        # A chunk is unpacked whole, however little of it the shape asks for.
        blocks = [array.shape, array.chunks, getattr(array, "shards", None) or ()]
        claimed = max(math.prod(b) for b in blocks) * max(getattr(array.dtype, "itemsize", 1), 1)
        if claimed > max(LARGE, MAX_EXPANSION * stored):
            raise self.error(
                f"{self.name}: {key!r} claims shape {array.shape} in chunks of {array.chunks} but "
                f"{stored} bytes are stored; "
                "it is damaged or was never filled"
            )


@contextmanager
def open_store(path: str | os.PathLike[str], error: ErrorType) -> Iterator[Store]:
    """An HDF5 file or the folder of a Zarr store; faults of either are errors of ours."""
    name = os.fspath(path)
    if is_zarr(name):
        zarr = require("zarr", what="reading Zarr stores", extra="scverse")
        with one_error(name, error, "it is no Zarr store, or damaged; write it again"):
            root = zarr.open_group(name, mode="r", use_consolidated=False)
            yield ZarrStore(root, Path(name), name, error)
        return
    h5py = require("h5py", what="reading HDF5 files", extra="io")
    check_regular(name, error)
    what = "it is no HDF5 file, or damaged or cut off; copy it, or write it, again"
    with one_error(name, error, what), h5py.File(name, "r") as file:
        yield Hdf5Store(file, name, error)


def is_zarr(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of a Zarr store or of a group in one."""
    return any(os.path.isfile(os.path.join(path, f)) for f in ("zarr.json", ".zgroup"))


def _codecs(found: dict[str, Any]) -> Iterator[str]:
    """Names of all codecs that the description of an array has, at any depth."""
    version2 = [
        *(found.get("filters") or []),
        *([found["compressor"]] if found.get("compressor") else []),
    ]
    for codec in version2:
        yield str(codec.get("id"))
    for codec in found.get("codecs") or []:
        yield str(codec.get("name"))
        inside = codec.get("configuration") or {}
        for part in ("codecs", "index_codecs"):
            yield from _codecs({"codecs": inside.get(part) or []})


def _check_plain(dtype: Any, key: str, name: str, error: ErrorType) -> None:
    if np.dtype(dtype).kind not in "fiub":
        raise error(
            f"{name}: {key!r} holds {dtype}, which is neither numbers nor text; write it as such"
        )


def _as_text(values: Array, key: str, name: str, error: ErrorType) -> Array:
    text = values.astype(object)
    if not all(isinstance(v, str) for v in text.ravel()):
        raise error(f"{name}: {key!r} holds objects that are no text; write it as text")
    return text
