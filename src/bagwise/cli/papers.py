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
    from bagwise.benchmark.reproduce.page import Line
    from bagwise.benchmark.reproduce.table import Table


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
    from bagwise.benchmark.reproduce.page import records
    from bagwise.cli.output import print_json

    pairs = list(zip(outcome.tables, outcome.lines, strict=True))
    if json:
        rows = [record for table, found in pairs for record in records(table, found)]
        files = [str(path) for path in outcome.files]
        print_json({"paper": outcome.paper, "rows": rows, "files": files})
        return
    for table, found in pairs:
        show_table(table, found)
        if table.missing:
            say(f"not run: {table.missing}")
        for note in table.notes:
            say(note)
    say("wrote " + ", ".join(str(path) for path in outcome.files))


def show_table(table: "Table", found: "list[Line]") -> None:
    """Print the lines set by set, in grids of as many measures as the terminal has room for."""
    from shutil import get_terminal_size

    from bagwise.cli.output import print_grid

    for where in dict.fromkeys(line[0] for line in found):
        here = [line for line in found if line[0] == where]
        names = [f"{'paper' if line[1] == 'published' else 'here'}: {line[2]}" for line in here]
        columns = [[measure.replace(" ", "\n"), *(line[3 + i] for line in here)]
                   for i, measure in enumerate(table.measures)]  # fmt: skip
        columns = [column for column in columns if any(cell != "—" for cell in column[1:])]
        room = get_terminal_size().columns - max(map(len, names)) - 4
        for part in fitting(columns, room):
            rows = list(zip(names, *(column[1:] for column in part), strict=True))
            print_grid(f"{table.title}: {where}", ["", *(c[0] for c in part)], rows)


def fitting(columns: list[list[str]], room: int) -> list[list[list[str]]]:
    """Columns in groups that are no wider than the room, or that have one column.

    >>> fitting([["a", "0.1"], ["b", "0.2"], ["c", "0.3"]], 11)
    [[['a', '0.1'], ['b', '0.2']], [['c', '0.3']]]
    """
    groups: list[list[list[str]]] = []
    left = 0
    for column in columns:
        width = 2 + max(len(word) for cell in column for word in cell.split("\n"))
        if not groups or width > left:
            groups.append([])
            left = room
        groups[-1].append(column)
        left -= width
    return groups
