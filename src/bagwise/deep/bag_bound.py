"""The bound of `ProbitVGPMIL` as a function of features that a network makes, in torch.

f_n = c0 + a_n'v + r_n with a_n = L^-1 k_Zn of features h_n, q(v) = N(m, S), s_n^2 = 1 + kt_n [W21]:

    bound = sum_b log P(T_b | mu_b / s_b) - 1/2 sum_n a_n'S a_n / s_n^2 - KL(q(v) || N(0, I)),

where q of the augmented values of each bag is at its optimum. It needs no samples, and is the very
bound that the fit of the head ends at. Distances and Cholesky factors are in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bagwise.core.inference.stats import Precision, Q, Stats
from bagwise.core.linalg import NotPositiveDefiniteError
from bagwise.kernels import RBF, Linear, Sum

LOG_HALF = -math.log(2.0)


class SparseFeatures(nn.Module):
    """Whitened features of an RBF and a linear kernel, added; points and kernel can be learned.

    >>> features = SparseFeatures(np.zeros((1, 2)), RBF(4.0, 1.0) + Linear(1.0), 1e-6)
    >>> A, kt = features(torch.zeros(3, 2))
    >>> A.shape, bool(kt.max() < 1e-5)
    (torch.Size([3, 1]), True)
    """

    def __init__(self, Z: Any, kernel: Sum, jitter: float) -> None:
        super().__init__()
        self.Z = nn.Parameter(torch.as_tensor(np.array(Z, dtype=np.float64)))
        self.theta = nn.Parameter(torch.as_tensor(kernel.theta))  # logarithms, (3,)
        self.jitter = jitter

    @property
    def kernel(self) -> Sum:
        """The kernel as it is now, for a model of bagwise."""
        variance, lengthscale, slope = self.theta.detach().exp().tolist()
        return RBF(variance, lengthscale) + Linear(slope)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """A (n, M) and kt (n,) of features (n, D), as `bagwise.core.features` has them."""
        h = h.double()
        K_ZZ = self._cross(self.Z)
        jitter = self.jitter * K_ZZ.diagonal().mean()
        L = _cholesky(K_ZZ + jitter * torch.eye(len(K_ZZ), dtype=h.dtype, device=h.device))
        A = torch.linalg.solve_triangular(L, self._cross(h).T, upper=False).T
        variance, _, slope = self.theta.exp()
        return A, torch.relu(variance + slope * (h**2).sum(dim=1) - (A**2).sum(dim=1))

    def _cross(self, h: Tensor) -> Tensor:
        """k(h_n, z_m), (n, M)."""
        origin = self.Z.mean(dim=0)  # near the data: squared distances do not cancel
        scale = torch.exp(-self.theta[1])
        x, z = (h - origin) * scale, (self.Z - origin) * scale
        r2 = (x**2).sum(dim=1)[:, None] + (z**2).sum(dim=1) - 2 * x @ z.T
        return torch.exp(self.theta[0] - 0.5 * torch.relu(r2)) + self.theta[2].exp() * h @ self.Z.T


def _cholesky(K: Tensor) -> Tensor:
    try:
        return torch.linalg.cholesky(K)
    except torch.linalg.LinAlgError as error:
        raise NotPositiveDefiniteError(
            f"K_ZZ of the inducing points in training is not positive definite ({error}); lower "
            "learning_rate, or take a smaller n_inducing"
        ) from error


@dataclass(frozen=True)
class BagTargets:
    """What is known of a batch of bags: the bag of each instance, labels, instance labels."""

    bag: Tensor  # (n,) int64
    T: Tensor  # (B,) bool
    known: Tensor  # (n,) 1, 0, or NaN where the label is not known

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return len(self.T)

    def sums(self, values: Tensor) -> Tensor:
        """(B,) sums over bags."""
        zeros = torch.zeros(self.n_bags, dtype=values.dtype, device=values.device)
        return zeros.index_add(0, self.bag, values)


def log_prob_of_bags(z: Tensor, targets: BagTargets) -> Tensor:
    """(B,) log P(T_b, known labels of instances | z), z_n = mu_n / s_n.

    >>> nothing = torch.full((2,), torch.nan)
    >>> targets = BagTargets(torch.tensor([0, 0]), torch.tensor([True]), nothing)
    >>> log_prob_of_bags(torch.zeros(2), targets).exp()  # at least one of two coins
    tensor([0.7500])
    """
    log_negative = torch.special.log_ndtr(-z)
    known, T = targets.known, targets.T
    positive = known == 1
    settled = targets.sums(positive.to(z.dtype)) > 0
    is_told = positive | (known == 0)
    told = torch.where(positive, torch.special.log_ndtr(z), log_negative)
    zero = torch.zeros_like(z)
    of_known = targets.sums(torch.where(is_told, told, zero))
    log_P0 = targets.sums(torch.where(is_told, zero, log_negative))
    # The branch that is not taken must have finite gradients too.
    open_bags = T & ~settled
    at_least_one = log1mexp(torch.where(open_bags, log_P0, torch.full_like(log_P0, LOG_HALF)))
    return of_known + torch.where(open_bags, at_least_one, torch.where(T, 0.0 * log_P0, log_P0))


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) for x < 0, with all its digits on both sides of log 1/2.

    >>> log1mexp(torch.tensor([-1e-20, -50.0], dtype=torch.float64))
    tensor([-4.6052e+01, -1.9287e-22], dtype=torch.float64)
    """
    near = x > LOG_HALF
    half = torch.full_like(x, LOG_HALF)
    return torch.where(
        near,
        torch.log(-torch.expm1(torch.where(near, x, half))),
        torch.log1p(-torch.exp(torch.where(near, half, x))),
    )


@dataclass(frozen=True)
class Moments:
    """q(v) = N(m, S) and c0 as tensors."""

    m: Tensor
    S: Tensor
    c0: float

    @classmethod
    def of(cls, q: Q, device: Any) -> Moments:
        """The same numbers on a device."""
        return cls(torch.tensor(q.m, device=device), torch.tensor(q.S, device=device), q.c0)


def bag_bound(
    A: Tensor, kt: Tensor, targets: BagTargets, q: Moments
) -> tuple[Tensor, Tensor, Tensor]:
    """The bound's terms of these bags, without -KL; mu (n,) and the slopes in mu / s (n,).

    The gradient of the first goes to A and kt; the slopes make the sites of the bags.
    """
    s2 = 1 + kt
    mu = q.c0 + A @ q.m
    z = mu * s2.rsqrt()
    log_prob = log_prob_of_bags(z, targets).sum()
    (slope,) = torch.autograd.grad(log_prob, z, retain_graph=True)
    spread = ((A @ q.S) * A).sum(dim=1) / s2
    return log_prob - 0.5 * spread.sum(), mu, slope


def site_stats(A: Tensor, kt: Tensor, mu: Tensor, slope: Tensor, bound: float) -> Stats:
    """Statistics of the sites Lambda = 1 / s^2, eta = E[m_n] / s^2, E m = mu + s slope [W21]."""
    with torch.no_grad():
        s2 = 1 + kt
        lam = 1 / s2
        eta = (mu + s2.sqrt() * slope) * lam
        weighted = A * lam[:, None]
        parts = (A.T @ eta, eta.sum(), weighted.T @ A, weighted.sum(dim=0), lam.sum())
        AtEta, oneEta, AtLA, AtL1, oneL1 = (x.cpu().numpy() for x in parts)
    return Stats(AtEta, float(oneEta), bound, Precision(AtLA, AtL1, float(oneL1)))
