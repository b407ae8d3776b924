"""MultiTaskMIRVM: transfer between tasks, predictions per task, bad tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.datasets import make_related_tasks
from bagwise.metrics import roc_auc
from bagwise.report.model_card import describe_model, selected, weight_lines


@pytest.fixture(scope="module")
def data() -> tuple[bw.Bags, np.ndarray]:
    bags, tasks, _ = make_related_tasks((60, 20), 10, n_relevant=3, random_state=0)
    return bags, tasks


@pytest.fixture(scope="module")
def model(data: tuple[bw.Bags, np.ndarray]) -> bw.MultiTaskMIRVM:
    return bw.MultiTaskMIRVM(random_state=0).fit(data[0], tasks=data[1])


def test_a_small_task_gains_from_a_large_one() -> None:
    gains = []
    for seed in range(4):
        bags, tasks, _ = make_related_tasks((200, 215), random_state=seed)
        target = np.flatnonzero(tasks == 1)
        few, test = target[:15], target[15:]
        both = np.concatenate([np.flatnonzero(tasks == 0), few])
        alone = bw.MIRVM(random_state=0).fit(bags[few])
        together = bw.MultiTaskMIRVM(random_state=0).fit(bags[both], tasks=tasks[both])
        p, q = alone.predict_proba(bags[test]), together.predict_proba(bags[test], task=1)
        gains.append(roc_auc(bags.y[test], q) - roc_auc(bags.y[test], p))
    assert np.mean(gains) > 0.02


def test_one_task_is_mirvm(data: tuple[bw.Bags, np.ndarray]) -> None:
    bags, _ = data
    settings: dict[str, Any] = {"bag_score": "joint", "random_state": 0}
    one, other = bw.MultiTaskMIRVM(**settings).fit(bags), bw.MIRVM(**settings).fit(bags)
    np.testing.assert_array_equal(one.predict_proba(bags), other.predict_proba(bags))
    assert one.log_evidence_ == other.log_evidence_


def test_a_list_of_bags_is_one_task_each(
    data: tuple[bw.Bags, np.ndarray], model: bw.MultiTaskMIRVM
) -> None:
    bags, tasks = data
    listed = bw.MultiTaskMIRVM(random_state=0).fit([bags[tasks == 0], bags[tasks == 1]])
    assert listed.tasks_.tolist() == [0, 1]
    for t in (0, 1):
        np.testing.assert_array_equal(
            listed.predict_proba(bags, task=t), model.predict_proba(bags, task=t)
        )


def test_tasks_may_have_names(data: tuple[bw.Bags, np.ndarray], model: bw.MultiTaskMIRVM) -> None:
    bags, tasks = data
    named = bw.MultiTaskMIRVM(random_state=0).fit(bags, tasks=np.array(["ggo", "nodule"])[tasks])
    np.testing.assert_array_equal(
        named.predict_proba(bags, task="nodule"), model.predict_proba(bags, task=1)
    )


def test_tasks_share_the_prior_but_not_the_weights(model: bw.MultiTaskMIRVM) -> None:
    assert model.coef_.shape == model.coef_std_.shape == (2, 10) and model.intercept_.shape == (2,)
    assert not np.allclose(model.coef_[0], model.coef_[1])
    np.testing.assert_array_equal(model.coef_[0] != 0, model.coef_[1] != 0)
    np.testing.assert_array_equal(np.isfinite(model.alpha_), model.coef_[0] != 0)
    each = [model.for_task(t).get_support() for t in (0, 1)]
    np.testing.assert_array_equal(model.get_support(), each[0] | each[1])


def test_all_predictions_are_those_of_the_task(
    data: tuple[bw.Bags, np.ndarray], model: bw.MultiTaskMIRVM
) -> None:
    bags, _ = data
    one = model.for_task(1)
    assert isinstance(one, bw.MIRVM)
    for method in ("predict", "predict_instances", "predict_instance_proba", "latent"):
        found = getattr(model, method)(bags, task=1)
        np.testing.assert_array_equal(found, getattr(one, method)(bags))
    assert model.score(bags, task=1) == one.score(bags)
    assert [r.tolist() for r in model.top_instances(bags, 2, task=1)] == [
        r.tolist() for r in one.top_instances(bags, 2)
    ]
    for a, b in zip(
        model.predict_proba(bags, return_std=True, task=1),
        one.predict_proba(bags, return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_save_and_load(
    data: tuple[bw.Bags, np.ndarray], model: bw.MultiTaskMIRVM, tmp_path: Path
) -> None:
    bags, _ = data
    model.save(tmp_path / "m.bagwise")
    back = bw.load(tmp_path / "m.bagwise")
    assert isinstance(back, bw.MultiTaskMIRVM) and back.tasks_.tolist() == [0, 1]
    np.testing.assert_array_equal(
        back.predict_proba(bags, task=1), model.predict_proba(bags, task=1)
    )
    one = model.for_task(0)
    one.save(tmp_path / "one.bagwise")
    np.testing.assert_array_equal(
        bw.load(tmp_path / "one.bagwise").predict_proba(bags), one.predict_proba(bags)
    )


def test_predictions_need_a_task(
    data: tuple[bw.Bags, np.ndarray], model: bw.MultiTaskMIRVM
) -> None:
    with pytest.raises(ValueError, match=r"task must be one of 0, 1, got None"):
        model.predict(data[0])
    with pytest.raises(ValueError, match="got 'lung'"):
        model.predict(data[0], task="lung")


def test_bad_tasks(data: tuple[bw.Bags, np.ndarray]) -> None:
    bags, tasks = data
    fit = bw.MultiTaskMIRVM(random_state=0).fit
    with pytest.raises(ValueError, match=r"same features, but they have \[10, 9\] features"):
        fit([bags, bags.with_X(bags.X[:, :9])])
    with pytest.raises(ValueError, match=r"all 10 bags of task 1 are positive.*leave the task out"):
        fit(bags, tasks=np.where(bags.y & (tasks == 1), 1, 0))
    with pytest.raises(ValueError, match="tasks must have one entry per bag: 80; got 5"):
        fit(bags, tasks=tasks[:5])
    with pytest.raises(ValueError, match="use strings or integers"):
        fit(bags, tasks=tasks + 0.5)
    with pytest.raises(ValueError, match=r"got \|S1; use strings or integers"):
        fit(bags, tasks=np.array([b"a", b"b"])[tasks])
    with pytest.raises(ValueError, match=r"takes no tasks=.*Bags.concat"):
        fit([bags, bags], tasks=tasks)


@pytest.mark.parametrize("kind", ["object", "string", "category"])
def test_tasks_may_be_a_column(
    kind: str, data: tuple[bw.Bags, np.ndarray], model: bw.MultiTaskMIRVM
) -> None:
    bags, tasks = data
    column = pd.Series(np.array(["ggo", "nodule"])[tasks], index=bags.ids, dtype=kind)
    named = bw.MultiTaskMIRVM(random_state=0).fit(bags, tasks=column)
    assert named.tasks_.tolist() == ["ggo", "nodule"]
    np.testing.assert_array_equal(named.coef_, model.coef_)
    whole = bw.MultiTaskMIRVM(random_state=0).fit(bags, tasks=tasks.astype(object))
    np.testing.assert_array_equal(whole.coef_, model.coef_)


def test_a_dict_names_its_tasks(data: tuple[bw.Bags, np.ndarray], model: bw.MultiTaskMIRVM) -> None:
    bags, tasks = data
    named = bw.MultiTaskMIRVM(random_state=0).fit(
        {"nodule": bags[tasks == 1], "ggo": bags[tasks == 0]}
    )
    assert named.tasks_.tolist() == ["ggo", "nodule"]
    np.testing.assert_allclose(named.coef_, model.coef_, rtol=1e-4, atol=1e-6)
    with pytest.raises(TypeError, match=r"must be \{task name: Bags\}"):
        bw.MultiTaskMIRVM().fit({"ggo": bags.X})
    with pytest.raises(ValueError, match="use strings or integers"):
        bw.MultiTaskMIRVM().fit({"ggo": bags[tasks == 0], 1: bags[tasks == 1]})
    with pytest.raises(ValueError, match="these look like one per row"):
        bw.MultiTaskMIRVM().fit(bags, tasks=tasks[bags.bag_index])


def test_the_card_of_a_model_lists_the_weights_of_each_task(model: bw.MultiTaskMIRVM) -> None:
    about = describe_model(model)
    shown = {(f["task"], f["feature"]): f["weight"] for f in about["selected"]}
    used = model.selected_features_
    assert len(shown) == 2 * len(used)
    assert shown[1, f"x{used[0]}"] == model.scaled_coef_[1, used[0]]
    assert selected(about) == (
        f"{len(used)} of {model.n_features_in_}, {model.get_support().sum()} surely not 0"
    )
    assert weight_lines(about)[0].startswith("task 0: x")


@pytest.mark.parametrize("similarity", [np.nan, np.inf, "high"])
def test_similarity_must_be_a_number(similarity: float) -> None:
    with pytest.raises(ValueError, match="similarity must be a finite number"):
        make_related_tasks((4, 4), 3, n_relevant=2, similarity=similarity)
