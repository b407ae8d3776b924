"""Refits that workers make side by side, of features kept once, are those of one machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.features import whitener
from bagwise.core.inference.passes import TrainingData
from bagwise.core.inference.stats import Chunk
from bagwise.core.rounds import side_by_side
from bagwise.distributed import DaskBags, PartError, training_data
from bagwise.distributed.folds import FeaturesByFold
from bagwise.distributed.placement import shared_out
from bagwise.distributed.rounds import total
from bagwise.kernels import RBF

pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
)

Array = np.ndarray
B, SIZE = 40, 5
ROWS = np.arange(B * SIZE)
WEIGHTS = np.where(np.arange(B) % 7 == 0, 0.0, 1.0 + np.arange(B) % 3)
Z = np.random.default_rng(5).normal(size=(8, 3)) * [1.0, 1.0, 50.0]


def make_bags() -> bw.Bags:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(B * SIZE, 3)) * [1.0, 1.0, 50.0]
    X[np.arange(1, B, 2) * SIZE, 0] += 3
    known = np.where(ROWS % 17 == 0, 0.0, np.nan)
    known[np.arange(1, B, 2) * SIZE] = np.nan
    y = np.arange(B) % 2
    return bw.Bags.from_arrays(X, np.repeat(np.arange(B), SIZE), y=y, instance_labels=known)


@pytest.fixture(autouse=True)
def no_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows of some bags stay with their workers."""
    monkeypatch.setattr("bagwise.distributed.rows.FEW_ROWS", 0)


MODELS: dict[str, Callable[..., Any]] = {
    "probit": bw.ProbitVGPMIL,
    "laplace": partial(bw.ProbitVGPMIL, inference="laplace"),
    "logistic": bw.VGPMIL,
    "finite H": partial(bw.VGPMIL, H=50.0),
    "large margin": partial(bw.LargeMarginVGPMIL, max_iter=4),
    "at least two": partial(bw.ProbitVGPMIL, rule=bw.AtLeast(2)),
}
SETTINGS: dict[str, Any] = {
    "inducing": Z,
    "kernel": RBF(2.0, 2.0),
    "learn_hyperparameters": False,
    "mean": -1.0,
    "standardize": True,
    "chunk_size": 12,
    "bag_score": "calibrated",
    "random_state": 0,
}


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
@pytest.mark.parametrize("name", MODELS)
def test_scores_of_left_out_bags_are_those_of_one_machine(
    name: str, weights: Array | None, client: Any
) -> None:
    bags, heard, told = make_bags(), [], []
    more: dict[str, Any] = {} if weights is None else {"sample_weight": weights}
    serial = MODELS[name](**SETTINGS).fit(
        bags, **more, callbacks=[lambda stage, *_: told.append(stage)]
    )
    found = MODELS[name](**SETTINGS).fit(
        DaskBags.from_bags(bags, n_chunks=7),
        client=client,
        **more,
        callbacks=[lambda stage, *_: heard.append(stage)],
    )
    np.testing.assert_allclose(
        found.left_out_bags_.logits, serial.left_out_bags_.logits, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(found.predict_proba(bags), serial.predict_proba(bags), atol=1e-5)
    stages = [
        list(dict.fromkeys(s for s in steps if "calibration" in s)) for steps in (heard, told)
    ]
    assert stages[0] == stages[1] == [f"calibration {k} of 5" for k in range(1, 6)]


def kept(chunk: Chunk) -> Array:
    """What a pass may look at of the rows of a chunk."""
    targets = chunk.targets
    return np.array([len(chunk.A), chunk.A.sum(), chunk.kt.sum(), targets.T.sum()])


def test_passes_leave_a_fold_out_whatever_the_parts_hold(client: Any) -> None:
    """One part has bags of one fold alone, and nothing without it."""
    bags = make_bags()
    folds = np.arange(B) % 3
    folds[:6] = 2
    here = DaskBags.from_bags(bags, n_chunks=7).connect(client)
    T = np.asarray(bags.y) == 1
    data: Any = training_data(here.X, here.offsets, T, None, 12)
    features = whitener(RBF(2.0, 2.0), Z, 1e-6)
    by_fold = FeaturesByFold.of(data, features, folds)
    assert by_fold is not None
    for k in range(3):
        some = bags[np.flatnonzero(folds != k)]
        alone = TrainingData(some.X, some.offsets, T[folds != k], None, 12)
        passes = by_fold.without(k)
        np.testing.assert_allclose(
            passes.total(kept), alone.sweeper(features).total(kept), rtol=1e-12
        )
        assert not passes.large
    starts = client.gather([client.submit(first_rows, part) for part in by_fold.parts])
    assert all(len(set(own)) == len(own) for own in starts)


def first_rows(folded: Any) -> list[int]:
    return [chunk.start for own in folded for chunk in own]


def test_features_beyond_the_budget_are_not_kept(client: Any) -> None:
    here = DaskBags.from_bags(make_bags(), n_chunks=2).connect(client)
    data: Any = training_data(here.X, here.offsets, np.asarray(here.y) == 1, memory_budget=1000)
    features = whitener(RBF(2.0, 2.0), Z, 1e-6)
    assert FeaturesByFold.of(data, features, np.arange(B) % 3) is None
    serial = bw.ProbitVGPMIL(**SETTINGS).fit(make_bags())
    found = bw.ProbitVGPMIL(**SETTINGS, memory_budget=1000)
    found.fit(DaskBags.from_bags(make_bags(), n_chunks=2), client=client)
    np.testing.assert_allclose(
        found.left_out_bags_.logits, serial.left_out_bags_.logits, rtol=1e-5, atol=1e-5
    )


# --- Rounds -------------------------------------------------------------------------------------


def test_passes_of_one_round_are_one_task_for_each_thread(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = DaskBags.from_bags(make_bags(), n_chunks=4).connect(client).X
    rows.cluster.gather(rows.futures)  # the parts are somewhere
    asked, mapped = [], type(rows.cluster).map

    def noted(self: Any, function: Any, *arguments: Any) -> Any:
        asked.append([len(of_task) for of_task in arguments[0]])
        return mapped(self, function, *arguments)

    monkeypatch.setattr(type(rows.cluster), "map", noted)
    works = [partial(total, rows.cluster, partial(np.sum, axis=0), rows.futures) for _ in range(3)]
    with side_by_side(works, 3) as calls:
        for call in calls:
            np.testing.assert_allclose(call(), make_bags().X.sum(axis=0), rtol=1e-10)
    assert asked == [[3, 3]]  # passes in the task of each worker


def sum_unless(bad: float, X: Array) -> float:
    if bad:
        raise np.linalg.LinAlgError("not positive definite")
    return float(X.sum())


def test_a_pass_that_fails_in_a_round_does_not_take_the_others_with_it(client: Any) -> None:
    rows = DaskBags.from_bags(make_bags(), n_chunks=4).connect(client).X
    works = [partial(total, rows.cluster, partial(sum_unless, k), rows.futures) for k in (0, 1, 0)]
    with side_by_side(works, 3) as calls:
        assert calls[0]() == pytest.approx(make_bags().X.sum())
        with pytest.raises(PartError, match=r"part \d .*LinAlgError: not positive"):
            calls[1]()
        assert calls[2]() == pytest.approx(make_bags().X.sum())


def dies_once(mark: Path, X: Array) -> float:
    if not mark.exists():
        mark.touch()
        os._exit(1)
    return float(X.sum())


def test_a_worker_lost_in_a_round_changes_no_result(client: Any, tmp_path: Path) -> None:
    rows = DaskBags.from_bags(make_bags(), n_chunks=4).connect(client).X
    dying = partial(dies_once, tmp_path / "mark")
    works = [partial(total, rows.cluster, function, rows.futures) for function in (np.sum, dying)]
    with side_by_side(works, 2) as calls:
        assert [call() for call in calls] == pytest.approx([make_bags().X.sum()] * 2)
    client.wait_for_workers(2, timeout=60)


def test_parts_that_are_nowhere_yet_are_tasks_of_their_own() -> None:
    where = {"a": ["A"], "b": ["B"], "c": ["A"], "e": ["A"]}
    groups = shared_out(list("abcde"), where, {"A": 2, "B": 4})
    assert groups == {("A", 0): [0, 4], ("B", 0): [1], ("A", 1): [2], ("", 3): [3]}


def test_a_refit_that_breaks_down_leaves_the_fit(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **how: Any) -> None:
        raise FloatingPointError("not a number")

    monkeypatch.setattr("bagwise.models._refits.fit_part", broken)
    model = bw.ProbitVGPMIL(**SETTINGS | {"bag_score": "auto", "learn_hyperparameters": True})
    with pytest.warns(UserWarning, match="not calibrated: a fit without a fifth .* broke down"):
        model.fit(DaskBags.from_bags(make_bags(), n_chunks=3), client=client)
    assert model.bag_score_ == "joint"


def test_callbacks_are_called_where_the_fit_was_and_may_end_it(client: Any) -> None:
    import threading

    here, where = threading.get_ident(), set[int]()

    class Stop(Exception):
        pass

    def heard(stage: str, step: int, objective: float, seconds: float) -> None:
        where.add(threading.get_ident())
        if stage == "calibration 2 of 5":
            raise Stop

    parts = DaskBags.from_bags(make_bags(), n_chunks=3)
    with pytest.raises(Stop):
        bw.ProbitVGPMIL(**SETTINGS).fit(parts, client=client, callbacks=[heard])
    assert where == {here}
    again = bw.ProbitVGPMIL(**SETTINGS).fit(parts, client=client)
    assert again.bag_score_ == "calibrated"


def test_a_fit_that_goes_on_makes_the_refits_that_are_left(client: Any, tmp_path: Path) -> None:
    path, parts = tmp_path / "fit.ckpt", DaskBags.from_bags(make_bags(), n_chunks=3)
    seen: list[str] = []

    class Stop(Exception):
        pass

    def stop(stage: str, step: int, objective: float, seconds: float) -> None:
        if stage == "calibration 4 of 5":
            raise Stop

    saving = {"checkpoint": path, "checkpoint_minutes": 0}
    with pytest.raises(Stop):
        bw.ProbitVGPMIL(**SETTINGS).fit(parts, client=client, **saving, callbacks=[stop])
    found = bw.ProbitVGPMIL(**SETTINGS)
    found.fit(parts, client=client, resume=path, callbacks=[lambda s, *_: seen.append(s)])
    assert list(dict.fromkeys(seen)) == ["calibration 4 of 5", "calibration 5 of 5"]
    whole = bw.ProbitVGPMIL(**SETTINGS).fit(parts, client=client)
    np.testing.assert_allclose(found.left_out_bags_.logits, whole.left_out_bags_.logits, rtol=1e-8)


def test_one_pass_alone_is_a_round(client: Any) -> None:
    rows = DaskBags.from_bags(make_bags(), n_chunks=2).connect(client).X
    assert total(rows.cluster, np.sum, rows.futures) == pytest.approx(make_bags().X.sum())
