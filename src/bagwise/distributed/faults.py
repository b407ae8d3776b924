"""What goes wrong with parts on workers, by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bagwise.core.linalg import BREAKDOWNS

RETRIES = 3  # of a part that fails, on any worker


class PartError(RuntimeError):
    """A part of distributed bags failed on its workers, again and again."""


class BrokenPartError(PartError, FloatingPointError):
    """Numbers broke down on a part, as they may in a local fit."""


class LonelyError(PartError):
    """A cluster has had no workers for long."""


def last_attempt(named: str, last: str) -> str:
    """What is said of a part that failed among others of its worker."""
    return (
        f"{named} failed on its worker in the last of {RETRIES + 1} attempts at the parts there, "
        f"with {last}"
    )


def failure(named: str, last: BaseException) -> str:
    """What is said of a part that failed by itself."""
    return (
        f"{named} failed on its workers {RETRIES + 1} times, the last time with "
        f"{type(last).__name__}: {last}"
    )


class PartFault(Exception):
    """Number of a part that a function failed on, how, and whether numbers broke down."""


@contextmanager
def faults_of(i: int) -> Iterator[None]:
    """Errors in this context say that they are of part i; they travel from a worker."""
    try:
        yield
    except Exception as error:
        how = f"{type(error).__name__}: {error}"
        raise PartFault(i, how, isinstance(error, BREAKDOWNS)) from error
