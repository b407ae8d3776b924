"""Labels of instances from exports of Label Studio."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.io import AnnotationError, read_label_studio

CLASSES = {"Tumor": 1, "Normal": 0, "Unclear": None}


def some_bags() -> bw.Bags:
    ids = [["a", "b"], ["a"]]
    return bw.Bags.from_list([np.eye(2), np.ones((1, 2))], ids=["s1", "s2"], instance_ids=ids)


def task(bag: Any, instance: Any, *choices: str, cancelled: bool = False) -> dict[str, Any]:
    """A task as Label Studio exports it, with one annotation for each choice."""
    result = [
        {"id": "x", "type": "choices", "from_name": "c", "value": {"choices": [c]}} for c in choices
    ]
    annotations = [{"id": 1, "result": [r], "was_cancelled": cancelled} for r in result]
    data = {"bag_id": bag, "instance_id": instance, "image": "tile.png"}
    return {"id": 7, "data": data, "annotations": annotations, "predictions": []}


def read(folder: Path, tasks: Any, bags: bw.Bags | None = None, **more: Any) -> Any:
    path = folder / "export.json"
    path.write_text(tasks if isinstance(tasks, str) else json.dumps(tasks))
    more.setdefault("classes", CLASSES)
    return read_label_studio(path, some_bags() if bags is None else bags, **more).instance_labels


def test_choices_become_labels_of_their_instances(tmp_path: Path) -> None:
    tasks = [task("s2", "a", "Tumor"), task("s1", "b", "Normal"), task("s1", "a", "Unclear")]
    np.testing.assert_array_equal(read(tmp_path, tasks), [np.nan, 0, 1])


def test_what_was_cancelled_or_not_annotated_is_left_out(tmp_path: Path) -> None:
    tasks = [task("s2", "a", "Tumor", cancelled=True), task("s1", "b")]
    np.testing.assert_array_equal(read(tmp_path, tasks), [np.nan] * 3)


def test_labels_that_are_known_stay_where_nobody_says_otherwise(tmp_path: Path) -> None:
    bags = some_bags().with_instance_labels([0, 1, 0])
    np.testing.assert_array_equal(read(tmp_path, [task("s2", "a", "Tumor")], bags), [0, 1, 1])


def test_ids_may_be_numbers_and_have_other_names(tmp_path: Path) -> None:
    bags = bw.Bags.from_list([np.eye(2)], ids=[3], instance_ids=[[10, 11]])
    tasks = [
        {
            "data": {"scan": 3, "slice": "11"},
            **{k: v for k, v in task(0, 0, "Tumor").items() if k != "data"},
        }
    ]
    found = read(tmp_path, tasks, bags, bag="scan", instance="slice")
    np.testing.assert_array_equal(found, [np.nan, 1])


BAD: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is no JSON"),
    "deep": ("[" * 100_000, "is no JSON"),
    "JSON-MIN": ([{"bag_id": "s1", "choice": "Tumor"}], "choose JSON, not JSON-MIN"),
    "a dict": ({"tasks": []}, "must be a list of tasks"),
    "unknown choice": ([task("s1", "a", "Tumour")], "what the choice 'Tumour' means"),
    "unknown instance": ([task("s1", "z", "Tumor")], "no instance 'z' in a bag 's1'"),
    "no id": ([task(None, "a", "Tumor")], "its data has no 'bag_id'"),
    "two opinions": ([task("s1", "a", "Tumor", "Normal")], "annotators differ"),
    "annotations": ([{"data": {}, "annotations": {"result": 1}}], "are no list"),
    "two choices": (
        [{"data": {}, "annotations": [{"result": [{"value": {"choices": ["A", "B"]}}]}]}],
        "one choice per instance is read",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_other_files_are_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    tasks, message = BAD[kind]
    with pytest.raises(AnnotationError, match=message) as error:
        read(tmp_path, tasks)
    assert "\n" not in str(error.value)


def test_what_cannot_be_matched_is_refused(tmp_path: Path) -> None:
    bare = bw.Bags.from_list([np.eye(2)])
    with pytest.raises(ValueError, match="no instance_ids"):
        read(tmp_path, [], bare)
    with pytest.raises(ValueError, match="must be distinct"):
        read(tmp_path, [], bw.Bags.from_list([np.eye(2)], instance_ids=[["a", "a"]]))
    with pytest.raises(ValueError, match="classes must say"):
        read(tmp_path, [], classes={"Tumor": 2})
