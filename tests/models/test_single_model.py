"""Reports and figures of wrapped models: refused, with what to pass instead, which then works."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise.plots import ElboDisplay, InstanceProbabilityDisplay, RelevanceDisplay, RocDisplay
from bagwise.report import build_report


@pytest.fixture(scope="module")
def bags() -> bw.Bags:
    rng = np.random.default_rng(0)
    y = np.arange(20) % 2
    X = rng.normal(size=(20, 4, 3))
    X[y == 1, 0] += 3
    return bw.Bags.from_list(list(X), y)


@pytest.fixture(autouse=True)
def close_figures() -> Any:
    yield
    plt.close("all")


def test_pipelines_are_told_to_be_taken_apart(bags: bw.Bags) -> None:
    steps = bw.InstanceTransformer(StandardScaler()), bw.MIRVM(random_state=0)
    pipe = make_pipeline(*steps).fit(bags)
    for draw in (
        lambda: build_report(pipe, bags),
        lambda: InstanceProbabilityDisplay.from_estimator(pipe, bags[0]),
        lambda: ElboDisplay.from_estimator(pipe),
        lambda: RelevanceDisplay.from_estimator(pipe),
    ):
        with pytest.raises(TypeError, match=r"pass pipe\[-1\].*pipe\[:-1\]\.transform\(bags\)"):
            draw()
    RocDisplay.from_estimator(pipe, bags)  # needs predictions of bags only
    assert "MIRVM" in build_report(pipe[-1], pipe[:-1].transform(bags))


def test_one_class_of_several_is_shown(bags: bw.Bags) -> None:
    model = bw.OneVsRestMIL(bw.MIRVM(random_state=0)).fit(bags, np.arange(20) % 3)
    with pytest.raises(TypeError, match=r"pass model\.estimators_\[k\]"):
        build_report(model, bags)
    with pytest.raises(TypeError, match="one model per class"):
        RocDisplay.from_estimator(model, bags)
    labelled = bags.with_labels((np.arange(20) % 3 == model.classes_[0]).astype(int))
    assert "MIRVM" in build_report(model.estimators_[0], labelled)


def test_one_task_of_several_is_shown(bags: bw.Bags) -> None:
    model = bw.MultiTaskMIRVM(random_state=0).fit(bags, tasks=np.repeat(["a", "b"], 10))
    with pytest.raises(TypeError, match=r"pass model\.for_task\('a'\)"):
        build_report(model, bags)
    with pytest.raises(TypeError, match="one model per task"):
        ElboDisplay.from_estimator(model)
    assert "MIRVM" in build_report(model.for_task("a"), bags[:10])


def test_linear_models_draw_their_evidence(bags: bw.Bags) -> None:
    model = bw.MIRVM(random_state=0).fit(bags)
    display = ElboDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.history, model.log_evidence_history_)
    assert display.ax_.get_ylabel() == "log evidence"


def test_transformers_of_rows_are_told_to_be_wrapped(bags: bw.Bags) -> None:
    with pytest.raises(TypeError, match=r"bagwise\.InstanceTransformer\(StandardScaler\(\)\)"):
        make_pipeline(StandardScaler(), bw.MIRVM()).fit(bags)


def test_a_single_feature_comes_in_a_list() -> None:
    frame = bw.Bags.from_arrays(np.eye(2), range(2), y=[0, 1]).to_frame()
    with pytest.raises(TypeError, match=r"must be a list of column names.*'x0'; pass \['x0'\]"):
        bw.Bags.from_frame(frame, features="x0")
