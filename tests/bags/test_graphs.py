"""Neighbour graphs against pairwise distances, and every rule they have to obey."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from bagwise.bags.graphs import check_graph, laplacian, neighbor_graph


def grid(rows: int, columns: int, stride: float = 1.0) -> np.ndarray:
    cells = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), axis=-1)
    return stride * cells.reshape(-1, 2)


def by_distance(coords: np.ndarray, offsets: list[int], metric: str, radius: float) -> np.ndarray:
    bag = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    near = cdist(coords, coords, metric) <= radius * (1 + 1e-9)
    return (near & (bag[:, None] == bag) & ~np.eye(len(bag), dtype=bool)).astype(float)


class TestGrid:
    @pytest.mark.parametrize("stride", [1.0, 0.1, 512.0])
    def test_cells_at_one_stride(self, stride: float) -> None:
        rng = np.random.default_rng(0)
        kept = [rng.permutation(grid(7, 9, stride))[:50], grid(3, 4, stride) + 17.3 * stride]
        coords = np.concatenate(kept)
        found = neighbor_graph(coords, [0, 50, 62]).toarray()
        np.testing.assert_array_equal(found, by_distance(coords, [0, 50, 62], "cityblock", stride))

    def test_stride_per_axis(self) -> None:
        coords = grid(5, 6) * [3.0, 10.0]
        expected = neighbor_graph(grid(5, 6), [0, 30]).toarray()
        np.testing.assert_array_equal(neighbor_graph(coords, [0, 30]).toarray(), expected)

    def test_stride_is_that_of_all_bags(self) -> None:
        coords = np.concatenate([grid(5, 5), [[0, 0], [0, 4]]])
        assert neighbor_graph(coords, [0, 25, 27])[[25], :].nnz == 0

    def test_a_stray_point_does_not_spoil_the_grid(self) -> None:
        coords = np.concatenate([grid(8, 8), [[3.4, 2.77]]])
        found = neighbor_graph(coords, [0, 65]).toarray()
        np.testing.assert_array_equal(
            found[:64, :64], by_distance(grid(8, 8), [0, 64], "cityblock", 1.0)
        )

    def test_rounded_coordinates(self) -> None:
        coords = grid(6, 6, 1 / 3) + np.random.default_rng(0).normal(0, 1e-4, (36, 2))
        expected = by_distance(grid(6, 6), [0, 36], "cityblock", 1.0)
        np.testing.assert_array_equal(neighbor_graph(coords, [0, 36]).toarray(), expected)

    def test_three_dimensions_and_one(self) -> None:
        cube = np.stack(np.meshgrid(*[np.arange(3.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
        expected = by_distance(cube, [0, 27], "cityblock", 1.0)
        np.testing.assert_array_equal(neighbor_graph(cube, [0, 27]).toarray(), expected)
        line = neighbor_graph(2.5 * np.arange(5.0), [0, 5]).toarray()
        np.testing.assert_array_equal(line, neighbor_graph(None, [0, 5], "chain").toarray())

    def test_instances_that_share_a_cell(self) -> None:
        coords = np.array([[0, 0], [0, 0], [0, 1], [0, 2.0]])
        found = neighbor_graph(coords, [0, 4]).toarray()
        expected = by_distance(coords, [0, 4], "cityblock", 1.0)
        expected[0, 1] = expected[1, 0] = 0  # the same cell is not a neighbouring one
        np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize("n", [1, 2])
    def test_tiny_bags(self, n: int) -> None:
        found = neighbor_graph(np.zeros((n, 2)), [0, n])
        assert found.shape == (n, n)

    def test_large_bags_take_room_by_their_edges(self) -> None:
        coords = np.concatenate([grid(100, 100, 256.0) + 7.3 * i for i in range(20)])
        tracemalloc.start()
        try:
            W = neighbor_graph(coords, 10_000 * np.arange(21))
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert W.nnz == 20 * 4 * 100 * 99
        assert most < 200 * W.nnz  # one bag's distances alone would be 800 MB


class TestOtherRules:
    def test_scattered_points_get_their_nearest(self) -> None:
        coords = np.random.default_rng(1).normal(size=(60, 2))
        np.testing.assert_array_equal(
            neighbor_graph(coords, [0, 20, 60]).toarray(),
            neighbor_graph(coords, [0, 20, 60], ("knn", 4)).toarray(),
        )

    def test_whole_pixels_are_no_grid(self) -> None:
        coords = np.random.default_rng(1).integers(0, 500, (100, 2))
        W = neighbor_graph(coords, [0, 100])
        assert np.diff(W.indptr).min() >= 4

    def test_knn(self) -> None:
        coords = np.random.default_rng(2).normal(size=(30, 3))
        distance = cdist(coords, coords)
        np.fill_diagonal(distance, np.inf)
        nearest = distance <= np.sort(distance, axis=1)[:, [2]]
        found = neighbor_graph(coords, [0, 30], ("knn", 3)).toarray()
        np.testing.assert_array_equal(found, nearest | nearest.T)

    def test_knn_of_coinciding_points(self) -> None:
        W = neighbor_graph(np.zeros((6, 2)), [0, 6], ("knn", 2))
        assert W.diagonal().sum() == 0 and np.diff(W.indptr).min() >= 2

    def test_knn_in_bags_with_fewer_instances(self) -> None:
        W = neighbor_graph(np.arange(4.0), [0, 1, 4], ("knn", 10)).toarray()
        assert W[0].sum() == 0
        np.testing.assert_array_equal(W[1:, 1:], 1 - np.eye(3))

    def test_radius(self) -> None:
        coords = np.random.default_rng(3).normal(size=(40, 2))
        found = neighbor_graph(coords, [0, 1, 15, 40], ("radius", 0.7)).toarray()
        expected = by_distance(coords, [0, 1, 15, 40], "euclidean", 0.7)
        np.testing.assert_array_equal(found, expected)

    def test_chain(self) -> None:
        W = neighbor_graph(None, [0, 2, 3, 5], "chain").toarray()
        np.testing.assert_array_equal(np.argwhere(np.triu(W)), [[0, 1], [3, 4]])

    def test_given_graph(self) -> None:
        W = sparse.csr_array(np.array([[3.0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]]))
        found = neighbor_graph(None, [0, 2, 3], W)
        np.testing.assert_array_equal(found.toarray(), [[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])

    def test_laplacian_of_the_papers_example(self) -> None:
        links = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]  # [M24, Eq. 9-10]
        W = np.zeros((5, 5))
        for i, j in links:
            W[i, j] = W[j, i] = 1
        R = laplacian(check_graph(W, [0, 5])).toarray()
        np.testing.assert_array_equal(np.diag(R), [2, 2, 2, 3, 1])
        m = np.arange(5.0) ** 2
        assert m @ R @ m == sum((m[i] - m[j]) ** 2 for i, j in links)


class TestErrors:
    @pytest.mark.parametrize(
        ("W", "message"),
        [
            (np.zeros((2, 2)), r"shape \(3, 3\); got \(2, 2\)"),
            (np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0.0]]), "must be symmetric"),
            (np.array([[0, -1, 0], [-1, 0, 0], [0, 0, 0.0]]), "not be negative; got -1"),
            (np.array([[0, np.nan, 0], [np.nan, 0, 0], [0, 0, 0]]), "must be finite"),
            (np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0.0]]), "rows 1 and 2 of bags 0 and 1"),
        ],
    )
    def test_graph(self, W: np.ndarray, message: str) -> None:
        for graph in (W, sparse.csr_array(W), sparse.coo_matrix(W)):
            with pytest.raises(ValueError, match=message):
                neighbor_graph(None, [0, 2, 3], graph)

    @pytest.mark.parametrize(
        "rule", ["grid", 4, ("knn",), ("knn", 0), ("knn", 1.5), ("radius", -1.0), ("radius", "a")]
    )
    def test_rule(self, rule: object) -> None:
        with pytest.raises(ValueError, match="neighbors"):
            neighbor_graph(np.zeros((2, 2)), [0, 2], rule)

    @pytest.mark.parametrize("rule", ["auto", ("knn", 3), ("radius", 1.0)])
    def test_missing_coords(self, rule: object) -> None:
        with pytest.raises(ValueError, match=r'coordinates; the bags have none.*"chain"'):
            neighbor_graph(None, [0, 2], rule)

    @pytest.mark.parametrize("coords", [np.zeros((3, 2)), np.array([[0, 1], [np.nan, 1]])])
    def test_wrong_coords(self, coords: np.ndarray) -> None:
        with pytest.raises(ValueError, match="coords"):
            neighbor_graph(coords, [0, 2])
