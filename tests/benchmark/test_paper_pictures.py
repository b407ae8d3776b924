"""Pictures of the papers: drawn from the rows of their tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image

from bagwise.benchmark.reproduce import figures, reproduce
from bagwise.benchmark.reproduce.data import digit_bags
from bagwise.benchmark.reproduce.figures import Curves, Map, Picture, draw, over_measures, spread
from bagwise.benchmark.reproduce.w21 import half_split_in_tens
from bagwise.models import VGPMIL

ROWS: list[dict[str, Any]] = [
    {"model": "a", "0 %": 0.2, "100 %": 0.8},
    {"model": "a", "0 %": 0.4, "100 %": None},
    {"model": "b", "0 %": 0.1},
]


def test_points_are_means_over_the_rows_of_a_setting() -> None:
    assert spread(ROWS, ("a", "0 %")) == (pytest.approx(0.3), 0.2, 0.4)
    assert spread(ROWS, ("a", "100 %")) == (0.8, 0.8, 0.8)
    assert np.isnan(spread(ROWS, ("b", "100 %"))).all()
    assert np.isnan(spread(ROWS, ("c", "0 %"))).all()


@pytest.mark.parametrize("bars", [False, True])
def test_each_series_is_seen(bars: bool, tmp_path: Path) -> None:
    """Every colour of the series is on the picture, and no other setting's."""
    series = over_measures(["a", "b"], ["0 %", "100 %"])
    draw(
        Picture("x", "words", [Curves("x", "y", (0, 100), series, bars=bars)]),
        ROWS,
        tmp_path / "x.png",
    )
    seen = colours(tmp_path / "x.png")
    wanted = [tuple(bytes.fromhex(c[1:])) for c in figures.SERIES]
    assert wanted[0] in seen and wanted[1] in seen and wanted[2] not in seen


def test_maps_are_as_bright_as_probabilities(tmp_path: Path) -> None:
    rows = [{"model": "a", "patch 0": 0.0, "patch 1": 1.0, "patch 2": 0.0, "patch 3": 0.0}]
    panel = Map("title", "a", [f"patch {i}" for i in range(4)])
    draw(Picture("x", "words", [panel]), rows, tmp_path / "x.png")
    pixels = image.imread(tmp_path / "x.png")[..., 0]
    dark = np.argwhere(pixels == 0)
    top, left = dark.min(axis=0)
    bottom, right = dark.max(axis=0)
    quarter = (bottom - top) // 4
    assert pixels[top + quarter, right - quarter] == 1  # upper right
    assert pixels[bottom - quarter, right - quarter] == 0
    assert pixels[top + quarter, left + quarter] == 0


def test_without_matplotlib_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bagwise.benchmark.reproduce.run.can_draw", lambda: False)
    done = reproduce("r08", table="6", effort="smoke", output=tmp_path, download=False)
    assert [file.suffix for file in done.files] == [".md", ".csv"]
    text = done.files[0].read_text(encoding="utf-8")
    assert "No picture" in text and ".png" not in text


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_logarithms_to_base_ten() -> None:
    model = VGPMIL(n_inducing=10, max_iter=5, learn_hyperparameters=False, bag_score="max")
    found = half_split_in_tens(digit_bags(20, 10), model, 0)
    natural = found["instance log-lik."]
    assert 10 ** found["instance log-lik. to base 10"] == pytest.approx(np.exp(natural))


def colours(path: Path) -> set[tuple[int, ...]]:
    pixels = np.round(255 * image.imread(path)[..., :3]).astype(int)
    return set(map(tuple, pixels.reshape(-1, 3).tolist()))
