"""Networks in files: weights as safetensors, all else as JSON in its header; nothing is run."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.core.files.atomic import atomic_file
from bagwise.core.files.codec import ModelFileError, describe
from bagwise.core.files.reading import check_regular
from bagwise.core.parameters import check_choice, check_integer, plain_seed
from bagwise.io.requirements import require
from bagwise.models.persistence import load
from bagwise.models.probit import ProbitVGPMIL

if TYPE_CHECKING:
    from bagwise.deep.attention import AttentionMIL
    from bagwise.deep.probit import DeepProbitMIL

FORMAT = "bagwise-attention"
DEEP_FORMAT = "bagwise-deep-probit"
SCHEMA = 1
HEAD = "head"  # the tensor of bytes that are the model file of a head
SMALLEST_SCALE = 1e-30  # below which single precision has no quotients
MAX_CLASS_BYTES = 2**16
KEYS = {"format", "schema", "parameters", "classes", "n_inputs", "feature_names", "epochs", "best"}
DEEP_KEYS = {"format", "schema", "parameters", "network", "epochs", "best", "held_out"}


def save_network(
    model: AttentionMIL, path: str | os.PathLike[str], *, overwrite: bool = True
) -> None:
    """Write a fitted `AttentionMIL` to one safetensors file, completely or not at all.

    The file's metadata holds one JSON text under "bagwise": arguments, classes, history.
    """
    _write(path, _tensors(model), _network_header(model), overwrite)


def save_deep_model(
    model: DeepProbitMIL, path: str | os.PathLike[str], *, overwrite: bool = True
) -> None:
    """Write a fitted `DeepProbitMIL`: its network, and its head as the bytes of a model file."""
    import torch

    parameters = model.get_params(deep=False) | {"network": None}
    parameters["random_state"] = plain_seed(parameters["random_state"])
    header = {
        "format": DEEP_FORMAT,
        "schema": SCHEMA,
        "parameters": _plain(parameters),
        "network": _network_header(model.network_),
        "epochs": [[e.bound, e.validation_log_likelihood] for e in model.history_],
        "best": model.best_epoch_,
        "held_out": model.held_out_.tolist(),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "head.bagwise"
        model.head_.save(file)
        head = torch.from_numpy(np.fromfile(file, dtype=np.uint8))
    _write(path, _tensors(model.network_) | {HEAD: head}, header, overwrite)


def _write(
    path: str | os.PathLike[str], tensors: dict[str, Any], header: dict[str, Any], overwrite: bool
) -> None:
    save = require("safetensors.torch", what="saving networks", extra="torch").save
    data = save(tensors, metadata={"bagwise": json.dumps(header)})
    with atomic_file(path, overwrite=overwrite) as file:
        file.write(data)


def _tensors(model: AttentionMIL) -> dict[str, Any]:
    return {name: t.cpu().contiguous() for name, t in model.network_.state_dict().items()}


def _network_header(model: AttentionMIL) -> dict[str, Any]:
    names = getattr(model, "feature_names_in_", None)
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "parameters": _storable(model),
        "classes": [model.classes_.dtype.str, model.classes_.tolist()],
        "n_inputs": model.n_features_in_,
        "feature_names": None if names is None else [str(n) for n in names],
        "epochs": [[e.loss, e.validation_auc, e.validation_loss] for e in model.history_],
        "best": model.best_epoch_,
    }


def _storable(model: AttentionMIL) -> dict[str, Any]:
    """Arguments as plain values; a module becomes None and must be given again to load."""
    parameters = model.get_params(deep=False)
    if not isinstance(parameters["encoder"], str):
        parameters["encoder"] = None
    parameters["random_state"] = plain_seed(parameters["random_state"])
    shape = parameters["image_shape"]
    parameters["image_shape"] = None if shape is None else [int(s) for s in shape]
    return _plain(parameters)


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}


def read_network(
    kinds: tuple[type[AttentionMIL], type[DeepProbitMIL]],
    path: str | os.PathLike[str],
    encoder: Any,
    device: str,
) -> AttentionMIL | DeepProbitMIL:
    """The network of a file, whose encoder is given where it was a module of the user's."""
    require("torch", what="AttentionMIL", extra="torch")
    safetensors = require("safetensors", what="loading networks", extra="torch")
    check_regular(path, ModelFileError)
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
        header = _header(text)
        if header["format"] == FORMAT:
            return _restored(kinds[0], header, tensors, encoder)
        return _restored_deep(kinds, header, tensors, encoder, device)
    except Exception as error:  # values of any type reach every check
        raise ModelFileError(f"cannot read {os.fspath(path)}: {describe(error)}") from error


def _header(text: str | None) -> dict[str, Any]:
    if text is None:
        raise ModelFileError("it has weights but is not a network of bagwise")
    return _checked_header(json.loads(text), {FORMAT: KEYS, DEEP_FORMAT: DEEP_KEYS})


def _checked_header(header: Any, formats: dict[str, set[str]]) -> dict[str, Any]:
    if not isinstance(header, dict) or header.get("format") not in formats:
        raise ModelFileError("it is not a network of bagwise")
    if header.get("schema") != SCHEMA:
        raise ModelFileError(
            f"it has schema {header.get('schema')!r}, this bagwise reads {SCHEMA}; update bagwise"
        )
    wanted = formats[header["format"]]
    if set(header) != wanted:
        raise ModelFileError(f"its header lacks or has too much of {sorted(set(header) ^ wanted)}")
    return header


def _restored_deep(
    kinds: tuple[type[AttentionMIL], type[DeepProbitMIL]],
    header: dict[str, Any],
    tensors: dict[str, Any],
    encoder: Any,
    device: str,
) -> DeepProbitMIL:
    from bagwise.deep.joint_training import JointEpoch

    network_header = _checked_header(header["network"], {FORMAT: KEYS})
    head = _restored_head(tensors.pop(HEAD, None))
    network = _restored(kinds[0], network_header, tensors, encoder)
    if head.n_features_in_ != network.network_.classifier.in_features:
        raise ModelFileError(f"its head is of {head.n_features_in_} features, not its encoder's")
    if head.classes_.tolist() != network.classes_.tolist():
        raise ModelFileError("its head has other classes than its network")
    own = kinds[0](**network.get_params(deep=False))
    model = kinds[1](**(header["parameters"] | {"network": own, "device": device}))
    model._check_parameters()
    check_choice("random_state", type(model.random_state).__name__, ("int", "NoneType"))
    network.network_.to(device)
    model.network_, model.head_, model.classes_ = network, head, network.classes_
    model.history_ = [JointEpoch(*map(float, row)) for row in header["epochs"]]
    model.n_iter_ = len(model.history_) - 1
    model.best_epoch_ = check_integer("best", header["best"], at_least=0)
    held_out = [check_integer("held_out", i, at_least=0) for i in header["held_out"]]
    model.held_out_ = np.array(held_out, dtype=np.intp)
    model.n_features_in_ = network.n_features_in_
    if hasattr(network, "feature_names_in_"):
        model.feature_names_in_ = network.feature_names_in_
    return model


def _restored_head(data: Any) -> ProbitVGPMIL:
    """The head whose model file is a tensor of bytes."""
    import torch

    if data is None or data.dtype != torch.uint8 or data.ndim != 1:
        raise ModelFileError("it has no head: a tensor of bytes")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "head.bagwise"
        data.numpy().tofile(file)
        head = load(file)
    if not isinstance(head, ProbitVGPMIL):
        raise ModelFileError(f"its head is a {type(head).__name__}, not a ProbitVGPMIL")
    return head


def _restored(
    kind: type[AttentionMIL], header: dict[str, Any], tensors: dict[str, Any], encoder: Any
) -> AttentionMIL:
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
    check_choice("random_state", type(model.random_state).__name__, ("int", "NoneType"))
    n_inputs = check_integer("n_inputs", header["n_inputs"], at_least=1)
    model.network_ = _network_of(model, n_inputs, tensors)
    model.classes_ = _classes_of(*header["classes"])
    model.history_ = [Epoch(*map(float, row)) for row in header["epochs"]]
    model.n_iter_ = len(model.history_)
    model.best_epoch_ = check_integer("best", header["best"], at_least=0)
    model.n_features_in_ = n_inputs
    names = header["feature_names"]
    if names is not None:
        if not (isinstance(names, list) and len(names) == n_inputs):
            raise ModelFileError(f"it must have names of {n_inputs} features, got {names!r:.80}")
        if not all(isinstance(n, str) for n in names):
            raise ModelFileError(f"names of features must be texts, got {names!r:.80}")
        model.feature_names_in_ = np.array(names, dtype=object)
    return model


def _network_of(model: AttentionMIL, n_inputs: int, tensors: dict[str, Any]) -> Any:
    """The network with the weights of a file, which must be those that its arguments ask for."""
    import torch

    from bagwise.deep.building import build_network

    # Without memory, whatever sizes the file claims: weights are put in only where they fit.
    own = isinstance(model.encoder, str)
    with torch.device("meta" if own else "cpu"):
        network = build_network(model, n_inputs, None)
    for name in ("shift", "scale"):  # of the shape that training gave them
        shape, dtype = tuple(tensors[name].shape), tensors[name].dtype
        if shape not in ((), (n_inputs,)) or dtype != torch.float32:
            raise ModelFileError(f"its {name!r} is of shape {shape} and type {dtype}")
        setattr(network, name, tensors[name].clone())
    for name, wanted in network.state_dict().items():
        if name in tensors and tensors[name].dtype != wanted.dtype:
            raise ModelFileError(f"its weights {name!r} are of type {tensors[name].dtype}")
    network.load_state_dict(tensors, strict=True, assign=own)
    _check_finite(tensors)
    if not bool((tensors["scale"] > SMALLEST_SCALE).all()):
        raise ModelFileError("its 'scale' must be positive")
    network.eval()
    return network


def _classes_of(dtype: Any, values: Any) -> Any:
    """(2,) classes as the file gives them."""
    kind = np.dtype(dtype)
    if kind.kind not in "biufUSM" or kind.itemsize > MAX_CLASS_BYTES:
        raise ModelFileError(f"it cannot have two classes of type {dtype!r:.80}")
    classes = np.array(values, dtype=kind)
    finite = kind.kind != "f" or np.all(np.isfinite(classes))
    if classes.shape != (2,) or classes[0] == classes[1] or not finite:
        raise ModelFileError(f"it must have two classes that differ, got {values!r:.80}")
    return classes


def _check_finite(tensors: dict[str, Any]) -> None:
    for name, values in tensors.items():
        if not bool(values.isfinite().all()):
            raise ModelFileError(f"its weights {name!r} hold NaN or infinity")
