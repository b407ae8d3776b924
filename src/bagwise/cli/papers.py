"""The command `reproduce`: a paper's experiments, published figures beside our own.

Nothing heavy is imported before the command runs, so that `--help` answers at once.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli.errors import progress, say, user_errors
from bagwise.cli.options import Debug, Json

if TYPE_CHECKING:
    from bagwise.benchmark.reproduce import Outcome


def reproduce(
    paper: Annotated[str, typer.Argument(help="v17, r08, w21, m24 or c24.")],
    table: Annotated[
        str | None,
        typer.Option(help="One of its tables or figures; a wrong name says which there are."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Minutes instead of hours.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes, one BLAS thread each.", min=1)] = 1,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for results.", file_okay=False)
    ] = Path("bagwise-papers"),
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with data that cannot be fetched (docs/papers.md)."),
    ] = None,
    download: Annotated[bool, typer.Option(help="Download what is missing.")] = True,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run the experiments of a paper; a second run goes on where the first one stopped.

    [bold]Examples[/bold]

    [cyan]bagwise reproduce w21 --quick --jobs 2[/cyan]

    [cyan]bagwise reproduce v17 --table detection --data VOCdevkit -o results[/cyan]
    """
    arguments = {
        "table": table,
        "quick": quick,
        "jobs": jobs,
        "output": output,
        "data": data,
        "download": download,
    }
    with user_errors(debug):
        show(run_paper(paper, arguments, json), json)


def run_paper(paper: str, arguments: dict[str, Any], quiet: bool) -> "Outcome":
    """Run the experiments with a line on the terminal that says how far they are."""
    with progress("loading", quiet) as status:
        from bagwise.benchmark.reproduce import reproduce

        def announce(done: int, total: int, key: tuple[str, str, str, int, int]) -> None:
            table, where, setting, repeat, _ = key
            if status is not None:
                what = f"table {table}, {where}, {setting}, repeat {repeat}"
                status.update(f"{done} of {total} rows; {what}")

        return reproduce(paper, announce=announce, **arguments)


def show(outcome: "Outcome", json: bool) -> None:
    """Print the tables with their notes, and where the files are."""
    from bagwise.benchmark.reproduce.page import headings, records
    from bagwise.cli.output import print_grid, print_json

    pairs = list(zip(outcome.tables, outcome.lines, strict=True))
    if json:
        rows = [record for table, found in pairs for record in records(table, found)]
        files = [str(path) for path in outcome.files]
        print_json({"paper": outcome.paper, "rows": rows, "files": files})
        return
    for table, found in pairs:
        print_grid(table.title, headings(table), found, left=3)
        if table.missing:
            say(f"not run: {table.missing}")
        for note in table.notes:
            say(note)
    say("wrote " + ", ".join(str(path) for path in outcome.files))
