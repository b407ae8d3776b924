"""Molecules from the command line: SMILES and SD files are bags of conformers."""

from pathlib import Path

import pandas as pd
import pytest

import bagwise as bw
from command_line import good, refused, run

pytest.importorskip("rdkit", reason='needs: pip install "bagwise[molecules]"')

ACTIVE = {
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "salicylic": "OC(=O)c1ccccc1O",
    "benzoic": "OC(=O)c1ccccc1",
    "hexanol": "CCCCCCO",
    "ester": "CCOC(=O)CCC",
    "amine": "CCCCN",
}


@pytest.fixture(scope="module")
def drugs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drugs")
    rows = {"name": [*ACTIVE], "SMILES": [*ACTIVE.values()], "binds": [1, 1, 1, 0, 0, 0]}
    pd.DataFrame(rows).to_csv(folder / "drugs.csv", index=False)
    fit = ("--label", "binds", "--set", "n_inducing=10", "-o", folder / "m.bagwise")
    said = run("fit", folder / "drugs.csv", *fit)
    assert said.exit_code == 0, said.stderr
    assert "bags: a molecule each; instances: its conformers" in said.stderr
    return folder


def test_a_table_of_smiles_is_fitted_and_predicted(drugs: Path, tmp_path: Path) -> None:
    model, out = drugs / "m.bagwise", tmp_path / "p.csv"
    (tmp_path / "new.smi").write_text("CCCCO butanol\nCC(=O)Oc1ccccc1C(=O)OC methyl\n")
    good("predict", model, tmp_path / "new.smi", "-o", out)
    found = pd.read_csv(out)
    assert found["molecule"].tolist() == ["butanol", "methyl"]
    assert found["scaffold"].tolist() == ["acyclic", "c1ccccc1"]
    good("predict", model, tmp_path / "new.smi", "--instances", "--force", "-o", out)
    rows = pd.read_csv(out)
    assert rows["conformer"].iloc[0] == "butanol/0"
    assert rows.groupby("molecule").size().to_dict() == dict(
        zip(found["molecule"], found["n_instances"], strict=True)
    )
    smiles = [["CCCCO"], ["CC(=O)Oc1ccccc1C(=O)OC"]]
    p = [bw.load(model).predict_proba(bw.io.read_molecules(s).bags)[0, 1] for s in smiles]
    assert found["p_mean"].tolist() == pytest.approx(p)


def test_an_sd_file_has_labels_in_its_properties(drugs: Path, tmp_path: Path) -> None:
    from rdkit import Chem

    path = tmp_path / "t.sdf"
    with Chem.SDWriter(str(path)) as writer:
        for i, (name, smiles) in enumerate(ACTIVE.items()):
            mol = Chem.MolFromSmiles(smiles)
            mol.SetProp("_Name", name)
            mol.SetProp("binds", str(int(i < 3)))
            writer.write(mol)
    assert '"n": 6' in good("evaluate", drugs / "m.bagwise", path, "--json")
    assert "no column or property 'label'; it has 'binds'" in refused(
        "evaluate", drugs / "m.bagwise", path, "--label", "label"
    )


def test_what_is_wrong_with_molecules_is_said(drugs: Path, tmp_path: Path) -> None:
    bad, model = tmp_path / "bad.csv", tmp_path / "m.bagwise"
    bad.write_text("smiles,label\nCCO,1\nxx,0\n")
    line = refused("fit", bad, "-o", model)
    assert "bad.csv, line 3" in line and "'xx' (1 of 2 molecules); correct it" in line
    line = refused("fit", drugs / "drugs.csv", "--label", "binds", "--group", "name", "-o", model)
    assert "no other columns are named: got name (--group)" in line
    (tmp_path / "new.smi").write_text("CCO\n")
    assert "no column looks like bag labels" in refused("fit", tmp_path / "new.smi", "-o", model)


def test_a_table_with_bag_ids_stays_a_table(tmp_path: Path) -> None:
    rows = ["bag,smiles,label,f"] + [f"b{i // 2},CCO,{i // 2 % 2},{i / 4}" for i in range(16)]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    said = run("fit", tmp_path / "t.csv", "-o", tmp_path / "m.bagwise")
    assert said.exit_code == 0 and "left out, not numeric: 'smiles'" in said.stderr
