"""Files that say themselves what is in them: cells of AnnData, molecules."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

from bagwise.bags.frame_columns import KNOWN
from bagwise.io.anndata_files import is_anndata
from bagwise.io.cell_tables import read_cell_table
from bagwise.io.columns import Columns
from bagwise.io.molecule_files import LISTS, SMILES_COLUMNS, TABLES
from bagwise.io.molecule_tables import read_molecule_table
from bagwise.io.tables import Table

MOST_HEADER = 10_000  # characters of a header that may be one of molecules


def reader_of(path: str, columns: Columns) -> Callable[..., Table] | None:
    """What reads a file of cells or molecules; None for tables and folders of slides."""
    of_cells = path.lower().endswith((".h5ad", ".zarr"))
    if of_cells or (os.path.isdir(path) and is_anndata(path)):
        return read_cell_table
    return read_molecule_table if _has_molecules(path, columns) else None


def _has_molecules(path: str, columns: Columns) -> bool:
    """Whether a file holds molecules: SD files, SMILES, or a table of them without bag ids."""
    ending = Path(path).suffix.lower()
    if ending in (*LISTS, ".sdf"):
        return True
    if columns.bag is not None or ending not in TABLES or not os.path.isfile(path):
        return False
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        header = next(csv.reader([file.readline(MOST_HEADER)], delimiter=TABLES[ending]), [])
    names = {name.lower() for name in header}
    return bool(names & {*SMILES_COLUMNS}) and not names & {*KNOWN["bag"]}
