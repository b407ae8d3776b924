"""Molecules as bags of conformers: SMILES, tables, SD files, faults, scaffolds, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.io import MoleculeError, read_molecules
from bagwise.io.conformers import DESCRIPTORS, PRUNE
from bagwise.io.molecules import scaffold

Chem = pytest.importorskip("rdkit.Chem", reason='needs RDKit: pip install "bagwise[molecules]"')

DRUGS = {
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "amine": "c1ccccc1CCN",
    "hexanol": "CCCCCCO",
}
FEW: dict[str, Any] = {"n_conformers": 6}


class FirstIsLeast:
    """A model by which conformers are the more probable, the later they come."""

    def predict_instance_proba(self, bags: bw.Bags) -> np.ndarray:
        p = np.concatenate([np.linspace(0.1, 0.9, n) for n in bags.sizes])
        return np.column_stack([1 - p, p])


def test_conformers_are_different_and_repeatable() -> None:
    one = read_molecules(list(DRUGS.values()), y=[1, 0, 0], **FEW)
    assert one.bags.ids.tolist() == list(DRUGS.values())
    assert one.bags.sizes.min() > 1, "a seed of 0 must not make one conformer six times"
    for mol, size in zip(one.mols, one.bags.sizes, strict=True):
        assert mol.GetNumConformers() == size
    from rdkit.Chem import AllChem

    heavy = Chem.RemoveHs(one.mols[2])
    assert min(AllChem.GetConformerRMSMatrix(heavy)) > PRUNE / 2
    again = read_molecules(list(DRUGS.values()), y=[1, 0, 0], n_jobs=2, **FEW)
    np.testing.assert_array_equal(one.bags.X, again.bags.X)
    other = read_molecules(list(DRUGS.values()), random_state=1, **FEW)
    assert one.bags.X.shape != other.bags.X.shape or not np.allclose(one.bags.X, other.bags.X)


def test_descriptors_do_not_depend_on_how_a_molecule_lies() -> None:
    from rdkit.Chem import rdMolTransforms

    found = read_molecules([DRUGS["aspirin"]], descriptors=tuple(DESCRIPTORS), **FEW)
    assert found.bags.n_features == 60 + 11 + 80 + 224 + 9
    mol = Chem.Mol(found.mols[0])
    turn = np.eye(4)
    turn[:2, :2], turn[:3, 3] = [[0, -1], [1, 0]], [5, -3, 2]
    for conformer in mol.GetConformers():
        rdMolTransforms.TransformConformer(conformer, turn)
    for kind in ("usrcat", "shape", "properties"):
        before = DESCRIPTORS[kind](found.mols[0], 0)
        np.testing.assert_allclose(DESCRIPTORS[kind](mol, 0), before, rtol=1e-6, atol=1e-8)


def test_tables_and_lists(tmp_path: Path) -> None:
    lines = [f"{name},{smiles},{len(name)}" for name, smiles in DRUGS.items()]
    (tmp_path / "t.csv").write_text("\n".join(["id,SMILES,active", *lines]) + "\n")
    found = read_molecules(tmp_path / "t.csv", y="active", **FEW)
    assert found.bags.ids.tolist() == list(DRUGS) and found.bags.y.tolist() == [7, 5, 7]
    (tmp_path / "t.smi").write_text("".join(f"{s}\t{n}\n" for n, s in DRUGS.items()))
    same = read_molecules(tmp_path / "t.smi", **FEW)
    np.testing.assert_array_equal(same.bags.X, found.bags.X)
    assert same.bags.ids.tolist() == list(DRUGS) and same.bags.y is None
    with pytest.raises(MoleculeError, match=r"no column 'smile'; its columns are 'id', 'SMILES'"):
        read_molecules(tmp_path / "t.csv", smiles="smile")
    with pytest.raises(MoleculeError, match=r"t.csv, line 2 has no label 'dose'"):
        read_molecules(tmp_path / "t.csv", y="dose")


def test_faults_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "t.smi"
    path.write_text("CCCO a\nC1CC b\nCCCCO c\nO d\n")
    with pytest.raises(MoleculeError, match=r"t.smi, line 2: no SMILES .*'C1CC'.*2 of 4"):
        read_molecules(path, **FEW)
    with pytest.warns(UserWarning, match=r"2 of 4 molecules are left out, e.g. t.smi, line 2"):
        kept = read_molecules(path, y=[0, 0, 1, 0], on_error="skip", **FEW)
    assert kept.bags.ids.tolist() == ["a", "c"] and kept.bags.y.tolist() == [0, 1]
    path.write_text("CCCO a\nCCCCO a\n")
    with pytest.raises(MoleculeError, match=r"line 1 and t.smi, line 2 are both called 'a'"):
        read_molecules(path, **FEW)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MoleculeError, match="no text in UTF-8"):
        read_molecules(path)
    with pytest.raises(MoleculeError, match="more than 500"):
        read_molecules(["C" * 600])
    with pytest.raises(MoleculeError, match="molecules are read from"):
        read_molecules(tmp_path / "t.mol2")
    with pytest.raises(MoleculeError, match="has no molecule"):
        read_molecules([])
    with pytest.raises(ValueError, match="one label per molecule: 1; got 2"):
        read_molecules(["CCO"], y=[0, 1])


def test_conformers_of_an_sd_file(tmp_path: Path) -> None:
    made = read_molecules(list(DRUGS.values()), **FEW)
    with Chem.SDWriter(str(tmp_path / "c.sdf")) as writer:
        for (name, mol), label in zip(zip(DRUGS, made.mols, strict=True), "101", strict=True):
            mol.SetProp("_Name", name)
            mol.SetProp("active", label)
            for conformer in mol.GetConformers():
                writer.write(mol, confId=conformer.GetId())
    found = read_molecules(tmp_path / "c.sdf", y="active")
    assert found.bags.ids.tolist() == list(DRUGS) and found.bags.y.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(found.bags.sizes, made.bags.sizes)
    np.testing.assert_allclose(found.bags.X, made.bags.X, rtol=1e-3, atol=1e-3)  # four decimals
    fewer = read_molecules(tmp_path / "c.sdf", n_conformers=1)
    assert fewer.bags.sizes.tolist() == [1, 1, 1]
    text = (tmp_path / "c.sdf").read_text()
    (tmp_path / "cut.sdf").write_text(text[: len(text) // 2])
    with pytest.raises(MoleculeError, match=r"cut.sdf does not end in \$\$\$\$"):
        read_molecules(tmp_path / "cut.sdf")
    (tmp_path / "bad.sdf").write_text(text.replace("V2000", "V9000", 1))
    with pytest.raises(MoleculeError, match=r"bad.sdf, molecule 1: no molecule"):
        read_molecules(tmp_path / "bad.sdf")


def test_scaffolds_keep_relatives_together() -> None:
    found = read_molecules([*DRUGS.values(), "Cc1ccccc1"], **FEW)
    assert found.bags.groups is not None
    assert found.bags.groups.tolist() == ["c1ccccc1", "c1ccccc1", "acyclic", "c1ccccc1"]
    assert read_molecules(["CCO"], groups=None, **FEW).bags.groups is None
    assert scaffold(Chem.MolFromSmiles("CCO")) == "acyclic"


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_most_probable_conformer_is_drawn(ending: str, tmp_path: Path) -> None:
    drugs = read_molecules([DRUGS["hexanol"]], **FEW)
    model = FirstIsLeast()
    best = int(drugs.best_conformers(model)[0])
    assert best == len(drugs.bags.X) - 1
    path = tmp_path / f"p.{ending}"
    drugs.draw(DRUGS["hexanol"], model, path)
    start = path.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if ending == "png" else b"<svg" in start
    bw.io.draw_molecule(drugs.mols[0], tmp_path / f"first.{ending}", conformer=0)
    assert (tmp_path / f"first.{ending}").read_bytes() != path.read_bytes()
    with pytest.raises(ValueError, match="no molecule 'nobody'"):
        drugs.draw("nobody", model, path)
    with pytest.raises(FileExistsError):
        drugs.draw(DRUGS["hexanol"], model, path)
    with pytest.raises(ValueError, match="conformer must be one of"):
        bw.io.draw_molecule(drugs.mols[0], path, conformer=99)
