"""Collapsed Gibbs sampling for MIL-GP-Probit, exact as the number of sweeps grows [W21, 3.5].

With the latent f integrated out the model is

    v ~ N(0, I),   m_b | v ~ N(c0 + A_b v, I + R_b),   T_b = max_n 1[m_n > 0]

where R_b = K_bb - A_b A_b' is the covariance of a bag's residuals, the one that predictions use
(the paper prints I alone, which its own sparse approximation contradicts). Residuals of different
bags are independent: with bags of one that is FITC, with all instances as inducing points the
Gaussian process itself. R_b = G_b G_b' + diag(rest_b) gives factors e_b that a bag shares:

    e_b ~ N(0, I),   m_n | v, e ~ N(c0 + a_n'v + g_n'e_b, s_n^2),   s_n^2 = 1 + rest_n.

A sweep draws v, e | m, which are Gaussian with covariances that never change, v with e integrated
out, and then m | v, e, T. A positive bag is drawn jointly rather than instance by instance as in
[W21, Eq. 26-28]: the index of its first positive instance, then truncated normals. No sweep loops
over instances or bags.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.features import Whitener
from bagwise.core.inference.label_draws import draw_sides, fixed_sides, truncated_normal
from bagwise.core.inference.shared_residuals import SharedResiduals, diagonalised
from bagwise.core.inference.stats import Chunk, Q, diagonal_precision
from bagwise.core.likelihoods.at_least_one import Targets
from bagwise.core.linalg import cholesky, inverse_lower, logdet_from_cholesky
from bagwise.core.residuals import split_residuals

Array = NDArray[Any]


@dataclass(frozen=True)
class GibbsState:
    """Where a chain is."""

    v: Array  # (M,)
    m: Array  # (N,) latent values with noise; their signs agree with all labels
    mean: Array  # (M,) E[v | the m that v was drawn from]
    log_joint: float  # log p(T | v, e) - |v|^2 / 2 - |e|^2 / 2, with m integrated out


@dataclass(frozen=True)
class _Block:
    """What a sweep needs of a chunk."""

    A: Array  # (n, M)
    s: Array  # (n,)
    shared: SharedResiduals
    targets: Targets
    fixed: Array  # (n,)
    rows: slice  # in the whole data
    factors: slice  # in those of the whole data

    def project(self, x: Array) -> Array:
        """A' (diag(s^2) + G G')^-1 x in float64, shape (M,)."""
        y = x / self.s**2
        if self.shared:
            y = y - self.shared.spread(self.shared.mean(y)) / self.s**2
        return np.asarray(y.astype(self.A.dtype, copy=False) @ self.A, dtype=np.float64)

    def precision(self) -> Array:
        """A' (diag(s^2) + G G')^-1 A, shape (M, M)."""
        total = diagonal_precision(self.A, 1 / self.s**2).AtLA
        if self.shared:
            scaled = self.shared.G / self.s[:, None] ** 2
            for b, rows in enumerate(self.bags()):
                B = scaled[rows].T @ np.asarray(self.A[rows], dtype=np.float64)  # (k, M)
                total = total - B.T @ (self.shared.shrinkage[b][:, None] * B)
        return total

    def bags(self) -> Iterator[slice]:
        """Rows of each bag."""
        for start, size in zip(self.targets.starts, self.targets.sizes, strict=True):
            yield slice(int(start), int(start + size))

    def latent(self, v: Array, c0: float) -> Array:
        """E[m | v] in float64, shape (n,)."""
        return c0 + np.asarray(self.A @ v.astype(self.A.dtype), dtype=np.float64)


class GibbsSampler:
    """The transition of one chain: `init_state` and `step` are pure but for their `rng`.

    Draws do not depend on how the data are cut into chunks. Without `features`, which say how
    residuals covary, they are taken as independent.
    """

    def __init__(self, chunks: list[Chunk], c0: float, features: Whitener | None = None) -> None:
        self.c0 = c0
        self.blocks: list[_Block] = []
        for chunk in chunks:
            first = self.blocks[-1].factors.stop if self.blocks else 0
            self.blocks.append(_block(chunk, features, first))
        self.n_rows = sum(len(b.s) for b in self.blocks)
        self.n_factors = self.blocks[-1].factors.stop
        P = sum((b.precision() for b in self.blocks), start=np.eye(chunks[0].A.shape[1]))
        L = cholesky(P, name="P = I + A' (I + R)^-1 A")
        self._L_inv = inverse_lower(L)
        self.S = self._L_inv.T @ self._L_inv  # (M, M) Cov(v | m)
        self.log_det_S = -logdet_from_cholesky(L)

    def init_state(self, rng: np.random.Generator, start: Q | None = None) -> GibbsState:
        """v from `start` or from its prior, and m | v, T.

        R-hat wants starts wider than the posterior, as the prior is; many instances may need
        hundreds of sweeps from there, and few from an approximate posterior.
        """
        v = rng.standard_normal(len(self.S))
        if start is not None:
            v = start.m + cholesky(start.S, name="S of the start", jitter=1e-12) @ v
        m, log_prob = self.draw_m(rng, v)
        return GibbsState(v, m, np.zeros_like(v), log_prob - 0.5 * float(v @ v))

    def step(self, rng: np.random.Generator, state: GibbsState) -> GibbsState:
        """One sweep: v, e | m, then m | v, e, T [W21, 3.5]."""
        mean = self.mean_v(state.m)
        v = mean + self._L_inv.T @ rng.standard_normal(len(mean))
        m, log_prob = self.draw_m(rng, v, state.m)
        return GibbsState(v, m, mean, log_prob - 0.5 * float(v @ v))

    def mean_v(self, m: Array) -> Array:
        """E[v | m] = S A'(I + R)^-1 (m - c0) [W21, 3.5, with the noise of residuals]."""
        return self.S @ sum(b.project(m[b.rows] - self.c0) for b in self.blocks)

    def draw_m(
        self, rng: np.random.Generator, v: Array, m: Array | None = None
    ) -> tuple[Array, float]:
        """e | v, m (where m is None, its prior), a joint draw of m | v, e, T and a log density.

        The density is log p(T | v, e) - |e|^2 / 2.
        """
        race, minus_log_u = rng.standard_exponential((2, self.n_rows))
        normal = rng.standard_normal(self.n_factors)
        drawn, log_prob = np.empty(self.n_rows), 0.0
        for b in self.blocks:
            mu = b.latent(v, self.c0)
            if b.shared:
                mean = None if m is None else b.shared.mean((m[b.rows] - mu) / b.s**2)
                e = b.shared.draw(mean, normal[b.factors])
                mu, log_prob = mu + b.shared.spread(e), log_prob - 0.5 * float(np.sum(e**2))
            side, log_probs = draw_sides(mu / b.s, b.fixed, b.targets, race[b.rows])
            drawn[b.rows] = truncated_normal(mu, b.s, side, -minus_log_u[b.rows])
            log_prob += float(log_probs.sum())
        return drawn, log_prob


def _block(chunk: Chunk, features: Whitener | None, first_factor: int) -> _Block:
    targets, n = chunk.targets, len(chunk.kt)
    fixed = fixed_sides(targets)
    possible = np.maximum.reduceat(fixed, targets.starts) >= 0  # some row may be positive
    known_positive = targets.settled & ~targets.T
    if np.any(targets.T & ~possible) or np.any(known_positive):
        raise ValueError(
            "known instance labels contradict a bag's label; a positive bag needs an instance "
            "that is not known to be negative, a negative bag has no known positive"
        )
    G, rest = np.zeros((n, 0)), np.asarray(chunk.kt, dtype=np.float64)
    if features is not None:
        X = np.asarray(chunk.X, dtype=np.float64)
        # Anew, as features in float32 would leave their rounding in K_bb - A_b A_b'.
        G, rest = split_residuals(features.kernel, X, *features(X), targets.starts)
    s = np.sqrt(1 + rest)
    shared = diagonalised(G, s, targets)
    factors = slice(first_factor, first_factor + shared.n_factors)
    return _Block(chunk.A, s, shared, targets, fixed, slice(chunk.start, chunk.start + n), factors)
