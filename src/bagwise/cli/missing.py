"""What `--missing` says of features without a value: fill in medians, drop the row, or stop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.bags.missing import complete_instances, filled, medians, missing_cells, refuse_missing
from bagwise.bags.rows import column_range, is_elsewhere
from bagwise.core.files.modelfile import ModelFileError
from bagwise.io.tables import Table

REMEDY = (
    "fill in the medians of the training bags with --missing median, or leave such rows out with "
    "--missing drop"
)


def for_fit(table: Table, missing: str | None) -> tuple[Table, list[str]]:
    """A table to fit whose missing values may be filled later; without such rows for "drop"."""
    bags, way = table.bags, missing or "error"
    if is_elsewhere(bags.X):  # rows of a cluster, which the model looks at itself
        return table, []
    column = _first_incomplete(bags)
    if column is None or way == "median":
        return table, []
    if way == "error":
        refuse_missing(bags, column, "a model", REMEDY)
    return _without_rows(table)


def fill_to_fit(
    train: Bags, test: Bags | None, missing: str | None
) -> tuple[Bags, Bags | None, dict[str, Any], list[str]]:
    """Both parts with the medians of the first, what the model keeps of that, and a note."""
    if missing != "median":
        return train, test, {} if missing is None else {"missing": missing}, []
    values = medians(train)
    kept = {"missing": "median", "medians": values}
    note = _told(train, "filled in with medians of the training bags, which the model keeps")
    return filled(train, values), None if test is None else filled(test, values), kept, note


def for_model(table: Table, model: Any, missing: str | None) -> Table:
    """A table for a fitted model: by default what was done with missing values in its fit."""
    known = getattr(model, "metadata_", {})
    way = missing or known.get("missing") or "error"
    column = _first_incomplete(table.bags)
    if column is None:
        return table
    if way == "error":
        refuse_missing(table.bags, column, type(model).__name__, REMEDY)
    if way == "drop":
        table, notes = _without_rows(table)
        return replace(table, notes=(*table.notes, *notes))
    notes = _told(table.bags, "filled in with medians of the bags that the model was fitted on")
    bags = filled(table.bags, medians_of(model))
    return replace(table, bags=bags, notes=(*table.notes, *notes))


def medians_of(model: Any) -> NDArray[np.float64]:
    """(D,) medians that a model keeps."""
    values = getattr(model, "metadata_", {}).get("medians")
    if values is None:
        raise ValueError(
            "this model keeps no medians, since it was fitted without --missing median; fit it "
            "again with that, or leave rows with missing values out with --missing drop"
        )
    if len(values) != model.n_features_in_:
        raise ModelFileError(
            f"the model has {model.n_features_in_} features, but keeps {len(values)} medians"
        )
    return np.asarray(values)


def _first_incomplete(bags: Bags) -> int | None:
    """The first feature that lacks a value somewhere."""
    lacking = np.isnan(column_range(bags.X)[0])
    return int(np.argmax(lacking)) if lacking.any() else None


def _without_rows(table: Table) -> tuple[Table, list[str]]:
    kept = complete_instances(table.bags)
    n = table.bags.n_instances
    note = f"missing values: {n - kept.n_instances} of {n} rows were left out"
    return replace(table, bags=kept), [note]


def _told(bags: Bags, done: str) -> list[str]:
    counts = missing_cells(bags)
    if not counts.any():
        return []
    n, D = bags.n_instances, bags.n_features
    return [
        f"missing values: {counts.sum()} of {n * D} in {np.sum(counts > 0)} of {D} features were "
        f"{done}"
    ]
