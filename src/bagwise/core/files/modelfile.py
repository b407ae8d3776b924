"""Model files: one zip of a JSON header and plain arrays, read without executing anything.

A file holds `header.json` and `arrays/0.npy`, `arrays/1.npy`, ..., all stored uncompressed, so
`np.load` opens it too. The header is

    {"format": "bagwise", "schema": 1, "bagwise": "0.1.0", "kind": "...", "state": ...}

with the state as `state_codec` spells it. The reader takes every byte for hostile, checks sizes
before it allocates, and fails with `ModelFileError` alone.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Callable
from dataclasses import is_dataclass
from importlib import metadata
from typing import Any, BinaryIO, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from bagwise.core.files.atomic import atomic_file
from bagwise.core.files.codec import (
    MAX_DEPTH,
    Decoder,
    Encoder,
    ModelFileError,
    crafted,
    describe,
    is_storable,
    register,
    unique_keys,
)
from bagwise.core.files.reading import check_regular
from bagwise.kernels import Kernel

__all__ = [
    "SCHEMA_VERSION",
    "ModelFileError",
    "read_kind",
    "read_state",
    "register",
    "register_kernels",
    "write_state",
]

SCHEMA_VERSION = 1
MAX_HEADER_BYTES = 16 * 2**20  # parsing takes fifty times as much memory

_HEADER = "header.json"
_HEADER_KEYS = {"format", "schema", "bagwise", "kind", "state"}
_ARRAY_NAME = re.compile(r"arrays/(0|[1-9][0-9]{0,8})\.npy")
_MAX_CODE_POINT = 0x10FFFF
_READ_BYTES = 2**20


def write_state(
    path: str | os.PathLike[str], state: Any, *, kind: str, overwrite: bool = True
) -> None:
    """Write a nested state to `path`, completely or not at all.

    `state` is made of dicts with str keys, lists, tuples, str, int, float, bool, None, numpy
    arrays and scalars of any dtype but object, and registered dataclasses. `kind` names what the
    state is of. Equal states give equal bytes. An existing file is replaced in one step, or with
    `overwrite=False` kept, and FileExistsError raised.

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "m.bagwise"
    >>> write_state(path, {"mean": np.zeros(2), "sizes": (3, 4)}, kind="example")
    >>> read_state(path)
    ('example', {'mean': array([0., 0.]), 'sizes': (3, 4)})
    >>> folder.cleanup()
    """
    if not isinstance(kind, str) or not kind:
        raise ModelFileError(f"kind must be a name, got {kind!r}; pass e.g. kind='VGPMIL'")
    encoder = Encoder()
    header = {
        "format": "bagwise",
        "schema": SCHEMA_VERSION,
        "bagwise": _version(),
        "kind": kind,
        "state": encoder.encode(state, "state", 0),
    }
    text = _to_json(header)
    with atomic_file(path, overwrite=overwrite) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_member(_HEADER), text)
        for i, array in enumerate(encoder.arrays):
            _write_array(archive, _array_name(i), array)


def read_state(path: str | os.PathLike[str]) -> tuple[str, Any]:
    """Read the kind and the state of a file that `write_state` made.

    A file that is not one of ours, damaged, from a newer version or crafted raises
    `ModelFileError`; a path that cannot be opened raises the usual `OSError`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "m.bagwise"
    ...     write_state(path, [1, float("inf"), None], kind="example")
    ...     read_state(path)
    ('example', [1, inf, None])
    """
    return _opened(path, _read)


def read_kind(path: str | os.PathLike[str]) -> str:
    """What the state in a file is of, from its header alone; errors as those of `read_state`."""
    return _opened(path, lambda file: _read(file, arrays=False))[0]


def _opened(
    path: str | os.PathLike[str], read: Callable[[BinaryIO], tuple[str, Any]]
) -> tuple[str, Any]:
    """What `read` makes of a regular file, every fault of the bytes as a `ModelFileError`."""
    check_regular(path, ModelFileError)
    with open(path, "rb") as file:
        try:
            return read(file)
        except ModelFileError as error:
            raise ModelFileError(f"cannot read {os.fspath(path)}: {error}") from error.__cause__
        except Exception as error:
            # zipfile, json and numpy raise a dozen kinds of errors on damaged bytes; for the
            # caller they all mean the same.
            raise ModelFileError(
                f"cannot read {os.fspath(path)}: the file is damaged ({describe(error)}); "
                "copy it again or save the model again"
            ) from error


def _version() -> str:
    try:
        return metadata.version("bagwise")
    except metadata.PackageNotFoundError:
        return "unknown"


# --- Writing -------------------------------------------------------------------------------------


def _to_json(header: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(header, allow_nan=False).encode("ascii")
    except ValueError as error:  # integers of thousands of digits
        raise ModelFileError(f"the state has no JSON form ({error}); store it as text") from error
    if len(text) > MAX_HEADER_BYTES:
        raise ModelFileError(
            f"the state without its arrays takes {len(text)} bytes, more than the "
            f"{MAX_HEADER_BYTES} allowed; turn long lists into arrays"
        )
    return text


def _array_name(index: int) -> str:
    return f"arrays/{index}.npy"


def _member(name: str) -> zipfile.ZipInfo:
    # The fixed date (zip's first) makes equal states equal files.
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.external_attr = 0o644 << 16
    return info


def _write_array(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    large = array.nbytes > 2**30
    with archive.open(_member(name), "w", force_zip64=large) as out:
        np.lib.format.write_array(out, array, version=(1, 0), allow_pickle=False)


# --- Reading -------------------------------------------------------------------------------------


def _read(file: BinaryIO, arrays: bool = True) -> tuple[str, Any]:
    size = os.fstat(file.fileno()).st_size
    _check_start(file.read(8))
    with zipfile.ZipFile(file) as archive:
        members = _checked_members(archive, size)
        header = _checked_header(_read_header(archive, members[_HEADER]))
        if not arrays:
            return header["kind"], None
        decoder = Decoder(len(members) - 1, lambda i: _read_array(archive, members[_array_name(i)]))
        state = decoder.decode(header["state"], 0)
        decoder.check_all_used()
    return header["kind"], state


def _check_start(start: bytes) -> None:
    if start.startswith(b"PK\x03\x04"):
        return
    if start.startswith(b"\x80"):
        what = "it is a pickle, which could run code when loaded, and is never read"
    elif start.startswith(b"\x93NUMPY"):
        what = "it is a single .npy array"
    else:
        what = "it does not begin like one" if start else "it is empty"
    raise ModelFileError(f"not a bagwise model file: {what}; load a file made by save()")


def _checked_members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        _check_member(info)
        if info.filename in members:
            crafted(f"the member {info.filename!r} is there twice")
        members[info.filename] = info
    if _HEADER not in members:
        raise ModelFileError(f"not a bagwise model file: no {_HEADER}; load one made by save()")
    missing = [i for i in range(len(members) - 1) if _array_name(i) not in members]
    if missing:
        raise ModelFileError(f"arrays/{missing[0]}.npy is missing; save the model again")
    total = sum(info.file_size for info in members.values())
    if total > size:
        crafted(f"its members claim {total} bytes, the file has {size}")
    return members


def _check_member(info: zipfile.ZipInfo) -> None:
    name = info.orig_filename
    if name.startswith(("/", "\\")) or ".." in name or "\x00" in name:
        crafted(f"the member name {name!r:.80} is unsafe")
    if name != _HEADER and not _ARRAY_NAME.fullmatch(name):
        raise ModelFileError(f"unexpected member {name!r:.80}; load a file as save() made it")
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        crafted(f"the member {name!r} is compressed")
    if info.flag_bits & 0x1:
        crafted(f"the member {name!r} is encrypted")


def _read_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    if info.file_size > MAX_HEADER_BYTES:
        crafted(f"the header has {info.file_size} bytes, more than {MAX_HEADER_BYTES}")
    try:
        text = archive.read(info).decode("utf-8")
        return json.loads(text, object_pairs_hook=unique_keys, parse_constant=_no_constant)
    except RecursionError as error:
        raise ModelFileError(
            f"the header is nested deeper than {MAX_DEPTH}; get the file from its source again"
        ) from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelFileError(
            f"the header is not JSON in UTF-8 ({describe(error)}); save the model again"
        ) from error


def _no_constant(name: str) -> NoReturn:
    crafted(f"the header has the bare constant {name}")


def _checked_header(header: Any) -> dict[str, Any]:
    if not isinstance(header, dict) or header.get("format") != "bagwise":
        raise ModelFileError("not a bagwise model file: wrong format; load one made by save()")
    schema = header.get("schema")
    if type(schema) is not int or schema < 1:
        raise ModelFileError(f"the schema is {schema!r:.40}, not a version; save the model again")
    if schema > SCHEMA_VERSION:
        raise ModelFileError(
            f"bagwise {header.get('bagwise')!s:.40} wrote it with schema {schema}, this one reads "
            f"up to {SCHEMA_VERSION}; upgrade bagwise"
        )
    if set(header) != _HEADER_KEYS:
        odd = sorted(set(header) ^ _HEADER_KEYS)
        raise ModelFileError(f"the header lacks or adds {odd[:5]}; save the model again")
    if not isinstance(header["kind"], str) or not header["kind"]:
        raise ModelFileError(f"the kind is {header['kind']!r:.40}, not a name; save it again")
    return header


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as member:
        return _read_npy(cast(BinaryIO, member), info)


def _read_npy(member: BinaryIO, info: zipfile.ZipInfo) -> NDArray[Any]:
    """Read one .npy member; its size must fit its shape before anything is allocated."""
    version = np.lib.format.read_magic(member)
    if version != (1, 0):
        crafted(f"{info.filename} has .npy version {version}")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(member)
    if not is_storable(dtype):
        crafted(f"{info.filename} has dtype {dtype}")
    size = info.file_size - member.tell()
    if any(type(n) is not int or n < 0 for n in shape) or math.prod(shape) * dtype.itemsize != size:
        crafted(f"{info.filename} has shape {shape!s:.80} of {dtype!s:.40} in {size} bytes")
    flat = np.empty(math.prod(shape), dtype=dtype)
    if size:
        _fill(flat.view(np.uint8), member, info)
    _check_values(flat, info)
    return flat.reshape(shape, order="F" if fortran_order else "C")


def _fill(raw: NDArray[np.uint8], member: BinaryIO, info: zipfile.ZipInfo) -> None:
    done = 0
    while done < raw.size:
        block = member.read(min(_READ_BYTES, raw.size - done))
        if not block:
            raise ModelFileError(f"{info.filename} is truncated; copy the file again")
        raw[done : done + len(block)] = np.frombuffer(block, dtype=np.uint8)
        done += len(block)


def _check_values(flat: NDArray[Any], info: zipfile.ZipInfo) -> None:
    # numpy trusts these bytes: other values fail later, far from here.
    if flat.dtype.kind == "b" and flat.size and flat.view(np.uint8).max() > 1:
        crafted(f"{info.filename} has booleans other than 0 and 1")
    if flat.dtype.kind == "U" and flat.size:
        points = flat.view(np.dtype(np.uint32).newbyteorder(flat.dtype.byteorder))
        if points.max() > _MAX_CODE_POINT:
            crafted(f"{info.filename} has text that is not Unicode")


def register_kernels() -> None:
    """Let model files hold every kernel there is, also those written elsewhere."""
    waiting = Kernel.__subclasses__()
    while waiting:
        kernel = waiting.pop()
        waiting += kernel.__subclasses__()
        if is_dataclass(kernel):
            register(kernel)
