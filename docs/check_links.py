"""Links of the built site that lead nowhere; `make docs` ends with it. Nothing is fetched."""

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

ATTRIBUTES = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}


class Links(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser."""
        found = dict(attrs)
        target = found.get(ATTRIBUTES.get(tag, ""))
        if target is not None:
            self.targets.append(target)
        self.anchors |= {name for key in ("id", "name") if (name := found.get(key))}


@cache
def read(page: Path) -> Links:
    """What stands in a page."""
    links = Links()
    links.feed(page.read_text("utf-8"))
    return links


def is_well_formed(url: str) -> bool:
    """Whether an address of another site can be one.

    >>> [is_well_formed(u) for u in ("https://a.org", "https://a", "http:/a.org", "https://a.b c")]
    [True, False, False, False]
    """
    parts = urlsplit(url)
    if parts.scheme == "mailto":
        return "@" in parts.path
    host = parts.hostname or ""
    known = parts.scheme in ("http", "https") and ("." in host or host == "localhost")
    return known and not any(c.isspace() for c in url)


def broken(folder: Path) -> Iterator[str]:
    """Each link of the site that leads nowhere, with its page."""
    pages = [page for page in sorted(folder.rglob("*.html")) if "_static" not in page.parts]
    for page in pages:  # without templates of the theme
        for target in dict.fromkeys(read(page).targets):
            if not resolves(page, target, folder):
                yield f"{page.relative_to(folder)}: {target}"


def resolves(page: Path, target: str, folder: Path) -> bool:
    """Whether a link of a page leads to a file, and to an anchor that is there."""
    if target.startswith("data:"):
        return True
    if urlsplit(target).scheme or target.startswith("//"):
        return is_well_formed(f"https:{target}" if target.startswith("//") else target)
    path, anchor = urldefrag(target)
    plain = unquote(urlsplit(path).path)
    file = page if not plain else (page.parent / plain).resolve()
    if file.is_dir():
        file = file / "index.html"
    if not file.is_file() or not file.is_relative_to(folder.resolve()):
        return False
    made_by_script = page.name == "search.html" or not anchor
    return made_by_script or file.suffix != ".html" or unquote(anchor) in read(file).anchors


if __name__ == "__main__":
    faults = list(broken(Path(sys.argv[1]).resolve()))
    print("\n".join(faults), file=sys.stderr)
    sys.exit(f"{len(faults)} links lead nowhere" if faults else 0)
