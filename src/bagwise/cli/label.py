"""`bagwise label`: a page on which people label the instances that the model asks about."""

from __future__ import annotations

import getpass
import threading
import webbrowser
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli import options as opt
from bagwise.cli.errors import progress, say, tell, user_errors
from bagwise.cli.options import columns, default_name

if TYPE_CHECKING:
    from bagwise.cli.labelling.pictures import Pictures
    from bagwise.cli.labelling.store import LabelStore
    from bagwise.io.tables import Table

LabelFile = Annotated[
    str | None,
    typer.Option("--labels", help="SQLite file of the labels; TABLE.labels.sqlite by default."),
]
RefitEvery = Annotated[
    int, typer.Option("--refit-every", help="Labels after which the model is refitted.", min=1)
]
PictureFolder = Annotated[
    str | None,
    typer.Option(
        "--pictures",
        metavar="FOLDER",
        help="Pictures FOLDER/BAG/INSTANCE.png, or an image FOLDER/BAG.png of each bag from which "
        "tiles are cut (with --coords and --tile-size).",
    ),
]
DicomFolder = Annotated[
    str | None,
    typer.Option(
        "--dicom", metavar="FOLDER", help="CT slices, found by SOPInstanceUID as instance id."
    ),
]
TilePixels = Annotated[
    float | None, typer.Option("--tile-size", help="Edge of a tile in pixels, for --pictures.")
]
Port = Annotated[
    int, typer.Option(help="Of the page; any that is free by default.", min=0, max=65535)
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address, open nothing.")]
Annotator = Annotated[
    str | None, typer.Option(help="Who labels, unless the page says so; your user name by default.")
]
Export = Annotated[
    str | None,
    typer.Option(
        help="Write the labels to this .csv, .tsv, .parquet or .feather file, and no more."
    ),
]


def label(
    model: opt.ModelArg,
    table: opt.TableArg,
    labels: LabelFile = None,
    refit_every: RefitEvery = 10,
    pictures: PictureFolder = None,
    dicom: DicomFolder = None,
    image: opt.ImageShape = None,
    tile_size: TilePixels = None,
    bag: opt.Bag = None,
    label: opt.Label = None,
    instance_label: opt.InstanceLabel = None,
    coords: opt.Coords = None,
    weight: opt.Weight = None,
    slides: opt.Slides = None,
    delimiter: opt.Delimiter = None,
    decimal: opt.Decimal = None,
    annotator: Annotator = None,
    port: Port = 0,
    no_browser: NoBrowser = False,
    export: Export = None,
    force: opt.Force = False,
    debug: opt.Debug = False,
) -> None:
    """Open a page to label instances on, those first whose labels would tell the model most.

    Labels are kept in an SQLite file as they are given; with the same file you go on where you
    stopped. `bagwise fit TABLE --labels FILE` fits a model with them.

    [bold]Examples[/bold]

    [cyan]bagwise label m.bagwise cells.csv[/cyan]

    [cyan]bagwise label m.bagwise patches.parquet --pictures patches/ --refit-every 5[/cyan]

    [cyan]bagwise label m.bagwise slides.csv --coords x y --pictures overviews/ --tile-size 64[/cyan]

    [cyan]bagwise label m.bagwise cells.csv --export labels.csv[/cyan]
    """  # noqa: E501
    with user_errors(debug):
        from bagwise.cli.labelling.store import LabelStore
        from bagwise.cli.sources import load_both
        from bagwise.io.class_labels import class_names

        path = labels or default_name(table, ".labels.sqlite")
        asked = columns(bag, label, instance_label, coords, weight=weight)
        with progress("reading", False):
            data, fitted = load_both(
                model, table, asked, slides=slides, delimiter=delimiter, decimal=decimal
            )
        tell(data, False)
        one_model(fitted)
        classes = [str(c) for c in class_names(fitted)]
        if export is not None:
            with LabelStore(path) as store:
                write_labels(store, data, export, [model, table, path], force)
            return
        needs_server()
        shown = seen(data, pictures, dicom, image, tile_size)
        with LabelStore(path, classes) as store:
            opened(fitted, data, store, shown, refit_every, annotator, port, not no_browser)


def one_model(model: Any) -> None:
    """Raise where a file holds a model for each of several tasks."""
    from bagwise.models.single_model import check_one_model

    try:
        check_one_model(model)
    except TypeError as error:
        raise ValueError(str(error)) from error


def needs_server() -> None:
    """Raise where the packages of the server are missing, before anything is begun."""
    from bagwise.io.requirements import require

    for package in ("fastapi", "uvicorn"):
        require(package, what="bagwise label", extra="label")


def seen(
    table: Table,
    pictures: str | None,
    dicom: str | None,
    image: tuple[int, int] | None,
    tile_size: float | None,
) -> Pictures:
    """What there is to see of instances."""
    from bagwise.cli.labelling.pictures import CTSlices, Pictures, PixelFeatures, pictures_in
    from bagwise.cli.sources import tile_corners

    if sum(way is not None for way in (pictures, dicom, image)) > 1:
        raise ValueError("instances are shown in one way; pass one of --pictures, --dicom, --image")
    if tile_size is not None and pictures is None:
        raise ValueError("--tile-size is for --pictures; pass their folder too")
    if dicom is not None:
        return CTSlices(table.bags, dicom)
    if image is not None:
        return PixelFeatures(table.bags, image)
    if pictures is None:
        return Pictures()
    corners = None if tile_size is None else tile_corners(table)
    return pictures_in(table.bags, pictures, corners, tile_size)


def write_labels(
    store: LabelStore, table: Table, path: str, sources: list[str], force: bool
) -> None:
    """Write the labels that stand as a table."""
    from bagwise.cli.labelling.opinions import opinion_frame
    from bagwise.cli.output import check_output
    from bagwise.io.write_tables import write_table

    check_output(path, sources, force, table_only=True)
    frame = opinion_frame(store, table.bags, table.name)
    write_table(frame, path, overwrite=force)
    if path != "-":
        say(f"wrote {path}: {len(frame)} labels and skips")


def _user() -> str:
    """Who runs the command; in containers that may be a number without a name."""
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):  # by version and system
        return "unknown"


def opened(
    model: Any,
    table: Table,
    store: LabelStore,
    pictures: Pictures,
    refit_every: int,
    annotator: str | None,
    port: int,
    browser: bool,
) -> None:
    """Serve the page until Ctrl-C."""
    from urllib.parse import quote

    from bagwise.cli.labelling.opinions import agreed_labels
    from bagwise.cli.labelling.server import HOST, bound_socket, new_token, serve
    from bagwise.cli.labelling.session import Session, checked_name
    from bagwise.cli.labelling.worker import Worker
    from bagwise.cli.workflow import bag_values
    from bagwise.io.class_labels import in_model_labels

    name = checked_name(annotator or _user())
    bags = table.bags
    if bags.y is not None:
        bags = bags.with_labels(in_model_labels(model, bags.y, of_table=True))
    for note in remarks(model, table):
        say(note)
    agreed_labels(store, bags, table.name)  # a file about other data is refused before all else
    bound = bound_socket(port)
    worker = Worker(model, bags, bag_values(table, bags, table.columns.weight))
    try:
        session = Session(
            bags, store, worker, name=table.name, refit_every=refit_every,
            positive=model.classes_[1], noisy=model._bag_labels_may_be_wrong(), pictures=pictures,
        )  # fmt: skip
        token = new_token()
        address = f"http://{HOST}:{bound.getsockname()[1]}/{token}/?who={quote(name)}"
        print(address, flush=True)
        say("open that address in a browser; whoever has it may label; Ctrl-C ends")
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        serve(session, bound, token)
        said = len(store.events())
    finally:
        worker.close()
        bound.close()
    say(f"{said} labels, skips and undos are in {store.path}; fit with --labels {store.path}")


def remarks(model: Any, table: Table) -> list[str]:
    """What people should know of the refits before they label."""
    from bagwise.models.metadata import seen_bags

    if table.bags.y is None:
        return ["the table has no labels of bags, so that the model is asked, but not refitted"]
    held_out = set(map(str, getattr(model, "metadata_", {}).get("held_out", ())))
    seen_before = seen_bags(model, table.bags)
    trained = getattr(model, "metadata_", {}).get("trained_bags")
    if trained is None or (seen_before.all() and seen_before.sum() == len(trained)):
        return []
    new = [str(i) not in held_out for i in table.bags.ids[~seen_before].tolist()]
    return [
        "note: refits on the page are to the bags of this table, of which the model was fitted to "
        f"{int(seen_before.sum())} (it was fitted to {len(trained)} in all); {sum(new)} are new to "
        f"it and {len(new) - sum(new)} were held out of its fit"
    ]
