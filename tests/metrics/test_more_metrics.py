"""Calibration curves, spread inside bags, selective risk and paired tests, against slow loops."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy import special, stats
from sklearn.calibration import calibration_curve

import bagwise as bw
from bagwise import metrics
from bagwise.datasets import make_bags

RNG = np.random.default_rng(0)
P = RNG.random(400)
Y = (RNG.random(400) < P**1.5).astype(int)


# --- Calibration ---------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_reliability_curve_is_scikit_learns(strategy: str) -> None:
    curve = metrics.reliability_curve(Y, P, 7, strategy=strategy)
    observed, predicted = calibration_curve(Y, P, n_bins=7, strategy=strategy)
    np.testing.assert_allclose(curve.predicted, predicted)
    np.testing.assert_allclose(curve.observed, observed)
    assert curve.counts.sum() == 400


def test_calibration_error_is_the_distance_from_the_diagonal() -> None:
    curve = metrics.reliability_curve(Y, P, 9)
    gap = np.sum(curve.counts * np.abs(curve.predicted - curve.observed)) / 400
    assert metrics.expected_calibration_error(Y, P, 9) == pytest.approx(gap)


def test_adaptive_bins_by_a_slow_loop() -> None:
    order = np.argsort(P)
    parts = np.array_split(order, 10)  # 40 each: all values differ
    slow = sum(abs(P[i].mean() - Y[i].mean()) * len(i) for i in parts) / 400
    assert metrics.expected_calibration_error(Y, P, 10) == pytest.approx(slow, abs=2e-3)
    curve = metrics.reliability_curve(Y, P, 10)
    assert curve.counts.min() >= 39 and curve.counts.max() <= 41


def test_classwise_calibration_by_a_slow_loop() -> None:
    classes = np.array(["ant", "bee", "cow"])
    Q = RNG.dirichlet([1, 1, 1], 300)
    y = classes[[RNG.choice(3, p=q) for q in Q]]
    slow = []
    for k in range(3):
        edges = np.unique(np.quantile(Q[:, k], np.linspace(0, 1, 6)))
        total = 0.0
        for low, high, first in zip(edges, edges[1:], [True] + [False] * 9, strict=False):
            inside = (Q[:, k] > low) & (Q[:, k] <= high) | (first & (Q[:, k] == low))
            total += abs(np.sum(Q[inside, k]) - np.sum(y[inside] == classes[k]))
        slow.append(total / 300)
    found = metrics.classwise_calibration_error(y, Q, 5)
    assert found == pytest.approx(np.mean(slow))
    matrix = (y[:, None] == classes).astype(int)
    assert metrics.classwise_calibration_error(matrix, Q, 5) == found
    named = metrics.classwise_calibration_error(y, Q[:, ::-1], 5, classes=classes[::-1])
    assert named == pytest.approx(found)


def test_classwise_of_two_classes_is_the_binary_error() -> None:
    both = np.column_stack([1 - P, P])
    classwise = metrics.classwise_calibration_error(Y, both, 6, strategy="uniform")
    assert classwise == pytest.approx(
        metrics.expected_calibration_error(Y, P, 6, strategy="uniform"), abs=5e-3
    )


@pytest.mark.parametrize(
    ("y", "p", "message"),
    [
        ([0, 1], [0.5, 0.5], r"\(n, K\)"),
        ([0, 1], [[0.5, 1.5], [0.5, 0.5]], r"\[0, 1\]"),
        ([0, 1, 2], [[0.5, 0.5]] * 3, "columns"),
        ([0], [[0.5, 0.5]] * 2, "same rows"),
        ([[0, 2]], [[0.5, 0.5]], "0 and 1"),
    ],
)
def test_classwise_refuses(y: list, p: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.classwise_calibration_error(y, p)


# --- Bags as labels ------------------------------------------------------------------------------


def test_metrics_take_bags() -> None:
    bags, _ = make_bags(20, random_state=0)
    p = RNG.random(20)
    assert metrics.roc_auc(bags, p) == metrics.roc_auc(bags.y, p)
    assert metrics.selective_risk(bags, p).area == metrics.selective_risk(bags.y, p).area
    with pytest.raises(ValueError, match=r"bags\.y is None"):
        metrics.brier(bags.with_labels(None), p)


# --- Spread inside bags --------------------------------------------------------------------------


def test_variability_by_a_slow_loop() -> None:
    bags, _ = make_bags(30, (1, 6), random_state=0)
    p = RNG.random(bags.n_instances)
    pairs = zip(bags.offsets[:-1], bags.offsets[1:], strict=True)
    slow = [np.std(p[a:b]) for a, b in pairs]
    np.testing.assert_allclose(metrics.within_bag_variability(p, bags), slow)
    both = np.column_stack([1 - p, p])
    np.testing.assert_allclose(metrics.within_bag_variability(both, bags.bag_index), slow)


def test_variability_of_equal_numbers_is_zero() -> None:
    bags = bw.Bags.from_list([np.zeros((1000, 1))])
    assert metrics.within_bag_variability(np.full(1000, 0.1), bags)[0] < 1e-14


def test_coupled_instances_vary_less() -> None:
    bags, _ = make_bags(12, 9, 2, overlap=0.3, spatial_correlation=0.9, random_state=0)
    spread = []
    for coupling in (0.01, 2.0):
        model = bw.IsingVGPMIL(
            n_inducing=10, coupling=coupling, learn_hyperparameters=False, random_state=0
        ).fit(bags)
        p = model.predict_instance_proba(bags)
        spread.append(metrics.within_bag_variability(p, bags).mean())
    assert spread[1] < spread[0]


def test_variability_refuses_other_lengths() -> None:
    bags, _ = make_bags(3, 2, random_state=0)
    with pytest.raises(ValueError, match="each of the 6 instances"):
        metrics.within_bag_variability([0.5], bags)


# --- Selective risk ------------------------------------------------------------------------------


def test_selective_risk_by_a_slow_loop() -> None:
    y, p, u = Y[:60], P[:60], RNG.random(60)
    found = metrics.selective_risk(y, p, u)
    order = np.argsort(u)
    for k in range(1, 61):
        kept = order[:k]
        assert found.accuracy[k - 1] == pytest.approx(np.mean((p[kept] > 0.5) == y[kept]))
    assert found.area == pytest.approx(np.mean(found.risk))
    assert found.accuracy[-1] == pytest.approx(metrics.accuracy(y, p))
    np.testing.assert_allclose(found.coverage, np.arange(1, 61) / 60)


def test_selective_risk_averages_over_the_orders_of_ties() -> None:
    y, p, u = np.array([1, 0, 1, 1]), np.array([0.9, 0.8, 0.2, 0.7]), np.array([1, 1, 1, 0])
    wrong = (p > 0.5) != y
    slow = [np.cumsum(wrong[[3, *order]]) / np.arange(1, 5) for order in permutations(range(3))]
    np.testing.assert_allclose(metrics.selective_risk(y, p, u).risk, np.mean(slow, axis=0))


def test_certain_predictions_come_first_by_default() -> None:
    found = metrics.selective_risk([1, 0], [0.9, 0.6])
    assert found.accuracy.tolist() == [1.0, 0.5]
    with pytest.raises(ValueError, match="uncertainty"):
        metrics.selective_risk([1, 0], [0.9, 0.6], [np.nan, 1])


# --- Paired comparison ---------------------------------------------------------------------------


def test_corrected_test_by_hand() -> None:
    a, b = RNG.random(50), RNG.random(50)
    d = a - b
    t = d.mean() / np.sqrt(d.var(ddof=1) * (1 / 50 + 1 / 9))
    found = metrics.corrected_resampled_ttest(a, b, n_folds=10)
    assert found.t == pytest.approx(t)
    assert found.p_value == pytest.approx(2 * stats.t.cdf(-abs(t), 49))
    assert metrics.corrected_resampled_ttest(a, b, test_share=0.1) == pytest.approx(found)
    back = metrics.corrected_resampled_ttest(b, a, n_folds=10)
    assert back.p_value == pytest.approx(found.p_value) and back.t == pytest.approx(-found.t)


def test_corrected_test_is_more_cautious_than_the_plain_one() -> None:
    a, b = 0.1 + RNG.random(20), RNG.random(20)
    plain = stats.ttest_rel(a, b).pvalue
    assert metrics.corrected_resampled_ttest(a, b, n_folds=10).p_value > plain


def test_corrected_test_of_constant_differences() -> None:
    assert metrics.corrected_resampled_ttest([1, 1], [1, 1], n_folds=2).p_value == 1
    assert metrics.corrected_resampled_ttest([2, 2], [1, 1], n_folds=2).p_value == 0


@pytest.mark.parametrize(
    ("a", "b", "options", "message"),
    [
        ([1, 2], [1, 2], {}, "one of n_folds and test_share"),
        ([1, 2], [1, 2], {"n_folds": 2, "test_share": 0.5}, "one of n_folds"),
        ([1, 2], [1, 2], {"n_folds": 1}, "between 0 and 1"),
        ([1, 2], [1, 2], {"test_share": 1.0}, "between 0 and 1"),
        ([1], [2], {"n_folds": 5}, "at least two folds"),
        ([1, 2], [1], {"n_folds": 5}, "same folds"),
        ([1, np.nan], [1, 2], {"n_folds": 5}, "finite"),
    ],
)
def test_corrected_test_refuses(a: list, b: list, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.corrected_resampled_ttest(a, b, **options)


def test_win_tie_loss_by_a_slow_loop() -> None:
    a, b = RNG.integers(0, 5, 100) / 4, RNG.integers(0, 5, 100) / 4
    slow = [
        sum(x > y for x, y in zip(a, b, strict=True)),
        sum(x == y for x, y in zip(a, b, strict=True)),
    ]
    found = metrics.win_tie_loss(a, b)
    assert found == (slow[0], slow[1], 100 - sum(slow))
    assert metrics.win_tie_loss(a, b, margin=2.0) == (0, 100, 0)
    with pytest.raises(ValueError, match="margin"):
        metrics.win_tie_loss(a, b, margin=-1)


def test_paired_differences_cover_the_truth() -> None:
    """Two scores of known areas: 95 % intervals of their difference hold it about as often."""
    rng = np.random.default_rng(0)
    truth = special.ndtr(2 / np.sqrt(2)) - special.ndtr(1 / np.sqrt(2))
    inside, n_trials = 0, 200
    for _ in range(n_trials):
        y = np.arange(80) % 2
        noise = rng.normal(size=80)
        strong, weak = noise + 2 * y, noise + rng.normal(size=80) * 1e-9 + y
        found = bw.metrics.paired_differences(y, special.expit(strong), special.expit(weak))
        inside += found["roc_auc"].low <= truth <= found["roc_auc"].high
    assert abs(inside / n_trials - 0.95) < 5 * np.sqrt(0.95 * 0.05 / n_trials)


def test_one_group_or_one_bag_of_a_class_settles_nothing() -> None:
    y, a, b = [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.8], [0.6, 0.5, 0.2, 0.3]
    for found in bw.metrics.paired_differences(y, a, b, groups=["p"] * 4).values():
        assert found.low == -np.inf and found.high == np.inf
    found = bw.metrics.paired_differences([0, 1, 0, 0], a, b)
    assert found["roc_auc"].low == -np.inf and np.isfinite(found["brier"].low)


def test_paired_differences_count_groups_once() -> None:
    rng = np.random.default_rng(1)
    y = np.arange(40) % 2
    a, b = (special.expit(rng.normal(size=40) + scale * y) for scale in (2, 1))
    one = bw.metrics.paired_differences(y, a, b)["brier"]
    rep = {"y_true": np.repeat(y, 3), "p_a": np.repeat(a, 3), "p_b": np.repeat(b, 3)}
    grouped = bw.metrics.paired_differences(**rep, groups=np.repeat(np.arange(40), 3))["brier"]
    np.testing.assert_allclose(grouped, one)
    assert bw.metrics.paired_differences(**rep)["brier"].low > grouped.low
