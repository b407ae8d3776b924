"""The commands that work on tables: fit, predict, evaluate, report, inspect."""

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperOption

from bagwise.cli.cluster import fit_on_cluster, one_table, predict_on_cluster, refuse
from bagwise.cli.errors import progress, say, user_errors
from bagwise.cli.options import (
    Bag,
    Coords,
    Debug,
    Delimiter,
    Depth,
    Features,
    Force,
    GivenLabels,
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
    ResampleSeed,
    Scheduler,
    Seed,
    Settings,
    Slides,
    TableArg,
    TablesArg,
    TileSize,
    Title,
    Valid,
)
from bagwise.cli.shared import (
    columns,
    command_line,
    default_name,
    load_both,
    parse_settings,
    show_parts,
    tell,
)

if TYPE_CHECKING:
    from bagwise.io.columns import Columns


def add_commands(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(cls=CommandWithModels)(fit)
    for command in (predict, evaluate, report, inspect):
        app.command()(command)


class CommandWithModels(TyperCommand):
    """A command whose help names the models, which are imported for that alone."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from bagwise.models import ALIASES

        for option in self.params:
            if isinstance(option, TyperOption) and option.help:
                option.help = option.help.replace("{models}", ", ".join(ALIASES))
        super().format_help(ctx, formatter)


def fit(
    tables: TablesArg,
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
    scheduler: Scheduler = None,
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

    [cyan]bagwise fit parts/*.parquet --scheduler tcp://host:8786 -o m.bagwise[/cyan]
    """  # noqa: E501
    with user_errors(debug):
        from bagwise.core.files.atomic import refuse_existing

        path = output or default_name(tables[0], ".bagwise")
        if not force:
            refuse_existing(path)
        asked = columns(bag, label, instance_label, coords, z, group, features)
        how = {
            "model": model,
            "positive": positive,
            "seed": seed,
            "settings": parse_settings(settings or []),
            "command": command_line(),
        }
        if scheduler is None:
            fitted = fit_here(one_table(tables), asked, slides, delimiter, valid, json, **how)
        else:
            refuse(slides=slides, delimiter=delimiter, valid=valid)
            fitted = fit_on_cluster(tables, asked, scheduler, json, **how)
        for note in fitted.notes:
            say(note)
        fitted.model.save(path, overwrite=force)
        from bagwise.cli.output import show_fit

        show_fit(fitted, path, json)


def predict(
    model: ModelArg,
    tables: TablesArg,
    bag: Bag = None,
    instances: Instances = False,
    given_labels: GivenLabels = False,
    label: Label = None,
    instance_label: InstanceLabel = None,
    output: PredictionFile = None,
    coords: Coords = None,
    tile_size: TileSize = None,
    slides: Slides = None,
    delimiter: Delimiter = None,
    scheduler: Scheduler = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the probability of every bag, or of every instance, with its standard deviation.

    Features are found by the names stored in the model; labels are needed for --given-labels
    only. Rows and ids are those of the table, in its order.

    [bold]Examples[/bold]

    [cyan]bagwise predict musk1.bagwise new.csv -o bags.csv[/cyan]

    [cyan]bagwise predict m.bagwise cells.parquet --instances -o cells-with-p.parquet[/cyan]

    [cyan]bagwise predict m.bagwise labelled.csv --given-labels[/cyan] (which instances are it?)

    [cyan]bagwise predict m.bagwise slide.csv -o slide.geojson --tile-size 256[/cyan] (for QuPath)

    [cyan]bagwise predict m.bagwise features/ -o tiles/ --tile-size 256[/cyan] (one file per slide)

    [cyan]zcat new.csv.gz | bagwise predict m.bagwise - -o -[/cyan]

    [cyan]bagwise predict m.bagwise parts/*.parquet --scheduler tcp://host:8786 -o folder[/cyan]
    """
    with user_errors(debug):
        if scheduler is not None:
            refuse(slides=slides, delimiter=delimiter, tile_size=tile_size, coords=coords)
            refuse(force=force or None, output=output if output == "-" else None)
            refuse(given_labels=given_labels or None, label=label, instance_label=instance_label)
            folder = output or default_name(tables[0], ".predictions")
            with progress("predicting", json):
                done = predict_on_cluster(
                    model, tables, columns(bag), scheduler, folder, instances=instances
                )
            show_parts(done, folder, tables[0], json)
            return
        from bagwise.cli.output import check_output, print_json, write_predictions

        table = one_table(tables)

        path = output or default_name(table, ".predictions.csv")
        check_output(path, force, table_only=given_labels)
        if not given_labels and (label or instance_label):
            raise ValueError("labels are read for --given-labels only; add it, or leave them out")
        with progress("predicting", json or path == "-"):
            asked = columns(bag, label, instance_label, coords)
            # Labels that are not needed cannot be wrong.
            skip = () if given_labels else ("label", "instance_label")
            data, fitted = load_both(model, table, asked, slides, delimiter, skip)
            from bagwise.cli.workflow import by_place, labels_of

            told = labels_of(fitted, data, "--given-labels needs") if given_labels else None
            with by_place(data.places):
                found = fitted.predict_all(data.bags, y=told)
            result = write_predictions(
                fitted,
                data,
                found,
                path,
                instances=instances or given_labels,
                tile_size=tile_size,
                force=force,
            )
        tell(data, json)
        if json:
            print_json(result)
        elif path != "-":
            files = f" in {result['files']} files" if result["files"] > 1 else ""
            say(f"wrote {path}: {result['rows']} rows{files}; p_mean is of {result['positive']!r}")


def evaluate(
    model: ModelArg,
    table: TableArg,
    bag: Bag = None,
    label: Label = None,
    instance_label: InstanceLabel = None,
    group: Group = None,
    slides: Slides = None,
    delimiter: Delimiter = None,
    seed: ResampleSeed = 0,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Score a model on labelled bags, with 95 % intervals; patients count once (--group).

    [bold]Examples[/bold]

    [cyan]bagwise evaluate musk1.bagwise test.csv[/cyan]

    [cyan]bagwise evaluate m.bagwise cells.parquet --bag slide --label diagnosis --json[/cyan]
    """
    with user_errors(debug):
        from bagwise.cli.output import print_json, show_scores

        asked = columns(bag, label, instance_label, group=group)
        with progress("evaluating", json):
            data, fitted = load_both(model, table, asked, slides, delimiter)
            from bagwise.cli.workflow import evaluate_table
            from bagwise.models.training_bags import seen_bags, seen_in_fit, seen_patients

            scores = evaluate_table(fitted, data, seed)
        tell(data, json)
        if json:
            seen = int(seen_bags(fitted, data.bags).sum())
            shared = int(seen_patients(fitted, data.bags).sum())
            print_json({**scores, "bags_trained_on": seen, "bags_of_patients_trained_on": shared})
        else:
            for note in seen_in_fit(fitted, data.bags, data.name):
                say(f"note: {note}")
            show_scores(scores)


def report(
    model: ModelArg,
    table: TableArg,
    bag: Bag = None,
    label: Label = None,
    instance_label: InstanceLabel = None,
    group: Group = None,
    coords: Coords = None,
    image: ImageShape = None,
    title: Title = None,
    output: PageFile = None,
    slides: Slides = None,
    delimiter: Delimiter = None,
    seed: ResampleSeed = 0,
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
        from bagwise.cli.output import file_size, print_json
        from bagwise.core.files.atomic import refuse_existing

        path = output or default_name(table, ".report.html")
        if not force:
            refuse_existing(path)
        asked = columns(bag, label, instance_label, coords, group=group)
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
                seed=seed,
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
        from bagwise.cli.output import print_json, show_model
        from bagwise.models.persistence import load_two_class
        from bagwise.report.model_card import describe_model

        found = describe_model(load_two_class(model))
        if json:
            print_json(found)
        else:
            show_model(found)


def fit_here(
    table: str,
    asked: "Columns",
    slides: str | None,
    delimiter: str | None,
    valid: float | None,
    quiet: bool,
    **how: Any,
) -> Any:
    """Read one table and fit a model to it on this machine."""
    from bagwise.cli import workflow
    from bagwise.models.progress import Progress

    with progress("reading", quiet):
        data = workflow.read_to_fit(table, asked, slides=slides, delimiter=delimiter)
    tell(data, quiet)
    callbacks = [] if quiet else [Progress()]
    return workflow.fit_table(data, valid=valid, callbacks=callbacks, **how)
