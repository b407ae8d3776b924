"""What commands print and write: scores, model cards, predictions."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.cli.decisions import Decided
from bagwise.cli.errors import printable, say
from bagwise.cli.prediction_frames import bag_frame, instance_frame
from bagwise.cli.sources import tile_corners, tile_sizes
from bagwise.core.files.atomic import check_result, refuse_existing
from bagwise.io.anndata_files import is_anndata
from bagwise.io.class_labels import class_names
from bagwise.io.frames import with_numbers
from bagwise.io.geojson import write_geojson
from bagwise.io.write_anndata import check_same_kind, write_anndata
from bagwise.io.write_tables import check_writable, has_text, write_table
from bagwise.models._base import Predictions
from bagwise.report.model_card import (
    card_lines,
    describe_fit,
    filled,
    iterations,
    why_not_calibrated,
)

if TYPE_CHECKING:
    from rich.console import Console

    from bagwise.io.tables import Table

UNCUT = 10_000  # characters of a line that no terminal breaks
GEOJSON_ENDS = (".geojson", ".json")
CELL_ENDS = (".h5ad", ".zarr")
LONGEST_NAME = 200  # bytes, so that endings and temporary names have room
SCORES = {
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
    "accuracy": "accuracy",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "log_likelihood": "log-likelihood",
    "brier": "Brier score",
    "expected_calibration_error": "calibration error",
}


def check_output(
    path: str, sources: Sequence[str | None], force: bool, *, table_only: bool = False
) -> None:
    """Refuse, before anything is computed, an output that cannot be written."""
    if table_only and is_geojson(path) and not is_cells(path):
        raise ValueError(
            f"this writes a table, but {path} is for GeoJSON; end the output in .csv, .tsv, "
            ".parquet or .feather"
        )
    if is_cells(path):
        table = str(sources[1])
        if not is_anndata(table):
            raise ValueError(
                f"{path} would be a copy of the table with the results in it, and {table} "
                "holds no cells of AnnData; end the output in .csv or .parquet"
            )
        check_same_kind(table, path)
        check_result(path, sources, overwrite=force)
        return
    if path == "-" or is_folder(path):
        return
    check_result(path, sources, overwrite=force)
    if not path.lower().endswith(GEOJSON_ENDS):
        check_writable(path)


def write_predictions(
    model: Any,
    table: Table,
    found: Predictions,
    path: str,
    *,
    source: str,
    more: Decided,
    instances: bool,
    tile_size: float | None,
    force: bool,
) -> dict[str, Any]:
    """Write predictions in the format that `path` names; returns what was written."""
    positive = class_names(model)[1]
    done = {"output": path, "bags": len(table.bags), "positive": positive}
    if is_cells(path):
        beside = {"more": _of_cells(found, more), "more_of_bags": more.of_bags}
        write_anndata(source, table.bags, found, output=path, **beside, overwrite=force)
        return done | {"rows": table.bags.n_instances, "files": 1}
    if is_geojson(path):
        files = tile_files(table, path) if is_folder(path) else [path]
        return done | _write_tiles(model, table, found, more, files, tile_size, force)
    if not has_text(path):
        table = replace(table, rows=with_numbers(table.rows))
    frame = (instance_frame if instances else bag_frame)(model, table, found, more)
    write_table(frame, path, overwrite=force)
    return done | {"rows": len(frame), "files": 1}


def is_cells(path: str) -> bool:
    """Whether results are written beside cells: to an .h5ad file or a .zarr store."""
    return path.lower().rstrip("/").endswith(CELL_ENDS)


def _of_cells(found: Predictions, more: Decided) -> dict[str, Any]:
    """Columns of obs beside those of the probabilities."""
    columns = dict(more.of_instances)
    if found.given is not None and found.given_std is not None:
        columns |= {"p_given_labels": found.given[:, 1], "p_given_labels_std": found.given_std}
    return columns


def is_folder(path: str) -> bool:
    """Whether a path names a folder, which need not be there yet."""
    return path.endswith(("/", os.sep)) or os.path.isdir(path)


def tiles_of(table: Table) -> list[tuple[str, slice]]:
    """Names and rows of images: those of the files, or else every bag is one."""
    if table.images:
        return [(image.name, image.rows) for image in table.images]
    ids, offsets = table.bags.ids.tolist(), table.bags.offsets.tolist()
    return [(str(i), slice(*ends)) for i, ends in zip(ids, pairwise(offsets), strict=True)]


def tile_files(table: Table, folder: str) -> list[str]:
    """The file of each image in a folder, which is made: QuPath users look for one per slide."""
    names = [name for name, _ in tiles_of(table)]
    for name in names:
        plain = name not in ("", ".", "..") and not any(c in name for c in "/\\:\0")
        if not plain or len(os.fsencode(name)) > LONGEST_NAME:
            raise ValueError(
                f"the bag id {name!r:.80} cannot be the name of a file; rename the bag, or predict "
                "it alone with -o NAME.geojson"
            )
    os.makedirs(folder, exist_ok=True)
    return [os.path.join(folder, f"{name}.geojson") for name in names]


def is_geojson(path: str) -> bool:
    """Whether GeoJSON is written: to that file, or to a folder of files."""
    return is_folder(path) or path.lower().endswith(GEOJSON_ENDS)


def _write_tiles(
    model: Any,
    table: Table,
    found: Predictions,
    more: Decided,
    files: list[str],
    tile_size: float | None,
    force: bool,
) -> dict[str, int]:
    """Write the tiles of each image to its file, in the order of its rows."""
    bags, corners = table.bags, tile_corners(table)
    sizes, images = tile_sizes(table, tile_size, "GeoJSON tiles"), tiles_of(table)
    if len(images) != len(files):
        raise ValueError(
            f"a GeoJSON file is of one image, but the table has {len(images)} "
            f"{'slides' if table.images else 'bags'}; end the output in / for a folder with one "
            "file for each, e.g. -o tiles/"
        )
    if not force:
        for file in files:
            refuse_existing(file)
    low, high = found.low, found.high
    called = np.asarray(class_names(model), dtype=object)[np.argmax(found.p, axis=1)]
    for (_, rows), edge, file in zip(images, sizes, files, strict=True):
        write_geojson(
            file,
            corners[rows],
            found.p[rows, 1],
            found.std[rows],
            edge,
            classes=called[rows],
            p_range=None if low is None or high is None else (low[rows], high[rows]),
            more={name: values[rows] for name, values in more.of_instances.items()},
            names=None if bags.instance_ids is None else bags.instance_ids[rows],
            overwrite=force,
        )
    return {"rows": bags.n_instances, "files": len(files)}


def show_fit(fitted: Any, path: str, json: bool) -> None:
    """Say what was fitted and where it is."""
    model = fitted.model
    how = describe_fit(model)
    if json:
        print_json(
            {
                "output": path,
                "model": type(model).__name__,
                "positive": model.metadata_["classes"][1],
                **how,
                "threshold": model.threshold_,
                "held_out": fitted.held_out,
            }
        )
        return
    if fitted.held_out is not None:
        show_scores(fitted.held_out, heading="Held-out bags")
    state = "converged" if how["converged"] else "NOT converged"
    if (reason := why_not_calibrated(model)) is not None:
        say(f"bag probabilities are not calibrated: {reason}")
    if (point := model.operating_point_) is not None:
        say(f"calls a bag positive from {point.words()}")
    say(
        f"wrote {path}: {type(model).__name__}, {state} after "
        f"{iterations(how['n_iter'])}, "
        f"positive class {model.metadata_['classes'][1]!r}"
    )


def print_grid(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1
) -> None:
    """Print a table, of whose columns the first `left` are text and the others figures."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.SIMPLE_HEAD, title=Text(title), title_justify="left")
    for i, heading in enumerate(headings):
        grid.add_column(heading, justify="left" if i < left else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*map(Text, row))
    console().print(grid)


def console() -> Console:
    """Standard output for tables: as wide as they are where it is no terminal."""
    from rich.console import Console

    out = Console()
    return out if out.is_terminal else Console(width=UNCUT)


def show_scores(scores: dict[str, Any], heading: str = "Scores") -> None:
    """Print scores of bags with their intervals, and of instances where they are known."""
    counts, instances = scores["bags"], scores["instances"]
    positives = counts["true_positives"] + counts["false_negatives"]
    headings = ["", "bags", "95 % interval", *([] if instances is None else ["instances"])]
    rows = []
    for key, name in SCORES.items():
        low_high = scores["intervals"].get(key)
        cells = [name, _number(counts[key]), "" if low_high is None else _interval(low_high)]
        rows.append(cells + ([] if instances is None else [_number(instances[key])]))
    title = f"{heading}: {counts['n']} bags, {positives} of class {scores['positive']!r}"
    print_grid(title, headings, rows)


def _number(value: float) -> str:
    return "—" if math.isnan(value) else f"{value:.3f}"


def _interval(limits: tuple[float, float]) -> str:
    return f"{limits[0]:.3f} to {limits[1]:.3f}"


def show_model(found: dict[str, Any]) -> None:
    """Print a model card."""
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid.grid(padding=(0, 2))
    for name, value in _card(found):
        grid.add_row(Text(name, style="bold"), Text(printable(value)))
    console().print(grid)


def _card(found: dict[str, Any]) -> list[tuple[str, str]]:
    fitted = found["fitted"]
    data = fitted.get("data")
    names = found["features"]
    lines = [
        ("model", found["model"]),
        ("positive class", repr(found["positive"])),
        ("negative class", repr(found["classes"][0])),
        ("features", str(found["n_features"]) + ("" if names is None else f": {_some(names)}")),
        *card_lines(found, "\n"),
        ("columns", _plain(fitted.get("columns"))),
        ("fitted on", _plain(data)),
        ("held out", f"{len(fitted['held_out'])} bags" if fitted.get("held_out") else None),
        ("command", fitted.get("command")),
        ("bagwise", fitted.get("bagwise")),
    ]
    return filled(lines)


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def _plain(values: dict[str, Any] | None) -> str | None:
    if not values:
        return None
    return ", ".join(f"{k}={v}" for k, v in values.items() if v not in (None, []))


def to_json(value: Any) -> str:
    """JSON of nested plain and numpy values; NaN and infinities become null.

    >>> to_json({"a": np.float64("nan"), "b": (np.int64(1), 2.5)})
    '{"a": null, "b": [1, 2.5]}'
    """
    return json.dumps(_jsonable(value), allow_nan=False)


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_jsonable(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_json(value: Any) -> None:
    """One JSON document; what is not a number (NaN) becomes null."""
    print(to_json(value))


def file_size(size: int) -> str:
    """Bytes in a unit that leaves digits to see.

    >>> file_size(41_300), file_size(2_340_000)
    ('41 kB', '2.3 MB')
    """
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} kB"
