"""The page of all error messages has those of the source, and what is raised is on it."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.io.tables import read_table

DOCS = Path(__file__).resolve().parents[2] / "docs"
PASSED_ON = 0.05  # share of places at most that pass on what was made elsewhere


@pytest.fixture(scope="module")
def listing() -> Any:
    sys.path.insert(0, str(DOCS))
    yield import_module("error_list")
    sys.path.remove(str(DOCS))
    sys.modules.pop("error_list")


def test_every_text_of_the_source_is_listed(listing: Any) -> None:
    found = list(listing.statements())
    without = [where for where, own in found if not own]
    assert len(found) > 900 and len(without) <= PASSED_ON * len(found), without
    text = listing.page(listing.messages())
    for _, own in found:
        for message in own:
            assert listing.entry(message) in text


def test_entries_are_in_order_under_their_topic(listing: Any) -> None:
    text = listing.page(listing.messages())
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    assert parts[1::2] == [t for t in listing.TOPICS if f"## {t}\n" in text]
    tables = dict(zip(parts[1::2], parts[2::2], strict=True))["Tables"]
    assert "has decimal commas in" in tables and "io/tables.py" in tables
    rules = [line for line in tables.splitlines() if line.startswith("`")]
    keys = [listing.letters(rule) for rule in rules]
    assert len(keys) > 20 and keys == sorted(keys)


def table(folder: Path, text: str) -> Any:
    (folder / "t.csv").write_text(text)
    return read_table(folder / "t.csv")


RAISED: dict[str, Callable[[Path], Any]] = {
    "no label": lambda f: bw.VGPMIL().fit(bw.Bags.from_arrays(np.eye(3), [0, 1, 2])),
    "one class": lambda f: bw.VGPMIL().fit(bw.Bags.from_arrays(np.eye(3), [0, 1, 2], y=[1, 1, 1])),
    "widths": lambda f: bw.Bags.from_list([np.zeros((1, 2)), np.zeros((1, 3))]),
    "no bag": lambda f: table(f, "label,a\n1,2\n"),
    "units": lambda f: table(f, "bag,a,b\n1,2 mm,3\n2,3 mm,4\n"),
    "ragged": lambda f: table(f, "bag,a\n1,2,3\n"),
    "no rows": lambda f: table(f, "bag,a\n"),
    "text": lambda f: bw.Bags.from_frame(pd.DataFrame({"b": [1], "t": ["x"]}), bag="b"),
    "no column": lambda f: bw.Bags.from_frame(pd.DataFrame({"b": [1], "f": [1.0]}), bag="c"),
    "seed": lambda f: bw.VGPMIL(n_inducing=0).fit([np.eye(2), np.eye(2)], [0, 1]),
    "metric": lambda f: bw.metrics.roc_auc([1, 1], [0.5, 0.5]),
    "no file": lambda f: bw.load(f / "no.bagwise"),
}


@pytest.mark.parametrize("case", RAISED)
def test_what_is_raised_is_on_the_page(listing: Any, case: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError, OSError)) as told, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        RAISED[case](tmp_path)
    said = " ".join(str(told.value).split())
    if isinstance(told.value, FileNotFoundError):
        return  # of Python, with the name of the file
    assert any(fits(m.text, said) for m in listing.messages()), said


def fits(text: str, said: str) -> bool:
    """Whether the fixed parts of a message follow each other in what was said, from its start."""
    at, parts = 0, re.split(r"‹.*?›", text)
    for part in parts:
        at = said.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return said.startswith(parts[0]) and sum(map(len, parts)) > 20


def test_other_words_fit_no_message(listing: Any) -> None:
    assert not any(fits(m.text, "the moon is made of cheese") for m in listing.messages())
