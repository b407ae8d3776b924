"""Thresholds chosen on left-out bags: they keep what they promise, and say how sure they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

from bagwise.core.calibration.conformal import LeftOutBags
from bagwise.core.calibration.thresholds import OperatingPoint, choose, threshold_of_cost

SHIFT = 2.0  # between classes, in standard deviations: logits z = SHIFT x are calibrated


def drawn(n: int, seed: int, **more: Any) -> LeftOutBags:
    rng = np.random.default_rng(seed)
    T = np.arange(n) % 2 == 1
    return LeftOutBags(SHIFT * (np.where(T, 0.5, -0.5) * SHIFT + rng.normal(size=n)), T, **more)


@pytest.mark.parametrize("name", ["sensitivity", "specificity"])
def test_new_bags_are_called_as_asked_on_average(name: str) -> None:
    asked, rates = 0.85, []
    for seed in range(300):
        point = choose(drawn(60, seed), 0, **{name: asked})
        side = 1.0 if name == "sensitivity" else -1.0
        rates.append(special.ndtr(side * (side * 0.5 * SHIFT - point.logit / SHIFT)))
    error = 5 * np.std(rates) / np.sqrt(len(rates))
    assert asked - error <= np.mean(rates) <= asked + 1 / 31 + error


def test_a_threshold_is_the_limit_of_the_conformal_set() -> None:
    kept = drawn(80, 1)
    point = choose(kept, 0, sensitivity=0.9)
    z = np.append(np.sort(kept.logits), [point.logit, np.nextafter(point.logit, -np.inf)])
    np.testing.assert_array_equal(z >= point.logit, kept.sets(z, 0.1)[:, 1])
    point = choose(kept, 0, specificity=0.9)
    z = np.append(np.sort(kept.logits), [point.logit, np.nextafter(point.logit, -np.inf)])
    np.testing.assert_array_equal(z < point.logit, kept.sets(z, 0.1)[:, 0])


def test_intervals_hold_what_they_should() -> None:
    """Nine in ten 95 % intervals at least hold the threshold that infinitely many bags give."""
    truth = SHIFT * (0.5 * SHIFT + special.ndtri(0.2))
    inside = []
    for seed in range(60):
        low, high = choose(drawn(100, seed), seed, sensitivity=0.8).logit_interval
        inside.append(low <= truth <= high)
    assert np.mean(inside) > 0.95 - 5 * np.sqrt(0.95 * 0.05 / 60)


def test_groups_widen_intervals() -> None:
    few = drawn(40, 3)
    copies = LeftOutBags(np.repeat(few.logits, 4), np.repeat(few.T, 4))
    grouped = LeftOutBags(copies.logits, copies.T, np.repeat(np.arange(40), 4))
    wide, narrow = (np.ptp(choose(kept, 0, cost=2).logit_interval) for kept in (grouped, copies))
    assert wide > 1.5 * narrow
    assert choose(grouped, 0, sensitivity=0.8).logit == choose(few, 0, sensitivity=0.8).logit


def test_costs_give_the_threshold_of_least_expected_cost() -> None:
    kept = drawn(800, 4)
    point = choose(kept, 0, cost=9)
    assert point.threshold == pytest.approx(0.1)
    low, high = point.logit_interval
    assert low < point.logit < high and high - low < 1.5
    z, c = np.sort(kept.logits), 9

    def cost(t: float) -> float:
        return float(
            c * np.mean(kept.T & (kept.logits < t)) + np.mean(~kept.T & (kept.logits >= t))
        )

    assert cost(point.logit) < 1.2 * min(map(cost, z[::10]))


def test_recalibration_finds_what_logits_are_off_by() -> None:
    kept = drawn(4000, 5)
    off = LeftOutBags(0.5 * kept.logits + 1, kept.T)
    found = threshold_of_cost(off, np.ones((1, 4000)), 3.0, positive=False)
    right = threshold_of_cost(kept, np.ones((1, 4000)), 3.0, positive=False)
    assert found[0] == pytest.approx(0.5 * right[0] + 1, abs=0.02)
    flipped = LeftOutBags(-kept.logits, kept.T)
    assert np.isfinite(threshold_of_cost(flipped, np.ones((2, 4000)), 3.0, positive=False)).all()


def test_what_cannot_be_promised_is_refused() -> None:
    kept = drawn(20, 0)
    with pytest.raises(ValueError, match=r"sensitivity of 0.95 .* 10 positive bags, .* most 0.909"):
        choose(kept, 0, sensitivity=0.95)
    groups = np.arange(20) // 4
    with pytest.raises(ValueError, match="from 5 negative groups with bags"):
        choose(LeftOutBags(kept.logits, kept.T, groups), 0, specificity=0.9)
    assert choose(kept, 0, sensitivity=10 / 11).sensitivity == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "none of them"),
        ({"sensitivity": 0.9, "cost": 2}, "got sensitivity and cost"),
        ({"sensitivity": 1.0}, "above 0 and below 1"),
        ({"specificity": 0}, "greater than 0"),
        ({"cost": -1}, "greater than 0"),
        ({"cost": "much"}, "finite number"),
    ],
)
def test_one_thing_is_asked_for(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose(drawn(40, 0), 0, **asked)


@pytest.mark.parametrize(
    "wrong",
    [
        {"asked": 3},
        {"logit": np.nan},
        {"logit_interval": (1.0, 0.0)},
        {"logit_interval": [0.0, 1.0]},
        {"sensitivity": 1.5},
        {"n_positive": 0},
    ],
)
def test_points_that_do_not_fit_together_are_refused(wrong: dict[str, Any]) -> None:
    good = vars(choose(drawn(40, 0), 0, cost=2))
    OperatingPoint(**good)
    with pytest.raises(ValueError, match="operating point"):
        OperatingPoint(**(good | wrong))
