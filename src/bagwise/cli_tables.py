"""The commands that work on tables: fit, predict, evaluate, report, inspect."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bagwise.cli_errors import progress, say, user_errors
from bagwise.cli_options import (
    Bag,
    Coords,
    Debug,
    Delimiter,
    Depth,
    Features,
    Force,
    Group,
    ImageShape,
    InstanceLabel,
    Instances,
    Json,
    Label,
    ModelArg,
    ModelFile,
    ModelName,
    PageFile,
    Positive,
    PredictionFile,
    Seed,
    Settings,
    Slides,
    TableArg,
    TileSize,
    Title,
    Valid,
)

if TYPE_CHECKING:
    from bagwise.io.columns import Columns
    from bagwise.io.tables import Table


def add_commands(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for command in (fit, predict, evaluate, report, inspect):
        app.command()(command)


def fit(
    table: TableArg,
    bag: Bag = None,
    label: Label = None,
    instance_label: InstanceLabel = None,
    coords: Coords = None,
    z: Depth = None,
    group: Group = None,
    features: Features = None,
    positive: Positive = None,
    model: ModelName = "probit",
    settings: Settings = None,
    valid: Valid = None,
    output: ModelFile = None,
    slides: Slides = None,
    delimiter: Delimiter = None,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit a model to a table with one row per instance.

    Columns that you do not name are guessed from their names, and the guesses are printed.

    [bold]Examples[/bold]

    [cyan]bagwise fit musk1.csv --bag molecule --label musk[/cyan]

    [cyan]bagwise fit cells.parquet --bag slide --label diagnosis --positive cancer --coords x y -o m.bagwise[/cyan]

    [cyan]bagwise fit features/ --slides slides.csv --valid 0.2 --model vgpmil --set n_inducing=100[/cyan]
    """  # noqa: E501
    with user_errors(debug):
        from bagwise.io.atomic import refuse_existing

        path = output or default_name(table, ".bagwise")
        if not force:
            refuse_existing(path)
        from bagwise import workflow

        asked = columns(bag, label, instance_label, coords, z, group, features)
        chosen = parse_settings(settings or [])
        with progress("reading", json):
            data = workflow.read_to_fit(table, asked, slides=slides, delimiter=delimiter)
        tell(data, json)
        from bagwise.progress import Progress

        fitted = workflow.fit_table(
            data,
            model=model,
            positive=positive,
            valid=valid,
            seed=seed,
            settings=chosen,
            command=command_line(),
            callbacks=[] if json else [Progress()],
        )
        for note in fitted.notes:
            say(note)
        fitted.model.save(path, overwrite=force)
        show_fit(fitted, path, json)


def predict(
    model: ModelArg,
    table: TableArg,
    bag: Bag = None,
    instances: Instances = False,
    output: PredictionFile = None,
    coords: Coords = None,
    tile_size: TileSize = None,
    slides: Slides = None,
    delimiter: Delimiter = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the probability of every bag, or of every instance, with its standard deviation.

    Features are found by the names stored in the model; labels are not needed. Rows and ids are
    those of the table, in its order.

    [bold]Examples[/bold]

    [cyan]bagwise predict musk1.bagwise new.csv -o bags.csv[/cyan]

    [cyan]bagwise predict m.bagwise cells.parquet --instances -o cells-with-p.parquet[/cyan]

    [cyan]bagwise predict m.bagwise slide.csv -o slide.geojson --tile-size 256[/cyan] (for QuPath)

    [cyan]zcat new.csv.gz | bagwise predict m.bagwise - -o -[/cyan]
    """
    with user_errors(debug):
        from bagwise.cli_output import write_predictions

        path = output or default_name(table, ".predictions.csv")
        with progress("predicting", json or path == "-"):
            asked = columns(bag, coords=coords)
            # Labels are not needed, so nothing can be wrong with them.
            skip = ("label", "instance_label")
            data, fitted = load_both(model, table, asked, slides, delimiter, skip)
            from bagwise.workflow import predict_all

            found = predict_all(fitted, data.bags)
            result = write_predictions(
                fitted, data, found, path, instances=instances, tile_size=tile_size, force=force
            )
        tell(data, json)
        if json:
            print_json(result)
        elif path != "-":
            say(f"wrote {path}: {result['rows']} rows; p_mean is of {result['positive']!r}")


def evaluate(
    model: ModelArg,
    table: TableArg,
    bag: Bag = None,
    label: Label = None,
    instance_label: InstanceLabel = None,
    slides: Slides = None,
    delimiter: Delimiter = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Score a model on labelled bags, with 95 % intervals from resampled bags.

    [bold]Examples[/bold]

    [cyan]bagwise evaluate musk1.bagwise test.csv[/cyan]

    [cyan]bagwise evaluate m.bagwise cells.parquet --bag slide --label diagnosis --json[/cyan]
    """
    with user_errors(debug):
        from bagwise.cli_output import show_scores

        asked = columns(bag, label, instance_label)
        with progress("evaluating", json):
            data, fitted = load_both(model, table, asked, slides, delimiter)
            from bagwise.seen_bags import count_seen, seen_in_fit
            from bagwise.workflow import evaluate_table

            scores = evaluate_table(fitted, data)
        tell(data, json)
        if not json and (seen := seen_in_fit(fitted, data.bags, data.name)):
            say(f"note: {seen}")
        if json:
            print_json({**scores, "bags_trained_on": count_seen(fitted, data.bags)})
        else:
            show_scores(scores)


def report(
    model: ModelArg,
    table: TableArg,
    bag: Bag = None,
    label: Label = None,
    instance_label: InstanceLabel = None,
    coords: Coords = None,
    image: ImageShape = None,
    title: Title = None,
    output: PageFile = None,
    slides: Slides = None,
    delimiter: Delimiter = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a page that explains the predictions; it opens in any browser, without a network.

    [bold]Examples[/bold]

    [cyan]bagwise report musk1.bagwise test.csv[/cyan]

    [cyan]bagwise report m.bagwise cells.parquet --coords x y -o report.html[/cyan]
    """
    with user_errors(debug):
        from bagwise.io.atomic import refuse_existing

        path = output or default_name(table, ".report.html")
        if not force:
            refuse_existing(path)
        asked = columns(bag, label, instance_label, coords)
        with progress("predicting", json):
            data, fitted = load_both(model, table, asked, slides, delimiter)
            from bagwise.report import write_report

            size = write_report(
                path,
                fitted,
                data.bags,
                title=title or f"Predictions for {data.name}",
                data_name=data.name,
                image_shape=image,
                command=command_line(),
                overwrite=force,
            )
        tell(data, json)
        if json:
            print_json({"output": path, "bytes": size, "bags": len(data.bags)})
        else:
            say(f"wrote {path} ({file_size(size)}); open it in a browser")


def inspect(model: ModelArg, json: Json = False, debug: Debug = False) -> None:
    """Say what a model file holds: model, classes, features, hyperparameters, origin.

    [bold]Examples[/bold]

    [cyan]bagwise inspect musk1.bagwise[/cyan]

    [cyan]bagwise inspect musk1.bagwise --json[/cyan]
    """
    with user_errors(debug):
        from bagwise.cli_output import show_model
        from bagwise.estimators import load
        from bagwise.model_card import describe_model

        found = describe_model(load(model))
        if json:
            print_json(found)
        else:
            show_model(found)


# --- Shared by the commands ----------------------------------------------------------------------


def columns(
    bag: str | None,
    label: str | None = None,
    instance_label: str | None = None,
    coords: tuple[str, str] | None = None,
    z: str | None = None,
    group: str | None = None,
    features: list[str] | None = None,
) -> "Columns":
    """What the options say of the columns."""
    from bagwise.io.columns import Columns

    if z is not None and coords is None:
        raise ValueError("--z names the third coordinate; pass --coords X Y too")
    axes = (*(coords or ()), *((z,) if z is not None else ()))
    return Columns(
        bag=bag,
        label=label,
        instance_label=instance_label,
        group=group,
        coords=axes,
        features=tuple(features or ()),
    )


def load_both(
    model: str,
    table: str,
    asked: "Columns",
    slides: str | None,
    delimiter: str | None,
    skip: tuple[str, ...] = (),
) -> "tuple[Table, Any]":
    """The table and the model, the model first: it knows the columns."""
    from bagwise.estimators import load
    from bagwise.workflow import read_for_model

    fitted = load(model)
    data = read_for_model(fitted, table, asked, slides=slides, delimiter=delimiter, skip=skip)
    return data, fitted


def default_name(table: str, ending: str) -> str:
    """The table's name without its ending, in the working directory."""
    if table == "-":
        raise ValueError("standard input has no name; say where to write with -o")
    stem = Path(table).name.removesuffix(".gz")
    return (Path(stem).stem or "bags") + ending


def command_line() -> str:
    """The command as typed, to be repeated."""
    return shlex.join(["bagwise", *sys.argv[1:]])


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Arguments of a model from NAME=VALUE; values are JSON, or else text."""
    import json

    chosen: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes NAME=VALUE, got {pair!r}, e.g. --set n_inducing=100")
        try:
            chosen[name] = json.loads(value)
        except ValueError:
            chosen[name] = {"True": True, "False": False, "None": None}.get(value, value)
    return chosen


def tell(table: "Table", quiet: bool) -> None:
    """Say what was guessed and what was read."""
    if quiet:
        return
    for note in table.notes:
        say(note)
    say(f"read {table.name}: {table.bags!r}")


def show_fit(fitted: Any, path: str, json: bool) -> None:
    """Say what was fitted and where it is."""
    from bagwise.cli_output import show_scores
    from bagwise.model_card import describe_fit, iterations

    model = fitted.model
    how = describe_fit(model)
    if json:
        print_json(
            {
                "output": path,
                "model": type(model).__name__,
                "positive": model.metadata_["classes"][1],
                **how,
                "held_out": fitted.held_out,
            }
        )
        return
    if fitted.held_out is not None:
        show_scores(fitted.held_out, heading="Held-out bags")
    state = "converged" if how["converged"] else "NOT converged"
    say(
        f"wrote {path}: {type(model).__name__}, {state} after "
        f"{iterations(how['n_iter'])}, "
        f"positive class {model.metadata_['classes'][1]!r}"
    )


def file_size(size: int) -> str:
    """Bytes in a unit that leaves digits to see.

    >>> file_size(41_300), file_size(2_340_000)
    ('41 kB', '2.3 MB')
    """
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} kB"


def print_json(value: Any) -> None:
    """One JSON document; what is not a number (NaN) becomes null."""
    from bagwise.cli_output import to_json

    print(to_json(value))
