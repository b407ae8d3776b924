"""The `bagwise` command: the application, its options for all commands, and its errors.

Nothing heavy is imported before a command runs, so that `--help` answers at once.
"""

import io
import sys
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    import typer

CLI_PACKAGES = {"typer", "rich", "click"}


def main() -> None:
    """Run the command line; without typer or rich, say what to install and exit with 2."""
    try:
        app = build_app()
    except ImportError as error:
        if (error.name or "").split(".")[0] not in CLI_PACKAGES:
            raise
        from bagwise.io.requirements import install_line

        print(
            f"the bagwise command needs {error.name}, which is not installed; run: "
            f"{install_line('cli')}",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:  # Ctrl-C while it starts
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error in every locale
    app()


def build_app() -> "typer.Typer":
    """The application with its commands."""
    import rich  # noqa: F401  a missing rich is reported as early as a missing typer
    import typer

    from bagwise.cli.benchmark import benchmark, datasets, demo
    from bagwise.cli.doctor import doctor
    from bagwise.cli.label import label
    from bagwise.cli.papers import reproduce
    from bagwise.cli.predict import predict
    from bagwise.cli.suggest import suggest
    from bagwise.cli.tables import CommandWithModels, evaluate, fit, inspect, report

    app = typer.Typer(
        help="Bayesian multiple instance learning: probabilities for bags and their instances.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        epilog="A command that fails says why in one line on standard error and exits with 2; "
        "--debug shows the traceback, --json prints results for other programs.",
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

    app.command(cls=CommandWithModels)(fit)
    others = (predict, evaluate, report, suggest, label, inspect)
    for command in (*others, benchmark, reproduce, datasets, demo, doctor):
        app.command()(command)
    return app
