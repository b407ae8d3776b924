"""Blocks of pages that take files and names for granted run, and no page is left out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from command_line import good, small_frame

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(python|sh)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {  # pages whose blocks other tests run
    "README.md": "test_readme.py",
    "docs/images.md": "test_images_guide.py",
    "docs/works_with.md": "test_works_with.py",
    **dict.fromkeys(
        [
            "docs/tutorial.md", "docs/is_it_mil.md", "docs/uncertainty.md", "docs/guide/cells.md",
            "docs/guide/molecules.md", "docs/guide/scans.md", "docs/guide/text.md",
            "docs/guide/audio.md",
        ],
        "test_guides.py",
    ),
}  # fmt: skip
NOT_RUN = {
    "docs/papers.md": "experiments of papers take minutes to days; tests/benchmark has small ones",
    "docs/results.md": "the benchmark takes hours; tests/benchmark has a small one",
    "CONTRIBUTING.md": "targets of make, which run the tests themselves",
}
LINES_NOT_RUN = {
    "bagwise label": "serves until Ctrl-C; tests/browser/test_label_page.py uses the page",
    "--labels": "needs what people said on that page; tests/cli/test_label_command.py",
}
BLOCKS_NOT_RUN = {"tcp://scheduler": "a cluster: tests/equivalence/test_distributed.py"}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and code of each block, padded so that line numbers are those of the page."""
    text = page.read_text(encoding="utf-8")
    return [(m[1], "\n" * text.count("\n", 0, m.start(2)) + m[2]) for m in BLOCK.finditer(text)]


def commands(code: str) -> list[list[str]]:
    """Arguments of the calls of bagwise, in lines that end in a backslash too."""
    lines = code.replace("\\\n", " ").splitlines()
    calls = [line for line in lines if line.startswith("bagwise ")]
    run = [line for line in calls if not any(words in line for words in LINES_NOT_RUN)]
    return [shlex.split(line, comments=True)[1:] for line in run]


def run(page: str, names: dict[str, Any]) -> None:
    for language, code in blocks(ROOT / page):
        if any(words in code for words in BLOCKS_NOT_RUN):
            continue
        if language == "python":
            exec(compile(code, page, "exec"), names)
        else:
            for call in commands(code):
                good(*call)


# --- What the pages take for granted --------------------------------------------------------------


def tables(names: dict[str, Any]) -> None:
    """Tables to fit, to test and to predict, and a model."""
    frame = small_frame(40)
    for name, seed in (("cells", 0), ("test", 1), ("new", 2)):
        small_frame(40, seed).to_csv(f"{name}.csv", index=False)
    frame["label"] = (frame["diagnosis"] == "cancer").astype(int)
    frame.drop(columns=["diagnosis", "comment"]).to_csv("train.csv", index=False)


def a_model(names: dict[str, Any]) -> None:
    tables(names)
    good("fit", "cells.csv", "--label", "diagnosis", "--positive", "cancer", "-o", "m.bagwise")


def bags(names: dict[str, Any]) -> None:
    """A fitted model, bags, and somebody to ask; train.csv has the files of the commands."""
    tables(names)
    frame = pd.read_csv("train.csv")
    for name in ("test", "new"):
        frame.to_csv(f"{name}.csv", index=False)
    every = bw.Bags.from_frame(frame, bag="slide", label="label", coords=["x", "y"])
    truth = np.where(every.y[every.bag_index] == 1, np.nan, 0.0)
    names |= {"bw": bw, "bags": every, "known": truth, "ask": lambda rows: np.nan}
    names |= {"model": bw.ProbitVGPMIL(n_inducing=20, random_state=0).fit(every)}
    names |= {"unlabelled": every.with_labels(None), "trust_in_labels": np.ones(len(every))}


def after_bags(names: dict[str, Any]) -> None:
    bags(names)
    Path("m.bagwise").unlink(missing_ok=True)


def rows_in_files(names: dict[str, Any]) -> None:
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    np.save("features.npy", X)
    Path("slides").mkdir()
    for b in range(20):
        with h5py.File(f"slides/s{b:02d}.h5", "w") as file:
            file["features"] = X[3 * b : 3 * b + 3] + 4 * (b % 2)
    names |= {"bag_ids": np.repeat(np.arange(20), 3), "labels": np.repeat(np.arange(20) % 2, 3)}


def slides(names: dict[str, Any]) -> None:
    """Slides as CLAM, STAMP and torchmil write them, a table, outlines of QuPath."""
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("shapely")
    rng = np.random.default_rng(0)
    corners = np.array([[i, j] for i in range(3) for j in range(3)])
    for folder in ("features", "stamp", "qupath"):
        Path(folder).mkdir()
    for kind in ("features", "labels", "patch_labels", "coords"):
        Path("camelyon", kind).mkdir(parents=True)
    rows = ["case_id,slide_id,label"]
    for i in range(24):
        label = i % 4 // 2  # both slides of a patient have one label
        rows.append(f"p{i // 2},s{i},{label}")
        positive = label * (np.arange(9) < 2)
        X = rng.normal(size=(9, 3)) + 4 * positive[:, None]
        with h5py.File(f"features/s{i}.h5", "w") as file:
            file["features"], file["coords"] = X, corners * 512
            file["coords"].attrs["patch_size_level0"] = 512
        with h5py.File(f"stamp/s{i}.h5", "w") as file:
            file["feats"], file["coords"] = X, corners * 128.0
            file.attrs["unit"], file.attrs["tile_size_um"] = "um", 128.0
        torchmil = {"features": X, "labels": label, "patch_labels": positive, "coords": corners}
        for kind, values in torchmil.items():
            np.save(f"camelyon/{kind}/s{i}.npy", values)
    Path("slides.csv").write_text("\n".join(rows))
    tiles = pd.DataFrame(X, columns=["x0", "x1", "x2"]).assign(bag="slide_17")
    tiles[["x", "y"]] = corners * 512
    tiles.to_csv("slide_17.csv", index=False)
    outline = '{"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [[[0, 0], '
    outline += "[512, 0], [512, 512], [0, 512], [0, 0]]]}, "
    outline += '"properties": {"objectType": "annotation", "classification": {"name": "Tumor"}}}'
    text = f'{{"type": "FeatureCollection", "features": [{outline}]}}'
    Path("qupath/s2.geojson").write_text(text)


PAGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "docs/quickstart.md": tables,
    "docs/guide/tables.md": a_model,
    "docs/guide/labelling.md": lambda names: (
        small_frame(40).replace({"cancer": "tumour"}).to_csv("cells.csv", index=False)
    ),
    "docs/decide.md": after_bags,
    "docs/models.md": bags,
    "docs/scaling.md": rows_in_files,
    "docs/guide/slides.md": slides,
}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.filterwarnings("ignore")  # of so few bags
def test_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {"__name__": "page"}
    PAGES[page](names)
    if page == "docs/decide.md":  # its commands write the file that its Python wrote
        names["model"].save = lambda path: None
    run(page, names)


def test_no_page_is_left_out() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    built = {"_build", "auto_examples", "generated"}
    with_blocks = {
        page.relative_to(ROOT).as_posix()
        for page in pages
        if not built & set(page.parts) and blocks(page)
    }
    assert with_blocks == {*PAGES, *ELSEWHERE, *NOT_RUN}
    for test in {*ELSEWHERE.values()}:
        assert (Path(__file__).parent / test).is_file()
