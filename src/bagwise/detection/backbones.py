"""Features of regions by a neural network in PyTorch, e.g. a pretrained backbone of torchvision."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.boxes import as_boxes
from bagwise.core.files.codec import ModelFileError
from bagwise.core.files.reading import one_error
from bagwise.core.parameters import check_integer
from bagwise.detection.encoders import crops
from bagwise.io.requirements import require
from bagwise.io.torch_files import load_tensors

Array = NDArray[Any]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class NetworkFeatures:
    """Encode boxes of images by any `torch.nn.Module`; an encoder of `WeaklySupervisedDetector`.

    Each box is resampled to a square of `side` pixels with three channels, values from 0 to 1,
    shifted by `mean` and divided by `std`. Features are the output of the module, or of the one of
    its layers that `layer` names ("avgpool", "features.28"); maps of features are averaged over
    their width and height. The module is used as it is, and not trained.

    Parameters
    ----------
    module : takes (n, 3, side, side) float32.
    layer : name of a submodule whose output is taken; None: that of the whole module.
    side, mean, std : what the module was trained with; the defaults are those of ImageNet.
    batch_size : boxes at once.
    device : "cpu", "cuda", ...
    """

    def __init__(
        self,
        module: Any,
        *,
        layer: str | None = None,
        side: int = 224,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: tuple[float, float, float] = IMAGENET_STD,
        batch_size: int = 64,
        device: str = "cpu",
    ) -> None:
        torch = require("torch", what="NetworkFeatures", extra="torch")
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module must be a torch.nn.Module, got {module!r:.80}")
        self.module = module.to(device).eval()
        self.layer = layer
        self.side = check_integer("side", side, at_least=1)
        self.mean, self.std = (np.reshape(np.asarray(v, float), (3, 1, 1)) for v in (mean, std))
        self.batch_size = check_integer("batch_size", batch_size, at_least=1)
        self.device = device
        self._tapped = module if layer is None else _submodule(module, layer)

    def __call__(self, image: Any, boxes: Any) -> NDArray[np.float32]:
        """(n, D) features of the boxes of an image (height, width) or (height, width, 3)."""
        boxes = as_boxes(boxes)
        parts = [
            self._features(colour_crops(image, boxes[i : i + self.batch_size], self.side))
            for i in range(0, len(boxes), self.batch_size)
        ]
        return np.concatenate(parts)

    def _features(self, squares: Array) -> NDArray[np.float32]:
        import torch

        x = torch.from_numpy(((squares - self.mean) / self.std).astype(np.float32))
        kept: list[Any] = []
        hook = self._tapped.register_forward_hook(lambda module, given, out: kept.append(out))
        try:
            with torch.no_grad():
                self.module(x.to(self.device))
        finally:
            hook.remove()
        out = kept[-1] if kept else None
        if not isinstance(out, torch.Tensor) or len(out) != len(x):
            raise ValueError(
                f"layer {self.layer!r} must give one row of features per box; it gave {out!r:.80}"
            )
        flat = out.mean(dim=(2, 3)) if out.ndim == 4 else out.flatten(1)
        return flat.cpu().numpy().astype(np.float32)


def colour_crops(image: Any, boxes: Any, side: int) -> Array:
    """(n, 3, side, side) values from 0 to 1 of the boxes; bytes are divided by 255.

    >>> colour_crops(np.full((4, 4, 3), 255, np.uint8), [[0, 0, 2, 2]], 2).max()
    np.float64(1.0)
    """
    array = np.asarray(image)
    white = 255.0 if array.dtype == np.uint8 else 1.0
    channels = [array] * 3 if array.ndim == 2 else list(np.moveaxis(array[:, :, :3], 2, 0))
    channels = channels * 3 if len(channels) == 1 else channels
    return np.stack([crops(c, boxes, side) for c in channels], axis=1) / white


def torchvision_features(
    name: str,
    weights: str | os.PathLike[str] | None,
    *,
    layer: str = "avgpool",
    **more: Any,
) -> NetworkFeatures:
    """`NetworkFeatures` of a model of torchvision, e.g. "resnet18", with weights of a local file.

    `weights` is the file of a state dictionary, as torchvision offers them for download; it is read
    with `weights_only=True`, so that nothing in it is run. None leaves the weights random, which is
    good for trying out only. Nothing is downloaded. `more` goes to `NetworkFeatures`.
    """
    require("torch", what="torchvision_features", extra="torch")
    models = _torchvision_models()
    try:
        module = models.get_model(name, weights=None)
    except ValueError as error:
        raise ValueError(f"torchvision has no model {name!r} ({error})") from error
    if weights is not None:
        _put_in(module, weights)
    return NetworkFeatures(module, layer=layer, **more)


def _put_in(module: Any, path: str | os.PathLike[str]) -> None:
    """Give a module the weights of a file, of which nothing is run."""
    state = load_tensors(path, ModelFileError)
    if not isinstance(state, dict):
        raise ModelFileError(f"{os.fspath(path)} holds a {type(state).__name__}, not weights")
    with one_error(path, ModelFileError, "its weights are not those of the model"):
        module.load_state_dict(state)


def _torchvision_models() -> Any:
    try:
        return import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"torchvision_features needs torchvision, built for the torch that is installed "
            f"({str(error)[:80]}); install both from the same index, see pytorch.org, or give any "
            "torch.nn.Module to NetworkFeatures"
        ) from error


def _submodule(module: Any, layer: str) -> Any:
    try:
        return module.get_submodule(layer)
    except AttributeError as error:
        names = ", ".join(name for name, _ in module.named_children())
        raise ValueError(
            f"the module has no layer {layer!r}; it has {names}, and their parts, such as "
            "'features.0'"
        ) from error
