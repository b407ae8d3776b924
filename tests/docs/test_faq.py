"""The error texts that the page of questions explains are those of the program."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAQ = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
OF_OTHERS = ("X does not have valid feature names",)  # scikit-learn's
TEXTS = [
    text
    for text in re.findall(r"\*\*`([^`]+)`\*\*", FAQ)
    if not text.startswith(OF_OTHERS) and not text.startswith("--")
]


@cache
def messages() -> list[list[str]]:
    """The fixed parts of every text in the source, in their order."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [v.value for v in node.values if isinstance(v, ast.Constant)]
                found.append([str(part) for part in parts])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append([node.value])
    return found


def clauses(texts: list[str]) -> list[str]:
    """What stands between marks, as far as it is long enough to be telling."""
    found = [piece.strip() for text in texts for piece in re.split(r"[;,:]|\.\.\.", text)]
    return [piece for piece in found if len(piece) >= 10]


def explained(text: str, parts: list[str]) -> bool:
    """Whether the quotation has a fixed part of a message, or is within one."""
    return any(a in b or b in a for a in clauses([text]) for b in clauses(parts))


def test_there_are_many() -> None:
    assert len(TEXTS) > 25


@pytest.mark.parametrize("text", TEXTS)
def test_the_program_says_so(text: str) -> None:
    assert any(explained(text, parts) for parts in messages()), "no message has these words"


def test_words_that_nobody_says_are_found() -> None:
    assert not any(explained("the moon is made of cheese", parts) for parts in messages())
