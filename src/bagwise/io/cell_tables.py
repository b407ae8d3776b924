"""Files of cells as tables: bags with the columns of obs, as commands take them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.cells import representation
from bagwise.bags.messages import Note
from bagwise.io.anndata_files import AnnDataFileError, Cells, entries, read_cells
from bagwise.io.columns import Columns, guess, show_names
from bagwise.io.streams import Places, TableError
from bagwise.io.tables import Table

SPATIAL = "spatial"  # where scverse keeps coordinates
CELL = "obs_name"  # the column with the name of a cell


def read_cell_table(
    path: str | os.PathLike[str],
    columns: Columns | None = None,
    *,
    feature_names: Sequence[str] | None = None,
    skip: Sequence[str] = (),
    remembered: Columns | None = None,
) -> Table:
    """Read the cells of an AnnData file (.h5ad, Zarr, SpatialData) into Bags, as a table.

    Arguments are those of `read_table`; `columns` are those of obs, and coordinates in
    `obsm["spatial"]` are the columns `spatial[0]`, `spatial[1]`. `columns.rep` is what stands for
    the cells: an entry of obsm or layers, X by default.
    """
    asked, known = columns or Columns(), remembered or Columns()
    if asked.features:
        raise TableError(
            "features of cells are a representation as a whole, not columns; choose one",
            argument="rep",
        )
    rep = asked.rep if asked.rep is not None else known.rep
    located = SPATIAL if SPATIAL in entries(path, "obsm") else None
    cells = read_cells(path, rep=rep, located=located)
    rows, own, notes = _rows(cells, asked, located)
    name = Path(path).name
    found, guessed = guess(
        list(rows.columns), own, taken=(CELL,), skip=(*skip, "instance_id"), source=name,
        remembered=replace(known, instance_id=None, rep=None),
    )  # fmt: skip
    found = replace(found, instance_id=CELL, rep=rep)
    places = Places(name, lines=False)
    bags = _bags(cells, rows, found, feature_names, places)
    if rep is None and asked.rep is None:
        notes.append(Note("features: X, all genes", "no representation is named", "rep"))
    return Table(bags, rows, found, (*notes, *guessed), places)


def _rows(cells: Cells, asked: Columns, located: str | None) -> tuple[Any, Columns, list[Note]]:
    """One row per cell: its name, obs, and its coordinates; and which columns those are."""
    rows = cells.obs.reset_index(drop=True)
    if CELL in rows.columns:
        raise AnnDataFileError(f"obs has a column {CELL!r}, the name of cells here; rename it")
    rows.insert(0, CELL, cells.obs_names)
    if located is None:
        return rows, asked, []
    xy = np.asarray(cells.obsm[located])
    axes = tuple(f"{located}[{j}]" for j in range(xy.shape[1]))
    for axis, x in zip(axes, xy.T, strict=True):
        rows[axis] = x
    if asked.coords:
        return rows, asked, []
    said = Note(f"coordinates: {', '.join(map(repr, axes))}", "they are in obsm", "coords")
    return rows, replace(asked, coords=axes), [said]


def _bags(
    cells: Cells, rows: Any, found: Columns, feature_names: Sequence[str] | None, places: Places
) -> Bags:
    if feature_names is not None:
        cells = _with_features(cells, found.rep, feature_names, places.name)
    plain = (
        rows if found.label is None else rows.assign(**{found.label: rows[found.label].to_numpy()})
    )
    try:
        assert found.bag is not None
        return Bags.from_anndata(
            replace(cells, obs=plain.set_index(CELL)),
            found.bag,
            found.label,
            rep=found.rep,
            instance_label=found.instance_label,
            coords=found.coords or None,
            groups=found.group,
        )
    except (TypeError, ValueError) as error:
        raise places.error(error) from error


def _with_features(cells: Cells, rep: str | None, wanted: Sequence[str], name: str) -> Cells:
    """The cells with the features of a model, found by name and put in its order."""
    X, names = representation(cells, rep)
    at = {n: j for j, n in enumerate(names)}
    missing = [n for n in wanted if n not in at]
    if missing:
        raise TableError(
            f"{name} lacks {len(missing)} of the {len(wanted)} features that the model was fitted "
            f"on: {show_names(missing)}; give the same genes, or the representation of the fit",
            argument="rep",
        )
    chosen = X[:, [at[n] for n in wanted]]
    if rep is None or rep in cells.layers:
        here = {"X": chosen} if rep is None else {"layers": {rep: chosen}}
        return replace(cells, var_names=list(wanted), **here)
    import pandas as pd

    return replace(cells, obsm={rep: pd.DataFrame(np.asarray(chosen), columns=list(wanted))})
