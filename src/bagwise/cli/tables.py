"""The commands that work on tables: fit, evaluate, report, inspect."""

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperOption

from bagwise.cli import options as opt
from bagwise.cli.errors import progress, say, say_notes, tell, user_errors
from bagwise.cli.options import columns, command_line, default_name, refuse_beside_scheduler

if TYPE_CHECKING:
    from bagwise.io.columns import Columns


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
    rule: opt.Rule = "at-least-one",
    reliability: opt.Reliability = None,
    features: opt.Features = None,
    rep: opt.Rep = None,
    positive: opt.Positive = None,
    model: opt.ModelName = "probit",
    settings: opt.Settings = None,
    valid: opt.Valid = None,
    sensitivity: opt.Sensitivity = None,
    specificity: opt.Specificity = None,
    cost: opt.Cost = None,
    output: opt.ModelFile = None,
    annotations: opt.Annotations = None,
    classes: opt.AnnotatedClasses = None,
    labels: opt.GivenLabelFile = None,
    tile_size: opt.TileSize = None,
    missing: opt.Missing = None,
    slides: opt.Slides = None,
    features_key: opt.FeaturesKey = None,
    coords_key: opt.CoordsKey = None,
    mpp: opt.Mpp = None,
    delimiter: opt.Delimiter = None,
    decimal: opt.Decimal = None,
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

    [cyan]bagwise fit cells.h5ad --bag donor --label disease --positive sick --rep X_pca[/cyan]

    [cyan]bagwise fit train.csv --sensitivity 0.95[/cyan] (of 100 positive bags call 95 so)

    [cyan]bagwise fit cells.csv --label purity --rule share:0.05[/cyan] (shares of positive cells)

    [cyan]bagwise fit features/ --slides slides.csv --annotations qupath/ --class Tumor=1 --tile-size 256[/cyan]

    [cyan]bagwise fit cells.csv --labels cells.labels.sqlite[/cyan] (labels of `bagwise label`)

    [cyan]bagwise fit parts/*.parquet --scheduler tcp://host:8786 -o m.bagwise[/cyan]
    """  # noqa: E501
    with user_errors(debug):
        if scheduler is not None:
            refuse_beside_scheduler(
                slides=slides, features_key=features_key, coords_key=coords_key, mpp=mpp,
                delimiter=delimiter, decimal=decimal, rep=rep, valid=valid, weight=weight,
                annotations=annotations, labels=labels, reliability=reliability,
                missing=missing,
            )  # fmt: skip
        if slides is not None and weight is not None:
            raise ValueError(
                "--weight names a column of a table of instances, and --slides reads features of "
                "slides from files; leave --weight out, or fit in Python with sample_weight="
            )
        if slides is not None and reliability is not None:
            raise ValueError(
                "--reliability names a column of a table of instances, and --slides reads features "
                "of slides from files; fit in Python with reliability="
            )
        named = (bag, label, instance_label, coords, z, group, features, weight)
        asked = columns(*named, reliability, rep)
        files = opt.slide_files(slides, features_key, coords_key, mpp, delimiter, decimal)
        chosen = opt.parse_settings(settings or []) | opt.parse_rule(rule, reliability)
        how: dict[str, Any] = {"model": model, "positive": positive, "seed": seed}
        how["settings"] = chosen
        how["threshold"] = opt.threshold(sensitivity, specificity, cost)
        how["missing"] = opt.missing_way(missing)
        files |= {"annotations": annotations, "tile_size": tile_size}
        files["classes"] = opt.annotated_classes(classes)
        fit_and_save(
            tables, asked, scheduler, files, output, force, json, labels, valid=valid, **how
        )


def fit_and_save(
    tables: list[str],
    asked: "Columns",
    scheduler: str | None,
    files: dict[str, Any],
    output: str | None,
    force: bool,
    json: bool,
    labels: str | None,
    **how: Any,
) -> None:
    """Fit a model to tables, here or on a cluster, write its file and say where."""
    from bagwise.cli import multiclass, sources, workflow
    from bagwise.cli.output import show_fit
    from bagwise.core.files.atomic import check_result
    from bagwise.models.progress import Progress

    path = output or default_name(tables[0], ".bagwise")
    check_result(path, [*tables, files["slides"]], overwrite=force)
    callbacks = [] if json else [Progress()]
    with sources.cluster(scheduler) as client:
        with progress("reading", json):
            data = sources.read_to_fit(tables, asked, client, **files)
            if labels is not None:
                from bagwise.cli.labelling.fitting import labelled_table

                data = labelled_table(data, labels, how["positive"])
        tell(data, json)
        # Labels of a rule may be shares, of which there are many.
        several = "rule" not in how["settings"] and workflow.has_classes(data)
        if several:
            fitted = multiclass.fit_classes(data, command=command_line(), **how)
        else:
            fitted = workflow.fit_table(data, callbacks=callbacks, command=command_line(), **how)
    say_notes(fitted.notes)
    fitted.model.save(path, overwrite=force)
    (multiclass.show_class_fit if several else show_fit)(fitted, path, json)


def evaluate(
    model: opt.ModelArg,
    table: opt.TableArg,
    bag: opt.Bag = None,
    label: opt.Label = None,
    instance_label: opt.InstanceLabel = None,
    group: opt.Group = None,
    rep: opt.Rep = None,
    sensitivity: opt.Sensitivity = None,
    specificity: opt.Specificity = None,
    cost: opt.Cost = None,
    missing: opt.Missing = None,
    slides: opt.Slides = None,
    features_key: opt.FeaturesKey = None,
    coords_key: opt.CoordsKey = None,
    mpp: opt.Mpp = None,
    delimiter: opt.Delimiter = None,
    decimal: opt.Decimal = None,
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
        from bagwise.cli.sources import load_both

        asked = columns(bag, label, instance_label, group=group, rep=rep)
        files = opt.slide_files(slides, features_key, coords_key, mpp, delimiter, decimal)
        chosen, gaps = opt.threshold(sensitivity, specificity, cost), opt.missing_way(missing)
        with progress("evaluating", json):
            data, fitted = load_both(model, table, asked, chosen, gaps, several=True, **files)
            from bagwise.cli import multiclass
            from bagwise.cli.workflow import evaluate_table, refuse_shares
            from bagwise.models.metadata import seen_bags, seen_in_fit, seen_patients

            refuse_shares(fitted, model, table)
            several = hasattr(fitted, "estimators_")
            scores = (
                multiclass.evaluate_classes(fitted, data)
                if several
                else evaluate_table(fitted, data, seed)
            )
        tell(data, json)
        if json:
            seen = int(seen_bags(fitted, data.bags).sum())
            shared = int(seen_patients(fitted, data.bags).sum())
            print_json({**scores, "bags_trained_on": seen, "bags_of_patients_trained_on": shared})
        else:
            for note in seen_in_fit(fitted, data.bags, data.name):
                say(f"note: {note}")
            (multiclass.show_class_scores if several else show_scores)(scores)


def report(
    model: opt.ModelArg,
    table: opt.TableArg,
    bag: opt.Bag = None,
    label: opt.Label = None,
    instance_label: opt.InstanceLabel = None,
    group: opt.Group = None,
    coords: opt.Coords = None,
    rep: opt.Rep = None,
    image: opt.ImageShape = None,
    title: opt.Title = None,
    compare: opt.CompareWith = None,
    sensitivity: opt.Sensitivity = None,
    specificity: opt.Specificity = None,
    cost: opt.Cost = None,
    output: opt.PageFile = None,
    missing: opt.Missing = None,
    slides: opt.Slides = None,
    features_key: opt.FeaturesKey = None,
    coords_key: opt.CoordsKey = None,
    mpp: opt.Mpp = None,
    delimiter: opt.Delimiter = None,
    decimal: opt.Decimal = None,
    seed: opt.ResampleSeed = 0,
    force: opt.Force = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write a page that explains the predictions; it opens in any browser, without a network.

    [bold]Examples[/bold]

    [cyan]bagwise report musk1.bagwise test.csv[/cyan]

    [cyan]bagwise report m.bagwise cells.parquet --coords x y -o report.html[/cyan]

    [cyan]bagwise report new.bagwise test.csv --compare old.bagwise[/cyan]
    """
    with user_errors(debug):
        from bagwise.cli.output import file_size, print_json
        from bagwise.cli.sources import load_both
        from bagwise.cli.workflow import refuse_shares
        from bagwise.core.files.atomic import check_result

        path = output or default_name(table, ".report.html")
        check_result(path, [model, table, slides, compare], overwrite=force)
        asked = columns(bag, label, instance_label, coords, group=group, rep=rep)
        files = opt.slide_files(slides, features_key, coords_key, mpp, delimiter, decimal)
        chosen, gaps = opt.threshold(sensitivity, specificity, cost), opt.missing_way(missing)
        with progress("predicting", json):
            data, fitted = load_both(model, table, asked, chosen, gaps, **files)
            refuse_shares(fitted, model, table)
            from bagwise.models.persistence import load_two_class
            from bagwise.report import write_report

            other = None if compare is None else load_two_class(compare)
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
                compare=other,
                compare_name=compare or "",
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
        from bagwise.cli.multiclass import describe_classes, show_classes
        from bagwise.cli.output import print_json, show_model
        from bagwise.models.persistence import load_classes
        from bagwise.report.model_card import describe_model

        fitted = load_classes(model)
        several = hasattr(fitted, "estimators_")
        found = (describe_classes if several else describe_model)(fitted)
        if json:
            print_json(found)
        else:
            (show_classes if several else show_model)(found)
