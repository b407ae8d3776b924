"""Decisions of fitted models: sets, thresholds, and what models say that cannot decide."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import bagwise as bw
from toy_bags import overlapping_bags

SMALL: dict[str, Any] = {"n_inducing": 10, "random_state": 0}
BAGS, TRUTH = overlapping_bags(60)
NEW, NEW_TRUTH = overlapping_bags(200, seed=1)
FILES = Path(__file__).parent / "files"

MODELS: dict[str, Any] = {
    "probit": bw.ProbitVGPMIL(**SMALL),
    "logistic": bw.VGPMIL(**SMALL),
    "coupled": bw.IsingVGPMIL(**SMALL, neighbors="chain", coupling=0.3),
    "sparse linear": bw.MIRVM(random_state=0),
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest) -> Any:
    known = np.where(np.arange(BAGS.n_instances) % 2 == 0, TRUTH, np.nan)
    return MODELS[request.param].fit(BAGS.with_instance_labels(known))


@pytest.fixture(scope="module")
def probit() -> bw.ProbitVGPMIL:
    return bw.ProbitVGPMIL(**SMALL).fit(BAGS)


def test_sets_hold_the_label_as_often_as_stated(model: Any) -> None:
    T = np.asarray(NEW.y) == 1
    alpha = 0.2
    sets = model.predict_set(NEW, alpha)
    assert sets.shape == (200, 2) and sets.dtype == bool
    # One training set: its thirty left-out bags of a class scatter the coverage (a Beta), and so
    # do the new bags.
    error = 5 * np.sqrt(alpha * (1 - alpha) * (1 / 30 + 1 / 100))
    for side, own in ((0, ~T), (1, T)):
        assert np.mean(sets[own, side]) >= 1 - alpha - error
    assert 0.5 < sets.sum(axis=1).mean() < 1.9
    assert np.all(model.predict_set(NEW, 0.4) <= sets)


def test_most_positive_instances_are_possible(model: Any) -> None:
    bags = NEW.with_instance_labels(None)
    alpha = 0.2
    possible = model.possible_positives(bags, alpha)
    assert possible.shape == (NEW.n_instances,) and possible.dtype == bool
    positives = np.add.reduceat(NEW_TRUTH, NEW.offsets[:-1])
    missed = np.add.reduceat(NEW_TRUTH & ~possible, NEW.offsets[:-1])
    share = np.mean(missed[positives > 0] / positives[positives > 0])
    assert share <= alpha + 5 * np.sqrt(alpha * (1 - alpha) * (1 / 25 + 1 / 100))
    assert np.mean(possible) < 0.9


def test_predict_keeps_to_the_threshold(model: Any, tmp_path: Path) -> None:
    p = model.predict_proba(NEW)
    np.testing.assert_array_equal(model.predict(NEW), p[:, 1] > 0.5)
    assert model.threshold_ == 0.5 and model.operating_point_ is None
    point = model.choose_threshold(sensitivity=0.9)
    assert model.threshold_ == point.threshold < 0.5
    assert point.sensitivity >= 0.9 and point.n_positive == point.n_negative == 30
    called = model.predict(NEW)
    np.testing.assert_array_equal(called, p[:, 1] >= point.threshold)
    sensitivity = np.mean(called[np.asarray(NEW.y) == 1])
    assert sensitivity > 0.9 - 5 * np.sqrt(0.09 * (1 / 30 + 1 / 100))
    model.save(tmp_path / "m.bagwise")
    loaded = bw.load(tmp_path / "m.bagwise")
    assert loaded.operating_point_ == point
    few = NEW[:20]
    np.testing.assert_array_equal(loaded.predict(few), called[:20])
    np.testing.assert_array_equal(loaded.predict_set(few, 0.3), model.predict_set(few, 0.3))
    np.testing.assert_array_equal(
        loaded.possible_positives(few, 0.3), model.possible_positives(few, 0.3)
    )
    assert model.choose_threshold(specificity=0.9).threshold > point.threshold
    assert model.choose_threshold(cost=1).threshold == pytest.approx(0.5)
    model.operating_point_ = None  # as it was, for the other tests


def test_scores_are_those_of_the_threshold(probit: bw.ProbitVGPMIL) -> None:
    T = np.asarray(NEW.y) == 1
    before = bw.metrics.bag_scores(probit, NEW)
    probit.choose_threshold(sensitivity=0.95)
    called, found = probit.predict(NEW) == 1, bw.metrics.bag_scores(probit, NEW)
    probit.operating_point_ = None
    assert found["recall"] == np.mean(called[T]) > before["recall"]
    assert found["accuracy"] == np.mean(called == T)
    assert found["true_positives"] == np.sum(called & T)
    assert found["roc_auc"] == before["roc_auc"] and found["brier"] == before["brier"]


def test_models_know_what_they_have_not_seen(model: Any, tmp_path: Path) -> None:
    found = model.novelty(NEW)
    assert found.instances.shape == (NEW.n_instances,) and found.bags.shape == (200,)
    assert np.mean(found.bags <= 0.1) < 0.1 + 5 * np.sqrt(0.09 * (1 / 60 + 1 / 200))
    away = NEW[:40].with_X(NEW[:40].X + 9)
    with pytest.warns(bw.ShiftWarning, match="40 bags look unlike"):
        assert np.all(model.novelty(away).bags < 0.05)
    model.save(tmp_path / "m.bagwise")
    np.testing.assert_array_equal(bw.load(tmp_path / "m.bagwise").novelty(NEW).bags, found.bags)


@pytest.mark.parametrize("name", ["RVM", "MultiTaskMIRVM"])
def test_models_without_calibration_know_it_too(name: str) -> None:
    plain = getattr(bw, name)(random_state=0).fit(BAGS)
    assert np.mean(plain.novelty(NEW).bags) > 0.3


def test_one_group_is_nothing_to_compare_with() -> None:
    groups = np.zeros(BAGS.n_instances)
    alone = bw.Bags.from_arrays(BAGS.X, BAGS.bag_index, y=BAGS.y, groups=groups)
    model = bw.ProbitVGPMIL(**SMALL, bag_score="joint", kernel=None).fit(alone)
    with pytest.raises(ValueError, match="all its bags were of one group; fit again"):
        model.novelty(NEW)


def test_a_new_fit_forgets_the_threshold() -> None:
    again = bw.ProbitVGPMIL(**SMALL).fit(BAGS)
    again.choose_threshold(cost=5)
    again.fit(BAGS)
    assert again.operating_point_ is None and again.threshold_ == 0.5


def test_whole_groups_are_what_bags_of_groups_are_compared_with() -> None:
    groups = np.arange(60) // 3
    grouped = bw.ProbitVGPMIL(**SMALL).fit(
        bw.Bags.from_arrays(BAGS.X, BAGS.bag_index, y=BAGS.y, groups=groups[BAGS.bag_index])
    )
    kept = grouped.left_out_bags_
    assert kept is not None and len(np.unique(kept.groups)) == 20
    with pytest.warns(UserWarning) as said:
        grouped.predict_set(NEW, 0.04)
    for warning, side in zip(said, ("negative", "positive"), strict=True):
        assert f"than 20 {side} groups with bags" in str(warning.message)
    with pytest.raises(ValueError, match="20 positive groups with bags"):
        grouped.choose_threshold(sensitivity=0.97)


def test_weights_of_classes_change_no_guarantee() -> None:
    plain, balanced = (
        bw.ProbitVGPMIL(**SMALL, class_weight=weight).fit(BAGS) for weight in (None, {0: 1, 1: 7})
    )
    assert balanced.left_out_bags_ is not None and plain.left_out_bags_ is not None
    for positive in (False, True):
        n_units = balanced.left_out_bags_.strangeness(positive).n_units
        assert n_units == pytest.approx(30) == plain.left_out_bags_.strangeness(positive).n_units


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda m: m.predict_set(NEW), r"predict_set needs calibrated bags.*fit again with"),
        (lambda m: m.choose_threshold(cost=2), r"choose_threshold needs calibrated bags"),
        (lambda m: m.possible_positives(NEW), r"needs known positive instances in the bags of fit"),
    ],
)
def test_models_that_are_not_calibrated_say_what_to_do(ask: Any, match: str) -> None:
    joint = bw.ProbitVGPMIL(**SMALL, bag_score="joint").fit(BAGS)
    with pytest.raises(ValueError, match=match) as error:
        ask(joint)
    assert "bag_score='joint' was asked for" in str(error.value)


@pytest.mark.parametrize(
    "ask",
    [
        lambda m: m.predict(NEW),
        lambda m: m.predict_set(NEW),
        lambda m: m.possible_positives(NEW),
        lambda m: m.choose_threshold(cost=2),
        lambda m: m.novelty(NEW),
        lambda m: m.suggest_instances(NEW),
        lambda m: m.suggest_bags(NEW),
    ],
)
def test_models_that_are_not_fitted_say_so(ask: Any) -> None:
    with pytest.raises(NotFittedError):
        ask(bw.ProbitVGPMIL())


def test_older_files_decide_nothing_but_predict() -> None:
    bags, _ = bw.datasets.make_bags(30, random_state=0)
    older = bw.load(FILES / "probit.bagwise")
    assert older.threshold_ == 0.5
    np.testing.assert_array_equal(older.predict(bags), np.argmax(older.predict_proba(bags), axis=1))
    with pytest.raises(ValueError, match="version that did not"):
        older.predict_set(bags)
    with pytest.raises(ValueError, match="novelty compares with instances of the fit"):
        older.novelty(bags)


def test_a_score_that_was_set_after_fit_is_not_compared(probit: bw.ProbitVGPMIL) -> None:
    probit.choose_threshold(cost=3)
    try:
        probit.set_params(bag_score="max")
        with pytest.raises(ValueError, match="bag_score='max' was set after fit"):
            probit.predict_set(NEW)
        with pytest.raises(ValueError, match="a chosen threshold compares with calibrated bags"):
            probit.predict(NEW)
    finally:
        probit.set_params(bag_score="auto")
        probit.operating_point_ = None


@pytest.mark.parametrize("alpha", [0, 1, -0.1, np.nan, "0.1", True])
def test_alpha_is_a_share(probit: bw.ProbitVGPMIL, alpha: Any) -> None:
    with pytest.raises(ValueError, match="alpha"):
        probit.predict_set(NEW, alpha)
    with pytest.raises(ValueError, match="alpha"):
        probit.possible_positives(NEW, alpha)


def test_files_with_other_parts_are_refused(probit: bw.ProbitVGPMIL, tmp_path: Path) -> None:
    wrong = bw.ProbitVGPMIL(**SMALL).fit(BAGS)
    wrong.left_out_bags_ = wrong.calibration_  # type: ignore[assignment]
    wrong.save(tmp_path / "m.bagwise")
    with pytest.raises(bw.io.ModelFileError, match="left_out_bags_ must be a LeftOutBags or None"):
        bw.load(tmp_path / "m.bagwise")


@pytest.mark.parametrize("name", ["musk1", "digits"])
def test_coverage_over_splits(name: str) -> None:
    """A few splits; `benchmarks/decide.py` has many."""
    if name == "musk1":
        bags = bw.datasets.load_musk1()
    else:
        bags, _ = bw.datasets.make_digit_bags(100, random_state=3)
    alpha, covered, total = 0.2, np.zeros(2), np.zeros(2)
    for seed in range(3):
        train, test = bags.split(0.4, random_state=seed)
        model = bw.ProbitVGPMIL(n_inducing=50, random_state=seed).fit(train)
        T = (np.asarray(test.y) == model.classes_[1]).astype(int)
        held = model.predict_set(test, alpha)[np.arange(len(test)), T]
        covered += np.bincount(T, held, 2)
        total += np.bincount(T, minlength=2)
    # Left-out bags of three training sets and the tested bags scatter, the sets of a bag depend.
    error = 4 * np.sqrt(alpha * (1 - alpha) * (1 / total + 1 / 30))
    assert np.all(covered / total >= 1 - alpha - error)


def test_nothing_is_said_where_all_is_well(probit: bw.ProbitVGPMIL) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probit.predict_set(NEW, 0.1)
