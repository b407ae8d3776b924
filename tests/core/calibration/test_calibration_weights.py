"""Weights of bags in calibrations: a weight is a number of copies, 0 leaves the bag out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.calibration import candidates as judging
from bagwise.core.calibration import judged as judged_by
from bagwise.core.calibration import left_out as leaving
from bagwise.core.calibration.bags import calibrate, calibrate_with_means, size_slopes
from bagwise.core.calibration.candidates import (
    Candidate,
    Fitting,
    log_likelihood,
)
from bagwise.core.calibration.instances import calibrate_instances
from bagwise.core.calibration.judged import JudgedBags, bags_to_judge
from bagwise.core.calibration.left_out import LeftOut, bags_to_leave_out
from bagwise.core.calibration.pooled import PooledBags, fit_pooled, left_out_logits
from bagwise.core.calibration.ranking import check_ranking
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Probit
from bagwise.kernels import RBF
from bagwise.models import MODELS
from toy_bags import separable_bags

B = 30
T = np.arange(B) % 2 == 1
COUNTS = np.arange(B) % 4 * 1.0  # a quarter of the bags counts nothing
COPIES = np.repeat(np.arange(B), COUNTS.astype(int))
SIZES = 2 + np.arange(B) % 5
ROWS = np.concatenate([np.arange(SIZES.sum())[np.repeat(np.arange(B), SIZES) == b] for b in COPIES])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
COPIED_OFFSETS = np.concatenate([[0], np.cumsum(SIZES[COPIES])])


def scores(copies: Any = slice(None), rows: Any = slice(None)) -> LeftOut:
    rng = np.random.default_rng(0)
    of_bags = 2.0 * T[:, None] + np.log(SIZES)[:, None] + rng.normal(size=(B, 2))
    s = 2.0 * np.repeat(T, SIZES) + rng.normal(size=SIZES.sum()) - 3
    return LeftOut(of_bags[copies], s[rows], (np.arange(B) // 2 % 5)[copies], SIZES[copies])


FOUND, COPIED = scores(), scores(COPIES, ROWS)
MEANS = np.random.default_rng(1).normal(size=(B, 3)) + 0.8 * T[:, None]
UNITS = np.array([1.0, 2.0, 0.5])


def assert_same_bags(one: Any, other: Any) -> None:
    for name in ("weights", "intercept", "pooled_weight", "size_slope", "usual_log_size"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-4)


def test_scores_of_bags_count() -> None:
    weighted = calibrate(FOUND, T, counts=COUNTS)
    assert_same_bags(weighted, calibrate(COPIED, T[COPIES]))
    assert weighted.n_bags == np.count_nonzero(COUNTS)
    assert not np.allclose(weighted.weights, calibrate(FOUND, T).weights, atol=1e-2)


def test_slopes_over_size_count() -> None:
    usual, slopes = size_slopes(FOUND, T, COUNTS)
    of_copies = size_slopes(COPIED, T[COPIES], np.ones(len(COPIES)))
    assert usual == pytest.approx(of_copies[0]) and 0 < slopes[0] < 1.5
    np.testing.assert_allclose(slopes, of_copies[1])


def test_mean_features_count() -> None:
    weighted = fit_pooled(MEANS, T, UNITS, COUNTS)
    copied = fit_pooled(MEANS[COPIES], T[COPIES], UNITS)
    np.testing.assert_allclose(weighted.coef, copied.coef, atol=1e-4)
    weighted_logits = left_out_logits(MEANS, T, FOUND.folds, UNITS, COUNTS)
    copied_logits = left_out_logits(MEANS[COPIES], T[COPIES], COPIED.folds, UNITS)
    np.testing.assert_allclose(weighted_logits[COPIES], copied_logits, atol=1e-4)
    means, copies = PooledBags(MEANS, UNITS, False), PooledBags(MEANS[COPIES], UNITS, False)
    one = calibrate_with_means(FOUND, T, weighted_logits, means, COUNTS)
    other = calibrate_with_means(COPIED, T[COPIES], copied_logits, copies)
    assert_same_bags(one, other)


@pytest.mark.parametrize("rate", [None, 0.6])
@pytest.mark.parametrize("told", [False, True])
def test_instances_count_as_their_bags(told: bool, rate: float | None) -> None:
    known = np.full(SIZES.sum(), np.nan)
    if told:
        known[OFFSETS[:-1]] = T
    weighted = calibrate_instances(FOUND.instance_logits, OFFSETS, T, known, rate, COUNTS)
    copied = calibrate_instances(
        COPIED.instance_logits, COPIED_OFFSETS, T[COPIES], known[ROWS], rate
    )
    for name in ("slope", "intercept", "share", "drift", "shifts", "weight", "doubt"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(copied, name), atol=2e-3)
    plain = calibrate_instances(FOUND.instance_logits, OFFSETS, T, known, rate)
    assert abs(plain.intercept - weighted.intercept) > 1e-2


def bags_of(copies: np.ndarray) -> bw.Bags:
    bags = separable_bags(B, 2, 0)
    return bw.Bags.from_list([np.array(bags[int(b)].X) for b in copies], y=T[copies])


def test_candidates_are_judged_by_bags_as_they_count() -> None:
    bags, folds = bags_of(np.arange(B)), np.arange(B) // 2 % 5
    weighted = JudgedBags(bags, T, None, folds, True, COUNTS)
    copied = JudgedBags(bags_of(COPIES), T[COPIES], None, folds[COPIES], True)
    Z = np.asarray(bags.X[:6])
    tried = Candidate("one", RBF(4.0, 2.0), np.zeros(2), np.ones(2), Z)
    fitting = Fitting(BagLikelihood(Probit()), None, 1e-6, 0)
    one, other = (judging.left_out_of(tried, judged, fitting) for judged in (weighted, copied))
    np.testing.assert_allclose(one.bag_scores[COPIES, 1], other.bag_scores[:, 1], atol=1e-3)
    assert log_likelihood(FOUND, T, COUNTS) == pytest.approx(
        log_likelihood(COPIED, T[COPIES]), abs=1e-6
    )


@pytest.mark.parametrize("whole_rows", [10_000, 30])
def test_bags_that_count_nothing_judge_nothing(
    whole_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged_by, "WHOLE_ROWS", whole_rows)
    bags = bags_of(np.arange(B))
    known = np.where(np.repeat(COUNTS, bags.sizes) > 0, 0.0, 1.0) * np.repeat(T, bags.sizes)
    judged = bags_to_judge(bags, T, known, 0, COUNTS)
    assert judged.counts is not None and judged.counts.min() > 0
    assert len(judged.T) == len(judged.counts) == len(judged.folds) == len(judged.bags)
    if judged.whole:
        np.testing.assert_array_equal(judged.T, T[COUNTS > 0])
        assert judged.known is not None and not np.any(judged.known)


@pytest.mark.parametrize("most", [100_000, 40])
def test_bags_that_count_nothing_are_not_drawn(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "MOST_INSTANCES", most)
    monkeypatch.setattr(leaving, "LEAST_BAGS", 3)
    some = bags_to_leave_out(bags_of(np.arange(B)), T, 0, COUNTS)
    assert np.all(COUNTS[some] > 0) and T[some].sum() >= 3 and (~T[some]).sum() >= 3
    assert (len(some) == np.count_nonzero(COUNTS)) == (most == 100_000)


@pytest.mark.parametrize("name", ["ProbitVGPMIL", "VGPMIL", "IsingVGPMIL", "MIRVM"])
def test_labels_of_bags_that_count_nothing_say_nothing(name: str) -> None:
    bags = separable_bags(24, 2, 0)
    weights = np.where(np.arange(24) < 4, 0.0, 1.5)
    settings: dict[str, Any] = {"random_state": 0, "bag_score": "calibrated"}
    settings |= {"instance_score": "calibrated"}
    if name != "MIRVM":  # k-means looks at labels
        settings |= {"inducing": np.asarray(bags.X[::12]), "max_iter": 20, "tol": 1e-4}
    if name == "IsingVGPMIL":
        settings |= {"neighbors": "chain", "coupling": 0.1}
    labels = np.asarray(bags.y)
    fits = [
        MODELS[name](**settings).fit(bags, y, sample_weight=weights)
        for y in (labels, np.where(weights == 0, 1 - labels, labels))
    ]
    assert fits[0].calibration_.n_bags == fits[0].instance_calibration_.n_bags == 20
    for question in ("predict_proba", "predict_instance_proba"):
        one, other = (getattr(model, question)(bags) for model in fits)
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_bags_that_count_nothing_are_not_ranked() -> None:
    bags = separable_bags(40, 2, 0)
    T = np.asarray(bags.y) == 1
    model = bw.ProbitVGPMIL(random_state=0, n_inducing=10, bag_score="joint", kernel=RBF())
    model.fit(bags)
    wrong = np.where(np.arange(40) < 20, ~T, T)
    told = ("joint", "more")
    with pytest.warns(bw.NearChanceWarning):
        check_ranking(model._predictor, bags, wrong, *told)
    check_ranking(model._predictor, bags, wrong, *told, counts=1.0 * (np.arange(40) >= 20))
