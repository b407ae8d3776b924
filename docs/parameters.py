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
# Words for arguments of methods that no docstring repeats: they mean the same everywhere.
SHARED = {
    "X": "Bags, a list of (n, D) arrays, one for each bag, or what `fit` takes otherwise.",
    "y": "one label per bag; by default those that the bags have.",
    "sample_weight": "how many times each bag counts, one number per bag.",
    "return_std": "also return standard deviations under the posterior.",
    "k": "how many, at most.",
    "p": "(B, 2) probabilities of the two classes.",
    "path": "the file to write.",
    "overwrite": "whether a file of that name may be replaced.",
    "task": "which of the tasks of the fit, by its name.",
    "checkpoint_minutes": "how often a checkpoint is written.",
    "reliability": "the probability that the label of each bag is right, one number per bag.",
    "input_features": "names of the features before; by default those of the fit.",
    "indices": "return numbers of the features in place of a mask.",
    "none": "what stands for instances that are of no class.",
    "largest_error": "also return the largest error of the integrals.",
    "transform": '"default", "pandas" or "polars", as in scikit-learn.',
    "fit_params": "further arguments of `fit`.",
}
MODELS = ("VGPMIL", "ProbitVGPMIL", "MIRVM")  # that others say they are like
EMPTY = str(inspect.Parameter.empty)
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


def method_parameters(model: type, name: str) -> Entries:
    """Every argument of a method, in the words of the model, of those it is like, or of all."""
    signature = [*inspect.signature(getattr(model, name)).parameters][1:]
    told: Entries = {}
    others = [base for n in MODELS for base in getattr(bagwise, n).__mro__]
    own = [(source, name) for source in [*sources(model), *others]]
    for source, called in [*own, *((source, "fit") for source in model.__mro__)]:
        text = getattr(source.__dict__.get(called), "__doc__", None) or ""
        _, found, _ = split(inspect.cleandoc(text).splitlines())
        for names, words in found.items():
            for one in names.split(", "):
                told.setdefault(one, words)
    return {one: told.get(one) or [SHARED[one]] for one in signature if one in {*told, *SHARED}}


def of_method(model: type, name: str, lines: list[str]) -> list[str]:
    """The docstring of a method with all its arguments, their types and defaults."""
    entries = method_parameters(model, name)
    before, _, after = split(lines)
    if not entries:
        return readable(lines)
    if not split(lines)[1]:  # no list yet: before what stands under a heading, or at the end
        whole = [i for i, line in enumerate(lines) if HEADING.fullmatch(line) or line[:3] == ">>>"]
        at = min(whole, default=len(lines))
        before, after = lines[:at], lines[at:]
    while before and (not before[-1] or before[-2:] == PARAMETERS):
        before = before[:-2] if before[-2:] == PARAMETERS else before[:-1]
    head = ["", *PARAMETERS, *section(entries, getattr(model, name))]
    return [*before, *head, *examples_apart(readable(after))]


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
    kinds = {str(signature[n].annotation) for n in names.split(", ") if n in signature}
    said = [*(kinds if inspect.isfunction(model) and not kinds & {"Any", EMPTY} else ())]
    if defaults and inspect.Parameter.empty not in defaults:
        said.append(f"default {', '.join(map(repr, defaults))}")
    return f"{names} : {', '.join(said)}" if said else names


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


def estimator(method: str) -> type | None:
    """The estimator whose method this is, by its whole name; None of other classes."""
    room, _, model = method.rpartition(".")[0].rpartition(".")
    found = getattr(sys.modules.get(room), model, None)
    return found if inspect.isclass(found) and issubclass(found, BaseEstimator) else None


def rewrite(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Called by autodoc for each docstring, before napoleon reads it."""
    if str(getattr(obj, "__module__", "")).startswith("sklearn"):  # which writes as napoleon reads
        return
    if what == "method" and (owner := estimator(name)) is not None:
        lines[:] = of_method(owner, name.rpartition(".")[2], lines)
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
