"""Running a paper's experiments: which rows are still to do, in parallel, then page and tables."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bagwise.benchmark.reproduce.data import Source
from bagwise.benchmark.reproduce.figures import NO_MATPLOTLIB, can_draw, draw
from bagwise.benchmark.reproduce.page import Line, lines, markdown, records
from bagwise.benchmark.reproduce.table import EFFORTS, Plan, Table, Trial
from bagwise.benchmark.results import Row, Store, write_whole
from bagwise.benchmark.run import Announce, run_missing
from bagwise.core.parameters import check_choice, check_integer
from bagwise.io.write_tables import safe_cell

Maker = Callable[[Plan], Table]
PAPERS = ("v17", "r08", "w21", "m24", "c24")


@dataclass(frozen=True)
class Outcome:
    """The tables of a paper with their lines, and the files that were written."""

    paper: str
    tables: tuple[Table, ...]
    lines: tuple[list[Line], ...]
    files: tuple[Path, ...]


def reproduce(
    paper: str,
    *,
    table: str | None = None,
    quick: bool = False,
    effort: str | None = None,
    jobs: int = 1,
    output: str | os.PathLike[str] = "bagwise-papers",
    data: str | os.PathLike[str] | None = None,
    download: bool = True,
    announce: Announce | None = None,
) -> Outcome:
    """Run the experiments of a paper, published figures beside our own.

    Parameters
    ----------
    paper : "v17", "r08", "w21", "m24" or "c24".
    table : one of its tables or figures; default all. A wrong name says which there are.
    quick : minutes instead of hours: fewer repeats and smaller grids. The same as
        `effort="quick"`; `effort="smoke"` takes seconds and shows that it works, no more.
    jobs : processes, each with one BLAS thread.
    output : folder; results are kept in PAPER-EFFORT in it, row by row, and a second run goes on.
        `PAPER.md` and `PAPER.csv` there have the tables, `PAPER-FIGURE.png` the pictures (which
        need matplotlib).
    data : a folder with data sets that cannot be fetched, see docs/papers.md.
    download : whether what is missing may be downloaded.
    announce : called as announce(done, total, (table, data, setting, repeat, 0)) after each row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = reproduce("r08", table="6", effort="smoke", output=folder)
    >>> [line[2] for line in done.lines[0]]
    ['this task alone (MIRVM)', 'both tasks (MultiTaskMIRVM)']
    """
    check_choice("paper", paper, PAPERS)
    check_integer("jobs", jobs, at_least=1)
    effort = check_choice("effort", effort or ("quick" if quick else "full"), EFFORTS)
    about = import_module(f"bagwise.benchmark.reproduce.{paper}")
    source = Source(None if data is None else os.fspath(data), download)
    plan = Plan(effort, source)
    tables = [maker(plan) for maker in chosen(about.TABLES, table, paper)]
    folder = Path(output) / f"{paper}-{effort}"
    todo = [trial for made in tables for trial in made.trials]
    store = Store(folder, configuration(todo))
    try:
        run_missing(todo, store, jobs, announce)
    finally:  # a run that is stopped leaves a page of what it had
        rows = store.rows()
        found = [lines(made, rows) for made in tables]
        done = sum(store.has(trial.key) for trial in todo)
        command = _command(paper, table, effort, done, len(todo))
        name = paper if table is None else f"{paper}-{table}"
        pictures = draw_all(folder, paper, tables, rows)
        text = _page(about.TITLE, command, tables, found, pictures)
        tabled = _write(folder, name, text, tables, found)
        files = (*tabled, *(folder / file for file in pictures.values()))
    return Outcome(paper, tuple(tables), tuple(found), files)


def chosen(tables: Mapping[str, Maker], name: str | None, paper: str) -> list[Maker]:
    """The tables asked for; several names may stand for one, as Tables 2 and 3 of [R08]."""
    if name is not None and name not in tables:
        raise ValueError(f"{paper} has no table {name!r}; there are: {', '.join(tables)}")
    wanted = list(tables.values()) if name is None else [tables[name]]
    return list(dict.fromkeys(wanted))


def configuration(todo: Sequence[Trial]) -> dict[str, Any]:
    """What results depend on, in a form that can be compared with what is in a folder."""
    prints = {id(trial.problem): trial.problem for trial in todo}
    digests = {key: problem.fingerprint() for key, problem in prints.items()}
    return {
        "version": version("bagwise"),
        "sets": {f"{t.key[0]} {t.key[1]}": digests[id(t.problem)] for t in todo},
        "models": {" / ".join(t.key[:3]): t.describe() for t in todo},
    }


def _command(paper: str, table: str | None, effort: str, done: int, total: int) -> str:
    """What made a page, and how far it came."""
    option = {"full": "", "quick": " --quick", "smoke": ""}[effort]
    chosen = "" if table is None else f" --table {table}"
    about = f"`bagwise reproduce {paper}{chosen}{option}`"
    if effort == "smoke":
        about += " reduced to a trial of the code"
    if done < total:
        about += f", stopped when {done} of {total} rows were there"
    return about


def draw_all(
    folder: Path, paper: str, tables: Sequence[Table], rows: Sequence[Row]
) -> dict[str, str]:
    """Draw all pictures of which there are rows: names of files by those of pictures."""
    drawn = {}
    for made in tables:
        settings = {trial.setting for trial in made.trials}
        found = [row for row in rows if row["set"] == made.name and row["model"] in settings]
        for picture in made.pictures if found and can_draw() else ():
            drawn[picture.name] = f"{paper}-{picture.name}.png"
            draw(picture, found, folder / drawn[picture.name])
    return drawn


def _page(
    title: str,
    command: str,
    tables: Sequence[Table],
    found: Sequence[list[Line]],
    pictures: Mapping[str, str],
) -> str:
    when = f"{datetime.now(UTC):%Y-%m-%d}, bagwise {version('bagwise')}"
    if any(made.pictures for made in tables) and not can_draw():
        when += f". {NO_MATPLOTLIB.removesuffix('.')}"
    return markdown(title, command, when, list(zip(tables, found, strict=True)), pictures)


def _write(
    folder: Path, name: str, text: str, tables: Sequence[Table], found: Sequence[list[Line]]
) -> tuple[Path, Path]:
    """Write the page and the CSV."""
    page, sheet = folder / f"{name}.md", folder / f"{name}.csv"
    write_whole(page, text)
    pairs = zip(tables, found, strict=True)
    cells = [record for made, part in pairs for record in records(made, part)]
    columns = list(dict.fromkeys(column for record in cells for column in record))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([safe_cell(column) for column in columns])
    writer.writerows([safe_cell(record.get(c, "")) for c in columns] for record in cells)
    write_whole(sheet, out.getvalue())
    return page, sheet
