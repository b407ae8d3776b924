"""Every snippet of docs/works_with.md runs where its package is installed."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "works_with.md"
PACKAGES = {
    "scikit-learn": "sklearn",
    "MAPIE": "mapie.classification",
    "crepes": "crepes",
    "skore": "skore",
    "skops": "skops.card",
    "MLflow": "mlflow",
    "Optuna": "optuna",
    "Label Studio": "json",
    "torchmil": "torchmil.datasets",
}


def blocks() -> dict[str, list[str]]:
    """The code of each section, "" before the first."""
    parts = re.split(r"^## (.+)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    found = dict(zip(["", *parts[1::2]], parts[::2], strict=True))
    return {
        name: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for name, text in found.items()
    }


def test_every_section_has_a_package() -> None:
    assert set(blocks()) == {"", *PACKAGES} and all(blocks().values())


@pytest.mark.filterwarnings("ignore")  # of packages that are not ours
@pytest.mark.parametrize("section", PACKAGES)
def test_snippets_run(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(PACKAGES[section])
    monkeypatch.chdir(tmp_path)
    found = blocks()
    names: dict[str, Any] = {}
    for code in (*found[""], *found[section]):
        exec(compile(code, f"{PAGE.name}: {section}", "exec"), names)
    check(section, names)


def check(section: str, names: dict[str, Any]) -> None:
    """What each snippet ends with is what it says."""
    test = names["test"]
    if section == "scikit-learn":
        assert names["with_y"].shape == names["without"].shape == (2,)
    elif section == "MAPIE":
        assert names["sets"].shape[:2] == (len(test), 2)
    elif section == "crepes":
        assert names["sets"].shape == (len(test), 2)
    elif section == "skore":
        assert 0 <= names["auc"] <= 1
    elif section == "skops":
        assert "roc_auc" in Path("README-model.md").read_text("utf-8")
    elif section == "MLflow":
        assert names["same"].predict(test).tolist() == names["model"].predict(test).tolist()
    elif section == "Optuna":
        assert len(names["study"].trials) == 3
    elif section == "Label Studio":
        assert names["labelled"].instance_labels.tolist()[0] == 1
    elif section == "torchmil":
        assert len(names["back"]) == len(names["from_torchmil"]) == 8
        first = names["back"][0]
        assert first["X"].shape == (5, 2)
