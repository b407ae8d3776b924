"""What commands do with labels and patients: predict --given-labels, intervals, notes."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from command_line import good, refused, run, small_frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """cells.csv with patients of two slides each, and a model of the first 8 slides."""
    path = tmp_path_factory.mktemp("labels")
    frame = small_frame().drop(columns=["x", "y", "comment"])
    frame["patient"] = "p" + (frame["slide"].str[1:].astype(int) % 8).astype(str)
    frame.to_csv(path / "cells.csv", index=False)
    early = frame["slide"] < "s08"
    frame[early].to_csv(path / "train.csv", index=False)
    frame[~early].to_csv(path / "test.csv", index=False)
    good(
        "fit", path / "train.csv", "--bag", "slide", "--label", "diagnosis",
        "--positive", "cancer", "--group", "patient", "-o", path / "m.bagwise",
    )  # fmt: skip
    return path


def test_given_labels_is_a_column_of_the_instance_table(folder: Path, tmp_path: Path) -> None:
    model, out = folder / "m.bagwise", tmp_path / "out.csv"
    good("predict", model, folder / "test.csv", "--given-labels", "-o", out)
    table = pd.read_csv(out)
    rows = pd.read_csv(folder / "test.csv")
    assert table["slide"].tolist() == rows["slide"].tolist()
    cancer = table["diagnosis"] == "cancer"
    assert not table.loc[~cancer, ["p_given_labels", "p_given_labels_std"]].any(axis=None)
    assert (table[cancer].groupby("slide")["p_given_labels"].sum() >= 1 - 1e-9).all()
    bags = bw.Bags.from_frame(
        rows.assign(diagnosis=cancer.astype(int)), bag="slide", label="diagnosis",
        features=["area", "shade"],
    )  # fmt: skip
    p, std = bw.load(model).instance_posterior(bags, return_std=True)
    found = table.iloc[bags.row_index]
    np.testing.assert_allclose(found["p_given_labels"], p[:, 1], atol=1e-12)
    np.testing.assert_allclose(found["p_given_labels_std"], std, atol=1e-12)


def test_known_instance_labels_come_back(folder: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(folder / "test.csv")
    rows["seen"] = np.nan
    first = rows.index[rows["diagnosis"] == "cancer"][0]
    rows.loc[first, "seen"] = 1
    rows.to_csv(tmp_path / "some.csv", index=False)
    asked = ("predict", folder / "m.bagwise", tmp_path / "some.csv", "--given-labels")
    good(*asked, "--instance-label", "seen", "-o", tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv").loc[first, "p_given_labels"] == 1
    rows.loc[rows.index[rows["diagnosis"] == "healthy"][0], "seen"] = 1
    rows.to_csv(tmp_path / "some.csv", index=False)
    message = refused(*asked, "--instance-label", "seen", "-o", "-")
    assert "a negative bag has no positive instance, but line " in message


def test_given_labels_needs_labels_and_a_table(folder: Path, tmp_path: Path) -> None:
    model = folder / "m.bagwise"
    pd.read_csv(folder / "test.csv").drop(columns="diagnosis").to_csv(tmp_path / "n.csv")
    message = refused("predict", model, tmp_path / "n.csv", "--given-labels", "-o", "-")
    assert "--given-labels needs labels: name their column with --label" in message
    tiles = ("--given-labels", "-o", tmp_path / "t.geojson")
    assert "this writes a table" in refused("predict", model, folder / "test.csv", *tiles)
    named = ("--label", "diagnosis", "-o", "-")
    assert "for --given-labels only" in refused("predict", model, folder / "test.csv", *named)


def test_evaluate_counts_patients_and_says_who_was_seen(folder: Path) -> None:
    model, test = folder / "m.bagwise", folder / "test.csv"
    said = run("evaluate", model, test).stderr
    assert "8 of these 8 bags are of groups (patients) of which the model was trained on" in said
    assert "have ids that the model was trained on" not in said
    shown = json.loads(good("evaluate", model, test, "--json"))
    assert shown["bags_trained_on"] == 0
    assert shown["bags_of_patients_trained_on"] == 8
    low, high = shown["intervals"]["roc_auc"]
    assert high - low > 0.2
    # Training bags themselves are named once, as such.
    trained = json.loads(good("evaluate", model, folder / "train.csv", "--json"))
    assert trained["bags_trained_on"] == 8
    assert trained["bags_of_patients_trained_on"] == 0


def test_the_report_counts_patients_too(folder: Path, tmp_path: Path) -> None:
    good("report", folder / "m.bagwise", folder / "cells.csv", "-o", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "ranges are over 8 groups" in page
    assert "8 of these 16 bags are of groups (patients)" in page
    assert "1.000 to 1.000" not in page
