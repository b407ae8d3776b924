"""Labels of consecutive whole bags, sums over their rows, and curvature that has their form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bagwise.core.linalg import weighted_gram

Array = NDArray[Any]

FAINT = 1e-3  # |w| |a|^2 of rows that bend the log joint least, which v ~ N(0, I) bends by 1
STANDS_FOR = 8  # faint rows, one of them
GOLDEN = 0.5 * (np.sqrt(5) - 1)  # its multiples, modulo 1, are even along any progression


def halves(T: Array) -> NDArray[np.bool_]:
    """Which bags are positive; of shares, those above the median, or at it if none is above.

    >>> halves(np.array([0.1, 0.3, 0.7, 0.2])), halves(np.array([False, True]))
    (array([False,  True,  True, False]), array([False,  True]))
    >>> halves(np.array([0.2, 0.7, 0.7]))
    array([False,  True,  True])
    """
    if T.dtype == bool:
        return T
    above = np.asarray(np.median(T) < T)
    return above if above.any() else np.asarray(np.max(T) == T)


@dataclass(frozen=True)
class Targets:
    """What is known about the labels of consecutive whole bags."""

    starts: NDArray[np.int64]  # (B,) first row of each bag
    sizes: NDArray[np.int64]  # (B,)
    T: NDArray[Any]  # (B,) bag labels: True and False, or shares where a rule is about them
    known: Array | None = None  # (n,) 1, 0 or NaN = unknown; None if nothing is known
    weights: Array | None = None  # (n,) how many rows each stands for; None if only for itself
    counts: Array | None = None  # (B,) how many times each bag counts; None if once
    reliability: Array | None = None  # (B,) how probably each label is right; None if surely

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Rows whose label is unknown."""
        if self.known is None:
            return np.ones(int(self.sizes.sum()), dtype=bool)
        return np.isnan(self.known)

    @cached_property
    def settled(self) -> NDArray[np.bool_]:
        """Bags that hold a known positive, so that their free instances are unconstrained."""
        if self.known is None:
            return np.zeros(len(self.sizes), dtype=bool)
        return self.sum_bags(self.known == 1) > 0

    @cached_property
    def decided(self) -> NDArray[np.bool_]:
        """Bags whose known labels alone say whether they hold a positive."""
        return self.settled | (self.sum_bags(self.free) == 0)

    def sum_bags(self, x: Array) -> Array:
        """Sum over each bag's rows, (n, ...) -> (B, ...), in float64."""
        return np.add.reduceat(x, self.starts, axis=0, dtype=np.float64)

    def membership(self, weights: Array) -> Any:
        """Sparse (B, n) matrix whose product with (n, M) sums weighted rows by bag.

        It takes a tenth of the time of `sum_bags` on wide arrays, and no copy of them.
        """
        n = len(weights)
        ends = np.append(self.starts, n)
        return sparse.csr_array((weights, np.arange(n), ends), shape=(len(self.sizes), n))

    def weighed(self, x: Array) -> Array:
        """w_n x_n."""
        return x if self.weights is None else self.weights * x

    def log_weighed(self, log_x: Array) -> Array:
        """log(w_n x_n) from log x_n."""
        return log_x if self.weights is None else np.log(self.weights) + log_x

    def spread(self, x: Array) -> Array:
        """Repeat a bag's value for each of its rows, (B,) -> (n,)."""
        return np.repeat(x, self.sizes)

    def counted_bags(self, x: Array) -> Array:
        """c_b x_b of each bag, (..., B)."""
        return x if self.counts is None else self.counts * x

    def counted_rows(self, x: Array) -> Array:
        """c_b x_n of each row, (n,) or (n, k)."""
        if self.counts is None:
            return x
        return (self.spread(self.counts) * x.T).T

    def total_of_bags(self, x: Array) -> float:
        """Sum over bags as often as each counts.

        >>> bags = Targets(np.array([0, 1]), np.array([1, 1]), np.ones(2, bool), None, None,
        ...                counts=np.array([3.0, 0.5]))
        >>> bags.total_of_bags(np.array([1.0, 2.0]))
        4.0
        """
        return float(np.sum(self.counted_bags(x)))

    def total_of_rows(self, x: Array) -> float:
        """Sum over rows as often as their bags count."""
        return float(np.sum(self.counted_rows(x)))

    @cached_property
    def bag_index(self) -> NDArray[np.int64]:
        """(n,) number of each row's bag."""
        return self.spread(np.arange(len(self.sizes)))


@dataclass(frozen=True)
class SecondOrder:
    """Gradient g and W = -d2 log p / dz dz' = diag(w) + sign_b omega omega' inside each bag."""

    targets: Targets
    g: Array  # (n,) gradient
    w: Array  # (n,)
    omega: Array  # (n,)
    sign: Array  # (B,) +1 for positive bags, -1 for negative ones (omega = 0 there at H = inf)

    def counted(self) -> Self:
        """Derivatives of c_b log p(T_b): W is linear in it, and W holds omega twice."""
        targets = self.targets
        if targets.counts is None:
            return self
        root = targets.spread(np.sqrt(targets.counts))
        g, w = targets.counted_rows(self.g), targets.counted_rows(self.w)
        return replace(self, g=g, w=w, omega=root * self.omega)

    def roughly(self, squares: Array, start: int) -> Self:
        """The same, for features with |a|^2 = `squares`: of faint rows one in eight stands for all.

        Very many of them bend the log joint about as much as v ~ N(0, I) does, together, and those
        that are drawn tell that to some hundredths of both. `start` is the number of the first row
        in the whole data: neither chunks nor workers decide which are drawn.
        """
        faint = np.abs(self.targets.counted_rows(self.w)) * squares < FAINT
        drawn = (np.arange(start, start + len(faint)) * GOLDEN) % 1 < 1 / STANDS_FOR
        return replace(self, w=np.where(faint, np.where(drawn, STANDS_FOR * self.w, 0), self.w))

    def weigh(self, A: Array) -> Array:
        """A' W A, shape (M, M) float64; products are taken in the dtype of A."""
        omega = self.omega.astype(A.dtype, copy=False)
        B = np.asarray(self.targets.membership(omega) @ A, dtype=np.float64)  # (B, M)
        return weighted_gram(A, self.w) + (B * self.sign[:, None]).T @ B

    def apply(self, x: Array) -> Array:
        """W x for x of shape (n,) or (n, k)."""
        column = (slice(None), *[None] * (x.ndim - 1))
        w, omega, sign = (part[column] for part in (self.w, self.omega, self.sign))
        inner = sign * self.targets.sum_bags(omega * x)
        return w * x + omega * inner[self.targets.bag_index]


@dataclass(frozen=True)
class Curvature(SecondOrder):
    """The same with dW / dz."""

    kappa: Array
    third: Array  # (n,) d w_n / d z_n along its own direction
    rank_one: Array  # (n,) d sign omega omega' / d log P0, in units of omega omega'

    def counted(self) -> Self:
        """The same with third derivatives; `rank_one` is in units of omega omega'."""
        return replace(super().counted(), third=self.targets.counted_rows(self.third))

    def scaled(self, b: Array) -> SecondOrder:
        """Gradient and curvature in x of z_n = b_n x_n; third derivatives stay behind."""
        return SecondOrder(self.targets, b * self.g, b**2 * self.w, b * self.omega, self.sign)

    def trace_gradient(self, A: Array, P_inv: Array) -> Array:
        """t_k = tr(A P^-1 A' dW/dz_k): what moves log|P| when z moves, shape (n,)."""
        AP = A @ P_inv
        q = np.einsum("nm,nm->n", AP, A)  # diagonal of Q = A P^-1 A'
        B = self.targets.sum_bags(self.omega[:, None] * A)
        Q_omega = np.einsum("nm,nm->n", AP, B[self.targets.bag_index])
        spread, total = self.targets.spread, self.targets.sum_bags
        quadratic = spread(total(self.omega * Q_omega))
        mixed = spread(self.sign * total(q * self.omega * self.kappa))
        return (
            self.omega * mixed
            + self.rank_one * quadratic
            + self.third * q
            + 2 * spread(self.sign) * self.kappa * self.omega * Q_omega
        )
