"""Model files: what is written comes back, and no bytes do more than raise ModelFileError."""

import dataclasses
import json
import os
import stat
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bagwise.core.files import modelfile
from bagwise.io import SCHEMA_VERSION, ModelFileError, read_state, register, write_state


@register
@dataclasses.dataclass(frozen=True)
class Scale:
    lengthscale: float
    shift: tuple = ()
    cached: float = dataclasses.field(default=0.0, init=False)

    def __post_init__(self) -> None:
        if not self.lengthscale > 0:
            raise ValueError(f"lengthscale must be positive, got {self.lengthscale}")


@register
@dataclasses.dataclass(frozen=True)
class Pair:
    left: object
    right: object


STATE = {
    "m": np.arange(6.0).reshape(2, 3),
    "kernel": Pair(Scale(2.0, (1, np.float32(0.5))), Scale(np.inf)),
    "tol": 1e-4,
    "classes": np.array(["benign", "tumour"]),
    "bounds": (-np.inf, np.nan, None, True, 7),
    "history": [-3.5, -2.25],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.bagwise"


def same(a: object, b: object) -> bool:
    """Equality that also compares types, dtypes, NaN and the sign of zero."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (a != a and b != b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    return a == b


# --- Round trips -------------------------------------------------------------------------------


def test_round_trip(path: Path) -> None:
    write_state(path, STATE, kind="VGPMIL")
    kind, state = read_state(path)
    assert kind == "VGPMIL"
    assert same(state, STATE)
    state["m"][0, 0] = 5.0  # arrays come back writable


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | hnp.arrays(
        hnp.boolean_dtypes()
        | hnp.integer_dtypes(endianness="?")
        | hnp.floating_dtypes(endianness="?")
        | hnp.complex_number_dtypes()
        | hnp.datetime64_dtypes()
        | hnp.unicode_string_dtypes(endianness="?")
        | hnp.byte_string_dtypes(),
        hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
    )
    | hnp.from_dtype(np.dtype("float32"))
)
KEYS = st.text() | st.sampled_from(["__array__", "__dict__", "__object__", "__"])
STATES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(state=STATES)
def test_any_state_comes_back(tmp_path_factory: pytest.TempPathFactory, state: object) -> None:
    path = tmp_path_factory.getbasetemp() / "any.bagwise"
    write_state(path, state, kind="any")
    assert same(read_state(path), ("any", state))


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12)[::-2],
        np.zeros((0, 3)),
        np.array(2.5),
        np.zeros(2, dtype=[("a", "<f4"), ("b", ">i8", (2,))]),
        np.array(["2026-01-01", "NaT"], dtype="datetime64[D]"),
    ],
    ids=["fortran", "strided", "empty", "0-d", "record", "date"],
)
def test_unusual_arrays(path: Path, array: np.ndarray) -> None:
    write_state(path, array, kind="array")
    back = read_state(path)[1]
    assert same(back, array)
    assert back.flags.f_contiguous or not array.flags.f_contiguous


def test_numpy_reads_the_arrays(path: Path) -> None:
    write_state(path, STATE, kind="VGPMIL")
    with np.load(path, allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["arrays/0"], STATE["m"])
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("header.json"))
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
    assert (header["format"], header["schema"]) == ("bagwise", SCHEMA_VERSION)


def test_memmaps_are_written_as_arrays(path: Path, tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "raw", dtype=float, mode="w+", shape=3)
    write_state(path, mapped, kind="array")
    assert type(read_state(path)[1]) is np.ndarray


def test_equal_states_are_equal_files(tmp_path: Path) -> None:
    for name in "ab":
        write_state(tmp_path / name, STATE, kind="VGPMIL")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# --- What cannot be written ----------------------------------------------------------------------

LOOP: list = []
LOOP.append(LOOP)


class Text(str):
    pass


@dataclasses.dataclass(frozen=True)
class Unregistered:
    x: int = 0


BAD_STATES = {
    "set": ({"a": [0, {1}]}, r"state\['a'\]\[1\] is a builtins.set"),
    "dataclass": ({"k": Pair(1, Unregistered())}, r"\['k'\].right is a .*Unregistered.*register"),
    "object array": (np.array([None]), "state has dtype object"),
    "object record": (np.zeros(1, dtype=[("a", "O")]), "cannot hold"),
    "masked array": (np.ma.masked_array([1.0]), "MaskedArray"),
    "integer key": ({1: 2}, "has the key 1; keys must be str"),
    "subclass of dict": (OrderedDict(a=1), "OrderedDict"),
    "subclass of str": (Text("a"), "Text"),
    "function": (print, "builtin_function_or_method"),
    "loop": (LOOP, "nested more than 100 deep"),
    "long integer": (10**5000, "no JSON form"),
    "record names": (np.zeros(1, dtype=[("ü", "f8")]), "cannot hold"),
    "no bytes": (np.zeros(2, dtype="V0"), "cannot hold"),
}


@pytest.mark.parametrize("name", BAD_STATES)
def test_unsupported_states_leave_nothing_behind(path: Path, name: str) -> None:
    state, message = BAD_STATES[name]
    with pytest.raises(ModelFileError, match=message):
        write_state(path, state, kind="bad")
    assert os.listdir(path.parent) == []


def test_string_dtype_is_refused(path: Path) -> None:
    dtypes = pytest.importorskip("numpy.dtypes")
    if not hasattr(dtypes, "StringDType"):
        pytest.skip("this numpy has no StringDType")
    with pytest.raises(ModelFileError, match="cannot hold"):
        write_state(path, np.array(["a"], dtype=dtypes.StringDType()), kind="bad")


@pytest.mark.parametrize("kind", ["", None, 3])
def test_kind_is_a_name(path: Path, kind: object) -> None:
    with pytest.raises(ModelFileError, match="kind must be a name"):
        write_state(path, {}, kind=kind)


def test_register_takes_frozen_dataclasses_of_one_name() -> None:
    with pytest.raises(TypeError, match="not a frozen dataclass"):
        register(int)
    with pytest.raises(TypeError, match="not a frozen dataclass"):
        register(dataclasses.make_dataclass("Thawed", ["x"]))
    other = dataclasses.make_dataclass("Scale", ["x"], frozen=True)
    other.__module__ = "elsewhere"
    with pytest.raises(ValueError, match="'Scale' is registered by"):
        register(other)
    assert register(Scale) is Scale


# --- Atomic writing ------------------------------------------------------------------------------


def test_failure_keeps_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_state(path, [1], kind="old")

    def fail(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    for place in ("fsync", "replace"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(modelfile.os, place, fail)
            write_state(path, [2], kind="new")
        assert read_state(path) == ("old", [1])
        assert os.listdir(path.parent) == [path.name]


def test_overwrites_and_follows_links(path: Path, tmp_path: Path) -> None:
    write_state(path, [1], kind="a")
    link = tmp_path / "link"
    link.symlink_to(path)
    write_state(link, [2], kind="b")
    assert link.is_symlink()
    assert read_state(path) == ("b", [2])


@pytest.mark.skipif(os.name != "posix", reason="permission bits are of POSIX systems")
def test_permissions_follow_the_umask(path: Path, tmp_path: Path) -> None:
    write_state(path, [1], kind="a")
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_paths_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "absent")
    with pytest.raises(OSError, match="is a folder"):
        read_state(tmp_path)
    with pytest.raises(FileNotFoundError, match="make it before"):
        write_state(tmp_path / "no" / "m", [], kind="a")
    with pytest.raises(OSError):
        write_state(tmp_path, [], kind="a")
