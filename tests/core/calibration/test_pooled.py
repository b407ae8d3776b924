"""A regression on the mean features of bags, as one more score of their calibration."""

from typing import Any

import numpy as np
import pytest
from scipy import special
from sklearn.linear_model import LogisticRegression

import bagwise as bw
from bagwise.core.calibration.bags import BagCalibration, calibrate_with_means
from bagwise.core.calibration.left_out import LeftOut
from bagwise.core.calibration.pooled import (
    VARIANCE,
    PooledBags,
    PooledRegression,
    bag_means,
    fit_pooled,
    left_out_logits,
)
from bagwise.core.calibration.ranking import auc


def shifted(seed: int = 0, n_bags: int = 60, D: int = 20) -> bw.Bags:
    """Every instance of a positive bag is shifted a little; none stands out."""
    rng = np.random.default_rng(seed)
    y, sizes = np.arange(n_bags) % 2, rng.integers(10, 30, n_bags)
    index = np.repeat(np.arange(n_bags), sizes)
    return bw.Bags.from_arrays(
        rng.normal(size=(sizes.sum(), D)) + 0.15 * y[index, None], index, y=y
    )


def test_the_mode_is_that_of_a_ridge_regression() -> None:
    bags = shifted()
    means, T = bag_means(bags.X, bags.offsets), np.asarray(bags.y) == 1
    scale = np.linspace(0.5, 2.0, 20)
    B = (means - means.mean(axis=0)) / scale
    B = B / np.sqrt(np.mean(np.sum(B**2, axis=1)))
    # |w|^2 / (2 VARIANCE) is scikit-learn's penalty with C = VARIANCE.
    known = LogisticRegression(C=VARIANCE, tol=1e-10, max_iter=10_000).fit(B, T)
    found = fit_pooled(means, T, scale).logits(means)
    np.testing.assert_allclose(found, known.decision_function(B), atol=1e-3)


def test_means_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    bags = shifted(n_bags=10)
    expected = [
        bags.X[a:b].mean(axis=0) for a, b in zip(bags.offsets, bags.offsets[1:], strict=False)
    ]
    np.testing.assert_allclose(bag_means(bags.X, bags.offsets), expected, rtol=1e-12)
    monkeypatch.setattr("bagwise.core.inference.passes.rows_per_chunk", lambda n: 25)
    np.testing.assert_allclose(bag_means(bags.X, bags.offsets), expected, rtol=1e-12)


def test_left_out_logits_are_those_of_the_other_folds() -> None:
    rng = np.random.default_rng(0)
    means, folds = rng.normal(size=(20, 3)), np.arange(20) % 4
    T, scale = np.arange(20) % 2 == 1, np.ones(3)
    found = left_out_logits(means, T, folds, scale)
    flipped = left_out_logits(means, np.where(folds == 0, ~T, T), folds, scale)
    np.testing.assert_array_equal(found[folds == 0], flipped[folds == 0])


def test_bags_that_differ_everywhere_are_told_apart() -> None:
    bags = shifted()
    model = bw.ProbitVGPMIL(random_state=0, n_inducing=30).fit(bags[:40])
    assert model.calibration_.pooled_weight > 0.2
    T = np.asarray(bags.y[40:]) == 1
    pooled = auc(np.asarray(model.predict_proba(bags[40:]))[:, 1], T)
    joint = auc(np.asarray(model.set_params(bag_score="joint").predict_proba(bags[40:]))[:, 1], T)
    assert pooled >= joint and pooled > 0.9


def test_means_that_tell_nothing_have_no_weight() -> None:
    rng = np.random.default_rng(1)
    T = np.arange(200) % 2 == 1
    scores = np.repeat(np.where(T, 1.5, -1.5)[:, None] + rng.normal(size=(200, 1)), 2, axis=1)
    found = LeftOut(scores, scores[:, 0], np.arange(200) % 5)
    means = PooledBags(rng.normal(size=(200, 4)), np.ones(4), False)
    pooled = means.left_out_logits(T, found.folds)
    calibration = calibrate_with_means(found, T, pooled, means)
    assert calibration.pooled_weight < 0.1
    assert (calibration.pooled is None) == (calibration.pooled_weight == 0)


def test_few_bags_hold_the_prior() -> None:
    """Four bags of each class move the calibration less than twenty that say the same."""

    def moved(n: int) -> float:
        T = np.arange(2 * n) % 2 == 1
        scores = np.where(T, 0.5, -0.5)[:, None] * np.ones(2)
        found = LeftOut(scores, scores[:, 0], np.arange(2 * n) % 2)
        means = PooledBags(np.zeros((2 * n, 1)), np.ones(1), False)
        calibration = calibrate_with_means(found, T, np.zeros(2 * n), means)
        return float(np.abs(calibration.weights - [1.0, 0.0]).sum())

    assert moved(4) < 0.3 * moved(20)


def test_probabilities_are_those_of_three_scores() -> None:
    regression = PooledRegression(np.array([2.0]), -1.0)
    calibration = BagCalibration(np.array([0.5, 0.25]), 0.1, 40, regression, 0.3)
    scores, pooled = np.array([[1.0, -1.0]]), regression.logits(np.array([[1.5]]))
    z = 0.5 - 0.25 + 0.3 * 2.0 + 0.1
    offset = calibration.offset(np.array([1.9]), pooled)
    np.testing.assert_allclose(calibration.probability(scores, offset), special.expit(z))


@pytest.mark.parametrize(
    "parts", [{"pooled": 3}, {"pooled_weight": -1.0}, {"pooled_weight": np.nan}]
)
def test_damaged_calibrations_are_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="calibration: pooled"):
        BagCalibration(np.array([1.0, 0.0]), 0.0, 40, **parts)


@pytest.mark.parametrize(
    "parts", [(np.array([np.nan]), 0.0), (np.ones((1, 1)), 0.0), (np.ones(1), np.inf)]
)
def test_damaged_regressions_are_refused(parts: tuple[Any, float]) -> None:
    with pytest.raises(ValueError, match="pooled: "):
        PooledRegression(*parts)
