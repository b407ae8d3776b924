"""No bytes, damaged or crafted, make the reader of model files do more than refuse them."""

import contextlib
import dataclasses
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bagwise.core.files import modelfile
from bagwise.io import ModelFileError, read_state, register, write_state


@register
@dataclasses.dataclass(frozen=True)
class Width:
    value: float

    def __post_init__(self) -> None:
        if not self.value > 0:
            raise ValueError(f"value must be positive, got {self.value}")


STATE = {
    "m": np.arange(6.0).reshape(2, 3),
    "kernel": Width(np.float32(0.5)),
    "classes": np.array(["benign", "tumour"]),
    "known": np.array([True, False]),
    "bounds": (-np.inf, None, 7),
    "history": [-3.5, {"__odd__": "ü"}],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.bagwise"


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0))
    return buffer.getvalue()


def npy_header(text: str, data: bytes = b"") -> bytes:
    line = (text + "\n").encode("latin1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line + data


def header(state: object, **changes: object) -> bytes:
    fields = {"format": "bagwise", "schema": 1, "bagwise": "0.1.0", "kind": "k", "state": state}
    return json.dumps({**fields, **changes}).encode()


def archive_bytes(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def with_state(state: object, *arrays: bytes) -> bytes:
    members = [(f"arrays/{i}.npy", a) for i, a in enumerate(arrays)]
    return archive_bytes([("header.json", header(state)), *members])


def with_header(text: bytes) -> bytes:
    return archive_bytes([("header.json", text)])


GOOD = npy(np.arange(3.0))
REF = {"__array__": 0}
DESCR = "{'descr': '<f8', 'fortran_order': False, 'shape': %s, }"

BAD_FILES = {
    "empty": (b"", "it is empty"),
    "text": (b"hello, world", "does not begin like one"),
    "pickle": (pickle.dumps({"a": 1}), "pickle"),
    "npy": (GOOD, "single .npy array"),
    "truncated": (with_state(REF, GOOD)[:-40], "damaged"),
    "other zip": (archive_bytes([("data.pkl", b"x")]), "unexpected member 'data.pkl'"),
    "no header": (archive_bytes([("arrays/0.npy", GOOD)]), "no header.json"),
    "no members": (b"PK\x03\x04" + archive_bytes([]), "no header.json|damaged"),
    "prefix": (b"#!/bin/sh\n" + with_state([]), "does not begin like one"),
    "extra member": (archive_bytes([("header.json", header([])), ("a.py", b"")]), "'a.py'"),
    "unused array": (with_state([], GOOD), "array 0 is not part of the state"),
    "absent array": (with_state({"__array__": 3}, GOOD), "array 3, which is absent"),
    "array twice": (with_state([REF, REF], GOOD), "used already"),
    "odd index": (with_state({"__array__": "0"}, GOOD), "refers to array '0'"),
    "true index": (with_state({"__array__": True}, GOOD), "refers to array True"),
    "gap": (
        archive_bytes([("header.json", header(REF)), ("arrays/1.npy", GOOD)]),
        "arrays/0.npy is missing",
    ),
    "absolute": (archive_bytes([("header.json", header([])), ("/etc/x", b"")]), "unsafe"),
    "dots": (archive_bytes([("header.json", header([])), ("arrays/../x", b"")]), "unsafe"),
    "compressed": (
        archive_bytes([("header.json", header([]) + b" " * 10**6)], zipfile.ZIP_DEFLATED),
        "compressed",
    ),
    "not utf-8": (with_header(b'{"format": "\xff"}'), "not JSON in UTF-8"),
    "not json": (with_header(b"{"), "not JSON in UTF-8"),
    "wrong format": (with_header(header([], format="other")), "wrong format"),
    "json list": (with_header(b"[]"), "wrong format"),
    "newer schema": (with_header(header([], schema=2, bagwise="9.0")), "9.0 wrote .* upgrade"),
    "schema 0": (with_header(header([], schema=0)), "schema is 0"),
    "schema true": (with_header(header([], schema=True)), "schema is True"),
    "extra key": (with_header(header([], more=1)), "lacks or adds"),
    "no kind": (with_header(header([], kind=None)), "kind is None"),
    "key twice": (with_header(header([])[:-1] + b', "kind": "b"}'), "there twice"),
    "bare NaN": (with_header(header(float("nan"))), "bare constant NaN"),
    "long integer": (with_header(header([]).replace(b"[]", b"9" * 5000)), "damaged"),
    "deep json": (with_header(header([]).replace(b"[]", b"[" * 10**6 + b"]" * 10**6)), "deep"),
    "deep state": (with_header(header([]).replace(b"[]", b"[" * 150 + b"]" * 150)), "deep"),
    "unknown tag": (with_state({"__code__": "1"}), "unknown tag"),
    "two tags": (with_state({"__float__": "inf", "a": 1}), "unknown tag"),
    "odd float": (with_state({"__float__": "1"}), "the float '1'"),
    "odd tuple": (with_state({"__tuple__": {}}), "not a list of items"),
    "odd dict": (with_state({"__dict__": [["a"]]}), "not a list of pairs"),
    "dict twice": (with_state({"__dict__": [["a", 1], ["a", 2]]}), "there twice"),
    "odd object": (with_state({"__object__": ["Width", []]}), "not a name with fields"),
    "unknown object": (with_state({"__object__": ["Popen", {}]}), "does not know"),
    "module path": (with_state({"__object__": ["os.system", {}]}), "does not know"),
    "bad field": (with_state({"__object__": ["Width", {"value": -1}]}), "must be positive"),
    "odd field": (with_state({"__object__": ["Width", {"x": 1}]}), "cannot be rebuilt"),
    "not npy": (with_state(REF, b"hello, world"), "damaged"),
    "object dtype": (with_state(REF, npy(np.array([{}]))), "dtype object"),
    "huge shape": (with_state(REF, npy_header(DESCR % "(10**15,)")), "damaged"),
    "absurd shape": (with_state(REF, npy_header(DESCR % "(1000000000000,)")), "in 0 bytes"),
    "negative shape": (with_state(REF, npy_header(DESCR % "(-1, -1)", b"x" * 8)), "in 8 bytes"),
    "too many bytes": (with_state(REF, GOOD + b"x"), "in 25 bytes"),
    "too few bytes": (with_state(REF, GOOD[:-1]), "in 23 bytes"),
    "too many axes": (with_state(REF, npy_header(DESCR % f"({'1, ' * 99})", b"x" * 8)), "damaged"),
    "scalar array": (with_state({"__scalar__": 0}, GOOD), r"has shape \(3,\)"),
    "npy 3.0": (with_state(REF, GOOD[:6] + b"\x03" + GOOD[7:]), r"version \(3, 0\)"),
    "bools": (with_state(REF, npy(np.array([True]))[:-1] + b"\x02"), "booleans"),
    "unicode": (with_state(REF, npy(np.array(["a"]))[:-4] + b"\xff" * 4), "not Unicode"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_say_what_is_wrong(path: Path, name: str) -> None:
    data, message = BAD_FILES[name]
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message) as caught:
        read_state(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_duplicate_members(path: Path) -> None:
    path.write_bytes(archive_bytes([("header.json", header([]))] * 2))
    with pytest.raises(ModelFileError, match="there twice"):
        read_state(path)


def test_members_cannot_claim_more_than_the_file(path: Path) -> None:
    data = with_state(REF, GOOD)
    sizes = struct.pack("<II", len(GOOD), len(GOOD))
    assert data.count(sizes) == 2  # local header and central directory
    path.write_bytes(data.replace(sizes, struct.pack("<II", 2**31, 2**31)))
    with pytest.raises(ModelFileError, match="claim 2147"):
        read_state(path)


def test_overlapping_members_are_refused(path: Path) -> None:
    # Two directory entries for the same bytes: each is in the file, together they are not.
    data = with_state([REF, {"__array__": 1}], npy(np.zeros(1000)), npy(np.zeros(1000)))
    first = data.index(b"arrays/0.npy") - 30
    entry = data.rindex(b"arrays/1.npy") - 46
    path.write_bytes(data[: entry + 42] + struct.pack("<I", first) + data[entry + 46 :])
    with pytest.raises(ModelFileError, match="damaged"):
        read_state(path)


def test_large_headers_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_state(path, ["x" * 1000], kind="a")
    monkeypatch.setattr(modelfile, "MAX_HEADER_BYTES", 500)
    with pytest.raises(ModelFileError, match="more than 500"):
        read_state(path)
    with pytest.raises(ModelFileError, match="turn long lists into arrays"):
        write_state(path, ["x" * 1000], kind="a")


def test_changed_bytes_are_noticed(path: Path) -> None:
    write_state(path, np.zeros(100), kind="a")
    data = bytearray(path.read_bytes())
    data[data.index(b"\x93NUMPY") + 400] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="CRC"):
        read_state(path)


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip, delete, insert or repeat a few bytes, or cut the end off."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(out)))
        end = at + int(rng.integers(1, 16))
        change = rng.integers(6)
        if change <= 1:
            out[at] = int(rng.integers(256))
        elif change == 2:
            out[at : at + 4] = struct.pack("<I", int(rng.choice([0, 1, 2**31, 2**32 - 1])))
        elif change == 3:
            del out[at:end]
        elif change == 4:
            out[at:at] = out[at:end]
        else:
            del out[max(at, len(out) // 2) :]
    return bytes(out)


def read_or_refuse(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with contextlib.suppress(ModelFileError):
        read_state(path)


def test_fuzz_whole_files(path: Path) -> None:
    rng = np.random.default_rng(0)
    write_state(path, STATE, kind="VGPMIL")
    good = path.read_bytes()
    for _ in range(1200):
        read_or_refuse(path, mutated(good, rng))


@pytest.mark.filterwarnings("ignore:Reading `.npy`:UserWarning", "ignore::DeprecationWarning")
def test_fuzz_behind_valid_checksums(path: Path) -> None:
    rng = np.random.default_rng(1)
    write_state(path, STATE, kind="VGPMIL")
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    for _ in range(1200):
        i = int(rng.integers(len(members)))
        changed = [(n, mutated(d, rng) if j == i else d) for j, (n, d) in enumerate(members)]
        read_or_refuse(path, archive_bytes(changed))
