"""How commands fail and what they say on the way: one line on standard error, exit code 2."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status

    from bagwise.io.tables import Table

# What a user can cause and cure; anything else is a fault of bagwise and keeps its traceback.
OPTIONS = {"slide": "bag", "case": "group"}  # called otherwise than the arguments
USER_ERRORS = (ValueError, FloatingPointError, OSError, ImportError)


@contextmanager
def user_errors(debug: bool) -> Iterator[None]:
    """Turn errors that a user can cure into one line and exit code 2, unless `debug`.

    Ctrl-C ends in one line too, and exit code 130.
    """
    try:
        with warnings.catch_warnings(record=not debug) as caught:
            warnings.simplefilter("default")
            yield
        for warning in caught or ():
            say(f"warning: {told_warning(warning.message)}")
    except KeyboardInterrupt:
        if debug:
            raise
        say("interrupted")
        raise SystemExit(130) from None  # as shells call a command that Ctrl-C ended
    except USER_ERRORS as error:
        if debug:
            raise
        say(f"error: {describe(error)}")
        raise SystemExit(2) from None


def told_warning(warning: Warning | str) -> str:
    """A warning as a reader of the command line knows settings and models.

    >>> from bagwise.core.warnings import NearChanceWarning
    >>> told_warning(NearChanceWarning("try mean='learn', n_inducing=400, another model (MIRVM)"))
    'try --set mean=learn, --set n_inducing=400, another model (--model mirvm)'
    """
    from bagwise.core.warnings import NearChanceWarning

    text = str(warning)
    if not isinstance(warning, NearChanceWarning):
        return text
    from bagwise.models.registry import ALIASES

    text = re.sub(r"kernel=bagwise\.kernels\.RBF\(\) where[^,]*, ", "", text)  # an object of Python
    text = re.sub(r"\b(\w+)='?(\w+)'?(?![\w.(])", r"--set \1=\2", text)
    for alias, name in ALIASES.items():
        text = re.sub(rf"\b{name}\b", f"--model {alias}", text)
    return text


def describe(error: BaseException) -> str:
    """The message of an error on one line, with options in place of arguments.

    >>> describe(FileNotFoundError(2, "No such file or directory", "a.csv"))
    'a.csv: No such file or directory'
    """
    from bagwise.bags.messages import InputError
    from bagwise.core.files.atomic import KeptFileError

    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, InputError) and error.argument is not None:
        names = " ".join(map(option, error.argument.split()))
        return " ".join(error.told(f"input row {error.row}", names).split())
    more = " (here: --force)" if isinstance(error, KeptFileError) else ""
    return " ".join(str(error).split()) + more


def option(argument: str) -> str:
    """The option that stands for an argument of the library.

    >>> option("instance_label"), option("slide")
    ('--instance-label', '--bag')
    """
    return f"--{OPTIONS.get(argument, argument).replace('_', '-')}"


def tell(table: Table, quiet: bool) -> None:
    """Say what was guessed and what was read."""
    if not quiet:
        say_notes(table.notes)
        say(f"read {table.name}: {table.bags!r}")


def say_notes(notes: Iterable[str]) -> None:
    """Notes of the library, one per line, with options in place of arguments."""
    from bagwise.bags.messages import Note

    for note in notes:
        say(note.told(option(note.parts[2])) if isinstance(note, Note) else note)


def say(line: str) -> None:
    """One line on standard error, so that standard output holds results alone."""
    print(printable(" ".join(line.split())), file=sys.stderr)


def printable(text: str) -> str:
    """Text from a file as a terminal may show it: without characters that command terminals.

    >>> printable("a\\x1b[31mb\\nc")
    'a\ufffd[31mb\\nc'
    """
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


@contextmanager
def progress(what: str, quiet: bool) -> Iterator[Status | None]:
    """A line on the terminal that says what is being done; nothing where there is no terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    with console.status(f"{what} ...") as status:
        yield status
