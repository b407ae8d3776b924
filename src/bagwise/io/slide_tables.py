"""Slide tables: a CSV with `case_id, slide_id, label`, and a file of features per slide."""

from __future__ import annotations

import csv
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.io.hdf5 import read_slide_h5
from bagwise.io.slide_features import SlideFeatures, SlideFileError, slides_to_bags
from bagwise.io.torch_files import read_slide_pt
from bagwise.parameters import check_choice

READERS = {".h5": read_slide_h5, ".hdf5": read_slide_h5, ".pt": read_slide_pt}
FOLDERS = ("", "h5_files", "pt_files")  # CLAM keeps its files in folders below


def read_slide(path: str | os.PathLike[str]) -> SlideFeatures:
    """Read the patch features of one slide from a .h5 or .pt file."""
    ending = Path(path).suffix.lower()
    if ending not in READERS:
        raise SlideFileError(f"{path}: features are read from {', '.join(READERS)}, not {ending!r}")
    return READERS[ending](path)


def read_slide_table(
    table: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    case: str = "case_id",
    slide: str = "slide_id",
    label: str | None = "label",
    missing: str = "error",
    coords: str = "grid",
) -> Bags:
    """Read the slides that a CSV lists as bags, with patients as groups.

    The features of slide `s` are in `folder` (or in its `h5_files`, `pt_files`) as `s.h5`,
    `s.hdf5` or `s.pt`. `bags.ids` are the slides, `bags.groups` the cases, so `bags.split` and
    scikit-learn's `GroupKFold` keep the slides of a patient together. Labels that are whole
    numbers become integers; `label=None` reads unlabelled slides. `missing="drop"` leaves out
    slides without a file, with a warning. `coords`: see `slides_to_bags`.
    """
    check_choice("missing", missing, ("error", "drop"))
    rows = _read_rows(Path(table), [c for c in (case, slide, label) if c is not None], slide)
    paths = [_find(Path(folder), row[slide]) for row in rows]
    absent = [row[slide] for row, path in zip(rows, paths, strict=True) if path is None]
    if absent:
        what = f"{len(absent)} of {len(rows)} slides have no file in {folder}, e.g. {absent[0]!r}"
        if missing == "error" or len(absent) == len(rows):
            raise FileNotFoundError(
                f"{what}; extract their features, or leave them out with missing='drop'"
            )
        warnings.warn(f"{what}; they are left out", UserWarning, stacklevel=2)
    kept = [(row, path) for row, path in zip(rows, paths, strict=True) if path is not None]
    return slides_to_bags(
        [read_slide(path) for _, path in kept],
        None if label is None else _labels([row[label] for row, _ in kept]),
        ids=np.array([row[slide] for row, _ in kept]),
        groups=np.array([row[case] for row, _ in kept]),
        coords=coords,
    )


def _read_rows(path: Path, columns: list[str], slide: str) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        lacking = [c for c in columns if c not in (reader.fieldnames or [])]
        if lacking:
            raise ValueError(
                f"{path} has no column {lacking[0]!r}; it has {list(reader.fieldnames or [])}; "
                "name the columns with case=, slide=, label="
            )
        rows = list(reader)
    for number, row in enumerate(rows, start=2):
        empty = [c for c in columns if not (row[c] or "").strip()]
        if empty:
            raise ValueError(f"{path}, line {number}: column {empty[0]!r} is empty; fill it in")
    if not rows:
        raise ValueError(f"{path} lists no slide")
    names = [row[slide] for row in rows]
    twice = sorted({n for n in names if names.count(n) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"{path} lists slide {twice[0]!r} more than once; keep one row for each")
    return rows


def _find(folder: Path, slide: str) -> Path | None:
    """The file of a slide; its name must not lead out of the folder."""
    if Path(slide).name != slide:
        raise ValueError(f"slide {slide!r} is a path, not a name; give the name of its file only")
    stems = {slide, Path(slide).stem if Path(slide).suffix in (".svs", ".tif", ".tiff") else slide}
    for below in FOLDERS:
        for stem in sorted(stems, key=len, reverse=True):
            for ending in READERS:
                path = folder / below / f"{stem}{ending}"
                if path.is_file():
                    return path
    return None


def _labels(texts: list[str]) -> NDArray[Any]:
    """Integers if all labels are whole numbers, else the text."""
    try:
        return np.array([int(t) for t in texts])
    except ValueError:
        return np.array(texts)
