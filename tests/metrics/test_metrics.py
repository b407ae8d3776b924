"""Metrics against scikit-learn, hand-made numbers and their own symmetries."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from bagwise import metrics as bm

Y = np.array([0, 0, 1, 1, 0, 1])
P = np.array([0.1, 0.6, 0.7, 0.9, 0.2, 0.3])
TWO = np.column_stack([1 - P, P])

PROBABILITY_METRICS = [bm.accuracy, bm.precision, bm.recall, bm.f1, bm.log_likelihood, bm.brier]
PROBABILITY_METRICS += [bm.expected_calibration_error, bm.confusion_matrix]
RANKING_METRICS = [bm.roc_auc, bm.average_precision]
ALL_METRICS = PROBABILITY_METRICS + RANKING_METRICS
SKLEARN = {
    bm.roc_auc: lambda y, p: sk.roc_auc_score(y, p),
    bm.average_precision: lambda y, p: sk.average_precision_score(y, p),
    bm.accuracy: lambda y, p: sk.accuracy_score(y, p > 0.5),
    bm.precision: lambda y, p: sk.precision_score(y, p > 0.5),
    bm.recall: lambda y, p: sk.recall_score(y, p > 0.5),
    bm.f1: lambda y, p: sk.f1_score(y, p > 0.5),
    bm.confusion_matrix: lambda y, p: sk.confusion_matrix(y, p > 0.5),
    bm.log_likelihood: lambda y, p: -sk.log_loss(y, p),
    bm.brier: lambda y, p: sk.brier_score_loss(y, p),
}


@pytest.mark.parametrize("metric", SKLEARN, ids=lambda f: f.__name__)
def test_agrees_with_sklearn(metric) -> None:
    np.testing.assert_allclose(metric(Y, P), SKLEARN[metric](Y, P), rtol=1e-12)


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda f: f.__name__)
def test_two_columns_and_any_labels_are_the_same(metric) -> None:
    expected = metric(Y, P)
    np.testing.assert_allclose(metric(Y, TWO), expected)
    np.testing.assert_allclose(metric(Y * 2 - 1, TWO), expected)
    np.testing.assert_allclose(metric(Y.astype(bool), P), expected)
    np.testing.assert_allclose(metric(np.array(["neg", "pos"])[Y], TWO), expected)
    named = np.array(["benign", "tumour"])[Y]
    np.testing.assert_allclose(metric(named, TWO, pos_label="tumour"), expected)
    np.testing.assert_allclose(metric(named.astype(object), P, pos_label="tumour"), expected)
    np.testing.assert_allclose(metric(list(Y), list(P)), expected)


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda f: f.__name__)
def test_columns_of_a_smaller_positive_label_are_not_guessed(metric) -> None:
    """`fit(..., positive=3)` puts 3 last, scikit-learn's classifiers put it first."""
    smaller = np.array([7, 3])[Y]
    np.testing.assert_allclose(metric(smaller, P, pos_label=3), metric(Y, P))
    with pytest.raises(ValueError, match=r"two columns.*of 3 is not known.*p\[:, 1\]"):
        metric(smaller, TWO, pos_label=3)


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda f: f.__name__)
def test_labels_and_probabilities_of_other_rows_are_refused(metric) -> None:
    names = list("abcdefghijklmnopqrstuvwxyz"[: len(Y)])
    labels, p = pd.Series(Y, index=names), pd.Series(P, index=names)
    np.testing.assert_allclose(metric(labels, p), metric(Y, P))
    with pytest.raises(ValueError, match="y_true has the rows of p in another order"):
        metric(labels.iloc[::-1], p)


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda f: f.__name__)
def test_masked_entries_are_refused(metric) -> None:
    for labels, p in ((np.ma.masked_equal(Y, Y[0]), P), (Y, np.ma.masked_equal(P, P[0]))):
        with pytest.raises(ValueError, match="must not be masked"):
            metric(labels, p)


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda f: f.__name__)
def test_text_does_not_say_which_label_is_positive(metric) -> None:
    names = np.array(["healthy", "cancer"])[Y]
    with pytest.raises(ValueError, match=r"labels are text, 'cancer' and 'healthy'.*pos_label="):
        metric(names, P)
    with pytest.raises(ValueError, match=r"two columns.*of 'cancer' is not known.*p\[:, 1\]"):
        metric(names, TWO, pos_label="cancer")
    np.testing.assert_allclose(metric(names, P, pos_label="cancer"), metric(Y, P))


def test_threshold_is_strict_like_argmax() -> None:
    assert bm.confusion_matrix([0, 1], [0.5, 0.5]).tolist() == [[1, 0], [1, 0]]
    assert bm.recall([0, 1], [0.4, 0.5], threshold=0.45) == 1.0


def test_log_likelihood_does_not_clip() -> None:
    assert bm.log_likelihood([0, 1], [1.0, 0.5]) == -np.inf
    assert bm.log_likelihood([0, 1], [0.0, 1.0]) == 0.0


def test_log_likelihood_reads_tiny_negatives_from_their_column() -> None:
    two = np.array([[1e-30, 1.0], [0.5, 0.5]])
    assert bm.log_likelihood([0, 1], two) == pytest.approx((np.log(1e-30) + np.log(0.5)) / 2)


def test_undefined_ratios_are_nan() -> None:
    assert np.isnan(bm.precision([0, 1], [0.1, 0.2]))
    assert np.isnan(bm.recall([0, 0], [0.1, 0.9]))
    assert bm.f1([0, 1], [0.1, 0.2]) == 0.0
    assert np.isnan(bm.f1([0, 0], [0.1, 0.2]))


# --- Calibration -------------------------------------------------------------------------------


def naive_calibration_error(y, p, edges) -> float:
    total = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (p > low) & (p <= high) if low > edges[0] else p <= high
        if inside.any():
            total += inside.mean() * abs(p[inside].mean() - y[inside].mean())
    return total


@pytest.mark.parametrize("n_bins", [1, 2, 7, 10])
def test_calibration_error_by_hand(n_bins) -> None:
    rng = np.random.default_rng(0)
    p = rng.beta(1, 3, size=500)
    y = (rng.random(500) < p**2).astype(int)
    grid = np.linspace(0, 1, n_bins + 1)
    uniform = bm.expected_calibration_error(y, p, n_bins, strategy="uniform")
    assert uniform == pytest.approx(naive_calibration_error(y, p, grid))
    quantile = bm.expected_calibration_error(y, p, n_bins)
    assert quantile == pytest.approx(naive_calibration_error(y, p, np.quantile(p, grid)))


def test_calibration_error_with_ties_and_constants() -> None:
    assert bm.expected_calibration_error([0, 1, 1, 1], [0.75] * 4) == pytest.approx(0.0)
    assert bm.expected_calibration_error([0, 1], [0.0, 1.0]) == 0.0
    assert bm.expected_calibration_error([0, 1], [1.0, 0.0]) == 1.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1), st.integers(1, 12))
def test_calibration_error_is_between_bias_and_one(rows, n_bins) -> None:
    y, p = np.array([r[0] for r in rows], dtype=int), np.array([r[1] for r in rows])
    error = bm.expected_calibration_error(y, p, n_bins)
    assert abs(p.mean() - y.mean()) - 1e-12 <= error <= 1 + 1e-12


# --- Errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("y", "p", "message"),
    [
        (Y, P[:3], "same length, got 6 and 3"),
        (Y, np.where(P > 0.8, np.nan, P), "1 entries are NaN"),
        (np.where(Y == 1, np.nan, 0.0), P, "3 missing labels"),
        ([0, 1, 2, 0, 1, 2], P, "two labels, got 3"),
        ([], [], "not empty"),
        (Y[:, None], P, "one-dimensional"),
        (Y, np.column_stack([P, P, P]), r"shape \(n,\) or \(n, 2\), got \(6, 3\)"),
        (Y, np.column_stack([P, P]), "sum to 1"),
        (["a"] * 6, P, "pass pos_label"),
    ],
)
def test_bad_input(metric, y, p, message) -> None:
    with pytest.raises(ValueError, match=message):
        metric(y, p)


@pytest.mark.parametrize("metric", PROBABILITY_METRICS, ids=lambda f: f.__name__)
def test_latent_scores_are_not_probabilities(metric) -> None:
    with pytest.raises(ValueError, match=r"lie in \[0, 1\], got values from -4 to 4"):
        metric(Y, P * 10 - 5)


@pytest.mark.parametrize("metric", RANKING_METRICS, ids=lambda f: f.__name__)
def test_ranking_takes_latent_scores_but_needs_positives(metric) -> None:
    assert metric(Y, P * 10 - 5) == pytest.approx(metric(Y, P))
    with pytest.raises(ValueError, match="all 2 are negative"):
        metric([0, 0], [0.1, 0.2])


def test_one_class() -> None:
    with pytest.raises(ValueError, match="both classes"):
        bm.roc_auc([1, 1], [0.1, 0.2])
    assert bm.brier([1, 1], [1.0, 1.0]) == 0.0
    assert bm.brier([-1, -1], [0.0, 0.0]) == 0.0
    assert bm.brier(["a", "a"], [1.0, 1.0], pos_label="a") == 0.0
    with pytest.raises(ValueError, match="which column"):
        bm.brier(["a", "a"], TWO[:2], pos_label="a")


def test_bad_options() -> None:
    with pytest.raises(ValueError, match="not among the labels"):
        bm.brier(Y, P, pos_label=7)
    with pytest.raises(ValueError, match="positive integer, got 0"):
        bm.expected_calibration_error(Y, P, 0)
    with pytest.raises(ValueError, match="'quantile' or 'uniform', got 'even'"):
        bm.expected_calibration_error(Y, P, strategy="even")


# --- Scores of a model -------------------------------------------------------------------------


class FixedModel:
    """Gives the same probabilities for every input."""

    def __init__(self, classes=(0, 1), p=P) -> None:
        self.classes_ = np.array(classes)
        self.proba = np.column_stack([1 - p, p])

    def predict_proba(self, bags):
        return self.proba

    def predict_instance_proba(self, bags):
        return self.proba


class Labelled:
    y = Y
    instance_labels = np.array([0.0, 0, 1, 1, np.nan, 1])


def test_bag_scores_are_the_metrics() -> None:
    scores = bm.bag_scores(FixedModel(), Labelled())
    assert scores["n"] == 6
    for metric in (*RANKING_METRICS, *PROBABILITY_METRICS[:-1]):
        assert scores[metric.__name__] == metric(Y, P)
    counts = [scores[k] for k in ("true_negatives", "false_positives", "false_negatives")]
    assert counts == [2, 1, 1]
    assert all(isinstance(v, float | int) for v in scores.values())
    assert bm.bag_scores(FixedModel(), None, y=Y) == scores


def test_unknown_truths_are_left_out() -> None:
    known = np.array([True, True, True, True, False, True])
    expected = bm.brier(Y[known], P[known])
    for unknown in (np.nan, -1):
        truth = np.where(known, Y, unknown)
        scores = bm.instance_scores(FixedModel(), None, truth)
        assert (scores["n"], scores["brier"]) == (5, expected)
    assert bm.instance_scores(FixedModel(), Labelled())["brier"] == expected
    named = [None if not k else ("neg", "pos")[v] for v, k in zip(Y, known, strict=True)]
    scores = bm.bag_scores(FixedModel(("neg", "pos")), None, np.array(named, dtype=object))
    assert (scores["n"], scores["brier"]) == (5, expected)


def test_minus_one_is_a_label_where_the_model_has_it() -> None:
    scores = bm.bag_scores(FixedModel((-1, 1)), None, Y * 2 - 1)
    assert (scores["n"], scores["brier"]) == (6, bm.brier(Y, P))


@pytest.mark.parametrize("classes", [("neg", "pos"), (-1, 1), (1, 2), (0, 1)])
def test_instance_labels_of_bags_are_zero_and_one(classes) -> None:
    class OnlyPositives:
        instance_labels = np.array([np.nan, np.nan, 1.0, 1.0, np.nan, 1.0])

    scores = bm.instance_scores(FixedModel(classes), OnlyPositives())
    assert (scores["n"], scores["recall"]) == (3, 2 / 3)
    assert np.isnan(scores["roc_auc"])
    assert scores["average_precision"] == 1.0


def test_one_class_is_scored_without_ranking() -> None:
    scores = bm.bag_scores(FixedModel(("a", "b")), None, ["a"] * 6)
    assert np.isnan(scores["roc_auc"])
    assert np.isnan(scores["average_precision"])
    assert scores["brier"] == pytest.approx(np.mean(P**2))


def test_score_errors() -> None:
    with pytest.raises(ValueError, match=r"bags\.y is None"):
        bm.bag_scores(FixedModel(), [[[1.0]]])
    with pytest.raises(ValueError, match=r"instance_labels is None"):
        bm.instance_scores(FixedModel(), [[[1.0]]])
    with pytest.raises(ValueError, match=r"shape \(6, 2\), but there are 2 bag labels"):
        bm.bag_scores(FixedModel(), None, [0, 1])
    with pytest.raises(ValueError, match="all 6 instance labels are missing"):
        bm.instance_scores(FixedModel(), None, [-1] * 6)
    with pytest.raises(ValueError, match=r"model's \['a', 'b'\] or 0 and 1, got \['c'\]"):
        bm.bag_scores(FixedModel(("a", "b")), None, ["a", "c"] * 3)
