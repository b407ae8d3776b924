"""Every promise in docs/guarantees.md names a test that exists, every dependency is listed."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 40


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_named_tests_exist(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert name in functions, f"docs/guarantees.md names {file}::{name}; there is no such test"


def test_every_promise_has_a_test() -> None:
    promises = [line for line in PAGE.splitlines() if line.startswith("| ") and "::" not in line]
    head, last = PAGE.split("## What was tried")
    rows = [line for line in head.splitlines() if line.startswith("|") and line in promises]
    assert set(rows) <= {"| promise | test |"}, rows
    assert "test |" not in last


def test_every_dependency_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra, packages in project["optional-dependencies"].items():
        if extra not in ("dev", "docs"):
            wanted += packages
    names = {re.split(r"[\[><=~! ]", w)[0] for w in wanted} - {"bagwise"}  # extra of extras
    listed = set(re.findall(r"^\| ([\w-]+)", PAGE.split("## Dependencies")[1], re.MULTILINE))
    assert names == listed - {"package"}


def test_every_target_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([\w-]+)`", PAGE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
