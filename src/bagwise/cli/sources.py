"""Where the bags of a command come from: a table, a folder of slide features, or a cluster."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.messages import InputError
from bagwise.bags.missing import filled
from bagwise.cli.own_formats import reader_of
from bagwise.cli.slide_folders import NO_ARRAYS, Arrays, read_slide_folder
from bagwise.distributed import DaskBags, PartError
from bagwise.distributed.cluster import Cluster
from bagwise.io.annotations import annotate_bags
from bagwise.io.class_labels import class_names
from bagwise.io.columns import ROLES, Columns
from bagwise.io.requirements import require
from bagwise.io.streams import Places, TableError
from bagwise.io.tables import Table, read_table
from bagwise.io.torchmil import is_torchmil

PATIENCE = 10  # seconds in which a scheduler must answer and have a worker


def read_to_fit(
    paths: Sequence[str],
    columns: Columns,
    client: Any = None,
    *,
    slides: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    annotations: str | None = None,
    arrays: Arrays = NO_ARRAYS,
    **meaning: Any,
) -> Table:
    """Bags to fit: of one table, of a folder with its CSV, or of files that a cluster reads.

    `annotations` is a folder of instance labels; `meaning` says what they are, see `_annotated`.
    """
    if client is not None:
        table = _read_parts(paths, columns, client)
    elif slides is not None or (os.path.isdir(one_table(paths)) and is_torchmil(paths[0])):
        table = read_slide_folder(one_table(paths), slides, columns, arrays)
    elif (read := reader_of(paths[0], columns)) is not None:
        table = read(paths[0], columns)
    else:
        path = _without_rep(paths[0], columns)
        table = read_table(path, columns, delimiter=delimiter, decimal=decimal)
    if arrays != NO_ARRAYS and not table.images:
        raise ValueError(f"{arrays.named()} are for folders of slide features; leave them out")
    if annotations is not None:
        table = _annotated(table, annotations, **meaning)
    elif meaning.get("classes") or meaning.get("tile_size") is not None:
        raise ValueError("--class and --tile-size are for --annotations; pass their folder too")
    if table.bags.y is None:
        raise TableError(
            f"{table.name}: no column looks like bag labels; name it", argument="label"
        )
    return table


def _annotated(
    table: Table, folder: str, *, classes: dict[str | None, int | None], tile_size: float | None
) -> Table:
    """A table with labels of instances from annotations of its bags."""
    if not classes:
        raise ValueError("say what the classes of --annotations mean, e.g. --class Tumor=1")
    sizes = set(tile_sizes(table, tile_size, "--annotations"))
    if len(table.images) > len(table.bags) or len(sizes) > 1:
        raise ValueError(
            "--annotations are of slides with tiles of one size, each a bag; leave --bag out, or "
            "pass --tile-size"
        )
    bags = annotate_bags(
        table.bags, folder, classes=classes, tile_size=sizes.pop(), coords=tile_corners(table)
    )
    known = np.asarray(bags.instance_labels)
    note = f"annotations in {folder}: {np.sum(known == 1)} positive, {np.sum(known == 0)} negative"
    return replace(table, bags=bags, notes=(*table.notes, note))


def tile_corners(table: Table) -> Any:
    """(N, 2) corners of the tiles in pixels, in the order of the bags."""
    bags = table.bags
    if bags.coords is None or bags.coords.shape[1] != 2:
        raise ValueError("tiles need two coordinates per instance; name them with --coords X Y")
    if any(image.unit == "um" for image in table.images):
        raise ValueError(
            "the coordinates of these slides are in micrometres, and tiles are drawn in pixels; "
            "say how many micrometres a pixel is wide, e.g. --mpp 0.25"
        )
    return bags.coords if table.pixels is None else table.pixels[bags.row_index]


def tile_sizes(table: Table, asked: float | None, what: str) -> list[float]:
    """The edge of the tiles of each image, or of each bag: as asked, or as its file has it."""
    images = [image.tile_size for image in table.images] or [None] * len(table.bags)
    sizes = [asked if asked is not None else size for size in images]
    if None in sizes:
        raise ValueError(
            f"{what} need the size of tiles in pixels, which the files do not say; pass e.g. "
            "--tile-size 256"
        )
    return [float(size) for size in sizes if size is not None]


def _without_rep(path: str, columns: Columns) -> str:
    """The path of a table, of which no representation can be chosen."""
    if columns.rep is not None:
        raise ValueError(
            f"--rep chooses what stands for the cells of .h5ad files and Zarr stores, and {path} "
            "is none; leave it out"
        )
    return path


def one_table(paths: Sequence[str]) -> str:
    """The table of a command without a cluster."""
    if len(paths) > 1:
        raise ValueError(
            f"one table is read at a time, got {len(paths)}; join them to one file, or give a "
            "Dask cluster that reads them with --scheduler ADDRESS"
        )
    return paths[0]


def read_for_model(
    model: Any,
    path: str,
    columns: Columns,
    *,
    slides: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    skip: Sequence[str] = (),
    arrays: Arrays = NO_ARRAYS,
) -> Table:
    """Bags with the features a model was fitted on, found by the names it keeps."""
    how = remembered(model)
    read = None if slides is not None else reader_of(path, columns)
    of_slides = slides is not None or (os.path.isdir(path) and read is None)
    if arrays != NO_ARRAYS and not of_slides:
        raise ValueError(f"{arrays.named()} are for folders of slide features; leave them out")
    if read is not None:
        table = read(path, columns, skip=skip, **how)
        return replace(table, bags=_as_fitted(table.bags, how))
    _without_rep(path, columns)
    if of_slides:
        return read_slide_folder(path, slides, columns, arrays, how["remembered"])
    how |= {"delimiter": delimiter, "decimal": decimal, "keep_text": True}
    table = read_table(path, columns, skip=skip, **how)
    return replace(table, bags=_as_fitted(table.bags, how))


def remembered(model: Any) -> dict[str, Any]:
    """The features of a model, and the columns of the table that it was fitted on."""
    known = getattr(model, "metadata_", {}).get("columns", {})
    columns = {role: known.get(role) for role in ROLES}
    names = getattr(model, "feature_names_in_", None)
    return {
        "feature_names": None if names is None else [str(n) for n in names],
        "remembered": Columns(
            **columns, coords=tuple(known.get("coords", ())), rep=known.get("rep")
        ),
    }


def _as_fitted(bags: Bags, how: dict[str, Any]) -> Bags:
    """Bags of a table; a model without names of features would warn about those of the table."""
    return bags if how["feature_names"] is not None else bags.with_X(bags.X)


@contextmanager
def naming(places: Places) -> Iterator[None]:
    """Errors name rows by their place in the file; a part that fails is an error of its file."""
    try:
        yield
    except InputError as error:
        raise places.error(error) from error
    except PartError as error:
        raise TableError(str(error)) from error


# --- Clusters ------------------------------------------------------------------------------------


def _check_address(address: str) -> None:
    """Raise for what no scheduler can have: Dask would say so after half a minute."""
    match = re.fullmatch(
        r"(?:(tcp|tls|ws|wss|ucx)://)?(?:[^:/\s]+|\[[0-9a-fA-F:]+\]):(\d+)/?", address
    )
    if match is None or not 0 < int(match[2]) < 2**16:
        raise ValueError(
            f"--scheduler takes an address such as tcp://host:8786, got {address!r}; give what "
            "`dask scheduler` prints"
        )
    if match[1] in ("tls", "wss") and not _has_certificates():
        raise ValueError(
            f"{address} asks for an encrypted connection, but Dask knows of no certificates; set "
            "distributed.comm.tls in its configuration, or use the tcp:// address"
        )


def _has_certificates() -> bool:
    import dask

    return dask.config.get("distributed.comm.tls.ca-file", None) is not None


async def _shake_hands(address: str) -> None:
    """Connect once, in limited time: clients of Dask wait for ever for an answer to a greeting."""
    from distributed.comm.core import connect
    from distributed.security import Security

    arguments = Security().get_connection_args("client")
    comm = await asyncio.wait_for(connect(address, timeout=PATIENCE, **arguments), PATIENCE)
    await comm.close()


@contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """A client of the Dask scheduler at an address, which must answer; None without an address."""
    if address is None:
        yield None
        return
    if address.startswith("-") or not address:
        raise ValueError(
            f"--scheduler takes an address such as tcp://host:8786, got {address!r}; is a variable "
            "of the shell empty?"
        )
    dask = require("distributed", what="--scheduler", extra="dask")
    _check_address(address)
    try:
        with ThreadPoolExecutor(1) as apart:  # this thread may run a loop already
            apart.submit(lambda: asyncio.run(_shake_hands(address))).result()
        client = dask.Client(address, timeout=PATIENCE, set_as_default=False)
    except Exception as error:  # whatever listens there may answer anything
        why = " ".join(str(error).split()) or type(error).__name__
        raise ConnectionError(
            f"no Dask scheduler answered at {address} within {PATIENCE} s ({why:.200}); give the "
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


def _read_parts(paths: Sequence[str], columns: Columns, client: Any) -> Table:
    """Files whose bags stay with the workers; columns are guessed from the first, for all."""
    import pandas as pd

    _check_parquet(paths)
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    places = Places(Path(paths[0]).name + more, lines=False)
    with naming(places):
        first = Cluster(client, (paths[0],))
        ((found, features, notes),) = first.gather([first.submit(_look, paths[0], columns)])
        read = partial(_read, columns=found, feature_names=features)
        bags = DaskBags.from_files(paths, read).connect(client)
    return Table(bags, pd.DataFrame(), found, notes, places)


def predict_parts(
    model: Any, paths: Sequence[str], columns: Columns, client: Any, folder: str, *, instances: bool
) -> list[Path]:
    """Have workers write the predictions for each file to `folder/part-00000.parquet`, ..."""
    _check_parquet(paths)
    skip = ("label", "instance_label")
    values = getattr(model, "metadata_", {}).get("medians")
    read = partial(_read, columns=columns, skip=skip, medians=values, **remembered(model))
    parts = DaskBags.from_files(paths, read)
    model.classes_ = np.asarray(class_names(model))  # what the columns p_... are called
    with naming(Places(folder, lines=False)):
        return list(parts.predict(model, client, folder, instances=instances))


def _check_parquet(paths: Sequence[str]) -> None:
    """Raise unless all files are there and of the one format that is read in parts."""
    for path in paths:
        if not path.endswith((".parquet", ".pq")):
            raise TableError(
                f"--scheduler reads Parquet files, one per part, got {path!r}; write the table as "
                "Parquet files with whole bags in each, or leave --scheduler out"
            )
        if not os.path.isfile(path):
            raise FileNotFoundError(f"no file {path}; workers read files under the same paths")


def _look(path: str, columns: Columns) -> tuple[Columns, list[str], tuple[str, ...]]:
    """Columns, features and notes of a file, on a worker."""
    table = read_table(path, columns)
    assert table.bags.feature_names is not None
    return replace(table.columns, features=()), list(table.bags.feature_names), table.notes


def _read(path: str, columns: Columns, medians: Any = None, **how: Any) -> Bags:
    """The bags of a file, on a worker, with a model's medians where values are missing."""
    bags = _as_fitted(read_table(path, columns, **how).bags, how)
    return bags if medians is None else filled(bags, medians)


def load_both(
    model: str,
    table: str,
    asked: Columns,
    threshold: dict[str, float] | None = None,
    missing: str | None = None,
    *,
    several: bool = False,
    **files: Any,
) -> tuple[Table, Any]:
    """The table and the model, the model first: it knows the columns.

    A `threshold` that is asked for is chosen; `missing` is what is done with missing values. Models
    of `several` classes are refused unless said.
    """
    from bagwise.cli.missing import for_model
    from bagwise.models.persistence import load_classes, load_two_class

    fitted = load_classes(model) if several else load_two_class(model)
    if threshold:
        if hasattr(fitted, "estimators_"):
            raise ValueError(f"{model} has several classes, and thresholds are for two")
        fitted.choose_threshold(**threshold)
    data = read_for_model(fitted, table, asked, **files)
    with naming(data.places):
        return for_model(data, fitted, missing), fitted
