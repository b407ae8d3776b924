"""What a model file says of its origin is checked, and what is printed commands no terminal."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.files.modelfile import ModelFileError
from bagwise.models.metadata import id_hashes
from command_line import good, refused, run
from toy_bags import separable_bags

WRONG: list[tuple[str, Any]] = [
    ("columns", [1]),
    ("columns", {"bag": 3}),
    ("columns", {"coords": [1, 2]}),
    ("columns", {"coords": "xy"}),
    ("classes", 7),
    ("classes", ["a"]),
    ("classes", ["a", "a"]),
    ("classes", [["a"], ["b"]]),
    ("held_out", 5),
    ("held_out", [[1]]),
    ("seed", "three"),
    ("command", ["rm"]),
    ("bagwise", 3),
    ("data", "table"),
    ("data", {"name": 3}),
    ("data", {"bags": "many"}),
    ("trained_bags", np.zeros((2, 2))),
    ("trained_bags", ["a"]),
    ("trained_groups", 3.5),
]


@pytest.fixture(scope="module")
def model() -> bw.MIRVM:
    return bw.MIRVM().fit(separable_bags(12, 3, 0))


@pytest.mark.parametrize("name, value", WRONG)
def test_entries_of_another_kind_are_refused(
    model: bw.MIRVM, tmp_path: Path, name: str, value: Any
) -> None:
    model.metadata_ = {name: value}
    model.save(tmp_path / "m.bagwise")
    with pytest.raises(ModelFileError, match=f"metadata: {name} must be"):
        bw.load(tmp_path / "m.bagwise")
    assert "Traceback" not in refused("inspect", tmp_path / "m.bagwise")


def test_entries_of_the_user_stay(model: bw.MIRVM, tmp_path: Path) -> None:
    model.metadata_ = {"study": {"site": "north", "n": 3}, "classes": ["no", "yes"]}
    model.save(tmp_path / "m.bagwise")
    assert bw.load(tmp_path / "m.bagwise").metadata_ == model.metadata_


def test_escape_sequences_are_not_printed(model: bw.MIRVM, tmp_path: Path) -> None:
    model.metadata_ = {"command": "\x1b]0;title\x07\x1b[31mred", "classes": ["\x1b[5m", "b"]}
    model.save(tmp_path / "m.bagwise")
    shown = good("inspect", tmp_path / "m.bagwise")
    assert "\x1b" not in shown and "\x07" not in shown and "red" in shown


def test_class_names_that_look_like_markup(tmp_path: Path) -> None:
    frame = separable_bags(24, 3, 0).to_frame()
    frame["label"] = np.where(frame["label"] == 1, "[/b]", "[red]")
    table, model = tmp_path / "t.csv", tmp_path / "m.bagwise"
    frame.to_csv(table, index=False)
    good("fit", table, "--positive", "[/b]", "-o", model, "--model", "mirvm")
    shown = run("evaluate", model, table)
    assert shown.exit_code == 0 and "[/b]" in shown.stdout


def test_labels_of_other_classes_are_refused(tmp_path: Path) -> None:
    """1 is the positive label of the one table and the negative one of the other."""
    frame = separable_bags(24, 3, 0).to_frame()
    table, shifted, model = (tmp_path / name for name in ("t.csv", "u.csv", "m.bagwise"))
    frame.to_csv(table, index=False)
    frame.assign(label=frame["label"] + 1).to_csv(shifted, index=False)
    good("fit", shifted, "-o", model, "--model", "mirvm")
    for command in ("evaluate", "report"):
        said = refused(command, model, table)
        assert "the model's 1 and 2; these bags have 0, 1" in said


def test_ids_need_not_be_utf_8() -> None:
    """Slides are called as their files, whose names may hold any bytes."""
    found = id_hashes(np.array(["caf\udce9", "caf\udce8", "café"], dtype=object))
    assert len(set(found.tolist())) == 3
