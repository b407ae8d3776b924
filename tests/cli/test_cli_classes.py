"""Tables of more than two classes, from fit to scores; what is for two classes says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from command_line import good, refused

PLACES = {"bee": [4.0, 0.0], "cow": [0.0, 4.0], "owl": [-4.0, -4.0]}
FIT = ("--model", "vgpmil", "--set", "n_inducing=10", "--set", "learn_hyperparameters=false")


def three_classes(n_bags: int = 24, seed: int = 0) -> pd.DataFrame:
    """Bags of three in mixed order; the first instance is of the class of its bag."""
    rng = np.random.default_rng(seed)
    kinds = np.array(list(PLACES))[np.arange(n_bags) % 3]
    X = 0.4 * rng.normal(size=(n_bags, 3, 2))
    X[:, 0] += [PLACES[k] for k in kinds]
    frame = pd.DataFrame(X.reshape(-1, 2), columns=["area", "shade"])
    frame.insert(0, "bag", np.repeat([f"b{b:02d}" for b in range(n_bags)], 3))
    frame["label"] = np.repeat(kinds, 3)
    return frame.sample(frac=1, random_state=seed, ignore_index=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("classes")
    three_classes().to_csv(place / "t.csv", index=False)
    good("fit", place / "t.csv", *FIT, "-o", place / "m.bagwise")
    return place


def test_the_file_holds_what_python_fits(folder: Path) -> None:
    model = bw.load(folder / "m.bagwise")
    assert isinstance(model, bw.OneVsRestMIL) and model.classes_.tolist() == ["bee", "cow", "owl"]
    assert model.metadata_["columns"]["bag"] == "bag"
    bags = bw.Bags.from_frame(pd.read_csv(folder / "t.csv"), bag="bag")
    own = bw.OneVsRestMIL(
        bw.VGPMIL(n_inducing=10, learn_hyperparameters=False, random_state=0)
    ).fit(bags)
    np.testing.assert_allclose(model.predict_proba(bags), own.predict_proba(bags))


def test_predictions_and_scores(folder: Path) -> None:
    out = folder / "p.csv"
    good("predict", folder / "m.bagwise", folder / "t.csv", "-o", out)
    frame = pd.read_csv(out)
    own = ["bag", "n_instances", "p_bee", "p_cow", "p_owl", "predicted", "novelty_p_value"]
    assert frame.columns.tolist() == own
    np.testing.assert_allclose(frame[["p_bee", "p_cow", "p_owl"]].sum(axis=1), 1)
    truth = three_classes().groupby("bag")["label"].first()
    right = frame.set_index("bag")["predicted"].sort_index() == truth
    scores = json.loads(good("evaluate", folder / "m.bagwise", folder / "t.csv", "--json"))
    assert scores["accuracy"] == right.mean() > 0.9
    assert set(scores["roc_auc"]) == {"bee", "cow", "owl"}
    assert "accuracy" in good("evaluate", folder / "m.bagwise", folder / "t.csv")
    cells = folder / "cells.csv"
    good("predict", folder / "m.bagwise", folder / "t.csv", "--instances", "-o", cells)
    rows, own = pd.read_csv(cells), three_classes()
    assert rows["bag"].tolist() == own["bag"].tolist()
    bags = bw.Bags.from_frame(own, bag="bag")
    p = bw.load(folder / "m.bagwise").predict_instance_proba(bags)
    np.testing.assert_allclose(rows["p_cow"].to_numpy()[bags.row_index], p[:, 1])


def test_held_out_bags_are_scored(folder: Path) -> None:
    shown = json.loads(
        good("fit", folder / "t.csv", *FIT, "--valid", "0.25", "-o", folder / "v.bagwise", "--json")
    )
    assert shown["held_out"]["n"] == 6 and shown["classes"] == ["bee", "cow", "owl"]


def test_what_is_for_two_classes_says_so(folder: Path) -> None:
    model, table = folder / "m.bagwise", folder / "t.csv"
    for more in (("--alpha", "0.1"), ("--given-labels",), ("-o", folder / "t.geojson")):
        assert "column of 0 and 1" in refused("predict", model, table, *more)
    assert "thresholds are for two" in refused("predict", model, table, "--sensitivity", "0.9")
    for command in ("report", "suggest"):
        assert "OneVsRestMIL of 3 classes" in refused(command, model, table)
    out = folder / "n.bagwise"
    for more in (("--positive", "bee"), ("--sensitivity", "0.9")):
        assert "are for two classes" in refused("fit", table, *FIT, *more, "-o", out)
    frame = three_classes()
    other = folder / "other.csv"
    frame.assign(label=frame["label"].replace("cow", "cat")).to_csv(other, index=False)
    assert "among the model's classes" in refused("evaluate", model, other)
    frame.assign(label=frame.groupby("bag").ngroup() + 0.5).to_csv(other, index=False)
    assert "labels must be classes" in refused("fit", other, *FIT, "-o", out)


def test_a_model_of_several_classes_is_inspected_class_by_class(folder: Path) -> None:
    found = json.loads(good("inspect", folder / "m.bagwise", "--json"))
    assert found["classes"] == ["bee", "cow", "owl"] == list(found["of_class"])
    assert found["fitted"]["data"]["name"] == "t.csv" and "trained_bags" not in found["fitted"]
    cow = found["of_class"]["cow"]
    assert cow["positive"] == "cow" and cow["n_inducing"] == 10
    assert cow["arguments"]["inducing"].startswith("array of shape (10, ")
    shown = good("inspect", folder / "m.bagwise")
    assert shown.count("the rest") == 3 and shown.count("fitted on") == 1
