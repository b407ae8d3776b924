"""Rows that live elsewhere read like an array, and are scaled as a whole array would be."""

from pathlib import Path

import numpy as np
import pytest

import bagwise as bw
from bagwise.bags.rows import (
    RowRange,
    RowSource,
    ScaledRows,
    blocks,
    column_moments,
    column_range,
    is_elsewhere,
)
from bagwise.models._preparation import kmeans_points

X = np.random.default_rng(0).normal(1e4, 3.0, size=(10_000, 3))


class Ranges(RowSource):
    """A source that notes what is read of it."""

    def __init__(self, X: np.ndarray) -> None:
        self.values, self.shape, self.dtype = X, X.shape, X.dtype
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> np.ndarray:
        self.reads.append((start, stop))
        return self.values[start:stop].copy()


INDEX = np.random.default_rng(1).integers(0, len(X), 50)


@pytest.mark.parametrize(
    "key",
    [
        slice(3, 9),
        slice(None),
        slice(9, 3),
        slice(None, None, 999),
        slice(-5, None),
        INDEX,
        INDEX.tolist(),
        np.array([-1, 0, -1]),
        X[:, 0] > 1e4,
        np.zeros(0, dtype=int),
        7,
        -1,
    ],
    ids=str,
)
def test_source_is_indexed_like_an_array(key: object) -> None:
    np.testing.assert_array_equal(Ranges(X)[key], X[key])


def test_source_reads_each_block_once() -> None:
    source = Ranges(X)
    source[INDEX]
    starts = [start // 4096 for start, _ in source.reads]
    assert len(starts) == len(set(starts)) <= 3
    assert sum(stop - start for start, stop in source.reads) <= len(X)


def test_columns_of_a_source_are_refused() -> None:
    with pytest.raises(TypeError, match="take source\\[rows\\] first"):
        Ranges(X)[:, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("key", [slice(5, 4100), INDEX], ids=["range", "rows"])
def test_scaled_rows_are_the_scaled_array(dtype: type, key: object) -> None:
    shift, scale = X.mean(axis=0), np.array([1.0, 2.0, 3.0])
    Xt = X.astype(dtype)
    rows = ScaledRows(Xt, shift, scale)
    expected = ((Xt - shift) / scale).astype(dtype)
    assert rows[key].dtype == dtype and rows.shape == X.shape and rows.ndim == 2
    np.testing.assert_array_equal(rows[key], expected[key])
    np.testing.assert_array_equal(np.asarray(rows), expected)


def test_scaled_rows_cast() -> None:
    found = ScaledRows(X.astype(np.float32), np.zeros(3), np.ones(3), np.float64)[:10]
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, X[:10].astype(np.float32))


def test_a_range_is_read_when_it_is_looked_at() -> None:
    source = Ranges(X)
    part = RowRange(source, slice(10, 20))
    assert len(part) == 10 and not source.reads
    np.testing.assert_array_equal(np.asarray(part, dtype=np.float64), X[10:20])
    assert source.reads == [(10, 20)]


@pytest.mark.parametrize("n", [1, 4095, 4096, 4097, 10_000])
def test_blocks_cover_all_rows(n: int) -> None:
    assert np.concatenate([np.arange(n)[b] for b in blocks(n)]).tolist() == list(range(n))


@pytest.mark.parametrize("n", [1, 2, 5000, 10_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_are_those_of_the_whole(n: int, dtype: type) -> None:
    part = X[:n].astype(dtype)
    mean, variance = column_moments(part)
    exact = part.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(variance, exact.var(axis=0), rtol=1e-9)


def test_constant_columns_have_no_variance() -> None:
    assert np.all(np.sqrt(column_moments(np.full((9000, 2), 0.1))[1]) < 1e-13)


def test_what_is_elsewhere(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "X", dtype=np.float32, mode="w+", shape=(4, 2))
    assert is_elsewhere(mapped)
    assert is_elsewhere(np.asarray(mapped)[1:])
    assert is_elsewhere(ScaledRows(np.asarray(mapped), np.zeros(2), np.ones(2)))
    assert is_elsewhere(Ranges(X))
    assert not is_elsewhere(X[1:])
    assert not is_elsewhere(ScaledRows(X, np.zeros(3), np.ones(3)))


def test_inducing_points_read_only_the_rows_they_use() -> None:
    source = Ranges(np.asarray(X))
    group = (np.arange(len(X)) > 5000).astype(np.int64)
    found = kmeans_points(source, group, 4, np.random.default_rng(0))
    np.testing.assert_array_equal(found, kmeans_points(X, group, 4, np.random.default_rng(0)))


def test_ranges_of_columns_are_found_block_by_block() -> None:
    source = Ranges(X)
    for found, expected in zip(column_range(source), column_range(X), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert max(stop - start for start, stop in source.reads) <= 4096


class Counted(RowSource):
    """A source over an array."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = X
        self.shape, self.dtype = X.shape, X.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.X[start:stop]


def test_rows_out_of_range_are_refused_and_iteration_ends() -> None:
    rows = Counted(np.arange(10.0).reshape(5, 2))
    for index in (5, -6, [0, 5], np.array([-6])):
        with pytest.raises(IndexError, match="rows go from 0 to 4"):
            rows[index]
    with pytest.raises(IndexError, match="a mask of 5 rows"):
        rows[np.ones(4, dtype=bool)]
    assert len(list(rows)) == 5
    np.testing.assert_array_equal(rows[-1], [8.0, 9.0])


def test_float32_is_rounded_after_scaling() -> None:
    rng = np.random.default_rng(0)
    X = 1e8 + rng.normal(size=(200, 1))
    y = np.arange(40) % 2
    X[np.repeat(y == 1, 5) & (np.arange(200) % 5 == 0)] += 6
    bags = bw.Bags.from_arrays(X, np.arange(200) // 5, y=y)
    settings = {"n_inducing": 10, "standardize": True, "random_state": 0}
    wide, narrow = (bw.ProbitVGPMIL(dtype=d, **settings).fit(bags) for d in (None, "float32"))
    np.testing.assert_allclose(narrow.predict_proba(bags), wide.predict_proba(bags), atol=1e-3)
