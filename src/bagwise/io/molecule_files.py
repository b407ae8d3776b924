"""Molecules of SMILES, tables and SD files, each with its name and its place in the file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bagwise.core.files.reading import check_regular, one_error
from bagwise.io.columns import show_names
from bagwise.io.conformers import MoleculeError, rdkit

MAX_SMILES = 5000  # characters of one molecule
SMILES_COLUMNS = ("smiles", "canonical_smiles", "isomeric_smiles")
NAME_COLUMNS = ("name", "id", "molecule", "molecule_id", "compound_id", "chembl_id")
TABLES = {".csv": ",", ".tsv": "\t"}
LISTS = (".smi", ".smiles", ".ism")


@dataclass
class Entry:
    """One molecule of a source: `mol` is None where it cannot be read, `fault` says why."""

    name: str
    place: str
    mol: Any = None
    fault: str = ""
    values: dict[str, str] = field(default_factory=dict)


def read_entries(source: Any, smiles: str | None, name: str | None) -> list[Entry]:
    """The molecules of a list of SMILES or of a file, in their order."""
    if not isinstance(source, str | os.PathLike):
        _check_no_columns(smiles, name, "a list of SMILES")
        return [_of_smiles(s, str(s), f"molecule {i}") for i, s in enumerate(source)]
    path = Path(source)
    ending = path.suffix.lower()
    if ending not in (*TABLES, *LISTS, ".sdf"):
        raise MoleculeError(
            f"{path} ends in {ending or 'nothing'!r}; molecules are read from .csv, .tsv, .smi and "
            ".sdf files, or from a list of SMILES"
        )
    check_regular(path, MoleculeError)
    with one_error(path, MoleculeError, "it is damaged, or no text in UTF-8"):
        if ending in TABLES:
            return list(_of_table(path, TABLES[ending], smiles, name))
        _check_no_columns(smiles, name, str(path))
        return list(_of_list(path)) if ending in LISTS else _of_sdf(path)


def _check_no_columns(smiles: str | None, name: str | None, what: str) -> None:
    if smiles is not None or name is not None:
        raise ValueError(
            f"smiles= and name= name columns of tables; {what} has none: leave them out"
        )


def _of_smiles(text: Any, name: str, place: str) -> Entry:
    chem = rdkit("Chem")
    if not isinstance(text, str) or not text.strip():
        return Entry(name, place, fault=f"no SMILES, but {text!r:.40}")
    if len(text) > MAX_SMILES:
        return Entry(name, place, fault=f"a SMILES of {len(text)} characters")
    with rdkit("rdBase").BlockLogs():
        mol = chem.MolFromSmiles(text)
    fault = "" if mol is not None else f"no SMILES that RDKit can read: {text!r:.60}"
    return Entry(name, place, mol, fault)


def _of_table(path: Path, delimiter: str, smiles: str | None, name: str | None) -> Iterator[Entry]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, delimiter=delimiter)
        header = [str(c) for c in reader.fieldnames or []]
        column = _column(header, smiles, SMILES_COLUMNS, path, "SMILES", "smiles")
        names = _column(header, name, NAME_COLUMNS, path, "names", "name", needed=False)
        for row in reader:
            values = {str(k): str(v) for k, v in row.items() if k is not None and v is not None}
            text = values.get(str(column), "")
            called = values.get(names, "") if names is not None else text
            entry = _of_smiles(text, called, f"{path.name}, line {reader.line_num}")
            entry.values = values
            yield entry


def _column(
    header: list[str],
    asked: str | None,
    known: Sequence[str],
    path: Path,
    what: str,
    argument: str,
    *,
    needed: bool = True,
) -> str | None:
    if asked is not None:
        if asked not in header:
            raise MoleculeError(
                f"{path} has no column {asked!r}; its columns are {show_names(header)}"
            )
        return asked
    found = next((c for k in known for c in header if c.lower() == k), None)
    if found is None and needed:
        raise MoleculeError(
            f"{path} has no column that looks like {what}; its columns are {show_names(header)}; "
            f"name it with {argument}="
        )
    return found


def _of_list(path: Path) -> Iterator[Entry]:
    """Lines of a SMILES and, after a space or tab, a name; a header without a molecule is none."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            words = line.split(maxsplit=1)
            if not words or line.startswith("#"):
                continue
            entry = _of_smiles(words[0], words[-1].strip(), f"{path.name}, line {number}")
            if number == 1 and entry.mol is None and words[0].lower() in SMILES_COLUMNS:
                continue
            yield entry


def _of_sdf(path: Path) -> list[Entry]:
    """Molecules of an SD file; those that follow each other under one name are conformers."""
    chem = rdkit("Chem")
    _check_end(path)
    entries: list[Entry] = []
    with rdkit("rdBase").BlockLogs():
        for number, mol in enumerate(chem.SDMolSupplier(os.fspath(path), removeHs=False), start=1):
            place = f"{path.name}, molecule {number}"
            if mol is None:
                entries.append(Entry(place, place, fault="no molecule that RDKit can read"))
                continue
            own = mol.GetProp("_Name").strip() if mol.HasProp("_Name") else ""
            told = {str(k): str(v) for k, v in mol.GetPropsAsDict().items()}
            entry = Entry(own or place, place, mol, values=told)
            last = entries[-1] if entries else None
            if own and last is not None and last.name == own and last.mol is not None:
                _add_conformer(last, mol)
            else:
                entries.append(entry)
    return entries


def _check_end(path: Path) -> None:
    """Raise where a file is cut off: RDKit reads what is left of the last molecule."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1000))
        last = file.read().rstrip().rsplit(b"\n", 1)[-1]
    if last.strip() != b"$$$$":
        raise MoleculeError(
            f"{path} does not end in $$$$, as SD files do after each molecule; it is cut off, or "
            "of another kind"
        )


def _add_conformer(entry: Entry, mol: Any) -> None:
    same = [a.GetAtomicNum() for a in mol.GetAtoms()] == [
        a.GetAtomicNum() for a in entry.mol.GetAtoms()
    ]
    if not same or not mol.GetNumConformers():
        entry.fault = "its conformers have other atoms, or in another order, than the first"
        entry.mol = None
        return
    entry.mol.AddConformer(mol.GetConformer(), assignId=True)
