"""FROC curves, their bands, and the pooled ROC of the MI-RVM paper."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bagwise.metrics import bag_tpr_instance_fpr_auc, froc_band, froc_curve, roc_auc


def make_scores(n_volumes: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    volume = np.repeat(np.arange(n_volumes), 12)
    y = np.tile(np.arange(12) < 2, n_volumes).astype(int)
    return y, rng.normal(size=len(y)) + 1.5 * y, volume


def test_every_point_is_a_count() -> None:
    y, score, volume = make_scores()
    curve = froc_curve(y, score, volume)
    for fp, sensitivity, threshold in zip(
        curve.false_positives, curve.sensitivity, curve.thresholds, strict=True
    ):
        called = score >= threshold
        assert fp == pytest.approx(np.sum(called & (y == 0)) / 30)
        assert sensitivity == pytest.approx(np.mean(called[y == 1]))
    assert curve.false_positives[-1] == 10 and curve.sensitivity[-1] == 1
    assert np.all(np.diff(curve.false_positives) >= 0) and np.all(np.diff(curve.sensitivity) >= 0)


def test_ties_fall_together() -> None:
    curve = froc_curve([1, 0, 1, 0], [1.0, 1.0, 0.0, 0.0], [0, 0, 1, 1])
    np.testing.assert_array_equal(curve.false_positives, [0, 0.5, 1])
    np.testing.assert_array_equal(curve.sensitivity, [0, 0.5, 1])


def test_the_whole_area_is_the_auc_without_ties() -> None:
    y, score, volume = make_scores()
    area = froc_curve(y, score, volume).area(0, 10)  # up to all false positives there are
    assert area == pytest.approx(roc_auc(y, score))


def test_area_in_a_range() -> None:
    curve = froc_curve([1, 0, 1, 0], [4.0, 3.0, 2.0, 1.0], [0, 0, 1, 1])
    assert curve.area(0, 0.5) == 0.5 and curve.area(0.5, 5) == 1.0
    assert curve.area(0.25, 0.75) == pytest.approx(0.75)
    for low, high in ((1, 1), (-1, 2), (0, np.inf)):
        with pytest.raises(ValueError, match="area needs 0 <= low < high"):
            curve.area(low, high)
    with pytest.raises(ValueError, match="at least 0"):
        curve.at(-0.1)


def test_only_the_order_of_scores_counts() -> None:
    y, score, volume = make_scores()
    a, b = froc_curve(y, score, volume), froc_curve(y, np.exp(score), volume)
    np.testing.assert_array_equal(a.sensitivity, b.sensitivity)


def test_band_holds_the_curve_and_narrows_with_data() -> None:
    y, score, volume = make_scores()
    band = froc_band(y, score, volume, n_resamples=200, max_false_positives=5)
    assert np.mean((band.low <= band.sensitivity) & (band.sensitivity <= band.high)) > 0.97
    assert band.area[1] < band.area[0] < band.area[2]
    more = froc_band(*make_scores(300), n_resamples=200, max_false_positives=5)
    assert np.mean(more.high - more.low) < 0.5 * np.mean(band.high - band.low)


def test_band_covers_the_truth() -> None:
    truth = froc_curve(*make_scores(20_000, seed=99)).area(0, 5)
    covered = 0
    for seed in range(40):
        _, low, high = froc_band(
            *make_scores(40, seed), n_resamples=100, max_false_positives=5
        ).area
        covered += low <= truth <= high
    assert covered >= 31  # 95 % of 40 is 38, and five standard errors are 7


def test_band_is_reproducible_and_resamples_volumes() -> None:
    y, score, volume = make_scores()
    one, same = (froc_band(y, score, volume, n_resamples=20, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(one.low, same.low)
    # All bags in one volume: nothing is known of others.
    alone = froc_band(y, score, np.zeros(len(y)), n_resamples=200, max_false_positives=300)
    assert np.mean(alone.high - alone.low) > 0.8


@pytest.mark.parametrize("found", [True, False], ids=["all-found", "none-found"])
def test_volumes_that_agree_leave_doubt(found: bool) -> None:
    y, volume = np.tile([True, False, False], 6), np.repeat(np.arange(6), 3)
    band = froc_band(y, np.where(y == found, 0.9, 0.1), volume, max_false_positives=1)
    assert np.all(band.low <= band.sensitivity) and np.all(band.sensitivity <= band.high)
    assert np.mean(band.high - band.low) > 0.2
    value, low, high = band.area
    assert low <= value <= high and high - low > 0.2
    assert band.area[2 if found else 1] == float(found)


def test_volumes_without_lesions_count() -> None:
    curve = froc_curve([1, 0, 0], [3.0, 2.0, 1.0], ["a", "a", "healthy"])
    np.testing.assert_allclose(curve.false_positives, [0, 0, 0.5, 1])


def test_bad_froc_input() -> None:
    with pytest.raises(ValueError, match="volume must have one entry per bag: 2; got 1"):
        froc_curve([0, 1], [0.1, 0.2], [0])
    with pytest.raises(ValueError, match="needs positive labels"):
        froc_curve([0, 0], [0.1, 0.2], [0, 1])
    with pytest.raises(ValueError, match="p must be finite"):
        froc_curve([0, 1], [0.1, np.nan], [0, 1])
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        froc_band([0, 1], [0.1, 0.2], [0, 1], level=95)
    with pytest.raises(ValueError, match="n_resamples"):
        froc_band([0, 1], [0.1, 0.2], [0, 1], n_resamples=1)


def test_pooled_auc_mixes_bags_and_instances() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, 40)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    y = np.arange(40) % 2
    score = np.round(rng.normal(size=offsets[-1]) + np.repeat(y, sizes), 1)
    tops = np.maximum.reduceat(score, offsets[:-1])[y == 1]
    negatives = score[np.repeat(y, sizes) == 0]
    labels = np.repeat([1, 0], [len(tops), len(negatives)])
    expected = roc_auc_score(labels, np.concatenate([tops, negatives]))
    found = bag_tpr_instance_fpr_auc(y, score, offsets)
    assert found == pytest.approx(expected)
    assert found > roc_auc(y, np.maximum.reduceat(score, offsets[:-1]))


def test_pooled_auc_of_single_instances_is_the_auc() -> None:
    y, score, _ = make_scores()
    assert bag_tpr_instance_fpr_auc(y, score, np.arange(len(y) + 1)) == pytest.approx(
        roc_auc(y, score)
    )


def test_bad_pooled_input() -> None:
    with pytest.raises(ValueError, match=r"offsets must be 3 rising.*bags.offsets"):
        bag_tpr_instance_fpr_auc([0, 1], [0.1, 0.2], [0, 2])
    with pytest.raises(ValueError, match="needs negative bags"):
        bag_tpr_instance_fpr_auc([1, 1], [0.1, 0.2], [0, 1, 2])
