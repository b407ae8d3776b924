"""`bagwise predict`: probabilities and decisions for the bags of a table, or their instances."""

from typing import TYPE_CHECKING, Any

from bagwise.cli import options as opt
from bagwise.cli.errors import progress, say, tell, user_errors
from bagwise.cli.options import columns, default_name, refuse_beside_scheduler

if TYPE_CHECKING:
    from bagwise.io.columns import Columns


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
    rep: opt.Rep = None,
    tile_size: opt.TileSize = None,
    alpha: opt.Alpha = None,
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

    [cyan]bagwise predict m.bagwise new.csv --alpha 0.1[/cyan] (which labels are possible?)

    [cyan]bagwise predict m.bagwise labelled.csv --given-labels[/cyan] (which instances are it?)

    [cyan]bagwise predict m.bagwise slide.csv -o slide.geojson --tile-size 256[/cyan] (for QuPath)

    [cyan]bagwise predict m.bagwise features/ -o tiles/ --tile-size 256[/cyan] (one file per slide)

    [cyan]bagwise predict m.bagwise cells.h5ad -o with-p.h5ad[/cyan] (obs["p"], uns["bagwise"])

    [cyan]zcat new.csv.gz | bagwise predict m.bagwise - -o -[/cyan]

    [cyan]bagwise predict m.bagwise parts/*.parquet --scheduler tcp://host:8786 -o folder[/cyan]
    """
    with user_errors(debug):
        if scheduler is not None:
            refuse_beside_scheduler(
                slides=slides, features_key=features_key, coords_key=coords_key, mpp=mpp,
                delimiter=delimiter, decimal=decimal, tile_size=tile_size, coords=coords,
                force=force, rep=rep, output=output == "-", given_labels=given_labels, label=label,
                instance_label=instance_label, alpha=alpha, sensitivity=sensitivity,
                specificity=specificity, cost=cost, missing=missing,
            )  # fmt: skip
            folder = output or default_name(tables[0], ".predictions")
            predict_on_cluster(model, tables, columns(bag), scheduler, folder, instances, json)
            return
        if not given_labels and (label or instance_label):
            raise ValueError("labels are read for --given-labels only; add it, or leave them out")
        asked = columns(bag, label, instance_label, coords, rep=rep)
        how = {"instances": instances or given_labels, "tile_size": tile_size, "force": force}
        chosen = opt.threshold(sensitivity, specificity, cost)
        files = opt.slide_files(slides, features_key, coords_key, mpp, delimiter, decimal)
        files["threshold"] = chosen
        files["missing"] = opt.missing_way(missing)
        predict_here(model, tables, asked, output, files, given_labels, alpha, json, **how)


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
    alpha: float | None,
    json: bool,
    **how: Any,
) -> None:
    """Write the predictions for one table, and say where."""
    from bagwise.cli.decisions import decided, predicted
    from bagwise.cli.multiclass import write_classes
    from bagwise.cli.output import check_output, print_json, write_predictions
    from bagwise.cli.sources import load_both, naming, one_table
    from bagwise.cli.workflow import labels_of

    table = one_table(tables)
    path = output or default_name(table, ".predictions.csv")
    check_output(path, [model, table, files["slides"]], how["force"], table_only=given_labels)
    with progress("predicting", json or path == "-"):
        # Labels that are not needed cannot be wrong.
        skip = () if given_labels else ("label", "instance_label")
        data, fitted = load_both(model, table, asked, skip=skip, several=True, **files)
        if hasattr(fitted, "estimators_"):
            refuse_beside_classes(path, given_labels, alpha)
            result = write_classes(
                fitted, data, path, instances=how["instances"], force=how["force"]
            )
            report_classes(fitted, data, result, path, json)
            return
        told = labels_of(fitted, data, "--given-labels needs") if given_labels else None
        with naming(data.places):
            found = predicted(fitted, data.bags, told)
            more = decided(fitted, data.bags, alpha)
        result = write_predictions(fitted, data, found, path, source=table, more=more, **how)
    tell(data, json)
    if json:
        print_json(result)
    elif path != "-":
        several = f" in {result['files']} files" if result["files"] > 1 else ""
        what = f"p_mean is of {result['positive']!r}"
        if getattr(fitted, "labels_are_shares", False):
            what = "share_mean is the expected share of positive instances of a bag"
        say(f"wrote {path}: {result['rows']} rows{several}; {what}")
        say_novelty(fitted)


def refuse_beside_classes(path: str, given_labels: bool, alpha: float | None) -> None:
    """Raise for what is written of two classes only."""
    from bagwise.cli.output import is_cells, is_geojson

    if given_labels or alpha is not None or is_cells(path) or is_geojson(path):
        raise ValueError(
            "of more than two classes, tables of bags and of --instances are written (.csv, "
            ".parquet, ...); --given-labels, --alpha, GeoJSON and .h5ad are for two: fit one class "
            "against the rest with a column of 0 and 1"
        )


def say_novelty(model: Any) -> None:
    """How to read the column of novelty, where there is one."""
    from bagwise.cli.decisions import on_novelty

    if words := on_novelty(model.seen_instances_):
        say(words)


def report_classes(model: Any, data: Any, result: dict[str, Any], path: str, json: bool) -> None:
    """Say what was written of several classes."""
    from bagwise.cli.output import print_json

    tell(data, json)
    if json:
        print_json(result)
    elif path != "-":
        found = f"{result['rows']} rows; columns p_... of {len(result['classes'])} classes"
        say(f"wrote {path}: {found}")
        say_novelty(model.estimators_[0])
