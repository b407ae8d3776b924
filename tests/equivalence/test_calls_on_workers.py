"""Workers that hold distributed bags do what else a fit can do at once, with the same results."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.calibration import judged
from bagwise.core.calibration.pooled import bag_means
from bagwise.core.linalg import BREAKDOWNS
from bagwise.core.threads import at_once
from bagwise.distributed import DaskBags, DaskRows, PartError, helped_by_workers
from bagwise.distributed.cluster import Cluster
from bagwise.distributed.rounds import total

pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
)

Array = np.ndarray
B, SIZE = 40, 5
SETTINGS: dict[str, Any] = {"n_inducing": 8, "random_state": 0}


def make_bags() -> bw.Bags:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(B * SIZE, 3)) * [1.0, 1.0, 50.0]
    X[np.arange(1, B, 2) * SIZE, 0] += 3
    return bw.Bags.from_arrays(X, np.repeat(np.arange(B), SIZE), y=np.arange(B) % 2)


@pytest.fixture
def no_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows of some bags stay with their workers."""
    monkeypatch.setattr("bagwise.distributed.rows.FEW_ROWS", 0)


# --- Calls --------------------------------------------------------------------------------------


def process_and_product(item: int, factor: Array) -> tuple[int, float]:
    return os.getpid(), item * float(factor.sum())


def test_calls_are_dealt_out_to_all_workers(client: Any) -> None:
    here = DaskBags.from_bags(make_bags(), n_chunks=2).connect(client)
    with helped_by_workers(here.X):
        calls = at_once(process_and_product, range(6), (np.ones(2),))
        processes, products = zip(*(call() for call in calls), strict=True)
    assert set(processes) == set(client.run(os.getpid).values())
    assert products == (0, 2, 4, 6, 8, 10)
    assert at_once(process_and_product, [1], (np.ones(2),))[0]()[0] == os.getpid()


def test_large_samples_are_sent_without_a_warning(client: Any) -> None:
    """Warnings are errors here; Dask has one for more than 10 MB."""
    cluster = Cluster(client, ())
    (call,) = cluster.at_once(process_and_product, [3], (np.ones(1_500_000),))
    assert call()[1] == 4_500_000


def dies_once(mark: Path, common: Array) -> float:
    if not mark.exists():
        mark.touch()
        os._exit(1)
    return float(common.sum())


@pytest.mark.parametrize("workers", ["client", "lone_worker"])
def test_a_lost_worker_does_not_change_what_calls_find(
    workers: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """What calls have in common is there again, even if all workers were replaced."""
    cluster = Cluster(request.getfixturevalue(workers), ())
    calls = cluster.at_once(dies_once, [tmp_path / "mark"] * 3, (np.arange(4.0),))
    assert [call() for call in calls] == [6, 6, 6]
    cluster.client.wait_for_workers(1, timeout=30)


def fails(item: int, error: type[Exception]) -> int:
    if item == 1:
        raise error("no more of it")
    return item


def test_a_call_that_keeps_failing_is_named(client: Any) -> None:
    with helped_by_workers(DaskBags.from_bags(make_bags(), n_chunks=2).connect(client).X):
        good, bad, _ = at_once(fails, range(3), (KeyError,), BREAKDOWNS)
        assert good() == 0
        with pytest.raises(PartError, match=r"call 1 \(fails\) failed .* 4 times.* KeyError"):
            bad()


def test_a_call_that_breaks_down_does_so_as_it_does_here(client: Any) -> None:
    with helped_by_workers(DaskBags.from_bags(make_bags(), n_chunks=2).connect(client).X):
        calls = at_once(fails, range(3), (FloatingPointError,), BREAKDOWNS)
        with pytest.raises(FloatingPointError, match=r"^no more of it$"):
            calls[1]()
        assert calls[2]() == 2


def test_a_closed_client_is_told_before_calls() -> None:
    class Closed:
        status = "closed"

    with pytest.raises(PartError, match="the Dask client was closed"):
        Cluster(Closed(), ()).at_once(fails, [0], (KeyError,))


# --- Candidates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [8_000, 100], ids=["all bags", "a sample"])
def test_workers_judge_candidates_to_the_last_digit(
    rows: int, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged, "WHOLE_ROWS", rows)
    monkeypatch.setattr(judged, "SAMPLE_ROWS", rows)
    bags, asked, at_once_there = make_bags(), [], Cluster.at_once
    parts = DaskBags.from_bags(bags, n_chunks=3)

    def noted(self: Cluster, work: Any, items: Any, common: Any) -> Any:
        asked.append(len(items))
        return at_once_there(self, work, items, common)

    monkeypatch.setattr(Cluster, "at_once", noted)
    found = bw.ProbitVGPMIL(**SETTINGS).fit(parts, client=client)
    asked_for = [2, 6, 3]  # k-means of either class, candidates, ends of instance probabilities
    assert asked == asked_for
    monkeypatch.setattr("bagwise.models._calibrated.helped_by_workers", lambda X: nullcontext())
    here = bw.ProbitVGPMIL(**SETTINGS).fit(parts, client=client)
    assert asked == asked_for
    np.testing.assert_array_equal(found.inducing_points_, here.inducing_points_)
    assert [astuple(row) for row in found.candidates_] == [astuple(row) for row in here.candidates_]
    np.testing.assert_allclose(found.predict_proba(bags), here.predict_proba(bags), atol=1e-6)


def test_a_fit_that_goes_on_judges_the_other_candidates_only(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags, path, asked = make_bags(), tmp_path / "fit.ckpt", []
    parts = DaskBags.from_bags(bags, n_chunks=3)

    class Stop(Exception):
        pass

    def stop(stage: str, step: int, objective: float, seconds: float) -> None:
        if stage == "candidate 5 of 6":
            raise Stop

    saving = {"checkpoint": path, "checkpoint_minutes": 0}
    with pytest.raises(Stop):
        bw.ProbitVGPMIL(**SETTINGS).fit(parts, client=client, **saving, callbacks=[stop])
    at_once_there = Cluster.at_once

    def noted(self: Cluster, work: Any, items: Any, common: Any) -> Any:
        asked.append([getattr(item, "name", None) for item in items])
        return at_once_there(self, work, items, common)

    monkeypatch.setattr(Cluster, "at_once", noted)
    found = bw.ProbitVGPMIL(**SETTINGS).fit(parts, client=client, resume=path)
    assert asked[0] == [found.candidates_[i].name for i in (5, 4)]  # the linear one last
    serial = bw.ProbitVGPMIL(**SETTINGS).fit(bags)
    np.testing.assert_allclose(found.predict_proba(bags), serial.predict_proba(bags), atol=1e-6)


# --- Rows in their places -----------------------------------------------------------------------


def test_some_bags_stay_with_their_workers(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bags = make_bags()
    here = DaskBags.from_bags(bags, n_chunks=3).connect(client)
    assert isinstance(here[:5].X, np.ndarray)
    monkeypatch.setattr("bagwise.distributed.rows.FEW_ROWS", 24)
    for some in (slice(3, 20), np.array([0, 7, 8, 20, 39]), np.arange(B) % 2 == 1):
        assert isinstance(here[some].X, DaskRows)
        np.testing.assert_array_equal(here[some].X[:], bags[some].X)
    for some in ([5, 3, 7, 1, 0], [1, 1, 2, 3, 4], slice(4), []):  # another order; few; none
        np.testing.assert_array_equal(here[some].X, bags[some].X)
        assert isinstance(here[some].X, np.ndarray)


@pytest.mark.usefixtures("no_few_rows")
@pytest.mark.parametrize("chosen", [np.arange(B), np.arange(0, B, 3)], ids=["all", "some"])
def test_workers_predict_the_bags_that_they_hold(
    chosen: Array, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = make_bags()
    posterior = bw.ProbitVGPMIL(**SETTINGS).fit(bags).posterior_
    here, bags = DaskBags.from_bags(bags, n_chunks=3).connect(client)[chosen], bags[chosen]
    monkeypatch.setattr(DaskRows, "read", None)  # no rows come here
    monkeypatch.setattr(DaskRows, "_gather", None)
    asked = {"joint": True, "instances": True, "second": True}
    found, local = (posterior.predicted(b.X, b.offsets, **asked) for b in (here, bags))
    np.testing.assert_array_equal(found.offsets, local.offsets)
    for kind in ("joint", "instances"):
        one, other = getattr(found, kind), getattr(local, kind)
        for values, expected in zip(one, other, strict=True):
            np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-12)
    means = [bag_means(b.X, b.offsets, posterior.pooled_rows) for b in (here, bags)]
    np.testing.assert_allclose(*means, rtol=1e-9, atol=1e-12)


REFITTED = {
    "chosen kernel": (bw.ProbitVGPMIL, {}),
    "given kernel": (bw.ProbitVGPMIL, {"kernel": bw.kernels.RBF(lengthscale=2.0)}),
    "learned kernel": (bw.VGPMIL, {}),
    "linear": (bw.MILogisticRegression, {}),
}


@pytest.mark.usefixtures("no_few_rows")
@pytest.mark.parametrize("name", REFITTED)
def test_workers_calibrate_as_one_machine_does(
    name: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refits without a fifth of the bags leave the rows where they are."""
    monkeypatch.setattr(judged, "WHOLE_ROWS", 100)  # of more, scores are those of refits
    monkeypatch.setattr(judged, "SAMPLE_ROWS", 100)
    kind, more = REFITTED[name]
    settings = more | ({} if kind is bw.MILogisticRegression else {"n_inducing": 8})
    bags, read, gather = make_bags(), [], DaskRows._gather

    def noted(self: DaskRows, index: Array) -> Array:
        read.append(len(index))
        return gather(self, index)

    monkeypatch.setattr(DaskRows, "_gather", noted)
    serial = kind(random_state=0, bag_score="calibrated", **settings).fit(bags)
    found = kind(random_state=0, bag_score="calibrated", **settings)
    found.fit(DaskBags.from_bags(bags, n_chunks=3), client=client)
    for field in fields(serial.left_out_bags_):
        one, other = (getattr(m.left_out_bags_, field.name) for m in (found, serial))
        if other is not None and np.asarray(other).dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.predict_proba(bags), serial.predict_proba(bags), atol=1e-5)
    if name == "chosen kernel":  # k-means, candidates and novelty have looked at rows
        assert sum(read) == 2.5 * B * SIZE


@pytest.mark.usefixtures("no_few_rows")
def test_workers_keep_no_features_of_refits_for_other_classes(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each class is calibrated by bags of its own."""
    asked, submit = [], Cluster.submit

    def noted(self: Cluster, function: Any, *arguments: Any) -> Any:
        asked.append(getattr(function, "__name__", ""))
        return submit(self, function, *arguments)

    monkeypatch.setattr(Cluster, "submit", noted)
    settings = {"learn_hyperparameters": False, "bag_score": "calibrated", "standardize": True}
    model = bw.OneVsRestMIL(bw.ProbitVGPMIL(**SETTINGS, **settings))
    model.fit(DaskBags.from_bags(make_bags(), n_chunks=2), np.arange(B) % 3, client=client)
    assert asked.count("_whitened") == 2  # parts
    assert asked.count("_build") == 2 * 3  # classes
    assert asked.count("_build_by_fold") == 2 * 3  # once for all refits of a class


def breaks_down(part: Array) -> float:
    raise np.linalg.LinAlgError("not positive definite")


def test_numbers_that_break_down_on_workers_are_breakdowns_here(client: Any) -> None:
    """So that refits that break down do not take the fit with them."""
    rows = DaskBags.from_bags(make_bags(), n_chunks=2).connect(client).X
    with pytest.raises(PartError, match=r"part \d .*LinAlgError: not positive") as in_pass:
        total(rows.cluster, breaks_down, rows.futures)
    with pytest.raises(PartError, match=r"part \d .*LinAlgError: not positive") as in_task:
        rows.cluster.gather([rows.cluster.submit(breaks_down, X) for X in rows.futures])
    with pytest.raises(PartError, match=r"part \d .*TypeError") as other:
        total(rows.cluster, partial(divmod, "a"), rows.futures)
    broke_down = [isinstance(e.value, BREAKDOWNS) for e in (in_pass, in_task, other)]
    assert broke_down == [True, True, False]
