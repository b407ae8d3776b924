"""`bagwise demo`: parses its arguments and prints what the demo found."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bagwise.cli.errors import progress, user_errors
from bagwise.cli.options import Debug, Json

if TYPE_CHECKING:
    from bagwise.cli.demo import Outcome


def demo(
    output: Annotated[
        Path, typer.Option(help="Directory for the figure and the report.", file_okay=False)
    ] = Path("bagwise-demo"),
    seed: Annotated[int, typer.Option(help="Seed of data, splits and models.", min=0)] = 0,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train two models on digit bags and MUSK1, print scores, draw some bags.

    [bold]Examples[/bold]

    [cyan]bagwise demo[/cyan]

    [cyan]bagwise demo --output first-look --seed 3[/cyan]
    """
    with user_errors(debug), progress("loading", json) as status:
        from bagwise.cli.demo import run_demo

        def announce(what: str) -> None:
            if status is not None:
                status.update(f"{what} ...")

        outcome = run_demo(output, seed, announce=announce)
    if json:
        from dataclasses import asdict

        from bagwise.cli.output import print_json

        files = [str(path) for path in outcome.files]
        print_json({"scores": [asdict(row) for row in outcome.rows], "files": files})
    else:
        print_outcome(outcome)


def print_outcome(outcome: "Outcome") -> None:
    """Print the table of scores, its notes and the files written."""
    from rich.console import Console
    from rich.text import Text

    from bagwise.cli.demo import HEADINGS, NOTES
    from bagwise.cli.output import print_grid

    # With breaks all columns fit 80 characters.
    headings = [heading.replace(" ", "\n", 1) for heading in HEADINGS]
    print_grid("Held-out bags", headings, [row.cells() for row in outcome.rows], left=2)
    console = Console()
    for note in NOTES:
        console.print(Text(note, style="dim"))
    console.print()
    for path in outcome.files:
        console.print(Text(f"wrote {path}"), soft_wrap=True)
