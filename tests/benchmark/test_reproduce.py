"""The papers' experiments: each ends, keeps its rows, and puts published figures beside its own."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.benchmark import ConfigurationError, Problem
from bagwise.benchmark.reproduce import PAPERS, reproduce
from bagwise.benchmark.reproduce import settings as printed
from bagwise.benchmark.reproduce.curves import (
    fitted_early,
    label_histogram,
    learning_curve,
    supervision_curve,
)
from bagwise.benchmark.reproduce.data import (
    Source,
    digit_bags,
    read_problem,
    some_bags,
    training_first,
)
from bagwise.benchmark.reproduce.detection import on_voc, voc_folder
from bagwise.benchmark.reproduce.m24 import synthetic_slides
from bagwise.benchmark.reproduce.measures import cross_validated, half_split
from bagwise.benchmark.reproduce.page import lines, markdown
from bagwise.benchmark.reproduce.table import Plan, Published, Table, Trial, mean_published
from bagwise.benchmark.reproduce.w21 import HJA, MEASURES
from bagwise.cli import app as cli
from bagwise.cli.papers import show

# The papers' numbers of sweeps are no convergence.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but what a test writes: results do not depend on what is on the machine."""
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("BAGWISE_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("BAGWISE_SHARED", str(tmp_path / "none"))


def run(paper: str, folder: Path, **how: Any) -> Any:
    return reproduce(paper, effort="smoke", output=folder, download=False, **how)


# --- All of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("paper", PAPERS)
def test_a_reduced_run_of_each_paper_ends(paper: str, tmp_path: Path) -> None:
    _write_scans(tmp_path)
    calls: list[Any] = []
    done = run(paper, tmp_path, data=tmp_path, announce=lambda *call: calls.append(call))
    assert calls and calls[-1][0] == calls[-1][1] == len(calls)
    page, sheet, *pictures = done.files
    assert [p.suffix for p in pictures] == [".png"] * len(pictures)
    assert all(f"({p.name})" in page.read_text(encoding="utf-8") for p in pictures)
    text = page.read_text(encoding="utf-8")
    assert f"bagwise reproduce {paper}" in text
    found = list(csv.DictReader(sheet.read_text(encoding="utf-8").splitlines()))
    assert {row["figures"] for row in found} == {"published", "measured"}
    for table in done.tables:
        assert table.trials or table.missing, table.name
        names = {trial.key[2] for trial in table.trials}
        measured = {line[2] for t, part in _pairs(done) if t is table for line in part}
        assert names <= measured
        # A column that no setting fills has a wrong name.
        own = [
            line for t, part in _pairs(done) if t is table for line in part if "measured" in line
        ]
        for column in zip(*(line[3:] for line in own), strict=True):
            assert any(cell != "—" for cell in column), table.name
    again: list[Any] = []
    run(paper, tmp_path, data=tmp_path, announce=lambda *call: again.append(call))
    assert not again


def _pairs(done: Any) -> list[Any]:
    return list(zip(done.tables, done.lines, strict=True))


def _write_scans(folder: Path) -> None:
    """Small sets of the forms that docs/papers.md describes."""
    rng = np.random.default_rng(0)
    for name in ("rsna_cnn8_0", "cq500_cnn8_0"):
        y = np.tile([0, 1], 20)
        truth = (np.arange(160) % 4 == 0) & (np.repeat(y, 4) == 1)
        X = rng.normal(size=(160, 8)) + 3.0 * truth[:, None]
        bag = np.repeat(np.arange(40), 4)
        np.savez(folder / f"{name}.npz", X=X, bag=bag, y_bag=y, y_inst=truth.astype(int))


def test_a_wrong_table_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="r08 has no table '9'; there are: 2, 3, 4, 6"):
        run("r08", tmp_path, table="9")
    with pytest.raises(ValueError, match="paper must be one of"):
        run("x99", tmp_path)


def test_tables_with_one_experiment_share_it(tmp_path: Path) -> None:
    done = run("r08", tmp_path, table="3")
    assert [table.name for table in done.tables] == ["2 and 3"]


def test_results_of_other_data_are_refused(tmp_path: Path) -> None:
    _write_scans(tmp_path)
    run("c24", tmp_path, table="8", data=tmp_path)
    with np.load(tmp_path / "rsna_cnn8_0.npz") as file:
        data = dict(file)
    np.savez(tmp_path / "rsna_cnn8_0.npz", **(data | {"X": data["X"] + 1.0}))
    with pytest.raises(ConfigurationError, match="set 8 RSNA"):
        run("c24", tmp_path, table="8", data=tmp_path)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    done = run("w21", tmp_path, table="2")
    assert "newsgroups_hockey.npz" in done.tables[0].missing
    assert all(line[1] == "published" for line in done.lines[0])
    assert "Not run: newsgroups_hockey.npz" in done.files[0].read_text(encoding="utf-8")


def test_a_run_that_is_stopped_leaves_a_page_and_goes_on(tmp_path: Path) -> None:
    def stop(done: int, total: int, key: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("r08", tmp_path, table="6", announce=stop)
    page = tmp_path / "r08-smoke" / "r08-6.md"
    text = page.read_text(encoding="utf-8")
    assert "stopped when 1 of 2 rows were there" in text
    assert "| — | — | — | — |" in text
    run("r08", tmp_path, table="6")
    assert "stopped" not in page.read_text(encoding="utf-8")


# --- Command -------------------------------------------------------------------------------------


def test_the_command_prints_both_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run("r08", tmp_path, table="4")
    show(done, json=False)
    printed_out = capsys.readouterr()
    assert "paper: RVM" in printed_out.out
    assert "here: RVM, fixed point" in printed_out.out
    for line in done.lines[0]:
        assert all(cell in printed_out.out for cell in line[3:] if cell != "—")
    assert "not public" in printed_out.err
    show(done, json=True)
    assert '"paper": "r08"' in capsys.readouterr().out


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.build_app(), ["reproduce", "x99", "-o", str(tmp_path)])
    assert result.exit_code == 2
    result = CliRunner().invoke(cli.build_app(), ["reproduce", "--help"])
    assert "--quick" in result.output


# --- Pages ---------------------------------------------------------------------------------------


def test_lines_are_means_over_repeats_beside_what_was_published() -> None:
    problem = Problem("toy", bw.Bags.from_list([[[0.0]], [[1.0]]], y=[0, 1]))
    rows = [
        {"set": "1", "target": "toy", "model": "ours", "repeat": r, "fold": 0, "AUC": v}
        for r, v in enumerate((0.8, 0.9))
    ]
    trials = [Trial("1", problem, "ours", None, lambda *a: {}, r) for r in range(2)]
    table = Table("1", "T", ("AUC", "AP"), trials, [Published("toy", "theirs", {"AUC": 0.7})])
    found = lines(table, rows)
    assert found == [
        ("toy", "published", "theirs", "0.7", "—"),
        ("toy", "measured", "ours", "0.850 ± 0.050", "—"),
    ]
    text = markdown("Paper", "bagwise reproduce x", "today", [(table, found)])
    assert "| toy | measured | ours | 0.850 ± 0.050 | — |" in text


def test_the_mean_over_species_is_the_papers() -> None:
    rows = [
        Published(f"hja {k}", str(c), dict(zip(MEASURES, HJA[k][c], strict=True)))
        for k in range(13)
        for c in (0, 1)
    ]
    means = [row.figures[MEASURES[0]] for row in mean_published(rows, "mean")]
    assert means == [0.778, 0.769]


# --- Data ----------------------------------------------------------------------------------------


def test_given_files_keep_rows_and_labels_together(tmp_path: Path) -> None:
    bag, y = np.array([2, 0, 1, 0]), np.array([0, 1, 1])
    X = np.arange(8.0).reshape(4, 2)
    np.savez(tmp_path / "a.npz", X=X, bag=bag, y_bag=y, y_inst=[0, 1, 1, 0], train=[0, 1, 1])
    problem = read_problem(tmp_path / "a.npz")
    assert problem.n_train == 2
    assert problem.bags.X[:, 0].tolist() == [4.0, 0.0, 2.0, 6.0]
    assert problem.truth is not None
    assert problem.truth.tolist() == [1, 0, 1, 0]
    np.savez(tmp_path / "b.npz", X=X)
    with pytest.raises(ValueError, match="has no bag, y_bag"):
        read_problem(tmp_path / "b.npz")


def test_some_bags_keep_their_truth() -> None:
    problem = synthetic_slides(30, 3, 4, seed=0)
    some = some_bags(problem, 12)
    assert problem.truth is not None
    assert some.truth is not None
    assert len(some.bags) == 12
    assert abs(float(np.mean(some.bags.y)) - 2 / 3) < 0.1
    rows = {tuple(x): t for x, t in zip(problem.bags.X, problem.truth, strict=True)}
    assert [rows[tuple(x)] for x in some.bags.X] == some.truth.tolist()
    first = training_first(problem, np.arange(30) >= 20)
    assert first.n_train == 10
    assert first.bags.X[0].tolist() == problem.bags.X[20 * 9].tolist()


def test_folders_are_looked_through_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("asked", "shared/data"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("BAGWISE_SHARED", str(tmp_path / "shared"))
    source = Source(str(tmp_path / "asked"), download=False)
    assert [Path(home).name for home in source.homes()] == ["asked", "none", "data"]
    assert source.arrays("musk9") is None
    assert source.fetched(bw.datasets.fetch_fox) is None


def test_voc_folders_are_found_and_read(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    root = tmp_path / "VOCdevkit" / "VOC2007"
    for part in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (root / part).mkdir(parents=True)
    names = [f"{i:06}" for i in range(1, 9)]
    for split in ("trainval", "test"):
        (root / f"ImageSets/Main/{split}.txt").write_text("\n".join(names) + "\n")
    rng = np.random.default_rng(0)
    for i, name in enumerate(names):
        pixels = rng.integers(100, 120, size=(40, 60)).astype(np.uint8)
        kind, y0 = ("dog", "cat")[i % 2], 5 + i
        pixels[y0 : y0 + 16, 10:26] = np.arange(16)[None, :] * 15 if i % 2 else 250
        image.fromarray(pixels).save(root / f"JPEGImages/{name}.jpg")
        box = bw.detection.Box(kind, (10, y0, 26, y0 + 16))
        made = bw.detection.Annotation(f"{name}.jpg", 60, 40, (box,))
        bw.detection.write_voc(root / f"Annotations/{name}.xml", made)
    for home in (tmp_path, root.parent, root):
        assert voc_folder(Plan("smoke", Source(str(home)))) == root
    how: dict[str, Any] = {"folder": str(root), "limit": None, "share": 100}
    problem, model = digit_bags(4, 2), bw.VGPMIL(n_inducing=20, bag_score="max")
    found = on_voc(problem, model, 0, **how)
    assert 0 <= found["mAP"] <= 1 and 0 <= found["CorLoc"] <= 1


# --- Measures ------------------------------------------------------------------------------------


def test_half_splits_follow_the_seed_and_no_test_bag_trains() -> None:
    problem = digit_bags(40, 20)
    model = printed.v17(64).set_params(random_state=0)
    a, b, c = (half_split(problem, model, seed) for seed in (0, 0, 1))
    assert a["instance AUC"] == b["instance AUC"] != c["instance AUC"]


def test_pooled_and_mean_scores_are_of_all_folds() -> None:
    problem = digit_bags(40, 20)
    found = cross_validated(problem, printed.v17(64, standardize=True), 0, folds=4)
    assert 0.6 < found["instance AUC"] <= 1
    assert {"pooled bag AUC", "pooled AUC of [R08]", "pooled instance AP"} <= set(found)


def test_more_labels_and_more_sweeps_are_measured_on_test_bags() -> None:
    problem = digit_bags(60, 30)
    model = printed.v17(64, standardize=True)
    curve = supervision_curve(problem, model, 0, shares=(0, 100))
    assert curve["100 %"] > curve["0 %"] - 0.05
    learned = learning_curve(problem, model, 0, sweeps=(1, 20), folds=2)
    assert list(learned) == ["sweep 1", "sweep 20"]
    shares = label_histogram(problem, model, 0, bins=5)
    assert sum(shares.values()) == pytest.approx(100)


# --- The model so far ----------------------------------------------------------------------------


class Looker:
    """Keeps what callbacks are shown."""

    def __init__(self, bags: bw.Bags) -> None:
        self.bags = bags
        self.seen: list[tuple[str, int, np.ndarray, np.ndarray]] = []

    def __call__(self, *step: Any) -> None:
        pass

    def look(self, model: Any, stage: str, step: int) -> None:
        p = model.predict_proba(self.bags)[:, 1], model.predict_instance_proba(self.bags)[:, 1]
        self.seen.append((stage, step, *p))


@pytest.mark.parametrize("make", [printed.v17, printed.v17_large_margin])
def test_callbacks_see_a_model_that_predicts(make: Any) -> None:
    bags, _ = bw.datasets.make_digit_bags(30, random_state=0)
    looker = Looker(bags)
    model = make(64, standardize=True).set_params(max_iter=4, random_state=0)
    model.fit(bags.with_labels(np.where(bags.y == 1, "yes", "no")), callbacks=[looker])
    stages = dict.fromkeys(stage for stage, _, _, _ in looker.seen)
    assert [step for _, step, _, _ in looker.seen] == [1, 2, 3, 4] * len(stages)
    # A fit with several starts keeps the best one.
    ends = looker.seen[3::4]
    p, q = model.predict_proba(bags)[:, 1], model.predict_instance_proba(bags)[:, 1]
    assert any(np.array_equal(p, e[2]) and np.array_equal(q, e[3]) for e in ends)
    assert not np.array_equal(looker.seen[0][3], looker.seen[3][3])


def test_early_stopping_halts_ten_sweeps_after_the_best() -> None:
    bags, _ = bw.datasets.make_digit_bags(60, random_state=0)
    train, validation = bags[:40], bags[40:]
    model = printed.v17(64, standardize=True).set_params(random_state=0, max_iter=60)
    looker = Looker(validation)
    model.fit(train, callbacks=[looker])
    aucs = [bw.metrics.roc_auc(validation, p) for _, _, p, _ in looker.seen]
    best = [int(np.argmax(aucs[: k + 1])) for k in range(len(aucs))]
    halt = next(k for k in range(len(aucs)) if k - best[k] >= 10)
    assert halt < 59
    found = fitted_early(model, train, validation)
    np.testing.assert_array_equal(found.predict_proba(validation)[:, 1], looker.seen[halt][2])


def test_an_error_of_a_look_ends_the_fit_and_leaves_the_model() -> None:
    bags, _ = bw.datasets.make_digit_bags(30, random_state=0)

    class Stop(Looker):
        def look(self, model: Any, stage: str, step: int) -> None:
            raise KeyError("enough")

    model = printed.v17(64)
    with pytest.raises(KeyError, match="enough"):
        model.fit(bags, callbacks=[Stop(bags)])
    assert not hasattr(model, "classes_")


def test_measures_describe_what_rows_depend_on() -> None:
    measure = partial(cross_validated, folds=3)
    trial = Trial("1", digit_bags(40, 20), "ours", printed.v17(64), measure)
    about = trial.describe()
    assert about["folds"] == "3"
    assert about["H"] == "100.0"
    assert about["measure"] == "cross_validated"
