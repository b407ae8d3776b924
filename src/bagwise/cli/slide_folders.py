"""Folders of slide features as tables: pixels in their rows, cells of each slide's grid in bags."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.messages import Note
from bagwise.io.columns import Columns
from bagwise.io.frames import require_io
from bagwise.io.slide_features import SlideFeatures, SlideFileError
from bagwise.io.slide_tables import (
    SlideList,
    list_folder,
    list_slides,
    listed_bags,
    read_slide,
    slide_columns,
)
from bagwise.io.streams import Places, TableError
from bagwise.io.tables import Table, TileImage
from bagwise.io.torchmil import is_torchmil, read_torchmil

SLIDE = "slide_id"


@dataclass(frozen=True)
class Arrays:
    """What the arrays of slide files are called, and how wide a pixel is in micrometres."""

    features_key: str | None = None
    coords_key: str | None = None
    mpp: float | None = None

    def named(self) -> str:
        """The options that were given."""
        given = [name for name, value in vars(self).items() if value is not None]
        return " and ".join(f"--{name.replace('_', '-')}" for name in given)


NO_ARRAYS = Arrays()


def read_slide_folder(
    folder: str,
    slides: str | None,
    columns: Columns,
    arrays: Arrays = NO_ARRAYS,
    remembered: Columns | None = None,
) -> Table:
    """The bags of a folder with, or without, the CSV of its slides; or of a torchmil data set.

    Columns of the CSV that are not named are those `remembered` of another one, where it has them.
    """
    require_io()
    if slides is None and is_torchmil(folder):
        if arrays != NO_ARRAYS:
            raise ValueError(f"{arrays.named()} are for files of slides, not torchmil data sets")
        return _torchmil_table(folder, columns)
    listed, found = _listed(folder, slides, _recalled(columns, slides, remembered or Columns()))
    keys = {"features_key": arrays.features_key, "coords_key": arrays.coords_key}
    read = [_read(path, keys) for path in listed.paths]
    if arrays.mpp is not None:
        read = [slide.in_pixels(arrays.mpp) for slide in read]
    if listed.patients is not None:  # rows of a table in the order of the rows of its bags
        order = _by_patient(listed.patients)
        read, listed = [read[i] for i in order], _taken(listed, order)
    bags = listed_bags(read, listed)
    table = _table(folder, bags, read, listed, found)
    fitted_to = (remembered or columns).bag
    if slides is None and fitted_to not in (None, SLIDE):
        told = f"the model's bags are those of the column {fitted_to!r}; here every slide is a bag"
        table = replace(table, notes=(*table.notes, Note(told, "there is no table", "slides")))
    return table


def _read(path: Any, keys: dict[str, str | None]) -> SlideFeatures:
    """A slide; errors name the options that stand for arguments."""
    try:
        return read_slide(path, **keys)
    except SlideFileError as error:
        said = re.sub(r"\b(features|coords)_key\b", r"--\1-key", str(error))
        raise SlideFileError(said) from error


def _recalled(columns: Columns, slides: str | None, old: Columns) -> Columns:
    there = [] if slides is None else slide_columns(slides)
    for role in ("bag", "label", "group"):
        if getattr(columns, role) is None and getattr(old, role) in there:
            known: dict[str, Any] = {role: getattr(old, role)}
            columns = replace(columns, **known)
    return columns


def _listed(folder: str, slides: str | None, columns: Columns) -> tuple[SlideList, Columns]:
    """Slides and their files, and what the columns of the table are called."""
    bag, label, case = columns.bag or SLIDE, columns.label or "label", columns.group
    if slides is None:
        return list_folder(folder), Columns(bag=bag)
    there = slide_columns(slides)
    slide, patients = bag, None
    if bag != SLIDE and SLIDE in there and bag in there:
        slide, patients = SLIDE, bag
    if case is None and "case_id" in there and patients is None:
        case = "case_id"
    listed = list_slides(slides, folder, case=case, slide=slide, label=label, bag=patients)
    return listed, Columns(bag=bag, label=label, group=case)


def _by_patient(patients: Any) -> list[int]:
    place = {name: i for i, name in enumerate(dict.fromkeys(patients.tolist()))}
    return np.argsort([place[p] for p in patients.tolist()], kind="stable").tolist()


def _taken(listed: SlideList, order: list[int]) -> SlideList:
    def of(values: Any) -> Any:
        return None if values is None else values[order]

    paths = [listed.paths[i] for i in order]
    return SlideList(paths, of(listed.ids), of(listed.y), of(listed.groups), of(listed.patients))


def _table(
    folder: str, bags: Bags, read: list[SlideFeatures], listed: SlideList, columns: Columns
) -> Table:
    import pandas as pd

    sizes = [len(slide.features) for slide in read]
    ends = np.cumsum(sizes)
    own = np.repeat(listed.ids, sizes)
    tile = np.arange(ends[-1]) - np.repeat(ends - sizes, sizes)
    bag = str(columns.bag)
    rows: dict[str, Any] = {bag: bags.ids[bags.bag_index]}
    if listed.patients is not None:
        rows[SLIDE] = own
    rows["instance_id"] = tile
    if bags.y is not None:
        rows[str(columns.label)] = bags.y[bags.bag_index]
    if bags.groups is not None:
        rows[str(columns.group)] = bags.groups[bags.bag_index]
    pixels = None
    if bags.coords is not None:
        pixels = np.concatenate([np.asarray(s.coords) for s in read])
        rows |= {"x": pixels[:, 0], "y": pixels[:, 1]}
    found = Columns(
        bag=bag,
        label=None if bags.y is None else columns.label,
        group=None if bags.groups is None else columns.group,
        instance_id="instance_id" if listed.patients is None else None,
        coords=() if bags.coords is None else ("x", "y"),
    )
    images = tuple(
        TileImage(str(name), slice(int(end - n), int(end)), s.patch_size_level0, s.unit)
        for name, s, n, end in zip(listed.ids, read, sizes, ends, strict=True)
    )
    places = Places(os.path.basename(os.path.normpath(folder)), lines=False)
    return Table(bags, pd.DataFrame(rows), found, (), places, pixels, images)


def _torchmil_table(folder: str, columns: Columns) -> Table:
    """The data set of torchmil in a folder; its columns have the names of our own tables."""
    import pandas as pd

    asked = [c for c in (columns.bag, columns.label, columns.group, columns.instance_label) if c]
    if asked or columns.coords:
        raise TableError(
            f"{folder} is a data set of torchmil, whose folders say what is what; it has no column "
            f"{(*asked, *columns.coords)[0]!r}; leave the names out"
        )
    bags = read_torchmil(folder)
    table = bags.with_X(np.zeros((bags.n_instances, 1)), ["nothing"]).to_frame()
    rows = pd.DataFrame(table.drop(columns="nothing"))
    axes = tuple(c for c in rows.columns if c.startswith("coord_"))
    found = Columns(
        bag="bag_id",
        label=None if bags.y is None else "label",
        instance_label=None if bags.instance_labels is None else "instance_label",
        coords=axes,
    )
    places = Places(os.path.basename(os.path.normpath(folder)), lines=False)
    return Table(bags, rows, found, (), places)
