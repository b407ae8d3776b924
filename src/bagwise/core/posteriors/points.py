"""Points at which bags are looked at: Sobol's, moved to where a bag's labels are all negative."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.stats import qmc

from bagwise.core.links import Link
from bagwise.core.residuals import DENSE, MAX_RANK, by_priority, stacks

Array = NDArray[Any]

NEWTON_STEPS = 8
SAME = 1e-9  # distance of directions that need no mirror
HALVINGS = 50  # of a step, at most
FIRST = 16  # directions of v that get the best points, before those of the residuals
FIRST_RESIDUAL = 32  # and of the residuals, before the other directions of v
KEPT_NUMBERS = 2**21  # of Sobol points that are kept, 16 MiB: scrambling takes longer than using
KEPT_SETS = 4  # of them, of other dimensions or seeds
MANY_POINTS = 4  # for each direction of v
NUMBERS_AT_ONCE = 2**20  # of what is made of rows, 8 MiB
MAX_SOBOL = 20_000  # dimensions; further directions get pseudo-random points


@dataclass(frozen=True)
class Draws:
    """Standard normal points, and what they make of v."""

    normal: Array  # (S, M)
    residual: Array  # (S, MAX_RANK)
    root: Array  # (M, M) that turns them into deviations of v
    centre: Array | None = None  # (S, M) of these, where v is a mixture

    @cached_property
    def v(self) -> Array:
        """(S, M) deviations of v from its mean."""
        deviations = self.normal @ self.root.T
        return deviations if self.centre is None else self.centre + deviations

    def deviations(self, A: Array, some: slice) -> Array:
        """A (v - m) of instances at some of the points, (n, S).

        By (A R) e' where there are many points, few bags being left that need so many: a rule that
        does not ask which bags these are.
        """
        if self.centre is None and some.stop - some.start >= MANY_POINTS * len(self.root):
            return np.asarray((A @ self.root) @ self.normal[some].T)
        return np.asarray(A @ self.v[some].T)


def standard_normal(n: int, n_directions: int, seed: int) -> tuple[Array, Array]:
    """Sobol points (n, n_directions) for v and (n, MAX_RANK) for residuals; more begin alike.

    The first directions of each, which matter most, get the first dimensions.
    """
    total, order = n_directions + MAX_RANK, _in_turn(n_directions)
    if total < MAX_SOBOL:
        e = _sobol(n, total, seed, order)
    else:
        rng = np.random.default_rng(seed)
        more = rng.standard_normal((n, total - MAX_SOBOL))
        e = np.hstack([_sobol(n, MAX_SOBOL, seed), more])[:, order]
    return e[:, :n_directions], e[:, n_directions:]


def _in_turn(n_directions: int) -> NDArray[np.intp]:
    """The dimension that each direction of v, then of the residuals, gets."""
    first = min(FIRST, n_directions)
    cuts = np.cumsum([first, FIRST_RESIDUAL, n_directions - first])
    v_first, r_first, v_rest, r_rest = np.split(np.arange(n_directions + MAX_RANK), cuts)
    return np.concatenate([v_first, v_rest, r_first, r_rest])


_kept: dict[tuple[int, int], Array] = {}  # by dimension and seed, the most points asked for
_keeping = threading.Lock()


def _new_lock() -> None:
    """A child process has no thread that would let go of the lock it was forked with."""
    global _keeping
    _keeping = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def _sobol(n: int, d: int, seed: int, order: Any = slice(None)) -> Array:
    """Scrambled Sobol points (n, d) as standard normal ones: the first of those kept, or new.

    Their dimensions are kept in an order that is the same whenever there are d of them.
    """
    with _keeping:
        kept = _kept.get((d, seed))
    if kept is not None and len(kept) >= n:
        return kept[:n]
    points = qmc.Sobol(d, scramble=True, seed=seed).random(n)
    normal = special.ndtri(np.clip(points, 1e-12, 1 - 1e-12))[:, order]
    normal.flags.writeable = False
    if n * d <= KEPT_NUMBERS:
        with _keeping:
            _kept.pop((d, seed), None)
            _kept[d, seed] = normal
            if len(_kept) > KEPT_SETS:
                del _kept[next(iter(_kept))]
    return normal


def ordered_root(S: Array, L: Array | None = None) -> Array:
    """R with R R' = S such that L R has orthogonal columns by falling length (L = I if None).

    Sobol points are best in their first directions. The sign of an eigenvector is arbitrary;
    fixing it keeps predictions reproducible.
    """
    values, vectors = np.linalg.eigh(S)
    root = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1]
    if L is not None:
        LR = L @ root
        root = root @ np.linalg.eigh(LR.T @ LR)[1][:, ::-1]
    top = np.argmax(np.abs(root), axis=0)
    return root * np.where(root[top, np.arange(root.shape[1])] < 0, -1.0, 1.0)


@dataclass(frozen=True)
class Latents:
    """What is known of f in some bags: f = mu + A (v - m) + G e + r, r_n ~ N(0, rest_n)."""

    expected: Array  # (n,) P(y_n = 1)
    square: Array  # (n,) E[P(y_n = 1 | f_n)^2]
    mu: Array  # (n,)
    A: Array  # (n, M)
    G: Array  # (n, rank)
    rest: Array  # (n,)
    starts: Array  # (B,)

    def of(self, bags: Array) -> Latents:
        """Some of the bags, in rising order."""
        if len(bags) == len(self.starts):
            return self  # of the largest bags there is no room for a second copy
        sizes = self.sizes[bags]
        starts = np.cumsum(sizes) - sizes
        rows = np.arange(sizes.sum()) + np.repeat(self.starts[bags] - starts, sizes)
        G, rest = self.G[rows], self.rest[rows]
        known = self.expected[rows], self.square[rows]
        return Latents(*known, self.mu[rows], self.A[rows], G, rest, starts)

    @property
    def sizes(self) -> Array:
        """Rows of each bag."""
        return np.diff(np.append(self.starts, len(self.mu)))

    @property
    def bag_index(self) -> Array:
        """The bag of each row."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)


@dataclass(frozen=True)
class Shift:
    """Where the points e of each bag go: to s + e - w w'e.

    That mirrors them, w'w = 2, so that what matters most to the bag, of which copies have nothing
    else, is in the first direction: Sobol points are best there.
    """

    s: Array  # (B, M + rank)
    w: Array  # (B, M + rank), or zero

    def of(self, bags: Array) -> Shift:
        """Some of the bags."""
        return Shift(self.s[bags], self.w[bags])

    def mirrored(self, draws: Draws, some: slice) -> Array:
        """w'e, (B, S)."""
        return _along(self.w, draws, some)

    def log_weights(self, draws: Draws, some: slice) -> Array:
        """log N(s + e; 0, I) - log N(e; 0, I), e mirrored, (B, S)."""
        of_mirror = np.sum(self.s * self.w, axis=1)
        dot = _along(self.s - of_mirror[:, None] * self.w, draws, some)
        return -dot - 0.5 * np.sum(self.s**2, axis=1)[:, None]

    def in_f(self, latents: Latents, root: Array) -> tuple[Array, Array]:
        """U s and U w, (n,) each."""
        return _times(latents, root, self.s), _times(latents, root, self.w)


def _along(directions: Array, draws: Draws, some: slice) -> Array:
    """Points along a direction of each bag, (B, S)."""
    M = draws.normal.shape[1]
    rank = directions.shape[1] - M
    dot = directions[:, :M] @ draws.normal[some].T
    dot += directions[:, M:] @ draws.residual[some, :rank].T
    return dot


def _times(latents: Latents, root: Array, directions: Array) -> Array:
    """U times a direction of each bag, (n,)."""
    M, bag, found = len(root), latents.bag_index, np.empty(len(latents.mu))
    of_v, of_residual = directions[:, :M] @ root.T, directions[:, M:]
    for rows in _blocks(latents):
        own = bag[rows]
        found[rows] = np.einsum("nm,nm->n", latents.A[rows], of_v[own])
        found[rows] += np.einsum("nr,nr->n", latents.G[rows], of_residual[own])
    return found


def _mirrors(latents: Latents, root: Array, weight: Array) -> Array:
    """w (B, M + rank) that puts U' weight of each bag into the first direction."""
    of_v = np.zeros((len(latents.starts), len(root)))
    of_residual = np.zeros((len(latents.starts), latents.G.shape[1]))
    bag = latents.bag_index
    for rows in _blocks(latents):
        bags = slice(bag[rows.start], bag[rows.stop - 1] + 1)
        begins = np.maximum(latents.starts[bags] - rows.start, 0)
        of_v[bags] += np.add.reduceat(latents.A[rows] * weight[rows, None], begins)
        of_residual[bags] += np.add.reduceat(latents.G[rows] * weight[rows, None], begins)
    w = np.hstack([of_v @ root, of_residual])
    with np.errstate(all="ignore"):  # latent values beyond all digits; no mirror is valid too
        w /= np.maximum(np.linalg.norm(w, axis=1), np.finfo(np.float64).tiny)[:, None]
        w[:, 0] -= 1.0
        length = np.linalg.norm(w, axis=1)[:, None]
        return np.where(length > SAME, np.sqrt(2) * w / length, 0.0)


def _blocks(latents: Latents) -> Iterator[slice]:
    """Rows a few at a time, so that what is made of them stays small beside them."""
    n, width = len(latents.mu), latents.A.shape[1] + latents.G.shape[1]
    at_once = max(1, NUMBERS_AT_ONCE // width)
    return (slice(first, min(first + at_once, n)) for first in range(0, n, at_once))


def _loadings(latents: Latents, root: Array, rows: Any) -> Array:
    """U of some rows, f = mu + U e + r: what standard normal e make of v, and the residuals."""
    return np.concatenate([latents.A[rows] @ root, latents.G[rows]], axis=-1)


def newton_shift(
    latents: Latents, link: Link, root: Array, wanted: Array, power: float = 1.0
) -> Shift:
    """About the most probable e of the bags wanted (B,) given that all their labels are negative.

    With power 2, given that they are so twice.

    Newton steps on log P0(e) - |e|^2 / 2, in terms of alpha with e = U'alpha: (I + W K) alpha =
    W (f - mu) + gradient, K = U U', W = -d^2 log P / df^2. Any shift is valid; this one is good.
    """
    scale = 1 / np.sqrt(1 + link.residual_weight * latents.rest)
    hazard = link.hazard(latents.mu * scale) * scale
    priority = np.empty(len(hazard))
    for rows in _blocks(latents):
        priority[rows] = hazard[rows] * np.linalg.norm(_loadings(latents, root, rows), axis=1)
    e, sizes = np.zeros((len(latents.starts), len(root) + latents.G.shape[1])), latents.sizes
    order = by_priority(priority, latents.starts)
    for stack in stacks(order, latents.starts, np.where(wanted, np.minimum(sizes, DENSE), 0)):
        Ub = _loadings(latents, root, stack.rows) * stack.own[:, :, None]
        alpha = _newton(
            Ub @ Ub.transpose(0, 2, 1),
            latents.mu[stack.rows],
            scale[stack.rows],
            stack.own * power,
            link,
        )
        e[stack.bags] = np.einsum("bw,bwq->bq", alpha, Ub)
    return Shift(e, _mirrors(latents, root, hazard))


def _newton(K: Array, mu: Array, scale: Array, own: Array, link: Link) -> Array:
    """alpha (B, w) by Newton steps, each bag with its own length of them; `own` weighs the rows."""
    alpha, moved = np.zeros(mu.shape), np.zeros(mu.shape)  # moved = K alpha
    for _ in range(NEWTON_STEPS):
        direction = _direction(K, moved, mu, scale, own, link) - alpha
        further = np.einsum("bwx,bx->bw", K, direction)
        length = _length((alpha, moved), (direction, further), mu, scale, own, link)
        alpha = alpha + length[:, None] * direction
        moved = moved + length[:, None] * further
    return alpha


def _length(
    at: tuple[Array, Array],
    step: tuple[Array, Array],
    mu: Array,
    scale: Array,
    own: Array,
    link: Link,
) -> Array:
    """How much of a Newton step to go, (B,): halved as long as the height there rises, which is
    concave in it; none where nothing is gained.

    Where f is far above 0, log P(y = 0) is nearly straight and a step may be many times too long.
    """

    def height(length: Array) -> Array:
        alpha, moved = (x + length[:, None] * dx for x, dx in zip(at, step, strict=True))
        logs = own * link.log_negative(scale * (mu + moved))
        return np.asarray(logs.sum(axis=1) - 0.5 * np.sum(alpha * moved, axis=1))

    length = np.ones(len(mu))
    best = height(length)
    for _ in range(HALVINGS):
        shorter = height(0.5 * length)
        rises = (shorter > best) | np.isnan(best)
        if not np.any(rises):
            break
        length, best = np.where(rises, 0.5 * length, length), np.where(rises, shorter, best)
    return np.where(best > height(np.zeros(len(mu))), length, 0.0)


def _direction(K: Array, moved: Array, mu: Array, scale: Array, own: Array, link: Link) -> Array:
    """The alpha that Newton's method would go to from K alpha = moved."""
    z = scale * (mu + moved)
    r = link.hazard(z)
    W = own * scale**2 * r * link.ratios(z, r)[0]
    b = W * moved - own * scale * r
    system = W[:, :, None] * K
    system[:, range(K.shape[1]), range(K.shape[1])] += 1.0
    try:
        return np.linalg.solve(system, b[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:  # latent values beyond all digits; no shift is valid too
        return np.zeros_like(moved)
