"""Intervals and bands: the fast ones equal those computed one resample at a time."""

import numpy as np
import pytest
from scipy.special import expit

from bagwise import metrics
from bagwise.metrics.bootstrap import _weights

RNG = np.random.default_rng(0)
Y = RNG.random(40) < 0.4
P = np.round(np.clip(0.3 * Y + 0.7 * RNG.random(40), 0, 1), 1)  # with ties


@pytest.mark.parametrize(
    "name", ["roc_auc", "average_precision", "accuracy", "log_likelihood", "brier"]
)
def test_all_at_once_equals_one_by_one(name: str) -> None:
    fast = metrics.bootstrap_scores(Y, P, n_resamples=199)[name]
    weights = _weights(Y, 199, np.random.default_rng(0)).astype(int)
    rows = [np.repeat(np.arange(40), w) for w in weights]
    slow = [getattr(metrics, name)(Y[r], P[r]) for r in rows]
    np.testing.assert_allclose(
        fast, np.quantile(slow, [0.025, 0.975], method="nearest"), rtol=1e-12
    )


def test_intervals_cover_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(200):
        y = rng.random(120) < 0.5
        p = expit(rng.normal(size=120) + y)
        low, high = metrics.bootstrap_scores(y, p, random_state=trial)["roc_auc"]
        hits += low <= 0.7602 <= high  # Phi(1 / sqrt(2)), the AUC of two unit normals one apart
    assert 0.87 <= hits / 200 <= 0.99


def test_every_resample_has_both_classes() -> None:
    y = np.arange(30) == 0
    W = _weights(y, 500, np.random.default_rng(0))
    assert W.shape == (500, 30)
    assert (W[:, 0] > 0).all()
    assert (W.sum(axis=1) == 30).all()


def test_band_is_the_curve_with_limits_around_it() -> None:
    band = metrics.roc_band(Y, P, n_resamples=100)
    assert np.trapezoid(band.y, band.x) == pytest.approx(metrics.roc_auc(Y, P), abs=0.01)
    assert (band.low <= band.high).all()
    precision = metrics.precision_recall_band(Y, P, n_resamples=100)
    assert precision.y[-1] == pytest.approx(metrics.precision(Y, P, threshold=P[Y].min() - 1e-9))
    assert (np.diff(precision.y) <= 1e-12).all()


def test_reliability_counts_every_prediction() -> None:
    p, share, low, high, n = metrics.reliability_curve(Y, P, n_bins=5)
    assert n.sum() == 40
    assert (low <= share).all()
    assert (share <= high).all()
    assert (np.diff(p) >= 0).all()
    assert (share * n).sum() == pytest.approx(Y.sum())
