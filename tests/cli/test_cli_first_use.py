"""What people meet who use the commands on tables of their own for the first time."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.bags.number_text import dressed_numbers, has_decimal_commas
from bagwise.io.tables import read_table
from command_line import good, refused, run

CLASSES = ["no", "yes", "maybe"]


def table(n_bags: int, seed: int, n_classes: int = 2) -> pd.DataFrame:
    """Witnesses of class k > 0 stand out in feature k - 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_bags * 6, 3))
    kind = np.arange(n_bags) % n_classes
    for b in np.flatnonzero(kind):
        X[6 * b : 6 * b + 2, kind[b] - 1] += 5
    bag = np.repeat([f"b{b}" for b in range(n_bags)], 6)
    named = {"bag": bag, "lab": np.repeat(np.array(CLASSES)[kind], 6)}
    return pd.DataFrame({**named, **{f"f{j}": X[:, j] for j in range(3)}})


def test_an_empty_column_is_filled_in(tmp_path: Path) -> None:
    """In a CSV it has no type, and was taken for text."""
    table(20, 0).to_csv(tmp_path / "t.csv", index=False)
    table(6, 1).assign(f2=None).to_csv(tmp_path / "new.csv", index=False)
    model = tmp_path / "m.bagwise"
    common = ("--bag", "bag", "--label", "lab", "--positive", "yes")
    good("fit", tmp_path / "t.csv", *common, "--missing", "median", "-o", model)
    good("predict", model, tmp_path / "new.csv", "-o", tmp_path / "p.csv")
    assert len(pd.read_csv(tmp_path / "p.csv")) == 6


def test_an_instance_may_be_of_no_class(tmp_path: Path) -> None:
    rows = table(24, 0, n_classes=3)
    rows.to_csv(tmp_path / "t.csv", index=False)
    good("fit", tmp_path / "t.csv", "--bag", "bag", "--label", "lab", "-o", tmp_path / "m.bagwise")
    out = tmp_path / "i.csv"
    good("predict", tmp_path / "m.bagwise", tmp_path / "t.csv", "--instances", "-o", out)
    found = pd.read_csv(out)
    likely = found[[f"p_{c}" for c in CLASSES]].max(axis=1) >= 0.5
    assert likely.any() and not likely.all()
    np.testing.assert_array_equal(found["predicted"].notna(), likely)


def test_shares_without_the_rule_name_it(tmp_path: Path) -> None:
    rows = table(20, 0)
    rows["lab"] = np.repeat(np.linspace(0, 1, 20), 6)
    rows.to_csv(tmp_path / "t.csv", index=False)
    words = refused("fit", tmp_path / "t.csv", "--bag", "bag", "--label", "lab")
    assert "--rule share" in words


def test_a_label_that_was_left_in_has_a_remedy() -> None:
    rows = table(20, 0).assign(lab=np.repeat(np.arange(20) % 2, 6))
    model = bw.ProbitVGPMIL(n_inducing=10, random_state=0)
    model.fit(bw.Bags.from_frame(rows, bag="bag", label="lab"))
    with pytest.raises(ValueError, match=r"(?s)lab.*features=list\(model.feature_names_in_\)"):
        model.predict_proba(
            bw.Bags.from_frame(rows, bag="bag", label=None, features=["lab", "f0", "f1", "f2"])
        )


@pytest.mark.parametrize("shift", [1e3, 1e6, 1e9])
def test_features_far_away_give_numbers_without_warnings_of_numpy(shift: float) -> None:
    rows = table(20, 0)
    named = bw.Bags.from_frame(rows, bag="bag", label="lab", positive="yes")
    bags = bw.Bags.from_arrays(named.X, named.bag_index, named.y)
    model = bw.ProbitVGPMIL(n_inducing=10, random_state=0).fit(bags)
    far = bags.with_X(bags.X + shift * np.array([1.0, -1.0, 0.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p, std = model.predict_proba(far, return_std=True)
    assert np.all(np.isfinite(p)) and np.all(np.isfinite(std))


# --- Numbers that are text, ids, decimal commas --------------------------------------------------


FIT = ("--bag", "bag", "--label", "lab", "--positive", "yes")


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda v: f"{1000 * (v + 9):,.2f}", "thousands separators"),
        (lambda v: f"{1000 * (v + 9):,.0f}".replace(",", " "), "thousands separators"),
        (lambda v: f"{v:.2f} mm", "units"),
        (lambda v: f"{v:.0f}%", "units"),
    ],
)
def test_numbers_with_units_or_separators_are_no_text(
    tmp_path: Path, write: Callable[[float], str], what: str
) -> None:
    """Such a column was left out with a note."""
    path, model = tmp_path / "t.csv", tmp_path / "m.bagwise"
    rows = table(20, 0)
    rows["size"] = rows["f0"].map(write)
    rows.to_csv(path, index=False)
    line = refused("fit", path, *FIT, "-o", model)
    assert f"column 'size' has numbers with {what}, such as '{rows['size'][0]}'" in line
    assert "leave the column out with '!size' (--features)" in line
    good("fit", path, *FIT, "--features", "!size", "-o", model)
    assert [*bw.load(model).feature_names_in_] == ["f0", "f1", "f2"]


def test_columns_of_text_and_codes_are_left_out_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = table(20, 0)
    rows["site"] = np.where(np.arange(len(rows)) % 2, "3 left", "right")
    rows["well"] = [f"{i % 8}{'abcdefgh'[i % 7]}" for i in range(len(rows))]
    rows.to_csv(path, index=False)
    said = run("fit", path, *FIT, "-o", tmp_path / "m.bagwise").stderr
    assert "left out, not numeric: 'site', 'well'" in said


def test_a_table_of_pandas_says_what_is_wrong_with_its_numbers() -> None:
    rows = table(4, 0)
    rows["size"] = rows["f0"].map("{:.2f} mm".format)
    with pytest.raises(ValueError, match=r"'size'.*it has units, such as '.* mm': write plain"):
        bw.Bags.from_frame(rows, bag="bag", label="lab")


def test_all_but_some_columns(tmp_path: Path) -> None:
    path, model = tmp_path / "t.csv", tmp_path / "m.bagwise"
    table(20, 0).to_csv(path, index=False)
    good("fit", path, *FIT, "--features", "f*", "--features", "!f1", "-o", model)
    assert [*bw.load(model).feature_names_in_] == ["f0", "f2"]
    assert "no column of t.csv matches the features 'g*'" in refused(
        "fit", path, *FIT, "--features", "!g*", "-o", tmp_path / "n.bagwise"
    )


def test_a_column_whose_name_ends_in_id_is_the_bag(tmp_path: Path) -> None:
    path, model = tmp_path / "t.csv", tmp_path / "m.bagwise"
    rows = table(20, 0).rename(columns={"bag": "order_id"})
    rows["sku"] = np.random.default_rng(0).integers(1000, 9999, len(rows))
    rows["item_code"] = np.random.default_rng(1).permutation(len(rows)) * 37 + 5000
    rows.to_csv(path, index=False)
    said = run("fit", path, *FIT[2:], "-o", model).stderr
    assert "bag column: 'order_id' (guessed from its name; choose with --bag)" in said
    assert "left out, row numbers or ids by name: 'sku'" in said
    assert "features that may be ids: 'item_code'" in said
    rows["order_id"] = np.arange(len(rows)) * 7
    rows.to_csv(path, index=False)
    line = refused("fit", path, *FIT[2:], "-o", tmp_path / "n.bagwise")
    assert "'order_id' was taken for bag ids by its name, but every row has another" in line
    rows.assign(shop_id=1).to_csv(path, index=False)
    line = refused("fit", path, *FIT[2:], "-o", tmp_path / "n.bagwise")
    assert "'order_id', 'shop_id' may be it; name it (--bag)" in line


def test_decimal_commas_take_one_more_run(tmp_path: Path) -> None:
    path, model = tmp_path / "t.csv", tmp_path / "m.bagwise"
    rows = table(20, 0).assign(x=np.arange(120) / 2, y=np.arange(120) / 4)
    rows.to_csv(path, index=False, sep=";", decimal=",")
    line = refused("fit", path, *FIT, "-o", model)
    assert "delimited by semicolon, with decimal commas: pass ';' and ','" in line
    assert line.endswith("(--delimiter --decimal)")
    how = ("--delimiter", ";", "--decimal", ",")
    good("fit", path, *FIT, *how, "-o", model)
    good(
        "predict", model, path, *how, "--coords", "x", "y", "--instances", "-o", tmp_path / "p.csv"
    )
    rows.to_csv(tmp_path / "points.csv", index=False)
    good("predict", model, tmp_path / "points.csv", "--instances", "-o", tmp_path / "q.csv")
    mine, points = (pd.read_csv(tmp_path / name) for name in ("p.csv", "q.csv"))
    np.testing.assert_array_equal(mine["p_mean"], points["p_mean"])
    assert "other than the delimiter" in refused(
        "fit", path, *FIT, "--delimiter", ";", "--decimal", ";", "-o", tmp_path / "n.bagwise"
    )
    rows.assign(f0="1.234,5").to_csv(path, index=False, sep=";", decimal=",")
    assert "write them without thousands separators" in refused(
        "fit", path, *FIT, *how, "-o", tmp_path / "n.bagwise"
    )


def test_shares_with_decimal_commas(tmp_path: Path) -> None:
    text = tmp_path / "t.csv"
    text.write_text("bag;label;f\na;0,25;1,5\na;0,25;2\nb;1;-3e-1\n")
    found = read_table(text, delimiter=";", decimal=",").bags
    assert found.y.tolist() == [0.25, 1.0] and found.X[:, 0].tolist() == [1.5, 2, -0.3]
    text.write_text("bag;label;f\na;left, low;1,5\nb;right;2\n")
    assert read_table(text, delimiter=";", decimal=",").bags.y.tolist() == ["left, low", "right"]


# --- What commands say of models ----------------------------------------------------------------


def test_several_classes_are_told_as_two_are(tmp_path: Path) -> None:
    path, model, out = tmp_path / "t.csv", tmp_path / "m.bagwise", tmp_path / "p.csv"
    table(24, 0, n_classes=3).to_csv(path, index=False)
    good("fit", path, "--bag", "bag", "--label", "lab", "-o", model)
    said = run("evaluate", model, path).stderr
    assert "note: 24 of these 24 bags have ids that the model was trained on" in said
    assert '"bags_trained_on": 24' in good("evaluate", model, path, "--json")
    said = run("predict", model, path, "-o", out).stderr
    assert "is small for bags unlike those of the fit (24 bags or groups), and never below" in said
    assert pd.read_csv(out)["novelty_p_value"].between(1 / 25, 1).all()
    good("predict", model, path, "--instances", "--force", "-o", out)
    found = pd.read_csv(out)
    assert {"std_no", "std_yes", "novelty_p_value", "bag_novelty_p_value"} <= {*found.columns}
    assert found["std_yes"].between(0, 0.5).all() and found["std_yes"].max() > 0


def test_models_of_shares_name_the_command(tmp_path: Path) -> None:
    path, model = tmp_path / "t.csv", tmp_path / "m.bagwise"
    table(20, 0).assign(lab=np.repeat(np.linspace(0, 1, 20), 6)).to_csv(path, index=False)
    good("fit", path, "--bag", "bag", "--label", "lab", "--rule", "share", "-o", model)
    for command in ("evaluate", "report"):
        line = refused(command, model, path)
        assert f"`bagwise predict {model} {path}` writes share_mean" in line
        assert "predict_share" not in line


def test_constant_features_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    table(20, 0).assign(f0=1, f1=2.5, f2=0).to_csv(path, index=False)
    said = run("fit", path, *FIT, "-o", tmp_path / "m.bagwise").stderr
    assert "warning: all 3 features have one value in all instances" in said


def test_remedies_near_chance_are_options_and_not_so_already(tmp_path: Path) -> None:
    rows = table(60, 0)
    rows[["f0", "f1", "f2"]] = np.random.default_rng(3).normal(size=(len(rows), 3))
    path, model = tmp_path / "t.csv", tmp_path / "m.bagwise"
    rows.to_csv(path, index=False)
    asked = ("--set", "n_inducing=10", "--model", "vgpmil", "--set", "mean=0")
    said = run("fit", path, *FIT, *asked, "-o", model).stderr
    (line,) = [each for each in said.splitlines() if "near chance" in each]
    assert "--set mean=learn" in line and "--set n_inducing=20" in line
    assert "--model mirvm" in line and "MIRVM" not in line
    assert "learn_hyperparameters" not in line


def test_a_table_of_places_alone_says_what_its_columns_were_taken_for(tmp_path: Path) -> None:
    frame = table(8, 0).rename(columns={"f0": "x", "f1": "y", "f2": "z"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    said = refused("fit", tmp_path / "t.csv", "--label", "lab", "--positive", "yes")
    assert "'x', 'y', 'z' have other meanings" in said and "--features" in said


@pytest.mark.parametrize(
    "cells",
    [
        [f"{100 + i}A" for i in range(20)],
        [f"{i:04d}P" for i in range(20)],
        [f"{i % 3 + 16}S" for i in range(20)],
        ["20x", "40x"] * 10,
        [f"{i + 4}th" for i in range(20)],
        [f"{i + 1} Jan" for i in range(20)],
        [f"555 {100 + i}" for i in range(20)],
    ],
    ids=["codes", "padded", "names", "magnification", "ordinals", "dates", "telephones"],
)
def test_names_that_begin_with_numbers_are_text(cells: list[str]) -> None:
    """They stopped a fit as numbers with units."""
    assert dressed_numbers(cells) is None and not has_decimal_commas(cells)


def test_money_is_no_text() -> None:
    for cells in (
        ["$215", "$3"],
        ["1.977,49 €", "554,35 €"],
        ["€1234.50", "€3"],
        ["-3.5 °C", "2 °C"],
    ):
        assert dressed_numbers(cells).what == "units"


def test_thousands_are_no_decimals(tmp_path: Path) -> None:
    """Told to take the comma for the decimal sign, people got prices divided by a thousand."""
    rows = table(20, 0)
    rows["price"] = [f"{1000 + 37 * i:,}" for i in range(len(rows))]
    rows.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    assert "thousands separators" in refused("fit", tmp_path / "t.tsv", *FIT)
    said = refused("fit", tmp_path / "t.tsv", *FIT, "--decimal", ",")
    assert "decimal points in the columns 'f0', 'f1', 'f2'" in said


def test_a_comma_between_columns_is_not_advised_for_decimals(tmp_path: Path) -> None:
    rows = table(20, 0)
    rows["price"] = rows["f0"].map(lambda v: f"{v:.2f}".replace(".", ","))
    rows.to_csv(tmp_path / "t.csv", index=False)
    said = refused("fit", tmp_path / "t.csv", *FIT)
    assert "leave columns out ('!price') (--features)" in said and "--decimal" not in said


def test_ids_that_differ_in_case_or_spaces_are_told(tmp_path: Path) -> None:
    rows = table(20, 0)
    rows.loc[0, "bag"], rows.loc[1, "bag"] = " b0", "B0"
    rows.to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(UserWarning, match=r"' b0', 'B0', 'b0' are bags of their own"):
        read_table(tmp_path / "t.csv")


def test_titles_and_empty_columns_of_spreadsheets(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("Our cells,,,\nbag,lab,f0,\nb0,yes,1,\n")
    assert "delete empty columns, and lines above the names such as a title" in refused("fit", path)


def test_columns_are_named_not_given() -> None:
    frame = table(6, 0)
    with pytest.raises(TypeError, match="bag must be the name of one column, got a list; join"):
        bw.Bags.from_frame(frame, bag=["bag", "lab"], label="lab")
    with pytest.raises(TypeError, match="label must be the name of one column, got a Series; put"):
        bw.Bags.from_frame(frame, bag="bag", label=frame["lab"])
