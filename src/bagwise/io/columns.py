"""What the columns of a table mean: named by the user, or guessed from their names and said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.bags.frame_columns import (
    KNOWN,
    ends_in_id,
    find,
    find_coords,
    may_be_codes,
    numbers_rows,
    rows_counted,
)
from bagwise.bags.messages import Note
from bagwise.bags.number_text import EMPTY
from bagwise.io.streams import TableError

if TYPE_CHECKING:
    import pandas as pd

ROLES = tuple(KNOWN)
MANY_BAD_CELLS = 0.1  # from this share on a column is text, not numbers with slips


@dataclass(frozen=True)
class Columns:
    """Which column of a table is what; None where there is no such column.

    >>> guessed, notes = guess(["slide", "diagnosis", "x", "y", "area"], Columns())
    >>> guessed.bag, guessed.label, guessed.coords
    ('slide', 'diagnosis', ('x', 'y'))
    >>> notes[0]
    "bag column: 'slide' (guessed from its name; choose with bag=)"
    """

    bag: str | None = None
    label: str | None = None
    instance_id: str | None = None
    instance_label: str | None = None
    group: str | None = None
    weight: str | None = None  # of the bag in a fit; never guessed
    reliability: str | None = None  # of its label, likewise
    coords: tuple[str, ...] = ()
    features: tuple[str, ...] = ()  # names or patterns such as "f_*"; "!note" is all but note
    rep: str | None = None  # what stands for cells in files of AnnData: X_pca, a layer; None is X

    def named(self) -> list[str]:
        """All columns that are not features."""
        roles = (getattr(self, role) for role in (*ROLES, "weight", "reliability"))
        return [c for c in roles if c is not None] + [*self.coords]

    def chooses_features(self) -> bool:
        """Whether features are named; else all numeric columns are, but those left out."""
        return any(not pattern.startswith("!") for pattern in self.features)

    def as_text(self) -> tuple[str, ...]:
        """Columns of ids and labels, which are read as they stand: 007 is not 7."""
        roles = (self.bag, self.label, self.instance_id, self.group)
        return tuple(c for c in roles if c is not None)

    def to_dict(self) -> dict[str, Any]:
        """The columns as plain values, without the features."""
        plain: dict[str, Any] = {role: getattr(self, role) for role in ROLES}
        more = {} if self.rep is None else {"rep": self.rep}
        return {**plain, "coords": list(self.coords), **more}


def guess(
    header: Sequence[str],
    asked: Columns,
    *,
    taken: Sequence[str] = (),
    skip: Sequence[str] = (),
    source: str = "the table",
    remembered: Columns | None = None,
) -> tuple[Columns, list[Note]]:
    """Fill in the columns that were not named, and say which were guessed.

    `taken` are columns that are something else, e.g. features of a model; `skip` are roles that
    are not looked for; `remembered` are those of an earlier table, taken where they are there.
    """
    _check_there(header, asked.named(), source)
    _check_once(asked.named())
    asked = _recall(header, asked, remembered or Columns(), {*taken}, skip)
    used = {*asked.named(), *taken}
    notes: list[Note] = []
    result = asked
    if not asked.coords and "coords" not in skip:
        coords = find_coords(header, used)
        used |= set(coords)
        result = replace(result, coords=coords)
        if coords:
            notes.append(_note("coordinates", ", ".join(map(repr, coords)), "coords"))
    for role in ROLES:
        if getattr(asked, role) is None and role not in skip:
            found = find(header, KNOWN[role], used)
            if found is not None:
                used.add(found)
                result = replace(result, **_one(role, found))
                notes.append(_note(f"{role.replace('_', ' ')} column", repr(found), role))
    if result.bag is None:
        result = replace(result, bag=_bag_by_ending(header, used, source))
        notes.append(_note("bag column", repr(result.bag), "bag"))
    notes.sort(key=lambda note: note.parts[2] != "bag")
    return result, notes


def _bag_by_ending(header: Sequence[str], used: set[str], source: str) -> str:
    """The one column left whose name ends in id."""
    ids = [name for name in header if ends_in_id(name)]
    free = [name for name in ids if name not in used]
    if len(free) == 1:
        return free[0]
    perhaps = f"; {show_names(ids)} may be it" if ids else ""
    raise TableError(
        f"{source} has no column that looks like bag ids; its columns are "
        f"{show_names(header)}{perhaps}; name it",
        argument="bag",
    )


def check_bag_column(frame: pd.DataFrame, columns: Columns, notes: Sequence[Note]) -> None:
    """Refuse a bag column that was guessed by its ending where every row has an id of its own."""
    guessed = any(note.parts[2] == "bag" for note in notes)
    known = str(columns.bag).lower() in KNOWN["bag"]
    if guessed and not known and len(frame) > 1 and frame[columns.bag].is_unique:
        raise TableError(
            f"column {columns.bag!r} was taken for bag ids by its name, but every row has another "
            f"value there; the columns are {show_names(list(frame.columns))}; name the right one",
            argument="bag",
        )


def spellings(ids: Iterable[Any]) -> list[str]:
    """Ids of bags that differ only in case, or in spaces around them.

    >>> spellings(["b1", "B1 ", "b2"])
    ['b1', 'B1 ']
    """
    kinds: dict[str, list[str]] = {}
    for text in dict.fromkeys(str(v) for v in ids):
        kinds.setdefault(text.strip().casefold(), []).append(text)
    return next((same for same in kinds.values() if len(same) > 1), [])


def _recall(
    header: Sequence[str], asked: Columns, old: Columns, taken: set[str], skip: Sequence[str]
) -> Columns:
    free = set(header) - taken - set(asked.named())
    for role in ROLES:
        column = getattr(old, role)
        if getattr(asked, role) is None and column in free and role not in skip:
            asked = replace(asked, **_one(role, column))
            free.discard(column)
    if not asked.coords and old.coords and set(old.coords) <= free and "coords" not in skip:
        asked = replace(asked, coords=old.coords)
    return asked


def _one(role: str, column: str) -> dict[str, Any]:
    return {role: column}


def _note(what: str, names: str, role: str) -> Note:
    return Note(f"{what}: {names}", "guessed from its name", role)


def _check_there(header: Sequence[str], names: Sequence[str], source: str) -> None:
    for name in names:
        if name not in header:
            raise TableError(
                f"{source} has no column {name!r}; its columns are {show_names(header)}"
            )


def _check_once(names: Sequence[str]) -> None:
    if repeated := sorted({n for n in names if list(names).count(n) > 1}):
        raise TableError(f"a column has one meaning, but {repeated[0]!r} was named twice")


def pick_features(
    frame: pd.DataFrame, columns: Columns, source: str = "the table"
) -> tuple[list[str], list[Note]]:
    """Feature columns by pattern, or else all other numeric ones; and notes on those left out."""
    others = candidates(frame.columns, columns, source)
    if columns.chooses_features():
        return _by_pattern(others, columns.features, source), []
    numeric = [c for c in others if _is_numeric(frame[c])]
    numbered = [c for c in numeric if numbers_rows(c, frame[c])]
    counts = rows_counted(frame, [c for c in numeric if c not in numbered], columns.bag)
    usable = [c for c in numeric if c not in numbered and c not in counts]
    known = set(numeric)  # of tens of thousands of columns
    left = [c for c in others if c not in known]
    lists = [c for c in left if is_list_valued(frame[c])]
    if not usable and len(lists) == 1:
        usable, left = lists, [c for c in left if c not in lists]
    if not usable:
        among = f" among {show_names(others)}" if others else ""
        if any(c.lower() == "smiles" for c in others):
            among += " (molecules are read where no bag column is named: each is a bag)"
        taken = f" ({show_names(columns.named())} have other meanings)" if columns.named() else ""
        raise TableError(
            f"{source} has no numeric columns left for features{among}{taken}; name them, or a "
            "pattern",
            argument="features",
        )
    notes = [Note(f"features: {_count(usable)}", "all other numeric columns", "features")]
    numbers = {"row numbers or ids by name": numbered, "counting rows, of all or of a bag": counts}
    numbers["not numeric"] = left
    notes += [
        Note(f"left out, {why}: {show_names(names)}", "these are no features", "features")
        for why, names in numbers.items()
        if names
    ]
    if codes := [c for c in usable if may_be_codes(c, frame[c])]:
        why = "whole numbers, nearly all distinct"
        notes.append(Note(f"features that may be ids: {show_names(codes)}", why, "features"))
    return usable, notes


def candidates(header: Iterable[Any], columns: Columns, source: str) -> list[str]:
    """Columns that may be features: those with no other meaning that no "!" pattern takes out."""
    named = set(columns.named())
    others = [str(c) for c in header if c not in named]
    out = [p[1:] for p in columns.features if p.startswith("!") and p not in others]
    dropped = set(_by_pattern(others, out, source))
    return [c for c in others if c not in dropped]


def _by_pattern(others: list[str], patterns: Sequence[str], source: str) -> list[str]:
    chosen: list[str] = []
    for pattern in patterns:
        hits = [c for c in others if c == pattern or fnmatchcase(c, pattern)]
        if not hits and not pattern.startswith("!"):
            raise TableError(
                f"no column of {source} matches the features {pattern!r}; the columns left are "
                f"{show_names(others) if others else 'none'}"
            )
        chosen += [c for c in hits if c not in chosen]
    return chosen


def _is_numeric(column: pd.Series) -> bool:
    # Booleans are features too; a column without any value has no type and is none.
    return column.dtype.kind in "iufb" and not (column.dtype.kind == "f" and column.isna().all())


def almost_numeric(column: pd.Series) -> tuple[int, Any] | None:
    """Row and value of the first cell that is no number, where fewer than a tenth are none.

    Cells without a value do not count. Such a column is a feature with a slip in it.
    """
    if column.dtype.kind in "iufb" or is_list_valued(column):
        return None
    bad, filled = [], 0
    for row, value in enumerate(column):
        if isinstance(value, str) and value.strip().lower() in EMPTY:
            continue
        filled += 1
        if not is_number(value):
            bad.append((row, value))
    return bad[0] if 0 < len(bad) < MANY_BAD_CELLS * filled else None


def is_number(value: Any) -> bool:
    """Whether a cell is a number, or text that says one as tables do.

    Python takes 1_0 for ten and digits of all scripts, which tables do not.

    >>> is_number("1e3"), is_number("1_0"), is_number("\u0663")
    (True, False, False)
    """
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def is_list_valued(column: pd.Series) -> bool:
    """Whether the cells hold lists: arrays (Parquet, Feather) or text such as [0.1, 0.2]."""
    if column.dtype.kind in "iufb" or not len(column):
        return False
    first = column.iloc[0]
    return (isinstance(first, str) and first.lstrip().startswith("[")) or (
        hasattr(first, "__len__") and not isinstance(first, str | bytes)
    )


def as_frame(table: Any) -> pd.DataFrame:
    """Arrow's table as a frame: numbers and truth values that are missing are NaN among floats.

    pandas' own types for missing values become those too.

    >>> import pyarrow as pa
    >>> as_frame(pa.table({"seen": [True, None], "n": [1, None]})).to_numpy().tolist()
    [[1.0, 1.0], [nan, nan]]
    """
    frame = table.to_pandas()
    for name in frame.columns:
        values, column = frame[name], table[str(name)]
        if values.dtype.kind not in "iufbO":
            continue
        if column.null_count and (values.dtype.kind != "O" or str(column.type) == "bool"):
            frame[name] = values.to_numpy(dtype=np.float64, na_value=np.nan)
        elif hasattr(values.dtype, "numpy_dtype"):
            frame[name] = values.to_numpy(dtype=values.dtype.numpy_dtype)
    return frame


def show_names(names: Sequence[str]) -> str:
    """A list of names, shortened where it is long."""
    shown = ", ".join(f"{name!r:.80}" for name in names[:8])
    return shown if len(names) <= 8 else f"{shown}, ... ({len(names)} in all)"


def _count(names: Sequence[str]) -> str:
    if len(names) == 1:
        return repr(names[0])
    more = ", ..." if len(names) > 3 else ""
    return f"{len(names)} columns, {show_names(names[:3])}{more}"
