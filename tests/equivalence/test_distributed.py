"""Distributed fits give what serial fits give, also when a worker dies on the way."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import bagwise as bw
from bagwise.bags.rows import column_moments
from bagwise.cli.workflow import suspects
from bagwise.core.inference.stats import Chunk
from bagwise.core.likelihoods.at_least_one import Targets
from bagwise.core.linear import penalty
from bagwise.distributed import DaskBags, PartError
from bagwise.distributed.cluster import Cluster
from bagwise.distributed.passes import PartChunks
from bagwise.distributed.rounds import total
from command_line import good, refused, small_frame

pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
)

Array = np.ndarray
B, SIZE = 40, 5
SETTINGS: dict[str, Any] = {"n_inducing": 8, "random_state": 0, "max_iter": 8, "chunk_size": 30}
MODELS: dict[str, tuple[Callable[..., Any], float]] = {
    "logistic": (bw.VGPMIL, 1e-8),
    "logistic, Newton": (lambda **k: bw.VGPMIL(**k | {"max_iter": 60}), 1e-8),
    "probit": (bw.ProbitVGPMIL, 1e-8),
    "laplace": (lambda **k: bw.ProbitVGPMIL(inference="laplace", **k), 1e-8),
    "factorised": (lambda **k: bw.VGPMIL(label_posterior="factorised", H=100.0, **k), 1e-8),
    "large margin": (lambda **k: bw.LargeMarginVGPMIL(init={"pi": START}, **k), 1e-8),
    # EP starts cold on workers and stops within its own tolerance.
    "ising": (lambda **k: bw.IsingVGPMIL(neighbors="chain", **k), 1e-6),
}
START = np.random.default_rng(1).random(B * SIZE)


def make_bags(n: int = B, size: int = SIZE) -> bw.Bags:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n * size, 2)) * [1.0, 50.0]
    X[np.arange(1, n, 2) * size, 0] += 3
    known = np.where(np.arange(n * size) % 17 == 0, 0.0, np.nan)
    known[np.arange(1, n, 2) * size] = np.nan
    bag_ids = np.repeat(np.arange(n), size)
    return bw.Bags.from_arrays(X, bag_ids, y=np.arange(n) % 2, instance_labels=known)


@pytest.mark.parametrize("name", MODELS)
def test_distributed_fits_are_serial_fits(name: str, client: Any) -> None:
    bags = make_bags()
    model, tolerance = MODELS[name]
    serial = model(**SETTINGS).fit(bags)
    found = model(**SETTINGS).fit(DaskBags.from_bags(bags, n_chunks=3), client=client)
    assert found.elbo_ == pytest.approx(serial.elbo_, rel=tolerance)
    p, q = (m.predict_instance_proba(bags) for m in (found, serial))
    np.testing.assert_allclose(p, q, atol=100 * tolerance)
    p, q = (m.predict_proba(bags) for m in (found, serial))
    np.testing.assert_allclose(p, q, atol=100 * tolerance)
    assert found.n_features_in_ == 2 and found.classes_.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["logistic", "large margin"])
def test_weights_of_bags_go_to_the_workers(name: str, client: Any) -> None:
    bags, model, weights = make_bags(), MODELS[name][0], np.arange(B) % 4 / 2
    serial = model(**SETTINGS).fit(bags, sample_weight=weights)
    parts = DaskBags.from_bags(bags, n_chunks=3)
    found = model(**SETTINGS).fit(parts, sample_weight=weights, client=client)
    assert found.elbo_ == pytest.approx(serial.elbo_, rel=1e-8)
    assert abs(serial.elbo_ - model(**SETTINGS).fit(bags).elbo_) > 0.1


@pytest.mark.parametrize("name", ["logistic", "large margin"])
def test_workers_compute_features_anew_where_they_keep_none(name: str, client: Any) -> None:
    bags, model = make_bags(), MODELS[name][0]
    serial = model(**SETTINGS).fit(bags)
    parts = DaskBags.from_bags(bags, n_chunks=3)
    found = model(**SETTINGS, memory_budget=0).fit(parts, client=client)
    assert found.elbo_ == pytest.approx(serial.elbo_, rel=1e-8)


@pytest.mark.parametrize("name", ["logistic", "laplace"])
def test_thinned_rows_are_those_of_a_serial_fit(
    name: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bagwise.core.inference.driver.LEARNING_ROWS", 240)
    bags = make_bags(24, 25)
    model, learned = MODELS[name][0], SETTINGS | {"kernel": None, "bag_score": "joint"}
    serial = model(**learned).fit(bags)
    found = model(**learned).fit(DaskBags.from_bags(bags, n_chunks=3), client=client)
    np.testing.assert_allclose(found.kernel_.theta, serial.kernel_.theta, rtol=1e-8)
    assert found.mean_ == pytest.approx(serial.mean_, rel=1e-8)
    assert found.elbo_ == pytest.approx(serial.elbo_, rel=1e-8)


@pytest.mark.parametrize("model", [bw.ProbitVGPMIL, bw.VGPMIL])
def test_some_bags_to_start_from_are_those_of_a_serial_fit(
    model: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bagwise.core.inference.passes.FLOAT64_FEATURES", 0)
    for name, value in {"START_SHARE": 5, "START_BAGS": 4}.items():
        monkeypatch.setattr(f"bagwise.core.inference.solvers.{name}", value)
    bags, stages = make_bags(), set[str]()
    settings = SETTINGS | {"learn_hyperparameters": False, "max_iter": 30}
    serial = model(**settings).fit(bags, callbacks=[lambda s, *_: stages.add(s)])
    assert "some bags" in stages
    parts = DaskBags.from_bags(bags, n_chunks=8)  # not all of which have some of the bags
    found = model(**settings).fit(parts, client=client)
    np.testing.assert_allclose(found.elbo_history_, serial.elbo_history_, rtol=1e-8)


def test_rows_stay_with_workers_and_are_read_like_an_array(client: Any) -> None:
    bags = make_bags()
    here = DaskBags.from_bags(bags, n_chunks=3).connect(client)
    index = np.array([199, 0, 77, 77, 3])
    np.testing.assert_array_equal(here.X[index], bags.X[index])
    np.testing.assert_array_equal(here.X[50:140], bags.X[50:140])
    np.testing.assert_array_equal(here.offsets, bags.offsets)
    np.testing.assert_array_equal(here.y, bags.y)
    for found, expected in zip(column_moments(here.X), column_moments(bags.X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_parts_are_dealt_out_to_workers_by_their_threads() -> None:
    class Dealer:
        def sync(self, function: Any, *arguments: Any) -> Any:
            # In another thread: browsers that are tested leave a loop running in this one.
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(lambda: asyncio.run(function(*arguments))).result()

        async def nthreads(self) -> dict[str, int]:
            return {"small": 1, "large": 2}

        def submit(self, call: Any, *, workers: list[str], **more: Any) -> Any:
            assert more["allow_other_workers"] and more["retries"] == 3
            return call, workers

    found = Cluster(Dealer(), ()).deal(list("abcdef"))
    assert [call for call, _ in found] == list("abcdef")
    assert sorted(w for _, (w,) in found) == ["large"] * 4 + ["small"] * 2


def test_quick_passes_do_not_ask_each_time_where_parts_are(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    answer = Cluster._answer

    async def noted(self: Cluster, seconds: float, method: str, *arguments: Any) -> Any:
        asked.append(method)
        return await answer(self, seconds, method, *arguments)

    rows = DaskBags.from_bags(make_bags(), n_chunks=3).connect(client).X
    rows.cluster.gather(rows.futures)  # the parts are somewhere
    monkeypatch.setattr(Cluster, "_answer", noted)
    monkeypatch.setattr("bagwise.distributed.placement.FRESH", 1e9)
    found = [total(rows.cluster, np.sum, rows.futures) for _ in range(3)]
    assert asked.count("who_has") == 1 and len(set(found)) == 1
    total(rows.cluster, np.sum, rows.futures[:2])  # of other parts nothing is known
    assert asked.count("who_has") == 2
    monkeypatch.setattr("bagwise.distributed.placement.FRESH", 0.0)
    total(rows.cluster, np.sum, rows.futures[:2])
    assert asked.count("who_has") == 3


def test_a_lost_worker_does_not_change_the_fit(client: Any) -> None:
    bags = make_bags()
    settings = SETTINGS | {"learn_hyperparameters": False}
    model = bw.LargeMarginVGPMIL(**settings)
    serial = bw.LargeMarginVGPMIL(**settings).fit(bags)
    killed: list[int] = []

    def kill_one(stage: str, step: int, objective: float, seconds: float) -> None:
        if stage == "vi" and step == 5:
            pids = client.run(os.getpid)
            killed.append(next(iter(pids.values())))
            os.kill(killed[0], signal.SIGKILL)

    model.fit(DaskBags.from_bags(bags, n_chunks=3), client=client, callbacks=[kill_one])
    assert killed
    assert model.elbo_ == pytest.approx(serial.elbo_, rel=1e-8)
    client.wait_for_workers(1, timeout=30)


class DiesOnce:
    """Reads a part; the process of the first reader ends at once, as by a fault."""

    def __init__(self, bags: bw.Bags, mark: Path) -> None:
        self.bags, self.mark = bags, mark

    def __call__(self) -> bw.Bags:
        if not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return self.bags


@pytest.fixture
def lone_worker() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_a_fit_goes_on_when_all_workers_were_replaced(lone_worker: Any, tmp_path: Path) -> None:
    """The only worker dies while it reads, and again in the fit; its nanny starts others."""
    bags = make_bags()
    settings = SETTINGS | {"learn_hyperparameters": False, "bag_score": "max"}
    serial = bw.ProbitVGPMIL(**settings).fit(bags)
    readers = [DiesOnce(bags[:20], tmp_path / "a"), DiesOnce(bags[20:], tmp_path / "a")]
    killed: list[int] = []

    def kill(stage: str, step: int, objective: float, seconds: float) -> None:
        if not killed:
            killed.extend(lone_worker.run(os.getpid).values())
            os.kill(killed[0], signal.SIGKILL)

    found = bw.ProbitVGPMIL(**settings)
    found.fit(DaskBags(readers, ["a", "b"]), client=lone_worker, callbacks=[kill])
    assert (tmp_path / "a").exists() and killed
    assert found.elbo_ == pytest.approx(serial.elbo_, rel=1e-8)


def always_dies() -> bw.Bags:
    os._exit(1)


def test_a_part_at_which_all_workers_die_ends_the_fit(lone_worker: Any) -> None:
    """Dask gives up on what was there when workers died some times.

    A part that was dealt to the same worker dies with it as often, and may be the one named.
    """
    parts = DaskBags([make_bags, always_dies], ["good", "deadly"])
    with pytest.raises(PartError, match=r"\((good|deadly)\).* failed on its workers"):
        bw.ProbitVGPMIL(**SETTINGS).fit(parts, client=lone_worker)


def test_a_part_that_keeps_failing_is_named(client: Any, tmp_path: Path) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "gone.parquet"]
    make_bags()[:20].to_frame().to_parquet(paths[0])
    parts = DaskBags.from_parquet(paths, instance_label="instance_label")
    with pytest.raises(PartError, match=r"part 1 \(.*gone.parquet\) failed on its workers 4 times"):
        bw.ProbitVGPMIL(**SETTINGS).fit(parts, client=client)


def test_a_part_on_which_a_step_fails_is_named(client: Any) -> None:
    here = DaskBags.from_bags(make_bags(), n_chunks=3).connect(client)
    cluster, parts = here.X.cluster, here.X.futures
    client.gather(parts)
    with pytest.raises(PartError, match=r"part 1 .* last of 4 attempts .* with ZeroDivisionError"):
        total(cluster, _fails_on_some, parts)
    assert total(cluster, np.sum, parts) == pytest.approx(make_bags().X.sum())


def _fails_on_some(X: Array) -> float:
    return 1 / 0 if X[0, 0] == make_bags()[14].X[0, 0] else 0.0


def test_workers_learn_the_size_of_chunks() -> None:
    from dask.sizeof import sizeof

    targets = Targets(np.array([0]), np.array([50]), np.array([True]))
    chunk = Chunk(None, np.ones((50, 400)), np.ones(50), targets)
    assert sizeof(PartChunks([chunk, chunk])) > 2 * 50 * 400 * 8
    with tempfile.TemporaryFile() as file:
        file.write(bytes(50 * 400 * 8))
        mapped = np.asarray(np.memmap(file, dtype=float, mode="r")).reshape(50, 400)
        assert sizeof(PartChunks([replace(chunk, A=mapped[::2])])) < 10_000


def test_parquet_files_are_read_by_workers(client: Any, tmp_path: Path) -> None:
    bags = make_bags()
    paths = [tmp_path / f"{i}.parquet" for i in range(2)]
    for path, part in zip(paths, (bags[:15], bags[15:]), strict=True):
        part.to_frame().to_parquet(path)
    parts = DaskBags.from_parquet(paths, instance_label="instance_label")
    assert len(parts) == 2
    found = bw.ProbitVGPMIL(**SETTINGS).fit(parts, client=client)
    names = [f"x{j}" for j in range(2)]
    serial = bw.ProbitVGPMIL(**SETTINGS).fit(bags.with_X(bags.X, feature_names=names))
    assert found.elbo_ == pytest.approx(serial.elbo_, rel=1e-8)
    assert found.feature_names_in_.tolist() == names
    with pytest.raises(ValueError, match="is in several parts"):
        bw.ProbitVGPMIL().fit(
            DaskBags.from_parquet([paths[0]] * 2, instance_label="instance_label"), client=client
        )


def test_what_is_not_distributed_says_so(client: Any, tmp_path: Path) -> None:
    parts = DaskBags.from_bags(make_bags(), n_chunks=2)
    with pytest.raises(ValueError, match=r"'gibbs' .* is not distributed"):
        bw.ProbitVGPMIL(inference="gibbs").fit(parts, client=client)
    with pytest.raises(ValueError, match="a distributed fit of it writes no checkpoints"):
        bw.LargeMarginVGPMIL().fit(parts, client=client, checkpoint=tmp_path / "c")
    with pytest.raises(TypeError, match="need a Dask client"):
        bw.VGPMIL().fit(parts)
    with pytest.raises(TypeError, match="client is for bagwise"):
        bw.VGPMIL().fit(make_bags(), client=client)


def test_distributed_fits_resume(client: Any, tmp_path: Path) -> None:
    bags, path = make_bags(), tmp_path / "fit.ckpt"
    parts = DaskBags.from_bags(bags, n_chunks=3)
    serial = bw.VGPMIL(**SETTINGS).fit(bags)

    class Stop(Exception):
        pass

    def stop(stage: str, step: int, objective: float, seconds: float) -> None:
        if stage == "vi" and step == 4:
            raise Stop

    with pytest.raises(Stop):
        bw.VGPMIL(**SETTINGS).fit(
            parts, client=client, checkpoint=path, checkpoint_minutes=0, callbacks=[stop]
        )
    found = bw.VGPMIL(**SETTINGS).fit(bags, resume=path)  # and on one machine
    assert found.elbo_ == pytest.approx(serial.elbo_, rel=1e-8)


LINEAR: dict[str, Callable[..., Any]] = {
    "sparse": bw.MIRVM,
    "kernel": lambda **k: bw.MIRVM(kernel=bw.kernels.RBF(lengthscale=1.0), n_basis=6, **k),
    "instances": bw.RVM,
    "evidence": bw.MILogisticRegression,
    "given": lambda **k: bw.MILogisticRegression(alpha=2.0, **k),
    "folds": lambda **k: bw.MILogisticRegression(alpha="cv", **k),
    "tasks": bw.MultiTaskMIRVM,
}


@pytest.mark.parametrize("name", LINEAR)
def test_distributed_linear_fits_are_serial_fits(
    name: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(penalty, "GRID", (100.0, 3.0))
    monkeypatch.setattr(penalty, "N_FOLDS", 2)
    bags, more = make_bags(), {}
    if name == "tasks":  # the second is in the first part only
        more = {"tasks": np.where(np.arange(B) < 8, "b", "a")}
    settings = {"random_state": 0, "chunk_size": 30, "tol": 0.1}
    serial = LINEAR[name](**settings).fit(bags, **more)
    model = LINEAR[name](**settings)
    model.fit(DaskBags.from_bags(bags, n_chunks=2), client=client, **more)
    assert model.log_evidence_ == pytest.approx(serial.log_evidence_, rel=1e-8)
    assert model.n_iter_ == serial.n_iter_
    np.testing.assert_allclose(model.alpha_, serial.alpha_, rtol=1e-7)
    np.testing.assert_allclose(model.coef_, serial.coef_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.coef_std_, serial.coef_std_, rtol=1e-7)


@pytest.mark.parametrize("labels", ["classes", "matrix"])
@pytest.mark.parametrize("estimator", [bw.ProbitVGPMIL, bw.MILogisticRegression])
def test_distributed_fits_of_several_classes_are_serial_fits(
    estimator: Any, labels: str, client: Any
) -> None:
    bags = make_bags().with_instance_labels(None)
    kinds = np.arange(B) % 3
    y = kinds if labels == "classes" else np.eye(4, dtype=int)[kinds][:, :2]
    settings = {"random_state": 0, "max_iter": 60, "bag_score": "joint", "standardize": True}
    if estimator is bw.ProbitVGPMIL:
        settings |= {"n_inducing": 8, "learn_hyperparameters": False}
    model = bw.OneVsRestMIL(estimator(**settings), n_jobs=2)
    serial = clone(model).fit(bags, y)
    parts = DaskBags.from_bags(bags.with_labels(None), n_chunks=3)
    found = clone(model).fit(parts, y, client=client)
    np.testing.assert_allclose(found.predict_proba(bags), serial.predict_proba(bags), atol=1e-5)


def test_workers_compute_features_once_for_all_classes(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags, asked = make_bags().with_instance_labels(None), []
    submit = Cluster.submit

    def noted(self: Cluster, function: Any, *arguments: Any) -> Any:
        asked.append(getattr(function, "__name__", ""))
        return submit(self, function, *arguments)

    monkeypatch.setattr(Cluster, "submit", noted)
    settings = {"random_state": 0, "n_inducing": 8, "learn_hyperparameters": False}
    model = bw.OneVsRestMIL(bw.ProbitVGPMIL(**settings, standardize=True))
    model.fit(DaskBags.from_bags(bags, n_chunks=3), np.arange(B) % 3, client=client)
    assert asked.count("_whitened") == 3 and asked.count("_build") == 9
    serial = clone(model).fit(bags, np.arange(B) % 3)
    np.testing.assert_allclose(model.predict_proba(bags), serial.predict_proba(bags), atol=1e-5)


def test_fewer_instances_than_features_are_gathered(client: Any) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(24, 40))
    X[np.arange(1, 12, 2) * 2, 0] += 4
    bags = bw.Bags.from_arrays(X, np.repeat(np.arange(12), 2), y=np.arange(12) % 2)
    serial = bw.MILogisticRegression(alpha=2.0).fit(bags)
    found = bw.MILogisticRegression(alpha=2.0).fit(DaskBags.from_bags(bags, 2), client=client)
    np.testing.assert_allclose(found.coef_, serial.coef_, rtol=1e-8)


PREDICTORS: dict[str, Callable[..., Any]] = {
    "joint": lambda: bw.ProbitVGPMIL(**SETTINGS),
    "noisy-or": lambda: bw.VGPMIL(**SETTINGS, bag_score="noisy-or"),
    "linear": lambda: bw.MIRVM(random_state=0),
}


@pytest.mark.parametrize("instances", [False, True], ids=["bags", "instances"])
@pytest.mark.parametrize("name", PREDICTORS)
def test_predictions_of_parts_are_local_predictions(
    name: str, instances: bool, client: Any, tmp_path: Path
) -> None:
    import pandas as pd

    bags = make_bags()
    model = PREDICTORS[name]().fit(bags)
    parts = DaskBags.from_bags(bags, n_chunks=3)
    paths = parts.predict(model, client, tmp_path / "new" / "p", instances=instances)
    assert [p.name for p in paths] == [f"part-0000{i}.parquet" for i in range(3)]
    assert sorted((tmp_path / "new" / "p").iterdir()) == paths
    bw.io.write_predictions(model, bags, tmp_path / "local.parquet", instances=instances)
    found = pd.concat([pd.read_parquet(p) for p in paths], ignore_index=True)
    expected = pd.read_parquet(tmp_path / "local.parquet")
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(FileExistsError, match=r"holds part-00000\.parquet already"):
        parts.predict(model, client, tmp_path / "new" / "p")


def test_predictions_as_a_frame(client: Any, tmp_path: Path) -> None:
    bags = make_bags()
    model = bw.MIRVM(random_state=0).fit(bags)
    parts = DaskBags.from_bags(bags, n_chunks=2)
    frame = parts.predict(model, client, tmp_path, as_frame=True)
    assert frame.npartitions == 2
    p = model.predict_proba(bags)[:, 1]
    np.testing.assert_allclose(frame["p_1"].compute().to_numpy(), p, atol=1e-12)


def test_a_part_that_cannot_be_predicted_is_named(client: Any, tmp_path: Path) -> None:
    bags = make_bags()
    model = bw.MIRVM(random_state=0).fit(bags)
    other = bags.with_X(np.ones((bags.n_instances, 3)))
    parts = DaskBags([lambda: bags, lambda: other], ["good", "bad"])
    with pytest.raises(PartError, match=r"part 1 \(bad\) .* X has 3 features, but MIRVM is expect"):
        parts.predict(model, client, tmp_path / "p")
    with pytest.raises(TypeError, match="need a Dask client"):
        parts.predict(model, None, tmp_path / "q")


# --- The command line ----------------------------------------------------------------------------

COLUMNS = ("--bag", "slide", "--label", "diagnosis", "--positive", "cancer")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of sixteen slides, whole and in two parts."""
    folder = tmp_path_factory.mktemp("tables")
    frame = small_frame()
    frame.to_parquet(folder / "whole.parquet")
    for name, part in (("a", frame.slide < "s06"), ("b", frame.slide >= "s06")):
        frame[part].to_parquet(folder / f"part-{name}.parquet")
    return folder


def test_the_command_line_fits_and_predicts_on_a_cluster(
    client: Any, tables: Path, tmp_path: Path
) -> None:
    import pandas as pd

    address = client.scheduler.address
    parts = [tables / "part-a.parquet", tables / "part-b.parquet"]
    model = tmp_path / "m.bagwise"
    good("fit", *parts, *COLUMNS, "--scheduler", address, "-o", model)
    good("fit", tables / "whole.parquet", *COLUMNS, "-o", tmp_path / "local.bagwise")
    found, local = bw.load(model), bw.load(tmp_path / "local.bagwise")
    assert found.elbo_ == pytest.approx(local.elbo_, rel=1e-8)
    assert found.metadata_["classes"] == ["healthy", "cancer"]
    assert found.metadata_["data"]["name"] == "part-a.parquet and 1 more"
    assert found.feature_names_in_.tolist() == ["area", "shade"]
    said = good("predict", model, *parts, "--scheduler", address, "-o", tmp_path / "p", "--json")
    files = json.loads(said)["files"]
    assert files == [str(tmp_path / "p" / f"part-0000{i}.parquet") for i in range(2)]
    together = pd.concat([pd.read_parquet(f) for f in files])
    assert list(together.columns) == ["bag_id", "p_healthy", "p_cancer", "std", "novelty_p_value"]
    good("predict", model, tables / "whole.parquet", "-o", tmp_path / "p.csv")
    expected = pd.read_csv(tmp_path / "p.csv").sort_values("slide")
    assert together["bag_id"].tolist() == expected["slide"].tolist()
    np.testing.assert_allclose(together["p_cancer"], expected["p_mean"], atol=1e-12)


def test_features_that_look_like_labels_are_told_on_clusters_too(client: Any) -> None:
    bags = make_bags()
    leak = np.zeros((bags.n_instances, 3))
    leak[np.arange(1, B, 2) * SIZE, 0] = 1  # 1 in each positive bag
    leak[[0, SIZE], 1] = 1  # also in a negative one
    leak[SIZE, 2] = 1  # in one positive bag only
    both = bags.with_X(np.hstack([bags.X, leak]))
    away = DaskBags.from_bags(both, n_chunks=3).connect(client)
    (said,) = suspects(away)
    assert "'x2' looks like instance labels" in said
    assert suspects(both) == [said]


def test_mistakes_with_clusters_end_in_one_line(client: Any, tables: Path, tmp_path: Path) -> None:
    at = ("--scheduler", client.scheduler.address, "-o", tmp_path / "m.bagwise")
    a, b = tables / "part-a.parquet", tables / "part-b.parquet"
    assert "got 2; join them" in refused("fit", a, b, *COLUMNS)
    assert "--scheduler reads Parquet files" in refused("fit", "t.csv", *COLUMNS, *at)
    assert "no file gone.parquet" in refused("fit", "gone.parquet", *COLUMNS, *at)
    assert "--valid is for one table" in refused("fit", a, b, *COLUMNS, *at, "--valid", 0.5)
    assert "no column 'nope'" in refused("fit", a, b, "--bag", "nope", *at)
    assert "is in several parts" in refused("fit", a, a, *COLUMNS, *at)
    small_frame().drop(columns="shade").to_parquet(tmp_path / "c.parquet")
    said = refused("fit", a, tmp_path / "c.parquet", *COLUMNS, *at)
    assert re.search(r"part 1 \(.*c.parquet\) .* lacks 1 of the 2 features", said)


def test_schedulers_that_do_not_answer(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bagwise.cli import sources

    monkeypatch.setattr(sources, "PATIENCE", 0.3)
    a = tables / "part-a.parquet"
    said = refused("fit", a, *COLUMNS, "--scheduler", "tcp://127.0.0.1:9", "-o", "x.bagwise")
    assert "no Dask scheduler answered at tcp://127.0.0.1:9 within 0.3 s" in said
    for address in ("nonsense://x", "garbage", "http://127.0.0.1:80", "inproc://x", "tcp://h:0"):
        said = refused("fit", a, *COLUMNS, "--scheduler", address, "-o", "x.bagwise")
        assert "takes an address such as tcp://host:8786" in said and address in said
    said = refused("fit", a, *COLUMNS, "--scheduler", "tls://127.0.0.1:9", "-o", "x.bagwise")
    assert "no certificates" in said
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as empty:
        address = empty.scheduler_address
        said = refused("fit", a, *COLUMNS, "--scheduler", address, "-o", "x.bagwise")
        assert f"the Dask scheduler at {address} has no workers" in said
    monkeypatch.setitem(sys.modules, "distributed", None)
    said = refused("fit", a, *COLUMNS, "--scheduler", "tcp://127.0.0.1:9", "-o", "x.bagwise")
    assert 'pip install ".[dask]"' in said


@pytest.mark.parametrize("n", [0, -1, 2.5])
def test_wrong_numbers_of_parts_are_refused(n: Any) -> None:
    with pytest.raises(ValueError, match="n_chunks must be an integer of at least 1"):
        DaskBags.from_bags(make_bags(), n_chunks=n)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 40, 100])
def test_parts_are_all_bags_once(n: int) -> None:
    bags = make_bags()
    parts = [read() for read in DaskBags.from_bags(bags, n_chunks=n).readers]
    assert len(parts) == min(n, B)
    np.testing.assert_array_equal(bw.Bags.concat(parts).X, bags.X)


def test_predictions_of_a_model_point_to_those_of_the_bags() -> None:
    model = bw.ProbitVGPMIL(**SETTINGS).fit(make_bags())
    with pytest.raises(TypeError, match=r"bags\.predict\(model, client, folder\)"):
        model.predict_proba(DaskBags.from_bags(make_bags(), n_chunks=2))
