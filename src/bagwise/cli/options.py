"""Arguments and options of the commands on tables, each written once, and what they mean."""

import json
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bagwise.io.columns import Columns

TableArg = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="CSV, TSV, Parquet or Feather file (text also .gz), - for standard input, .h5ad or "
        ".zarr with cells, .smi or .sdf with molecules, or a folder of slide features.",
    ),
]
TablesArg = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE...",
        help="CSV, TSV, Parquet or Feather file (text also .gz), - for standard input, .h5ad or "
        ".zarr with cells, .smi or .sdf with molecules, or a folder of slide features; with "
        "--scheduler one or more Parquet files.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Dask scheduler, e.g. tcp://host:8786, whose workers read the files and compute.",
    ),
]
ModelArg = Annotated[str, typer.Argument(metavar="MODEL", help="File that `fit` wrote.")]
Bag = Annotated[str | None, typer.Option(help="Column with the bag of each row.")]
Label = Annotated[str | None, typer.Option(help="Column with the label of the bag.")]
InstanceLabel = Annotated[
    str | None, typer.Option(help="Column with known instance labels: 1, 0, empty if unknown.")
]
Group = Annotated[
    str | None, typer.Option(help="Column with what belongs together, e.g. the patient.")
]
Weight = Annotated[
    str | None, typer.Option(help="Column with how many times each bag counts; 0 leaves it out.")
]
Rule = Annotated[
    str,
    typer.Option(
        help="What the label of a bag means: at-least-one, at-least-2 (or another number), share "
        "(of positives, 0 to 1), or share:0.1, known to 0.1; for models probit and mi-logistic.",
    ),
]
Reliability = Annotated[
    str | None, typer.Option(help="Column with the probability that each bag's label is right.")
]
Coords = Annotated[
    tuple[str, str] | None, typer.Option(metavar="X Y", help="Columns with coordinates.")
]
Depth = Annotated[str | None, typer.Option("--z", help="Column with the third coordinate.")]
Rep = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Of .h5ad and .zarr: what stands for a cell, e.g. X_pca or a layer; X by default.",
    ),
]
Slides = Annotated[
    str | None,
    typer.Option(
        help="With a folder: its CSV with slide_id, label, case_id; --bag case_id makes "
        "one bag of all slides of a patient."
    ),
]
FeaturesKey = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of slide files: the array of features, if not features."),
]
CoordsKey = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of slide files: the array of coordinates, if not coords."),
]
Mpp = Annotated[
    float | None,
    typer.Option(help="Of slide files in micrometres (STAMP): the width of a pixel, e.g. 0.25."),
]
Delimiter = Annotated[str | None, typer.Option(help="Of a text table, if its ending lies.")]
Decimal = Annotated[
    str | None, typer.Option(help="Decimal sign of a text table, e.g. ','; a point by default.")
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite the output.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Features = Annotated[
    list[str] | None,
    typer.Option(
        help="Feature columns, e.g. 'f_*', or '!note' for all but one; repeat it for more."
    ),
]
Positive = Annotated[
    str | None, typer.Option(help="The label that is positive; needed if labels are text.")
]
ModelName = Annotated[str, typer.Option(help="{models}, or a class name such as MIRVM.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Argument of the model, e.g. n_inducing=100; may be repeated."),
]
Valid = Annotated[
    float | None, typer.Option(help="Share of bags to hold out and score.", min=0, max=1)
]
ModelFile = Annotated[
    str | None, typer.Option("--output", "-o", help="Model file; TABLE.bagwise by default.")
]
Seed = Annotated[int, typer.Option(help="Seed of split and model.", min=0)]
ResampleSeed = Annotated[int, typer.Option("--seed", help="Seed of the weights of bags.", min=0)]
Instances = Annotated[
    bool, typer.Option("--instances", help="One row per instance instead of per bag.")
]
GivenLabels = Annotated[
    bool,
    typer.Option(
        "--given-labels",
        help="One row per instance, also with its probability given the label of its bag.",
    ),
]
PredictionFile = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help=".csv, .tsv (.gz), .parquet, .feather, .geojson, FOLDER/ for one .geojson per bag, "
        ".h5ad or .zarr for a copy of TABLE with the results in it, or - for standard output; "
        "TABLE.predictions.csv by default.",
    ),
]
Alpha = Annotated[
    float | None,
    typer.Option(
        help="Also write which labels each bag may have: of either label at most this share of "
        "bags is left without its own.",
        min=0,
        max=1,
    ),
]
Sensitivity = Annotated[
    float | None,
    typer.Option(help="Share of positive bags to call positive, e.g. 0.95.", min=0, max=1),
]
Specificity = Annotated[
    float | None, typer.Option(help="Share of negative bags to call negative.", min=0, max=1)
]
Cost = Annotated[
    float | None, typer.Option(help="False alarms that a missed positive bag is worth, e.g. 10.")
]
TileSize = Annotated[
    float | None,
    typer.Option(
        help="Edge of a tile in pixels, for .geojson and --annotations; from the files "
        "of slides by default."
    ),
]
Annotations = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Annotations of QuPath with one BAG.geojson per bag, or for some: labels of tiles.",
    ),
]
AnnotatedClasses = Annotated[
    list[str] | None,
    typer.Option(
        "--class",
        metavar="NAME=LABEL",
        help="What a class of the annotations means: 1, 0, or nothing to leave it out, e.g. "
        "--class Tumor=1; may be repeated.",
    ),
]
GivenLabelFile = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Labels of instances that people gave with `bagwise label`.",
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(
        metavar="median|drop|error",
        help="Features without a value: fill in medians of the training bags, leave the row out, "
        "or stop, as by default. Other commands do what the fit did.",
    ),
]
ImageShape = Annotated[
    tuple[int, int] | None,
    typer.Option(metavar="H W", help="Features are the pixels of images of this size."),
]
CompareWith = Annotated[
    str | None,
    typer.Option("--compare", metavar="MODEL", help="Another model file, scored on the same bags."),
]
Title = Annotated[str | None, typer.Option(help="Title of the page.")]
PageFile = Annotated[
    str | None, typer.Option("--output", "-o", help="Page; TABLE.report.html by default.")
]


def columns(
    bag: str | None,
    label: str | None = None,
    instance_label: str | None = None,
    coords: tuple[str, str] | None = None,
    z: str | None = None,
    group: str | None = None,
    features: list[str] | None = None,
    weight: str | None = None,
    reliability: str | None = None,
    rep: str | None = None,
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
        weight=weight,
        reliability=reliability,
        coords=axes,
        features=tuple(features or ()),
        rep=rep,
    )


def slide_files(
    slides: str | None,
    features_key: str | None,
    coords_key: str | None,
    mpp: float | None,
    delimiter: str | None,
    decimal: str | None,
) -> dict[str, Any]:
    """What the options say of files: of slides and their arrays, or of a text table."""
    from bagwise.cli.slide_folders import Arrays

    arrays = Arrays(features_key, coords_key, mpp)
    return {"slides": slides, "delimiter": delimiter, "decimal": decimal, "arrays": arrays}


def threshold(
    sensitivity: float | None, specificity: float | None, cost: float | None
) -> dict[str, float]:
    """What a threshold was asked for by; nothing, or one of the three."""
    from bagwise.core.calibration.thresholds import asked_for

    asked = {"sensitivity": sensitivity, "specificity": specificity, "cost": cost}
    given = [f"--{name}" for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"one threshold is chosen; pass one of {' and '.join(given)}")
    return asked_for(**asked) if given else {}


def missing_way(missing: str | None) -> str | None:
    """What --missing asks for, if anything."""
    ways = ("median", "drop", "error")
    if missing is not None and missing not in ways:
        raise ValueError(f"--missing takes {', '.join(ways)}, got {missing!r}")
    return missing


def annotated_classes(pairs: list[str] | None) -> dict[str | None, int | None]:
    """What classes of annotations mean; the name of annotations without a class is empty.

    >>> annotated_classes(["Tumor=1", "Artefact="])
    {'Tumor': 1, 'Artefact': None}
    """
    found: dict[str | None, int | None] = {}
    for pair in pairs or []:
        name, equals, label = pair.rpartition("=")
        if not equals or label not in ("1", "0", ""):
            raise ValueError(f"--class takes NAME=1, NAME=0 or NAME=, got {pair!r}")
        found[name or None] = int(label) if label else None
    return found


def parse_rule(text: str, reliability: str | None = None) -> dict[str, Any]:
    """The model's argument `rule`, where it is not the usual one.

    >>> parse_rule("at-least-3"), parse_rule("share:0.1"), parse_rule("at-least-one")
    ({'rule': AtLeast(k=3)}, {'rule': Share(std=0.1)}, {})
    """
    from bagwise.core.likelihoods.rules import AtLeast, Share

    kind, _, number = text.rpartition("-")
    share, colon, std = text.partition(":")
    if text == "at-least-one":
        return {} if reliability is None else {"rule": AtLeast(1)}
    if kind == "at-least" and number.isdigit():
        return {"rule": AtLeast(int(number))}
    with suppress(ValueError):
        if share == "share":
            return {"rule": Share(float(std)) if colon else Share()}
    raise ValueError(
        f"--rule is at-least-one, at-least-2 (or another number), share or share:0.1; got {text!r}"
    )


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


def refuse_beside_scheduler(**options: Any) -> None:
    """Raise where an option that works on one table was given beside --scheduler."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise ValueError(
                f"--{name.replace('_', '-')} is for one table on this machine; leave it out, or "
                "--scheduler"
            )
