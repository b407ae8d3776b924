"""What the commands on tables share: what options mean, and what is said at the end."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bagwise.cli.errors import say

if TYPE_CHECKING:
    from bagwise.io.columns import Columns
    from bagwise.io.tables import Table


def columns(
    bag: str | None,
    label: str | None = None,
    instance_label: str | None = None,
    coords: tuple[str, str] | None = None,
    z: str | None = None,
    group: str | None = None,
    features: list[str] | None = None,
) -> "Columns":
    """What the options say of the columns."""
    from bagwise.io.columns import Columns

    if z is not None and coords is None:
        raise ValueError("--z names the third coordinate; pass --coords X Y too")
    axes = (*(coords or ()), *((z,) if z is not None else ()))
    return Columns(
        bag=bag,
        label=label,
        instance_label=instance_label,
        group=group,
        coords=axes,
        features=tuple(features or ()),
    )


def load_both(
    model: str,
    table: str,
    asked: "Columns",
    slides: str | None,
    delimiter: str | None,
    skip: tuple[str, ...] = (),
) -> "tuple[Table, Any]":
    """The table and the model, the model first: it knows the columns."""
    from bagwise.cli.workflow import read_for_model
    from bagwise.models.persistence import load_two_class

    fitted = load_two_class(model)
    data = read_for_model(fitted, table, asked, slides=slides, delimiter=delimiter, skip=skip)
    return data, fitted


def default_name(table: str, ending: str) -> str:
    """The table's name without its ending, in the working directory."""
    if table == "-":
        raise ValueError("standard input has no name; say where to write with -o")
    stem = Path(table).name.removesuffix(".gz")
    return (Path(stem).stem or "bags") + ending


def command_line() -> str:
    """The command as typed, to be repeated."""
    return shlex.join(["bagwise", *sys.argv[1:]])


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Arguments of a model from NAME=VALUE; values are JSON, or else text."""
    import json

    chosen: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes NAME=VALUE, got {pair!r}, e.g. --set n_inducing=100")
        try:
            chosen[name] = json.loads(value)
        except ValueError:
            chosen[name] = {"True": True, "False": False, "None": None}.get(value, value)
    return chosen


def tell(table: "Table", quiet: bool) -> None:
    """Say what was guessed and what was read."""
    if quiet:
        return
    for note in table.notes:
        say(note)
    say(f"read {table.name}: {table.bags!r}")


def show_parts(done: dict[str, Any], folder: str, first: str, json: bool) -> None:
    """Say which files a cluster has written."""
    from bagwise.cli.output import print_json

    if json:
        print_json(done)
    else:
        say(f"wrote {len(done['files'])} files to {folder}, one for each of {first} ...")
