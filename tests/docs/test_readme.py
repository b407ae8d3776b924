"""The examples of README.md run, from top to bottom, as a reader would type them."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bagwise.cli import app as cli

README = Path(__file__).resolve().parents[2] / "README.md"
FENCE = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def python_blocks(text: str) -> list[str]:
    """Code of the ```python blocks, padded so that line numbers are those of the file."""
    return ["\n" * text.count("\n", 0, m.start(1)) + m.group(1) for m in FENCE.finditer(text)]


def commands(text: str) -> list[list[str]]:
    """Arguments of the lines of ```sh blocks that call bagwise."""
    blocks = re.findall(r"^```sh[ \t]*\n(.*?)^```[ \t]*$", text, re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [line[1:] for line in lines if line[:1] == ["bagwise"]]


def test_blocks_keep_their_line_numbers() -> None:
    text = "# Title\n\n```python\na = 1\n```\n\n```sh\nls\n```\n\n```python\nb = 2\n```\n"
    first, second = python_blocks(text)
    assert first == "\n\n\na = 1\n"
    assert second.splitlines()[11] == "b = 2"


def test_readme_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert README.is_file(), "README.md is missing"
    blocks = python_blocks(README.read_text(encoding="utf-8"))
    assert blocks, "README.md has no ```python block; show at least one example that runs"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)
    # The commands work on the files that the Python examples wrote.
    for line in commands(README.read_text(encoding="utf-8")):
        result = CliRunner().invoke(cli.build_app(), line)
        assert result.exit_code == 0, (line, result.output, result.stderr)
    for name in ("musk1.bagwise", "test.predictions.csv", "test.report.html"):
        assert Path(name).stat().st_size > 0
