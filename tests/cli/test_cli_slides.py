"""Folders of slides from the command line: names of arrays, patients as bags."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command_line import good, refused, run

h5py = pytest.importorskip("h5py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 slides of 12 patients, whose arrays have names of their own."""
    root = tmp_path_factory.mktemp("slides")
    (root / "f").mkdir()
    rng, rows = np.random.default_rng(0), ["case_id,slide_id,label"]
    corners = np.array([[i, j] for i in range(3) for j in range(3)])
    for i in range(24):
        label = i % 4 // 2
        rows.append(f"p{i // 2},s{i},{label}")
        with h5py.File(root / "f" / f"s{i}.h5", "w") as file:
            X = rng.normal(size=(9, 3)) + 4 * label * (np.arange(9) < 2)[:, None]
            file["level0/embeddings"], file["xy"] = X, corners * 256
    (root / "slides.csv").write_text("\n".join(rows) + "\n")
    return root


KEYS = ("--features-key", "level0/embeddings", "--coords-key", "xy")


def test_other_names_of_arrays(folder: Path, tmp_path: Path) -> None:
    slides = ("--slides", folder / "slides.csv")
    line = refused("fit", folder / "f", *slides, "-o", tmp_path / "m.bagwise")
    assert "there is level0, xy" in line and "name the dataset with --features-key" in line
    good("fit", folder / "f", *slides, *KEYS, "-o", tmp_path / "m.bagwise")


def test_slides_for_a_model_of_patients_are_said(folder: Path, tmp_path: Path) -> None:
    model, slides = tmp_path / "m.bagwise", ("--slides", folder / "slides.csv")
    good("fit", folder / "f", *slides, *KEYS, "--bag", "case_id", "-o", model)
    said = run("predict", model, folder / "f", *slides, *KEYS, "-o", tmp_path / "p.csv").stderr
    assert "every slide is a bag" not in said
    assert len(pd.read_csv(tmp_path / "p.csv")) == 12
    said = run("predict", model, folder / "f", *KEYS, "-o", tmp_path / "q.csv").stderr
    assert "the column 'case_id'; here every slide is a bag (there is no table; choose with" in said
    assert "--slides" in said and len(pd.read_csv(tmp_path / "q.csv")) == 24
