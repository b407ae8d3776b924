"""Numbers that tables hold as text: with units, signs or thousands separators (internal)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

EMPTY = ("", "na", "n/a", "nan", "null", "none")
LOOKED_AT = 1000  # cells: enough to tell numbers from text
NEARLY_ALL = 0.9
MOST_UNITS = 3  # more endings than these are of codes, such as 12a, 12b, 13c, ...
# Groups of three digits after a comma, a space (also those that do not break) or an apostrophe.
_DRESSED = re.compile(
    r"(?P<sign>[<>≤≥~±$€£¥]\s?)?[+-]?"
    r"(?P<digits>\d{1,3}(?P<sep>[,' \u00a0\u2009\u202f’])\d{3}((?P=sep)\d{3})*(\.\d+)?"
    r"|\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
    r"\s?(?P<unit>[%‰°$€£¥]|[^\W\d_][\w/²³^·*%-]{0,7})?"
)


class Dressed(NamedTuple):
    """The first cell of a column whose numbers are dressed up as text, and what with."""

    row: int
    cell: str
    what: str  # "units", "signs" or "thousands separators"


def dressed_numbers(values: Iterable[Any]) -> Dressed | None:
    """The first number of a column that has a unit, a sign or separators; None of other columns.

    Nearly all cells must be numbers, and their units few: codes such as 12a and 12b are text.

    >>> dressed_numbers(["3.1 mm", "4 mm", "", "12.5 mm"])
    Dressed(row=0, cell='3.1 mm', what='units')
    >>> dressed_numbers(["999.5", "1,234.56"]).what, dressed_numbers(["<5", "7", "9"]).what
    ('thousands separators', 'signs')
    >>> [dressed_numbers(v) for v in (["1.5", "2"], ["12a", "12b", "13c"], ["stage 2", "3 mm"])]
    [None, None, None]
    """
    text = ((i, v.strip()) for i, v in enumerate(values) if isinstance(v, str))
    cells = list(islice(((i, v) for i, v in text if v.lower() not in EMPTY), LOOKED_AT))
    numbers = [(i, v, m) for i, v in cells if (m := _DRESSED.fullmatch(v))]
    dressed = [(i, v, m) for i, v, m in numbers if _worn(m)]
    if not dressed or len(numbers) < NEARLY_ALL * len(cells):
        return None
    units = {m["unit"] for _, _, m in numbers if m["unit"]}
    if len(units) > MOST_UNITS or len(units) >= len({m["digits"] for _, _, m in numbers}):
        return None
    row, cell, match = dressed[0]
    return Dressed(row, cell, _worn(match))


def _worn(match: re.Match[str]) -> str:
    if match["unit"]:
        return "units"
    if match["sep"]:
        return "thousands separators"
    return "signs" if match["sign"] else ""
