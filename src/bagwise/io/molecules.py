"""Molecules as bags of conformers: read, described, grouped by scaffold, drawn."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.files.atomic import atomic_file
from bagwise.core.parameters import check_choice, check_integer
from bagwise.io.conformers import (
    DESCRIPTORS,
    MoleculeError,
    Recipe,
    describe_all,
    descriptor_names,
    rdkit,
)
from bagwise.io.frames import plain_values
from bagwise.io.molecule_files import Entry, read_entries

ACYCLIC = "acyclic"


@dataclass(frozen=True)
class Molecules:
    """Molecules with their conformers.

    Attributes
    ----------
    bags : one bag per molecule, whose instances are its conformers; `bags.groups` are scaffolds.
    mols : RDKit's molecules with hydrogens and conformers, in the order of the bags.
    """

    bags: Bags
    mols: list[Any]

    def best_conformers(self, model: Any) -> NDArray[np.int64]:
        """(B,) the most probable conformer of each molecule, counted from 0."""
        p = np.asarray(model.predict_instance_proba(self.bags))[:, 1]
        starts, ends = self.bags.offsets[:-1], self.bags.offsets[1:]
        return np.array([int(np.argmax(p[a:b])) for a, b in zip(starts, ends, strict=True)])

    def draw(
        self,
        molecule: Any,
        model: Any,
        path: str | os.PathLike[str],
        *,
        size: tuple[int, int] = (500, 400),
        overwrite: bool = False,
    ) -> None:
        """Draw the most probable conformer of a molecule, by its id, as .png or .svg."""
        ids = self.bags.ids.tolist()
        if molecule not in ids:
            raise ValueError(f"no molecule {molecule!r}; ids are such as {ids[:3]}")
        b = ids.index(molecule)
        one = self.bags[b]
        p = np.asarray(model.predict_instance_proba(one))[:, 1]
        best = int(np.argmax(p))
        legend = f"{molecule}: conformer {best + 1} of {len(p)}, p = {p[best]:.2f}"
        draw_molecule(
            self.mols[b], path, conformer=best, legend=legend, size=size, overwrite=overwrite
        )


def read_molecules(
    source: Any,
    y: Any = None,
    *,
    smiles: str | None = None,
    name: str | None = None,
    n_conformers: int | None = None,
    descriptors: str | Sequence[str] = ("usrcat", "properties"),
    groups: str | None = "scaffold",
    positive: Any = None,
    on_error: str = "raise",
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Molecules:
    """Read molecules as bags, of which each instance is a conformer.

    A molecule acts if one of the shapes that it takes does; which one it is, nobody measured.

    Parameters
    ----------
    source : a list of SMILES; a .csv or .tsv file with a column of them; a .smi file (a SMILES and
        a name in each line); or an .sdf file, in which molecules that follow each other under one
        name are conformers of one.
    y : labels, one per molecule, or the name of the column (or the property of an .sdf file) that
        has them.
    smiles, name : columns of a table; by default those that are called so. Molecules without a name
        are called by their SMILES.
    n_conformers : how many conformers ETKDGv3 looks for; those that are nearly the same are left
        out. None is 20, and for .sdf files with three dimensions the conformers in them.
    descriptors : what describes a conformer, one or several of "usrcat" (60 numbers: distances of
        all atoms, and of hydrophobic, aromatic, donor and acceptor atoms, from four points; shape
        and chemistry in one, the same however the molecule lies), "shape" (11: moments of inertia
        and what follows from them), "autocorrelation" (80), "morse" (224), and "properties" (9 of
        the molecule as a whole, such as its weight, polar surface and logP).
    groups : "scaffold" puts Bemis-Murcko scaffolds into `bags.groups`, so that `bags.split` and
        `GroupKFold` test on scaffolds that the model has not seen; molecules without rings are one
        group. None for no groups.
    on_error : "raise", or "skip" to leave out molecules that cannot be read or embedded, with a
        warning that says how many.
    random_state : seed of the conformers, which do not depend on `n_jobs`.
    progress : say on standard error how many molecules are done.

    >>> drugs = read_molecules(["CCO", "c1ccccc1CCN"], y=[0, 1], n_conformers=5)
    >>> drugs.bags.ids.tolist(), drugs.bags.n_features, drugs.bags.groups.tolist()
    (['CCO', 'c1ccccc1CCN'], 69, ['acyclic', 'c1ccccc1'])
    """
    check_choice("on_error", on_error, ("raise", "skip"))
    check_choice("groups", groups, ("scaffold", None))
    if n_conformers is not None:
        check_integer("n_conformers", n_conformers, at_least=1)
    check_integer("random_state", random_state, at_least=0)
    rdkit("Chem")
    recipe = Recipe(n_conformers, _chosen(descriptors), random_state)
    entries = read_entries(source, smiles, name)
    if not entries:
        raise MoleculeError(f"{_called(source)} has no molecule")
    labels = _labels(entries, y)
    described = describe_all(
        [e.mol for e in entries if e.mol is not None], recipe, n_jobs, progress
    )
    kept, found = _kept(entries, described, on_error)
    _check_names([entries[i] for i in kept])
    return _molecules(
        [entries[i] for i in kept], found, recipe,
        None if labels is None else labels[kept], positive, groups,
    )  # fmt: skip


def _called(source: Any) -> str:
    return os.fspath(source) if isinstance(source, str | os.PathLike) else "the list"


def _chosen(descriptors: str | Sequence[str]) -> tuple[str, ...]:
    chosen = (descriptors,) if isinstance(descriptors, str) else tuple(descriptors)
    for kind in chosen:
        check_choice("descriptors", kind, tuple(DESCRIPTORS))
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"descriptors must be one or several different ones; got {descriptors!r}")
    return chosen


def _labels(entries: list[Entry], y: Any) -> NDArray[Any] | None:
    """One label per molecule, given or in a column."""
    if y is None:
        return None
    if not isinstance(y, str):
        if len(y) != len(entries):
            raise ValueError(f"y needs one label per molecule: {len(entries)}; got {len(y)}")
        return np.asarray(y)
    for entry in entries:
        if entry.mol is not None and not entry.values.get(y, "").strip():
            raise MoleculeError(
                f"{entry.place} has no label {y!r}; fill it in, or drop the molecule (there is "
                f"{', '.join(list(entry.values)[:8]) or 'nothing'})"
            )
    return plain_values(np.array([e.values.get(y, "").strip() for e in entries]), floats=True)


def _kept(entries: list[Entry], described: list[Any], on_error: str) -> tuple[list[int], list[Any]]:
    """Which molecules have conformers, and what was found of them."""
    results, kept, found, faults = iter(described), [], [], []
    for i, entry in enumerate(entries):
        result = entry.fault if entry.mol is None else next(results)
        if isinstance(result, str):
            faults.append(f"{entry.place}: {result}")
        else:
            kept.append(i)
            found.append(result)
    if faults and (on_error == "raise" or not kept):
        raise MoleculeError(
            f"{faults[0]} ({len(faults)} of {len(entries)} molecules); correct it, or drop it; in "
            "Python on_error='skip' leaves such molecules out"
        )
    if faults:
        warnings.warn(
            f"{len(faults)} of {len(entries)} molecules are left out, e.g. {faults[0]}",
            UserWarning,
            stacklevel=3,
        )
    return kept, found


def _check_names(entries: list[Entry]) -> None:
    name, count = Counter(e.name for e in entries).most_common(1)[0]
    if count > 1:
        places = [e.place for e in entries if e.name == name][:2]
        raise MoleculeError(
            f"{' and '.join(places)} are both called {name!r:.60}; names tell molecules apart: "
            "drop one, or give them other names"
        )


def _molecules(
    entries: list[Entry],
    found: list[Any],
    recipe: Recipe,
    labels: Any,
    positive: Any,
    groups: str | None,
) -> Molecules:
    chem = rdkit("Chem")
    mols = [chem.Mol(binary) for binary, _ in found]
    width = {kind: values.shape[1] for kind, values in found[0][1].items()}
    X = [np.hstack([parts[kind] for kind in recipe.descriptors]) for _, parts in found]
    names = np.array([entry.name for entry in entries])
    numbers = [np.array([f"{n}/{i}" for i in range(len(x))]) for n, x in zip(names, X, strict=True)]
    bags = Bags.from_list(
        X,
        labels,
        ids=names,
        groups=np.array([scaffold(e.mol) for e in entries]) if groups == "scaffold" else None,
        instance_ids=numbers,
        feature_names=descriptor_names(recipe.descriptors, width),
        positive=positive,
    )
    return Molecules(bags, mols)


def scaffold(mol: Any) -> str:
    """The Bemis-Murcko scaffold of a molecule as SMILES: its rings and what links them."""
    return str(rdkit("Chem.Scaffolds.MurckoScaffold").MurckoScaffoldSmiles(mol=mol)) or ACYCLIC


def draw_molecule(
    mol: Any,
    path: str | os.PathLike[str],
    *,
    conformer: int = 0,
    legend: str = "",
    size: tuple[int, int] = (500, 400),
    overwrite: bool = False,
) -> None:
    """Draw one conformer of a molecule, seen along its flattest direction, as .png or .svg.

    `mol` is a molecule of RDKit with conformers, as in `Molecules.mols`, `conformer` counts from 0.
    Hydrogens are left out.
    """
    ending = os.path.splitext(os.fspath(path))[1].lower()
    check_choice("the ending of the picture", ending, (".png", ".svg"))
    chem, draw = rdkit("Chem"), rdkit("Chem.Draw.rdMolDraw2D")
    conformers = list(mol.GetConformers())
    if not 0 <= conformer < len(conformers):
        raise ValueError(f"conformer must be one of 0 to {len(conformers) - 1}, got {conformer!r}")
    one = chem.Mol(mol, confId=conformers[conformer].GetId())
    one = chem.RemoveHs(one)
    rdkit("Chem.rdMolTransforms").CanonicalizeConformer(one.GetConformer())
    chem.Kekulize(one, clearAromaticFlags=True)
    canvas = (draw.MolDraw2DCairo if ending == ".png" else draw.MolDraw2DSVG)(*size)
    canvas.drawOptions().prepareMolsBeforeDrawing = False
    canvas.DrawMolecule(one, legend=legend)
    canvas.FinishDrawing()
    picture = canvas.GetDrawingText()
    with atomic_file(path, overwrite=overwrite) as file:
        file.write(picture if isinstance(picture, bytes) else picture.encode())
