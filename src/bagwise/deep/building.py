"""Build the torch network that an `AttentionMIL` describes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bagwise.deep.network import AttCNN, make_cnn, make_mlp, make_pooling

if TYPE_CHECKING:
    from bagwise.deep.attention import AttentionMIL


def build_network(model: AttentionMIL, n_inputs: int, X: NDArray[Any] | None) -> AttCNN:
    """A network with fresh weights; inputs are scaled as those of X (None: to be loaded)."""
    shape = channels_first(model.image_shape, n_inputs)
    encoder = _encoder(model, shape, n_inputs)
    width = _output_width(encoder, shape, n_inputs)
    if width != model.n_features and isinstance(model.encoder, nn.Module):
        raise ValueError(
            f"the encoder gives {width} features, but n_features={model.n_features}; pass "
            f"n_features={width}"
        )
    network = AttCNN(
        encoder, make_pooling(model.pooling, width, model.attention_size), width, shape
    )
    # A module of the user's has its own idea of what its input looks like.
    if X is not None and isinstance(model.encoder, str):
        _set_scaling(network, X)
    return network


def channels_first(image_shape: Any, n_inputs: int) -> tuple[int, int, int] | None:
    """(channels, height, width) of an image of n_inputs values, or None.

    >>> channels_first((8, 8), 64)
    (1, 8, 8)
    """
    if image_shape is None:
        return None
    shape = tuple(int(s) for s in image_shape)
    shape = (1, *shape) if len(shape) == 2 else shape
    if len(shape) != 3 or min(shape) < 1 or int(np.prod(shape)) != n_inputs:
        raise ValueError(
            f"image_shape={image_shape!r} must be (channels, height, width) or (height, width) "
            f"with {n_inputs} values in all, the features of an instance"
        )
    return shape[0], shape[1], shape[2]


def _encoder(model: AttentionMIL, shape: tuple[int, int, int] | None, n_inputs: int) -> nn.Module:
    kind = model.encoder
    if isinstance(kind, nn.Module):
        return copy.deepcopy(kind)
    if not isinstance(kind, str):
        raise TypeError(f"encoder must be a name or a torch.nn.Module, got {kind!r}")
    if kind == "auto":
        kind = "mlp" if shape is None else "cnn"
    if kind == "cnn":
        if shape is None:
            raise ValueError("encoder='cnn' needs image_shape=(channels, height, width)")
        return make_cnn(shape, model.n_features, model.dropout)
    if kind == "mlp":
        flat = make_mlp(n_inputs, model.n_features, model.dropout)
        return nn.Sequential(nn.Flatten(), *flat)
    return nn.Flatten()


def _output_width(encoder: nn.Module, shape: Any, n_inputs: int) -> int:
    """Number of features that the encoder gives, found by trying two blank instances."""
    blank = torch.zeros(2, *(shape or (n_inputs,)))
    mode = encoder.training
    try:
        with torch.no_grad():
            out = encoder.eval()(blank)
    except Exception as error:
        raise ValueError(
            f"the encoder does not take instances of shape {tuple(blank.shape[1:])} ({error}); "
            "set image_shape to what it takes"
        ) from error
    finally:
        encoder.train(mode)
    if not isinstance(out, torch.Tensor) or len(out) != 2:
        raise ValueError("the encoder must return one row of features per instance")
    return int(out.flatten(1).shape[1])


def _set_scaling(network: AttCNN, X: NDArray[Any]) -> None:
    """One shift and scale for all pixels of images, one per feature otherwise."""
    axis = None if network.image_shape is not None else 0
    shift, spread = X.mean(axis=axis, dtype=np.float64), X.std(axis=axis, dtype=np.float64)
    constant = spread <= 1e-12 * np.abs(shift)
    network.shift = torch.as_tensor(shift, dtype=torch.float32)
    network.scale = torch.as_tensor(np.where(constant, 1.0, spread), dtype=torch.float32)
