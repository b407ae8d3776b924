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
# That whole numbers have too: 5 mg is a weight, 16S, 2D, 4th, 1 Jan are names.
_WORDS = (
    "nm um µm mm cm dm km ft ng ug µg mg kg lb oz ul µl ml dl ms sec min hr hrs hz khz mhz ghz "
    "pa kpa hpa bar mbar mmhg kv mv ma kw kwh mw wh kb mb gb kcal kj mol mmol ppm ppb px dpi bpm "
    "usd eur gbp chf jpy mg/dl mg/l g/dl g/l ng/ml iu/l u/l mmol/l m/s km/h rpm pct"
)
UNITS = frozenset(_WORDS.split())
_GROUPS = (  # of three digits after a comma, a space (also one that does not break), an apostrophe
    r"[1-9]\d{0,2}(?P<sep>[,' \u00a0\u2009\u202f’])\d{3}((?P=sep)\d{3})*(\.\d+)?"
)
_EUROPEAN = r"[1-9]\d{0,2}(?P<dot>\.)\d{3}(\.\d{3})*,\d+"  # 1.234,56
_DRESSED = re.compile(
    r"(?P<sign>[<>≤≥~±]\s?)?[+-]?(?P<money>[$€£¥]\s?)?[+-]?"
    rf"(?P<digits>{_GROUPS}|{_EUROPEAN}|\d+\.?\d*|\.\d+|(?P<comma>\d+,\d+))([eE][+-]?\d+)?"
    r"\s?(?P<unit>[%‰$€£¥]|°[CFK]?|[^\W\d_][\w/²³^·*%-]{0,7})?"
)
# How tables write numbers with a comma before their decimals, which they hold as text.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d+)?|(\d+|\d{1,3}(\.\d{3})+)?,\d+)([eE][+-]?\d+)?", re.ASCII)
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+", re.ASCII)


class Dressed(NamedTuple):
    """The first cell of a column whose numbers are dressed up as text, and what with."""

    row: int
    cell: str
    what: str  # "units", "signs" or "thousands separators"


def dressed_numbers(values: Iterable[Any]) -> Dressed | None:
    """The first number of a column that has a unit, a sign or separators; None of other columns.

    Nearly all cells must be numbers, and their units few: codes such as 12a and 12b are text. So
    are 0012P, and 16S, unless some have decimals or the ending is that of a usual unit.

    >>> dressed_numbers(["3.1 mm", "4 mm", "", "12.5 mm"])
    Dressed(row=0, cell='3.1 mm', what='units')
    >>> dressed_numbers(["999.5", "1,234.56"]).what, dressed_numbers(["<5", "7", "9"]).what
    ('thousands separators', 'signs')
    >>> dressed_numbers(["$215", "1.977,49 €", "€1234.50"]).what
    'units'
    >>> [dressed_numbers(v) for v in (["1.5", "2"], ["12a", "12b", "13c"], ["stage 2", "3 mm"])]
    [None, None, None]
    >>> [dressed_numbers(v) for v in (["16S", "18S", "23S"], ["002P", "013P"], ["1 Jan", "2 Jan"])]
    [None, None, None]
    """
    text = ((i, v.strip()) for i, v in enumerate(values) if isinstance(v, str))
    cells = list(islice(((i, v) for i, v in text if v.lower() not in EMPTY), LOOKED_AT))
    numbers = [(i, v, m) for i, v in cells if (m := _DRESSED.fullmatch(v))]
    dressed = [(i, v, m) for i, v, m in numbers if _worn(m)]
    if (
        not dressed
        or len(numbers) < NEARLY_ALL * len(cells)
        or _are_codes([m for *_, m in numbers])
    ):
        return None
    row, cell, match = dressed[0]
    return Dressed(row, cell, _worn(match))


def _are_codes(numbers: list[re.Match[str]]) -> bool:
    """Whether numbers with what they wear are rather names of something."""
    digits = {m["digits"] for m in numbers}
    words = {m["unit"] for m in numbers if m["unit"] and m["unit"][0].isalpha()}
    if len(words) > MOST_UNITS or (words and len(words) >= len(digits)):
        return True
    if any(re.match(r"0\d", m["digits"]) for m in numbers):
        return True
    whole = not any("." in d or "," in d for d in digits)
    if words and whole and not any(word.lower() in UNITS for word in words):
        return True
    # Numbers of telephones: all of one length, all in groups.
    grouped = [m["digits"] for m in numbers if m["sep"] and m["sep"] != ","]
    return len(grouped) == len(numbers) and len({len(d) for d in grouped}) == 1


def _worn(match: re.Match[str]) -> str:
    if match["unit"] or match["money"]:
        return "units"
    if match["sep"] or match["dot"]:
        return "thousands separators"
    return "signs" if match["sign"] else ""


def has_decimal_commas(values: Iterable[Any]) -> bool:
    """Whether nearly all cells of a column are numbers, and most of those have a decimal comma.

    Where three digits follow every comma they are thousands: 1,234 and 25,367.

    >>> [has_decimal_commas(v) for v in (["1,5", "-0,25", ""], ["1.5", "2"], ["a, b", "c,1"])]
    [True, False, False]
    >>> has_decimal_commas(["1,234", "25,367"]), has_decimal_commas(["1,234", "0,367"])
    (False, True)
    """
    text = (v.strip() for v in values if isinstance(v, str))
    cells = list(islice((v for v in text if v.lower() not in EMPTY), LOOKED_AT))
    numbers = [v for v in cells if _NUMBER.fullmatch(v)]
    with_comma = [v for v in numbers if "," in v]
    if all(_THOUSANDS.fullmatch(v) for v in with_comma):
        return False
    return 2 * len(with_comma) > len(numbers) >= NEARLY_ALL * len(cells)


def has_decimal_points(values: Iterable[Any]) -> bool:
    """Whether all cells of a column of text are numbers, some of them with a decimal point.

    >>> [has_decimal_points(v) for v in (["1.5", "2", ""], ["1,5", "2.5"], ["v1.2"], ["1", "2"])]
    [True, False, False, False]
    """
    text = (v.strip() for v in values if isinstance(v, str))
    cells = list(islice((v for v in text if v.lower() not in EMPTY), LOOKED_AT))
    return any("." in v for v in cells) and all(_PLAIN.fullmatch(v) for v in cells)
