"""Slide tables: a CSV with `case_id, slide_id, label`, and a file of features per slide."""

from __future__ import annotations

import csv
import os
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.bags.frame_columns import BY_NAME
from bagwise.core.files.reading import check_regular
from bagwise.core.parameters import check_choice
from bagwise.io.columns import show_names
from bagwise.io.frames import plain_values
from bagwise.io.hdf5 import read_slide_h5
from bagwise.io.slide_features import SlideFeatures, SlideFileError, slides_to_bags
from bagwise.io.slide_zarr import read_slide_zarr
from bagwise.io.streams import TableError
from bagwise.io.torch_files import read_slide_pt

READERS: dict[str, Callable[..., SlideFeatures]] = {
    ".h5": read_slide_h5,
    ".hdf5": read_slide_h5,
    ".zarr": read_slide_zarr,
    ".pt": read_slide_pt,
}
FOLDERS = ("", "h5_files", "pt_files")  # CLAM keeps its files in folders below
IMAGE_ENDINGS = (".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".bif")


def read_slide(
    path: str | os.PathLike[str],
    *,
    features_key: str | None = None,
    coords_key: str | None = None,
) -> SlideFeatures:
    """Read the patch features of one slide from a .h5, .zarr or .pt file.

    `features_key` and `coords_key` name the arrays of .h5 and .zarr files, see `read_slide_h5`.
    """
    ending = Path(path).suffix.lower()
    if ending not in READERS:
        raise SlideFileError(f"{path}: features are read from {', '.join(READERS)}, not {ending!r}")
    if ending == ".pt":
        if features_key is not None or coords_key is not None:
            raise ValueError(f"names of arrays are for .h5 and .zarr files, not for {path}")
        return read_slide_pt(path)
    return READERS[ending](path, features_key=features_key, coords_key=coords_key)


@dataclass(frozen=True)
class SlideList:
    """Slides and where their features are."""

    paths: list[Path]
    ids: NDArray[Any]
    y: NDArray[Any] | None
    groups: NDArray[Any] | None
    patients: NDArray[Any] | None = None  # the bag of each slide, where it has several


def read_slide_table(
    table: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    case: str | None = BY_NAME,
    slide: str = "slide_id",
    label: str | None = "label",
    missing: str = "error",
    coords: str = "grid",
    bag: str | None = None,
    features_key: str | None = None,
    coords_key: str | None = None,
) -> Bags:
    """Read the slides that a CSV lists as bags, with patients as groups.

    The features of slide `s` are in `folder` (or in its `h5_files`, `pt_files`) as `s.h5`,
    `s.hdf5`, `s.zarr` or `s.pt`. `bags.ids` are the slides, `bags.groups` the cases, so
    `bags.split` and scikit-learn's `GroupKFold` keep the slides of a patient together. `case` is
    the column `case_id` where the table has it; None means that slides do not belong together.
    Labels that are numbers become numbers; `label=None` reads unlabelled slides.
    `missing="drop"` leaves out slides without a file, with a warning. `coords`: see
    `slides_to_bags`. `bag="case_id"` makes one bag of all slides that have the same value in that
    column; their labels must agree. `features_key`, `coords_key`: see `read_slide`.
    """
    check_choice("missing", missing, ("error", "drop"))
    if case is BY_NAME:
        case = "case_id" if "case_id" in slide_columns(table) else None
    listed = list_slides(
        table, folder, case=case, slide=slide, label=label, missing=missing, bag=bag
    )
    keys = {"features_key": features_key, "coords_key": coords_key}
    slides = [read_slide(path, **keys) for path in listed.paths]
    return listed_bags(slides, listed, coords)


def listed_bags(slides: list[SlideFeatures], listed: SlideList, coords: str = "grid") -> Bags:
    """Bags of slides that were read, one for each or for each patient."""
    if listed.patients is None:
        return slides_to_bags(slides, listed.y, ids=listed.ids, groups=listed.groups, coords=coords)
    try:
        return slides_to_bags(
            slides, listed.y, groups=listed.groups, coords=coords, patients=listed.patients
        )
    except ValueError as error:
        raise TableError(str(error)) from error


def list_slides(
    table: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    case: str | None,
    slide: str,
    label: str | None,
    missing: str = "error",
    bag: str | None = None,
) -> SlideList:
    """The slides of a CSV with their files; arguments are those of `read_slide_table`."""
    _check_folder(Path(folder))
    columns = {"case": case, "slide": slide, "label": label, "bag": bag}
    rows = _read_rows(Path(table), {role: c for role, c in columns.items() if c is not None})
    paths = [_find(Path(folder), row[slide]) for row in rows]
    absent = [row[slide] for row, path in zip(rows, paths, strict=True) if path is None]
    if absent:
        what = (
            f"{len(absent)} of {len(rows)} slides have no file in {folder}, e.g. {absent[0]!r:.80}"
        )
        if missing == "error" or len(absent) == len(rows):
            raise FileNotFoundError(
                f"{what}; extract their features, or leave them out (missing='drop' in Python)"
            )
        warnings.warn(f"{what}; they are left out", UserWarning, stacklevel=3)
    kept = [(row, path) for row, path in zip(rows, paths, strict=True) if path is not None]

    def values(name: str) -> NDArray[Any]:
        return np.array([row[name] for row, _ in kept])

    return SlideList(
        [path for _, path in kept],
        values(slide),
        None if label is None else plain_values(values(label), floats=True),
        None if case is None else values(case),
        None if bag is None else values(bag),
    )


def list_folder(folder: str | os.PathLike[str]) -> SlideList:
    """All slides of a folder (or of its `h5_files`, `pt_files`) by name, without labels."""
    root = Path(folder)
    _check_folder(root)
    found: dict[str, Path] = {}
    for below in FOLDERS:
        for ending in READERS:
            for path in (root / below).glob(f"*{ending}"):
                found.setdefault(path.stem, path)
    if not found:
        raise FileNotFoundError(f"{folder} has no {', '.join(READERS)} files; one per slide")
    ids = sorted(found)
    return SlideList([found[i] for i in ids], np.array(ids), None, None)


def slide_columns(table: str | os.PathLike[str]) -> list[str]:
    """The column names of a CSV of slides."""
    return _read_csv(Path(table))[0]


def _read_csv(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Column names and rows."""
    check_regular(path, SlideFileError)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            return list(reader.fieldnames or []), list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise SlideFileError(f"{path} is no CSV in UTF-8 ({error}); save it as one") from error


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder; give the folder of the slides' features")


def _read_rows(path: Path, columns: dict[str, str]) -> list[dict[str, str]]:
    names, rows = _read_csv(path)
    for role, column in columns.items():
        if column not in names:
            raise TableError(
                f"{path} has no column {column!r}; it has {show_names(names)}; name the right one",
                argument=role,
            )
    for number, row in enumerate(rows, start=2):
        if None in row:  # where csv puts what is beyond the last column
            raise TableError(f"{path}, line {number}: more fields than column names; correct it")
        empty = [c for c in columns.values() if not (row[c] or "").strip()]
        if empty:
            raise TableError(f"{path}, line {number}: column {empty[0]!r} is empty; fill it in")
    if not rows:
        raise TableError(f"{path} lists no slide")
    counts = Counter(row[columns["slide"]] for row in rows)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise TableError(
            f"{path} lists slide {twice[0]!r:.80} more than once; keep one row for each"
        )
    return rows


def _find(folder: Path, slide: str) -> Path | None:
    """The file of a slide; its name must not lead out of the folder."""
    if Path(slide).name != slide:
        raise TableError(f"slide {slide!r:.80} is a path, not a name; give its name only")
    of_image = Path(slide).suffix.lower() in IMAGE_ENDINGS  # some lists carry it: s1.svs
    stems = {slide, Path(slide).stem if of_image else slide}
    for below in FOLDERS:
        for stem in sorted(stems, key=len, reverse=True):
            for ending in READERS:
                path = folder / below / f"{stem}{ending}"
                # Not Path.is_file, which raises where the system takes no name so long.
                if os.path.isfile(path) or (ending == ".zarr" and os.path.isdir(path)):
                    return path
    return None
