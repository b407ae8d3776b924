"""The commands that work on tables: fit, predict, evaluate, report, inspect."""

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperOption

from bagwise.cli import options as opt
from bagwise.cli.errors import progress, say, say_notes, tell, user_errors
from bagwise.cli.options import columns, command_line, default_name, refuse_beside_scheduler

if TYPE_CHECKING:
    from bagwise.io.columns import Columns
    from bagwise.io.tables import Table


class CommandWithModels(TyperCommand):
    """A command whose help names the models, which are imported for that alone."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from bagwise.models import ALIASES

        for option in self.params:
            if isinstance(option, TyperOption) and option.help:
                option.help = option.help.replace("{models}", ", ".join(ALIASES))
        super().format_help(ctx, formatter)


def fit(
    tables: opt.TablesArg,
    bag: opt.Bag = None,
    label: opt.Label = None,
    instance_label: opt.InstanceLabel = None,
    coords: opt.Coords = None,
    z: opt.Depth = None,
    group: opt.Group = None,
    weight: opt.Weight = None,
    features: opt.Features = None,
    positive: opt.Positive = None,
    model: opt.ModelName = "probit",
    settings: opt.Settings = None,
    valid: opt.Valid = None,
    output: opt.ModelFile = None,
    slides: opt.Slides = None,
    delimiter: opt.Delimiter = None,
    seed: opt.Seed = 0,
    scheduler: opt.Scheduler = None,
    force: opt.Force = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
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
        if scheduler is not None:
            refuse_beside_scheduler(slides=slides, delimiter=delimiter, valid=valid, weight=weight)
        if slides is not None and weight is not None:
            raise ValueError(
                "--weight names a column of a table of instances, and --slides reads features of "
                "slides from files; leave --weight out, or fit in Python with sample_weight="
            )
        asked = columns(bag, label, instance_label, coords, z, group, features, weight)
        files = {"slides": slides, "delimiter": delimiter}
        chosen = opt.parse_settings(settings or [])
        how = {"model": model, "positive": positive, "seed": seed, "settings": chosen}
        fit_and_save(tables, asked, scheduler, files, output, force, json, valid=valid, **how)


def fit_and_save(
    tables: list[str],
    asked: "Columns",
    scheduler: str | None,
    files: dict[str, Any],
    output: str | None,
    force: bool,
    json: bool,
    **how: Any,
) -> None:
    """Fit a model to tables, here or on a cluster, write its file and say where."""
    from bagwise.cli import sources, workflow
    from bagwise.cli.output import show_fit
    from bagwise.core.files.atomic import check_result
    from bagwise.models.progress import Progress

    path = output or default_name(tables[0], ".bagwise")
    check_result(path, tables, overwrite=force)
    callbacks = [] if json else [Progress()]
    with sources.cluster(scheduler) as client:
        with progress("reading", json):
            data = sources.read_to_fit(tables, asked, client, **files)
        tell(data, json)
        fitted = workflow.fit_table(data, callbacks=callbacks, command=command_line(), **how)
    say_notes(fitted.notes)
    fitted.model.save(path, overwrite=force)
    show_fit(fitted, path, json)


def predict(
    model: opt.ModelArg,
    tables: opt.TablesArg,
    bag: opt.Bag = None,
    instances: opt.Instances = False,
    given_labels: opt.GivenLabels = False,
    label: opt.Label = None,
    instance_label: opt.InstanceLabel = None,
    output: opt.PredictionFile = None,
    coords: opt.Coords = None,
    tile_size: opt.TileSize = None,
    slides: opt.Slides = None,
    delimiter: opt.Delimiter = None,
    scheduler: opt.Scheduler = None,
    force: opt.Force = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
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
            refuse_beside_scheduler(
                slides=slides, delimiter=delimiter, tile_size=tile_size, coords=coords,
                force=force, output=output == "-", given_labels=given_labels, label=label,
                instance_label=instance_label,
            )  # fmt: skip
            folder = output or default_name(tables[0], ".predictions")
            predict_on_cluster(model, tables, columns(bag), scheduler, folder, instances, json)
            return
        if not given_labels and (label or instance_label):
            raise ValueError("labels are read for --given-labels only; add it, or leave them out")
        asked = columns(bag, label, instance_label, coords)
        how = {"instances": instances or given_labels, "tile_size": tile_size, "force": force}
        files = {"slides": slides, "delimiter": delimiter}
        predict_here(model, tables, asked, output, files, given_labels, json, **how)


def predict_on_cluster(
    model: str,
    tables: list[str],
    asked: "Columns",
    scheduler: str,
    folder: str,
    instances: bool,
    json: bool,
) -> None:
    """Have the workers of a cluster write the predictions, and say where."""
    from bagwise.cli import sources
    from bagwise.cli.output import print_json
    from bagwise.models.persistence import load_two_class

    with progress("predicting", json), sources.cluster(scheduler) as client:
        fitted = load_two_class(model)
        done = sources.predict_parts(fitted, tables, asked, client, folder, instances=instances)
    if json:
        print_json({"output": folder, "files": [str(path) for path in done]})
    else:
        say(f"wrote {len(done)} files to {folder}, one for each of {tables[0]} ...")


def predict_here(
    model: str,
    tables: list[str],
    asked: "Columns",
    output: str | None,
    files: dict[str, Any],
    given_labels: bool,
    json: bool,
    **how: Any,
) -> None:
    """Write the predictions for one table, and say where."""
    from bagwise.cli.output import check_output, print_json, write_predictions
    from bagwise.cli.sources import naming, one_table
    from bagwise.cli.workflow import labels_of

    table = one_table(tables)
    path = output or default_name(table, ".predictions.csv")
    check_output(path, [model, table], how["force"], table_only=given_labels)
    with progress("predicting", json or path == "-"):
        # Labels that are not needed cannot be wrong.
        skip = () if given_labels else ("label", "instance_label")
        data, fitted = load_both(model, table, asked, skip=skip, **files)
        told = labels_of(fitted, data, "--given-labels needs") if given_labels else None
        with naming(data.places):
            found = fitted.predict_all(data.bags, y=told)
        result = write_predictions(fitted, data, found, path, **how)
    tell(data, json)
    if json:
        print_json(result)
    elif path != "-":
        several = f" in {result['files']} files" if result["files"] > 1 else ""
        say(f"wrote {path}: {result['rows']} rows{several}; p_mean is of {result['positive']!r}")


def evaluate(
    model: opt.ModelArg,
    table: opt.TableArg,
    bag: opt.Bag = None,
    label: opt.Label = None,
    instance_label: opt.InstanceLabel = None,
    group: opt.Group = None,
    slides: opt.Slides = None,
    delimiter: opt.Delimiter = None,
    seed: opt.ResampleSeed = 0,
    json: opt.Json = False,
    debug: opt.Debug = False,
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
            data, fitted = load_both(model, table, asked, slides=slides, delimiter=delimiter)
            from bagwise.cli.workflow import evaluate_table
            from bagwise.models.metadata import seen_bags, seen_in_fit, seen_patients

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
    model: opt.ModelArg,
    table: opt.TableArg,
    bag: opt.Bag = None,
    label: opt.Label = None,
    instance_label: opt.InstanceLabel = None,
    group: opt.Group = None,
    coords: opt.Coords = None,
    image: opt.ImageShape = None,
    title: opt.Title = None,
    output: opt.PageFile = None,
    slides: opt.Slides = None,
    delimiter: opt.Delimiter = None,
    seed: opt.ResampleSeed = 0,
    force: opt.Force = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write a page that explains the predictions; it opens in any browser, without a network.

    [bold]Examples[/bold]

    [cyan]bagwise report musk1.bagwise test.csv[/cyan]

    [cyan]bagwise report m.bagwise cells.parquet --coords x y -o report.html[/cyan]
    """
    with user_errors(debug):
        from bagwise.cli.output import file_size, print_json
        from bagwise.core.files.atomic import check_result

        path = output or default_name(table, ".report.html")
        check_result(path, [model, table], overwrite=force)
        asked = columns(bag, label, instance_label, coords, group=group)
        with progress("predicting", json):
            data, fitted = load_both(model, table, asked, slides=slides, delimiter=delimiter)
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


def inspect(model: opt.ModelArg, json: opt.Json = False, debug: opt.Debug = False) -> None:
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


def load_both(model: str, table: str, asked: "Columns", **files: Any) -> "tuple[Table, Any]":
    """The table and the model, the model first: it knows the columns."""
    from bagwise.cli.sources import read_for_model
    from bagwise.models.persistence import load_two_class

    fitted = load_two_class(model)
    return read_for_model(fitted, table, asked, **files), fitted
