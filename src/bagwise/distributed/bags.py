"""`DaskBags`: bags in parts that workers read, to fit and to predict."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.core.parameters import check_integer
from bagwise.core.threads import helped_by
from bagwise.distributed.cluster import Cluster, check_client, same
from bagwise.distributed.predictions import write_parts
from bagwise.distributed.rows import DaskRows
from bagwise.io.requirements import require


class DaskBags:
    """Bags in parts that Dask workers read by themselves; `fit(dask_bags, client=client)`.

    Make it with `from_parquet`, `from_files` or `from_bags`. Nothing is read before a fit.
    """

    def __init__(self, readers: Sequence[Callable[[], Bags]], names: Sequence[str]) -> None:
        self.readers = tuple(readers)
        self.names = tuple(names)
        if not self.readers:
            raise ValueError("DaskBags need at least one part; got none: check the list of files")

    @classmethod
    def from_bags(cls, bags: Bags, n_chunks: int) -> DaskBags:
        """Cut bags that are in memory into `n_chunks` parts of about as many rows.

        The parts are sent to the workers, so this is for data of moderate size; larger data are
        better read where they are needed, see `from_parquet` and `from_files`.

        >>> bags = Bags.from_list([[[1.0]], [[2.0], [3.0]], [[4.0]]], y=[0, 1, 0])
        >>> DaskBags.from_bags(bags, n_chunks=2)
        DaskBags(2 parts: bags 0-1, bags 2-2)
        """
        n = check_integer("n_chunks", n_chunks, at_least=1)
        targets = np.linspace(0, bags.n_instances, n + 1)[1:-1]
        cuts = np.unique([0, *np.searchsorted(bags.offsets, targets), len(bags)]).tolist()
        pairs = list(pairwise(cuts))
        names = [f"bags {a}-{b - 1}" for a, b in pairs]
        return cls([partial(same, bags[a:b]) for a, b in pairs], names)

    @classmethod
    def from_files(
        cls, paths: Sequence[str | os.PathLike[str]], read: Callable[[str], Bags]
    ) -> DaskBags:
        """One part per file; `read` makes Bags of a path, on the worker.

        Every worker must see the files under these paths, and bags must not span files.
        """
        names = [os.fspath(p) for p in paths]
        return cls([partial(read, name) for name in names], names)

    @classmethod
    def from_parquet(cls, paths: Sequence[str | os.PathLike[str]], **columns: Any) -> DaskBags:
        """One part per Parquet file; `columns` are the arguments of `Bags.from_frame`."""
        return cls.from_files(paths, partial(_read_parquet, **columns))

    def __len__(self) -> int:
        return len(self.readers)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError(
            "DaskBags stay with their workers and are no array: use model.fit(bags, client=client) "
            "and bags.predict(model, client, folder)"
        )

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:3]) + (", ..." if len(self) > 3 else "")
        return f"DaskBags({len(self)} parts: {shown})"

    def connect(self, client: Any) -> Bags:
        """Bags whose rows stay with the workers of `client`: labels are here, X is a source."""
        cluster = Cluster(check_client(client), self.names)
        parts = cluster.deal(self.readers)
        found = cluster.gather([cluster.submit(_describe, bags) for bags in parts])
        check_parts(found, self.names)
        rows = DaskRows(
            cluster,
            [cluster.submit(_features, bags) for bags in parts],
            [int(f["sizes"].sum()) for f in found],
            found[0]["n_features"],
            found[0]["dtype"],
        )
        fields = {
            name: None if found[0][name] is None else np.concatenate([f[name] for f in found])
            for name in ("y", "ids", "groups", "instance_labels", "coords")
        }
        sizes = np.concatenate([f["sizes"] for f in found])
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Bags._build(
            X=rows,
            offsets=offsets,
            row_index=np.arange(len(rows)),
            feature_names=found[0]["feature_names"],
            **fields,
        )

    def predict(
        self,
        model: Any,
        client: Any,
        folder: str | os.PathLike[str],
        *,
        instances: bool = False,
        as_frame: bool = False,
    ) -> Any:
        """Write the predictions for each part to `folder/part-00000.parquet` and so on.

        Workers read, predict and write one part at a time; they must see the folder under this
        path, and it must hold no parts yet. Columns are those of `bagwise.io.write_predictions`,
        and values those of `model.predict_proba` on one machine. Rows of instances are counted
        through all parts, for which the parts are read once more. Returns the paths, or with
        `as_frame` a Dask dataframe of the files.
        """
        if as_frame:
            read = require("dask.dataframe", what="a Dask dataframe", extra="dask").read_parquet
        cluster = Cluster(check_client(client), self.names)
        paths = write_parts(cluster, self.readers, model, Path(folder), instances=instances)
        return read([str(p) for p in paths]) if as_frame else paths


def connected(X: Any, client: Any) -> Any:
    """What `fit` was given, with distributed bags read by the workers of `client`."""
    if isinstance(X, DaskBags):
        return X.connect(client)
    if client is not None:
        raise TypeError(
            "client is for bagwise.distributed.DaskBags, e.g. "
            f"DaskBags.from_bags(bags, n_chunks=8), got {type(X).__name__}"
        )
    return X


def helped_by_workers(X: Any) -> AbstractContextManager[None]:
    """A context in which workers that hold rows X, if any do, make calls that can be at once."""
    return helped_by(X.cluster.at_once if isinstance(X, DaskRows) else None)


def check_parts(found: list[dict[str, Any]], names: Sequence[str]) -> None:
    """Raise where parts do not belong together."""
    for part, name in zip(found, names, strict=True):
        for what in ("n_features", "dtype", "feature_names"):
            if part[what] != found[0][what]:
                raise ValueError(
                    f"all parts must have the same {what}: {names[0]} has {found[0][what]!r}, "
                    f"{name} has {part[what]!r}"
                )
        for what in ("y", "instance_labels", "coords", "groups"):
            if (part[what] is None) != (found[0][what] is None):
                raise ValueError(f"{what} must be in all parts or in none; see {names[0]}, {name}")
        for what in ("y", "ids"):
            kinds = [np.asarray(p[what]).dtype.kind for p in (found[0], part)]
            if kinds[0] != kinds[1]:
                raise ValueError(
                    f"{what} must be of one type in all parts, numbers or text; see {names[0]}, "
                    f"{name}"
                )
    ids = np.concatenate([f["ids"] for f in found])
    values, counts = np.unique(ids, return_counts=True)
    if np.any(counts > 1):
        raise ValueError(
            f"bag {values[np.argmax(counts > 1)]!r} is in several parts; a bag must be in one "
            "part as a whole: write each bag to one file"
        )


# --- What runs on workers -----------------------------------------------------------------------


def _read_parquet(path: str, **columns: Any) -> Bags:
    import pandas as pd

    return Bags.from_frame(pd.read_parquet(path), **columns)


def _features(bags: Bags) -> Any:
    return bags.X


def _describe(bags: Bags) -> dict[str, Any]:
    names = ("y", "ids", "groups", "instance_labels", "coords", "sizes", "feature_names")
    described = {name: getattr(bags, name) for name in names}
    return {**described, "n_features": bags.n_features, "dtype": bags.dtype.name}
