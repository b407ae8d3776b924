"""Covariance of the residuals r_n within a bag, K_bb - A_b A_b', as G G' plus a diagonal.

Copies of an instance share their residual, similar instances part of it. What they share is
written as a few common factors, in large bags as what they share with at most `MAX_RANK` landmarks
among them; what is an instance's own stays apart, since links average over it in closed form.
For predictions, instances whose residuals cannot matter for P0 = E prod_n P(y_n = 0 | f_n) are left
out of this (`factor_residuals`); where labels are yet to be drawn none is (`split_residuals`).
Many bags are done at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.linalg import cholesky, inverse_lower
from bagwise.kernels import Kernel

Array = NDArray[Any]

MAX_RANK = 256
DENSE = 256  # rows of a bag up to which its factors are the best there are
CANDIDATES = 1024  # for landmarks of larger bags
RANKS = (2, 4, 8, 16, 32, 64, 128, DENSE)  # that are tried
OWN_SHARE = 0.7  # of what is a row's own, which stays out of the factors: all may be too much
NEGLIGIBLE = 5e-4  # change of log P0
MOST_EFFECT = 1e30
NO_VARIANCE = 1e-5  # of a factor, summed over its bag, beside noise of variance one
ROWS_AT_ONCE = 64  # of small bags in one call of a kernel
MOST_FILLED = 3  # binary digits of it: work of large bags grows with the cube of their rows
NUMBERS_AT_ONCE = 2**21  # in a stack of covariances, 16 MiB


@dataclass(frozen=True)
class Stack:
    """Bags with about as many rows each side by side; where `own` is False there is none."""

    bags: NDArray[np.int64]  # (B,)
    rows: NDArray[np.int64]  # (B, w)
    own: NDArray[np.bool_]  # (B, w)


def stacks(
    order: Array, starts: Array, counts: Array, numbers: int = NUMBERS_AT_ONCE
) -> Iterator[Stack]:
    """Rows order[starts[b]:starts[b] + counts[b]] of each bag b; none is fine, one is not.

    Covariances of a stack of bags take about `numbers`.
    """
    width = _widths(counts)
    for w in np.unique(width[counts > 0]):
        bags = np.flatnonzero(width == w)
        at_once = max(1, numbers // int(w) ** 2)
        for first in range(0, len(bags), at_once):
            part = bags[first : first + at_once]
            place = np.arange(w)
            own = place < counts[part, None]
            yield Stack(part, order[starts[part, None] + np.where(own, place, 0)], own)


def by_priority(priority: Array, starts: Array, ties: Array | None = None) -> Array:
    """Rows sorted within each bag, those of most priority first; equal ones by `ties`."""
    bag = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(priority))))
    return np.lexsort((-priority, bag) if ties is None else (ties, -priority, bag))


def _widths(sizes: Array) -> Array:
    """Sizes rounded up to three binary digits, or to eights, so that few rows are filled in.

    >>> _widths(np.array([1, 2, 5, 8, 9, 100, 257]))
    array([  1,   2,   5,   8,  10, 104, 264])
    """
    digits = np.floor(np.log2(np.maximum(sizes - 1, 1))).astype(np.int64)
    unit = 2 ** np.clip(digits - 2, 0, MOST_FILLED)
    return -(-sizes // unit) * unit


def factor_residuals(
    kernel: Kernel, X: Array, A: Array, kt: Array, weight: Array, starts: Array
) -> tuple[Array, Array]:
    """G (n, rank) and the variances (n,) that are left: Cov(r_b) is G_b G_b' + diag(rest_b).

    X (n, D) as the kernel sees it, A (n, M) and kt (n,) its features. `weight` says how steeply
    log P(y_n = 0 | f) falls in f: residuals that change nothing need not be known.
    """
    G, rest = np.zeros((len(kt), MAX_RANK)), kt.copy()
    order, counts = rows_that_matter(weight * np.sqrt(kt), starts, X)
    for stack in stacks(order, starts, np.where(counts <= DENSE, counts, 0)):
        R = covariances(kernel, X, A, A, kt, stack)
        factor = common_factors(R, np.where(stack.own, weight[stack.rows], 0.0))
        _put(factor[stack.own], stack.rows[stack.own], G, rest)
    for b in np.flatnonzero(counts > DENSE):
        rows = order[starts[b] : starts[b] + counts[b]]
        factor = _landmark_factors(kernel, X[rows], A[rows], kt[rows], weight[rows])
        _put(factor, rows, G, rest)
    return _used_columns(G), rest


def split_residuals(
    kernel: Kernel, X: Array, A: Array, kt: Array, starts: Array
) -> tuple[Array, Array]:
    """G (n, rank) and rest (n,) as of `factor_residuals`, whatever labels and f may be.

    Cov(r_b) = G_b G_b' + diag(rest_b), but for `NO_VARIANCE`, in bags of up to `DENSE` rows; larger
    ones go through at most `MAX_RANK` landmarks. Variances are exact in all.
    """
    G, rest = np.zeros((len(kt), MAX_RANK)), kt.copy()
    sizes = np.diff(np.append(starts, len(kt)))
    counts = np.where((sizes > 1) & (sizes <= DENSE), sizes, 0)
    for stack in stacks(np.arange(len(kt)), starts, counts):
        factor = whole_factors(covariances(kernel, X, A, A, kt, stack))
        _put(factor[stack.own], stack.rows[stack.own], G, rest)
    order = by_priority(kt, starts, _places(X))
    for b in np.flatnonzero(sizes > DENSE):
        rows = order[starts[b] : starts[b] + sizes[b]]
        factor = _landmark_factors(kernel, X[rows], A[rows], kt[rows], np.ones(len(rows)))
        _put(factor, rows, G, rest)
    return _used_columns(G), rest


def covariances(
    kernel: Kernel | None, X: Array, left: Array, A: Array, variance: Array, stack: Stack
) -> Array:
    """K_bb - left_b A_b' of each bag of the stack, (B, w, w), with these variances.

    It is zero where there is no row, and K_bb is where there is no kernel.
    """
    rows, own = stack.rows, stack.own
    C = left[rows] @ A[rows].transpose(0, 2, 1)
    C = -C if kernel is None else np.subtract(within(kernel, X[rows]), C, out=C)
    if not np.all(own):
        C *= own[:, :, None] & own[:, None, :]
    C[:, range(own.shape[1]), range(own.shape[1])] = np.where(own, variance[rows], 0.0)
    return C


def _put(factor: Array, rows: Array, G: Array, rest: Array) -> None:
    """Write factors (n, k) of some rows, and take what they explain from `rest`."""
    G[rows, : factor.shape[1]] = factor
    rest[rows] = np.maximum(rest[rows] - np.sum(factor**2, axis=1), 0)


def _used_columns(G: Array) -> Array:
    used = np.flatnonzero(np.any(G != 0, axis=0))
    return G[:, : used[-1] + 1 if len(used) else 0]


def _landmark_factors(kernel: Kernel, X: Array, A: Array, kt: Array, weight: Array) -> Array:
    """Factors (n, k) of a large bag: what its rows share with k landmarks among them.

    Rows come by falling effect. Landmarks are the pivots of a Cholesky decomposition of the
    weighted covariance: each is the row about which the ones before it say least.
    """
    n = len(kt)
    some = np.arange(n)
    if n > CANDIDATES:
        others = np.linspace(CANDIDATES // 2, n - 1, CANDIDATES - CANDIDATES // 2)
        some = np.concatenate([some[: CANDIDATES // 2], others.astype(np.int64)])
    R = kernel.cross(X[some], X[some]) - A[some] @ A[some].T
    R[np.diag_indices(len(some))] = kt[some]
    units = np.maximum(weight[some], 1e-8 * np.max(weight))
    marks = some[_pivots(R * units[:, None] * units, MAX_RANK)]
    if len(marks) == 0:  # many rows, of which none matters much
        return np.zeros((n, 0))
    C = kernel.cross(X, X[marks]) - A @ A[marks].T  # (n, k)
    own = C[marks] + np.diag(np.full(len(marks), 1e-9 * np.max(kt)))
    L = cholesky(0.5 * (own + own.T), name="K_bb - A A' of landmarks")
    G = C @ inverse_lower(L).T
    return _within_variance(_turned(G[None], weight[None])[0], kt)


def _pivots(R: Array, max_rank: int) -> NDArray[np.int64]:
    """Rows that a pivoted Cholesky decomposition takes, until what is left changes nothing.

    >>> _pivots(np.array([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0]]), 3)
    array([0, 2])
    """
    left = np.diagonal(R).copy()
    floor = 1e-7 * float(np.max(left))
    G = np.empty((len(left), min(max_rank, len(left))))
    taken: list[int] = []
    for j in range(G.shape[1]):
        i = int(np.argmax(left))
        if left[i] <= floor or left.sum() <= NEGLIGIBLE:
            break
        G[:, j] = (R[:, i] - G[:, :j] @ G[i, :j]) / np.sqrt(left[i])
        left = np.maximum(left - G[:, j] ** 2, 0)
        left[i] = 0.0
        taken.append(i)
    return np.array(taken, dtype=np.int64)


def rows_that_matter(
    effect: Array, starts: Array, X: Array, of_squares: float | None = None
) -> tuple[Array, Array]:
    """Rows by falling effect within each bag, and how many of a bag matter to log P0.

    Rows of the same effect come in an order that depends on what they are, not on where they are.

    No covariance exceeds the deviations: those of some rows with all change log P0 by at most
    (sum over some) (sum over all). That may be `NEGLIGIBLE`, and `of_squares` of the effects'
    sum of squares.
    """
    effect = np.nan_to_num(effect, nan=MOST_EFFECT, posinf=MOST_EFFECT)
    order = by_priority(effect, starts, _places(X))
    sizes = np.diff(np.append(starts, len(effect)))
    total = np.add.reduceat(effect, starts)
    # In shares of the bag, so that no bag of huge effects takes the digits of the next ones.
    share = (effect / np.repeat(np.maximum(total, np.finfo(np.float64).tiny), sizes))[order]
    before = np.cumsum(share) - share
    behind = np.repeat(before[starts] + 1, sizes) - before  # this row and those after it
    limit = np.full(len(starts), NEGLIGIBLE)
    if of_squares is not None:
        limit = np.minimum(limit, of_squares * np.add.reduceat(effect**2, starts))
    matters = behind * np.repeat(total**2, sizes) > np.repeat(limit, sizes)
    counts = np.add.reduceat(matters, starts, dtype=np.int64)
    return order, np.where(counts > 1, counts, 0)


def _places(X: Array) -> Array:
    """A number that tells unlike rows apart, (n,)."""
    return np.asarray(X @ np.cos(np.arange(X.shape[1])), dtype=np.float64)


def within(kernel: Kernel, X: Array) -> Array:
    """k between all rows of the same bag: X (B, w, D) to (B, w, w)."""
    B, w, D = X.shape
    K, some = np.empty((B, w, w)), max(1, ROWS_AT_ONCE // w)
    for first in range(0, B, some):
        part = X[first : first + some]
        rows = part.reshape(-1, D)
        blocks = kernel.cross(rows, rows).reshape(len(part), w, len(part), w)
        each = np.arange(len(part))
        K[first : first + some] = blocks[each, :, each, :]
    return K


def common_factors(R: Array, weight: Array) -> Array:
    """G (B, w, w): as few columns beside zeros as make R - G G' diagonal for the purposes of P0.

    Eigenvectors of R without most of what is each row's own, in units of the weights: no others
    of their number leave less of the covariances. Where they do not do, `whole_factors` follow,
    with which nothing is missing.
    """
    G = np.zeros(R.shape)
    todo = np.flatnonzero(influence(R, weight) > NEGLIGIBLE)
    if len(todo) == 0:
        return G
    Rs, ws = R[todo], weight[todo]
    factor = _weighted_factors(Rs, OWN_SHARE * own_variance(Rs), ws)
    left = np.arange(len(todo))
    for rank in RANKS:
        some = factor[left, :, :rank]
        G[todo[left], :, : some.shape[2]] = some
        missing = influence(Rs[left] - some @ some.transpose(0, 2, 1), ws[left])
        left = left[missing > NEGLIGIBLE]
    if len(left):
        G[todo[left]] = _turned(whole_factors(Rs[left]), ws[left])
    return G


def whole_factors(R: Array) -> Array:
    """G (B, w, w) that leaves nothing beside the diagonal of R - G G', but for `NO_VARIANCE`.

    R - s diag(own) with the largest s for which that is a covariance, own the variances that are
    shared with no other row: links average over the rest in closed form, so it should be large.
    """
    regular, floor = _regular(R)
    own = own_variance(R)
    # Copies, of which there is nothing to take off, must not hold down s for the others.
    units = np.sqrt(np.where(own < 100 * floor, 0.01 * own, own))
    values, vectors = np.linalg.eigh(regular / (units[:, :, None] * units[:, None, :]))
    values, vectors = values[:, ::-1], _signed(vectors[:, :, ::-1])
    G = vectors * np.sqrt(np.maximum(values - values[:, -1:], 0))[:, None, :] * units[:, :, None]
    G *= (np.sum(G**2, axis=1) > NO_VARIANCE)[:, None, :]
    return _within_variance(G, np.diagonal(R, axis1=1, axis2=2))


def _turned(G: Array, weight: Array) -> Array:
    """The same G G' (B, w, w) by other columns, those first that matter most by the weights.

    >>> _turned(np.array([[[0.0, 1.0], [0.0, 2.0]]]), np.ones((1, 2))).round(6) + 0.0
    array([[[1., 0.],
            [2., 0.]]])
    """
    weighted = G * weight[:, :, None]
    vectors = np.linalg.eigh(weighted.transpose(0, 2, 1) @ weighted)[1]
    return np.asarray(G @ _signed(vectors[:, :, ::-1]))


def _weighted_factors(R: Array, own: Array, weight: Array) -> Array:
    """G (B, w, w), by falling size, with weighted G G' as near weighted R - diag(own) as can be."""
    w = R.shape[1]
    units = np.maximum(weight, 1e-8 * np.max(weight, axis=1)[:, None])
    E = R.copy()
    E[:, range(w), range(w)] -= own
    values, vectors = np.linalg.eigh(E * units[:, :, None] * units[:, None, :])
    values, vectors = values[:, ::-1], _signed(vectors[:, :, ::-1])
    G = vectors * np.sqrt(np.maximum(values, 0))[:, None, :] / units[:, :, None]
    return _within_variance(G, np.diagonal(R, axis1=1, axis2=2))


def _within_variance(G: Array, variance: Array) -> Array:
    """G with no row longer than its variance allows."""
    length = np.sum(G**2, axis=-1)
    share = np.divide(variance, length, out=np.ones_like(length), where=length > variance)
    return G * np.sqrt(share)[..., None]


def _signed(vectors: Array) -> Array:
    """Eigenvectors (B, w, k) whose largest entry is positive: their signs are arbitrary."""
    top = np.argmax(np.abs(vectors), axis=1)[:, None, :]
    return vectors * np.where(np.take_along_axis(vectors, top, axis=1) < 0, -1.0, 1.0)


def own_variance(R: Array) -> Array:
    """Variance of each residual given all others of its bag, 1 / (R^-1)_nn, (B, w), above zero.

    It is shared with no other; copies have (nearly) none.
    """
    regular, floor = _regular(R)
    inverse = np.linalg.inv(regular)
    return np.clip(1 / np.diagonal(inverse, axis1=1, axis2=2), floor, None)


def _regular(R: Array) -> tuple[Array, Array]:
    """R with a little more variance, so that it has an inverse, and how much, (B, 1)."""
    w = R.shape[1]
    variance = np.diagonal(R, axis1=1, axis2=2)
    floor = 1e-7 * np.max(variance, axis=1)[:, None] + np.finfo(np.float64).tiny
    regular = R.copy()
    regular[:, range(w), range(w)] += floor
    return regular, floor


def influence(R: Array, weight: Array) -> Array:
    """About how far the covariances beside the diagonal of R change log P0, (B,).

    To first order by h'C h / 2, h the slopes of log P(y = 0 | f); as signs may cancel there and
    not elsewhere, the size of the terms is added.
    """
    C = R * weight[:, :, None] * weight[:, None, :]
    C[:, range(C.shape[1]), range(C.shape[1])] = 0.0
    return 0.5 * (np.abs(C.sum(axis=(1, 2))) + np.sqrt(np.sum(C**2, axis=(1, 2))))
