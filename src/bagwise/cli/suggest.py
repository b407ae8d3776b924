"""`bagwise suggest`: which instances, or bags, to label next."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli import options as opt
from bagwise.cli.errors import progress, say, tell, user_errors
from bagwise.cli.options import columns, default_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bagwise.io.tables import Table
    from bagwise.models._base import Predictions

TO_LABEL = "to label"  # the class of suggestions in QuPath

Number = Annotated[int, typer.Option("--number", "-k", help="How many to suggest.", min=1)]
WholeBags = Annotated[bool, typer.Option("--bags", help="Bags instead of instances.")]
SuggestionFile = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help=".csv, .tsv (.gz), .parquet, .feather, .geojson, FOLDER/ for one .geojson per bag, or "
        "- for standard output; TABLE.next.csv by default.",
    ),
]


def suggest(
    model: opt.ModelArg,
    table: opt.TableArg,
    number: Number = 10,
    bags: WholeBags = False,
    bag: opt.Bag = None,
    label: opt.Label = None,
    instance_label: opt.InstanceLabel = None,
    coords: opt.Coords = None,
    tile_size: opt.TileSize = None,
    output: SuggestionFile = None,
    rep: opt.Rep = None,
    missing: opt.Missing = None,
    slides: opt.Slides = None,
    features_key: opt.FeaturesKey = None,
    coords_key: opt.CoordsKey = None,
    mpp: opt.Mpp = None,
    delimiter: opt.Delimiter = None,
    decimal: opt.Decimal = None,
    force: opt.Force = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write which instances to label next, those first whose labels would tell the model most.

    Labels of bags and of instances that the table has are taken into account: nothing is asked
    that they settle. With --bags, which bags to label; their labels are not looked at.

    [bold]Examples[/bold]

    [cyan]bagwise suggest m.bagwise cells.csv -k 20[/cyan]

    [cyan]bagwise suggest m.bagwise unlabelled.parquet --bags -o next.csv[/cyan]

    [cyan]bagwise suggest m.bagwise features/ -o next/ --tile-size 256[/cyan] (annotations for QuPath)
    """  # noqa: E501
    with user_errors(debug):
        from bagwise.cli.output import check_output, is_geojson, print_json
        from bagwise.cli.sources import load_both
        from bagwise.io.write_tables import write_table

        path = output or default_name(table, ".next.csv")
        check_output(path, [model, table, slides], force, table_only=bags)
        if tile_size is not None and not is_geojson(path):
            raise ValueError(f"--tile-size is for GeoJSON, but {path} is a table; leave it out")
        asked = columns(bag, label, instance_label, coords, rep=rep)
        files = opt.slide_files(slides, features_key, coords_key, mpp, delimiter, decimal)
        with progress("looking for questions", json or path == "-"):
            files["missing"] = opt.missing_way(missing)
            data, fitted = load_both(model, table, asked, **files)
            chosen, found = suggested(fitted, data, number, bags=bags)
            if is_geojson(path):
                write_annotations(data, found, chosen, path, tile_size, force=force)
            else:
                frame = suggestion_frame(fitted, data, found, chosen, bags=bags)
                write_table(frame, path, overwrite=force)
        tell(data, json)
        what = "bags" if bags else "instances"
        if json:
            print_json({"output": path, "suggested": len(chosen), "of": what})
        elif path != "-":
            say(f"wrote {path}: {len(chosen)} {what} to label, best first")


def suggested(
    model: Any, table: "Table", k: int, *, bags: bool
) -> "tuple[NDArray[np.intp], Predictions]":
    """Rows of `table.bags.X`, or numbers of bags, best first, and what the model says of all."""
    from bagwise.cli.sources import naming
    from bagwise.io.class_labels import in_model_labels

    own = table.bags
    with naming(table.places):
        if own.y is not None:
            own = own.with_labels(in_model_labels(model, own.y, of_table=True))
        chosen = model.suggest_bags(own, k) if bags else model.suggest_instances(own, k)
        return chosen, model.predict_all(own)


def suggestion_frame(
    model: Any, table: "Table", found: "Predictions", chosen: "NDArray[np.intp]", *, bags: bool
) -> Any:
    """The rows of a table that are suggested, best first, with what the model says of them."""
    import numpy as np

    from bagwise.cli.decisions import Decided
    from bagwise.cli.prediction_frames import bag_frame, instance_frame

    own = table.bags
    frame = (bag_frame if bags else instance_frame)(model, table, found, Decided({}, {}))
    if bags:  # in the order in which they first appear in the table
        order = np.argsort(np.minimum.reduceat(own.row_index, own.offsets[:-1]), kind="stable")
        places = np.argsort(order)[chosen]
    else:
        places = own.row_index[chosen]
    frame = frame.iloc[places].reset_index(drop=True)
    frame.insert(0, "rank", np.arange(1, len(frame) + 1))
    return frame


def write_annotations(
    table: "Table",
    found: "Predictions",
    chosen: "NDArray[np.intp]",
    path: str,
    tile_size: float | None,
    *,
    force: bool,
) -> None:
    """Suggested tiles as annotations of the class "to label", named by their rank."""
    import numpy as np

    from bagwise.cli.output import is_folder, tile_files, tiles_of
    from bagwise.cli.sources import tile_corners, tile_sizes
    from bagwise.io.geojson import write_geojson

    corners, images = tile_corners(table), tiles_of(table)
    sizes = tile_sizes(table, tile_size, "GeoJSON tiles")
    if not is_folder(path) and len(images) > 1:
        raise ValueError(
            f"a GeoJSON file is of one image, but the table has {len(images)} "
            f"{'slides' if table.images else 'bags'}; end the output in / for a folder with one "
            "file for each, e.g. -o next/"
        )
    files = tile_files(table, path) if is_folder(path) else [path]
    for (_, own), edge, file in zip(images, sizes, files, strict=True):
        here = (chosen >= own.start) & (chosen < own.stop)
        rows, rank = chosen[here], 1 + np.flatnonzero(here)
        if len(rows) == 0:
            continue
        write_geojson(
            file,
            corners[rows],
            found.p[rows, 1],
            found.std[rows],
            edge,
            kind="annotation",
            classes=np.full(len(rows), TO_LABEL),
            names=rank.astype(str),
            overwrite=force,
        )
