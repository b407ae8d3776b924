"""Networks from their files; nothing in a file is run."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from bagwise.core.files.codec import ModelFileError
from bagwise.deep.attention import AttentionMIL
from bagwise.deep.files import FORMAT, KEYS, SCHEMA
from bagwise.io.requirements import require


def load_network(path: str | os.PathLike[str], *, encoder: Any = None) -> AttentionMIL:
    """Read a network that `AttentionMIL.save` wrote; nothing in the file is run.

    `encoder` is needed if the network was trained with a `torch.nn.Module` of yours: a module of
    the same architecture, whose weights are then replaced by those of the file.
    """
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
        return _restored(_header(text), tensors, encoder)
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


def _restored(header: dict[str, Any], tensors: dict[str, Any], encoder: Any) -> AttentionMIL:
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
    model = AttentionMIL(**parameters)
    model._check_parameters()
    network = build_network(model, int(header["n_inputs"]), None)
    for name in ("shift", "scale"):  # of the shape that training gave them
        setattr(network, name, tensors[name].clone())
    network.load_state_dict(tensors, strict=True)
    _check_finite(tensors)
    network.eval()
    model.network_ = network
    kind, values = header["classes"]
    model.classes_ = np.array(values, dtype=np.dtype(kind))
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
