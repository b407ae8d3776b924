"""Columns of tables: what their names say, and what they are to `Bags.from_frame` (internal)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.checks import Array
from bagwise.bags.label_like import COPY, copies, describe, look
from bagwise.bags.messages import some

if TYPE_CHECKING:
    import pandas as pd

    from bagwise.bags.container import Bags

# Names that the command line recognises, in lower case, the first found wins. The first of each
# is what `Bags.to_frame` writes, which `Bags.from_frame` recognises too.
KNOWN = {
    "bag": ("bag_id", "bag", "slide_id", "slide", "image_id", "scan_id", "recording_id"),
    "label": ("label", "bag_label", "target", "diagnosis", "y"),
    "instance_id": ("instance_id", "tile_id", "patch_id"),
    "instance_label": ("instance_label", "tile_label", "patch_label"),
    "group": ("group", "patient_id", "patient", "case_id"),
}
OWN = {role: names[0] for role, names in KNOWN.items()}
COORDS = (("x", "y", "z"), ("x", "y"))
_OWN_COORD = re.compile(r"coord_\d+", re.IGNORECASE)
_ID_NAMES = {name for role in ("bag", "instance_id", "group") for name in KNOWN[role]}
# "index" and "level_0" are what pandas calls an index that became a column, "rownames" what R does.
_ROW_NUMBERS = {"index", "level_0", "row", "rowname", "rownames", "row_name", "row_names"}
_CODES = {"barcode", "uid", "uuid", "guid", "mrn", "sku", "ean", "upc", "gtin", "isbn", "asin"}
_CODES |= {"zip", "zipcode", "postcode"}
_PERHAPS_CODES = {"code", "key", "ref", "reference", "number", "no", "nr", "num", "serial"}
_COUNTS = ("number", "no", "nr", "num", "index", "idx", "id")
# What tables number: an image number is an id, an Euler number is measured.
_THINGS = re.compile(
    "accession|animal|bag|block|cell|case|core|donor|file|frame|image|img|instance|item|lot|"
    "molecule|mouse|nucleus|obs|observation|object|participant|patch|patient|person|plate|record|"
    "recording|region|roi|row|sample|scan|series|slide|specimen|spot|study|subject|tile|visit|well"
)
_WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
_FEW_ROWS = 10  # up to here whole numbers may count rows by chance
_NEARLY_ALL = 0.9


def find(header: Sequence[str], known: Sequence[str], used: Collection[str]) -> str | None:
    """The first of the known names that is among the columns, as it is written there."""
    free = {name.lower(): name for name in reversed(header) if name not in used}
    return next((free[k] for k in known if k in free), None)


def find_own_coords(header: Sequence[str], used: Collection[str]) -> tuple[str, ...]:
    """The columns coord_0, coord_1, ..., as many as there are.

    >>> find_own_coords(["coord_1", "f", "coord_0"], ())
    ('coord_0', 'coord_1')
    """
    found = (find(header, (f"coord_{j}",), used) for j in count())
    return tuple(name for name in takewhile(lambda name: name is not None, found) if name)


def find_coords(header: Sequence[str], used: Collection[str]) -> tuple[str, ...]:
    """Columns of coordinates: x, y (and z), or coord_0, coord_1, ..."""
    for names in COORDS:
        found = tuple(find(header, (n,), used) for n in names)
        if all(found):
            return tuple(n for n in found if n)
    return find_own_coords(header, used)


def is_own(name: Any) -> bool:
    """Whether `Bags.to_frame` calls a column so that is no feature."""
    return isinstance(name, str) and (
        name.lower() in OWN.values() or _OWN_COORD.fullmatch(name) is not None
    )


def numbers_rows(name: Any, values: Any) -> bool:
    """Whether a column of numbers has row numbers or ids, which are no features, by its name.

    Columns without a name are what a written index becomes. With a name such as id, index or
    PatientID the numbers must be whole: a refractive index is a feature.

    >>> numbers_rows("id", np.array([3, 4])), numbers_rows("index", np.array([1.33, 1.5]))
    (True, False)
    """
    plain = str(name).strip().lower()
    if plain == "" or plain.startswith("unnamed:"):
        return True
    if plain not in _ROW_NUMBERS and plain not in _ID_NAMES and not _is_id_name(str(name)):
        return False
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        return False
    if plain.endswith("_no") and np.all((array == 0) | (array == 1)):
        return False  # smoker_yes, smoker_no
    return bool(np.all(np.isnan(array) | (array == np.floor(array))))


def may_be_codes(name: Any, values: Any) -> bool:
    """Whether numbers called a code or a key are whole and nearly all distinct, as ids are.

    >>> [may_be_codes("product_code", v) for v in (np.arange(20) * 37 % 101, np.arange(20) % 3)]
    [True, False]
    """
    words, array = _words(str(name)), np.asarray(values)
    if not words or words[-1] not in _PERHAPS_CODES or array.dtype.kind not in "iu":
        return False
    return len(array) > _FEW_ROWS and len(np.unique(array)) >= _NEARLY_ALL * len(array)


def _words(name: str) -> list[str]:
    return [w.lower() for w in _WORD_ENDS.split(name.strip()) if w]


def ends_in_id(name: str) -> bool:
    """Whether a name in snake or camel case ends in "id", as those of bags and rows do.

    >>> [ends_in_id(n) for n in ("order_id", "orderID", "id", "centroid", "id_card")]
    [True, True, True, False, False]
    """
    return _words(name)[-1:] == ["id"]


def _is_id_name(name: str) -> bool:
    """Whether a name in snake or camel case is that of an id or a number of things.

    >>> [_is_id_name(n) for n in ("PatientID", "donorid", "patient_no", "ImageNumber", "barcode")]
    [True, True, True, True, True]
    >>> [_is_id_name(n) for n in ("centroid", "EulerNumber", "mitotic_index", "amino_acid")]
    [False, False, False, False]
    """
    words = _words(name)
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if "id" in (words[0], last) or last in _CODES or (last == "no" and before):
        return True
    if last in _COUNTS:
        return _THINGS.fullmatch(before) is not None
    return any(last.endswith(c) and _THINGS.fullmatch(last.removesuffix(c)) for c in _COUNTS)


def counts_rows(values: Any, bag_of_row: NDArray[np.intp]) -> bool:
    """Whether whole numbers count rows from 0 or 1, those of the table or of each bag.

    >>> bag = np.repeat(np.arange(4), 3)
    >>> [counts_rows(v, bag) for v in (np.arange(12), np.arange(12) % 3 + 1, np.arange(12) % 4)]
    [True, True, False]
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or len(array) < _FEW_ROWS or array.min() not in (0, 1):
        return False
    place = (array - array.min()).astype(np.int64)
    sizes = np.bincount(bag_of_row)
    if place.max() == len(array) - 1:
        return len(np.unique(place)) == len(array)
    # Each bag's numbers fill its places; a number beyond its bag is none of a count.
    if place.max() != sizes.max() - 1 or sizes.max() < 2 or np.any(place >= sizes[bag_of_row]):
        return False
    starts = np.cumsum(sizes) - sizes
    return len(np.unique(starts[bag_of_row] + place)) == len(array)


# --- Columns of `Bags.from_frame` ----------------------------------------------------------------


class ByName:
    """The default of a column that is recognised where the table has it under its own name."""

    def __repr__(self) -> str:
        return "<by name>"


BY_NAME: Any = ByName()  # None says that there is no such column


def _refuse_values(asked: dict[str, Any]) -> None:
    """Raise where a column is given by its values, or is to be made of several."""
    for role, column in asked.items():
        one = isinstance(column, tuple) or np.ndim(column) == 0  # tuples: names in several levels
        if role == "coords" or column is BY_NAME or one:
            continue
        remedy = "put the values in a column of the table and name that"
        if isinstance(column, list):
            remedy = "join the columns to one first, as by df['a'] + '/' + df['b'], and name that"
        raise TypeError(
            f"{role} must be the name of one column, got a {type(column).__name__}; {remedy}"
        )


def recognise(df: pd.DataFrame, asked: dict[str, Any], features: Any) -> tuple[dict[str, Any], str]:
    """Columns that were not named, under the names that `to_frame` gives; and what was guessed."""
    _refuse_values(asked)
    header = [c for c in df.columns if isinstance(c, str)]
    named = [c for role, c in asked.items() if c is not BY_NAME and role != "coords"]
    coords = asked["coords"]
    coords = [coords] if isinstance(coords, str) else coords
    used = {c for c in named if c is not None} | ({*features} if features is not None else set())
    if coords is not BY_NAME and coords is not None:
        used |= {*coords}
    result, said = dict(asked), []
    for role in (r for r in asked if asked[r] is BY_NAME):
        if role == "coords":
            result[role] = list(find_own_coords(header, used))
            said += [f"coords={result[role]}"] if result[role] else []
        else:
            result[role] = find(header, (OWN[role],), used)
            if role == "group" and not _constant_in_bags(df, result[role], asked["bag"]):
                result[role] = None  # a group of bags would be
            said += [f"{role}={result[role]!r}"] if result[role] is not None else []
    result["coords"] = list(coords or ()) if coords is not BY_NAME else result["coords"]
    return result, ", ".join(said)


def _constant_in_bags(df: pd.DataFrame, column: Any, bag: Any) -> bool:
    if column is None or bag not in df.columns:
        return True
    return bool((df.groupby(bag)[column].nunique(dropna=False) == 1).all())


@dataclass(frozen=True)
class LeftOut:
    """Columns of numbers that are no features: by their names, or since they count rows."""

    by_name: list[Any]
    counts: list[Any]


def choose_features(
    df: pd.DataFrame, used: Sequence[Any], bag: Any = None
) -> tuple[list[Any], LeftOut]:
    """Columns that are features, and those that are none by their names or values."""
    rest = [c for c in df.columns if c not in used]
    by_name = [c for c in rest if is_own(c) or (_is_numeric(df[c]) and numbers_rows(c, df[c]))]
    numbers = [c for c in rest if c not in by_name and df[c].dtype.kind in "iu"]
    counts = rows_counted(df, numbers, bag)
    return [c for c in rest if c not in by_name and c not in counts], LeftOut(by_name, counts)


def rows_counted(df: pd.DataFrame, numbers: Sequence[Any], bag: Any) -> list[Any]:
    """Those columns of whole numbers that count the rows of the table, or of each bag."""
    if bag not in df.columns or not len(numbers):
        return []
    bag_of_row = df[bag].factorize(use_na_sentinel=False)[0]
    return [c for c in numbers if counts_rows(df[c].to_numpy(), bag_of_row)]


def _is_numeric(column: pd.Series) -> bool:
    return column.dtype.kind in "iuf"


def say_columns(guessed: str, left: LeftOut) -> None:
    """Warn of what was guessed from names and values."""
    parts = []
    if guessed:
        parts.append(f"{guessed} recognised by name (name them, or pass None, to say so yourself)")
    reasons = (
        (left.by_name, "row numbers, ids or labels by name"),
        (left.counts, "counting the rows of the table or of each bag"),
    )
    parts += [
        f"{some(columns)} left out, {why} (list them in features=[...] if they are features, or "
        "drop them)"
        for columns, why in reasons
        if columns
    ]
    if parts:
        warnings.warn(f"from_frame: {'; '.join(parts)}", UserWarning, stacklevel=3)


def warn_of_labels(X: Array, offsets: NDArray[np.int64], y: Array | None, names: Any) -> None:
    """Warn of features that look like labels, of instances or of bags."""
    classes = [] if y is None else np.unique(y).tolist()
    positive = classes if len(classes) == 2 and isinstance(classes[0], str) else classes[1:2]
    sides = [np.asarray(y == c) for c in positive] or [np.zeros(len(offsets) - 1, dtype=bool)]
    reasons: dict[str, str] = {}
    for T in sides:  # text does not say which of two labels is positive
        seen = look(X, offsets, T)
        reasons |= describe(seen, T, names)
    for name, reason in reasons.items():
        warnings.warn(
            f"from_frame: the feature {name!r} looks like labels: {reason}; if it is, pass "
            f"instance_label={name!r}, or choose the columns with features=[...]",
            UserWarning,
            stacklevel=3,
        )
    copied = copies(seen, sides[-1], names) if len(classes) == 2 else []
    for name in (n for n in copied if n not in reasons):
        warnings.warn(
            f"from_frame: the feature {name!r} {COPY}; if it is one, choose the columns with "
            "features=[...]",
            UserWarning,
            stacklevel=3,
        )


def own_columns(bags: Bags) -> dict[str, Any]:
    """The columns of `Bags.to_frame`, under the names that `from_frame` recognises."""
    rows = bags.bag_index
    columns: dict[str, Any] = {OWN["bag"]: bags.ids[rows]}
    for role, per_bag in (("label", bags.y), ("group", bags.groups)):
        columns |= {} if per_bag is None else {OWN[role]: per_bag[rows]}
    known = {"instance_id": bags.instance_ids, "instance_label": bags.instance_labels}
    columns |= {OWN[role]: values for role, values in known.items() if values is not None}
    if bags.coords is not None:
        columns |= {f"coord_{j}": c for j, c in enumerate(bags.coords.T)}
    names = bags.feature_names or tuple(f"x{j}" for j in range(bags.n_features))
    features = dict(zip(names, bags.X.T, strict=True))
    if clash := sorted(n for n, x in features.items() if is_own(n) or numbers_rows(n, x)):
        raise ValueError(
            f"features must not be called {clash} in a table; rename them with "
            "bags.with_X(bags.X, feature_names=[...])"
        )
    return columns | features
