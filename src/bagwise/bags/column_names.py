"""What names of columns say: roles that are recognised, row numbers, ids and labels (internal)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import count, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
_CODES = {"barcode", "uid", "uuid", "guid", "mrn"}
_COUNTS = ("number", "no", "nr", "num", "index", "idx", "id")
# What tables number: an image number is an id, an Euler number is measured.
_THINGS = re.compile(
    "accession|animal|bag|block|cell|case|core|donor|file|frame|image|img|instance|item|lot|"
    "molecule|mouse|nucleus|obs|observation|object|participant|patch|patient|person|plate|record|"
    "recording|region|roi|row|sample|scan|series|slide|specimen|spot|study|subject|tile|visit|well"
)
_WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
_FEW_ROWS = 10  # up to here whole numbers may count rows by chance
_LABEL_WORD = re.compile(
    r"(^|[^a-z])(labels?|truth|target|diagnosis|annotations?|annotated)($|[^a-z])", re.IGNORECASE
)


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


def _is_id_name(name: str) -> bool:
    """Whether a name in snake or camel case is that of an id or a number of things.

    >>> [_is_id_name(n) for n in ("PatientID", "donorid", "patient_no", "ImageNumber", "barcode")]
    [True, True, True, True, True]
    >>> [_is_id_name(n) for n in ("centroid", "EulerNumber", "mitotic_index", "amino_acid")]
    [False, False, False, False]
    """
    words = [w.lower() for w in _WORD_ENDS.split(name.strip()) if w]
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


def is_label_name(name: str) -> bool:
    """Whether a name speaks of labels.

    >>> is_label_name("tile_label"), is_label_name("ground truth"), is_label_name("labelled_area")
    (True, True, False)
    """
    return _LABEL_WORD.search(name) is not None
