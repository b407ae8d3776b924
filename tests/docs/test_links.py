"""Links in README and docs lead to files and headings that are there; nothing is fetched."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = {"_build", "auto_examples", "generated", ".venv", "venv"}
PAGES = [
    page
    for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    if not BUILT & set(page.relative_to(ROOT).parts)
]
FENCES = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
IMAGE = re.compile(r"^```\{(?:image|figure)\}\s+(\S+)", re.MULTILINE)
ROLE = re.compile(r"\{(doc|download)\}`(?:[^`<]*<)?([^`>]+)>?`")
BARE = re.compile(r"<(https?:[^>\s]+)>")
HTML = re.compile(r"<(?:img|a|source)\b[^>]*?\b(?:src|href|srcset)=\"([^\"]+)\"")


@pytest.fixture(scope="module")
def checker() -> Any:
    sys.path.insert(0, str(ROOT / "docs"))
    yield import_module("check_links")
    sys.path.remove(str(ROOT / "docs"))
    sys.modules.pop("check_links")


def targets(text: str) -> Iterator[str]:
    """Links and pictures of a page, without those in code."""
    yield from IMAGE.findall(text)
    plain = re.sub(r"(`+)(?!\{).*?\1", "", FENCES.sub("", text)) if "`" in text else text
    for expression in (LINK, BARE, HTML):
        yield from expression.findall(plain)


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and MyST make them."""
    text = FENCES.sub("", page.read_text("utf-8"))
    titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    named = set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))
    plain = (re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)
    return named | set(plain)


def leads_somewhere(page: Path, target: str, checker: Any) -> bool:
    if re.match(r"[a-z]+:", target):
        return bool(checker.is_well_formed(target))
    path, _, anchor = target.partition("#")
    file = page if not path else (page.parent / path).resolve()
    if not file.exists() or not file.is_relative_to(ROOT):
        return False
    return not anchor or file.suffix != ".md" or anchor in anchors(file)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path, checker: Any) -> None:
    text = page.read_text("utf-8")
    dead = [t for t in targets(text) if not leads_somewhere(page, t, checker)]
    for _, name in ROLE.findall(text):
        if not name.startswith("auto_examples/") and "auto_examples/" not in name:
            place = (ROOT / "docs" if name.startswith("/") else page.parent) / name.lstrip("/")
            ends = ("", ".md", ".rst")
            dead += [name] if not any(Path(f"{place}{end}").is_file() for end in ends) else []
    assert not dead


def test_there_are_links() -> None:
    found = [t for page in PAGES for t in targets(page.read_text("utf-8"))]
    assert sum(t.startswith("http") for t in found) > 1
    assert sum(not t.startswith("http") for t in found) > 5


def test_links_that_lead_nowhere_are_found(tmp_path: Path, checker: Any) -> None:
    page = tmp_path / "a.md"
    page.write_text("# Here it is\n")
    assert not leads_somewhere(page, "b.md", checker)
    assert [*targets("[a](b.md) `[c](d)`\n```\n[e](f)\n```\n<https://g.org>")] == [
        "b.md",
        "https://g.org",
    ]
    assert anchors(page) == {"here-it-is"}


def test_the_built_site_is_checked(tmp_path: Path, checker: Any) -> None:
    (tmp_path / "one.html").write_text(
        '<h1 id="top"></h1><a href="two.html#here">a</a><a href="two.html#gone">b</a>'
        '<a href="#top">c</a><img src="no.png"><a href="https://a">d</a><a href="three.html">e</a>'
    )
    (tmp_path / "two.html").write_text('<p id="here"><a href="https://a.org/x">a</a></p>')
    assert [*checker.broken(tmp_path)] == [
        "one.html: two.html#gone",
        "one.html: no.png",
        "one.html: https://a",
        "one.html: three.html",
    ]
