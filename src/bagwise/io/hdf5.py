"""Patch features in HDF5, as CLAM, TRIDENT and STAMP write them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from bagwise.core.files.reading import (
    LARGE,
    MAX_EXPANSION,
    UnreadableFileError,
    check_regular,
    one_error,
)
from bagwise.io.requirements import require
from bagwise.io.slide_arrays import find_arrays, plain, slide_of
from bagwise.io.slide_features import SlideFeatures, SlideFileError

MAX_DEFLATED = 1100  # times: deflate, which packs best of the filters in use, reaches 1032


def read_slide_h5(
    path: str | os.PathLike[str],
    *,
    features_key: str | None = None,
    coords_key: str | None = None,
) -> SlideFeatures:
    """Read the patch features of one slide from an HDF5 file of CLAM, TRIDENT or STAMP.

    The file has `features` or `feats` (n, D), `coords` (n, 2), and attributes on `coords`,
    `features` or the file. CLAM and TRIDENT give coordinates in pixels of level 0; the size of a
    patch there is `patch_size_level0`, or `patch_size` times `downsample` (CLAM). STAMP gives both
    in micrometres (`unit`, `tile_size_um`), and `SlideFeatures.unit` says so. Where the size is not
    known the grid comes from the gaps of the coordinates alone. Other names of the datasets are
    `features_key` and `coords_key`.
    """
    name = os.fspath(path)
    with open_hdf5(name) as file:
        h5py = require("h5py", what="reading HDF5 files", extra="io")
        keys = find_arrays([str(k) for k in file], name, features_key, coords_key)
        return _read(h5py, file, name, *keys)


@contextmanager
def open_hdf5(path: str) -> Iterator[Any]:
    """An HDF5 file, whose faults are errors of ours."""
    h5py = require("h5py", what="reading HDF5 files", extra="io")
    check_regular(path, SlideFileError)
    what = "it is no HDF5 file, or damaged or cut off; copy it, or extract the features, again"
    with one_error(path, SlideFileError, what), h5py.File(path, "r") as file:
        yield file


def _read(
    h5py: Any, file: Any, name: str, features_key: str, coords_key: str | None
) -> SlideFeatures:
    features = own_dataset(h5py, file, features_key, name)
    coords = None if coords_key is None else own_dataset(h5py, file, coords_key, name)
    for key, found in ((features_key, features), (coords_key, coords)):
        if found is None and key is not None:
            raise SlideFileError(f"{name}: {key!r} is no dataset; name one in it, as in group/name")
    attributes = plain(file.attrs) | plain(features.attrs)
    if coords is not None:
        attributes |= plain(coords.attrs)
    places = None if coords is None else _values(coords, name)
    return slide_of(_values(features, name), places, attributes, name)


def own_dataset(
    h5py: Any, file: Any, key: str, name: str, error: type[UnreadableFileError] = SlideFileError
) -> Any:
    """The dataset of that name whose numbers are in this very file, or None.

    HDF5 can point to other files in three ways, by which a file of a few bytes would have any file
    of this machine read as features.
    """
    check_links(h5py, file, key, name, error)
    found = file.get(key)
    if not isinstance(found, h5py.Dataset):
        return None
    if found.external:
        _refuse_elsewhere(name, key, "keeps its numbers in other files", error)
    if found.is_virtual:
        _refuse_elsewhere(name, key, "is made of datasets of other files", error)
    return found


def check_links(
    h5py: Any, file: Any, key: str, name: str, error: type[UnreadableFileError] = SlideFileError
) -> None:
    """Raise where a step on the way to a dataset or group is a link, which may lead elsewhere."""
    steps = [step for step in key.split("/") if step]
    for i in range(len(steps)):
        link = file.get("/".join(steps[: i + 1]), getlink=True)
        if isinstance(link, h5py.ExternalLink | h5py.SoftLink):
            _refuse_elsewhere(name, key, "is a link", error)


def _refuse_elsewhere(name: str, key: str, how: str, error: type[UnreadableFileError]) -> NoReturn:
    raise error(
        f"{name}: {key!r} {how}, and only what is in the file itself is read; copy the data into "
        "it (h5repack, or h5py: file.create_dataset(name, data=...))"
    )


def _values(dataset: Any, name: str) -> Any:
    check_claim(dataset, name)
    return dataset[()]


def names_in(file: Any) -> str:
    """What a file holds, for messages."""
    return ", ".join(sorted(map(str, file)))[:200] or "nothing"


def check_claim(dataset: Any, name: str, error: type[UnreadableFileError] = SlideFileError) -> None:
    """Raise where a dataset claims more than its bytes can hold."""
    stored = int(dataset.id.get_storage_size())
    most = MAX_DEFLATED if dataset.nbytes <= LARGE else MAX_EXPANSION
    if dataset.nbytes > most * stored:
        raise error(
            f"{name}: {dataset.name} claims shape {dataset.shape} but {stored} bytes are stored; "
            "the file is damaged or was never filled; write it again"
        )
