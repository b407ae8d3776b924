"""Artificial bags: their arguments do what they say, and models can be told apart by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import bagwise as bw
from bagwise.datasets import (
    make_bags,
    make_false_frequency,
    make_multi_concept,
    make_single_concept,
)
from bagwise.metrics import roc_auc


def per_bag(bags: bw.Bags, values: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, bags.offsets[:-1])


def test_shapes_and_sizes() -> None:
    bags, truth = make_bags(50, (3, 7), 4, random_state=0)
    assert len(bags) == 50 and bags.n_features == 4 and bags.coords is None
    assert set(bags.sizes) == {3, 4, 5, 6, 7}
    assert bags.instance_labels is None
    np.testing.assert_array_equal(per_bag(bags, truth) > 0, bags.y == 1)


def test_the_same_seed_gives_the_same_bags() -> None:
    a, b = (make_bags(10, spatial_correlation=0.3, random_state=4)[0] for _ in range(2))
    np.testing.assert_array_equal(a.X, b.X)
    np.testing.assert_array_equal(a.y, b.y)


@pytest.mark.parametrize("rate", [0.02, 0.3, 1.0])
def test_witness_rate(rate: float) -> None:
    bags, truth = make_bags(2000, 20, 1, witness_rate=rate, random_state=0)
    counts = per_bag(bags, truth)[bags.y == 1]
    expected = 20 * rate / (1 - (1 - rate) ** 20)  # given at least one
    assert counts.min() >= 1
    assert abs(counts.mean() - expected) < 5 * counts.std() / np.sqrt(1000) + 1e-9


@pytest.mark.parametrize("overlap", [0.05, 0.4, 1.0])
def test_overlap_is_that_of_the_best_classifier(overlap: float) -> None:
    bags, truth = make_bags(8000, 20, 5, overlap=overlap, witness_rate=0.5, random_state=0)
    along = bags.X.sum(axis=1) / np.sqrt(5)
    found = [stats.norm.fit(along[truth == k]) for k in (0, 1)]
    shift = found[1][0] - found[0][0]
    assert abs(2 * stats.norm.cdf(-shift / 2) - overlap) < 0.02
    assert abs(found[0][1] - 1) < 0.03 and abs(found[1][1] - 1) < 0.03


def mean_distance(correlation: float) -> float:
    bags, truth = make_bags(
        200, 36, 1, witness_rate=0.2, spatial_correlation=correlation, random_state=0
    )
    spread = []
    for a, b in zip(bags.offsets[:-1], bags.offsets[1:], strict=True):
        xy = bags.coords[a:b][truth[a:b] == 1]
        if len(xy) > 1:
            spread.append(np.linalg.norm(xy - xy.mean(axis=0), axis=1).mean())
    return float(np.mean(spread))


def test_spatial_correlation_brings_witnesses_together() -> None:
    none, some, full = (mean_distance(c) for c in (0.0, 0.4, 1.0))
    assert none > 1.1 * some > 1.1**2 * full


def test_label_noise_is_in_the_bag_labels_only() -> None:
    bags, truth = make_bags(6000, 3, 1, label_noise=0.2, random_state=0)
    wrong = (per_bag(bags, truth) > 0) != (bags.y == 1)
    assert abs(wrong.mean() - 0.2) < 0.03


def test_positive_share() -> None:
    assert make_bags(100, positive_share=0.1, random_state=0)[0].y.sum() == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_bags": 1}, "n_bags"),
        ({"n_features": 0}, "n_features"),
        ({"bag_size": 0}, "bag_size"),
        ({"bag_size": (5, 2)}, "low <= high"),
        ({"bag_size": (5, 6, 7)}, "bag_size"),
        ({"witness_rate": 0}, "witness_rate"),
        ({"witness_rate": 1.1}, "witness_rate"),
        ({"overlap": 0.0}, "overlap"),
        ({"overlap": float("nan")}, "overlap"),
        ({"spatial_correlation": -0.1}, "spatial_correlation"),
        ({"label_noise": "much"}, "label_noise"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_bags(**arguments)


# --- The multiple instance assumption ------------------------------------------------------------

TESTS: list[Callable[..., Any]] = [make_single_concept, make_multi_concept, make_false_frequency]


@pytest.mark.parametrize("make", TESTS)
@pytest.mark.parametrize("part", ["train", "test"])
def test_assumption_holds_in_both_parts(make: Callable[..., Any], part: str) -> None:
    bags, truth = make(30, part=part, random_state=0)
    np.testing.assert_array_equal(per_bag(bags, truth) > 0, bags.y == 1)
    assert bags.y.sum() == 15


@pytest.mark.parametrize("make", [make_single_concept, make_false_frequency])
def test_shortcut_is_turned_round(make: Callable[..., Any]) -> None:
    for part, sign in (("train", 1), ("test", -1)):
        bags, _ = make(part=part, random_state=0)
        decoys = per_bag(bags, bags.X[:, 1] < -6)
        more = decoys[bags.y == 1].mean() - decoys[bags.y == 0].mean()
        assert sign * (more if make is make_false_frequency else -more) > 0.9


def test_all_concepts_are_needed() -> None:
    bags, truth = make_multi_concept(rule="all", random_state=0)
    np.testing.assert_array_equal(per_bag(bags, truth), np.where(bags.y == 1, 2, 1))


@pytest.mark.parametrize("make", TESTS)
def test_default_model_respects_the_assumption(make: Callable[..., Any]) -> None:
    train, _ = make(80, random_state=0)
    test, truth = make(80, part="test", random_state=1)
    model = bw.ProbitVGPMIL(n_inducing=60, random_state=0).fit(train)
    assert roc_auc(test, model.predict_proba(test)) > 0.95
    assert roc_auc(truth, model.predict_instance_proba(test)) > 0.95


@pytest.mark.parametrize("make", TESTS)
def test_bad_arguments_of_the_tests(make: Callable[..., Any]) -> None:
    for arguments in ({"n_bags": 1}, {"bag_size": 3}, {"n_features": 1}, {"part": "both"}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            make(**arguments)
    with pytest.raises(ValueError, match="rule"):
        make_multi_concept(rule="most")
