"""Both ends of instance probabilities, from scores of bags that were left out."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import optimize, special

import bagwise as bw
from bagwise.core.calibration.instance_ends import (
    Ends,
    InstanceCalibration,
    deviation,
    logit_width,
    lower_logits,
)
from bagwise.core.calibration.instances import (
    WEIGHT,
    Rows,
    calibrate_instances,
    check_witness_rate,
    most_probable,
    neg_log_posterior,
    refuse_witness_rate,
    rows_of,
    shift_to_share,
    weight_from_labels,
)

PLAIN = InstanceCalibration(0.8, 1.5, -0.5, 0.1, np.zeros(2), 0.8, 1.0, n_bags=40)


def drawn(
    a: float, b: float, r: float, c: float = 0.0, n_bags: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of instances that share T, each drawn from P(T | s): logits, offsets, T, labels.

    Both instances of a bag have the same logit, so that one T serves both.
    """
    rng = np.random.default_rng(seed)
    s = 4 * rng.normal(size=n_bags) - 2
    y = rng.random(n_bags) < special.expit(a * s + b)
    T = y | (rng.random(n_bags) < special.expit(r + c * s))
    return np.repeat(s, 2), np.arange(0, 2 * n_bags + 1, 2), T, np.repeat(y, 2)


def rows(n: int = 40) -> Rows:
    """Every kind of row: free, known, alone, of both labels."""
    rng = np.random.default_rng(3)
    T, alone = rng.random(n) < 0.6, rng.random(n) < 0.2
    y = np.where(rng.random(n) < 0.3, (rng.random(n) < 0.5) & T, np.nan)
    y = np.where(np.isnan(y) & (alone | ~T), T, y)
    return Rows(3 * rng.normal(size=n), T, y, alone, rng.integers(1, 4, n) / 2)


@pytest.mark.parametrize("x", [(0.0, 0.0, 0.0, 0.0), (0.4, 2.0, -1.0, 0.3), (-1.0, -3.0, 2.0, 0.8)])
def test_the_gradient_is_that_of_the_objective(x: tuple[float, ...]) -> None:
    found = neg_log_posterior(np.array(x), rows())[1]
    expected = optimize.approx_fprime(
        np.array(x), lambda at: neg_log_posterior(at, rows())[0], 1e-6
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_objective_is_the_likelihood_of_labels() -> None:
    """One row of each kind, written out."""
    s, (a, b, r, c) = 0.7, (1.3, -0.4, 0.2, 0.26)
    p, rho = special.expit(a * s + b), special.expit(r + c * s)
    x = np.array([np.log(a), b, r, c / a])
    prior = neg_log_posterior(x, Rows(*(np.empty(0) for _ in range(5))))[0]
    cases: dict[tuple[bool, float, bool], float] = {
        (True, np.nan, False): p + (1 - p) * rho,
        (False, 0.0, False): (1 - p) * (1 - rho),
        (True, 1.0, False): p,
        (True, 0.0, False): (1 - p) * rho,
        (True, 1.0, True): p,
        (False, 0.0, True): 1 - p,
    }
    for (T, y, alone), expected in cases.items():
        row = Rows(*(np.array([value]) for value in (s, T, y, alone, 1.0)))
        assert np.exp(prior - neg_log_posterior(x, row)[0]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "r", "c"), [(1.0, 0.0, 0.0, 0.0), (1.5, 3.0, -1.0, 0.0), (0.8, 1.0, 0.5, 0.15)]
)
def test_what_was_drawn_from_the_upper_end_is_found(a: float, b: float, r: float, c: float) -> None:
    s, offsets, T, _ = drawn(a, b, r, c, n_bags=20_000)
    found = calibrate_instances(s, offsets, T)
    p = special.expit(found.slope * s + found.intercept)
    np.testing.assert_allclose(p, special.expit(a * s + b), atol=0.1)
    assert np.mean(p) == pytest.approx(np.mean(special.expit(a * s + b)), abs=0.03)
    assert found.drift == pytest.approx(c, abs=0.06)


def test_lower_logits_by_enumeration() -> None:
    s = np.array([-1.0, 0.5, -2.0, 0.3, 1.0])
    offsets = np.array([0, 3, 5])
    expected = []
    for first, last in ((0, 3), (3, 5)):
        p = special.expit(s[first:last])
        labels = np.array(list(product([0, 1], repeat=last - first)))[1:]  # not all negative
        weights = np.prod(np.where(labels, p, 1 - p), axis=1)
        expected += list(weights @ labels / weights.sum())
    np.testing.assert_allclose(special.expit(lower_logits(s, offsets)), expected, rtol=1e-12)


def test_lower_logits_keep_their_digits() -> None:
    s = np.array([-40.0, -40.0, -20.7, -20.7, -20.7])
    z = lower_logits(s, np.array([0, 2, 5]))
    np.testing.assert_allclose(special.expit(z), [1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3], rtol=1e-6)


def ends(calibration: InstanceCalibration, s: Any, offsets: Any, P: Any, **more: Any) -> Ends:
    P = np.asarray(P, dtype=float)
    bag_p = np.column_stack([1 - P, P])
    return calibration.probability(np.asarray(s, dtype=float), np.asarray(offsets), bag_p, **more)


def test_no_instance_is_more_probable_than_its_bag() -> None:
    rng = np.random.default_rng(0)
    offsets = np.append(0, np.cumsum(rng.integers(1, 6, 50)))
    s, P = 8 * rng.normal(size=offsets[-1]), rng.random(50)
    for calibration in (PLAIN, replace(PLAIN, shifts=np.array([9.0, -9.0]), doubt=0.2)):
        found = ends(calibration, s, offsets, P)
        of_bag = np.repeat(P, np.diff(offsets)) * (1 + 1e-14)  # sums are rounded
        between = found.p[:, 1]
        assert np.all(found.low <= between * (1 + 1e-14))
        assert np.all(between <= found.high * (1 + 1e-14))
        assert np.all(found.high <= of_bag)
        np.testing.assert_allclose(found.p.sum(axis=1), 1, rtol=1e-14)
        alone = np.repeat(np.diff(offsets) == 1, np.diff(offsets))
        np.testing.assert_allclose(found.p[alone, 1], of_bag[alone], rtol=2e-14)
        np.testing.assert_allclose(found.low[alone], found.high[alone], rtol=1e-14)


def test_a_higher_logit_is_a_higher_probability() -> None:
    grid = np.linspace(-20, 20, 400)
    for drift in (0.0, 0.3, 0.79):
        found = [
            ends(replace(PLAIN, drift=drift), [s, -1.0, 0.0], [0, 3], [0.9]).p[0, 1] for s in grid
        ]
        assert np.all(np.diff(found) >= 0)


def test_certain_bags_and_extreme_logits_stay_finite() -> None:
    s = np.array([-20.7, 20.7, -20.7, -20.7])
    std = np.array([0.0, 1e-9, 1e-9, 3e-5])
    for P in ([0.0, 0.0], [1.0, 1.0], [0.5, 1e-12]):
        found = ends(PLAIN, s, [0, 2, 4], P, std=std, bag_std=np.zeros(2))
        assert all(np.all(np.isfinite(x)) for x in (found.p, found.low, found.high, found.std))
        assert np.all((found.p >= 0) & (found.p <= 1))


def test_deviations_are_those_of_both_ends_and_of_their_distance() -> None:
    s, offsets, P = np.array([-2.0, -1.0, 1.0]), np.array([0, 3]), [0.9]
    none: dict[str, Any] = {"std": np.zeros(3), "bag_std": np.zeros(1)}
    found = ends(PLAIN, s, offsets, P, **none)
    between = np.sqrt(0.8 * 0.2) * (found.high - found.low)
    np.testing.assert_allclose(found.std, between, rtol=1e-10)
    settled = ends(replace(PLAIN, doubt=0.0), s, offsets, P, **none)
    np.testing.assert_allclose(settled.std, 0, atol=1e-8)
    np.testing.assert_array_equal(settled.p, found.p)
    np.testing.assert_allclose(settled.low, settled.high, rtol=1e-12)
    p = special.expit(s)
    most = {"std": np.sqrt(p * (1 - p)) * (1 - 1e-9), "bag_std": np.array([0.3 * (1 - 1e-9)])}
    widest = ends(PLAIN, s, offsets, P, **most)
    assert np.all(widest.std > found.std)
    assert np.all(widest.std <= np.sqrt(widest.p[:, 0] * widest.p[:, 1]))


def test_deviations_stay_where_nothing_changes() -> None:
    p = np.array([1e-6, 0.01, 0.3, 0.5, 0.999])
    for share in (0.0, 0.1, 0.9, 0.999):
        std = share * np.sqrt(p * (1 - p))
        np.testing.assert_allclose(deviation(p, 1 - p, logit_width(p, std)), std, atol=1e-9)


def test_the_deviation_of_a_narrow_logit_is_that_of_its_tangent() -> None:
    p, width = np.array([0.1, 0.6]), 1e-4
    np.testing.assert_allclose(deviation(p, 1 - p, width), p * (1 - p) * width, rtol=1e-6)


def test_narrow_deviations_are_those_of_the_tangents_of_both_ends() -> None:
    calibration = replace(PLAIN, drift=0.6, doubt=0.0)  # nothing lies between the ends
    s, offsets, P = np.array([-2.0, -1.0, 1.0]), np.array([0, 3]), 0.9
    p, step = special.expit(s), 1e-5
    std = 1e-5 * p * (1 - p)  # logits have widths of 1e-5
    found = ends(calibration, s, offsets, [P], std=std, bag_std=np.zeros(1))
    lower = special.expit(calibration.logits(s, offsets)[:, 0])
    up, down = (special.expit(calibration.logits(s + h, offsets)[:, 1]) for h in (step, -step))
    tangents = np.array([lower * (1 - lower), (up - down) / (2 * step)])
    variance = np.array([1 - calibration.weight, calibration.weight]) @ (P * tangents) ** 2
    np.testing.assert_allclose(found.std, 1e-5 * np.sqrt(variance), rtol=1e-6)


# --- What sharpens it ----------------------------------------------------------------------------


def test_deviations_of_bags_reach_their_instances() -> None:
    """Var(P g) = Var(P) g^2 at each end, where the logits of instances have no width."""
    s, offsets, P = np.array([-1.0, 0.5, 2.0]), np.array([0, 3]), 0.4
    g = special.expit(PLAIN.logits(s, offsets))
    weights = np.array([1 - PLAIN.weight, PLAIN.weight])
    still, moved = (
        ends(PLAIN, s, offsets, [P], std=np.zeros(3), bag_std=np.array([d])) for d in (0.0, 0.3)
    )
    assert still.std is not None and moved.std is not None
    np.testing.assert_allclose(moved.std**2 - still.std**2, 0.3**2 * g**2 @ weights, rtol=1e-9)


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.9])
def test_a_stated_share_is_kept_by_both_ends(rate: float) -> None:
    rng = np.random.default_rng(0)
    offsets, T = np.arange(0, 401, 10), np.arange(40) % 2 == 1
    s = np.repeat(T, 10) * 2.0 - 3 + rng.normal(size=400)
    found = calibrate_instances(s, offsets, T, witness_rate=rate)
    inside = np.repeat(T, 10)
    both = special.expit(found.logits(s, offsets))[inside]
    np.testing.assert_allclose(both.mean(axis=0), rate, rtol=1e-6)


def test_known_labels_count_in_a_stated_share() -> None:
    known = np.array([1.0, 0.0, np.nan, np.nan])
    shift = shift_to_share(np.zeros(4), known, 0.5)
    assert shift == pytest.approx(0.0, abs=1e-9)
    assert shift_to_share(np.zeros(2), np.full(2, np.nan), 1.0) > 30


def test_shares_below_one_for_each_bag_are_refused() -> None:
    bags = bw.Bags.from_list([np.zeros((10, 1))] * 4)
    T = np.arange(4) % 2 == 1
    refuse_witness_rate(None, "not asked for", bags, T)
    refuse_witness_rate(0.1, None, bags, T)
    with pytest.raises(ValueError, match=r"witness_rate=0.05 of the 20 .* at least 0.1 here"):
        refuse_witness_rate(0.05, None, bags, T)
    with pytest.raises(ValueError, match=r"not done here: too few; leave it out"):
        refuse_witness_rate(0.5, "too few", bags, T)


def test_shares_are_checked() -> None:
    check_witness_rate(None, "posterior")
    check_witness_rate(1.0, "auto")
    for wrong in (0.0, -1.0, np.nan, 20.0):
        with pytest.raises(ValueError, match="witness_rate"):
            check_witness_rate(wrong, "auto")
    with pytest.raises(ValueError, match="instance_score='posterior' leaves them"):
        check_witness_rate(0.5, "posterior")


def test_known_labels_find_the_end_that_is_true() -> None:
    rng = np.random.default_rng(0)
    both = np.column_stack([np.full(200, 0.05), np.full(200, 0.6)])
    none = weight_from_labels(both[:0], np.zeros(0, dtype=bool))
    assert none == (WEIGHT, 1.0)
    for end, p in enumerate((0.05, 0.6)):
        weight, doubt = weight_from_labels(both, rng.random(200) < p)
        assert abs(weight - end) < 0.15 and doubt < 0.5
    weight, doubt = weight_from_labels(both[:3], np.zeros(3, dtype=bool))
    assert 0.3 < weight < WEIGHT and doubt > 0.7  # three labels say little


def test_labels_of_negative_bags_and_of_bags_of_one_tell_nothing_new() -> None:
    s, offsets, T, _ = drawn(1.0, 1.0, -1.0, n_bags=100)
    known = np.where(np.repeat(T, 2), np.nan, 0.0)
    assert calibrate_instances(s, offsets, T, known).weight == WEIGHT
    single = calibrate_instances(s, np.arange(201), np.repeat(T, 2), np.repeat(T, 2) * 1.0)
    assert (single.weight, single.doubt) == (WEIGHT, 1.0)


def test_known_labels_sharpen_the_calibration() -> None:
    s, offsets, T, y = drawn(1.0, 2.0, -1.0, n_bags=400)
    inside = np.repeat(T, 2)
    s = s - 3 * inside * ~y  # so that "few" and "many" differ
    known = np.where(inside & (np.arange(800) % 4 == 0), y, np.nan)
    found = calibrate_instances(s, offsets, T, known)
    assert found.doubt < 0.6


# --- Degenerate inputs ---------------------------------------------------------------------------


def test_bags_of_one_are_labelled_instances() -> None:
    """Then the upper end is Platt's scaling with the true labels."""
    rng = np.random.default_rng(0)
    s = 3 * rng.normal(size=4000)
    T = rng.random(4000) < special.expit(0.5 * s + 1)
    found = calibrate_instances(s, np.arange(4001), T)
    p = special.expit(found.slope * s + found.intercept)
    np.testing.assert_allclose(p, special.expit(0.5 * s + 1), atol=0.06)
    assert found.drift < 0.05


@pytest.mark.parametrize("T", [np.ones(20, dtype=bool), np.arange(20) % 2 == 1])
@pytest.mark.parametrize("s", [np.zeros(60), np.repeat(np.arange(20) % 2 * 40.0 - 20, 3)])
def test_constant_and_separated_scores_give_a_usable_calibration(
    T: np.ndarray, s: np.ndarray
) -> None:
    found = calibrate_instances(s, np.arange(0, 61, 3), T)
    p = ends(found, s, np.arange(0, 61, 3), np.where(T, 0.9, 0.1)).p
    assert np.all(np.isfinite(p)) and 0 < found.slope < 25


def test_the_mode_is_the_best_of_both_starts() -> None:
    s, offsets, T, _ = drawn(1.0, 4.0, -2.0, n_bags=300)
    told = Rows(s, *rows_of(offsets, T, np.full(len(s), np.nan)), np.ones(len(s)))
    x = most_probable(told)
    value, gradient = neg_log_posterior(x, told)
    for start in ((0, 0, 0, 0), (0, 3, -1, 0), (0.5, 1, 0, 0.5), (-1, -3, 1, 0)):
        assert value <= neg_log_posterior(np.array(start, dtype=float), told)[0]
    assert np.all(np.abs(gradient[:3]) < 0.1)


def test_order_of_instances_and_bags_does_not_matter() -> None:
    s, offsets, T, _ = drawn(1.0, 2.0, -1.0, n_bags=200)
    turned = calibrate_instances(s[::-1], offsets, T[::-1])
    found = calibrate_instances(s, offsets, T)
    assert turned.slope == pytest.approx(found.slope, rel=1e-3)
    assert turned.intercept == pytest.approx(found.intercept, rel=1e-2, abs=1e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slope": 0.0}, "slope"),
        ({"slope": np.nan}, "slope"),
        ({"intercept": np.inf}, "intercept"),
        ({"share": "0"}, "share"),
        ({"drift": -0.1}, "drift"),
        ({"drift": 0.9}, "drift must be less than slope"),
        ({"shifts": np.zeros(3)}, "shifts"),
        ({"shifts": np.array([0.0, np.nan])}, "shifts"),
        ({"weight": 1.1}, "weight"),
        ({"doubt": -0.1}, "doubt"),
        ({"n_bags": 0}, "n_bags"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        replace(PLAIN, **change)
