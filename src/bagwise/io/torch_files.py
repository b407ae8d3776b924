"""Patch features in PyTorch's .pt files, read without running what is in them."""

from __future__ import annotations

import os
import pickletools
import re
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.files.reading import UnreadableFileError, check_regular, one_error
from bagwise.io.requirements import require
from bagwise.io.slide_features import SlideFeatures, SlideFileError, check_slide, first_of

ZIP = b"PK\x03\x04"
OLD_PICKLES = 5  # of files that are no archives, as torch wrote them before 1.6
MOST_TUPLES = 40_000  # four are a tensor; the stack ends after some 150,000 in each other
# What plain tensors are made of. More is safe by torch's own list, but makes memory of numbers.
PLAIN = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|parameter)"
    r"|torch (Size|device|\w+Storage|b?float\d+|u?int\d+|bool|complex\d+)"
)


def read_slide_pt(path: str | os.PathLike[str]) -> SlideFeatures:
    """Read the patch features of one slide from a .pt file: a tensor (n, D), or a dict.

    A dict has `features` (or `feats`) and may have `coords` and `patch_size_level0`. The file is
    read with `weights_only=True`: tensors, numbers and text in lists and dicts; anything else is
    refused and nothing in the file is run.
    """
    name = os.fspath(path)
    content = load_tensors(name, SlideFileError)
    if isinstance(content, dict):
        features = first_of(content, "features", "feats")
        if features is None:
            names = [key for key in content if isinstance(key, str)]
            raise SlideFileError(f"{name}: no 'features' or 'feats'; there is {names!r:.200}")
        coords = first_of(content, "coords", "coordinates")
        size = content.get("patch_size_level0")
        attributes = {str(k): v for k, v in content.items() if isinstance(v, int | float | str)}
    else:
        features, coords, size, attributes = content, None, None, {}
    return check_slide(
        _array(features, "features", name),
        None if coords is None else _array(coords, "coords", name),
        size,
        attributes,
        name,
    )


def load_tensors(path: str | os.PathLike[str], error: type[UnreadableFileError]) -> Any:
    """What `torch.save` wrote: tensors, numbers and text in lists and dicts; nothing is run.

    `torch.load` would run little, but unpack what is packed, make tensors and buffers of any size
    without a byte of them in the file, and hash tuples in tuples until the stack ends.
    """
    torch = require("torch", what="reading .pt files", extra="torch")
    name = os.fspath(path)
    check_regular(name, error)
    with one_error(name, error, "it is no .pt file, or damaged or cut off; copy it again"):
        _check_content(name, error)
        return torch.load(name, map_location="cpu", weights_only=True)


def _check_content(name: str, error: type[UnreadableFileError]) -> None:
    with open(name, "rb") as file:
        if file.read(len(ZIP)) != ZIP:
            file.seek(0)
            for _ in range(OLD_PICKLES):
                _check_pickle(file, name, error)
            return
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            packed = any(m.compress_type != zipfile.ZIP_STORED for m in members)
            if packed or sum(m.file_size for m in members) > os.path.getsize(name):
                raise error(
                    f"{name} holds packed bytes, which torch.save never writes; save the tensor "
                    "again: torch.save(features, path)"
                )
            for member in members:
                if member.filename.lower().endswith(".pkl"):
                    with archive.open(member) as pickle:
                        _check_pickle(pickle, name, error)


def _check_pickle(file: Any, name: str, error: type[UnreadableFileError]) -> None:
    """Raise unless a pickle asks for nothing but plain tensors."""
    tuples = 0
    for code, argument, _ in pickletools.genops(file):
        tuples += code.name.startswith("TUPLE")
        foreign = code.name == "GLOBAL" and not PLAIN.fullmatch(str(argument))
        if foreign or tuples > MOST_TUPLES:
            what = f"{argument!r:.80}" if foreign else "too many tuples"
            raise error(
                f"{name} holds more than plain tensors, numbers and text ({what}), which could run "
                "code or take any memory when loaded; nothing of it was run; save the tensor "
                "alone: torch.save(features.float(), path)"
            )


def _array(value: Any, what: str, name: str) -> NDArray[Any]:
    if not hasattr(value, "detach"):
        raise SlideFileError(f"{name}: {what} must be a tensor; got {type(value).__name__}")
    with one_error(name, SlideFileError, f"its {what} are no plain tensor of numbers"):
        value = value.detach()
        stored = value.untyped_storage().nbytes()
        if value.device.type != "cpu" or value.numel() * value.element_size() > stored:
            raise SlideFileError(
                f"{name}: {what} of shape {tuple(value.shape)} are not all in the file, which "
                f"holds {stored} bytes of them; save them whole: torch.save(x.clone(), path)"
            )
        # numpy has no bfloat16, in which some tools store features.
        return np.asarray(value.float() if value.dtype.is_floating_point else value)
