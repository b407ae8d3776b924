"""The benchmark: no leaks, nothing run twice, nothing mixed up, tables that add up."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from typer.testing import CliRunner

import bagwise as bw
from bagwise.baselines import MILR, SIL, MeanPoolLogistic
from bagwise.benchmark import (
    ConfigurationError,
    Job,
    Problem,
    Store,
    evaluate,
    make_model,
    mean_ranks,
    problems,
    report,
    run,
    splits,
    summary_table,
)
from bagwise.benchmark.registry import DEFAULT_MODELS, SETS
from bagwise.cli import app as cli
from bagwise.datasets import make_bags
from bagwise.metrics import accuracy, roc_auc

BAGS, TRUTH = make_bags(40, 5, 3, overlap=0.1, random_state=0)


@pytest.fixture(autouse=True)
def no_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time of a small run; one test draws them."""
    if request.node.name != "test_run_writes_everything":
        monkeypatch.setattr(report, "_figures", lambda rows, folder: [])


class Spy(ClassifierMixin, BaseEstimator):
    """Remembers what it was trained on, and predicts the label it has seen, else 1/2."""

    def fit(self, X: bw.Bags, y: Any = None) -> Spy:
        assert X.instance_labels is None
        self.classes_ = np.unique(X.y)
        self.seen_ = {
            tuple(x): label for x, label in zip(X.X, np.repeat(X.y, X.sizes), strict=True)
        }
        return self

    def predict_proba(self, X: bw.Bags) -> np.ndarray:
        first = [self.seen_.get(tuple(b.X[0]), 0.5) for b in X]
        return np.column_stack([1 - np.array(first), first])


def job(problem: Problem, model: Any, fold: int = 0, folds: int = 4, repeat: int = 0) -> Job:
    return Job(problem, "m", model, repeat, fold, folds, seed=0)


# --- Protocol ------------------------------------------------------------------------------------


def test_splits_are_stratified_and_cover_every_bag_once() -> None:
    parts = splits(Problem("toy", BAGS), 4, seed=3)
    assert sorted(np.concatenate([test for _, test in parts])) == list(range(40))
    for train, test in parts:
        assert set(train).isdisjoint(test)
        assert BAGS.y[test].sum() == 5


def test_splits_follow_the_seed() -> None:
    a, b, c = (splits(Problem("toy", BAGS), 4, seed)[0][1].tolist() for seed in (0, 0, 1))
    assert a == b != c


def test_groups_stay_together() -> None:
    groups = np.repeat(np.arange(20), 2)
    bags = bw.Bags.from_arrays(BAGS.X, BAGS.bag_index, y=BAGS.y, groups=groups)
    for train, test in splits(Problem("toy", bags), 4, seed=0):
        assert set(groups[train]).isdisjoint(groups[test])


def test_given_split() -> None:
    (train, test), *rest = splits(Problem("toy", BAGS, n_train=30), 10, seed=0)
    assert not rest and train.tolist() == list(range(30)) and test.tolist() == list(range(30, 40))


def test_too_many_folds() -> None:
    with pytest.raises(ValueError, match="21 folds need"):
        splits(Problem("toy", BAGS), 21, seed=0)


def test_models_never_see_test_bags_or_instance_labels() -> None:
    labelled = BAGS.with_instance_labels(TRUTH)
    for fold in range(4):
        row = evaluate(job(Problem("toy", labelled, TRUTH), Spy(), fold))
        assert set(row["predictions"]["p"]) == {0.5}
        assert row["bag_roc_auc"] == 0.5


def test_row_has_the_scores_of_its_fold() -> None:
    row = evaluate(job(Problem("toy", BAGS, TRUTH), "MILR", fold=2))
    train, test = splits(Problem("toy", BAGS), 4, seed=0)[2]
    model = MILR().fit(BAGS[train])
    P = model.predict_proba(BAGS[test])
    assert row["bag_roc_auc"] == roc_auc(BAGS[test], P)
    assert row["bag_accuracy"] == accuracy(BAGS[test], P)
    rows = np.isin(BAGS.bag_index, test)
    expected = roc_auc(TRUTH[rows], model.predict_instance_proba(BAGS[test]))
    assert row["instance_roc_auc"] == expected
    assert row["predictions"]["bag"] == test.tolist() and row["n_train"] == 30
    assert row["fit_seconds"] > 0


def test_unknown_truth_is_left_out() -> None:
    truth = TRUTH.astype(float)
    truth[::2] = np.nan
    row = evaluate(job(Problem("toy", BAGS, truth), "MILR"))
    rows = np.isin(BAGS.bag_index, row["predictions"]["bag"])
    assert row["instance_n"] == np.sum(~np.isnan(truth[rows])) < rows.sum()
    nothing = evaluate(job(Problem("toy", BAGS, np.full(200, -1)), "MILR"))
    assert "instance_n" not in nothing
    assert "instance_n" not in evaluate(job(Problem("toy", BAGS, TRUTH), "MeanPoolLogistic"))


def test_warnings_are_counted() -> None:
    assert evaluate(job(Problem("toy", BAGS), MILR(max_iter=1)))["warnings"] == 1


# --- Registry ------------------------------------------------------------------------------------


def test_every_default_model_can_be_made() -> None:
    for name in DEFAULT_MODELS:
        model = make_model(name, BAGS, 7)
        assert model.get_params().get("random_state", 7) == 7
    assert make_model("VGPMIL-V17", BAGS, 0).kernel.lengthscale == pytest.approx(np.sqrt(3))
    with pytest.raises(ValueError, match="there is no model 'MILK'"):
        make_model("MILK", BAGS, 0)


def test_published_vgpmil_is_the_program_of_its_authors() -> None:
    model = make_model("VGPMIL-V17", BAGS, 0)
    assert (model.H, model.max_iter, model.n_inducing, model.mean) == (1e12, 20, 50, 0.0)
    assert model.label_posterior == "factorised" and model.approximation == "vfe"
    assert not model.learn_hyperparameters


def test_published_vgpmil_runs() -> None:
    row = evaluate(job(Problem("toy", BAGS, TRUTH), "VGPMIL-V17"))
    assert row["bag_roc_auc"] > 0.5


def test_sets_by_name_and_by_file(tmp_path: Path) -> None:
    assert len(problems("musk1")[0].bags) == 92
    (digits,) = problems("digits")
    assert digits.truth is not None
    np.savez(tmp_path / "mine.npz", X=BAGS.X, bag=BAGS.bag_index, y_bag=BAGS.y, y_inst=TRUTH)
    (mine,) = problems("mine", tmp_path)
    np.testing.assert_array_equal(mine.truth, TRUTH)
    with pytest.raises(ValueError, match="no data set 'yours'"):
        problems("yours", tmp_path)


def test_birds_are_one_problem_per_species(shared_dir: Path) -> None:
    found = problems("birds_hja", shared_dir / "data")
    assert len(found) == 13 and found[0].target == "BRCR"
    assert found[0].bags.n_instances == 4998
    heard = np.maximum.reduceat(found[0].truth, found[0].bags.offsets[:-1])
    assert set(np.unique(found[0].truth)) == {0, 1}
    assert np.all(heard <= found[0].bags.y)  # where only unknown syllables are its own, 0 < 1


def test_every_name_is_a_loader() -> None:
    assert set(SETS) >= {"musk2", "elephant", "fox", "tiger", "mnist_bags", "fashion_mnist_bags"}


def test_fingerprint_changes_with_the_data() -> None:
    same = Problem("toy", BAGS, TRUTH).fingerprint()
    assert Problem("other name", BAGS, TRUTH).fingerprint() == same
    assert Problem("toy", BAGS.with_X(BAGS.X + 1), TRUTH).fingerprint() != same
    assert Problem("toy", BAGS.with_labels(1 - BAGS.y), TRUTH).fingerprint() != same
    assert Problem("toy", BAGS, 1 - TRUTH).fingerprint() != same


# --- Runs ----------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"sets": {"toy": (BAGS, TRUTH)}, "repeats": 2, "folds": 2}


def test_run_writes_everything(tmp_path: Path) -> None:
    told: list[Any] = []
    models = ["MILR", "MeanPoolLogistic"]
    rows = run(**SMALL, models=models, output=tmp_path, announce=lambda *a: told.append(a))
    assert len(rows) == 8 == len(told) and told[-1][:2] == (8, 8)
    with (tmp_path / "results.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(r["bag_roc_auc"]) for r in table] == [r["bag_roc_auc"] for r in rows]
    assert "predictions" not in table[0]
    import pyarrow.parquet as parquet

    assert parquet.read_table(tmp_path / "results.parquet").num_rows == 8
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| toy | MILR |" in page and "mean rank of accuracy" in page
    for name in ("auc-against-time", "reliability", "ranking"):
        assert (tmp_path / f"{name}.png").stat().st_size > 3000


def test_second_run_goes_on(tmp_path: Path) -> None:
    first = run(**SMALL, models=["MILR"], output=tmp_path)
    lost = next((tmp_path / "folds").glob("*r1_f0.json"))
    lost.unlink()
    told: list[Any] = []
    again = run(**SMALL, models=["MILR"], output=tmp_path, announce=lambda *a: told.append(a))
    assert told == [(4, 4, ("toy", "", "MILR", 1, 0))]
    scores = [[r["bag_roc_auc"] for r in rows] for rows in (first, again)]
    assert scores[0] == scores[1]


def test_more_models_sets_and_repeats_may_be_added(tmp_path: Path) -> None:
    run(**SMALL, models=["MILR"], output=tmp_path)
    assert len(run(**SMALL, models=["SIL"], output=tmp_path)) == 8
    assert len(run(**(SMALL | {"repeats": 3}), models=["SIL"], output=tmp_path)) == 10
    rows = run({"other": BAGS}, ["SIL"], repeats=1, folds=2, output=tmp_path)
    assert len(rows) == 12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "different seed"),
        ({"folds": 3}, "different folds"),
        ({"models": {"MILR": MILR(C=2.0)}}, "different model MILR"),
        ({"sets": {"toy": (BAGS.with_X(2 * BAGS.X), TRUTH)}}, "different set toy"),
    ],
)
def test_changed_configuration_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    arguments = SMALL | {"models": {"MILR": MILR()}}
    run(**arguments, output=tmp_path)
    with pytest.raises(ConfigurationError, match=message):
        run(**(arguments | change), output=tmp_path)


def test_processes_give_the_same_rows(tmp_path: Path) -> None:
    serial, parallel = (
        run(
            **(SMALL | {"repeats": 1}),
            models={"SIL": SIL()},
            jobs=jobs,
            output=tmp_path / str(jobs),
        )
        for jobs in (1, 2)
    )
    for a, b in zip(serial, parallel, strict=True):
        assert a["predictions"] == b["predictions"]


class Broken(MeanPoolLogistic):
    def predict_proba(self, X: Any) -> Any:
        raise RuntimeError("out of order")


def test_failures_say_where_and_keep_the_rest(tmp_path: Path) -> None:
    models = {"SIL": SIL(), "Broken": Broken()}
    with pytest.raises(RuntimeError, match="out of order") as stopped:
        run(**SMALL, models=models, output=tmp_path)
    assert "in the benchmark: toy  Broken 0 0" in stopped.value.__notes__
    assert len(list((tmp_path / "folds").glob("*.json"))) == 1


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one data set"):
        run([], ["SIL"], output=tmp_path)
    with pytest.raises(ValueError, match="toy have no labels"):
        run({"toy": BAGS.with_labels(None)}, ["SIL"], output=tmp_path)
    for name in ("repeats", "folds", "jobs"):
        with pytest.raises(ValueError, match=name):
            run(**(SMALL | {name: 0}), models=["SIL"], output=tmp_path)


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, {"seed": 0, "folds": 2, "sets": {}, "models": {}})
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        store.add(("a", "", "b", 0, 0), {"x": 1})
    assert list((tmp_path / "folds").iterdir()) == []


def test_names_do_not_leave_the_folder(tmp_path: Path) -> None:
    store = Store(tmp_path, {"seed": 0, "folds": 2, "sets": {}, "models": {}})
    assert store.path(("../../x", "a/b", "m", 0, 0)).parent == tmp_path / "folds"


# --- Report --------------------------------------------------------------------------------------


def fake(name: str, model: str, repeat: int, value: float, fold: int = 0) -> dict[str, Any]:
    return {
        "set": name,
        "target": "",
        "model": model,
        "repeat": repeat,
        "fold": fold,
        "fit_seconds": 1.0,
        "bag_accuracy": value,
        "bag_roc_auc": value,
        "bag_log_likelihood": -value,
        "predictions": {"positive": [0, 1], "p": [0.2, value]},
    }


def test_means_and_spread() -> None:
    rows = [fake("s", "A", r, v, f) for r, f, v in ((0, 0, 0.5), (0, 1, 0.7), (1, 0, 0.8))]
    line = summary_table(rows)[0]
    assert line[2] == "0.667 ± 0.100"  # mean of three; spread of 0.6 and 0.8
    assert summary_table(rows[:2])[0][2] == "0.600 ± 0.100"
    assert line[4] == "1.000" and line[7] == "—"


def test_ranks_share_ties_and_skip_incomplete_sets() -> None:
    rows = [fake("s", "A", 0, 0.9), fake("s", "B", 0, 0.9), fake("s", "C", 0, 0.1)]
    rows += [fake("t", "A", 0, 0.1)]
    assert mean_ranks(rows) == {"A": 1.5, "B": 1.5, "C": 3.0}
    assert mean_ranks([*rows[3:], fake("s", "B", 0, 0.5)]) == {}


def test_critical_difference_of_a_published_table() -> None:
    # Demšar (2006), Table 5: q = 2.569 for four models; his example has 14 data sets.
    assert report.critical_difference(4, 14) == pytest.approx(2.569 * np.sqrt(20 / 84), rel=1e-3)


def test_undefined_scores_are_left_out(tmp_path: Path) -> None:
    rows = [fake("s", "A", 0, 0.5), fake("s", "A", 0, np.nan, 1)]
    rows[1]["predictions"]["p"] = [0.1, 0.9]
    assert summary_table(json.loads(json.dumps(rows)))[0][2].startswith("0.500")


# --- Command line --------------------------------------------------------------------------------


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(cli.build_app(), arguments)


def test_command(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", X=BAGS.X, bag=BAGS.bag_index, y_bag=BAGS.y, y_inst=TRUTH)
    options = ("--models", "MILR, SIL", "--repeats", "1", "--folds", "2")
    out = str(tmp_path / "out")
    result = invoke("benchmark", "mine", *options, "-o", out, "--data", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "4 folds in" in result.output
    assert (tmp_path / "out" / "results.md").is_file()
    again = invoke("benchmark", "mine", *options, "-o", out, "--seed", "1", "--data", str(tmp_path))
    assert again.exit_code == 2
    assert "another configuration" in again.output + again.stderr


def test_command_with_unknown_names(tmp_path: Path) -> None:
    for arguments in (("nothing",), ("musk1", "--models", "Nothing")):
        result = invoke("benchmark", *arguments, "-o", str(tmp_path), "--data", str(tmp_path))
        assert result.exit_code == 2
        assert "othing" in result.output + result.stderr


def test_datasets_command() -> None:
    listing = invoke("datasets").output
    for name in ("musk2", "birds_hja", "SICAPv2"):
        assert name in listing
    about = invoke("datasets", "musk2").output
    assert "CC BY 4.0" in about and "fetch_musk2" in about
    assert invoke("datasets", "musk3").exit_code == 2


class Own(ClassifierMixin, BaseEstimator):
    """A model of a user: every bag is as likely as not."""

    def fit(self, X: Any, y: Any = None) -> Own:
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.full((len(X), 2), 0.5)


def test_names_and_estimators_may_stand_in_one_list(tmp_path: Path) -> None:
    bags, _ = make_bags(24, overlap=0.02, random_state=0)
    rows = run({"toy": bags}, ["MILR", Own()], repeats=1, folds=2, output=tmp_path / "out")
    assert sorted({row["model"] for row in rows}) == ["MILR", "Own"]


@pytest.mark.parametrize(
    ("models", "kind", "message"),
    [
        (["MILR", "MILR"], ValueError, "two models are called 'MILR'"),
        ([Own(), Own()], ValueError, "two models are called 'Own'"),
        ([Own], TypeError, "an object of the class"),
        ([3], TypeError, "a name or an estimator with fit, got 3"),
        ("MILR", TypeError, r"pass \['MILR'\]"),
    ],
    ids=["names", "classes", "a class", "a number", "text"],
)
def test_models_that_cannot_be_told_apart_or_fitted(
    models: Any, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    bags, _ = make_bags(24, random_state=0)
    with pytest.raises(kind, match=message):
        run({"toy": bags}, models, output=tmp_path / "out")


def test_a_misspelt_set_is_named_also_without_pooch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.delenv("BAGWISE_DATA", raising=False)
    with pytest.raises(ValueError, match="no data set 'musk': it is none of musk1, musk2"):
        run(["musk"])
