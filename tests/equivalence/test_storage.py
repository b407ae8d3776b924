"""Features in memory, in a scratch file or computed anew, X in memory or mapped: one result."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.features import Whitener, whitener
from bagwise.core.inference import feature_store as storage
from bagwise.core.inference.passes import FeatureSource, Sweeper, TrainingData
from bagwise.kernels import RBF

B, SIZE, D = 30, 5, 3
N = B * SIZE
MODELS: dict[str, Callable[..., Any]] = {
    "logistic": bw.VGPMIL,
    "factorised": lambda **k: bw.VGPMIL(label_posterior="factorised", H=100.0, **k),
    "gamma": bw.GammaVGPMIL,
    "large margin": bw.LargeMarginVGPMIL,
    "probit": bw.ProbitVGPMIL,
    "laplace": lambda **k: bw.ProbitVGPMIL(inference="laplace", **k),
    "ising": lambda **k: bw.IsingVGPMIL(neighbors="chain", **k),
    "learned coupling": lambda **k: bw.IsingVGPMIL(neighbors="chain", coupling="learn", **k),
}
each_model = pytest.mark.parametrize("name", MODELS)


def make_bags(X: Any = None) -> bw.Bags:
    y = np.arange(B) % 2
    return bw.Bags.from_arrays(features() if X is None else X, np.repeat(np.arange(B), SIZE), y=y)


def features(dtype: type = np.float64) -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)) * [1.0, 1.0, 30.0]
    X[np.arange(1, B, 2) * SIZE, 0] += 3
    return X.astype(dtype)


def fit(name: str, bags: bw.Bags, **settings: Any) -> Any:
    defaults = {"n_inducing": 10, "chunk_size": 40, "random_state": 0, "max_iter": 30, "tol": 1e-6}
    return MODELS[name](**defaults | settings).fit(bags)


def assert_same(found: Any, expected: Any, bags: bw.Bags, tolerance: float = 0.0) -> None:
    np.testing.assert_allclose(found.elbo_history_, expected.elbo_history_, rtol=tolerance)
    np.testing.assert_allclose(found.posterior_.m, expected.posterior_.m, atol=tolerance)
    p, q = (m.predict_instance_proba(bags) for m in (found, expected))
    np.testing.assert_allclose(p, q, atol=tolerance)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How features were kept, in order."""
    seen: list[str] = []

    def noted(*args: Any, **kwargs: Any) -> str:
        seen.append(plan(*args, **kwargs))
        return seen[-1]

    plan = storage.plan
    monkeypatch.setattr(storage, "plan", noted)
    return seen


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_model
@pytest.mark.parametrize("how", ["scratch", "recompute"])
def test_the_budget_does_not_change_the_fit(
    name: str, how: str, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = make_bags()
    expected = fit(name, bags)
    assert set(used) == {"memory"}
    monkeypatch.setattr(storage, "RECOMPUTE_BELOW", 0 if how == "scratch" else 10**6)
    found = fit(name, bags, memory_budget=0)
    assert how in used
    assert_same(found, expected, bags)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_gibbs_never_computes_features_anew(used: list[str]) -> None:
    settings = {"inference": "gibbs", "n_samples": 8, "burn_in": 2, "n_chains": 2, "thin": 1}
    bags = make_bags()
    models = [
        bw.ProbitVGPMIL(n_inducing=10, random_state=0, memory_budget=b, **settings).fit(bags)
        for b in (None, 0)
    ]
    assert used[-1] == "scratch" and "recompute" not in used
    np.testing.assert_array_equal(models[0].gibbs_.v, models[1].gibbs_.v)


def parts(budget: int) -> tuple[TrainingData, Whitener]:
    X = features()
    data = TrainingData(X, np.arange(0, N + 1, SIZE), np.arange(B) % 2 == 1, None, 40, None, budget)
    return data, whitener(RBF(1.0, 5.0), X[:80], 1e-6)


def sweeper(budget: int, **how: bool) -> Sweeper:
    return Sweeper(*parts(budget), **how)


def test_the_scratch_file_vanishes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept, memory = sweeper(0), sweeper(10**9)
    for mapped, plain in zip(kept.chunks, memory.chunks, strict=True):
        np.testing.assert_array_equal(mapped.A, plain.A)
        assert not mapped.A.flags.writeable
    del kept, mapped
    gc.collect()
    assert os.listdir(tmp_path) == []


def test_a_failed_scratch_file_vanishes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def full(chunks: Any, file: Any) -> Any:
        file.write(b"begun")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "_written", full)
    with pytest.raises(OSError, match="No space left"):
        sweeper(0)
    assert os.listdir(tmp_path) == []


def test_without_room_features_are_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    assert isinstance(sweeper(0).chunks, storage.RecomputedChunks)
    with pytest.raises(OSError, match="raise memory_budget, lower n_inducing, or set TMPDIR"):
        sweeper(0, recompute=False)


def test_recomputed_chunks_are_a_sequence() -> None:
    chunks = sweeper(10**9).chunks
    again = storage.RecomputedChunks(FeatureSource(*parts(0)))
    assert len(again) == len(chunks)
    assert [c.start for c in again] == [c.start for c in chunks]
    assert again[-1].start == chunks[-1].start
    assert [c.start for c in again[1:]] == [c.start for c in chunks[1:]]
    with pytest.raises(IndexError, match=f"chunk {len(chunks)} of {len(chunks)}"):
        again[len(chunks)]


def test_budget_follows_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < storage.free_memory() < 2**50
    monkeypatch.setattr(storage, "free_memory", lambda: 1000)
    assert storage.default_budget(False) == 500
    assert storage.default_budget(True) == 2**28


def test_free_memory_heeds_a_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(storage, "_CGROUP", str(tmp_path))
    free = storage.free_memory()
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 300000\n")
    assert storage.free_memory() == 400_000 < free
    (tmp_path / "memory.max").write_text("max\n")
    assert storage.free_memory() > 400_000


@pytest.mark.parametrize("wrong", [-1, np.nan, "1GB", True])
def test_wrong_budgets_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="memory_budget \\(bytes\\) must be a finite number"):
        bw.VGPMIL(memory_budget=wrong).fit(make_bags())


# --- X in a memory map ------------------------------------------------------------------------


def mapped(folder: Path, X: np.ndarray) -> np.ndarray:
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


def test_bags_do_not_copy_a_memory_map(tmp_path: Path) -> None:
    X = mapped(tmp_path, features(np.float32))
    bags = make_bags(X)
    assert np.shares_memory(bags.X, X)
    assert np.shares_memory(bags[3:9].X, X)
    assert np.shares_memory(bags.with_labels(np.arange(B)).X, X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_model
@pytest.mark.parametrize("standardize", [True, False])
def test_a_memory_map_fits_like_an_array(name: str, standardize: bool, tmp_path: Path) -> None:
    X = features()
    bags, plain = make_bags(mapped(tmp_path, X)), make_bags(X)
    found = fit(name, bags, standardize=standardize)
    expected = fit(name, plain, standardize=standardize)
    assert_same(found, expected, plain)
    np.testing.assert_array_equal(found.predict_proba(bags), expected.predict_proba(plain))


MEASURED = """
import sys, threading, time
import numpy as np
import bagwise as bw

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(x.split()[1]) for x in file if x.startswith("RssAnon"))

peak, running = 0, True
def watch():
    global peak
    while running:
        peak = max(peak, anonymous())
        time.sleep(0.002)

N, B = 300_000, 3000
X = np.memmap(sys.argv[1], dtype=np.float32, mode="r", shape=(N, 64))
small = bw.Bags.from_arrays(X[:2000], np.arange(2000) // 10, y=np.arange(200) % 2)
settings = dict(n_inducing=20, standardize=True, learn_hyperparameters=False, mean=-1.0, tol=1e-3)
bw.ProbitVGPMIL(random_state=0, **settings).fit(small).predict_instance_proba(small)  # warm up
start = anonymous()
thread = threading.Thread(target=watch)
thread.start()
bags = bw.Bags.from_arrays(X, np.arange(N) // 100, y=np.arange(B) % 2)
model = bw.ProbitVGPMIL(random_state=0, memory_budget=0, **settings).fit(bags)
model.predict_instance_proba(bags)
running = False
thread.join()
print(peak - start)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_memory_stays_bounded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with open(tmp_path / "X", "wb") as file:
        for _ in range(30):
            rng.standard_normal((10_000, 64), dtype=np.float32).tofile(file)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEASURED, str(tmp_path / "X")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kilobytes = int(done.stdout)
    # X takes 77 MB and as much again for every copy of it.
    assert kilobytes < 60_000, f"{kilobytes / 1000:.0f} MB of memory besides X"
