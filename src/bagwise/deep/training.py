"""Training an AttCNN on bag labels with early stopping on the AUC of held-out bags."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bagwise.bags import Bags
from bagwise.deep.network import AttCNN
from bagwise.metrics import roc_auc

ROWS_AT_ONCE = 4096  # instances that are encoded together when nothing is learned


@dataclass(frozen=True)
class Schedule:
    """How to train: see the arguments of `AttentionMIL`."""

    learning_rate: float
    weight_decay: float
    batch_size: int
    max_epochs: int
    patience: int
    verbose: int


@dataclass(frozen=True)
class Epoch:
    """Mean loss on the training bags, and AUC and loss on the held-out ones (NaN without)."""

    loss: float
    validation_auc: float
    validation_loss: float


@dataclass(frozen=True)
class Batch:
    """Bags as tensors: instances (N, inputs), the bag of each, targets (B,)."""

    x: Tensor
    bag: Tensor
    target: Tensor

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return len(self.target)


def as_batch(bags: Bags, target: NDArray[Any], device: torch.device) -> Batch:
    """Tensors of bags in the order they have."""
    return Batch(
        torch.from_numpy(np.array(bags.X, dtype=np.float32)).to(device),
        torch.from_numpy(bags.bag_index).to(device),
        torch.from_numpy(np.asarray(target, dtype=np.float32)).to(device),
    )


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, on which weights and dropout draw, and put them back."""
    forked = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=forked):
        torch.manual_seed(seed)
        yield


def train(
    network: AttCNN,
    bags: Bags,
    target: NDArray[Any],
    held_out: tuple[Bags, NDArray[Any]] | None,
    schedule: Schedule,
    rng: np.random.Generator,
) -> tuple[list[Epoch], int]:
    """Fit the network in place; returns the epochs and which of them was kept.

    The cross-entropy of bag labels is minimised [C24, 6.3]. With held-out bags training stops
    when their AUC has not risen for `patience` epochs (of equal AUCs the lower loss is better,
    since AUC is 1 soon on easy data), and the best epoch's weights are kept.
    """
    optimizer = torch.optim.Adam(
        network.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay
    )
    history: list[Epoch] = []
    best, best_state, kept = (-np.inf, -np.inf), None, 0
    for number in range(schedule.max_epochs):
        loss = _one_epoch(network, optimizer, bags, target, schedule.batch_size, rng)
        auc, validation_loss = _evaluate(network, held_out)
        history.append(Epoch(loss, auc, validation_loss))
        if schedule.verbose:
            print(f"epoch {number + 1}: loss {loss:.4f}, validation AUC {auc:.4f}")
        if held_out is None:
            kept = number
        elif (auc, -validation_loss) > best:
            best, kept = (auc, -validation_loss), number
            best_state = copy.deepcopy(network.state_dict())
        elif number - kept >= schedule.patience:
            break
    if best_state is not None:
        network.load_state_dict(best_state)
    network.eval()
    return history, kept


def _one_epoch(
    network: AttCNN,
    optimizer: Any,
    bags: Bags,
    target: NDArray[Any],
    batch_size: int,
    rng: np.random.Generator,
) -> float:
    """One pass over the bags in random order; returns the mean loss."""
    network.train()
    total = 0.0
    for chosen in batches(rng.permutation(len(bags)), batch_size):
        batch = as_batch(bags[chosen], target[chosen], network.device)
        optimizer.zero_grad()
        logit, _ = network(batch.x, batch.bag, batch.n_bags)
        loss = nn.functional.binary_cross_entropy_with_logits(logit, batch.target)
        if not torch.isfinite(loss):
            raise FloatingPointError(
                "the network's loss is no longer finite; lower learning_rate, or scale the features"
            )
        loss.backward()
        optimizer.step()
        total += float(loss.detach()) * len(chosen)
    return total / len(bags)


def batches(order: NDArray[np.intp], size: int) -> Iterator[NDArray[np.intp]]:
    """Numbers of `size` bags at a time, sorted."""
    return (np.sort(order[i : i + size]) for i in range(0, len(order), size))


def _evaluate(network: AttCNN, held_out: tuple[Bags, NDArray[Any]] | None) -> tuple[float, float]:
    """AUC and mean cross-entropy of held-out bags, NaN if there are none."""
    if held_out is None:
        return np.nan, np.nan
    bags, target = held_out
    logit, _ = run(network, bags)
    batch = torch.from_numpy(np.asarray(target, dtype=np.float32))
    loss = nn.functional.binary_cross_entropy_with_logits(torch.from_numpy(logit), batch)
    return float(roc_auc(target, logit)), float(loss)


def run(network: AttCNN, bags: Bags) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Logits (B,) of bags and weights (N,) of instances, without learning."""
    h = torch.from_numpy(encode(network, bags)).to(network.device)
    with torch.no_grad():
        bag = torch.from_numpy(bags.bag_index).to(network.device)
        pooled, weight = network.pooling(h, bag, len(bags))
        logit = network.classifier(pooled)[:, 0]
    return logit.cpu().numpy(), weight.cpu().numpy()


def encode(network: AttCNN, bags: Bags) -> NDArray[np.float32]:
    """(N, D) features of all instances, computed a few thousand at a time."""
    network.eval()
    parts = []
    with torch.no_grad():
        for start in range(0, bags.n_instances, ROWS_AT_ONCE):
            rows = np.array(bags.X[start : start + ROWS_AT_ONCE], dtype=np.float32)
            parts.append(network.encode(torch.from_numpy(rows).to(network.device)).cpu().numpy())
    return np.concatenate(parts)
