"""Chunks are cut between bags, carry the right labels, and add up to the whole."""

import numpy as np
import pytest

from bagwise.core.features import Features, in_single_precision, whitener
from bagwise.core.inference.passes import (
    CHUNK_ENTRIES,
    DEFAULT_CHUNK,
    FeatureSource,
    Sweeper,
    TrainingData,
    bag_cuts,
    by_chunk,
    rows_per_chunk,
)
from bagwise.core.inference.stats import Chunk
from bagwise.kernels import RBF

SIZES = np.array([3, 1, 12, 2, 2, 5, 1])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
N = int(OFFSETS[-1])
T = np.array([True, False, True, False, True, False, True])
KNOWN = np.where(np.arange(N) < 16, np.nan, np.arange(N) % 2)
X = np.random.default_rng(0).normal(size=(N, 2))
WHITENER = whitener(RBF(), X[:4], 1e-6)


def chunks_of(data: TrainingData, features: Features) -> list[Chunk]:
    source = FeatureSource(data, features)
    return [source.chunk(i) for i in range(len(source))]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 12, 13, 25, 26, 1000])
def test_cuts_are_whole_bags_within_the_size(size: int) -> None:
    cuts = bag_cuts(OFFSETS, size)
    assert cuts[0] == 0 and cuts[-1] == len(SIZES)
    assert np.all(np.diff(cuts) >= 1)
    rows = np.diff(OFFSETS[cuts])
    assert np.all((rows <= size) | (np.diff(cuts) == 1)), "only a single bag may exceed the size"
    merged = OFFSETS[cuts[2:]] - OFFSETS[cuts[:-2]]
    first_of_next = SIZES[cuts[1:-1]]
    assert np.all(rows[:-1] + first_of_next > size), "each chunk takes as many bags as fit"
    assert np.all(merged > size) or size >= N


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, range(8)), (4, [0, 2, 3, 5, 6, 7]), (16, [0, 3, 7]), (26, [0, 7]), (99, [0, 7])],
)
def test_cuts(size: int, expected: object) -> None:
    np.testing.assert_array_equal(bag_cuts(OFFSETS, size), list(expected))


def test_a_bag_larger_than_a_chunk_is_one_chunk() -> None:
    chunks = chunks_of(TrainingData(X, OFFSETS, T, None, chunk_size=4), WHITENER)
    big = chunks[1]
    assert len(big.X) == 12 and len(big.A) == 12
    assert big.targets.sizes.tolist() == [12] and big.start == 4


@pytest.mark.parametrize("size", [1, 5, 16, None])
def test_chunks_partition_the_data(size: int | None) -> None:
    chunks = chunks_of(TrainingData(X, OFFSETS, T, KNOWN, size), WHITENER)
    np.testing.assert_array_equal(np.concatenate([c.X for c in chunks]), X)
    np.testing.assert_array_equal(np.concatenate([c.targets.T for c in chunks]), T)
    np.testing.assert_array_equal(np.concatenate([c.targets.sizes for c in chunks]), SIZES)
    assert [c.start for c in chunks] == list(np.cumsum([0] + [len(c.X) for c in chunks])[:-1])
    A, kt = WHITENER(X)
    np.testing.assert_allclose(np.concatenate([c.A for c in chunks]), A, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.concatenate([c.kt for c in chunks]), kt, atol=1e-9)
    for chunk in chunks:
        ends = np.append(chunk.targets.starts[1:], len(chunk.X))
        np.testing.assert_array_equal(ends - chunk.targets.starts, chunk.targets.sizes)


def test_targets_carry_the_known_labels_of_their_rows() -> None:
    data = TrainingData(X, OFFSETS, T, KNOWN)
    targets = data.targets(3, 6)
    np.testing.assert_array_equal(targets.starts, [0, 2, 4])
    np.testing.assert_array_equal(targets.T, [False, True, False])
    np.testing.assert_array_equal(targets.known, KNOWN[16:25])
    np.testing.assert_array_equal(targets.free, np.zeros(9, dtype=bool))
    np.testing.assert_array_equal(targets.settled, [True, True, True])


def test_chunks_without_known_labels_say_so() -> None:
    data = TrainingData(X, OFFSETS, T, KNOWN)
    assert data.targets(0, 3).known is None
    assert data.targets(2, 4).known is not None
    assert TrainingData(X, OFFSETS, T).targets(0, 7).known is None


@pytest.mark.parametrize("size", [1, 7, None])
def test_sweeper_adds_over_chunks(size: int | None) -> None:
    sweeper = Sweeper(TrainingData(X, OFFSETS, T, None, size), WHITENER)
    np.testing.assert_allclose(sweeper.total(lambda c: c.X.sum(axis=0)), X.sum(axis=0))
    assert sweeper.total(lambda c: len(c.targets.T)) == len(T)


def test_some_rows_keep_their_bags_labels_and_weights() -> None:
    data = TrainingData(X, OFFSETS, T, KNOWN, 5)
    rows = np.array([0, 2, 5, 9, 18, 22, 25])  # none of bags 1, 3
    part = data.of_rows(rows, rows + 1.0)
    np.testing.assert_array_equal(part.X, X[rows])
    np.testing.assert_array_equal(part.offsets, [0, 2, 4, 5, 6, 7])
    np.testing.assert_array_equal(part.T, T[[0, 2, 4, 5, 6]])
    np.testing.assert_array_equal(part.known, KNOWN[rows])
    targets = part.targets(1, 4)
    np.testing.assert_array_equal(targets.weights, rows[2:6] + 1.0)
    np.testing.assert_array_equal(targets.sizes, [2, 1, 1])


def test_data_in_memory_are_the_data() -> None:
    part = TrainingData(X.astype(np.float32), OFFSETS, T, KNOWN, 5).in_memory()
    np.testing.assert_array_equal(part.X, X.astype(np.float32))
    assert part.X.dtype == np.float64 and part.weights is None
    assert part.targets(0, 7).weights is None


@pytest.mark.parametrize("size", [1, 7, None])
def test_one_pass_adds_over_chunks(size: int | None) -> None:
    data = TrainingData(X, OFFSETS, T, None, size)
    np.testing.assert_allclose(data.one_pass(WHITENER, lambda c: c.X.sum(axis=0)), X.sum(axis=0))


@pytest.mark.parametrize(("limit", "dtype"), [(0, np.float32), (10**9, np.float64)])
def test_many_features_are_kept_in_the_dtype_of_the_data(
    limit: int, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bagwise.core.inference.passes.FLOAT64_FEATURES", limit)
    data = TrainingData(X.astype(np.float32), OFFSETS, T)
    chunk = chunks_of(data, whitener(RBF(1.0, 1.0), X[:3].astype(float), 1e-6))[0]
    assert chunk.A.dtype == chunk.kt.dtype == dtype


def test_features_of_large_data_are_made_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = TrainingData(X, OFFSETS, T)
    whole = chunks_of(data, WHITENER)[0]
    monkeypatch.setattr("bagwise.core.inference.passes.FLOAT64_FEATURES", 0)
    monkeypatch.setattr("bagwise.core.inference.passes.FEATURE_ROWS", 3)
    blocks = chunks_of(data, WHITENER)[0]
    np.testing.assert_allclose(blocks.A, whole.A, atol=1e-12)
    np.testing.assert_allclose(blocks.kt, whole.kt, atol=1e-12)


def test_float32_features_are_the_same_wherever_they_are_made() -> None:
    """Parts of large data, each of them few rows, are told the dtype of the whole."""
    single = X.astype(np.float32)
    data = TrainingData(single, OFFSETS, T)
    told = FeatureSource(data, WHITENER, np.float32).chunk(0).A
    np.testing.assert_array_equal(told, in_single_precision(WHITENER)(single[: len(told)])[0])


@pytest.mark.parametrize(
    ("n_basis", "chunks", "rows"),
    [(None, 64, 1), (2, 64, 4), (2, 32, 2), (2, 8, 1), (2**20, 64, 1)],
)
def test_predictions_see_more_bags_where_these_are_few_numbers(
    n_basis: int | None, chunks: int, rows: int
) -> None:
    offsets = np.arange(0, chunks * DEFAULT_CHUNK + 1, 8)
    found = by_chunk(np.zeros((offsets[-1], 2)), offsets, lambda some, *_: len(some), n_basis)
    assert found == [rows * DEFAULT_CHUNK] * (chunks // rows)


def test_wide_data_are_cut_into_small_chunks() -> None:
    assert rows_per_chunk(5000) * 5000 <= CHUNK_ENTRIES < rows_per_chunk(1) * 5000
    offsets = np.arange(0, 2001, 10)
    wide = TrainingData(np.zeros((2000, 5000), dtype=np.float32), offsets, np.arange(200) % 2 == 1)
    assert np.all(np.diff(offsets[wide.cuts]) <= rows_per_chunk(5000))


def test_given_features_take_the_place_of_computed_ones() -> None:
    A, kt = WHITENER(X)
    data = TrainingData(X, OFFSETS, T, KNOWN, 7, given=(2 * A, kt))
    for found, own in zip(Sweeper(data, WHITENER).chunks, data.cuts, strict=False):
        rows = slice(OFFSETS[own], OFFSETS[own] + len(found.kt))
        np.testing.assert_array_equal(found.A, 2 * A[rows])
        np.testing.assert_array_equal(found.kt, kt[rows])


def test_parts_of_large_data_check_their_float32_as_the_whole_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A part that a worker has may be small by itself."""
    monkeypatch.setattr("bagwise.core.inference.passes.FEATURE_ROWS", 10)
    asked: list[int] = []

    class Counting(type(WHITENER)):  # type: ignore[misc]
        def __call__(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            asked.append(len(X))
            A, kt = super().__call__(X)
            return A, kt

    counting = Counting(WHITENER.kernel, WHITENER.Z, WHITENER.L, WHITENER.L_inv)
    data = TrainingData(X, OFFSETS, T, chunk_size=1000)
    source = FeatureSource(data, counting, np.float32)
    assert not source.large
    chunk = source.chunk(0)
    np.testing.assert_allclose(chunk.A, WHITENER(X)[0], atol=1e-5)
    assert chunk.A.dtype == np.float32 and sum(asked[1:]) >= 3 * 8  # of three blocks
