"""The `bagwise` command: parses arguments and prints; the work is done elsewhere.

Nothing heavy is imported before a command runs, so that `--help` answers at once.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    import typer

    from bagwise.demo import Outcome

CLI_PACKAGES = {"typer", "rich", "click"}


def main() -> None:
    """Run the command line; without typer or rich, say what to install and exit with 2."""
    try:
        app = build_app()
    except ImportError as error:
        if (error.name or "").split(".")[0] not in CLI_PACKAGES:
            raise
        print(
            f"the bagwise command needs {error.name}, which is not installed; "
            'run: pip install "bagwise[cli]"',
            file=sys.stderr,
        )
        sys.exit(2)
    app()


def build_app() -> "typer.Typer":
    """The application with its commands."""
    import rich  # noqa: F401  a missing rich is reported as early as a missing typer
    import typer

    from bagwise.cli_benchmark import add_commands

    app = typer.Typer(
        help="Bayesian multiple instance learning: probabilities for bags and their instances.",
        no_args_is_help=True,
        add_completion=False,
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            from importlib.metadata import version as installed

            typer.echo(f"bagwise {installed('bagwise')}")
            raise typer.Exit

    @app.callback()
    def options(
        version: Annotated[
            bool,
            typer.Option(
                "--version", callback=show_version, is_eager=True, help="Print the version."
            ),
        ] = False,
    ) -> None:
        pass

    @app.command()
    def demo(
        output: Annotated[
            Path, typer.Option(help="Directory for the figure and the report.", file_okay=False)
        ] = Path("bagwise-demo"),
        seed: Annotated[int, typer.Option(help="Seed of data, splits and models.", min=0)] = 0,
    ) -> None:
        """Train two models on digit bags and MUSK1, print scores, draw some bags."""
        run_demo_command(output, seed)

    add_commands(app)
    return app


def run_demo_command(output: Path, seed: int) -> None:
    """Run the demo with a progress line, then print its table and where its files are."""
    from rich.console import Console

    console = Console()
    with console.status("loading") as status:
        from bagwise.demo import run_demo

        try:
            outcome = run_demo(output, seed, announce=lambda what: status.update(f"{what} ..."))
        except ImportError as error:
            status.stop()
            print(error, file=sys.stderr)
            sys.exit(2)
    print_outcome(console, outcome)


def print_outcome(console: "rich.console.Console", outcome: "Outcome") -> None:
    """Print the table of scores, its notes and the files written."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from bagwise.demo import HEADINGS, NOTES

    table = Table(box=box.SIMPLE_HEAD, title="Held-out bags", title_justify="left")
    for i, heading in enumerate(HEADINGS):
        broken = heading.replace(" ", "\n", 1)  # all columns fit 80 characters this way
        table.add_column(broken, justify="left" if i < 2 else "right", no_wrap=True)
    for row in outcome.rows:
        table.add_row(*map(Text, row.cells()))
    console.print(table)
    for note in NOTES:
        console.print(Text(note, style="dim"))
    console.print()
    for path in outcome.files:
        console.print(Text(f"wrote {path}"), soft_wrap=True)


if TYPE_CHECKING:
    import rich.console
