"""What names of columns say: roles that are recognised, row numbers, ids and labels (internal)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import count, takewhile
from typing import Any

import numpy as np

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
_ROW_NUMBERS = ("index", "id", "level_0")  # what pandas calls an index that became a column
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
    patient_id the numbers must be whole: a refractive index is a feature.

    >>> numbers_rows("id", np.array([3, 4])), numbers_rows("index", np.array([1.33, 1.5]))
    (True, False)
    """
    plain = str(name).strip().lower()
    if plain == "" or plain.startswith("unnamed:"):
        return True
    if plain not in _ROW_NUMBERS and plain not in _ID_NAMES and not plain.endswith("_id"):
        return False
    array = np.asarray(values)
    if array.dtype.kind == "f":
        return bool(np.all(np.isnan(array) | (array == np.floor(array))))
    return array.dtype.kind in "iu"


def is_label_name(name: str) -> bool:
    """Whether a name speaks of labels.

    >>> is_label_name("tile_label"), is_label_name("ground truth"), is_label_name("labelled_area")
    (True, True, False)
    """
    return _LABEL_WORD.search(name) is not None
