"""`fit` and `predict` with --scheduler: several Parquet files, read by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bagwise.cli.errors import progress, say

if TYPE_CHECKING:
    from bagwise.cli.workflow import Fitted
    from bagwise.io.columns import Columns


def one_table(tables: Sequence[str]) -> str:
    """The table of a command without --scheduler."""
    if len(tables) > 1:
        raise ValueError(
            f"one table is read at a time, got {len(tables)}; join them to one file, or give a "
            "Dask cluster that reads them with --scheduler ADDRESS"
        )
    return tables[0]


def refuse(**options: Any) -> None:
    """Raise where an option that works on one table was given beside --scheduler."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"--{name.replace('_', '-')} is for one table on this machine; leave it out, or "
                "--scheduler"
            )


def fit_on_cluster(
    paths: Sequence[str], asked: Columns, scheduler: str, quiet: bool, **settings: Any
) -> Fitted:
    """Fit a model to Parquet files on the workers of a scheduler."""
    from bagwise.cli.cluster_workflow import cluster_client, fit_parts, read_parts
    from bagwise.models.progress import Progress

    with cluster_client(scheduler) as client:
        with progress("reading", quiet):
            parts = read_parts(paths, asked, client)
        if not quiet:
            for note in parts.notes:
                say(note)
            say(f"read {parts.name}: {parts.bags!r}")
        return fit_parts(parts, callbacks=[] if quiet else [Progress()], **settings)


def predict_on_cluster(
    model: str,
    paths: Sequence[str],
    asked: Columns,
    scheduler: str,
    folder: str,
    *,
    instances: bool,
) -> dict[str, Any]:
    """Predict Parquet files on the workers of a scheduler; what was written where."""
    from bagwise.cli.cluster_workflow import cluster_client, predict_parts
    from bagwise.models.persistence import load_two_class

    fitted = load_two_class(model)
    with cluster_client(scheduler) as client:
        written = predict_parts(fitted, paths, asked, client, folder, instances=instances)
    return {"output": folder, "files": [str(p) for p in written]}
