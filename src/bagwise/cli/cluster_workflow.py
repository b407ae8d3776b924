"""What the command line does on a Dask cluster: Parquet files to a model, and to predictions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.cli.label_leaks import suspects
from bagwise.cli.workflow import (
    Fitted,
    build_model,
    fit_metadata,
    remembered,
)
from bagwise.core.inference.monitor import Callback
from bagwise.distributed import DaskBags, PartError
from bagwise.distributed.cluster import Cluster
from bagwise.io.class_labels import choose_classes, class_names
from bagwise.io.columns import Columns
from bagwise.io.requirements import require
from bagwise.io.streams import TableError
from bagwise.io.tables import read_table

PATIENCE = 10  # seconds in which a scheduler must answer and have a worker


@contextmanager
def cluster_client(address: str) -> Iterator[Any]:
    """A client of the Dask scheduler at an address; an error if it does not answer."""
    if address.startswith("-") or not address:
        raise ValueError(
            f"--scheduler takes an address such as tcp://host:8786, got {address!r}; is a variable "
            "of the shell empty?"
        )
    dask = require("distributed", what="--scheduler", extra="dask")
    try:
        client = dask.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"no Dask scheduler answered at {address} within {PATIENCE} s ({error}); give the "
            "address that `dask scheduler` prints, such as tcp://host:8786"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise ConnectionError(
                f"the Dask scheduler at {address} has no workers; start some with "
                f"`dask worker {address}`"
            ) from error
        yield client


@dataclass(frozen=True)
class Parts:
    """Files whose bags stay with the workers."""

    bags: Bags
    columns: Columns
    notes: tuple[str, ...]
    name: str


def read_parts(paths: Sequence[str], columns: Columns, client: Any) -> Parts:
    """Have workers read Parquet files; columns are guessed from the first, for all of them."""
    check_parquet(paths)
    with told():
        first = Cluster(client, (paths[0],))
        ((found, features, notes),) = first.gather([first.submit(_look, paths[0], columns)])
        read = partial(_read, columns=found, features=features)
        bags = DaskBags.from_files(paths, read).connect(client)
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    name = Path(paths[0]).name + more
    if bags.y is None:
        raise TableError(
            f"{name} have no column that looks like bag labels; name it with --label COLUMN"
        )
    return Parts(bags, found, notes, name)


def fit_parts(
    parts: Parts,
    *,
    model: str = "probit",
    positive: str | None = None,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    command: str | None = None,
    callbacks: Sequence[Callback] = (),
) -> Fitted:
    """Fit a model on the workers; as `workflow.fit_table`, without bags held out."""
    assert parts.bags.y is not None
    estimator = build_model(model, seed, settings or {})
    classes, note = choose_classes(parts.bags.y, positive)
    bags = parts.bags.with_labels((parts.bags.y == classes[1]).astype(np.int64))
    with told():
        estimator.fit(bags, callbacks=callbacks)
        warnings = suspects(bags)
    origin = fit_metadata(parts.columns, parts.name, bags, None, classes, seed, command)
    estimator.metadata_ = origin
    return Fitted(estimator, None, (*(() if note is None else (note,)), *warnings))


def predict_parts(
    model: Any, paths: Sequence[str], columns: Columns, client: Any, folder: str, *, instances: bool
) -> list[Path]:
    """Have workers write the predictions for each file to `folder/part-00000.parquet`, ..."""
    check_parquet(paths)
    names = getattr(model, "feature_names_in_", None)
    read = partial(
        _read,
        columns=columns,
        features=None if names is None else [str(n) for n in names],
        skip=("label", "instance_label"),
        remembered=remembered(model),
    )
    model.classes_ = np.asarray(class_names(model))  # what the columns p_... are called
    with told():
        parts = DaskBags.from_files(paths, read)
        return list(parts.predict(model, client, folder, instances=instances))


def check_parquet(paths: Sequence[str]) -> None:
    """Raise unless all files are there and of the one format that is read in parts."""
    for path in paths:
        if not path.endswith((".parquet", ".pq")):
            raise TableError(
                f"--scheduler reads Parquet files, one per part, got {path!r}; write the table as "
                "Parquet files with whole bags in each, or leave --scheduler out"
            )
        if not os.path.isfile(path):
            raise FileNotFoundError(f"no file {path}; workers read files under the same paths")


@contextmanager
def told() -> Iterator[None]:
    """A part that fails is an error of the user's files."""
    try:
        yield
    except PartError as error:
        raise TableError(str(error)) from error


# --- What runs on workers -----------------------------------------------------------------------


def _look(path: str, columns: Columns) -> tuple[Columns, list[str], tuple[str, ...]]:
    """Columns, features and notes of a file."""
    table = read_table(path, columns)
    assert table.bags.feature_names is not None
    return replace(table.columns, features=()), list(table.bags.feature_names), table.notes


def _read(path: str, columns: Columns, features: Sequence[str] | None, **more: Any) -> Bags:
    bags = read_table(path, columns, feature_names=features, **more).bags
    # A model without names would warn about those of the table.
    return bags if features is not None else bags.with_X(bags.X)
