"""The examples of guides that make their own files run, from top to bottom."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from command_line import good

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guide"
BLOCK = re.compile(r"^```(python|sh)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and code of each block, padded so that line numbers are those of the page."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    return [(m[1], "\n" * text.count("\n", 0, m.start(2)) + m[2]) for m in BLOCK.finditer(text)]


def run_python(page: str) -> None:
    namespace: dict[str, object] = {"__name__": "guide"}
    found = [code for language, code in blocks(page) if language == "python"]
    assert len(found) >= 2
    for code in found:
        exec(compile(code, page, "exec"), namespace)


def run_commands(page: str) -> None:
    lines = [
        line for language, code in blocks(page) if language == "sh" for line in code.split("\n")
    ]
    calls = [words[1:] for words in map(shlex.split, lines) if words[:1] == ["bagwise"]]
    assert calls
    for call in calls:
        good(*call)


@pytest.mark.filterwarnings("ignore")  # those of anndata
def test_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anndata", reason='needs: pip install "bagwise[scverse]"')
    monkeypatch.chdir(tmp_path)
    run_python("cells.md")
    run_commands("cells.md")
    assert Path("cells.report.html").stat().st_size > 1000
    assert Path("cells-with-p.h5ad").stat().st_size > 1000


def test_molecules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rdkit", reason='needs: pip install "bagwise[molecules]"')
    monkeypatch.chdir(tmp_path)
    run_all("molecules.md")
    assert len(Path("conformers.csv").read_text("utf-8").splitlines()) > 8
    assert Path("ibuprofen.png").stat().st_size > 1000


def run_all(page: str) -> None:
    """Blocks of both kinds, in the order of the page."""
    namespace: dict[str, object] = {"__name__": "guide"}
    for language, code in blocks(page):
        if language == "python":
            exec(compile(code, page, "exec"), namespace)
            continue
        for words in map(shlex.split, code.split("\n")):
            if words[:1] == ["bagwise"]:
                good(*words[1:])


def test_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_all("../tutorial.md")
    out = capsys.readouterr().out
    assert "ShiftWarning" in out
    bags, pictures = (float(x) for x in re.findall(r"^(0\.\d+) (0\.\d+)$", out, re.MULTILINE)[0])
    assert bags > 0.9 and pictures > 0.95  # as the page says
    for name in ("digits.bagwise", "new.predictions.csv", "pictures.csv", "new.report.html"):
        assert Path(name).stat().st_size > 0
    header = Path("new.predictions.csv").read_text("utf-8").splitlines()[0].split(",")
    assert {"p_mean", "p_std", "predicted", "possible", "novelty_p_value"} <= set(header)


@pytest.mark.parametrize("page", ["../is_it_mil.md", "../uncertainty.md"])
def test_pages_of_explanation(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_all(page)
    assert capsys.readouterr().out


def run_and_read(page: str, capsys: pytest.CaptureFixture[str]) -> str:
    run_all(page)
    return capsys.readouterr().out


def at_the_end_of_lines(out: str) -> list[float]:
    return [float(found) for found in re.findall(r"([\d.]+)$", out, re.MULTILINE)]


def test_scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    out = run_and_read("scans.md", capsys)
    assert at_the_end_of_lines(out)[0] > 0  # the coupling is learned, as the page says
    assert Path("slices-with-p.parquet").stat().st_size > 1000


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    out = run_and_read("text.md", capsys)
    auc, *shown = at_the_end_of_lines(out)
    assert auc == 1.0
    complaints = re.findall(r"(?:bill|insects).* ([\d.]+)$", out, re.MULTILINE)
    assert complaints and min(map(float, complaints)) > 0.9
    assert len(shown) == 4


def test_audio(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    out = run_and_read("audio.md", capsys)
    scores = re.findall(r"^(?:owl|wren) (\S+) (\S+)$", out, re.MULTILINE)
    assert len(scores) == 2
    assert min(float(score) for pair in scores for score in pair) > 0.9
