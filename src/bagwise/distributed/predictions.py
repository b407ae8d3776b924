"""Predictions of each part, written by the worker that reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.distributed.cluster import Cluster
from bagwise.io.write_predictions import write_predictions

Reader = Callable[[], Bags]


def write_parts(
    cluster: Cluster, readers: Sequence[Reader], model: Any, folder: Path, *, instances: bool
) -> list[Path]:
    """Predict each part on a worker, which writes its file; the files in order."""
    folder.mkdir(parents=True, exist_ok=True)
    if found := sorted(folder.glob("part-*.parquet")):
        raise FileExistsError(
            f"{folder} holds {found[0].name} already, and parts of different predictions must not "
            "be mixed; give another folder, or empty this one"
        )
    paths = [folder / f"part-{i:05d}.parquet" for i in range(len(readers))]
    starts = [0] * len(readers)
    if instances:
        counts = cluster.gather([cluster.submit(_count, read) for read in readers])
        starts = [0, *np.cumsum(counts[:-1]).tolist()]
    futures = [
        cluster.submit(_write, read, model, str(path), instances, start)
        for read, path, start in zip(readers, paths, starts, strict=True)
    ]
    cluster.gather(futures)
    return paths


def _count(read: Reader) -> int:
    return read().n_instances


def _write(read: Reader, model: Any, path: str, instances: bool, first_row: int) -> None:
    # A part that is tried again may have been written: Dask did not hear of it.
    write_predictions(model, read(), path, instances=instances, first_row=first_row, overwrite=True)
