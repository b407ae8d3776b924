"""The commands that need no table: benchmark, datasets, demo.

Nothing heavy is imported before a command runs, so that `--help` answers at once.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli.errors import progress, say, user_errors
from bagwise.cli.options import Debug, Json

if TYPE_CHECKING:
    from bagwise.benchmark.results import Row
    from bagwise.cli.demo import Outcome


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
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare models by cross-validation; a second run goes on where the first one stopped.

    [bold]Examples[/bold]

    [cyan]bagwise benchmark musk1 --models ProbitVGPMIL,MISVM --repeats 1[/cyan]

    [cyan]bagwise benchmark --jobs 2 -o results[/cyan] (all sets, hours)
    """
    chosen: dict[str, Any] = {"sets": sets} if sets else {}
    if models is not None:
        chosen["models"] = [name.strip() for name in models.split(",") if name.strip()]
    arguments = chosen | {
        "repeats": repeats,
        "folds": folds,
        "jobs": jobs,
        "seed": seed,
        "data_home": data,
        "download": download,
    }
    with user_errors(debug):
        show_benchmark(run_with_progress(output, arguments, json), output, json)


def datasets(
    name: Annotated[str | None, typer.Argument(help="A data set, for all about it.")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the data sets, or say all about one: origin, licence, counts, what to mind.

    [bold]Examples[/bold]

    [cyan]bagwise datasets[/cyan]

    [cyan]bagwise datasets musk2 --json[/cyan]
    """
    with user_errors(debug):
        if json:
            print_datasets_json(name)
        else:
            print_datasets(name)


def run_with_progress(output: Path, arguments: dict[str, Any], quiet: bool) -> "list[Row]":
    """Run the benchmark with a line on the terminal that says how far it is."""
    with progress("loading", quiet) as status:
        from bagwise.benchmark import run

        def announce(done: int, total: int, key: tuple[str, str, str, int, int]) -> None:
            name, target, model, repeat, fold = key
            what = f"{name} {target}".strip()
            if status is not None:
                status.update(f"{done} of {total} folds; {what}, {model}, repeat {repeat}, {fold}")

        return run(output=output, announce=announce, **arguments)


def show_benchmark(rows: "list[Row]", output: Path, json: bool) -> None:
    """Print the table of scores, and where the files are."""
    from bagwise.benchmark import summary_table

    lines = summary_table(rows)
    if json:
        from bagwise.benchmark.report import COLUMNS
        from bagwise.cli.output import print_json

        scores = [dict(zip(COLUMNS, line, strict=True)) for line in lines]
        print_json({"output": str(output), "folds": len(rows), "scores": scores})
        return
    _print_summary(lines)
    say(f"{len(rows)} folds in {output}: results.md, results.csv")


def _print_summary(lines: list[tuple[str, ...]]) -> None:
    from bagwise.benchmark.report import COLUMNS
    from bagwise.cli.output import print_grid

    shown = [i for i, name in enumerate(COLUMNS) if name not in ("bag log-lik.", "bag ECE")]
    if all(line[COLUMNS.index("instance AUC")] == "—" for line in lines):
        shown = [i for i in shown if not COLUMNS[i].startswith("instance")]
    rows = [[line[i] for i in shown] for line in lines]
    print_grid("Held-out bags", [COLUMNS[i] for i in shown], rows, left=2)


def print_datasets_json(name: str | None) -> None:
    """Print the list of data sets, or the entry of one, as JSON."""
    from dataclasses import asdict

    from bagwise.cli.output import print_json
    from bagwise.datasets.catalogue import ENTRIES, entry

    print_json([asdict(e) for e in ENTRIES] if name is None else asdict(entry(name)))


def print_datasets(name: str | None) -> None:
    """Print the list of data sets, or the entry of one."""
    from bagwise.datasets.catalogue import ENTRIES, MISSING, entry

    if name is not None:
        known = entry(name)
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
    from rich.text import Text

    from bagwise.cli.demo import HEADINGS, NOTES
    from bagwise.cli.output import console, print_grid

    # With breaks all columns fit 80 characters.
    headings = [heading.replace(" ", "\n", 1) for heading in HEADINGS]
    print_grid("Held-out bags", headings, [row.cells() for row in outcome.rows], left=2)
    out = console()
    for note in NOTES:
        out.print(Text(note, style="dim"))
    out.print()
    for path in outcome.files:
        out.print(Text(f"wrote {path}"), soft_wrap=True)
