"""Fixtures shared by all tests: where the shared data is and how it is read."""

import os
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from data_files import Handler

PROJECT_ROOT = Path(__file__).resolve().parent.parent

Arrays = dict[str, np.ndarray]

# The suite tries the same few examples each time; `make test-long` many, and new ones.
_quiet = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
settings.register_profile(
    "suite",
    max_examples=20,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=_quiet,
)
settings.register_profile(
    "long", max_examples=400, deadline=None, print_blob=True, suppress_health_check=_quiet
)
settings.load_profile("long" if os.environ.get("BAGWISE_LONG_TESTS") else "suite")


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


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """`serve(cut_after=[...])` starts a server of tmp_path/site and gives its address."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda _: None)  # pooch waits between tries
    (tmp_path / "site").mkdir()
    servers = []

    def start(cut_after: tuple[int, ...] = ()) -> str:
        Handler.requests, Handler.cut_after = [], list(cut_after)
        handler = partial(Handler, directory=str(tmp_path / "site"))
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
