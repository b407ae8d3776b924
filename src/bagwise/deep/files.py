"""Networks in files: weights as safetensors, all else as JSON in its header; nothing is run."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.core.files.atomic import atomic_file
from bagwise.core.files.codec import ModelFileError
from bagwise.core.parameters import plain_seed
from bagwise.io.requirements import require

if TYPE_CHECKING:
    from bagwise.deep.attention import AttentionMIL

FORMAT = "bagwise-attention"
SCHEMA = 1
KEYS = {"format", "schema", "parameters", "classes", "n_inputs", "feature_names", "epochs", "best"}


def save_network(
    model: AttentionMIL, path: str | os.PathLike[str], *, overwrite: bool = True
) -> None:
    """Write a fitted `AttentionMIL` to one safetensors file, completely or not at all.

    The file's metadata holds one JSON text under "bagwise": arguments, classes, history.
    """
    tensors = {name: t.contiguous() for name, t in model.network_.state_dict().items()}
    save = require("safetensors.torch", what="saving networks", extra="torch").save
    names = getattr(model, "feature_names_in_", None)
    header = {
        "format": FORMAT,
        "schema": SCHEMA,
        "parameters": _storable(model),
        "classes": [model.classes_.dtype.str, model.classes_.tolist()],
        "n_inputs": model.n_features_in_,
        "feature_names": None if names is None else [str(n) for n in names],
        "epochs": [[e.loss, e.validation_auc, e.validation_loss] for e in model.history_],
        "best": model.best_epoch_,
    }
    data = save(tensors, metadata={"bagwise": json.dumps(header)})
    with atomic_file(path, overwrite=overwrite) as file:
        file.write(data)


def _storable(model: AttentionMIL) -> dict[str, Any]:
    """Arguments as plain values; a module becomes None and must be given again to load."""
    parameters = model.get_params(deep=False)
    if not isinstance(parameters["encoder"], str):
        parameters["encoder"] = None
    parameters["random_state"] = plain_seed(parameters["random_state"])
    shape = parameters["image_shape"]
    parameters["image_shape"] = None if shape is None else [int(s) for s in shape]
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}


def read_network(
    kind: type[AttentionMIL], path: str | os.PathLike[str], encoder: Any
) -> AttentionMIL:
    """The network of a file, whose encoder is given where it was a module of the user's."""
    require("torch", what="AttentionMIL", extra="torch")
    safetensors = require("safetensors", what="loading networks", extra="torch")
    with open(path, "rb"):
        pass  # a path that cannot be opened raises the usual OSError
    try:
        with safetensors.safe_open(os.fspath(path), framework="pt") as file:
            text = (file.metadata() or {}).get("bagwise")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(
            f"cannot read {os.fspath(path)}: it is no safetensors file, or damaged or cut off "
            f"({error}); save the network again"
        ) from error
    try:
        return _restored(kind, _header(text), tensors, encoder)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"cannot read {os.fspath(path)}: {error}") from error


def _header(text: str | None) -> dict[str, Any]:
    if text is None:
        raise ModelFileError("it has weights but is not a network of bagwise")
    header = json.loads(text)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError("it is not a network of bagwise")
    if header.get("schema") != SCHEMA:
        raise ModelFileError(
            f"it has schema {header.get('schema')!r}, this bagwise reads {SCHEMA}; update bagwise"
        )
    if set(header) != KEYS:
        raise ModelFileError(f"its header lacks or has too much of {sorted(set(header) ^ KEYS)}")
    return header


def _restored(
    kind: type[AttentionMIL], header: dict[str, Any], tensors: dict[str, Any], encoder: Any
) -> AttentionMIL:
    from bagwise.deep.building import build_network
    from bagwise.deep.training import Epoch

    parameters = dict(header["parameters"])
    if parameters["encoder"] is None and encoder is None:
        raise ModelFileError(
            "its encoder was a module of your own, whose code is not in the file; pass the module "
            "as encoder="
        )
    if parameters["encoder"] is not None and encoder is not None:
        raise ModelFileError(f"its encoder is {parameters['encoder']!r}; leave encoder= out")
    parameters["encoder"] = encoder if encoder is not None else parameters["encoder"]
    shape = parameters["image_shape"]
    parameters["image_shape"] = None if shape is None else tuple(shape)
    model = kind(**parameters)
    model._check_parameters()
    network = build_network(model, int(header["n_inputs"]), None)
    for name in ("shift", "scale"):  # of the shape that training gave them
        setattr(network, name, tensors[name].clone())
    network.load_state_dict(tensors, strict=True)
    _check_finite(tensors)
    network.eval()
    model.network_ = network
    dtype, values = header["classes"]
    model.classes_ = np.array(values, dtype=np.dtype(dtype))
    if model.classes_.shape != (2,) or model.classes_.dtype.kind == "O":
        raise ModelFileError("it must have two classes")
    model.history_ = [Epoch(*map(float, row)) for row in header["epochs"]]
    model.n_iter_, model.best_epoch_ = len(model.history_), int(header["best"])
    model.n_features_in_ = int(header["n_inputs"])
    if header["feature_names"] is not None:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    return model


def _check_finite(tensors: dict[str, Any]) -> None:
    for name, values in tensors.items():
        if not bool(values.isfinite().all()):
            raise ModelFileError(f"its weights {name!r} hold NaN or infinity")
