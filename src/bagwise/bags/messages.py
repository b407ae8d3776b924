"""How errors name rows, arguments and values of the input (internal)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

ROW = "\0"  # stands for the row in the text of an InputError, and in no text of a user


class InputError(ValueError):
    """Input that breaks a rule: `row` is at fault, from 0; `argument` would cure it; or None.

    Two arguments that would together have a space between them.

    >>> error = InputError(f"{ROW} has no label; name its column", 3, argument="label")
    >>> str(error), error.told("line 5", "--label")
    ('input row 3 has no label; name its column (label=)',
     'line 5 has no label; name its column (--label)')
    """

    def __init__(
        self,
        text: str,
        row: int | None = None,
        argument: str | None = None,
        called: str = "input row",
    ) -> None:
        super().__init__(text, row, argument, called)
        self.text, self.row, self.argument, self.called = text, row, argument, called

    def __str__(self) -> str:
        names = " ".join(f"{name}=" for name in (self.argument or "").split())
        return self.told(f"{self.called} {self.row}", names)

    def told(self, place: str, argument: str) -> str:
        """The message, with the place of its row and its argument as the reader knows them."""
        said = self.text.replace(ROW, place)
        return said if self.argument is None else f"{said} ({argument})"


class Note(str):
    """What was guessed and why, and the argument that chooses otherwise.

    >>> Note("label column: 'y'", "guessed", argument="label")
    "label column: 'y' (guessed; choose with label=)"
    """

    parts: tuple[str, str, str]

    def __new__(cls, text: str, why: str, argument: str) -> Self:
        """The note for users of the library."""
        note = super().__new__(cls, f"{text} ({why}; choose with {argument}=)")
        note.parts = text, why, argument
        return note

    def __getnewargs__(self) -> tuple[str, str, str]:  # type: ignore[override]
        return self.parts

    def told(self, argument: str) -> str:
        """The note, with its argument as the reader knows it."""
        text, why, _ = self.parts
        return f"{text} ({why}; choose with {argument})"


def show(value: Any) -> str:
    """Write a scalar as a user would type it: `'a'`, not `np.str_('a')`."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def some(values: Sequence[Any]) -> str:
    """The first five values of a list, and how many there are.

    >>> some([1, 2]), some(range(9))
    ('[1, 2]', '[0, 1, 2, 3, 4, ...] (9 in all)')
    """
    if len(values) <= 5:
        return f"[{', '.join(map(show, values))}]"
    return f"[{', '.join(map(show, values[:5]))}, ...] ({len(values)} in all)"


def count(n: int, noun: str) -> str:
    """A number of things in words."""
    return f"{n} {noun}" + ("" if n == 1 else "s")


def describe_labels(y: Any) -> str:
    """How many labels there are of each kind, as `repr(bags)` says it."""
    if y is None:
        return ", unlabelled"
    values, counts = np.unique(y, return_counts=True)
    if len(values) and values.dtype.kind in "biuf" and np.isin(values, (0, 1)).all():
        positive = int(np.sum(y == 1))
        return f": {positive} positive, {len(y) - positive} negative"
    if len(values) > 5:
        return f": {len(values)} different labels"
    return ": " + ", ".join(f"{n} {show(v)}" for v, n in zip(values, counts, strict=True))


def in_words(bags: Any) -> list[str]:
    """What `repr(bags)` says of them: bags, instances, precision."""
    low, high = (bags.sizes.min(), bags.sizes.max()) if len(bags) else (0, 0)
    return [
        count(len(bags), "bag") + describe_labels(bags.y),
        f"{count(bags.n_instances, 'instance')} x {count(bags.n_features, 'feature')}, "
        + (f"{low}-{high} per bag" if low < high else f"{low} per bag"),
        str(bags.dtype),
    ]
