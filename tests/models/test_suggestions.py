"""What models ask: allowed, of a use, and not the same thing ten times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bagwise as bw
from toy_bags import overlapping_bags

SMALL: dict[str, Any] = {"n_inducing": 10, "random_state": 0}
BAGS, TRUTH = overlapping_bags(40)

MODELS: dict[str, Any] = {
    "probit": bw.ProbitVGPMIL(**SMALL),
    "gibbs": bw.ProbitVGPMIL(**SMALL, inference="gibbs", n_samples=100, burn_in=50),
    "logistic": bw.VGPMIL(**SMALL),
    "coupled": bw.IsingVGPMIL(**SMALL, neighbors="chain", coupling=0.3),
    "linear": bw.MIRVM(random_state=0),
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param].fit(BAGS)


def test_suggestions_are_open_questions(model: Any) -> None:
    rows = model.suggest_instances(BAGS, 8)
    assert len(np.unique(rows)) == 8
    assert np.all(np.asarray(BAGS.y)[BAGS.bag_index[rows]] == 1)
    known = np.full(BAGS.n_instances, np.nan)
    known[rows] = TRUTH[rows]
    again = model.suggest_instances(BAGS.with_instance_labels(known), 8)
    assert not set(again) & set(rows)
    np.testing.assert_array_equal(model.suggest_instances(BAGS, 8), rows)


def test_unlabelled_bags_are_asked_about(model: Any) -> None:
    new, _ = overlapping_bags(30, seed=2)
    new = new.with_labels(None)
    assert len(model.suggest_instances(new, 5)) == 5
    bags = model.suggest_bags(new, 6)
    assert len(np.unique(bags)) == 6 and bags.max() < 30
    assert len(model.suggest_bags(new[:3], 6)) == 3


def test_bags_that_are_sure_are_asked_last() -> None:
    fitted = bw.ProbitVGPMIL(**SMALL).fit(BAGS)
    near = [np.array([[4.0, 0.0], [3.8, 0.2]]) + 0.1 * b for b in range(3)]
    doubtful = [np.array([[1.3, 0.1 * b]]) for b in range(3)]
    assert set(fitted.suggest_bags(bw.Bags.from_list([*near, *doubtful]), 3)) == {3, 4, 5}


def test_what_was_answered_is_not_worth_asking_of_a_copy() -> None:
    """Two places in doubt, one of which is there many times: both are asked about."""
    fitted = bw.ProbitVGPMIL(**SMALL).fit(BAGS)
    X = np.vstack([np.tile([1.3, 2.5], (20, 1)), [[1.3, -2.5]]])
    copies = bw.Bags.from_list([x[None] for x in X])
    assert sorted(fitted.suggest_instances(copies, 4).tolist()) == [0, 20]


def test_nothing_left_to_ask_is_an_error() -> None:
    fitted = bw.ProbitVGPMIL(**SMALL).fit(BAGS)
    negative = BAGS[np.flatnonzero(np.asarray(BAGS.y) == 0)]
    with pytest.raises(ValueError, match="no instance is left to ask about"):
        fitted.suggest_instances(negative)
    noisy = bw.VGPMIL(**SMALL, H=20).fit(BAGS)
    assert len(noisy.suggest_instances(negative, 2)) == 2


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", True])
def test_k_is_a_whole_number(k: Any) -> None:
    fitted = bw.MIRVM(random_state=0).fit(BAGS)
    with pytest.raises(ValueError, match="k must be an integer"):
        fitted.suggest_instances(BAGS, k)
    with pytest.raises(ValueError, match="k must be an integer"):
        fitted.suggest_bags(BAGS, k)


def test_several_tasks_are_asked_one_by_one() -> None:
    tasks = bw.MultiTaskMIRVM(random_state=0).fit(BAGS, tasks=np.arange(40) // 20)
    with pytest.raises(ValueError, match="task must be one of"):
        tasks.suggest_instances(BAGS)
    assert len(tasks.suggest_instances(BAGS, 3, task=0)) == 3
    assert len(tasks.suggest_bags(BAGS, 3, task=1)) == 3


def test_contradictions_are_errors() -> None:
    fitted = bw.ProbitVGPMIL(**SMALL).fit(BAGS)
    known = np.where(np.repeat(np.asarray(BAGS.y) == 0, BAGS.sizes), 1.0, np.nan)
    with pytest.raises(ValueError, match="a negative bag has no positive instance"):
        fitted.suggest_instances(BAGS.with_instance_labels(known))
