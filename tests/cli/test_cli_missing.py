"""`--missing`: medians of training bags, rows left out, or an error; predictions do the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.bags.missing import medians
from bagwise.core.files.modelfile import ModelFileError
from command_line import good, refused, run, small_frame

COMMON = (
    "--label",
    "diagnosis",
    "--positive",
    "cancer",
    "--features",
    "area",
    "--features",
    "shade",
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    frame = small_frame()
    frame.loc[5, "area"] = frame.loc[11, "shade"] = np.nan
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    return tmp_path / "gaps.csv"


def fitted(table: Path, way: str, *more: Any) -> Path:
    path = table.with_name(f"{way}.bagwise")
    good("fit", table, *COMMON, "--model", "mirvm", "--missing", way, "-o", path, *more)
    return path


@pytest.mark.parametrize("way", [(), ("--missing", "error")])
def test_missing_values_are_an_error_that_names_the_line_and_the_options(
    table: Path, way: tuple[str, ...]
) -> None:
    line = refused("fit", table, *COMMON, *way, "-o", table.with_name("m.bagwise"))
    assert "(line 7), feature 0 ('area')" in line
    assert "--missing median" in line and "--missing drop" in line


def test_medians_of_the_training_bags_are_kept_and_used(table: Path) -> None:
    path = fitted(table, "median", "--valid", "0.25")
    model, frame = bw.load(path), pd.read_csv(table)
    train = frame[~frame["slide"].isin(model.metadata_["held_out"])]
    values = train[["area", "shade"]].median()
    np.testing.assert_array_equal(model.metadata_["medians"], values)
    done = run("predict", path, table, "--instances", "-o", table.with_name("p.csv"))
    assert "missing values: 2 of 96 in 2 of 2 features were filled in" in done.stderr
    found = pd.read_csv(table.with_name("p.csv"))
    assert len(found) == len(frame)
    full = frame.fillna(values.to_dict())
    bags = bw.Bags.from_frame(full, "slide", None, features=["area", "shade"], coords=None)
    p = model.predict_instance_proba(bags)[:, 1]
    np.testing.assert_allclose(found["p_mean"].to_numpy()[bags.row_index], p, rtol=1e-12)


def test_rows_are_left_out_of_fits_and_predictions(table: Path) -> None:
    path = fitted(table, "drop")
    good("predict", path, table, "--instances", "-o", table.with_name("p.csv"))
    found, frame = pd.read_csv(table.with_name("p.csv")), pd.read_csv(table)
    kept = frame.dropna(subset=["area", "shade"])
    assert found["slide"].tolist() == kept["slide"].tolist()
    bags = bw.Bags.from_frame(kept, "slide", None, features=["area", "shade"], coords=None)
    p = bw.load(path).predict_instance_proba(bags)[:, 1]
    np.testing.assert_allclose(found["p_mean"].to_numpy()[bags.row_index], p, rtol=1e-12)


def test_a_bag_of_which_nothing_would_stay_is_named(table: Path) -> None:
    frame = pd.read_csv(table)
    frame.loc[frame["slide"] == "s03", "area"] = np.nan
    frame.to_csv(table, index=False)
    line = refused("fit", table, *COMMON, "--missing", "drop", "-o", table.with_name("m.bagwise"))
    assert "every instance of bag 's03' has a missing value" in line


def test_a_feature_without_any_value_has_no_median(table: Path) -> None:
    X = np.array([[1.0, np.nan], [2.0, np.nan]])
    bags = bw.Bags.from_arrays(X, ["s1", "s2"], feature_names=["shade", "area"])
    with pytest.raises(ValueError, match=r"feature 'area' has none; leave it out \(features=\)"):
        medians(bags)
    pd.read_csv(table).assign(area=np.nan).to_csv(table, index=False)
    output = ("-o", table.with_name("m.bagwise"))
    line = refused("fit", table, *COMMON, "--missing", "median", *output)
    assert "feature 'area' has none; leave it out (--features)" in line


def test_a_model_without_medians_says_so(table: Path) -> None:
    path = fitted(table, "drop")
    line = refused("predict", path, table, "--missing", "median", "-o", table.with_name("p.csv"))
    assert "keeps no medians" in line and "fit it again" in line
    line = refused("predict", path, table, "--missing", "error", "-o", table.with_name("p.csv"))
    assert "MIRVM takes no missing values" in line


def test_other_ways_are_refused_before_anything_is_read(table: Path) -> None:
    line = refused("fit", table.with_name("absent.csv"), "--missing", "mean")
    assert "--missing takes median, drop, error, got 'mean'" in line


def test_medians_in_files_are_checked(table: Path) -> None:
    path = fitted(table, "median")
    for wrong in (np.array([np.nan, 0.0]), ["a"]):
        model = bw.load(path)
        model.metadata_["medians"] = wrong
        model.save(path)
        with pytest.raises(ModelFileError, match="medians must be finite numbers"):
            bw.load(path)
        path = fitted(table, "median", "--force")
    model = bw.load(path)
    model.metadata_["medians"] = np.zeros(3)
    model.save(path)
    assert "keeps 3 medians" in refused("predict", path, table, "-o", table.with_name("p.csv"))
