"""Patch features in PyTorch's .pt files, read without running what is in them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.files.reading import check_regular, one_error
from bagwise.io.requirements import require
from bagwise.io.slide_features import SlideFeatures, SlideFileError, check_slide, first_of


def read_slide_pt(path: str | os.PathLike[str]) -> SlideFeatures:
    """Read the patch features of one slide from a .pt file: a tensor (n, D), or a dict.

    A dict has `features` (or `feats`) and may have `coords` and `patch_size_level0`. The file is
    read with `weights_only=True`: tensors, numbers and text in lists and dicts; anything else is
    refused and nothing in the file is run.
    """
    torch = require("torch", what="reading .pt files", extra="torch")
    name = os.fspath(path)
    check_regular(name, SlideFileError)
    content = _load(torch, name)
    if isinstance(content, dict):
        features = first_of(content, "features", "feats")
        if features is None:
            raise SlideFileError(
                f"{name}: no 'features' or 'feats'; there is {sorted(map(str, content))}"
            )
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


def _load(torch: Any, name: str) -> Any:
    try:
        return torch.load(name, map_location="cpu", weights_only=True)
    except Exception as error:
        if type(error).__name__ == "UnpicklingError":
            raise SlideFileError(
                f"{name} holds more than tensors, numbers and text, which could run code when "
                "loaded; nothing of it was run; save the tensor alone: torch.save(features, path)"
            ) from error
        # torch raises a dozen kinds of errors on damaged bytes.
        raise SlideFileError(
            f"cannot read {name}: it is no .pt file, or damaged or cut off ({error}); copy it again"
        ) from error


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
