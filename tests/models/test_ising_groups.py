"""Couplings that groups of bags have of their own."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bagwise as bw
from bagwise.bags.graphs import laplacian
from bagwise.core.features import whitener
from bagwise.core.inference.coupling import coupling_gains, group_gains
from bagwise.core.inference.passes import TrainingData
from bagwise.core.inference.stats import standard_q
from bagwise.core.likelihoods.coupled.blocks import Coupling
from bagwise.core.likelihoods.coupled.by_group import GroupCouplings
from bagwise.kernels import RBF

SETTINGS: dict[str, Any] = {
    "kernel": RBF(4.0, 2.0),
    "learn_hyperparameters": False,
    "bag_score": "joint",
    "n_inducing": 15,
    "random_state": 0,
}


def grids(n_bags: int, mixed: tuple[str, ...] = (), seed: int = 0) -> bw.Bags:
    """Grids of 16 whose left half is positive in every other bag, of scanners a and b by turns.

    Those of `mixed` scanners have their instances at places of each other.
    """
    rng = np.random.default_rng(seed)
    xy = np.stack(np.meshgrid(np.arange(4.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    truth = np.concatenate([(b % 2) * (xy[:, 0] < 2) for b in range(n_bags)])
    X = rng.normal(size=(len(truth), 2))
    X[:, 0] += 2.0 * truth
    groups = np.where(np.arange(n_bags) // 2 % 2 == 0, "a", "b")
    coords = np.concatenate([rng.permutation(xy) if g in mixed else xy for g in groups])
    ids = np.repeat(np.arange(n_bags), 16)
    return bw.Bags.from_arrays(X, ids, np.arange(n_bags) % 2, coords=coords, groups=groups)


def test_a_graph_that_is_weighed_is_a_coupling_of_its_own_for_each_bag() -> None:
    chain = sparse.csr_array(np.diag([1.0, 1.0], 1) + np.diag([1.0, 1.0], -1))
    both = sparse.csr_array(sparse.block_diag([chain] * 3))
    weighed = GroupCouplings(("a", "b"), (0.2, 0.0)).weigh(both, ["b", "a", "new"], np.full(3, 3))
    Q = Coupling(weighed, 1.0).Q.toarray()
    for rows, lam in zip(itertools.pairwise([0, 3, 6, 9]), (0.0, 0.2, 0.1), strict=True):
        block = slice(*rows)
        expected = np.eye(3) + lam * laplacian(chain).toarray()
        np.testing.assert_allclose(Q[block, block], expected)


def test_groups_of_one_coupling_are_one_coupling() -> None:
    bags = grids(12)
    one = bw.IsingVGPMIL(coupling=0.4, **SETTINGS).fit(bags)
    other = bw.IsingVGPMIL(coupling={"a": 0.4, "b": 0.4}, **SETTINGS).fit(bags)
    np.testing.assert_allclose(other.predict_proba(bags), one.predict_proba(bags), atol=1e-7)
    assert other.elbo_ == pytest.approx(one.elbo_, rel=1e-8)


def test_a_group_without_coupling_is_predicted_without(tmp_path: Path) -> None:
    bags = grids(12)
    model = bw.IsingVGPMIL(coupling={"a": 0.0, "b": 0.5}, **SETTINGS).fit(bags)
    alone, coupled = (
        bw.IsingVGPMIL(coupling=lam, **SETTINGS).set_params(inducing=model.inducing_points_)
        for lam in (0.0, 0.5)
    )
    for same in (alone, coupled):  # the same q(v), other couplings
        same.fit(bags)
        same.posterior_ = model.posterior_
    a, b = (np.flatnonzero(np.asarray(bags.groups) == g) for g in "ab")
    p = model.predict_proba(bags)
    np.testing.assert_allclose(p[a], alone.predict_proba(bags[a]), atol=5e-3)
    np.testing.assert_allclose(p[b], coupled.predict_proba(bags[b]), atol=1e-8)
    between = bw.IsingVGPMIL(coupling=0.25, **SETTINGS).set_params(inducing=model.inducing_points_)
    between.fit(bags).posterior_ = model.posterior_
    new = bw.Bags.from_arrays(bags.X, bags.bag_index, coords=bags.coords)
    np.testing.assert_allclose(model.predict_proba(new), between.predict_proba(new), atol=1e-8)
    model.save(tmp_path / "m.bagwise")
    loaded = bw.load(tmp_path / "m.bagwise")
    assert loaded.coupling_.as_dict() == {"a": 0.0, "b": 0.5}
    np.testing.assert_array_equal(loaded.predict_proba(bags), p)


def test_gains_of_groups_are_those_of_their_bags_alone() -> None:
    bags = grids(16)
    graph = bw.IsingVGPMIL()._neighbor_graph(bags)
    features = whitener(RBF(4.0, 2.0), bags.X[::20], 1e-6)
    q = standard_q(len(features), -1.0)
    number = (np.asarray(bags.groups) == "b").astype(int)
    T = bags.y == 1
    data = TrainingData(bags.X, bags.offsets, T, chunk_size=40, graph=graph)
    found = group_gains(data.sweeper(features), q, np.repeat(number, 16), 2)
    for g in (0, 1):
        own = np.flatnonzero(number == g)
        rows = np.flatnonzero(np.repeat(number, 16) == g)
        part = TrainingData(
            bags.X[rows], 16 * np.arange(len(own) + 1), T[own], graph=graph[rows][:, rows]
        )
        np.testing.assert_allclose(found[g], coupling_gains(part.sweeper(features), q), atol=1e-10)


def test_each_group_learns_its_own() -> None:
    model = bw.IsingVGPMIL(coupling="learn by group", **SETTINGS).fit(grids(60, mixed=("b",)))
    learned = model.coupling_.as_dict()
    assert learned["a"] >= 0.2 and learned["b"] <= 0.1
    assert model.coupling_gains_.shape[0] == 2


def test_what_is_refused() -> None:
    bags = grids(8)
    without = bw.Bags.from_arrays(bags.X, bags.bag_index, bags.y, coords=bags.coords)
    for coupling, given, message in [
        ({"a": 0.3}, bags, "group 'b' has none"),
        ({"a": 0.3, "b": -0.1}, bags, "pushes neighbours apart"),
        (-0.5, bags, "pushes neighbours apart"),
        ({"a": 0.3}, without, "needs the groups of bags"),
        ("learn by group", without, "needs the groups of bags"),
        ({}, bags, "at least one"),
        ("learn by bag", bags, "learn by group"),
    ]:
        with pytest.raises(ValueError, match=message):
            bw.IsingVGPMIL(coupling=coupling, **SETTINGS).fit(given)
