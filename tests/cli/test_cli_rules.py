"""Rules about numbers of positives on the command line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from command_line import good, refused, run

FAST = ("--set", "n_inducing=8", "--set", "learn_hyperparameters=false", "--set", "kernel=null")


def cells(n_bags: int = 20, seed: int = 0) -> pd.DataFrame:
    """Bags of ten with 0 to 6 positive cells, labelled in three ways."""
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 7, n_bags)
    truth = np.arange(10) < k[:, None]
    frame = pd.DataFrame({"slide": np.repeat([f"s{b:02d}" for b in range(n_bags)], 10)})
    frame["area"] = (rng.normal(size=truth.shape) + 4 * truth).ravel()
    frame["purity"] = np.repeat(k / 10, 10)
    frame["three"] = np.repeat((k >= 3).astype(int), 10)
    frame["sure"] = np.repeat(np.where(np.arange(n_bags) % 4, 1.0, 0.9), 10)
    return frame


@pytest.fixture
def table(tmp_path: Path) -> Path:
    cells().to_csv(tmp_path / "cells.csv", index=False)
    return tmp_path / "cells.csv"


COLUMNS = ("--bag", "slide", "--features", "area")


def test_shares_from_a_table_to_a_table(table: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "m.bagwise", tmp_path / "out.csv"
    good("fit", table, *COLUMNS, "--label", "purity", "--rule", "share:0.1", *FAST, "-o", model)
    fitted = bw.load(model)
    assert fitted.rule == bw.Share(std=0.1)
    good("predict", model, table, "--bag", "slide", "-o", out)
    found = pd.read_csv(out)
    truth = cells().groupby("slide")["purity"].first().to_numpy()
    assert np.corrcoef(found["share_mean"], truth)[0, 1] > 0.9
    assert np.all(found["share_std"] > 0) and "predicted" not in found
    good("predict", model, table, "--bag", "slide", "--given-labels", "-o", out, "-f")
    cellwise = pd.read_csv(out)
    assert {"p_mean", "p_given_labels", "bag_share_mean"} <= set(cellwise)
    assert "share_mean" in run("evaluate", model, table, "--bag", "slide").stderr


def test_at_least_some_with_reliabilities(table: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.bagwise"
    good(
        "fit", table, *COLUMNS, "--label", "three", "--rule", "at-least-3",
        "--reliability", "sure", *FAST, "-o", model,
    )  # fmt: skip
    assert bw.load(model).rule == bw.AtLeast(3)
    good("evaluate", model, table, "--bag", "slide", "--label", "three")


def test_rules_of_a_linear_model(table: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "m.bagwise", tmp_path / "out.csv"
    how = ("--model", "mi-logistic", "--label", "purity", "--rule", "share:0.1")
    good("fit", table, *COLUMNS, *how, "--reliability", "sure", "-o", model)
    assert isinstance(bw.load(model), bw.MILogisticRegression)
    good("predict", model, table, "--bag", "slide", "-o", out)
    truth = cells().groupby("slide")["purity"].first().to_numpy()
    assert np.corrcoef(pd.read_csv(out)["share_mean"], truth)[0, 1] > 0.9


def test_what_is_no_rule(table: Path) -> None:
    label = ("--label", "purity")
    assert "at-least-2" in refused("fit", table, *label, "--rule", "most")
    assert "no threshold" not in refused("fit", table, *label, "--rule", "share", "--cost", "3")
    assert "--valid" in refused("fit", table, *label, "--rule", "share", "--valid", "0.2")
    other = ("--rule", "share", "--model", "vgpmil")
    assert "for the models probit and mi-logistic" in refused("fit", table, *label, *other)
