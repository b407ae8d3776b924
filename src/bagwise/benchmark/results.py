"""Results on disk: one file per fold, written at once or not at all, and what they belong to."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path
from typing import Any

from bagwise.core.files.atomic import atomic_file
from bagwise.io.write_tables import safe_cell

MOST_NAMED = 5  # things that a message lists

Row = dict[str, Any]
Key = tuple[str, str, str, int, int]


class ConfigurationError(ValueError):
    """The folder holds results of another configuration."""


class Store:
    """A folder of results.

    `configuration` says what the results depend on: {"seed": 0, "folds": 10, "sets": {name:
    fingerprint}, "models": {name: arguments}}. More sets, models and repeats may be added to a
    folder; anything else that differs from what is there is refused.
    """

    def __init__(self, folder: str | os.PathLike[str], configuration: dict[str, Any]) -> None:
        self.folder = Path(folder)
        (self.folder / "folds").mkdir(parents=True, exist_ok=True)
        path = self.folder / "configuration.json"
        if path.is_file():
            there = json.loads(path.read_text(encoding="utf-8"))
            configuration = _merged(there, configuration, self.folder)
        write_whole(path, json.dumps(configuration, indent=1, sort_keys=True))

    def path(self, key: Key) -> Path:
        """Where the result of a fold is kept."""
        name, target, model, repeat, fold = key
        stem = "__".join(re.sub(r"[^\w.-]+", "-", part) for part in (name, target, model) if part)
        return self.folder / "folds" / f"{stem}__r{repeat}_f{fold}.json"

    def has(self, key: Key) -> bool:
        """Whether a fold is done."""
        return self.path(key).is_file()

    def add(self, key: Key, row: Row) -> None:
        """Keep the result of a fold."""
        write_whole(self.path(key), json.dumps(row))

    def rows(self) -> list[Row]:
        """All results there are, in the order of sets, models, repeats and folds."""
        files = (self.folder / "folds").glob("*.json")
        rows = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        keys = ("set", "target", "model", "repeat", "fold")
        return sorted(rows, key=lambda row: tuple(row[k] for k in keys))


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all, whatever happens meanwhile."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))


def write_tables(rows: list[Row], folder: Path) -> list[Path]:
    """Write results.csv and, where pyarrow is installed, results.parquet; one row per fold."""
    tidy = [{k: v for k, v in row.items() if k != "predictions"} for row in rows]
    columns = list(dict.fromkeys(name for row in tidy for name in row))
    path = folder / "results.csv"
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([safe_cell(name) for name in columns])
    writer.writerows([safe_cell(row.get(name)) for name in columns] for row in tidy)
    write_whole(path, text.getvalue())
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return [path]
    table = pyarrow.table({name: [row.get(name) for row in tidy] for name in columns})
    parquet.write_table(table, folder / "results.parquet")
    return [path, folder / "results.parquet"]


def _merged(there: dict[str, Any], new: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Both configurations in one; raises where they contradict each other."""
    plain = [k for k in new if k not in ("sets", "models")]
    different = [k for k in plain if there.get(k) != new.get(k)]
    merged = dict(new)
    for group in ("sets", "models"):
        both = set(there[group]) & set(new[group])
        different += [
            f"{group[:-1]} {name}"
            for name in sorted(both)
            if there[group][name] != new[group][name]
        ]
        merged[group] = {**there[group], **new[group]}
    if different:
        more = f" and {len(different) - MOST_NAMED} more" if len(different) > MOST_NAMED else ""
        named = ", ".join(different[:MOST_NAMED]) + more
        raise ConfigurationError(
            f"{folder} holds results of another configuration: different {named}; "
            "give another output folder, or delete this one to start anew"
        )
    return merged
