"""Every name of the code that a page cites exists: files, modules, classes, methods, arguments."""

import ast
import builtins
import importlib
import inspect
import pkgutil
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from sklearn.metrics import get_scorer_names

import bagwise

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "bagwise"
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(p for p in sorted((ROOT / "docs").glob("*.md"))),
]
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
# What a page calls an object: `model.save` is a method of some estimator.
OBJECTS = {
    "bags": "Bags",
    "model": "ProbitVGPMIL",
    "scans": "Bags",
    "slides": "Bags",
    "detector": "WeaklySupervisedDetector",
    "network": "AttentionMIL",
}
OTHER_PACKAGES = {"numpy", "torch", "sklearn", "pandas", "dask"}
FILE_ENDINGS = {"bagwise", "npz", "md", "toml", "csv", "html", "json", "ckpt", "previous"}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)


def code_spans(text: str) -> list[str]:
    """What stands between backticks, outside of blocks of code."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"\{doc\}`[^`]+`", "", prose)  # other pages, which Sphinx looks for
    return [" ".join(s.split()) for s in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]


# --- What there is -----------------------------------------------------------------------------


def identifiers(tree: ast.AST) -> set[str]:
    """Names, attributes, arguments and strings that are words, anywhere below a node."""
    found = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            found.add(getattr(node, field, None))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return {word for word in found if isinstance(word, str) and NAME.fullmatch(word)}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def all_words() -> set[str]:
    """Every word of the project's code and settings."""
    words = set(dir(builtins))
    for path in python_files():
        words |= identifiers(parsed(path)) | {path.stem, path.parent.name}
    for settings in ("pyproject.toml", "Makefile"):
        words |= set(NAME.findall((ROOT / settings).read_text("utf-8")))
    return words


@cache
def python_files() -> list[Path]:
    built = {"_build", "auto_examples", "generated"}
    found = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]
    return [p for p in found if not built & set(p.parts) and p != Path(__file__).resolve()]


def files_called(name: str) -> list[Path]:
    """Files that a page may mean: `infer/cavi.py` is `src/bagwise/core/inference/cavi.py`."""
    return [p for p in python_files() if p.as_posix().endswith("/" + name)]


@cache
def modules() -> list[ModuleType]:
    """Every module whose packages are installed."""
    found = [bagwise]
    for info in pkgutil.walk_packages(bagwise.__path__, "bagwise.", onerror=lambda _: None):
        if not info.name.endswith("__main__"):
            try:
                found.append(importlib.import_module(info.name))
            except ImportError:
                continue  # an optional package, such as torch
    return found


@cache
def objects(name: str) -> list[object]:
    """Classes, functions and modules of the package with this name."""
    found = []
    for module in modules():
        if module.__name__.rpartition(".")[2] == name:
            found.append(module)
        value = vars(module).get(name)
        if getattr(value, "__module__", "").startswith("bagwise"):
            found.append(value)
    return found


def has_attribute(owner: object, name: str) -> bool:
    """Whether a class or module has it, be it only set in a method or declared in a class."""
    if hasattr(owner, name):
        return True
    if not inspect.isclass(owner):
        return False
    sources = [inspect.getsource(c) for c in owner.__mro__ if c.__module__.startswith("bagwise")]
    return any(re.search(rf"\b{name}\b", source) for source in sources)


def resolves(dotted: str) -> bool:
    """Whether `a.b.c` leads from a module, class or usual variable to something that exists."""
    first, *rest = dotted.split(".")
    owners = [bagwise] if first in ("bagwise", "bw") else objects(OBJECTS.get(first, first))
    for name in rest:
        owners = [owner for owner in owners if has_attribute(owner, name)]
        if not owners:
            return False
        # An attribute that only a method sets has nothing below it that could be looked up.
        owners = [getattr(owner, name, owner) for owner in owners]
    return bool(owners)


@cache
def scikit_learn() -> list[ModuleType]:
    """The modules of scikit-learn that pages speak of."""
    names = ("model_selection", "impute", "pipeline", "preprocessing", "feature_selection")
    return [importlib.import_module(f"sklearn.{name}") for name in names]


def of_another_package(dotted: str) -> bool:
    """Whether `a.b` is something of NumPy, PyTorch and the like, installed or not."""
    parts = dotted.replace("np.", "numpy.").split(".")
    if parts[0] == "y":  # pages call a pandas Series of labels so
        return hasattr(pytest.importorskip("pandas").Series, parts[1])
    if parts[0] in OTHER_PACKAGES - {"numpy"}:
        return True
    try:
        value = importlib.import_module(parts[0])
        for name in parts[1:]:
            value = getattr(value, name)
    except (ImportError, AttributeError):
        return False
    return True


# --- Pages ---------------------------------------------------------------------------------------


def call_in(span: str) -> ast.Call | None:
    """`VGPMIL(H=100)` as a tree; None if the span is no call."""
    try:
        tree = ast.parse(span, mode="eval").body
    except SyntaxError:
        return None
    return tree if isinstance(tree, ast.Call) else None


def unknown_arguments(span: str) -> list[str]:
    """Keywords of a call that no function or class of that name takes."""
    call = call_in(span)
    owners = objects(ast.unparse(call.func)) if call else []
    if call is None or not owners:
        return []
    classes = [owner for owner in owners if inspect.isclass(owner)]
    taken = set().union(*(inspect.signature(c).parameters for c in classes)) or all_words()
    return [k.arg for k in call.keywords if k.arg and k.arg not in taken]


def wrong(span: str) -> str | None:
    """What is wrong with a code span, if it cites something of the project."""
    path = re.search(r"(?<![\w.])[\w./-]*\w\.py\b", span)
    if path and "NAME" not in span:
        return None if files_called(path[0]) else f"there is no {path[0]}"
    if target := re.fullmatch(r"make ([\w-]+)", span):
        there = re.search(rf"^{target[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        return None if there else f"there is no target {target[1]}"
    if option := re.match(r"--([a-z][\w-]+)|([a-z]\w*)=", span):
        word = (option[1] or option[2]).replace("-", "_")
        return None if word in all_words() else f"nothing takes {word}"
    name = re.match(NAME, span)
    if name is None or not re.fullmatch(r"[\w.]+(\(.*\))?", span):
        return None
    if unknown := unknown_arguments(span):
        return f"{name[0]} does not take {', '.join(unknown)}"
    return wrong_name(name[0], called="(" in span)


def wrong_name(name: str, called: bool) -> str | None:
    if "." in name:
        if not called and name.rpartition(".")[2] in FILE_ENDINGS:
            return None
        known = resolves(name) or of_another_package(name)
        return None if known else f"there is no {name}"
    looks_like_code = called or re.search(r"[a-z]_|_[a-z]|[a-z][A-Z]", name)
    known = name in all_words() or name in get_scorer_names()
    known = known or any(hasattr(m, name) for m in scikit_learn())
    return None if known or not looks_like_code else f"there is no {name}"


@each_page
def test_every_cited_name_exists(page: Path) -> None:
    found = {span: wrong(span) for span in code_spans(page.read_text("utf-8"))}
    assert not {span: why for span, why in found.items() if why}


@pytest.mark.parametrize(
    "span",
    [
        "no_such_function",
        "NoSuchModel",
        "bagwise.NoSuchModel",
        "bagwise.kernels.NoSuchKernel",
        "Bags.no_such_method",
        "model.no_such_attribute_",
        "np.no_such_function",
        "no_such_file.py",
        "src/bagwise/no_such_file.py",
        "python benchmarks/no_such_study.py --only this",
        "VGPMIL(no_such_argument=1)",
        "no_such_argument=1",
        "--no-such-option 3",
        "make no-such-target",
    ],
)
def test_names_that_do_not_exist_are_found(span: str) -> None:
    assert wrong(span)


@pytest.mark.parametrize(
    "span",
    ["VGPMIL(H=100)", "bagwise.load", "bags.offsets", "model.elbo_", "fetch_musk2()", "m.bagwise"],
)
def test_names_that_exist_are_known(span: str) -> None:
    assert wrong(span) is None


# --- The table of symbols ------------------------------------------------------------------------


def symbol_rows() -> list[tuple[str, str]]:
    """The columns "name in the code" and "file" of each row of docs/symbols.md."""
    lines = (ROOT / "docs" / "symbols.md").read_text("utf-8").splitlines()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    return [(row[3], row[4]) for row in rows if "`" in row[3]]


def missing_in(names: str, files: str) -> list[str]:
    """Words of the code spans in `names` that none of the files in `files` knows."""
    paths = [p for name in code_spans(files) for p in files_called(name) if SOURCE in p.parents]
    assert paths, f"no file of the package is called {files}"
    trees = [parsed(path) for path in paths]
    words = set.union(*(identifiers(tree) for tree in trees)) | set(dir(builtins))
    missing = []
    for span in code_spans(names):
        for name in NAME.findall(re.sub(r'="[^"]*"', "", span)):
            owner, _, member = name.rpartition(".")
            known = members(trees, owner) if owner else words
            if member not in known:
                missing.append(name)
    return missing


def members(trees: list[ast.Module], owner: str) -> set[str]:
    """Words in the classes of this name, and in those that they inherit from in these files."""
    classes = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    found: set[str] = set()
    for node in classes:
        if node.name == owner:
            found |= identifiers(node)
            for base in node.bases:
                found |= members(trees, ast.unparse(base))
    return found


@pytest.mark.parametrize(("names", "files"), symbol_rows(), ids=lambda text: text.strip()[:30])
def test_symbols_are_in_their_files(names: str, files: str) -> None:
    assert not missing_in(names, files)


def test_missing_symbols_are_found() -> None:
    assert missing_in("`Bags.no_such_method`, `X`, `no_such_name`", "`bags.py`") == [
        "Bags.no_such_method",
        "no_such_name",
    ]


# --- The way of a fit, and of a prediction -------------------------------------------------------


def steps() -> list[str]:
    """The numbered items of docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    return re.findall(r"^\d+\. (.*?)(?=^\d+\. |\n\n)", text, re.MULTILINE | re.DOTALL)


def test_both_ways_have_ten_steps() -> None:
    assert len(steps()) == 20


@pytest.mark.parametrize("step", steps(), ids=lambda text: code_spans(text)[0])
def test_names_of_a_step_are_in_its_files(step: str) -> None:
    spans = code_spans(step)
    files = [f"`{span}`" for span in spans if span.endswith(".py")]
    names = [f"`{span}`" for span in spans if not span.endswith(".py")]
    assert not missing_in(" ".join(names), " ".join(files))
