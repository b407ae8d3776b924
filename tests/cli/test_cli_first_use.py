"""What people meet who use the commands on tables of their own for the first time."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from command_line import good, refused

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
