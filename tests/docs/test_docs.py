"""The documentation site reaches every page; `make docs` builds it in full."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [
    path
    for path in sorted(DOCS.rglob("*.md"))
    if path.name != "index.md" and not {"_build", "auto_examples"} & set(path.parts)
]


def listed_pages(index: Path) -> set[Path]:
    """Pages named in the toctrees of a page, without their titles."""
    trees = re.findall(r"```\{toctree\}\n(.*?)```", index.read_text("utf-8"), re.DOTALL)
    lines = [line.strip() for line in "\n".join(trees).splitlines()]
    names = {re.sub(r".*<(.+)>", r"\1", line) for line in lines if line and line[0] != ":"}
    return {(index.parent / f"{name}.md").resolve() for name in names}


def reachable(index: Path) -> set[Path]:
    """Pages that one comes to from the front page, by tables of contents."""
    found, to_read = set(), [index]
    while to_read:
        page = to_read.pop()
        new = {p for p in listed_pages(page) if p.is_file()} - found
        found |= new
        to_read += sorted(new)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_every_page_is_in_a_table_of_contents(page: Path) -> None:
    assert page in reachable(DOCS / "index.md"), f"add {page.stem} to a toctree, of which see docs/"
