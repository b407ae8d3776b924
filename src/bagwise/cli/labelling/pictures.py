"""Pictures of instances: files of a folder, slices of CT series, tiles of images, or pixels."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.files.reading import one_error
from bagwise.io.dicom import CT_WINDOWS, DAMAGED, DicomError, find_series, windowed
from bagwise.io.dicom import read_slice as read_ct_slice
from bagwise.io.images import ENDINGS, read_image
from bagwise.io.requirements import require

Floats = NDArray[np.float32]  # (channels, height, width), from 0 to 1

AROUND = 1.0  # tiles beyond the edges of a tile that are shown too
WINDOWS = ("brain", "blood", "soft tissue")  # of CT_WINDOWS


class Pictures:
    """What there is to see of instances; nothing in this class.

    `kinds` names the ways in which an instance can be seen.
    """

    kinds: tuple[str, ...] = ()

    def has(self, row: int) -> bool:
        """Whether there is a picture of a row."""
        return False

    def values(self, row: int, kind: int) -> Floats:
        """The picture of a row in one of the kinds."""
        raise NotImplementedError

    def png(self, row: int, kind: int = 0) -> bytes:
        """The picture as PNG, made here: no byte of a file goes to the page as it is."""
        image_module = require("PIL.Image", what="showing pictures", extra="io")
        pixels = np.round(255 * np.clip(self.values(row, kind), 0, 1)).astype(np.uint8)
        grey = pixels.shape[0] == 1
        image = image_module.fromarray(pixels[0] if grey else pixels.transpose(1, 2, 0))
        file = io.BytesIO()
        image.save(file, format="PNG")
        return file.getvalue()


class PixelFeatures(Pictures):
    """Features that are the pixels of grey images, dark on light."""

    kinds = ("picture",)

    def __init__(self, bags: Bags, shape: tuple[int, int]) -> None:
        if bags.n_features != shape[0] * shape[1]:
            raise ValueError(
                f"images of {shape[0]} x {shape[1]} pixels have {shape[0] * shape[1]} features, "
                f"these rows have {bags.n_features}; give their height and width"
            )
        self._bags, self._shape = bags, shape
        X = np.asarray(bags.X)
        self._low, self._high = float(X.min()), float(X.max())

    def has(self, row: int) -> bool:
        return True

    def values(self, row: int, kind: int) -> Floats:
        span = (self._high - self._low) or 1.0
        x = (np.asarray(self._bags.X[row : row + 1], dtype=np.float64) - self._low) / span
        return (1 - x.reshape(1, *self._shape)).astype(np.float32)


class PictureFolders(Pictures):
    """Files FOLDER/BAG/INSTANCE, as `read_image_folders` reads them."""

    kinds = ("picture",)

    def __init__(self, bags: Bags, folder: Path) -> None:
        if bags.instance_ids is None:
            raise ValueError(
                f"pictures in folders of {folder} are found by the ids of instances, which the "
                "table does not have; add a column instance_id with the names of the files"
            )
        self._bags, self._folder = bags, folder
        self._bag = bags.bag_index

    def has(self, row: int) -> bool:
        return self._path(row) is not None

    def values(self, row: int, kind: int) -> Floats:
        path = self._path(row)
        assert path is not None
        return read_image(path)

    def _path(self, row: int) -> Path | None:
        assert self._bags.instance_ids is not None
        bag, name = str(self._bags.ids[self._bag[row]]), str(self._bags.instance_ids[row])
        return inside(self._folder, bag, name)


class SlideTiles(Pictures):
    """Tiles cut from FOLDER/BAG.png (or .jpg, .tif, ...) at the coordinates of instances."""

    kinds = ("tile", "surroundings")

    def __init__(self, bags: Bags, folder: Path, corners: Any, tile_size: float) -> None:
        self._bags, self._folder = bags, folder
        self._corners, self._size = np.asarray(corners, dtype=float), float(tile_size)
        self._bag = bags.bag_index
        self._image = lru_cache(maxsize=2)(lambda path: read_image(path))

    def has(self, row: int) -> bool:
        return self._path(row) is not None

    def values(self, row: int, kind: int) -> Floats:
        path = self._path(row)
        assert path is not None
        image = self._image(path)
        around = self._size * AROUND if kind else 0.0
        x, y = self._corners[row]
        height, width = image.shape[1:]
        left, top = (round(float(v) - around) for v in (x, y))
        edge = round(self._size + 2 * around)
        tile = np.ones((image.shape[0], edge, edge), dtype=np.float32)
        x0, x1, y0, y1 = max(left, 0), min(left + edge, width), max(top, 0), min(top + edge, height)
        if x0 < x1 and y0 < y1:
            tile[:, y0 - top : y1 - top, x0 - left : x1 - left] = image[:, y0:y1, x0:x1]
        return tile

    def _path(self, row: int) -> Path | None:
        return whole_image(self._folder, str(self._bags.ids[self._bag[row]]))


class CTSlices(Pictures):
    """Slices of CT series below a folder, by their SOPInstanceUID, through three windows."""

    kinds = WINDOWS

    def __init__(self, bags: Bags, folder: str) -> None:
        if bags.instance_ids is None:
            raise ValueError(
                f"slices below {folder} are found by their SOPInstanceUID, but the table has no "
                "ids of instances; add them as a column instance_id"
            )
        self._ids = bags.instance_ids
        self._files = slice_files(folder)
        if not any(str(i) in self._files for i in self._ids.tolist()):
            raise DicomError(
                f"none of the slices below {folder} has the SOPInstanceUID of an instance of the "
                "table; give the folder of these series"
            )

    def has(self, row: int) -> bool:
        return str(self._ids[row]) in self._files

    def values(self, row: int, kind: int) -> Floats:
        hounsfield = read_ct_slice(self._files[str(self._ids[row])])
        return windowed(hounsfield[None], [CT_WINDOWS[kind]])[0]


def slice_files(folder: str) -> Mapping[str, Path]:
    """The file of each slice below a folder by its SOPInstanceUID."""
    pydicom = require("pydicom", what="reading DICOM files", extra="io")
    found = {}
    for paths in find_series(folder).values():
        for path in paths:
            with one_error(path, DicomError, DAMAGED):
                header = pydicom.dcmread(
                    path, stop_before_pixels=True, specific_tags=["SOPInstanceUID"]
                )
                found[str(header.get("SOPInstanceUID", ""))] = path
    return found


def inside(folder: Path, bag: str, name: str) -> Path | None:
    """FOLDER/BAG/NAME, with any of the endings of pictures; None where it is not below FOLDER."""
    for ending in ("", *ENDINGS):
        path = folder / bag / f"{name}{ending}"
        plain = _plain(bag) and _plain(name)
        if plain and path.suffix.lower() in ENDINGS and os.path.isfile(path):
            return path
    return None


def whole_image(folder: Path, bag: str) -> Path | None:
    """FOLDER/BAG with an ending of pictures, if there is one."""
    paths = (folder / f"{bag}{ending}" for ending in ENDINGS)
    return next((p for p in paths if _plain(bag) and os.path.isfile(p)), None)


def _plain(name: str) -> bool:
    """Whether an id is the name of one file, and no path: ids are other people's text."""
    return name not in ("", ".", "..") and not any(c in name for c in ("/", "\\", "\0", os.sep))


def pictures_in(
    bags: Bags, folder: str, corners: Any = None, tile_size: float | None = None
) -> Pictures:
    """Pictures by what is in a folder: a folder for each bag, or an image of each."""
    base = Path(folder)
    if not base.is_dir():
        raise FileNotFoundError(f"no folder {folder}; give the folder of the pictures")
    ids = [str(i) for i in bags.ids.tolist()]
    if any(whole_image(base, i) for i in ids):
        if corners is None or tile_size is None:
            raise ValueError(
                f"{folder} has an image of each bag, from which tiles are cut: pass their size in "
                "pixels, e.g. --tile-size 256, and the columns of their corners, --coords X Y"
            )
        return SlideTiles(bags, base, corners, tile_size)
    if any(_plain(i) and os.path.isdir(base / i) for i in ids):
        return PictureFolders(bags, base)
    raise ValueError(
        f"{folder} has neither a folder of pictures nor an image for any bag, e.g. for "
        f"{ids[0]!r:.80}; name them by the ids of the bags"
    )
