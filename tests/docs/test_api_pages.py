"""The API pages have every public name, and every argument of every estimator."""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sklearn.base import BaseEstimator

import bagwise

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROOMS = [bagwise, *(v for n in bagwise.__all__ if inspect.ismodule(v := getattr(bagwise, n)))]


def public(room: ModuleType) -> dict[str, Any]:
    """Classes and functions of a room that users may call, by their names."""
    names = getattr(room, "__all__", None) or [
        n for n, v in vars(room).items() if getattr(v, "__module__", "") == room.__name__
    ]
    values = {n: getattr(room, n) for n in names if not n.startswith("_")}
    return {n: v for n, v in values.items() if inspect.isclass(v) or inspect.isfunction(v)}


def listed() -> list[str]:
    return re.findall(r"^   (bagwise\.\S+)$", (DOCS / "api.rst").read_text("utf-8"), re.MULTILINE)


def resolve(name: str) -> Any:
    room, _, last = name.rpartition(".")
    return getattr(import_module(room), last)


ESTIMATORS = {
    value.__name__: value
    for room in ROOMS
    for value in public(room).values()
    if inspect.isclass(value) and issubclass(value, BaseEstimator)
}


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_every_public_name_is_listed(room: ModuleType) -> None:
    known = [resolve(name) for name in listed()]
    missing = [n for n, v in public(room).items() if not any(v is other for other in known)]
    assert not missing, f"add to docs/api.rst what {room.__name__} has: {missing}"


def test_no_name_is_listed_twice() -> None:
    assert len(set(listed())) == len(listed())


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What makes the lists of arguments of the pages."""
    monkeypatch.syspath_prepend(str(DOCS))
    yield import_module("parameters")
    sys.modules.pop("parameters")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_pages_explain_every_argument(name: str, pages: Any) -> None:
    model = ESTIMATORS[name]
    entries = pages.all_parameters(model)
    named = [one for names in entries for one in names.split(", ")]
    assert sorted(named) == sorted(inspect.signature(model).parameters)
    assert not [names for names, text in entries.items() if not text], "say what they are"


def test_pages_show_all_arguments_and_their_defaults(pages: Any) -> None:
    model = bagwise.ProbitVGPMIL
    lines = inspect.cleandoc(model.__doc__ or "").splitlines()
    pages.rewrite(None, "class", "bagwise.ProbitVGPMIL", model, None, lines)
    assert lines.count("Parameters") == 1
    at = lines.index("n_inducing : default 200")  # of VGPMIL
    assert lines[at + 1].startswith("    number of inducing points")
    assert not any("Parameters are those of" in line for line in lines)
    assert "rule : default 'at_least_one'" in lines


def test_wrapped_entries_are_one_paragraph(pages: Any) -> None:
    lines = ["Do it.", "", "Parameters", "----------", "a, b : two", "    lines", "", ">>> 1", "1"]
    pages.rewrite(None, "function", "f", len, None, lines)
    assert lines[4:7] == ["a, b", "    two", "    lines"]
    assert lines.index("Examples") < lines.index(">>> 1")


def methods(model: Any) -> list[str]:
    found = inspect.getmembers(model, inspect.isfunction)
    own = [(n, f) for n, f in found if f.__module__.startswith("bagwise")]
    return [n for n, _ in own if not n.startswith("_") and n not in ("set_output",)]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_pages_explain_every_argument_of_methods(name: str, pages: Any) -> None:
    model = ESTIMATORS[name]
    for method in methods(model):
        entries = pages.method_parameters(model, method)
        signature = [*inspect.signature(getattr(model, method)).parameters][1:]
        assert [*entries] == signature, f"say in the docstring of {name}.{method} what these are"
        assert all(text and text[0] for text in entries.values())


def test_fit_of_the_default_model_has_its_list(pages: Any) -> None:
    model = bagwise.ProbitVGPMIL
    lines = inspect.cleandoc(model.fit.__doc__ or "").splitlines()
    pages.rewrite(None, "method", "bagwise.ProbitVGPMIL.fit", model.fit, None, lines)
    assert lines[0] == "Fit from bag labels, as `VGPMIL.fit` does."
    assert lines.count("Parameters") == 1
    at = lines.index("checkpoint_minutes : float, default 5.0")
    assert lines[at + 1] == "    how often a checkpoint is written."
    assert any(line.startswith("    a file to which the state of the fit") for line in lines)
    lines = inspect.cleandoc(model.novelty.__doc__ or "").splitlines()
    pages.rewrite(None, "method", "bagwise.ProbitVGPMIL.novelty", model.novelty, None, lines)
    assert lines.index("Parameters") < lines.index("Returns") < lines.index("Examples")
