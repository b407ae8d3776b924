"""The network AttCNN: encoder, attention pooling, classifier [C24, Eq. 39].

This file and `training.py` import torch; the others of the package import them when a network is
built. Symbols: h_n = f_CNN(x_n) features of an instance, a_n its weight in the bag.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def segment_softmax(score: Tensor, bag: Tensor, n_bags: int) -> Tensor:
    """exp(s_n) / sum over the bag of exp(s_m) [Ilse et al. 2018, Eq. 8].

    >>> segment_softmax(torch.zeros(3), torch.tensor([0, 0, 1]), 2)
    tensor([0.5000, 0.5000, 1.0000])
    """
    start = torch.full((n_bags,), -torch.inf, dtype=score.dtype, device=score.device)
    top = start.scatter_reduce(0, bag, score, "amax")
    weight = torch.exp(score - top.detach()[bag])
    total = torch.zeros_like(start).index_add(0, bag, weight)
    return weight / total[bag]


def segment_sum(values: Tensor, bag: Tensor, n_bags: int) -> Tensor:
    """(B, D) sums of rows over bags.

    >>> segment_sum(torch.ones(3, 1), torch.tensor([0, 0, 1]), 2).ravel()
    tensor([2., 1.])
    """
    zeros = torch.zeros(n_bags, values.shape[1], dtype=values.dtype, device=values.device)
    return zeros.index_add(0, bag, values)


class AttentionPooling(nn.Module):
    """f_Att: weights a_n from w'tanh(V h_n) [Ilse et al. 2018, Eq. 8], bag feature sum a_n h_n.

    Gated: w'(tanh(V h_n) * sigmoid(U h_n)) [Eq. 9].
    """

    def __init__(self, n_features: int, size: int, gated: bool) -> None:
        super().__init__()
        self.V = nn.Linear(n_features, size)
        self.U = nn.Linear(n_features, size) if gated else None
        self.w = nn.Linear(size, 1, bias=False)

    def forward(self, h: Tensor, bag: Tensor, n_bags: int) -> tuple[Tensor, Tensor]:
        """Bag features (B, D) and weights (N,)."""
        hidden = torch.tanh(self.V(h))
        if self.U is not None:
            hidden = hidden * torch.sigmoid(self.U(h))
        weight = segment_softmax(self.w(hidden)[:, 0], bag, n_bags)
        return segment_sum(weight[:, None] * h, bag, n_bags), weight


class MeanPooling(nn.Module):
    """Mean of the features of a bag; every instance has the weight 1/n."""

    def forward(self, h: Tensor, bag: Tensor, n_bags: int) -> tuple[Tensor, Tensor]:
        """Bag features (B, D) and weights (N,)."""
        weight = segment_softmax(torch.zeros_like(h[:, 0]), bag, n_bags)
        return segment_sum(weight[:, None] * h, bag, n_bags), weight


class MaxPooling(nn.Module):
    """Maximum of each feature over a bag; a weight is the share of maxima that an instance has."""

    def forward(self, h: Tensor, bag: Tensor, n_bags: int) -> tuple[Tensor, Tensor]:
        """Bag features (B, D) and weights (N,)."""
        start = torch.full((n_bags, h.shape[1]), -torch.inf, dtype=h.dtype, device=h.device)
        index = bag[:, None].expand_as(h)
        top = start.scatter_reduce(0, index, h, "amax")
        hits = (h == top[bag]).to(h.dtype)
        shared = hits / segment_sum(hits, bag, n_bags)[bag]  # a maximum that several have is split
        return top, shared.mean(dim=1)


def make_pooling(kind: str, n_features: int, size: int) -> nn.Module:
    """Pooling by its name: "gated", "attention", "mean" or "max"."""
    if kind in ("attention", "gated"):
        return AttentionPooling(n_features, size, gated=kind == "gated")
    return MeanPooling() if kind == "mean" else MaxPooling()


def make_cnn(image_shape: tuple[int, int, int], n_features: int, dropout: float) -> nn.Module:
    """f_CNN for small images: two blocks of convolution and pooling, one hidden layer.

    >>> make_cnn((1, 8, 8), 32, 0.0)(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 32])
    """
    channels, height, width = image_shape
    blocks: list[nn.Module] = []
    for wide in (16, 32):
        blocks += [nn.Conv2d(channels, wide, 3, padding=1), nn.ReLU()]
        # Images of a few pixels keep their size: there is nothing left to halve.
        if min(height, width) >= 4:
            blocks.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
        channels = wide
    if height * width > 64:  # large images: a fixed grid keeps the hidden layer small
        blocks.append(nn.AdaptiveAvgPool2d(8))
        height = width = 8
    head = [nn.Flatten(), nn.Dropout(dropout), nn.Linear(channels * height * width, n_features)]
    return nn.Sequential(*blocks, *head, nn.ReLU())


def make_mlp(n_inputs: int, n_features: int, dropout: float) -> nn.Module:
    """One hidden layer for features that are computed already.

    >>> make_mlp(10, 4, 0.0)(torch.zeros(5, 10)).shape
    torch.Size([5, 4])
    """
    return nn.Sequential(nn.Linear(n_inputs, n_features), nn.ReLU(), nn.Dropout(dropout))


class AttCNN(nn.Module):
    """f_c o f_Att o f_CNN [C24, Eq. 39]; the output is the logit of a positive bag.

    Inputs are shifted and scaled by numbers that are stored with the weights.
    """

    def __init__(
        self, encoder: nn.Module, pooling: nn.Module, n_features: int, image_shape: Any
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.classifier = nn.Linear(n_features, 1)
        self.image_shape = image_shape
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return self.classifier.weight.device

    def encode(self, x: Tensor) -> Tensor:
        """(N, D) features h of instances (N, inputs)."""
        x = (x - self.shift) / self.scale
        h = self.encoder(x if self.image_shape is None else x.reshape(-1, *self.image_shape))
        return h.flatten(1)

    def forward(self, x: Tensor, bag: Tensor, n_bags: int) -> tuple[Tensor, Tensor]:
        """Logits (B,) of the bags and weights (N,) of their instances."""
        pooled, weight = self.pooling(self.encode(x), bag, n_bags)
        return self.classifier(pooled)[:, 0], weight
