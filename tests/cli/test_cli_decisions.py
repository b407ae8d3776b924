"""Thresholds and sets from the command line."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from command_line import good, refused, run, small_frame

COLUMNS = ("--bag", "slide", "--label", "diagnosis", "--positive", "cancer")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cells.csv, in which some labels are known, and its model m.bagwise."""
    folder = tmp_path_factory.mktemp("fitted")
    frame = small_frame(40)
    frame["known"] = np.where(frame["area"] > 3, "1", "")
    frame.to_csv(folder / "cells.csv", index=False)
    result = run(
        "fit", folder / "cells.csv", *COLUMNS, "--instance-label", "known", "--sensitivity", "0.9",
        "-o", folder / "m.bagwise",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "calls a bag positive from a probability of" in result.stderr
    assert "for sensitivity=0.9: sensitivity" in result.stderr
    return folder


def test_the_threshold_is_in_the_model_and_in_what_is_predicted(fitted: Path) -> None:
    model = bw.load(fitted / "m.bagwise")
    assert model.operating_point_.asked == "sensitivity=0.9"
    good("predict", fitted / "m.bagwise", fitted / "cells.csv", "-o", fitted / "p.csv")
    found = pd.read_csv(fitted / "p.csv")
    called = np.where(found["p_mean"] >= model.threshold_, "cancer", "healthy")
    np.testing.assert_array_equal(found["predicted"], called)
    shown = json.loads(good("inspect", fitted / "m.bagwise", "--json"))
    assert shown["threshold"]["threshold"] == pytest.approx(model.threshold_)
    assert "sensitivity=0.9" in good("inspect", fitted / "m.bagwise")


def test_predict_may_choose_another_threshold(fitted: Path) -> None:
    out = fitted / "all.csv"
    good("predict", fitted / "m.bagwise", fitted / "cells.csv", "-o", out, "--cost", "1e12")
    assert set(pd.read_csv(out)["predicted"]) == {"cancer"}
    scores = json.loads(
        good("evaluate", fitted / "m.bagwise", fitted / "cells.csv", "--json", "--cost", "1e12")
    )
    assert scores["bags"]["recall"] == 1 and scores["bags"]["accuracy"] == 0.5
    low, high = scores["intervals"]["accuracy"]
    assert low < 0.5 < high
    assert bw.load(fitted / "m.bagwise").operating_point_.asked == "sensitivity=0.9"


def test_possible_labels_are_columns(fitted: Path) -> None:
    bags, rows = fitted / "bags.csv", fitted / "rows.parquet"
    for out, more in ((bags, ()), (rows, ("--instances",))):
        good(
            "predict", fitted / "m.bagwise", fitted / "cells.csv", "-o", out, "--alpha", "0.2",
            *more,
        )  # fmt: skip
    found = pd.read_csv(bags)
    assert set(found["possible"]) <= {"cancer", "healthy", "healthy or cancer", "neither"}
    model = bw.load(fitted / "m.bagwise")
    own = bw.Bags.from_frame(
        pd.read_csv(fitted / "cells.csv"), bag="slide", label=None, features=["area", "shade"]
    )
    sets = model.predict_set(own, 0.2)
    positive = found.set_index("slide")["possible"].str.contains("cancer")
    np.testing.assert_array_equal(positive.loc[own.ids], sets[:, 1])
    table = pd.read_parquet(rows)
    assert table["may_be_positive"].dtype == bool
    assert set(table["bag_possible"]) == set(found["possible"])
    by_answer = table.groupby("may_be_positive")["p_mean"].mean()
    assert by_answer[True] > by_answer[False] + 0.3


def test_tiles_say_what_may_be_positive(fitted: Path) -> None:
    out = fitted / "tiles"
    good(
        "predict", fitted / "m.bagwise", fitted / "cells.csv", "-o", f"{out}/", "--alpha", "0.2",
        "--coords", "x", "y", "--tile-size", "1",
    )  # fmt: skip
    tiles = json.loads((out / "s01.geojson").read_text(encoding="utf-8"))["features"]
    found = [tile["properties"]["measurements"] for tile in tiles]
    assert {tile["may_be_positive"] for tile in found} <= {0.0, 1.0}
    assert all(0 < tile["novelty_p_value"] <= 1 for tile in found)


def test_a_table_of_another_kind_is_said(fitted: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(fitted / "cells.csv").drop(columns="known")
    frame[["area", "shade"]] += 30
    frame.to_csv(tmp_path / "away.csv", index=False)
    command = ("predict", fitted / "m.bagwise", tmp_path / "away.csv", "-o", tmp_path / "p.csv")
    result = run(*command)
    assert result.exit_code == 0
    assert "warning: these 40 bags look unlike those that the model was fitted to" in result.stderr
    assert (pd.read_csv(tmp_path / "p.csv")["novelty_p_value"] < 0.05).all()


def test_what_cannot_be_chosen_does_not_lose_the_fit(tmp_path: Path) -> None:
    small_frame().to_csv(tmp_path / "t.csv", index=False)
    result = run(
        "fit", tmp_path / "t.csv", *COLUMNS, "--sensitivity", "0.99", "-o", tmp_path / "m.bagwise"
    )
    assert result.exit_code == 0
    assert "warning: no threshold was chosen" in result.stderr
    assert bw.load(tmp_path / "m.bagwise").operating_point_ is None


def test_wrong_choices_are_refused_before_the_fit(tmp_path: Path, fitted: Path) -> None:
    small_frame().to_csv(tmp_path / "t.csv", index=False)
    command = ("fit", tmp_path / "t.csv", *COLUMNS, "-o", tmp_path / "m.bagwise")
    assert "--sensitivity and --cost" in refused(*command, "--sensitivity", "0.9", "--cost", "2")
    assert "below 1" in refused(*command, "--sensitivity", "1")
    assert "cost must be" in refused(*command, "--cost", "-2")
    assert not (tmp_path / "m.bagwise").exists()
    assert "alpha" in refused(
        "predict", fitted / "m.bagwise", fitted / "cells.csv", "--alpha", "0", "-o", "-"
    )
    assert "--alpha is for one table" in refused(
        "predict", fitted / "m.bagwise", "a.parquet", "--alpha", "0.1", "--scheduler", "tcp://a:1"
    )


def test_suggestions_are_rows_of_the_table(fitted: Path) -> None:
    out = fitted / "next.csv"
    result = run("suggest", fitted / "m.bagwise", fitted / "cells.csv", "-k", "5", "-o", out)
    assert result.exit_code == 0, result.stderr
    assert "5 instances to label, best first" in result.stderr
    found = pd.read_csv(out)
    assert found["rank"].tolist() == [1, 2, 3, 4, 5]
    assert set(found["diagnosis"]) == {"cancer"} and found["known"].isna().all()
    model, frame = bw.load(fitted / "m.bagwise"), pd.read_csv(fitted / "cells.csv")
    own = bw.Bags.from_frame(
        frame.assign(y=(frame["diagnosis"] == "cancer").astype(int)),
        bag="slide", label="y", instance_label="known", features=["area", "shade"],
    )  # fmt: skip
    rows = own.row_index[model.suggest_instances(own, 5)]
    np.testing.assert_array_equal(found["slide"], frame["slide"].iloc[rows])
    np.testing.assert_array_equal(found[["x", "y"]], frame[["x", "y"]].iloc[rows])


def test_bags_are_suggested_too(fitted: Path) -> None:
    shown = good(
        "suggest", fitted / "m.bagwise", fitted / "cells.csv", "--bags", "-k", "3", "-o", "-"
    )
    slides = [line.split(",")[1] for line in shown.splitlines()[1:]]
    model, frame = bw.load(fitted / "m.bagwise"), pd.read_csv(fitted / "cells.csv")
    own = bw.Bags.from_frame(frame, bag="slide", label=None, features=["area", "shade"])
    assert slides == own.ids[model.suggest_bags(own, 3)].tolist()
    command = ("suggest", fitted / "m.bagwise", fitted / "cells.csv", "-o")
    assert "is for GeoJSON" in refused(*command, fitted / "a.geojson", "--bags")
    assert "--tile-size is for GeoJSON" in refused(*command, fitted / "a.csv", "--tile-size", "9")
