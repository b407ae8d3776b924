"""Numbers written with a comma before their decimals, which tables hold as text (internal)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

_NUMBER = re.compile(r"[+-]?(\d+(\.\d+)?|(\d+|\d{1,3}(\.\d{3})+)?,\d+)([eE][+-]?\d+)?", re.ASCII)
EMPTY = ("", "na", "n/a", "nan", "null", "none")
_LOOKED_AT = 1000  # cells: enough to tell numbers from text
_NEARLY_ALL = 0.9

REMEDY = (
    "write numbers with a decimal point and without thousands separators, e.g. with "
    "pandas.read_csv(file, sep=';', decimal=',')"
)


def has_decimal_commas(values: Iterable[Any]) -> bool:
    """Whether nearly all cells of a column are numbers, and most of those have a decimal comma.

    >>> [has_decimal_commas(v) for v in (["1,5", "-0,25", ""], ["1.5", "2"], ["a, b", "c,1"])]
    [True, False, False]
    """
    text = (v.strip() for v in values if isinstance(v, str))
    cells = list(islice((v for v in text if v.lower() not in EMPTY), _LOOKED_AT))
    numbers = [v for v in cells if _NUMBER.fullmatch(v)]
    with_comma = sum("," in v for v in numbers)
    return 2 * with_comma > len(numbers) >= _NEARLY_ALL * len(cells)
