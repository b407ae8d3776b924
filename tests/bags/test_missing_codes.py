"""Codes for missing values among features: found, named, and not seen where there are none."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.bags.rows import column_range, warn_of_missing_codes
from bagwise.io import Hdf5Rows
from toy_bags import separable_bags

RNG = np.random.default_rng(0)
N = 400
SETS = ["musk1", "musk2", "elephant", "fox", "tiger", "birds_hja", "colon_nuclei"]
SETS += ["newsgroups_hockey", "rsna_cnn8_0", "rsna_cnn8_1", "cq500_cnn8_0", "cq500_cnn8_1"]


def looked_at(X: np.ndarray, names: list[str] | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warn_of_missing_codes(X, *column_range(X), names)
    return [str(w.message) for w in said]


ORDINARY = {
    "normal": RNG.normal(size=N),
    "heavy tails": RNG.standard_cauchy(size=N),
    "income, capped": np.minimum(RNG.lognormal(9, 1, N), 9999.0),
    "counts to 999": RNG.integers(0, 1000, N) * 1.0,
    "counts, capped": np.minimum(RNG.geometric(0.002, N), 999).astype(float),
    "years": RNG.integers(1900, 2000, N) * 1.0,
    "sparse counts": RNG.poisson(0.02, N) * 1.0,
    "16 bits": np.append(RNG.integers(-32768, 32768, N - 4), [-32768, -32768, 32767, 32767.0]),
    "grey values": RNG.integers(-1024, 3000, N) * 1.0,
    "one odd value": np.append(RNG.normal(size=N - 1), -9999.0),
    "constant": np.full(N, -9999.0),
    "binary": RNG.integers(0, 2, N) * 1.0,
}


@pytest.mark.parametrize("kind", sorted(ORDINARY))
def test_ordinary_features_are_left_in_peace(kind: str) -> None:
    assert looked_at(np.column_stack([ORDINARY[kind], RNG.normal(size=N)])) == []


@pytest.mark.parametrize("name", SETS)
def test_real_sets_are_left_in_peace(name: str, load_shared: Callable[[str], Any]) -> None:
    assert looked_at(load_shared(name)["X"]) == []


@pytest.mark.parametrize("code", [-999.0, 999.0, -9999.0, 9999.0, 99999.0, -32768.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_codes_are_found(code: float, dtype: type) -> None:
    X = RNG.normal(20.0, 5.0, size=(N, 3)).astype(dtype)
    X[::50, 1] = code
    (message,) = looked_at(X, ["a", "age", "c"])
    assert f"'age' ({code:g}, 8 times)" in message and "'a' " not in message


def test_both_ends_and_many_features() -> None:
    X = RNG.normal(size=(N, 6))
    X[:2], X[2:5, 0] = -999.0, 9999.0
    (message,) = looked_at(X)
    assert "feature 0 (-999, 2 times), 0 (9999, 3 times), 1 (-999, 2 times) and 4 more" in message


@pytest.mark.parametrize("model", [bw.ProbitVGPMIL(), bw.MIRVM(), bw.OneVsRestMIL(bw.MIRVM())])
def test_a_fit_says_so_once(model: Any) -> None:
    bags = separable_bags(30, 3)
    X = bags.X.copy()
    X[::9, 2] = -9999.0
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(bags.with_X(X))
    assert sum("code for 'missing'" in str(w.message) for w in said) == 1


def test_rows_in_files(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    X = RNG.normal(size=(N, 2))
    X[[3, 300], 1] = 9999.0
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["features"] = X
    source = Hdf5Rows(tmp_path / "x.h5")
    with pytest.warns(UserWarning, match=r"feature 1 \(9999, 2 times\)"):
        warn_of_missing_codes(source, *column_range(source), None)
