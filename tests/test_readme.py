"""The Python examples of README.md run, from top to bottom, as a reader would type them."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
FENCE = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def python_blocks(text: str) -> list[str]:
    """Code of the ```python blocks, padded so that line numbers are those of the file."""
    return ["\n" * text.count("\n", 0, m.start(1)) + m.group(1) for m in FENCE.finditer(text)]


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
