"""The command line: help, version, demo, and what it says where a package is missing."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import bagwise
from bagwise import ProbitVGPMIL
from bagwise.cli import app as cli
from bagwise.cli import demo
from command_line import good, small_frame


def run(*arguments: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(cli.build_app(), arguments)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def tiny(run_demo: Callable[..., demo.Outcome]) -> Callable[..., demo.Outcome]:
    """The demo on a few bags of each data set."""

    def smaller(*args: Any, **kwargs: Any) -> demo.Outcome:
        return run_demo(*args, **kwargs, digit_bags=24, musk_bags=30, models=[ProbitVGPMIL])

    return smaller


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.output.strip() == f"bagwise {bagwise.__version__}"


def test_help_lists_commands() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "demo" in result.output
    assert "reproduce" in result.output


def test_demo_help_lists_options() -> None:
    result = run("demo", "--help")
    assert result.exit_code == 0
    assert "--output" in plain(result.output)
    assert "--seed" in plain(result.output)


def test_demo_prints_a_table_and_where_its_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "run_demo", tiny(demo.run_demo))
    result = run("demo", "--output", str(tmp_path / "out"), "--seed", "3")
    assert result.exit_code == 0, result.output
    text = plain(result.output)
    assert "ProbitVGPMIL" in text
    assert "MUSK1" in text
    assert "calibrated on bags left out of the fit" in " ".join(text.split())
    for name in ("digits.png", "report.html"):
        assert (tmp_path / "out" / name).stat().st_size > 1000
        assert name in text


def test_demo_prints_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "run_demo", tiny(demo.run_demo))
    found = json.loads(run("demo", "--output", str(tmp_path / "out"), "--json").stdout)
    assert {row["data"] for row in found["scores"]} == {"digits", "MUSK1"}
    assert all(Path(name).is_file() for name in found["files"])


def test_demo_refuses_a_file_as_directory(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_text("")
    result = run("demo", "--output", str(path))
    assert result.exit_code == 2


def test_demo_without_matplotlib_exits_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("demo", "--output", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert 'pip install ".[plot]"' in result.output + result.stderr


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_packages_name_the_extra(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert 'pip install ".[cli]"' in said


def test_other_import_errors_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    monkeypatch.setattr(cli, "build_app", broken)
    with pytest.raises(ModuleNotFoundError, match="numpy"):
        cli.main()


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from bagwise.cli import main\n"
        "sys.argv = ['bagwise', '--help']\n"
        "try:\n    main()\nexcept SystemExit as stopped:\n    assert not stopped.code\n"
        "heavy = {'numpy', 'sklearn', 'pandas', 'matplotlib', 'bagwise.bags'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


def test_texts_beyond_the_locale_are_printed(tmp_path: Path) -> None:
    """Names of classes that a terminal of ASCII does not have; tables are UTF-8 everywhere."""
    frame = small_frame().replace({"diagnosis": {"cancer": "krebs\u00e4hnlich"}})
    frame.to_csv(tmp_path / "t.csv", index=False)
    good("fit", tmp_path / "t.csv", "--positive", "krebs\u00e4hnlich", "-o", tmp_path / "m.bagwise")

    def printed(*arguments: Any) -> bytes:
        return subprocess.run(
            [sys.executable, "-m", "bagwise", *map(str, arguments)],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
        ).stdout

    assert rb"krebs\xe4hnlich" in printed("inspect", tmp_path / "m.bagwise")
    table = printed("predict", tmp_path / "m.bagwise", tmp_path / "t.csv", "-o", "-")
    assert "krebs\u00e4hnlich" in table.decode("utf-8")


COMMANDS = (*("fit", "predict", "evaluate", "report", "inspect", "demo", "benchmark", "datasets"),)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_examples(command: str) -> None:
    text = plain(run(command, "--help").output)
    assert "Examples" in text
    assert f"bagwise {command} " in text or f"bagwise {command}\n" in text.replace("  ", "\n")
    assert "--debug" in text
    assert "--json" in text


def test_data_sets_as_json() -> None:
    every = json.loads(run("datasets", "--json").stdout)
    assert "musk1" in [e["name"] for e in every]
    one = json.loads(run("datasets", "musk1", "--json").stdout)
    assert one["name"] == "musk1" and one["licence"]
    failed = run("datasets", "nonesuch")
    assert failed.exit_code == 2
    assert failed.stderr.startswith("error: there is no data set 'nonesuch'")
    assert failed.stderr.count("\n") == 1
