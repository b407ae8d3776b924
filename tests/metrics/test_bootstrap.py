"""Intervals and bands: honest at the edge, wide enough, and over patients where they are known."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from bagwise import metrics
from bagwise.metrics import bootstrap
from bagwise.metrics.intervals import auc_interval, design_of, share_interval

RNG = np.random.default_rng(0)
Y = RNG.random(40) < 0.4
P = np.round(np.clip(0.3 * Y + 0.7 * RNG.random(40), 0.01, 0.99), 1)  # with ties
NAMES = ["roc_auc", "average_precision", "accuracy", "log_likelihood", "brier"]


@pytest.mark.parametrize("name", NAMES)
def test_limits_hold_the_score(name: str) -> None:
    low, high = metrics.bootstrap_scores(Y, P)[name]
    assert low < getattr(metrics, name)(Y, P) < high


@pytest.mark.parametrize("right", [True, False])
def test_nine_bags_that_agree_leave_doubt(right: bool) -> None:
    y = np.arange(9) < 4
    p = np.where(y == right, 0.999, 0.001)
    limits = metrics.bootstrap_scores(y, p)
    widths = {name: high - low for name, (low, high) in limits.items()}
    assert min(widths.values()) > 0.2
    assert limits["roc_auc"][int(right)] == limits["accuracy"][int(right)] == float(right)
    low, high = metrics.bootstrap_interval(y, p, metrics.f1, n_resamples=100)
    assert high - low > 0.2
    band = metrics.roc_band(y, p)
    assert np.mean(band.high - band.low) > 0.2


def test_wrong_and_certain_has_no_lower_limit() -> None:
    low, high = metrics.bootstrap_scores([0, 1, 1], [0.2, 0.0, 0.9])["log_likelihood"]
    assert low == high == -np.inf


def test_known_values() -> None:
    """Accuracy 7 of 9 and an AUC of .9 over 20 and 30 by formulas of their own."""
    y = np.repeat([False, True], [20, 30])
    score = np.r_[np.linspace(0, 1, 20), np.linspace(0.8, 1.8, 30)]
    auc = metrics.roc_auc(y, score)
    low, high = metrics.bootstrap_scores(y, score / 2)["roc_auc"]
    for end in (low, high):
        q1, q2 = end / (2 - end), 2 * end**2 / (1 + end)
        # Hanley and McNeil's variance with 24 in place of both 19 and 29 [Newcombe 2006].
        v = (end * (1 - end) + 24 * (q1 - end**2) + 24 * (q2 - end**2)) / 600
        assert abs(auc - end) == pytest.approx(1.959964 * np.sqrt(v), rel=1e-5)
    nine = metrics.bootstrap_scores([0, 0, 0, 0, 1, 1, 1, 1, 1], [0.1] * 3 + [0.6] * 5 + [0.1])
    shares = stats.binomtest(7, 9).proportion_ci(method="wilson")
    assert nine["accuracy"] == pytest.approx((shares.low, shares.high), rel=1e-6)


def truth(separation: float, n: int = 400_000) -> dict[str, float]:
    rng = np.random.default_rng(9)
    y, p = draw(rng, n, separation)
    return {name: getattr(metrics, name)(y, p) for name in NAMES}


def draw(rng: np.random.Generator, n: int, separation: float) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and too bold probabilities, from two Gaussians."""
    while (y := rng.random(n) < 0.5).all() or not y.any():
        pass
    x = separation * (rng.normal(size=n) + separation * (y - 0.5))
    return y, expit(2 * x)


@pytest.mark.parametrize("separation", [1.0, 3.0])
@pytest.mark.parametrize("n", [9, 50])
def test_intervals_cover_as_often_as_they_say(n: int, separation: float) -> None:
    rng, exact = np.random.default_rng(1), truth(separation)
    hits = dict.fromkeys(NAMES, 0)
    for trial in range(120):
        limits = metrics.bootstrap_scores(*draw(rng, n, separation), random_state=trial)
        for name, (low, high) in limits.items():
            hits[name] += low <= exact[name] <= high
    # 95 %, less what 120 trials and the steps of a share of nine allow.
    assert min(hits.values()) >= stats.binom.ppf(1e-4, 120, 0.94), hits


def test_patients_are_the_units() -> None:
    """Five bags of a patient that fare alike are no five bags."""
    rng = np.random.default_rng(2)
    hits, careless = 0, 0
    for trial in range(80):
        patient = np.repeat(np.arange(20), 5)
        y = (np.arange(20) % 2 == 1)[patient]
        x = rng.normal(size=20)[patient] + 0.2 * rng.normal(size=100)
        p = expit(x * np.sqrt(1 / 1.04) + y - 0.5)
        for groups in (patient, None):
            limits = metrics.bootstrap_scores(y, p, groups=groups, random_state=trial)
            low, high = limits["roc_auc"]
            covered = low <= stats.norm.cdf(np.sqrt(0.5)) <= high
            hits, careless = (hits + covered, careless) if groups is not None else (
                hits, careless + covered)  # fmt: skip
    assert hits >= stats.binom.ppf(1e-4, 80, 0.94)
    assert careless < 0.85 * 80


@pytest.mark.parametrize("separation", [1.0, 2.5])
@pytest.mark.parametrize("mixed", [False, True], ids=["a-class-each", "both-classes"])
def test_few_unlike_patients_are_covered_as_often_as_said(mixed: bool, separation: float) -> None:
    """Patients with one to twenty bags: the one who fares badly may have most of them."""
    rng, trials, hits = np.random.default_rng(4), 400, np.zeros(2)
    for _ in range(trials):
        patient = np.repeat(np.arange(12), rng.geometric(0.2, size=12))
        y = rng.random(patient.size) < 0.5 if mixed else (np.arange(12) % 2 == 1)[patient]
        z = np.sqrt(0.9) * rng.normal(size=12)[patient] + np.sqrt(0.1) * rng.normal(size=y.size)
        x = z + separation * (y - 0.5)
        auc = auc_interval(metrics.roc_auc(y, x), y, x, patient, 0.95)
        accuracy = share_interval((x > 0) == y, patient, 0.95)
        exact = stats.norm.cdf([separation / np.sqrt(2), separation / 2])
        hits += [low <= e <= high for (low, high), e in zip([auc, accuracy], exact, strict=True)]
    # Five standard errors of a coverage over so many trials.
    assert np.all(hits / trials >= 0.95 - 5 * np.sqrt(0.95 * 0.05 / trials)), hits / trials


def test_design_effect() -> None:
    x = np.random.default_rng(0).normal(size=4000)
    alone = design_of(x, np.arange(4000))
    assert alone.effect == 1.0 and alone.freedom == np.inf
    assert design_of(x, np.arange(4000) // 4).effect == pytest.approx(1.0, abs=0.2)
    copies = design_of(np.repeat(x[:1000], 4), np.arange(4000) // 4)
    assert copies.effect == pytest.approx(4, rel=0.01)
    assert copies.freedom == pytest.approx(999, rel=0.2)
    nothing = design_of(np.zeros(12), np.arange(12) // 4)  # nothing tells: take the worst
    assert nothing.effect == pytest.approx(4) and nothing.freedom == np.inf
    # Copies in groups of unlike size count less than the mean size says (Kish).
    sizes = np.array([1, 1, 1, 9])
    own = np.repeat([1.0, -1.0, 1.0, -1.0], sizes)
    unlike = design_of(own, np.repeat(np.arange(4), sizes))
    assert unlike.effect == pytest.approx(np.sum(sizes**2) / 12)
    # One group carries the variance, which is then known from one.
    few = design_of(np.repeat([-30.0, 1.0], [1, 30]), np.append(0, np.arange(30) // 3 + 1))
    assert few.freedom < 3
    with pytest.raises(ValueError, match="one entry per label, 2"):
        metrics.bootstrap_scores([0, 1], [0.2, 0.7], groups=["a"])


def test_weights_of_patients_are_shared_and_sum_to_one() -> None:
    (W,) = bootstrap._weights(np.array([0, 0, 1, 2]), 500, np.random.default_rng(0))
    assert W.shape == (500, 6)
    np.testing.assert_allclose(W.sum(axis=1), 1)
    np.testing.assert_array_equal(W[:, 0], W[:, 1])
    # The unseen weigh as one group of the mean size.
    assert W[:, 4:].sum(axis=1).mean() == pytest.approx(0.25, abs=0.04)


def test_any_score_has_an_interval_that_tightens() -> None:
    few = metrics.bootstrap_interval(Y, P, metrics.f1, n_resamples=60)
    many = metrics.bootstrap_interval(np.tile(Y, 10), np.tile(P, 10), metrics.f1, n_resamples=60)
    assert few[0] < many[0] < metrics.f1(Y, P) < many[1] < few[1]


def test_band_is_the_curve_with_limits_around_it() -> None:
    band = metrics.roc_band(Y, P, n_resamples=100)
    assert np.trapezoid(band.y, band.x) == pytest.approx(metrics.roc_auc(Y, P), abs=0.01)
    assert (band.low <= band.y).all()
    assert (band.y <= band.high).all()
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


def test_weights_are_drawn_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with the number of labels times that of resamples."""
    y, p = np.arange(400) % 2, np.linspace(0.05, 0.95, 400)
    sizes: list[int] = []
    draw = bootstrap._weights

    def watched(*arguments: Any) -> Iterator[Any]:
        for W in draw(*arguments):
            sizes.append(W.size)
            yield W

    whole = metrics.bootstrap_scores(y, p), metrics.roc_band(y, p)
    monkeypatch.setattr(bootstrap, "_weights", watched)
    monkeypatch.setattr(bootstrap, "MOST_WEIGHTS", 2000)
    parts = metrics.bootstrap_scores(y, p), metrics.roc_band(y, p)
    assert max(sizes) <= 5 * 402 and sum(sizes) == (1000 + 500) * 402
    for name, limits in whole[0].items():
        np.testing.assert_allclose(parts[0][name], limits, atol=0.02)
    np.testing.assert_allclose(parts[1].low, whole[1].low, atol=0.1)
