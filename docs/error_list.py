"""Every error and warning of the source as a page: generated/errors.txt, for `errors.md`."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "bagwise"
# Rooms of the package as readers know them; the first that fits has the message.
TOPICS = {
    "Commands": ("cli/",),
    "Bags": ("bags/",),
    "Tables": (
        "io/tables", "io/columns", "io/frames", "io/streams", "io/arrow_files", "io/class_labels",
        "io/row_files", "io/write_tables", "io/write_predictions",
    ),
    "Slides, pictures, scans and annotations": (
        "io/slide", "io/hdf5", "io/torch", "io/image", "io/dicom", "io/annotations", "io/geojson",
        "io/label_studio",
    ),
    "Cells and molecules": ("io/",),
    "Models: fits, predictions, decisions": ("models/", "core/", "kernels", "densities"),
    "Scores, plots, inspection and reports": ("metrics/", "plots/", "inspection", "report/"),
    "Data sets, benchmarks and baselines": ("datasets/", "benchmark/", "baselines/"),
    "Networks and detection": ("deep/", "detection/"),
    "Clusters": ("distributed/",),
    "Package": ("",),
}  # fmt: skip
WARNERS = {"warn", "warn_user"}
INTERNAL = {"AssertionError", "NotImplementedError", "AttributeError", "KeyError", "StopIteration"}
SHORTEST = 12  # characters of what is no name of a file alone
HEADER = """\
<!-- Made by docs/error_list.py: change the messages in the source, not this page. -->

{n} messages, as the source has them: what is in ‹brackets› is of your data. First the rule and what
was found, then the remedy. Commands put options in place of arguments.
"""


@dataclass(frozen=True)
class Message:
    """A text of the source: what is wrong, and what to do."""

    kind: str  # the class of the error, or "warning"
    text: str
    file: str  # below src/bagwise

    @property
    def parts(self) -> tuple[str, str]:
        """The rule with the value, and the remedy; the second is empty where there is none."""
        rule, _, remedy = self.text.partition("; ")
        return rule, remedy

    @property
    def topic(self) -> str:
        """The heading under which it stands."""
        return next(t for t, starts in TOPICS.items() if self.file.startswith(starts))


def trees() -> dict[str, ast.Module]:
    """The files of the package."""
    found = sorted(SOURCE.rglob("*.py"))
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8")) for path in found
    }


def constants(files: dict[str, ast.Module]) -> dict[str, str]:
    """Texts that messages name, such as REMEDY."""
    known: dict[str, str] = {"ROW": "row ‹number›"}
    for tree in files.values():
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name, value = node.targets[0].id, template(node.value, {})
                if value is not None and name.lstrip("_").isupper() and name != "ROW":
                    known[name] = value
    return known


def template(node: ast.expr, known: dict[str, str]) -> str | None:
    """The text of an expression with places for what is not known; None of what is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = template(node.left, known), template(node.right, known)
        return None if both == (None, None) else "".join(part or "‹…›" for part in both)
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "format":
        return template(node.func.value, known)  # type: ignore[attr-defined]
    if not isinstance(node, ast.JoinedStr):
        return None
    pieces = [
        str(v.value) if isinstance(v, ast.Constant) else _place(v.value, known)
        for v in node.values
        if isinstance(v, ast.Constant | ast.FormattedValue)
    ]
    return "".join(pieces)


def _place(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return known.get(node.id) or f"‹{node.id.strip('_').replace('_', ' ')}›"
    if isinstance(node, ast.Attribute):
        return f"‹{node.attr.strip('_').replace('_', ' ')}›"
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return _place(node.args[0], known)
    return "‹…›"


@cache
def messages() -> list[Message]:
    """All texts that are raised or warned of, in the order of the files."""
    return list(dict.fromkeys(m for _, own in statements() for m in own))


def statements() -> Iterator[tuple[str, list[Message]]]:
    """Each place that raises or warns with a text, and its messages; those of functions too."""
    files = trees()
    known = constants(files)
    everywhere = {f.name: f for tree in files.values() for f in _functions(tree)}
    for file, tree in files.items():
        made = everywhere | {f.name: f for f in _functions(tree)}
        for node in ast.walk(tree):
            call = node.exc if isinstance(node, ast.Raise) else node
            if not isinstance(call, ast.Call) or not call.args:
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            raised = isinstance(node, ast.Raise) and name not in INTERNAL
            if raised or name in WARNERS:
                texts = [text for arg in call.args[:2] for text in _texts(arg, known, made)]
                kind = "warning" if name in WARNERS else name
                own = [Message(kind, _plain(text), file) for text in texts if said_always(text)]
                yield f"{file}: {ast.unparse(call)}", own


def said_always(text: str) -> bool:
    """Whether enough of a text is its own, not that of another error."""
    return len(letters(text)) >= SHORTEST


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)]


def _plain(text: str) -> str:
    return " ".join(text.replace("\0", "row ‹number›").split())


def _texts(
    node: ast.expr, known: dict[str, str], made: dict[str, ast.FunctionDef]
) -> Iterator[str]:
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in made:
        for inner in ast.walk(made[node.func.id]):  # type: ignore[attr-defined]
            if isinstance(inner, ast.Return) and inner.value is not None:
                yield from _texts(inner.value, known, {})
        return
    text = template(node, known)
    if text is not None:
        yield text


def page(found: list[Message]) -> str:
    """The list by topic, in alphabetical order, the same text once."""
    lines = [HEADER.format(n=len(found))]
    for topic in TOPICS:
        own = sorted({m for m in found if m.topic == topic}, key=_order)
        if own:
            lines += [f"## {topic}\n", *map(entry, own)]
    return "\n".join(lines)


def _order(message: Message) -> tuple[str, str]:
    return letters(message.parts[0]), message.text


def letters(text: str) -> str:
    """What of a text is the same whenever it is said, without marks."""
    words = re.sub(r"[^a-z0-9 ]", "", re.sub(r"‹.*?›", "", text).lower())
    return " ".join(words.split())


def entry(message: Message) -> str:
    """One message as an entry of a definition list."""
    rule, remedy = (_code(part) for part in message.parts)
    said = f"{remedy} " if remedy else ""
    return f"{rule}\n: {said}*({message.kind}, {message.file})*\n"


def _code(text: str) -> str:
    if not text:
        return ""
    marks = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{marks}{pad}{text}{pad}{marks}"


def write(path: Path) -> None:
    """Write the page."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(page(messages()), encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parent / "generated" / "errors.txt")
