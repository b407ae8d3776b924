"""Patch features in HDF5, as CLAM and TRIDENT write them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from bagwise.core.files.reading import LARGE, MAX_EXPANSION, check_regular, one_error
from bagwise.io.requirements import require
from bagwise.io.slide_features import SlideFeatures, SlideFileError, check_slide, first_of

MAX_DEFLATED = 1100  # times: deflate, which packs best of the filters in use, reaches 1032
SIZE_NAMES = ("patch_size_level0", "patch_size_lvl0", "patch_size_src")


def read_slide_h5(path: str | os.PathLike[str]) -> SlideFeatures:
    """Read the patch features of one slide from an HDF5 file of CLAM or TRIDENT.

    The file has `features` (n, D), `coords` (n, 2) in pixels of level 0, and attributes on
    `coords`, `features` or the file. The size of a patch at level 0 is `patch_size_level0`, or
    `patch_size` times `downsample` (CLAM); with neither of the two it is not known and the grid
    comes from the gaps of the coordinates alone.
    """
    name = os.fspath(path)
    with open_hdf5(name) as file:
        return _read(require("h5py", what="reading HDF5 files", extra="io"), file, name)


@contextmanager
def open_hdf5(path: str) -> Iterator[Any]:
    """An HDF5 file, whose faults are errors of ours."""
    h5py = require("h5py", what="reading HDF5 files", extra="io")
    check_regular(path, SlideFileError)
    what = "it is no HDF5 file, or damaged or cut off; copy it, or extract the features, again"
    with one_error(path, SlideFileError, what), h5py.File(path, "r") as file:
        yield file


def _read(h5py: Any, file: Any, name: str) -> SlideFeatures:
    features = own_dataset(h5py, file, "features", name)
    if features is None:
        raise SlideFileError(
            f"{name}: no dataset 'features'; there is {names_in(file)}; extract features first "
            "(files of coordinates alone have none)"
        )
    coords = own_dataset(h5py, file, "coords", name)
    located = coords is not None
    attributes = _plain(file.attrs) | _plain(features.attrs)
    if located:
        attributes |= _plain(coords.attrs)
    return check_slide(
        _values(features, name),
        _values(coords, name) if located else None,
        _patch_size_level0(attributes),
        attributes,
        name,
    )


def own_dataset(h5py: Any, file: Any, key: str, name: str) -> Any:
    """The dataset of that name whose numbers are in this very file, or None.

    HDF5 can point to other files in three ways, by which a file of a few bytes would have any file
    of this machine read as features.
    """
    steps = [step for step in key.split("/") if step]
    for i in range(len(steps)):
        link = file.get("/".join(steps[: i + 1]), getlink=True)
        if isinstance(link, h5py.ExternalLink | h5py.SoftLink):
            _refuse_elsewhere(name, key, "is a link")
    found = file.get(key)
    if not isinstance(found, h5py.Dataset):
        return None
    if found.external:
        _refuse_elsewhere(name, key, "keeps its numbers in other files")
    if found.is_virtual:
        _refuse_elsewhere(name, key, "is made of datasets of other files")
    return found


def _refuse_elsewhere(name: str, key: str, how: str) -> NoReturn:
    raise SlideFileError(
        f"{name}: {key!r} {how}, and only what is in the file itself is read; copy the data into "
        "it (h5repack, or h5py: file.create_dataset(name, data=...))"
    )


def _values(dataset: Any, name: str) -> Any:
    check_claim(dataset, name)
    return dataset[()]


def names_in(file: Any) -> str:
    """What a file holds, for messages."""
    return ", ".join(sorted(map(str, file)))[:200] or "nothing"


def check_claim(dataset: Any, name: str) -> None:
    """Raise where a dataset claims more than its bytes can hold."""
    stored = int(dataset.id.get_storage_size())
    most = MAX_DEFLATED if dataset.nbytes <= LARGE else MAX_EXPANSION
    if dataset.nbytes > most * stored:
        raise SlideFileError(
            f"{name}: {dataset.name} claims shape {dataset.shape} but {stored} bytes are stored; "
            "the file is damaged or was never filled; extract the features again"
        )


def _patch_size_level0(attributes: dict[str, Any]) -> float | None:
    """Side of a patch at full resolution, from the attributes of any of the tools."""
    size = first_of(attributes, *SIZE_NAMES)
    if size is not None:
        return float(size)
    patch, factor = attributes.get("patch_size"), attributes.get("downsample")
    if patch is None or factor is None:
        return None
    return float(patch) * float(np.ravel(factor)[0])


def _plain(attributes: Any) -> dict[str, Any]:
    """Attributes as numbers and text."""
    return {str(k): v.item() if np.ndim(v) == 0 and hasattr(v, "item") else v
            for k, v in attributes.items()}  # fmt: skip
