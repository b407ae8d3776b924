"""The commands `bagwise benchmark` and `bagwise datasets`: arguments in, text out.

Nothing heavy is imported before a command runs, so that `--help` answers at once.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    import typer


def add_commands(app: "typer.Typer") -> None:
    """Add both commands to the application."""
    import typer

    @app.command()
    def benchmark(
        sets: Annotated[
            list[str] | None,
            typer.Argument(help="Data sets; default musk1 musk2 elephant fox tiger."),
        ] = None,
        models: Annotated[
            str | None,
            typer.Option(help="Models, separated by commas; default the main ones and baselines."),
        ] = None,
        repeats: Annotated[int, typer.Option(help="Repeats of the cross-validation.", min=1)] = 5,
        folds: Annotated[int, typer.Option(help="Folds of each repeat.", min=2)] = 10,
        jobs: Annotated[int, typer.Option(help="Processes, one BLAS thread each.", min=1)] = 1,
        seed: Annotated[int, typer.Option(help="Seed of splits and models.", min=0)] = 0,
        output: Annotated[
            Path, typer.Option("--output", "-o", help="Folder for results.", file_okay=False)
        ] = Path("bagwise-benchmark"),
        data: Annotated[
            Path | None,
            typer.Option(help="Folder of the data sets; default BAGWISE_DATA, else the cache."),
        ] = None,
        download: Annotated[bool, typer.Option(help="Download what is missing.")] = True,
    ) -> None:
        """Compare models by cross-validation; a second run goes on where the first one stopped."""
        chosen: dict[str, Any] = {"sets": sets} if sets else {}
        if models is not None:
            chosen["models"] = [name.strip() for name in models.split(",") if name.strip()]
        run_benchmark_command(
            **chosen,
            repeats=repeats,
            folds=folds,
            jobs=jobs,
            seed=seed,
            output=output,
            data_home=data,
            download=download,
        )

    @app.command()
    def datasets(
        name: Annotated[str | None, typer.Argument(help="A data set, for all about it.")] = None,
    ) -> None:
        """List the data sets, or say all about one: origin, licence, counts, what to mind."""
        print_datasets(name)


def run_benchmark_command(output: Path, **arguments: Any) -> None:
    """Run the benchmark with a progress line, then print its page and where the files are."""
    from rich.console import Console

    console = Console()
    with console.status("loading") as status:
        from bagwise.benchmark import run, summary_table

        def announce(done: int, total: int, key: tuple[str, str, str, int, int]) -> None:
            name, target, model, repeat, fold = key
            what = f"{name} {target}".strip()
            status.update(f"{done} of {total} folds; {what}, {model}, repeat {repeat}, {fold}")

        try:
            rows = run(output=output, announce=announce, **arguments)
        except (ValueError, OSError, ImportError) as error:
            status.stop()
            print(error, file=sys.stderr)
            sys.exit(2)
    _print_summary(console, summary_table(rows))
    console.print(f"{len(rows)} folds in {output}: results.md, results.csv", soft_wrap=True)


def _print_summary(console: Any, lines: list[tuple[str, ...]]) -> None:
    from rich import box
    from rich.table import Table

    from bagwise.benchmark.report import COLUMNS

    shown = [i for i, name in enumerate(COLUMNS) if name not in ("bag log-lik.", "bag ECE")]
    if all(line[COLUMNS.index("instance AUC")] == "—" for line in lines):
        shown = [i for i in shown if not COLUMNS[i].startswith("instance")]
    table = Table(box=box.SIMPLE_HEAD, title="Held-out bags", title_justify="left")
    for i in shown:
        table.add_column(COLUMNS[i], justify="left" if i < 2 else "right", no_wrap=True)
    for line in lines:
        table.add_row(*(line[i] for i in shown))
    console.print(table)


def print_datasets(name: str | None) -> None:
    """Print the list of data sets, or the entry of one."""
    from bagwise.datasets.catalogue import ENTRIES, MISSING, entry

    if name is not None:
        try:
            known = entry(name)
        except ValueError as error:
            print(error, file=sys.stderr)
            sys.exit(2)
        print(f"{known.name}: {known.what}")
        print(f"  bags       {known.bags}")
        print(f"  instances  {known.instances} x {known.features} features")
        print(f"  truth      instance labels: {known.truth}")
        print(f"  call       bagwise.datasets.{known.call}")
        print(f"  origin     {known.origin}")
        print(f"  licence    {known.licence}")
        print(f"  sources    {known.sources}")
        print(f"  mind       {known.quirks}")
        return
    width = max(len(e.name) for e in ENTRIES)
    for e in ENTRIES:
        print(f"{e.name:{width}}  {e.what}; bags: {e.bags}")
    print("\nNot to be had by bagwise (`docs/datasets.md` says where to ask):")
    for missing in MISSING:
        print(f"  {missing.name} {missing.paper}")
