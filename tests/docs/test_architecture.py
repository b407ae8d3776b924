"""The page about the architecture tells what the code does: its picture, and the way of a fit."""

import re
import sys
from pathlib import Path

import pytest

import crossed_files

DOCS = Path(__file__).resolve().parents[2] / "docs"
SECTION = re.compile(r"^## The way of a (\w+)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
WAYS = dict(SECTION.findall((DOCS / "architecture.md").read_text("utf-8")))
TRACES = {"fit": crossed_files.files_of_fit, "prediction": crossed_files.files_of_predict}


@pytest.mark.parametrize("way", WAYS)
def test_cited_files_are_gone_through(way: str) -> None:
    seen = set(TRACES[way]())
    cited = set(re.findall(r"`([\w/]+\.py)`", WAYS[way]))
    assert cited <= seen, f"{sorted(cited - seen)} have no part in it"


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])
    import draw_house

    return draw_house


def test_the_picture_has_every_room(house) -> None:
    rooms = [room for layer in house.layers() for room in layer]
    picture = house.drawn({"fit": {"models", "bags"}, "predict": {"core.links", "bags"}})
    for room in rooms:
        assert f">{room}</text>" in picture and len(house.caption(room)) > 10
    assert picture.count('class="dot"') == 4


def test_rooms_of_files(house) -> None:
    assert house.room_of("core/inference/loop.py") == "core.inference"
    assert house.room_of("kernels.py") == "kernels"
