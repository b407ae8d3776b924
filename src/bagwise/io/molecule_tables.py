"""Files of molecules as tables: a bag of conformers for each, as commands take them."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.frame_columns import KNOWN, find
from bagwise.bags.messages import Note
from bagwise.io.columns import Columns, show_names
from bagwise.io.conformers import rdkit
from bagwise.io.molecule_files import TABLES
from bagwise.io.molecules import read_molecules
from bagwise.io.streams import Places, TableError
from bagwise.io.tables import Table

MOLECULE, CONFORMER, SCAFFOLD = "molecule", "conformer", "scaffold"  # the columns of such a table


def read_molecule_table(
    path: str | os.PathLike[str],
    columns: Columns | None = None,
    *,
    feature_names: Sequence[str] | None = None,
    skip: Sequence[str] = (),
    remembered: Columns | None = None,
) -> Table:
    """Read a file of molecules into Bags of conformers, as a table.

    Conformers and descriptors are the default ones of `read_molecules`; scaffolds are groups.
    Labels are a column, or a property of SD files; arguments are those of `read_table`.
    """
    asked = columns or Columns()
    _refuse_others(asked)
    name, header = Path(path).name, _header(os.fspath(path))
    label = None if "label" in skip else _label(header, asked, remembered or Columns(), name)
    found = read_molecules(path, y=label)
    bags = found.bags if feature_names is None else _chosen(found.bags, feature_names, name)
    notes = [Note("bags: a molecule each; instances: its conformers", f"by {name}", "bag")]
    if label is not None and asked.label is None:
        notes.append(Note(f"label column: {label!r}", "guessed from its name", "label"))
    own = Columns(bag=MOLECULE, label=label, instance_id=CONFORMER, group=SCAFFOLD)
    return Table(bags, _rows(bags, own), own, tuple(notes), Places(name, lines=False))


def _refuse_others(asked: Columns) -> None:
    """Raise for options that are about columns of other tables."""
    chosen = {
        "instance_label": asked.instance_label, "coords": asked.coords, "features": asked.features,
        "group": asked.group, "weight": asked.weight, "reliability": asked.reliability,
        "rep": asked.rep, "bag": asked.bag,
    }  # fmt: skip
    for role, value in chosen.items():
        if value:
            raise TableError(
                "files of molecules have names, labels and SMILES; conformers, their descriptors "
                f"and scaffolds are made of these, so that no other columns are named: got {value}",
                argument=role,
            )


def _header(path: str) -> list[str]:
    """Columns of a table, or properties of the first molecule of an SD file."""
    ending = Path(path).suffix.lower()
    if ending in TABLES:
        with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
            return next(csv.reader(file, delimiter=TABLES[ending]), [])
    if ending != ".sdf" or not os.path.isfile(path):
        return []
    with rdkit("rdBase").BlockLogs():
        for mol in rdkit("Chem").SDMolSupplier(path):
            return [] if mol is None else [str(name) for name in mol.GetPropNames()]
    return []


def _label(header: Sequence[str], asked: Columns, known: Columns, name: str) -> str | None:
    if asked.label is not None:
        if asked.label not in header:
            raise TableError(
                f"{name} has no column or property {asked.label!r}; it has {show_names(header)}"
            )
        return asked.label
    return known.label if known.label in header else find(header, KNOWN["label"], ())


def _chosen(bags: Bags, wanted: Sequence[str], name: str) -> Bags:
    """Bags with the features of a model, in its order."""
    at = {feature: j for j, feature in enumerate(bags.feature_names or ())}
    missing = [feature for feature in wanted if feature not in at]
    if missing:
        raise TableError(
            f"the conformers of {name} lack {len(missing)} of the {len(wanted)} features that the "
            f"model was fitted on: {show_names(missing)}; fit to molecules by the command, or "
            "predict in Python with the descriptors of the fit"
        )
    return bags.with_X(bags.X[:, [at[n] for n in wanted]], feature_names=list(wanted))


def _rows(bags: Bags, columns: Columns) -> Any:
    """One row per conformer."""
    import pandas as pd

    assert bags.groups is not None and bags.instance_ids is not None
    of_bag = {MOLECULE: bags.ids, SCAFFOLD: np.asarray(bags.groups)}
    if columns.label is not None and bags.y is not None:
        of_bag[columns.label] = np.asarray(bags.y)
    rows = {name: values[bags.bag_index] for name, values in of_bag.items()}
    back = np.argsort(bags.row_index)  # rows of the table are in the order of the file
    rows[CONFORMER] = np.asarray(bags.instance_ids)
    return pd.DataFrame({name: values[back] for name, values in rows.items()})
