"""Damaged and crafted model files: what `make fuzz` and the suite feed to the loader."""

from __future__ import annotations

import copy
import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

import bagwise as bw

Members = list[tuple[str, bytes]]
Rng = np.random.Generator

HOSTILE: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 2**31, 2**63, 10**40, 0.5, -0.0, 1e308, -1e308, 5e-324),
    *("", "x", "inf", "nan", "RBF", "__import__('os')", "é" * 50, "\x00", "../../etc/passwd"),
    *([], {}, [[]], [0, 1], {"a": 1}, [[[[[[]]]]]], {"__tuple__": []}, {"__float__": "nan"}),
    *({"__float__": "-inf"}, {"__array__": 0}, {"__array__": 1}, {"__scalar__": 0}),
    *({"__array__": -1}, {"__dict__": [["a", 1]]}, {"__dict__": []}, {"__code__": "1"}),
    {"__object__": ["RBF", {}]},
    {"__object__": ["RBF", {"variance": 1.0, "lengthscale": 1e-300}]},
    {"__object__": ["Gamma", {"alpha": 0.1, "beta": 1.0}]},
    {"__object__": ["os.system", {"command": "true"}]},
    {"__object__": ["Sum", {"terms": []}]},
]
DTYPES = ["<f8", "<f4", ">f8", "<i8", "|O", "|V8", "<U9", "<M8[s]", "<c16", "|b1", "<f16", "|S0"]
SHAPES = ["()", "(0,)", "(1,)", "(3,)", "(-1,)", "(10**9,)", "(2**62, 4)", "(True,)", "(1,) * 70"]
EXTREMES = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, -1e308, 5e-324, 1e-300, 2.0**53]


def small_bags(seed: int = 0) -> bw.Bags:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(36, 2))
    X[np.arange(1, 12, 2) * 3, 0] += 3
    names = ["area", "shade"]
    ids = np.repeat([f"slide {b:02d}" for b in range(12)], 3)
    return bw.Bags.from_arrays(X, ids, y=np.arange(12) % 2, coords=X, feature_names=names)


def model_files(folder: Path) -> dict[str, bytes]:
    """One small file of each kind that is written: models of all families and a checkpoint."""
    shared: dict[str, Any] = {"n_inducing": 4, "random_state": 0, "max_iter": 5}
    models: dict[str, Any] = {
        "probit": bw.ProbitVGPMIL(**shared),
        "gibbs": bw.ProbitVGPMIL(
            inference="gibbs", n_chains=2, n_samples=8, burn_in=2, n_inducing=4, random_state=0
        ),
        "logistic": bw.VGPMIL(kernel=bw.kernels.Matern(1.5) + bw.kernels.Linear(), **shared),
        "gamma": bw.GammaVGPMIL(**shared),
        "margin": bw.LargeMarginVGPMIL(**shared),
        "ising": bw.IsingVGPMIL(coupling=0.2, **shared),
        "mirvm": bw.MIRVM(random_state=0),
        "kernel mirvm": bw.MIRVM(kernel=bw.kernels.RBF(), random_state=0),
        "several": bw.OneVsRestMIL(bw.MIRVM(random_state=0)),
        "pipeline": make_pipeline(bw.InstanceTransformer(PCA(2)), bw.MIRVM(random_state=0)),
    }
    files = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in models.items():
            bw.save(model.fit(small_bags(), small_bags().y), folder / "seed.bagwise")
            files[name] = (folder / "seed.bagwise").read_bytes()
        bw.VGPMIL(**shared).fit(small_bags(), checkpoint=folder / "c.ckpt", checkpoint_minutes=0)
    files["checkpoint"] = (folder / "c.ckpt").read_bytes()
    return files


def members_of(data: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def zipped(members: Members, compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate names are the point
        with zipfile.ZipFile(buffer, "w", compression) as archive:
            for name, data in members:
                archive.writestr(name, data)
    return buffer.getvalue()


@dataclass(frozen=True)
class Fuzzer:
    """Makes hostile files out of good ones; the same seed makes the same files."""

    files: dict[str, bytes]

    def one(self, seed: int) -> tuple[str, bytes]:
        """How file number `seed` was made, and the file."""
        rng = np.random.default_rng(seed)
        ways: list[Callable[[str, Rng], bytes]] = [
            self._damaged,
            self._damaged_member,
            self._spliced,
            self._other_header,
            self._other_header,
            self._other_array_header,
            self._other_values,
        ]
        name = sorted(self.files)[int(rng.integers(len(self.files)))]
        way = ways[int(rng.integers(len(ways)))]
        return f"{way.__name__} {name}", way(name, rng)

    def _damaged(self, name: str, rng: Rng) -> bytes:
        return damaged(self.files[name], rng)

    def _damaged_member(self, name: str, rng: Rng) -> bytes:
        members = members_of(self.files[name])
        i = int(rng.integers(len(members)))
        members[i] = members[i][0], damaged(members[i][1], rng)
        return zipped(members)

    def _spliced(self, name: str, rng: Rng) -> bytes:
        """Members of two files mixed, repeated, dropped, renamed or compressed."""
        members = members_of(self.files[name])
        other = members_of(self.files[_pick(sorted(self.files), rng)])
        for _ in range(int(rng.integers(1, 4))):
            i, j = int(rng.integers(len(members))), int(rng.integers(len(other)))
            change = rng.integers(5)
            if change == 0:
                members[i] = members[i][0], other[j][1]
            elif change == 1:
                members.insert(i, other[j])
            elif change == 2 and len(members) > 1:
                del members[i]
            elif change == 3:
                odd = [
                    "../x",
                    "/etc/x",
                    "arrays/00.npy",
                    "HEADER.JSON",
                    "a\\b",
                    "x/",
                    "arrays/9.npy",
                ]
                members[i] = _pick(odd, rng), members[i][1]
            else:
                members[i] = members[i][0], members[i][1] + bytes(10**6)
        packed = zipfile.ZIP_DEFLATED if rng.random() < 0.2 else zipfile.ZIP_STORED
        return zipped(members, packed)

    def _other_header(self, name: str, rng: Rng) -> bytes:
        """The JSON header with one to three values replaced, removed, added or exchanged."""
        members = members_of(self.files[name])
        header = json.loads(members[0][1])
        for _ in range(int(rng.integers(1, 4))):
            _change_tree(header, rng)
        return zipped([(members[0][0], json.dumps(header).encode()), *members[1:]])

    def _other_array_header(self, name: str, rng: Rng) -> bytes:
        members = members_of(self.files[name])
        i = int(rng.integers(1, len(members)))
        start = 10 + struct.unpack("<H", members[i][1][8:10])[0]
        text = (
            f"{{'descr': '{_pick(DTYPES, rng)}', 'fortran_order': {bool(rng.integers(2))}, "
            f"'shape': {_pick(SHAPES, rng)}, }}\n"
        ).encode()
        begin = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
        members[i] = members[i][0], begin + members[i][1][start:]
        return zipped(members)

    def _other_values(self, name: str, rng: Rng) -> bytes:
        """Numbers of one array replaced by extreme ones, with right checksums."""
        members = members_of(self.files[name])
        i = int(rng.integers(1, len(members)))
        array = np.load(io.BytesIO(members[i][1]))
        if array.dtype.kind != "f" or not array.size:
            return self._damaged_member(name, rng)
        with np.errstate(over="ignore"):  # in single precision extremes are infinite
            for _ in range(int(rng.integers(1, 4))):
                array.flat[int(rng.integers(array.size))] = _pick(EXTREMES, rng)
        buffer = io.BytesIO()
        np.save(buffer, array)
        members[i] = members[i][0], buffer.getvalue()
        return zipped(members)


def damaged(data: bytes, rng: Rng) -> bytes:
    """Bits flipped, bytes changed, removed, repeated, or the end cut off."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        if not out:
            break
        at = int(rng.integers(len(out)))
        end = at + int(rng.integers(1, 32))
        change = rng.integers(7)
        if change == 0:
            out[at] ^= 1 << int(rng.integers(8))
        elif change == 1:
            out[at] = int(rng.integers(256))
        elif change == 2:
            out[at : at + 4] = struct.pack("<I", int(rng.choice([0, 1, 2**31, 2**32 - 1])))
        elif change == 3:
            del out[at:end]
        elif change == 4:
            out[at:at] = out[at:end]
        elif change == 5:
            out[at:end] = rng.bytes(end - at)
        else:
            del out[at:]
    return bytes(out)


def _pick(values: list[Any], rng: Rng) -> Any:
    return values[int(rng.integers(len(values)))]


def _nodes(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside a tree of dicts and lists."""
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        keys = node.keys() if isinstance(node, dict) else range(len(node))
        for key in keys:
            found.append((node, key))
            if isinstance(node[key], dict | list):
                waiting.append(node[key])
    return found


def _change_tree(tree: Any, rng: Rng) -> None:
    nodes = _nodes(tree)
    if not nodes:
        return
    container, key = _pick(nodes, rng)
    change = rng.integers(5)
    if change <= 1:
        container[key] = copy.deepcopy(_pick(HOSTILE, rng))
    elif change == 2:
        del container[key]
    elif change == 3:
        other, its_key = _pick(nodes, rng)
        container[key] = copy.deepcopy(other[its_key])
    elif isinstance(container, dict):
        container[_pick(["fit", "__init__", "posterior_", "x", ""], rng)] = container[key]
    else:
        container.insert(0, copy.deepcopy(container[key]))
