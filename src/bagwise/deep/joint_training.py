"""Training an encoder and a sparse Gaussian process together on the bound of bag labels.

Each step takes a few bags. Encoder, inducing points and kernel follow the gradient of the bound at
the q(v) there is; q(v) itself follows its natural gradient, which for these sites is closed: a step
of size rho towards the statistics of the batch, scaled to all bags [Hoffman et al. 2013].
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_expit, log_ndtr
from torch import Tensor, nn

from bagwise.bags import Bags
from bagwise.core.calibration.bags import calibrate
from bagwise.core.calibration.left_out import LeftOut, kept_off
from bagwise.core.inference.cavi import global_step
from bagwise.core.inference.stats import Q, Stats
from bagwise.deep.bag_bound import (
    BagTargets,
    Moments,
    SparseFeatures,
    bag_bound,
    site_stats,
)
from bagwise.deep.head import fitted_head, starting_kernel
from bagwise.deep.network import AttCNN
from bagwise.deep.training import Schedule, batches, encode, seeded
from bagwise.kernels import Kernel
from bagwise.models._preparation import kmeans_points

if TYPE_CHECKING:
    from bagwise.deep.probit import DeepProbitMIL

RHO = 0.1  # step of q(v) towards a batch's statistics
JITTER = 1e-6  # that of the head
BAGS_AT_ONCE = 64  # where nothing is learned


@dataclass(frozen=True)
class LabelledBags:
    """Bags with what a fit knows of them."""

    bags: Bags
    T: NDArray[np.bool_]
    known: NDArray[np.float64]  # (N,) NaN where unknown

    def __len__(self) -> int:
        return len(self.T)

    def part(self, chosen: NDArray[np.intp]) -> LabelledBags:
        """Some of the bags."""
        rows = np.isin(self.bags.bag_index, chosen)
        return LabelledBags(self.bags[chosen], self.T[chosen], self.known[rows])

    def tensors(self, device: Any) -> tuple[Tensor, BagTargets]:
        """Instances in single precision, and the targets."""
        x = torch.from_numpy(np.array(self.bags.X, dtype=np.float32)).to(device)
        return x, BagTargets(
            torch.from_numpy(self.bags.bag_index).to(device),
            torch.from_numpy(self.T).to(device),
            torch.from_numpy(self.known).to(device),
        )


@dataclass(frozen=True)
class JointEpoch:
    """The bound per training bag, and the mean calibrated log-likelihood of held-out bags."""

    bound: float
    validation_log_likelihood: float


class DeepKernel(nn.Module):
    """An encoder and the sparse Gaussian process on its features."""

    def __init__(self, network: AttCNN, features: SparseFeatures) -> None:
        super().__init__()
        self.network = network
        self.features = features

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A (n, M) and kt (n,) of instances (n, inputs)."""
        A, kt = self.features(self.network.encode(x))
        return A, kt

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.features.Z.device


@dataclass(frozen=True)
class Trained:
    """What joint training has found besides the encoder, which it trains in place."""

    kernel: Kernel
    Z: NDArray[np.float64]
    history: list[JointEpoch]
    kept: int


def joint_fit(
    settings: DeepProbitMIL,
    network: AttCNN,
    data: LabelledBags,
    held_out: LabelledBags,
    rng: np.random.Generator,
) -> Trained:
    """Train a network's encoder, in place, with a sparse Gaussian process on its features.

    It starts from the second of two stages: k-means points and the optimal q(v) for them.
    """
    schedule = Schedule(
        settings.learning_rate,
        settings.weight_decay,
        settings.batch_size,
        settings.max_epochs,
        settings.patience,
        settings.verbose,
    )
    h = encode(network, data.bags).astype(np.float64)
    group = np.repeat(data.T, data.bags.sizes).astype(np.int64)
    Z, kernel = kmeans_points(h, group, settings.n_inducing, rng), starting_kernel(h)
    seed = int(rng.integers(2**31))
    start = fitted_head(data.bags.with_X(h), 1, kernel, Z, seed, quiet=True).posterior_
    q = Q(start.m, start.S, start.c0, float(np.linalg.slogdet(start.S)[1]))
    model = DeepKernel(network, SparseFeatures(Z, kernel, JITTER)).to(network.device)
    with seeded(seed, network.device):
        history, kept = train_jointly(model, q, data, held_out, schedule, rng)
    points = model.features.Z.detach().cpu().numpy()
    return Trained(model.features.kernel, points, history, kept)


def train_jointly(
    model: DeepKernel,
    q: Q,
    data: LabelledBags,
    held_out: LabelledBags,
    schedule: Schedule,
    rng: np.random.Generator,
) -> tuple[list[JointEpoch], int]:
    """Train in place from a first q(v); returns the epochs, and which of them was kept.

    Epoch 0 is the start. Training ends when `held_out_score` has not risen for `patience` epochs,
    and the best epoch after the start is kept. The start itself is not: its network was stopped
    where it suited the same bags best, so that it looks better than it is.
    """
    optimizer = _optimizer(model, schedule)
    total = whole_stats(model, q, data)
    history = [JointEpoch((total.bound - q.kl()) / len(data), held_out_score(model, q, held_out))]
    best, kept, state = -np.inf, 1, copy.deepcopy(model.state_dict())
    for number in range(1, schedule.max_epochs + 1):
        bound, total = _one_epoch(model, optimizer, total, data, schedule.batch_size, rng)
        score = held_out_score(model, global_step(total, 0.0, True), held_out)
        history.append(JointEpoch(bound, score))
        if schedule.verbose:
            print(f"epoch {number}: bound {bound:.4f} per bag, held-out bags {score:.4f}")
        if score > best:
            best, kept, state = score, number, copy.deepcopy(model.state_dict())
        elif number - kept >= schedule.patience:
            break
    model.load_state_dict(state)
    model.eval()
    return history, kept


def _optimizer(model: DeepKernel, schedule: Schedule) -> torch.optim.Optimizer:
    """Adam; weights of the encoder decay, points and kernel do not."""
    groups: list[dict[str, Any]] = [{"params": list(model.features.parameters())}]
    weights = list(model.network.encoder.parameters())
    if weights:
        groups.append({"params": weights, "weight_decay": schedule.weight_decay})
    return torch.optim.Adam(groups, lr=schedule.learning_rate)


def _one_epoch(
    model: DeepKernel,
    optimizer: torch.optim.Optimizer,
    total: Stats,
    data: LabelledBags,
    batch_size: int,
    rng: np.random.Generator,
) -> tuple[float, Stats]:
    """One pass in random order; the mean of the bound per bag, and the statistics of q(v)."""
    model.train()
    bounds = 0.0
    for chosen in batches(rng.permutation(len(data)), batch_size):
        q = global_step(total, 0.0, True)
        share = len(data) / len(chosen)
        optimizer.zero_grad()
        bound, stats = batch_stats(model, q, data.part(chosen))
        (-bound / len(chosen)).backward()
        optimizer.step()
        total = blended(total, stats, share, RHO)
        bounds += stats.bound - q.kl() / share
    return bounds / len(data), total


def batch_stats(model: DeepKernel, q: Q, part: LabelledBags) -> tuple[Tensor, Stats]:
    """The bound's terms of some bags, whose gradients go to all of the model, and their sites."""
    x, targets = part.tensors(model.device)
    A, kt = model(x)
    bound, mu, slope = bag_bound(A, kt, targets, Moments.of(q, model.device))
    value = float(bound.detach())
    if not np.isfinite(value):
        raise FloatingPointError(
            "the bound is no longer finite; lower learning_rate, or scale the features"
        )
    return bound, site_stats(A.detach(), kt.detach(), mu.detach(), slope, value)


def whole_stats(model: DeepKernel, q: Q, data: LabelledBags) -> Stats:
    """Statistics and bound of all bags, without learning."""
    model.eval()
    parts: Iterator[Stats] = (
        batch_stats(model, q, data.part(chosen))[1]
        for chosen in batches(np.arange(len(data)), BAGS_AT_ONCE)
    )
    total = next(parts)
    for stats in parts:
        total = total + stats
    return total


def blended(old: Stats, new: Stats, share: float, rho: float) -> Stats:
    """(1 - rho) old + rho share new: a natural-gradient step of size rho.

    >>> from bagwise.core.inference.stats import Precision
    >>> one = Stats(np.ones(1), 1.0, 1.0, Precision(np.ones((1, 1)), np.ones(1), 1.0))
    >>> float(blended(one, one, 2.0, 0.5).oneEta)
    1.5
    """
    mixed = (1 - rho) * old.as_vector() + rho * share * new.as_vector()
    return Stats.from_vector(mixed, len(old.AtEta))


def held_out_score(model: DeepKernel, q: Q, held_out: LabelledBags) -> float:
    """Mean log-likelihood of held-out bags, calibrated on them as the head will be.

    Without that the score would fall as the model grows too sure, though it ranks bags better; f of
    each instance is averaged over q(v) by itself.
    """
    model.eval()
    moments = Moments.of(q, model.device)
    parts = []
    with torch.no_grad():
        for chosen in batches(np.arange(len(held_out)), BAGS_AT_ONCE):
            part = held_out.part(chosen)
            x, _ = part.tensors(model.device)
            A, kt = model(x)
            variance = 1 + kt + ((A @ moments.S) * A).sum(dim=1)
            z = ((moments.c0 + A @ moments.m) * variance.rsqrt()).cpu().numpy()
            parts.append(bag_logits(z, part.bags.offsets))
    scores, nothing = np.concatenate(parts), np.empty(0)
    found = LeftOut(scores, nothing, np.zeros(len(scores), np.int64), held_out.bags.sizes)
    z = calibrate(found, held_out.T).left_out_logit(found)
    return float(np.mean(log_expit(np.where(held_out.T, z, -z))))


def bag_logits(z: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """(B, 2) logits that bags are positive: by all instances together, and by the best one.

    >>> bag_logits(np.array([0.0, 0.0]), np.array([0, 2])).round(2)  # 3 : 1, and 1 : 1
    array([[1.1, 0. ]])
    """
    log_negative = log_ndtr(-z)
    both = [
        np.add.reduceat(log_negative, offsets[:-1]),
        np.minimum.reduceat(log_negative, offsets[:-1]),
    ]
    log_p0 = np.minimum(np.column_stack(both), -np.finfo(float).tiny)
    return kept_off(np.log(-np.expm1(log_p0)) - log_p0)
