"""Conformal p-values and sets: exact on small numbers, the same as those of other libraries."""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.calibration.conformal import (
    MOST_STEPS,
    LeftOutBags,
    Reference,
    calibrated_left_out,
    known_positives,
    unit_weights,
)
from bagwise.core.calibration.left_out import LeftOut

RNG = np.random.default_rng(0)


def left_out_bags(n: int = 60, seed: int = 0, **more: Any) -> LeftOutBags:
    rng = np.random.default_rng(seed)
    T = np.arange(n) % 2 == 1
    return LeftOutBags(np.where(T, 1.0, -1.0) + rng.normal(size=n), T, **more)


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e170, 1e300])
def test_tiny_and_huge_counts_weigh_like_others(scale: float) -> None:
    counts = np.array([3.0, 1.0, 2.0])
    np.testing.assert_allclose(
        unit_weights(3, counts=scale * counts), unit_weights(3, counts=counts), rtol=1e-12
    )


def test_ranks_of_exchangeable_scores_are_uniform() -> None:
    """Over all orders of n + 1 scores P(p <= alpha) is floor(alpha (n + 1)) / (n + 1), exactly."""
    values = np.array([0.3, 1.0, 2.0, 4.0])
    found = [
        Reference.of(values[list(order[:-1])]).p_value(values[[order[-1]]])[0]
        for order in itertools.permutations(range(4))
    ]
    for alpha in (0.2, 0.25, 0.5, 0.76):
        share = Fraction(int(np.sum(np.array(found) <= alpha)), len(found))
        assert share == Fraction(int(alpha * 4), 4)


def test_members_of_units_share_their_weight() -> None:
    scores, units = np.array([1.0, 2.0, 3.0, 2.5]), np.array([7, 7, 7, 9])
    reference = Reference.of(scores, units)
    # Of unit 7 a third is at least 2.6, of unit 9 none.
    assert reference.p_value(np.array([2.6]))[0] == pytest.approx((1 + 1 / 3) / 3)
    assert reference.p_value(np.array([2.5]))[0] == pytest.approx((1 + 1 / 3 + 1) / 3)
    assert reference.n_units == 2


def test_a_random_member_of_a_new_unit_is_strange_as_often_as_stated() -> None:
    """Units of very different sizes and levels: the guarantee is of a member of a new unit."""
    missed, n_trials, alpha = 0.0, 2000, 0.2
    for _ in range(n_trials):
        sizes = RNG.integers(1, 30, 10)
        levels = RNG.normal(size=10) * (1 + (sizes > 15))
        unit = np.repeat(np.arange(10), sizes)
        scores = levels[unit] + 0.3 * RNG.normal(size=len(unit))
        old = unit < 9
        p = Reference.of(scores[old], unit[old]).p_value(scores[~old])
        missed += np.mean(p <= alpha) / n_trials
    error = 5 * np.sqrt(alpha * (1 - alpha) / n_trials)
    assert missed <= alpha + error and missed > alpha - 0.1 - error  # steps of 1 / 10


def test_equal_counts_change_nothing_and_unequal_ones_promise_less() -> None:
    scores = RNG.normal(size=20)
    new = RNG.normal(size=50)
    plain = Reference.of(scores).p_value(new)
    np.testing.assert_allclose(Reference.of(scores, None, np.full(20, 3.5)).p_value(new), plain)
    unequal = Reference.of(scores, None, np.where(np.arange(20) < 2, 10.0, 1.0))
    assert unequal.n_units == pytest.approx((20 + 18) ** 2 / (200 + 18))
    assert unit_weights(3, np.array([0, 0, 1]), np.array([1.0, 3.0, 2.0])).sum() == 2


def test_thinned_scores_never_give_smaller_p_values() -> None:
    scores, new = RNG.normal(size=20_000), RNG.normal(size=500)
    reference = Reference.of(scores)
    exact = (1 + np.sum(scores >= new[:, None], axis=1)) / (1 + len(scores))
    found = reference.p_value(new)
    assert len(reference.steps) == MOST_STEPS
    assert np.all(found >= exact - 1e-12) and np.max(found - exact) < 0.003
    strange = exact <= 0.02
    assert strange.any()
    np.testing.assert_allclose(found[strange], exact[strange])


def test_sets_are_those_of_crepes() -> None:
    crepes = pytest.importorskip("crepes")
    kept, z = left_out_bags(), RNG.normal(size=40) * 2
    for alpha in (0.1, 0.2, 0.5):
        for positive, sign in ((False, 1.0), (True, -1.0)):
            own = sign * kept.logits[positive == kept.T]
            theirs = crepes.ConformalClassifier().fit(own)
            sets = theirs.predict_set((sign * z)[:, None], confidence=1 - alpha, smoothing=False)
            np.testing.assert_array_equal(kept.sets(z, alpha)[:, int(positive)], sets[:, 0] == 1)


def test_sets_are_those_of_mapie() -> None:
    mapie = pytest.importorskip("mapie.classification")
    kept, z = left_out_bags(), RNG.normal(size=40) * 2
    for alpha in (0.1, 0.2, 0.5):
        for positive in (False, True):
            own = positive == kept.T
            theirs = mapie.SplitConformalClassifier(Given(), confidence_level=1 - alpha)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs.conformalize(kept.logits[own, None], kept.T[own].astype(int))
                _, sets = theirs.predict_set(z[:, None])
            column = int(positive)
            np.testing.assert_array_equal(kept.sets(z, alpha)[:, column], sets[:, column, 0])


class Given:
    """A classifier whose features are logits already."""

    classes_ = np.array([0, 1])
    _estimator_type = "classifier"

    def fit(self, X: Any, y: Any) -> Given:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict_proba(self, X: Any) -> Any:
        p = 1 / (1 + np.exp(-np.asarray(X)[:, 0]))
        return np.column_stack([1 - p, p])

    def predict(self, X: Any) -> Any:
        return (self.predict_proba(X)[:, 1] > 0.5).astype(int)


def test_too_few_bags_for_alpha_are_said() -> None:
    some = left_out_bags(80)
    kept = LeftOutBags(some.logits, some.T & (np.arange(80) < 20))  # 10 positive bags of 80
    with pytest.warns(UserWarning, match=r"alpha=0.05 is less than 10 positive bags that were"):
        sets = kept.sets(np.array([-9.0, 9.0]), 0.05)
    assert sets[:, 1].all() and not sets[:, 0].all()


def test_grouped_bags_count_once() -> None:
    one = left_out_bags(40)
    copies = LeftOutBags(np.repeat(one.logits, 3), np.repeat(one.T, 3), np.repeat(np.arange(40), 3))
    z = RNG.normal(size=30)
    np.testing.assert_array_equal(copies.sets(z, 0.15), one.sets(z, 0.15))


def test_left_out_logits_do_not_depend_on_the_labels_of_their_fold() -> None:
    n = 50
    T = np.arange(n) % 2 == 1
    scores = np.where(T, 1.0, -1.0)[:, None] + RNG.normal(size=(n, 2))
    found = LeftOut(scores, np.empty(0), np.arange(n) // 2 % 5)
    # Regressions on mean features see those labels in the calibrations of the other folds.
    no_means = np.zeros(n)
    turned = np.where(found.folds == 2, ~T, T)
    z, other = (calibrated_left_out(found, t, no_means, None) for t in (T, turned))
    np.testing.assert_allclose(z[found.folds == 2], other[found.folds == 2])
    assert not np.allclose(z[found.folds != 2], other[found.folds != 2])


def test_known_positives_of_a_bag_share_its_weight() -> None:
    bags = bw.Bags.from_list([np.zeros((3, 1)), np.zeros((2, 1)), np.zeros((2, 1))])
    known = np.array([1, 1, np.nan, 1, 0, np.nan, np.nan])
    logits = np.array([2.0, -1.0, 9.0, 0.0, -9.0, 5.0, 5.0])
    reference = known_positives(logits, bags, known, None)
    assert reference is not None and reference.n_units == 2
    # Positives at most as probable as logit -1: half of those of the first bag.
    assert reference.p_value(np.array([1.0]))[0] == pytest.approx(1.5 / 3)
    assert known_positives(logits, bags, np.full(7, np.nan), None) is None
    assert known_positives(logits, bags, None, None) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": np.array([1.0, 0.0])},
        {"beyond": np.array([0.0, 1.0])},
        {"beyond": np.array([3.0, 0.0])},
        {"beyond": np.array([1.0])},
        {"n_units": 0.0},
        {"steps": np.array([0.0, np.inf])},
    ],
)
def test_references_that_do_not_fit_together_are_refused(wrong: dict[str, Any]) -> None:
    good = {"steps": np.array([0.0, 1.0]), "beyond": np.array([1.0, 0.0]), "n_units": 2.0}
    Reference(**good)
    with pytest.raises(ValueError, match="reference"):
        Reference(**(good | wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"logits": np.array([0.0, np.nan])},
        {"T": np.array([True, True])},
        {"T": np.array([0, 1])},
        {"groups": np.array([0.0, 1.0])},
        {"groups": np.array([1])},
        {"counts": np.array([0.0, 1.0])},
        {"counts": np.array([1.0])},
    ],
)
def test_left_out_bags_that_do_not_fit_together_are_refused(wrong: dict[str, Any]) -> None:
    good = {"logits": np.array([0.0, 1.0]), "T": np.array([False, True])}
    LeftOutBags(**good)
    with pytest.raises(ValueError, match="left-out bags"):
        LeftOutBags(**(good | wrong))
