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


def listed_pages(index: Path) -> set[str]:
    """Pages named in the toctrees of an index, without their titles."""
    trees = re.findall(r"```\{toctree\}\n(.*?)```", index.read_text("utf-8"), re.DOTALL)
    lines = [line.strip() for line in "\n".join(trees).splitlines()]
    return {re.sub(r".*<(.+)>", r"\1", line) for line in lines if line and line[0] != ":"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_every_page_is_in_the_table_of_contents(page: Path) -> None:
    index = page.parent / "index.md"
    assert page.stem in listed_pages(index), f"add {page.stem} to the toctree of {index}"
