"""Bags of images: a folder with one folder of pictures per bag."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.files.reading import UnreadableFileError, check_regular, one_error
from bagwise.core.parameters import check_choice
from bagwise.io.requirements import require

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
# Of all that Pillow reads: for PostScript, for one, it would start another program.
FORMATS = ("PNG", "JPEG", "BMP", "DIB", "TIFF", "WEBP", "GIF", "PPM")
MAX_PIXELS = 64 * 2**20  # an image that claims more is refused before it is unpacked


class ImageFileError(UnreadableFileError):
    """An image file is damaged or not what it is taken for."""


def read_image(
    path: str | os.PathLike[str], *, mode: str = "RGB", size: tuple[int, int] | None = None
) -> NDArray[np.float32]:
    """Read a picture as values from 0 to 1: (3, height, width) for "RGB", (1, ...) for "L" (grey).

    Pictures have 8 bits per channel, or 16 bits of grey. `size` is the (height, width) to scale
    it to.
    """
    check_choice("mode", mode, ("RGB", "L"))
    image_module = require("PIL.Image", what="reading images", extra="io")
    name = os.fspath(path)
    check_regular(name, ImageFileError)
    what = "it is no picture, or damaged or cut off"
    with one_error(name, ImageFileError, what), warnings.catch_warnings():
        # Pillow warns of huge images and of damaged metadata; limits and errors here are ours.
        warnings.simplefilter("ignore")
        with image_module.open(name, formats=FORMATS) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise ImageFileError(
                    f"{name} has {picture.width} x {picture.height} pixels, more than "
                    f"{MAX_PIXELS}; cut it into patches first"
                )
            picture, white = _in_mode(picture, mode, name)
            if size is not None:
                picture = picture.resize((size[1], size[0]), image_module.Resampling.BOX)
            values = np.asarray(picture, dtype=np.float32) / np.float32(white)
    if values.ndim == 2:
        return np.repeat(values[None], 3 if mode == "RGB" else 1, axis=0)
    return np.ascontiguousarray(values.transpose(2, 0, 1))


def _in_mode(picture: Any, mode: str, name: str) -> tuple[Any, float]:
    """The picture in a mode that can be scaled, and its value of white.

    Pillow's own conversion would cut 16 bits off at 255.
    """
    if getattr(picture, "n_frames", 1) > 1:
        raise ImageFileError(
            f"{name} has {picture.n_frames} pages; save each as a picture of its own"
        )
    sixteen = picture.mode.startswith("I;16") or (picture.mode, picture.format) == ("I", "PNG")
    if sixteen:
        return picture.convert("I").convert("F"), 65535.0
    if picture.mode in ("I", "F"):
        raise ImageFileError(
            f"{name} has 32 bits per pixel, so its black and white are not known; convert it to 8 "
            "or 16 bits"
        )
    return picture.convert(mode), 255.0


def read_image_folders(
    root: str | os.PathLike[str],
    y: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    mode: str = "RGB",
    size: tuple[int, int] | None = None,
) -> Bags:
    """Read a folder of folders of pictures: each folder is a bag, each picture an instance.

    Bags come in the order of the folders' names, pictures in the order of theirs; the names are
    `bags.ids` and `bags.instance_ids`. A picture's row of `bags.X` is its (channels, height,
    width) array, flattened: give that as `image_shape` to `AttentionMIL`. All pictures must have
    one size, or be scaled to `size` (height, width). `y` maps folder names to labels, or lists
    them in order.
    """
    base = Path(root)
    if not base.is_dir():
        raise FileNotFoundError(f"no folder {base}; give the folder that holds one folder per bag")
    folders = sorted(p for p in base.iterdir() if p.is_dir())
    if not folders:
        raise ValueError(f"{base} has no folders in it; put the pictures of each bag in a folder")
    files = [sorted(f for f in p.iterdir() if f.suffix.lower() in ENDINGS) for p in folders]
    empty = [p.name for p, inside in zip(folders, files, strict=True) if not inside]
    if empty:
        raise ValueError(
            f"folder {empty[0]!r} has no picture ({', '.join(ENDINGS)}); remove it or fill it"
        )
    ids = [p.name for p in folders]
    images = [[read_image(f, mode=mode, size=size) for f in inside] for inside in files]
    every = [(image.shape, str(f)) for f, image in zip(chain(*files), chain(*images), strict=True)]
    check_same_shape(*zip(*every, strict=True))
    return Bags.from_list(
        [np.stack(inside).reshape(len(inside), -1) for inside in images],
        labels_of(ids, y),
        ids=ids,
        instance_ids=[np.array([f.name for f in inside]) for inside in files],
    )


def check_same_shape(shapes: Sequence[tuple[int, ...]], names: Sequence[str]) -> None:
    """Raise if two images differ in size."""
    for shape, name in zip(shapes, names, strict=True):
        if shape != shapes[0]:
            raise ValueError(
                f"images must have one size; {names[0]} has {shapes[0]}, {name} has {shape} "
                "(channels, height, width); pass size=(height, width) to scale them"
            )


def labels_of(ids: Sequence[str], y: Mapping[str, Any] | Sequence[Any] | None) -> Any:
    """Labels in the order of the bags, from a mapping or a list.

    >>> labels_of(["a", "b"], {"b": 0, "a": 1})
    [1, 0]
    """
    if not isinstance(y, Mapping):
        return y
    lacking = [i for i in ids if i not in y]
    if lacking:
        raise ValueError(f"y has no label for {lacking[0]!r}; give one for each bag")
    return [y[i] for i in ids]
