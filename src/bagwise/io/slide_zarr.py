"""Patch features of one slide in a Zarr store, with the names and attributes of HDF5 files."""

from __future__ import annotations

import os
from typing import Any

from bagwise.io.slide_arrays import find_arrays, plain, slide_of
from bagwise.io.slide_features import SlideFeatures, SlideFileError
from bagwise.io.stores import is_zarr, open_store


def read_slide_zarr(
    path: str | os.PathLike[str],
    *,
    features_key: str | None = None,
    coords_key: str | None = None,
) -> SlideFeatures:
    """Read the patch features of one slide from the folder of a Zarr store.

    Arrays, attributes and arguments are those of `read_slide_h5`.
    """
    name = os.fspath(path)
    if not is_zarr(name):
        raise SlideFileError(f"{name} is no Zarr store with arrays in it; give its folder")
    with open_store(name, SlideFileError) as store:
        features, coords = find_arrays(store.keys(""), name, features_key, coords_key)
        attributes: dict[str, Any] = {}
        for key in ("", features, *([] if coords is None else [coords])):
            attributes |= plain(store.attributes(key))
        places = None if coords is None else store.values(coords)
        return slide_of(store.values(features), places, attributes, name)
