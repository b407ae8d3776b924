"""Predictions written in chunks, for bags that do not fit in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.core.files.atomic import atomic_file
from bagwise.core.parameters import check_integer
from bagwise.io.requirements import require


def write_predictions(
    model: Any,
    bags: Bags,
    path: str | os.PathLike[str],
    *,
    instances: bool = False,
    rows_at_once: int = 65_536,
    first_row: int = 0,
    overwrite: bool = False,
) -> None:
    """Write the predictions for bags, or for their instances, to a Parquet file in chunks.

    Columns: `bag_id`, with `instances=True` `row` (that of `bags.X`), then `p_<class>` for each
    class of the model, and `std`; instances that are calibrated also have `low` and `high`, both
    ends of the probability of the positive class. `novelty_p_value` is small for bags, or
    instances, unlike those of the fit, see `ProbitVGPMIL.novelty`. Bags are read and predicted
    about `rows_at_once` instances at a time; the file appears when it is complete. `first_row` is
    the number of the first row of bags that are part of a larger set.

    >>> import tempfile
    >>> import pandas as pd
    >>> from bagwise import VGPMIL
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, _ = make_digit_bags(30, random_state=0)
    >>> model = VGPMIL(n_inducing=20, random_state=0).fit(bags)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_predictions(model, bags, f"{folder}/p.parquet")
    ...     list(pd.read_parquet(f"{folder}/p.parquet").columns)
    ['bag_id', 'p_0', 'p_1', 'std', 'novelty_p_value']
    """
    check_integer("rows_at_once", rows_at_once, at_least=1)
    arrow = require("pyarrow", what="writing Parquet files", extra="io")
    parquet = require("pyarrow.parquet", what="writing Parquet files", extra="io")
    writer = None
    with atomic_file(path, overwrite=overwrite) as file:
        for first, part in _parts(bags, rows_at_once):
            table = arrow.table(_columns(model, part, first_row + first, instances))
            if writer is None:
                writer = parquet.ParquetWriter(file, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def _parts(bags: Bags, rows_at_once: int) -> Iterator[tuple[int, Bags]]:
    """Consecutive bags of about so many rows, each with its first row."""
    first = 0
    while first < len(bags):
        limit = bags.offsets[first] + rows_at_once
        end = max(first + 1, int(np.searchsorted(bags.offsets, limit, side="right")) - 1)
        yield int(bags.offsets[first]), bags[first:end]
        first = end


def _columns(model: Any, part: Bags, first_row: int, instances: bool) -> dict[str, Any]:
    columns: dict[str, Any] = {"bag_id": part.ids}
    if instances:
        columns["bag_id"] = part.ids[part.bag_index]
        columns["row"] = first_row + np.arange(part.n_instances)
    ends = {}
    if instances:
        found = model.predict_all(part)
        p, std = found.p, found.std
        if found.low is not None:
            ends = {"low": found.low, "high": found.high}
    else:
        p, std = model.predict_proba(part, return_std=True)
    columns |= {f"p_{c}": p[:, j] for j, c in enumerate(model.classes_)}
    columns |= {"std": std} | ends
    if getattr(model, "seen_instances_", None) is not None:
        seen = model.seen_instances_.novelty(part)  # no warning: a part is no table
        columns["novelty_p_value"] = seen.instances if instances else seen.bags
    return columns
