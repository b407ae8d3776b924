"""Scores of bags from those of their instances, by their definitions."""

import numpy as np
import pytest

from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.bag_scores import (
    Predicted,
    columns,
    joined,
    log_odds,
    most_probable,
    noisy_or,
    parts_of,
    within_bounds,
)
from bagwise.core.links import Logistic, Moments

P = np.array([0.2, 0.7, 0.5, 0.1, 0.9])
OFFSETS = np.array([0, 3, 5])


def moments(p: np.ndarray, ratio: float = 0.01) -> Moments:
    return Moments(np.log1p(-p), np.log(p), np.full(len(p), ratio))


def test_the_most_probable_instance_and_those_after_it() -> None:
    found = moments(P)
    for rank, expected in {1: [0.7, 0.9], 2: [0.5, 0.1], 3: [0.2, 0.1]}.items():
        np.testing.assert_allclose(
            np.exp(most_probable(found, OFFSETS, rank).log_positive), expected
        )
    assert most_probable(found, OFFSETS).log_positive.tolist() == np.log([0.7, 0.9]).tolist()
    np.testing.assert_allclose(log_odds(found), np.log(P / (1 - P)))


def test_noisy_or_is_one_minus_the_product() -> None:
    found = noisy_or(moments(P), OFFSETS)
    negative = np.array([0.8 * 0.3 * 0.5, 0.9 * 0.1])
    np.testing.assert_allclose(np.exp(found.log_negative), negative)
    np.testing.assert_allclose(np.exp(found.log_positive), 1 - negative)
    np.testing.assert_allclose(found.log_ratio, [0.03, 0.02])


def test_scores_take_the_parts_that_they_need() -> None:
    joint, instances = moments(np.array([0.8, 0.95])), moments(P)
    found = Predicted(OFFSETS, instances, joint)
    assert found.bags("joint") is joint
    np.testing.assert_allclose(np.exp(found.bags("max").log_positive), [0.7, 0.9])
    np.testing.assert_allclose(np.exp(found.bags("noisy-or").log_positive), [0.88, 0.91])
    noisy = Predicted(OFFSETS, instances, joint, BagLikelihood(Logistic(), 9.0))
    assert noisy.bags("joint") is joint  # what is predicted is the truth, not a label of people
    assert parts_of("joint") == {"joint": True, "instances": False}
    assert parts_of("max") == {"joint": False, "instances": True}
    for score, lacking in {"joint": (instances, None), "max": (None, joint)}.items():
        with pytest.raises(ValueError, match="was not asked for"):
            Predicted(OFFSETS, *lacking).bags(score)


def test_chunks_are_joined() -> None:
    parts = [Predicted(OFFSETS[:2], moments(P[:3]), None, readout=np.array([1.0])),
             Predicted(OFFSETS[1:], moments(P[3:]), None, readout=np.array([2.0]))]  # fmt: skip
    found = joined(OFFSETS, parts)
    np.testing.assert_allclose(columns(found.instances)[0], np.column_stack([1 - P, P]))
    assert found.joint is None and found.readout is not None
    assert found.readout.tolist() == [1.0, 2.0]
    assert joined(OFFSETS[:1], []).instances is None


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.69999, 0.75, 0.999, 1 - 1e-9])
def test_bags_are_kept_within_their_bounds(p: float) -> None:
    """Between the most probable instance and the sum of all, with the digits of the rarer label."""
    for instances in (np.array([0.2, 0.7]), np.array([1e-14, 1e-13])):
        found = within_bounds(moments(np.array([p]), 0.5), moments(instances), np.array([0]))
        low, high = instances.max(), min(instances.sum(), 1.0)
        np.testing.assert_allclose(np.exp(found.log_positive), np.clip(p, low, high), rtol=1e-9)
        np.testing.assert_allclose(
            np.exp(found.log_positive) + np.exp(found.log_negative), 1, rtol=1e-12
        )
        assert found.log_ratio[0] == min(0.5, -found.log_negative[0])
