"""`bagwise suggest`: which instances, or bags, to label next."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli import options as opt
from bagwise.cli.errors import progress, say, tell, user_errors
from bagwise.cli.options import columns, default_name

if TYPE_CHECKING:
    from bagwise.io.tables import Table

Number = Annotated[int, typer.Option("--number", "-k", help="How many to suggest.", min=1)]
WholeBags = Annotated[bool, typer.Option("--bags", help="Bags instead of instances.")]
SuggestionFile = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help=".csv, .tsv (.gz), .parquet, .feather, or - for standard output; TABLE.next.csv by "
        "default.",
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
    output: SuggestionFile = None,
    slides: opt.Slides = None,
    delimiter: opt.Delimiter = None,
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
    """
    with user_errors(debug):
        from bagwise.cli.output import check_output, print_json
        from bagwise.cli.sources import load_both
        from bagwise.io.write_tables import write_table

        path = output or default_name(table, ".next.csv")
        check_output(path, [model, table], force, table_only=True)
        asked = columns(bag, label, instance_label, coords)
        with progress("looking for questions", json or path == "-"):
            data, fitted = load_both(model, table, asked, slides=slides, delimiter=delimiter)
            frame = suggestions(fitted, data, number, bags=bags)
            write_table(frame, path, overwrite=force)
        tell(data, json)
        what = "bags" if bags else "instances"
        if json:
            print_json({"output": path, "suggested": len(frame), "of": what})
        elif path != "-":
            say(f"wrote {path}: {len(frame)} {what} to label, best first")


def suggestions(model: Any, table: "Table", k: int, *, bags: bool) -> Any:
    """The rows of a table that are suggested, best first, with what the model says of them."""
    import numpy as np

    from bagwise.cli.decisions import Decided
    from bagwise.cli.sources import naming
    from bagwise.cli.workflow import bag_frame, instance_frame
    from bagwise.io.class_labels import in_model_labels

    own = table.bags
    with naming(table.places):
        if own.y is not None:
            own = own.with_labels(in_model_labels(model, own.y, of_table=True))
        chosen = model.suggest_bags(own, k) if bags else model.suggest_instances(own, k)
        found = model.predict_all(own)
    frame = (bag_frame if bags else instance_frame)(model, table, found, Decided({}, {}))
    if bags:  # in the order in which they first appear in the table
        order = np.argsort(np.minimum.reduceat(own.row_index, own.offsets[:-1]), kind="stable")
        places = np.argsort(order)[chosen]
    else:
        places = own.row_index[chosen]
    frame = frame.iloc[places].reset_index(drop=True)
    frame.insert(0, "rank", np.arange(1, len(frame) + 1))
    return frame
