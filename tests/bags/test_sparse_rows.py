"""Sparse features stay sparse in Bags, and models see the numbers that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import TruncatedSVD

import bagwise as bw
from bagwise.bags.graphs import check_graph
from bagwise.bags.rows import column_moments, column_range, is_elsewhere, row_digest
from bagwise.bags.sparse_rows import SparseRows
from bagwise.baselines import MeanPoolLogistic

FORMATS = [sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_array]


def counts(n_rows: int, n_features: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).poisson(0.1, (n_rows, n_features)).astype(np.float64)


def text_bags(n_bags: int = 24, n_features: int = 300, size: int = 4) -> tuple[bw.Bags, bw.Bags]:
    """The same bags with dense and with sparse features; witnesses have other words."""
    X, y = counts(n_bags * size, n_features), np.arange(n_bags) % 2
    X[np.flatnonzero(y) * size, :5] += 4
    ids = np.repeat(np.arange(n_bags), size)
    return bw.Bags.from_arrays(X, ids, y=y), bw.Bags.from_arrays(sparse.csr_array(X), ids, y=y)


@pytest.mark.parametrize("kind", FORMATS)
def test_all_formats_and_orders_of_rows(kind: Any) -> None:
    X, ids = counts(6, 5), [2, 1, 2, 0, 1, 0]
    dense, bags = bw.Bags.from_arrays(X, ids), bw.Bags.from_arrays(kind(X), ids)
    assert isinstance(bags.X, SparseRows)
    np.testing.assert_array_equal(bags.X[:], dense.X)
    np.testing.assert_array_equal(bags.row_index, dense.row_index)
    for chosen in (slice(1, 3), [2, 0], np.array([True, False, True])):
        part = bags[chosen]
        assert isinstance(part.X, SparseRows)
        np.testing.assert_array_equal(part.X[:], dense[chosen].X)


def test_lists_and_joined_bags() -> None:
    X = counts(6, 5)
    bags = bw.Bags.from_list([sparse.csr_array(X[:2]), X[2:3], sparse.coo_array(X[3:])])
    twice = bw.Bags.concat([bags, bags])
    for found, whole in ((bags, X), (twice, np.vstack([X, X]))):
        assert isinstance(found.X, SparseRows)
        np.testing.assert_array_equal(found.X[:], whole)


def test_moments_range_and_digest_are_those_of_the_numbers() -> None:
    X = counts(50, 7)
    X[:, 3], X[:, 4] = 0.0, 1e8 + np.arange(50)
    rows = SparseRows(X)
    assert not is_elsewhere(rows)
    for found, expected in zip(column_moments(rows), column_moments(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    for found, expected in zip(column_range(rows), column_range(X), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert row_digest(rows) == row_digest(X)


def test_entries_that_occur_twice_add_up_and_integers_become_float() -> None:
    rows = SparseRows(sparse.coo_array(([1, 2], ([0, 0], [1, 1])), shape=(1, 3)))
    np.testing.assert_array_equal(rows[:], [[0.0, 3.0, 0.0]])


def test_sums_of_small_integers_do_not_overflow() -> None:
    twice = (np.array([100, 100], dtype=np.int8), ([0, 0], [1, 1]))
    X = sparse.coo_array(twice, shape=(1, 3))
    np.testing.assert_array_equal(bw.Bags.from_arrays(X, [0]).X[:], [[0.0, 200.0, 0.0]])
    np.testing.assert_array_equal(bw.Bags.from_list([X]).X[:], [[0.0, 200.0, 0.0]])


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "bsr_array"])
def test_indices_beyond_the_matrix_are_refused(kind: str) -> None:
    X = getattr(sparse, kind)(np.eye(3))
    X.indices[1] = 500
    with pytest.raises(ValueError, match="no valid sparse matrix"):
        bw.Bags.from_arrays(X, [0, 0, 1])


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "bsr_array"])
@pytest.mark.parametrize(
    "starts", [[0, 7, 7, 0], [0, 3, 3, -1], [0, 2**31 - 1, -(2**31), 0], [1, 1, 1, 3], [0, 2, 1, 3]]
)
def test_pointers_beyond_the_matrix_are_refused(kind: str, starts: list[int]) -> None:
    """SciPy takes them where the last is 0, and then reads and writes what is not its own."""
    X = getattr(sparse, kind)(np.eye(3))
    X.indptr[:] = starts
    with pytest.raises(ValueError, match="index pointers must begin with 0 and never fall"):
        bw.Bags.from_arrays(X, [0, 0, 1])
    with pytest.raises(ValueError, match="index pointers must begin with 0 and never fall"):
        check_graph(X, [0, 3])


def test_the_matrix_that_was_passed_stays_as_it_is() -> None:
    X = sparse.csr_array((np.ones(2), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    bw.Bags.from_arrays(X, [0])
    assert X.nnz == 2


def test_errors_name_bag_row_and_feature() -> None:
    X = counts(4, 3)
    X[2, 1] = np.inf
    with pytest.raises(ValueError, match=r"infinity.*: bag 'b', row 0 of that bag .*feature 1"):
        bw.Bags.from_arrays(sparse.csr_array(X), ["a", "a", "b", "b"])
    X[2, 1] = np.nan
    bags = bw.Bags.from_arrays(sparse.csr_array(X), ["a", "a", "b", "b"], y=[0, 1])
    with pytest.raises(ValueError, match=r"NaN: bag 'b', row 0 of that bag .*feature 1"):
        bw.MIRVM().fit(bags)
    with pytest.raises(ValueError, match="bag 1: Found array with 0 sample"):
        bw.Bags.from_list([sparse.csr_array(X[:2]), sparse.csr_array((0, 3))])


MODELS = {
    "MIRVM": bw.MIRVM(random_state=0),
    "MILogisticRegression": bw.MILogisticRegression(alpha=1.0, random_state=0),
    "MILogisticRegression, kernel": bw.MILogisticRegression(
        kernel=bw.kernels.RBF(1.0, 20.0), n_basis=10, random_state=0
    ),
    "ProbitVGPMIL": bw.ProbitVGPMIL(n_inducing=20, random_state=0),
    "VGPMIL": bw.VGPMIL(n_inducing=20, learn_hyperparameters=False, mean=-2.0, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_see_the_numbers_that_sparse_features_stand_for(name: str) -> None:
    dense, bags = text_bags()
    expected = MODELS[name].fit(dense).predict_proba(dense)
    assert MODELS[name].fit(bags).predict_proba(bags) == pytest.approx(expected, abs=1e-7)
    both = [MODELS[name].predict_instance_proba(b) for b in (bags, dense)]
    assert both[0] == pytest.approx(both[1], abs=1e-7)


def test_selected_features_of_sparse_bags_stay_sparse() -> None:
    dense, bags = text_bags()
    model = bw.MIRVM(random_state=0, support_z=0.0).fit(bags)
    chosen = model.transform(bags)
    assert isinstance(chosen.X, SparseRows)
    np.testing.assert_array_equal(chosen.X[:], dense.X[:, model.get_support()])
    rows = model.transform(bags.X.matrix)
    np.testing.assert_array_equal(rows.toarray(), chosen.X[:])


def test_rvm_takes_a_sparse_matrix() -> None:
    dense, bags = text_bags(40, size=1)
    p = bw.RVM(random_state=0).fit(bags.X.matrix, bags.y).predict_proba(bags.X.matrix)
    expected = bw.RVM(random_state=0).fit(dense.X, dense.y).predict_proba(dense.X)
    assert p == pytest.approx(expected, abs=1e-7)


def test_too_many_weights_for_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, bags = text_bags()
    monkeypatch.setattr("bagwise.models._linear.free_memory", lambda: 8 * 96 * 300)
    for model in (bw.MILogisticRegression(), bw.MIRVM()):
        with pytest.raises(ValueError, match=r"300 weights to 96 instances .*use ProbitVGPMIL"):
            model.fit(bags)
    monkeypatch.setattr("bagwise.models._linear.free_memory", lambda: 8 * 300**2)  # no D x D
    bw.MILogisticRegression(random_state=0).fit(bags)


def test_fewer_features_by_a_transformer_of_scikit_learn() -> None:
    dense, bags = text_bags()
    svd = bw.InstanceTransformer(TruncatedSVD(3, random_state=0)).fit(bags)
    assert pytest.approx(svd.transform(dense).X, abs=1e-9) == svd.transform(bags).X


@pytest.mark.parametrize("method", ["fit", "predict"])
def test_baselines_refuse_sparse_features(method: str) -> None:
    dense, bags = text_bags()
    model = MeanPoolLogistic().fit(dense)
    with pytest.raises(TypeError, match=r"MeanPoolLogistic takes dense .* sparse: .*toarray"):
        getattr(model, method)(bags)


def test_several_classes() -> None:
    dense, bags = text_bags()
    model = bw.OneVsRestMIL(
        bw.ProbitVGPMIL(n_inducing=10, learn_hyperparameters=False, random_state=0)
    )
    y = np.arange(len(bags)) % 3
    expected = model.fit(dense, y).predict_proba(dense)
    assert model.fit(bags, y).predict_proba(bags) == pytest.approx(expected, abs=1e-7)
