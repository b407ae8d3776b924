"""What arrays and attributes of a slide file mean: CLAM, TRIDENT, STAMP, or names of yours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bagwise.io.slide_features import SlideFeatures, SlideFileError, check_slide, first_of

FEATURES = ("features", "feats")  # CLAM and TRIDENT; STAMP
COORDS = ("coords",)
SIZE_NAMES = ("patch_size_level0", "patch_size_lvl0", "patch_size_src")
MICROMETRES = ("um", "µm", "μm", "micrometer", "micrometre", "micron", "microns")


def find_arrays(
    there: Sequence[str], name: str, features_key: str | None, coords_key: str | None
) -> tuple[str, str | None]:
    """The names of features and coordinates among what a file holds; None without coordinates."""
    shown = ", ".join(sorted(there))[:200] or "nothing"
    wanted = FEATURES if features_key is None else (features_key,)
    features = next((key for key in wanted if _holds(there, key)), None)
    if features is None:
        raise SlideFileError(
            f"{name}: no dataset {' or '.join(map(repr, wanted))}; there is {shown}; extract "
            "features first (files of coordinates alone have none), or name the dataset with "
            "features_key"
        )
    if coords_key is not None and not _holds(there, coords_key):
        raise SlideFileError(f"{name}: no dataset {coords_key!r}; there is {shown}")
    places = COORDS if coords_key is None else (coords_key,)
    return features, next((key for key in places if _holds(there, key)), None)


def _holds(there: Sequence[str], key: str) -> bool:
    return key.strip("/").split("/")[0] in there


def slide_of(features: Any, coords: Any, attributes: dict[str, Any], name: str) -> SlideFeatures:
    """The slide that arrays and attributes describe, or a SlideFileError."""
    unit = "um" if coords is not None and _in_micrometres(attributes) else "px"
    size = _size_um(attributes) if unit == "um" else _patch_size_level0(attributes)
    return check_slide(features, coords, size, attributes, name, unit=unit)


def _in_micrometres(attributes: dict[str, Any]) -> bool:
    """Whether STAMP wrote the file: it says so, or has tiles of a size in micrometres."""
    unit = attributes.get("unit")
    if isinstance(unit, bytes):
        unit = unit.decode("utf-8", errors="replace")
    return str(unit).lower() in MICROMETRES or (unit is None and "tile_size_um" in attributes)


def _size_um(attributes: dict[str, Any]) -> float | None:
    size = first_of(attributes, "tile_size_um", "tile_size")  # the second before version 2.1
    return None if size is None else float(size)


def _patch_size_level0(attributes: dict[str, Any]) -> float | None:
    """Side of a patch at full resolution, from the attributes of any of the tools."""
    size = first_of(attributes, *SIZE_NAMES)
    if size is not None:
        return float(size)
    patch, factor = attributes.get("patch_size"), attributes.get("downsample")
    if patch is None or factor is None:
        return None
    return float(patch) * float(np.ravel(factor)[0])


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as numbers and text."""
    return {str(k): v.item() if np.ndim(v) == 0 and hasattr(v, "item") else v
            for k, v in attributes.items()}  # fmt: skip
