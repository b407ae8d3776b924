"""From rows to what people read: one Markdown page and one CSV per paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bagwise.benchmark.reproduce.table import Table
from bagwise.benchmark.results import Row

Line = tuple[str, ...]


def lines(table: Table, rows: Sequence[Row]) -> list[Line]:
    """Data, whose figures, setting, and a cell per measure: the published ones first by data."""
    published = [
        (p.data, "published", p.method, *(_printed(p.figures.get(m)) for m in table.measures))
        for p in table.published
    ]
    own: dict[tuple[str, str], list[Row]] = {}
    for trial in table.trials:
        _, where, setting, _, _ = trial.key
        own.setdefault((where, setting), [])
    for row in rows:
        if row["set"] == table.name and (row["target"], row["model"]) in own:
            own[row["target"], row["model"]].append(row)
    measured = [
        (where, "measured", setting, *(_cell(found, m, table) for m in table.measures))
        for (where, setting), found in own.items()
    ]
    if table.mean:
        measured = [*_means(table, own), *measured]
    order = list(dict.fromkeys(line[0] for line in [*published, *measured]))
    both = [*published, *measured]
    return sorted(both, key=lambda line: (order.index(line[0]), line[1] == "measured"))


def headings(table: Table) -> Line:
    """The names of the columns of `lines`."""
    return ("data", "figures", "setting", *table.measures)


def markdown(
    title: str,
    command: str,
    when: str,
    parts: Sequence[tuple[Table, list[Line]]],
    drawn: Mapping[str, str] | None = None,
) -> str:
    """The page of a paper; `drawn` are the files of pictures by their names."""
    out = [f"# {title}", "", f"Made by {command}, {when}.", ""]
    for table, found in parts:
        out += [f"## {table.title}", ""]
        if table.missing:
            out += [f"Not run: {table.missing}", ""]
        if found:
            head = headings(table)
            out += ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
            out += ["| " + " | ".join(cell.replace("|", "/") for cell in f) + " |" for f in found]
            out.append("")
        out += _shown(table, drawn or {})
        out += [f"- {note}" for note in table.notes]
        out += [""] if table.notes else []
    return "\n".join(out)


def _shown(table: Table, drawn: Mapping[str, str]) -> list[str]:
    """The pictures of a table that were drawn, with their captions."""
    there = [picture for picture in table.pictures if picture.name in drawn]
    return [
        line
        for picture in there
        for line in (f"![{picture.caption}]({drawn[picture.name]})", "", f"*{picture.caption}*", "")
    ]


def records(table: Table, found: Sequence[Line]) -> list[dict[str, Any]]:
    """The lines as dictionaries, for CSV and JSON."""
    return [
        {"table": table.name, **dict(zip(headings(table), line, strict=True))} for line in found
    ]


def _means(table: Table, own: dict[tuple[str, str], list[Row]]) -> list[Line]:
    """Lines of the means over all data, of settings that were run on all of them."""
    everywhere = dict.fromkeys(where for where, found in own if own[where, found])
    lines = []
    for setting in dict.fromkeys(setting for _, setting in own):
        groups = [own.get((where, setting), []) for where in everywhere]
        if all(groups):
            cells = (_cell([_averaged(rows, m) for rows in groups], m, table, spread=False)
                     for m in table.measures)  # fmt: skip
            lines.append((table.mean, "measured", setting, *cells))
    return lines


def _averaged(rows: Sequence[Row], measure: str) -> Row:
    return {measure: float(np.mean([row[measure] for row in rows]))}


def _printed(value: float | str | None) -> str:
    if value is None:
        return "—"
    return value if isinstance(value, str) else f"{value:g}"


def _cell(rows: Sequence[Row], measure: str, table: Table, spread: bool = True) -> str:
    """Mean over trials, ± their standard deviation where there are several."""
    values = np.array([row[measure] for row in rows if row.get(measure) is not None], dtype=float)
    values = values[np.isfinite(values)]
    if not values.size:
        return "—"
    digits = table.digits.get(measure, 3)
    mean = f"{values.mean():.{digits}f}"
    return mean if len(values) == 1 or not spread else f"{mean} ± {values.std():.{digits}f}"
