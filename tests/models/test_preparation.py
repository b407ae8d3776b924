"""Where inducing points go."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans, kmeans_plusplus

from bagwise.models import _preparation
from bagwise.models._preparation import equal_shares, far_apart, kmeans_points


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_few_instances_are_all_taken() -> None:
    X = np.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(kmeans_points(X, np.zeros(4, dtype=int), 4, rng()), X)
    np.testing.assert_array_equal(kmeans_points(X, np.arange(4), 100, rng()), X)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_number_of_centres(n: int) -> None:
    X = rng().normal(size=(60, 3))
    Z = kmeans_points(X, np.repeat([0, 1], [45, 15]), n, rng())
    assert Z.shape == (n, 3) and Z.dtype == np.float64


def test_centres_stay_within_their_group() -> None:
    X = np.concatenate([rng().normal(0, 0.1, (90, 1)), rng().normal(10, 0.1, (10, 1))])
    Z = kmeans_points(X, np.repeat([0, 1], [90, 10]), 8, rng())
    assert np.sum(Z < 5) == np.sum(Z > 5) == 4
    assert np.all((np.abs(Z) < 1) | (np.abs(Z - 10) < 1))


def test_a_small_group_gives_all_its_members() -> None:
    X = np.concatenate([rng().normal(size=(50, 1)), [[100.0], [200.0]]])
    Z = kmeans_points(X, np.repeat([0, 2], [50, 2]), 10, rng())
    assert len(Z) == 10
    assert {100.0, 200.0} <= set(Z.ravel())


def test_the_same_seed_gives_the_same_points() -> None:
    X, group = rng().normal(size=(80, 4)), np.repeat([0, 1], 40)
    first, second = (kmeans_points(X, group, 12, rng()) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = kmeans_points(X, group, 12, np.random.default_rng(1))
    assert not np.array_equal(first, other)


def test_duplicated_instances_do_not_warn() -> None:
    Z = kmeans_points(np.zeros((30, 2)), np.repeat([0, 1], 15), 6, rng())
    np.testing.assert_array_equal(Z, np.zeros((6, 2)))


def test_float32_instances_give_float64_points() -> None:
    X = rng().normal(size=(30, 2)).astype(np.float32)
    for n in (4, 100):
        assert kmeans_points(X, np.repeat([0, 1], 15), n, rng()).dtype == np.float64


@pytest.mark.parametrize(
    ("counts", "n", "expected"),
    [
        ([10, 10], 6, [3, 3]),
        ([2, 10], 6, [2, 4]),
        ([10, 1, 10], 9, [4, 1, 4]),
        ([5, 5], 1, [0, 1]),
        ([3], 2, [2]),
    ],
)
def test_equal_shares(counts: list[int], n: int, expected: list[int]) -> None:
    np.testing.assert_array_equal(equal_shares(np.array(counts), n), expected)


def test_centres_of_wide_features_are_as_good_as_those_of_all_of_them() -> None:
    draw = rng()
    X = draw.normal(size=(600, 20)) @ draw.normal(size=(20, 400))
    group = np.zeros(600, dtype=np.int64)

    def inertia(Z: np.ndarray) -> float:
        return float(np.sum(np.min(cdist(X, Z, "sqeuclidean"), axis=1)))

    wide = inertia(kmeans_points(X, group, 30, rng()))
    whole = KMeans(30, n_init=1, random_state=0).fit(X).inertia_
    assert wide < 1.05 * whole
    again = inertia(kmeans_points(X, group, 30, rng()))
    assert again == wide


def test_wide_features_with_fewer_distinct_instances_than_centres() -> None:
    X = np.repeat(np.eye(5, 300), 20, axis=0)
    Z = kmeans_points(X, np.zeros(100, dtype=np.int64), 10, rng())
    assert Z.shape == (10, 300)
    assert np.all(np.isfinite(Z))


@pytest.mark.parametrize("seed", range(4))
def test_rows_far_apart_are_those_of_scikit_learn(seed: int) -> None:
    half = np.random.default_rng(seed).integers(-1000, 1000, (150, 6)).astype(float)
    X = np.concatenate([half, -half])  # centred, so that all distances are exact
    expected = kmeans_plusplus(X, 40, random_state=seed)[1]
    np.testing.assert_array_equal(far_apart(X, 40, seed), expected)
    np.testing.assert_array_equal(far_apart(X.astype(np.float32), 40, seed), expected)


def test_more_rows_than_distances_are_kept_of_give_as_good_centres(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, group = rng().normal(size=(300, 4)), np.zeros(300, dtype=np.int64)
    few = kmeans_points(X, group, 20, rng())
    monkeypatch.setattr(_preparation, "FEW_ROWS", 100)
    many = kmeans_points(X, group, 20, rng())
    np.testing.assert_allclose(few, many, atol=1e-10)
