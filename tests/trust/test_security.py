"""Nothing in a file is executed, nothing in a text becomes markup or a formula."""

import ast
import csv
import io
import json
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bagwise as bw
from bagwise.benchmark.results import write_tables as write_results
from bagwise.io import ModelFileError, read_state, write_state, write_table
from bagwise.report import build_report
from fuzzing import Fuzzer, model_files, small_bags

SRC = Path(bw.__file__).parent


# --- Source code --------------------------------------------------------------------------------

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal"}
FORBIDDEN_MODULES |= {"yaml", "code", "runpy", "imp", "ctypes", "xmlrpc", "telnetlib"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_ATTRIBUTES = {
    *{("os", name) for name in ("system", "popen", "execv", "execl", "spawnl", "spawnv")},
    *{("joblib", name) for name in ("load", "dump", "hash")},
    *{("pd", "read_pickle"), ("pandas", "read_pickle"), ("yaml", "load")},
    *{("subprocess", name) for name in ("getoutput", "getstatusoutput")},
}
SOURCES = sorted(SRC.rglob("*.py"))


def dangers(tree: ast.AST) -> list[str]:
    """What a file does that could run code from data, with its line."""
    found = []
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found += [f"line {line}: import {n}" for n in names if n.split(".")[0] in FORBIDDEN_MODULES]
        if isinstance(node, ast.Call):
            found += [f"line {line}: {what}" for what in _bad_call(node)]
    return found


def _bad_call(node: ast.Call) -> list[str]:
    f, found = node.func, []
    if isinstance(f, ast.Name) and f.id in FORBIDDEN_CALLS:
        found.append(f.id)
    if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name):
        if (f.value.id, f.attr) in FORBIDDEN_ATTRIBUTES:
            found.append(f"{f.value.id}.{f.attr}")
        if (f.value.id, f.attr) == ("np", "load") and _keyword(node, "allow_pickle") is not False:
            found.append("np.load without allow_pickle=False")
        if (f.value.id, f.attr) == ("torch", "load") and _keyword(node, "weights_only") is not True:
            found.append("torch.load without weights_only=True")
    if _keyword(node, "shell") not in (None, False):
        found.append("shell=")
    if _keyword(node, "allow_pickle") not in (None, False):
        found.append("allow_pickle=")
    return found


def _keyword(node: ast.Call, name: str) -> Any:
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value.value if isinstance(keyword.value, ast.Constant) else "?"
    return None


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(SRC)))
def test_the_package_never_runs_data(path: Path) -> None:
    assert not dangers(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from yaml import load",
        "eval('1')",
        "import os\nos.system('true')",
        "np.load('x')",
        "np.load('x', allow_pickle=True)",
        "torch.load('x')",
        "subprocess.run('true', shell=True)",
        "joblib.load('x')",
    ],
)
def test_the_search_finds_what_it_looks_for(text: str) -> None:
    assert dangers(ast.parse(text))


def test_pages_build_no_markup_from_text() -> None:
    for path in (SRC / "report" / "assets").glob("*.js"):
        text = path.read_text(encoding="utf-8")
        wrong = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        assert not re.search(wrong, text), path.name


# --- Model files --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return Fuzzer(model_files(tmp_path_factory.mktemp("seeds")))


def test_the_seeds_are_good_files(fuzzer: Fuzzer, tmp_path: Path) -> None:
    path = tmp_path / "m.bagwise"
    for name, data in fuzzer.files.items():
        path.write_bytes(data)
        if name == "checkpoint":
            assert read_state(path)[0] == "checkpoint"
        else:
            assert bw.load(path).predict_proba(small_bags(1)).shape == (12, 2)


@pytest.mark.parametrize("block", range(4))
def test_hostile_files_are_refused_or_harmless(block: int, fuzzer: Fuzzer, tmp_path: Path) -> None:
    path, refused = tmp_path / "m.bagwise", 0
    for number in range(10**6 + 100 * block, 10**6 + 100 * (block + 1)):
        kind, data = fuzzer.one(number)
        path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                state = read_state(path) if kind.endswith("checkpoint") else bw.load(path)
            except ModelFileError as error:
                refused += 1
                assert len(str(error)) < 1000, f"file {number}"
            else:
                assert state is not None
    assert refused > 50


def state_of(fuzzer: Fuzzer, name: str, path: Path) -> tuple[str, Any]:
    path.write_bytes(fuzzer.files[name])
    return read_state(path)


LACKS = {
    "a fitted value": lambda s: s["fitted"].pop("n_features_in_"),
    "a posterior": lambda s: s["fitted"].update(posterior_=None),
    "classes": lambda s: s["fitted"].update(classes_=np.array([1, 1])),
    "a class": lambda s: s["fitted"].update(classes_=np.array([1])),
    "a list of classes": lambda s: s["fitted"].update(classes_=[0, 1]),
    "a calibration": lambda s: s["fitted"].update(calibration_=1.5),
    "a reason": lambda s: s["fitted"].update(why_not_calibrated_=2),
    "features": lambda s: s["fitted"].update(n_features_in_=7),
    "feature names": lambda s: s.update(feature_names=["area"]),
    "textual names": lambda s: s.update(feature_names=[1, 2]),
    "one name": lambda s: s.update(feature_names="area"),
    "iterations": lambda s: s["fitted"].update(n_iter_="many"),
    "an elbo": lambda s: s["fitted"].update(elbo_=float("nan")),
    "a dict": lambda s: s.update(fitted=[]),
    "arguments": lambda s: s.update(parameters={"n_inducing": {}}),
    "metadata": lambda s: s.update(metadata=5),
}


@pytest.mark.parametrize("what", LACKS)
def test_incomplete_models_are_refused(what: str, fuzzer: Fuzzer, tmp_path: Path) -> None:
    path = tmp_path / "m.bagwise"
    kind, state = state_of(fuzzer, "probit", path)
    LACKS[what](state)
    write_state(path, state, kind=kind)
    with pytest.raises(ModelFileError, match="not a complete ProbitVGPMIL model"):
        bw.load(path)


@pytest.mark.parametrize("neighbors", [None, "everything", ("knn", -1)])
def test_coupled_models_know_their_neighbours(
    neighbors: Any, fuzzer: Fuzzer, tmp_path: Path
) -> None:
    path = tmp_path / "m.bagwise"
    kind, state = state_of(fuzzer, "ising", path)
    state["parameters"]["neighbors"] = neighbors
    write_state(path, state, kind=kind)
    with pytest.raises(ModelFileError, match="neighbors"):
        bw.load(path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"c0": "x"}, "c0 must be"),
        ({"c0": float("nan")}, "c0 must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 0.5}, "seed must be"),
        ({"jitter": 0.0}, "jitter must be"),
        ({"m": np.full(4, 1e200)}, "m must be numbers below 1e\\+100"),
        ({"scale": np.full(2, 1e-200)}, "scale must be valid"),
        ({"Z": np.full((4, 2), np.nan)}, "Z must be"),
        ({"kernel": bw.kernels.RBF(1.0, (1.0, 2.0, 3.0))}, "one lengthscale per feature"),
    ],
)
def test_posteriors_that_do_not_fit_together_are_refused(
    change: dict[str, Any], match: str, fuzzer: Fuzzer, tmp_path: Path
) -> None:
    path = tmp_path / "m.bagwise"
    _, state = state_of(fuzzer, "probit", path)
    posterior = state["fitted"]["posterior_"]
    fields = {n: getattr(posterior, n) for n in type(posterior).__dataclass_fields__}
    with pytest.raises(ValueError, match=match):
        type(posterior)(**fields | change)


# --- Pages --------------------------------------------------------------------------------------

HOSTILE_TEXT = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "</script><script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "<!--<script>",
            "{{ 7 * 7 }}{% raw %}",
            "' onclick='alert(1)",
            "]]>&lt;\u2028\u2029",
            "javascript:alert(1)",
            "\\u003c/script\\u003e",
            "\x00\x0b\x1f\ufffe",
        ]
    ),
).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))


class Skeleton(HTMLParser):
    """Tags and attribute names of a page in their order, and the texts in between."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", ()))

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment", ()))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def skeleton(page: str) -> Skeleton:
    found = Skeleton()
    found.feed(page)
    return found


PAGE_BAGS = small_bags()
PAGE_MODEL = bw.VGPMIL(n_inducing=4, max_iter=5, learn_hyperparameters=False, random_state=0)


@pytest.fixture(scope="module")
def plain_page() -> Skeleton:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PAGE_MODEL.fit(PAGE_BAGS)
    return skeleton(page_with("bag", "title", "data"))


def page_with(bag: str, title: str, data: str) -> str:
    ids = [f"{bag}{b}" for b in range(12)]
    bags = bw.Bags.from_list(
        [PAGE_BAGS[b].X for b in range(12)],
        PAGE_BAGS.y,
        ids=np.array(ids),
        feature_names=PAGE_BAGS.feature_names,
    )
    return build_report(PAGE_MODEL, bags, title=title, data_name=data, command=f"run {data}")


@given(HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT)
def test_texts_stay_texts_in_pages(plain_page: Skeleton, bag: str, title: str, data: str) -> None:
    # numpy drops NULs at the end of a text: ids end in a number.
    page = page_with(bag, f"t{title}", f"d{data}")
    found = skeleton(page)
    assert found.tags == plain_page.tags
    content = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert content and json.loads(content[1])["bags"]["id"][3] == f"{bag}3"
    assert json.loads(content[1])["title"] == f"t{title}"


def test_class_names_and_metadata_stay_texts_in_pages() -> None:
    evil = "</b><script>alert(1)</script>"
    bags = PAGE_BAGS.with_labels(np.where(PAGE_BAGS.y == 1, f"z{evil}", f"a{evil}"))
    model = bw.VGPMIL(n_inducing=4, learn_hyperparameters=False, random_state=0).fit(
        bags, positive=f"z{evil}"
    )
    model.metadata_ = {"command": evil, "data": {"name": evil}, "bagwise": evil}
    found = skeleton(build_report(model, bags, command=evil))
    assert sum(tag == "script" for tag, _ in found.tags) == 2
    assert any(evil in text for text in found.texts)


# --- Spreadsheets -------------------------------------------------------------------------------

STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
CELLS = st.one_of(
    st.text(
        st.characters(exclude_categories=["Cs", "Cf"], exclude_characters="\x00\ufffe"), max_size=12
    ),
    st.builds(
        "".join, st.tuples(st.sampled_from(STARTS), st.sampled_from(["1+1", "cmd|' /C'!A0"]))
    ),
)


def runs(cell: str) -> bool:
    """Whether a spreadsheet may take a cell for a formula: it begins like one and is no number."""
    number = re.fullmatch(r"[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", cell, re.ASCII)
    return cell.startswith(STARTS) and number is None


@given(st.lists(CELLS, min_size=1, max_size=5), CELLS, st.sampled_from([".csv", ".tsv"]))
def test_no_cell_of_text_begins_like_a_formula(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str], column: str, ending: str
) -> None:
    path = tmp_path_factory.mktemp("tables") / f"t{ending}"
    frame = pd.DataFrame({f"{column}": cells, "p": -0.5})
    write_table(frame, path)
    text = path.read_bytes().decode("utf-8")
    rows = list(
        csv.reader(io.StringIO(text, newline=""), delimiter="\t" if ".t" in ending else ",")
    )
    found = [rows[0][0], *(row[0] for row in rows[1:] if row)]
    assert not any(runs(cell) for cell in found)
    assert [row[1] for row in rows[1:] if row] == ["-0.5"] * len(cells)  # numbers stay numbers
    for before, after in zip(cells, found[1:], strict=True):
        assert after == (f"'{before}" if runs(before) else before)


@pytest.mark.parametrize("mark", ["\ufeff", "\u2060", "\xad", "\u200e", "\u202e", "\u2064"])
def test_invisible_characters_hide_no_formula(mark: str, tmp_path: Path) -> None:
    write_table(pd.DataFrame({"bag": [f"{mark}{mark}=1+1", f"{mark}a"]}), tmp_path / "t.csv")
    assert pd.read_csv(tmp_path / "t.csv")["bag"].tolist() == [f"'{mark}{mark}=1+1", f"{mark}a"]


def test_carriage_returns_start_no_row(tmp_path: Path) -> None:
    write_table(pd.DataFrame({"bag": ["a\r=1+1", "b"], "p": [0.5, 1.0]}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes() == b'"bag","p"\n"a\r=1+1",0.5\n"b",1.0\n'


def test_parquet_keeps_ids_as_they_are(tmp_path: Path) -> None:
    ids = ["=1+1", "@a", "-3", "'=1"]
    write_table(pd.DataFrame({"bag": ids}), tmp_path / "t.parquet")
    assert pd.read_parquet(tmp_path / "t.parquet")["bag"].tolist() == ids


def test_benchmark_tables_hold_no_formulas(tmp_path: Path) -> None:
    rows = [{"set": "=HYPERLINK(1)", "model": "@x", "roc_auc": -0.25, "only here": None}]
    path = write_results(rows, tmp_path)[0]
    found = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
    assert found[1] == ["'=HYPERLINK(1)", "'@x", "-0.25", ""]
