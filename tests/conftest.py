"""Fixtures shared by all tests: where the shared data is and how it is read."""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

PROJECT_ROOT = Path(__file__).resolve().parent.parent

Arrays = dict[str, np.ndarray]


def find_shared_dir() -> Path:
    """Directory with the shared data; skips the calling test where there is none."""
    named = os.environ.get("BAGWISE_SHARED")
    path = Path(named) if named else PROJECT_ROOT.parent / "shared"
    if not (path / "data").is_dir():
        pytest.skip(f"no shared data at {path}; set BAGWISE_SHARED to its directory")
    return path


@lru_cache(maxsize=4)
def _read_arrays(path: Path) -> Arrays:
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.npz")))
        raise FileNotFoundError(f"no {path.name} in {path.parent}; there are: {known}")
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for array in arrays.values():
        # Tests share the cached arrays, so none may change them for the next one.
        array.flags.writeable = False
    return arrays


@pytest.fixture
def shared_dir() -> Path:
    """Directory with the shared data."""
    return find_shared_dir()


@pytest.fixture
def load_shared(shared_dir: Path) -> Callable[[str], Arrays]:
    """`load_shared("musk1")` gives the read-only arrays of data/musk1.npz as a dict."""
    return lambda name: dict(_read_arrays(shared_dir / "data" / f"{name}.npz"))


@pytest.fixture
def load_oracle(shared_dir: Path) -> Callable[[str], Arrays]:
    """`load_oracle("peers_a")` gives the read-only arrays of oracles/peers_a.npz as a dict."""
    return lambda name: dict(_read_arrays(shared_dir / "oracles" / f"{name}.npz"))
