"""Labels of instances from Label Studio: its JSON export, one task per instance."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.core.files.reading import check_regular
from bagwise.io.annotations import AnnotationError

_MOST_BYTES = 2**30


def read_label_studio(
    path: str | os.PathLike[str],
    bags: Bags,
    *,
    classes: Mapping[str, int | None],
    bag: str = "bag_id",
    instance: str = "instance_id",
) -> Bags:
    """Bags with the labels that annotators gave their instances in Label Studio.

    `path` is an export in the format JSON (JSON-MIN does not tell what was cancelled). Each task
    is an instance, whose `data` has the id of its bag and its own, as `bags.ids` and
    `bags.instance_ids` have them; a choice is its label. Tasks without an annotation, cancelled
    annotations and predictions are left out; instances without a task keep the label they have.

    Parameters
    ----------
    path : the file.
    bags : Bags with `instance_ids`.
    classes : what each choice means: 1, 0, or None to leave it out, {"Tumor": 1, "Normal": 0}.
    bag, instance : names of the ids in the `data` of a task.

    >>> import tempfile
    >>> bags = Bags.from_list([[[1.0], [2.0]]], ids=["s1"], instance_ids=["a", "b"])
    >>> task = {"data": {"bag_id": "s1", "instance_id": "b"}, "annotations": [
    ...     {"result": [{"type": "choices", "value": {"choices": ["Tumor"]}}]}]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "export.json"
    ...     _ = file.write_text(json.dumps([task]))
    ...     read_label_studio(file, bags, classes={"Tumor": 1}).instance_labels
    array([nan,  1.])
    """
    if bags.instance_ids is None:
        raise ValueError("labels are matched by ids, but the bags have no instance_ids; give them")
    _check_classes(classes)
    rows = {
        (str(bags.ids[b]), str(i)): row
        for row, (b, i) in enumerate(zip(bags.bag_index, bags.instance_ids, strict=True))
    }
    if len(rows) < bags.n_instances:
        raise ValueError("ids must be distinct: two instances have the same bag id and instance id")
    known = np.full(bags.n_instances, np.nan)
    if bags.instance_labels is not None:
        known = np.array(bags.instance_labels)
    told: dict[int, int] = {}
    for number, task in enumerate(_tasks(Path(path)), start=1):
        where = f"{path}, task {number}"
        for label in _labels(task, classes, where):
            row = _row(task, bag, instance, rows, where)
            if told.setdefault(row, label) != label:
                raise AnnotationError(f"{where}: annotators differ on this instance; settle it")
            known[row] = label
    return bags.with_instance_labels(known)


def _check_classes(classes: Any) -> None:
    fits = isinstance(classes, Mapping) and classes
    if not fits or not all(value in (0, 1, None) for value in classes.values()):
        raise ValueError(
            f"classes must say what choices mean, e.g. {{'Tumor': 1, 'Normal': 0}}; got {classes!r}"
        )


def _tasks(path: Path) -> list[dict[str, Any]]:
    check_regular(path, AnnotationError)
    if path.stat().st_size > _MOST_BYTES:
        raise AnnotationError(f"{path} has more than {_MOST_BYTES} bytes; export it in parts")
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise AnnotationError(f"{path} is no JSON ({error}); export it again") from None
    if not isinstance(found, list) or not all(
        isinstance(t, dict) and isinstance(t.get("data"), dict) for t in found
    ):
        raise AnnotationError(
            f"{path} is no export of Label Studio: it must be a list of tasks with data; choose "
            "JSON, not JSON-MIN or CSV, when you export"
        )
    return found


def _labels(task: dict[str, Any], classes: Mapping[str, int | None], where: str) -> list[int]:
    """The labels that annotators chose; none where nobody has."""
    found = []
    for annotation in _list(task.get("annotations", []), where):
        if annotation.get("was_cancelled"):
            continue
        for result in _list(annotation.get("result", []), where):
            value = result.get("value")
            chosen = value.get("choices", []) if isinstance(value, dict) else []
            if not isinstance(chosen, list) or len(chosen) > 1:
                raise AnnotationError(
                    f"{where}: one choice per instance is read; got {chosen!r:.80}"
                )
            for name in chosen:
                if not isinstance(name, str) or name not in classes:
                    raise AnnotationError(
                        f"{where}: classes do not say what the choice {name!r:.80} means; add it, "
                        "with None to leave it out"
                    )
                found.append(classes[name])
    return [label for label in found if label is not None]


def _list(found: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(f, dict) for f in found):
        raise AnnotationError(f"{where}: its annotations are no list; export it again as JSON")
    return found


def _row(
    task: dict[str, Any], bag: str, instance: str, rows: dict[tuple[str, str], int], where: str
) -> int:
    data = task["data"]
    for name in (bag, instance):
        if not isinstance(data.get(name), str | int):
            raise AnnotationError(
                f"{where}: its data has no {name!r}; it has {sorted(map(str, data))!s:.80}; say "
                "what the ids are called with bag= and instance="
            )
    key = (str(data[bag]), str(data[instance]))
    if key not in rows:
        raise AnnotationError(f"{where}: no instance {key[1]!r:.80} in a bag {key[0]!r:.80}")
    return rows[key]
