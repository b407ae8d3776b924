"""Networks in files: weights as safetensors, everything else as JSON in its header; no pickle."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.core.files.atomic import atomic_file
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
