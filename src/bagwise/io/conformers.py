"""Conformers of molecules and the numbers that describe each of them (RDKit)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from bagwise.core.files.reading import UnreadableFileError
from bagwise.io.requirements import require

Floats = NDArray[np.float64]

PRUNE = 0.5  # ångström: conformers that are nearer to another one than this are left out
MAX_ATOMS = 500  # heavier molecules are no small molecules, and embedding them takes for ever
SHAPES = (
    *("PMI1", "PMI2", "PMI3", "NPR1", "NPR2", "RadiusOfGyration", "Asphericity", "Eccentricity"),
    *("InertialShapeFactor", "SpherocityIndex", "PBF"),
)
PROPERTIES = {
    "MolWt": "CalcExactMolWt",
    "TPSA": "CalcTPSA",
    "HBD": "CalcNumHBD",
    "HBA": "CalcNumHBA",
    "RotatableBonds": "CalcNumRotatableBonds",
    "AromaticRings": "CalcNumAromaticRings",
    "FractionCSP3": "CalcFractionCSP3",
}


class MoleculeError(UnreadableFileError):
    """A molecule cannot be read, or has no conformers; the message says which and where."""


@dataclass(frozen=True)
class Recipe:
    """How conformers are made and described."""

    n_conformers: int | None
    descriptors: tuple[str, ...]
    seed: int


def rdkit(name: str) -> Any:
    """A module of RDKit, or an error that names the extra."""
    require("rdkit", what="reading molecules", extra="molecules")
    return require(f"rdkit.{name}", what="reading molecules", extra="molecules")


def _usrcat(mol: Any, conformer: int) -> Sequence[float]:
    return rdkit("Chem.rdMolDescriptors").GetUSRCAT(mol, confId=conformer)


def _shape(mol: Any, conformer: int) -> Sequence[float]:
    descriptors = rdkit("Chem.rdMolDescriptors")
    return [getattr(descriptors, f"Calc{name}")(mol, confId=conformer) for name in SHAPES]


def _autocorrelation(mol: Any, conformer: int) -> Sequence[float]:
    return rdkit("Chem.rdMolDescriptors").CalcAUTOCORR3D(mol, confId=conformer)


def _morse(mol: Any, conformer: int) -> Sequence[float]:
    return rdkit("Chem.rdMolDescriptors").CalcMORSE(mol, confId=conformer)


def _properties(mol: Any, conformer: int) -> Sequence[float]:
    descriptors = rdkit("Chem.rdMolDescriptors")
    values = [getattr(descriptors, call)(mol) for call in PROPERTIES.values()]
    return [*values, *descriptors.CalcCrippenDescriptors(mol)]


DESCRIPTORS: dict[str, Callable[[Any, int], Sequence[float]]] = {
    "usrcat": _usrcat,
    "shape": _shape,
    "autocorrelation": _autocorrelation,
    "morse": _morse,
    "properties": _properties,
}
NAMES = {"shape": SHAPES, "properties": (*PROPERTIES, "LogP", "MR")}


def descriptor_names(chosen: Sequence[str], width: dict[str, int]) -> list[str]:
    """Names of the features: those of their descriptors, numbered where they have none."""
    return [
        f"{kind}:{NAMES[kind][j]}" if kind in NAMES else f"{kind}[{j}]"
        for kind in chosen
        for j in range(width[kind])
    ]


def describe(mol: Any, recipe: Recipe) -> tuple[bytes, dict[str, Floats]]:
    """A molecule with its conformers (as RDKit's bytes), and (n, d) numbers of each descriptor."""
    with rdkit("rdBase").BlockLogs():
        embedded = _embedded(mol, recipe)
        numbers = [conformer.GetId() for conformer in embedded.GetConformers()]
        found = {
            kind: np.array([DESCRIPTORS[kind](embedded, i) for i in numbers], dtype=np.float64)
            for kind in recipe.descriptors
        }
    for kind, values in found.items():
        if not np.all(np.isfinite(values)):
            raise MoleculeError(
                f"its {kind} are not finite; leave the molecule out, or choose other descriptors"
            )
    return embedded.ToBinary(), found


def _embedded(mol: Any, recipe: Recipe) -> Any:
    """A molecule with hydrogens and conformers: its own, or those that ETKDG finds."""
    chem, embed = rdkit("Chem"), rdkit("Chem.rdDistGeom")
    if mol.GetNumHeavyAtoms() > MAX_ATOMS:
        raise MoleculeError(
            f"it has {mol.GetNumHeavyAtoms()} atoms, more than {MAX_ATOMS}; this reads small "
            "molecules"
        )
    if mol.GetNumHeavyAtoms() < 3:
        raise MoleculeError("it has fewer than three atoms, of which no shape can be told")
    own = [c for c in mol.GetConformers() if c.Is3D()]
    if own and recipe.n_conformers is None:
        return chem.AddHs(mol, addCoords=True)
    whole = chem.AddHs(mol)
    parameters = embed.ETKDGv3()
    # RDKit multiplies the seed by the number of a conformer: of seed 0 all would be the same.
    parameters.randomSeed, parameters.pruneRmsThresh = recipe.seed + 1, PRUNE
    for random_start in (False, True):  # the second for rings that distances alone do not close
        parameters.useRandomCoords = random_start
        found = embed.EmbedMultipleConfs(whole, recipe.n_conformers or 20, parameters)
        if len(found):
            return whole
    raise MoleculeError("no conformer was found; leave it out, or give conformers in an .sdf file")


def describe_all(
    molecules: Sequence[Any], recipe: Recipe, n_jobs: int | None, progress: bool
) -> list[tuple[bytes, dict[str, Floats]] | str]:
    """`describe` of each molecule, or why it could not be; in parallel, in their order."""
    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    found = []
    for one in parallel(delayed(_tried)(mol, recipe) for mol in molecules):
        found.append(one)
        if progress:
            print(f"\rconformers of {len(found)} of {len(molecules)} molecules",
                  end="", file=sys.stderr, flush=True)  # fmt: skip
    if progress:
        print(file=sys.stderr)
    return found


def _tried(mol: Any, recipe: Recipe) -> tuple[bytes, dict[str, Floats]] | str:
    try:
        return describe(mol, recipe)
    except MoleculeError as error:
        return str(error)
    except (RuntimeError, ValueError) as error:  # what RDKit says of atoms that it does not know
        return " ".join(f"RDKit: {error}".split())[:200]
