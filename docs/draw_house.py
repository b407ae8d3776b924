"""The picture of `architecture.md`, drawn from the source: `python docs/draw_house.py house.svg`.

Floors are the layers that `tests/test_layout.py` enforces, captions the first sentences of the
rooms' docstrings, and dots the rooms that a fit and a prediction were seen to go through.
"""

import ast
import html
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "bagwise"
LAYOUT = ROOT / "tests" / "test_layout.py"

LINE, GAP, MARGIN = 24, 7, 9  # heights of a room and between floors; around everything
NAMES, WIDTH = 186, 748  # where captions begin; of a floor
LANES = {"fit": 774, "predict": 824}  # where their dots are

STYLE = """
.house {width: 100%; height: auto; margin-bottom: 1em; font: 14px sans-serif}
.house text {fill: var(--pst-color-text-base, currentColor)}
.house .room {font-family: monospace; font-weight: bold}
.house .lane {text-anchor: middle; font-weight: bold}
.house .floor {fill: var(--pst-color-surface, #8883); stroke: var(--pst-color-border, #888)}
.house .core {fill: var(--pst-color-info-bg, #48f3)}
.house .way {stroke: var(--pst-color-border, #888); stroke-width: 2}
.house .dot {fill: var(--pst-color-primary, #07a)}
"""


def layers() -> list[tuple[str, ...]]:
    """Rooms from the top of the library to its bottom."""
    for node in ast.parse(LAYOUT.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            return list(reversed(ast.literal_eval(node.value)))
    raise LookupError(f"{LAYOUT} lists no LAYERS")


def caption(room: str) -> str:
    """What the docstring of a room begins with, up to a colon or a semicolon."""
    place = PACKAGE / room.replace(".", "/")
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    sentence = text.partition("\n")[0].replace("`", "").partition(" [")[0].rstrip(".")
    cuts = [sentence.find(mark) for mark in ":;" if sentence.find(mark) > 20]
    return sentence[: min(cuts, default=len(sentence))]


def ways() -> dict[str, set[str]]:
    """The rooms that a fit and a prediction go through."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    from crossed_files import files_of_fit, files_of_predict

    traces: dict[str, Callable[[], list[str]]] = {"fit": files_of_fit, "predict": files_of_predict}
    return {name: {room_of(file) for file in trace()} for name, trace in traces.items()}


def room_of(file: str) -> str:
    """'core/inference/loop.py' -> 'core.inference'."""
    name = file.removesuffix(".py").replace("/", ".")
    rooms = [r for layer in layers() for r in layer if name == r or name.startswith(f"{r}.")]
    return max(rooms, key=len, default=name)


def drawn(found: dict[str, set[str]]) -> str:
    """The picture as SVG, in the colours of the page around it."""
    parts, where, y = [], {}, MARGIN + LINE
    for layer in layers():
        kind = "floor core" if layer[0].startswith("core.") else "floor"
        height = LINE * len(layer)
        parts.append(
            f'<rect class="{kind}" x="1" y="{y}" width="{WIDTH}" height="{height}" rx="4"/>'
        )
        for room in layer:
            where[room] = y + LINE // 2
            parts += [text(MARGIN, where[room], room, "room")]
            parts += [text(NAMES, where[room], caption(room), "caption")]
            y += LINE
        y += GAP
    for way, x in LANES.items():
        parts += lane(x, way, sorted(where[room] for room in found[way] if room in where))
    size = f"0 0 {max(LANES.values()) + 30} {y}"
    title = "Rooms of the package, each above those that it may import"
    head = f'<svg class="house" viewBox="{size}" role="img" aria-label="{title}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


def lane(x: int, way: str, heights: list[int]) -> list[str]:
    """A line with a dot at each height."""
    dots = [f'<circle class="dot" cx="{x}" cy="{y}" r="5"/>' for y in heights]
    line = f'<line class="way" x1="{x}" x2="{x}" y1="{heights[0]}" y2="{heights[-1]}"/>'
    return [text(x, MARGIN + 2, way, "lane"), line, *dots]


def text(x: int, y: int, content: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y + 5}">{html.escape(content)}</text>'


def write(path: Path) -> None:
    """Draw the picture into a file; one that is the same is left as it is."""
    picture = drawn(ways())
    if not path.exists() or path.read_text("utf-8") != picture:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(picture, "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
