"""Lists of parameters as pages show them: whole, and one readable paragraph for each argument.

Docstrings say `name : what it is`, on several lines, and a model says only what differs from the
one that it is like ("Parameters are those of `VGPMIL`, and ..."). Pages list every argument of the
signature with its default; what a docstring does not say is taken from its base classes, and then
from the models that it names.
"""

import inspect
import re
import sys
from typing import Any

from sklearn.base import BaseEstimator

import bagwise

ENTRY = re.compile(r"(\w+(?:, \w+)*) : (\S.*)")
LIKE = re.compile(r"Parameters are those of [^.]*, and")
HEADING = re.compile(r"(Examples|Attributes|Returns|Notes|Warns|Raises)")
AS_IN = "as in `"  # the other model's words are shown instead
PARAMETERS = ["Parameters", "----------"]
EXAMPLES = ["Examples", "--------"]
MODELS = ("VGPMIL", "ProbitVGPMIL", "MIRVM")  # that others say they are like
Entries = dict[str, list[str]]


def split(lines: list[str]) -> tuple[list[str], Entries, list[str]]:
    """What stands before the arguments, the arguments, and what stands after them."""
    first = next((i for i, line in enumerate(lines) if ENTRY.fullmatch(line)), len(lines))
    found: Entries = {}
    i = first
    while i < len(lines) and (match := ENTRY.fullmatch(lines[i])):
        end = i + 1
        while end < len(lines) and lines[end].startswith(" "):
            end += 1
        found[match[1]] = [match[2], *(line.strip() for line in lines[i + 1 : end])]
        i = end
    return lines[:first], found, lines[i:]


def docstring(obj: Any) -> list[str]:
    """Lines of an object's own docstring."""
    return inspect.cleandoc(obj.__dict__.get("__doc__") or "").splitlines()


def sources(model: type) -> list[type]:
    """The model, its base classes, and the models that its docstring names."""
    text = " ".join(line for base in model.__mro__[:2] for line in docstring(base))
    rooms = {**vars(sys.modules[model.__module__]), **{n: getattr(bagwise, n) for n in MODELS}}
    named = [rooms.get(name) for name in re.findall(r"`(\w+)`", text)]
    classes = [*model.__mro__, *(c for c in named if inspect.isclass(c))]
    return [c for c in dict.fromkeys(classes) if c.__module__.startswith("bagwise")]


def all_parameters(model: type) -> Entries:
    """Every argument of the signature, in its order, with what is said about it."""
    signature = inspect.signature(model).parameters
    told: dict[str, tuple[str, list[str]]] = {}
    for source in sources(model):
        before, found, _ = split(docstring(source))
        if any(HEADING.fullmatch(line) for line in before):  # no arguments, but attributes
            continue
        for names, text in found.items():
            if text[0].startswith(AS_IN):
                continue
            for name in names.split(", "):
                told.setdefault(name, (names, text))
    listed: Entries = {}
    for name in signature:
        names, text = told.get(name, (name, []))
        together = [n for n in names.split(", ") if n in signature and told.get(n) == (names, text)]
        listed.setdefault(", ".join(together or [name]), text)
    return listed


def with_default(names: str, model: Any) -> str:
    """The names of arguments with their defaults, where they have any that say something."""
    signature = inspect.signature(model).parameters
    defaults = [signature[n].default for n in names.split(", ") if n in signature]
    if not defaults or inspect.Parameter.empty in defaults:
        return names
    return f"{names} : default {', '.join(map(repr, defaults))}"


def section(entries: Entries, model: Any = None) -> list[str]:
    """Entries as numpydoc has them: the names, and below them the text."""
    lines = []
    for names, text in entries.items():
        lines += [with_default(names, model) if model else names, *("    " + t for t in text)]
    return lines


def readable(lines: list[str]) -> list[str]:
    """All entries with their text below the names; examples under a heading of their own."""
    before, found, after = split(lines)
    if not found:
        return lines
    headed = before[-1:] != [""]
    rest = readable(after)
    return [*before, *([] if headed else PARAMETERS), *section(found), *examples_apart(rest)]


def examples_apart(lines: list[str]) -> list[str]:
    """Code right after a list of arguments would be taken for one more argument."""
    first = next((line for line in lines if line), "")
    return ["", *(EXAMPLES if first.startswith(">>>") else []), *lines]


def rewrite(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Called by autodoc for each docstring, before napoleon reads it."""
    if str(getattr(obj, "__module__", "")).startswith("sklearn"):  # which writes as napoleon reads
        return
    if not (what == "class" and issubclass(obj, BaseEstimator)):
        lines[:] = readable(lines)
        return
    before, _, after = split(lines)
    if any(HEADING.fullmatch(line) for line in before):  # no arguments, but attributes
        at = next(i for i, line in enumerate(lines) if HEADING.fullmatch(line))
        before, after = lines[:at], lines[at:]
    before = LIKE.sub("", "\n".join(before)).rstrip().splitlines()
    if before[-2:-1] == ["Parameters"]:
        before = before[:-2]
    entries = section(all_parameters(obj), obj)
    whole = ["", *PARAMETERS, *entries] if entries else []
    lines[:] = [*before, *whole, *examples_apart(readable(after))]
