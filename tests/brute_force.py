"""Independent, slow ways to the truth: enumeration of labels, quadrature, finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from scipy import special

from bagwise.core.likelihoods.at_least_one import Targets

Log = Callable[[np.ndarray], np.ndarray]

# log P(y = 1 | z) of each link, written here anew.
LOG_POSITIVE: dict[str, Log] = {"logistic": special.log_expit, "probit": special.log_ndtr}


def make_targets(sizes: list[int], T: list[bool], known: np.ndarray | None = None) -> Targets:
    """Targets of consecutive bags."""
    ends = np.cumsum(sizes)
    return Targets(ends - sizes, np.array(sizes), np.array(T), known)


def random_known(sizes: list[int], T: list[bool], rng: np.random.Generator) -> np.ndarray:
    """About half of the labels known, never in contradiction to the bag's label."""
    known = np.full(sum(sizes), np.nan)
    for start, size, label in zip(np.cumsum(sizes) - sizes, sizes, T, strict=True):
        rows = start + np.flatnonzero(rng.random(size) < 0.5)[: size - 1]
        known[rows] = rng.integers(0, 2, len(rows)) if label else 0
    return known


def bag_slices(targets: Targets) -> Iterator[tuple[slice, bool]]:
    """Rows and label of each bag."""
    for start, size, label in zip(targets.starts, targets.sizes, targets.T, strict=True):
        yield slice(int(start), int(start + size)), bool(label)


def label_vectors(n: int, known: np.ndarray | None = None) -> np.ndarray:
    """All 0/1 vectors of length n that agree with the known labels, one per row."""
    Y = np.array(list(product([0, 1], repeat=n)))
    if known is None:
        return Y
    return Y[np.all(np.isnan(known) | (known == Y), axis=1)]


def log_bag_given_labels(Y: np.ndarray, T: bool, H: float) -> np.ndarray:
    """log p(T | y) = log H^[T = max y] - log(H + 1), for each row of Y [V17, Eq. 3]."""
    agrees = Y.max(axis=1) == T
    if np.isinf(H):
        return np.where(agrees, 0.0, -np.inf)
    return np.where(agrees, np.log(H), 0.0) - np.log(H + 1)


def joint_log_probs(
    link: str, z: np.ndarray, T: bool, H: float, known: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """All label vectors of a bag and log p(T, y | z) of each."""
    Y = label_vectors(len(z), known)
    log_positive = LOG_POSITIVE[link]
    log_y = np.where(Y == 1, log_positive(z), log_positive(-z)).sum(axis=1)
    return Y, log_y + log_bag_given_labels(Y, T, H)


def known_of(targets: Targets, rows: slice) -> np.ndarray | None:
    """Known labels of one bag."""
    return None if targets.known is None else targets.known[rows]


def enumerated_log_prob(link: str, z: np.ndarray, targets: Targets, H: float) -> np.ndarray:
    """log p(T_b, known | z_b) of each bag by summing over all label vectors."""
    return np.array(
        [
            special.logsumexp(joint_log_probs(link, z[r], T, H, known_of(targets, r))[1])
            for r, T in bag_slices(targets)
        ]
    )


def enumerated_labels(link: str, z: np.ndarray, targets: Targets, H: float) -> np.ndarray:
    """E[y_n | T, known, z]."""
    parts = []
    for r, T in bag_slices(targets):
        Y, logs = joint_log_probs(link, z[r], T, H, known_of(targets, r))
        parts.append(np.exp(logs - special.logsumexp(logs)) @ Y)
    return np.concatenate(parts)


def truncated_means(mu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[m | m < 0] and E[m | m > 0] for m ~ N(mu, 1)."""
    log_density = -0.5 * mu**2 - 0.5 * np.log(2 * np.pi)
    return (
        mu - np.exp(log_density - special.log_ndtr(-mu)),
        mu + np.exp(log_density - special.log_ndtr(mu)),
    )


def enumerated_probit_means(mu: np.ndarray, targets: Targets, H: float) -> np.ndarray:
    """E[m_n | T, known] for m ~ N(mu, I) and y = [m > 0]."""
    Ey = enumerated_labels("probit", mu, targets, H)
    below, above = truncated_means(mu)
    return (1 - Ey) * below + Ey * above


def central_difference(
    f: Callable[[np.ndarray], float | np.ndarray], x: np.ndarray, step: float = 1e-5
) -> np.ndarray:
    """df/dx_k, stacked along the first axis."""
    x = np.asarray(x, dtype=float)
    steps = step * np.eye(x.size)
    return np.array([(f(x + e) - f(x - e)) / (2 * step) for e in steps])


def gauss_hermite_grid(n: int, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (n^d, d) and weights of the standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    points = np.stack(np.meshgrid(*[nodes] * dimensions, indexing="ij"), -1)
    grid = np.stack(np.meshgrid(*[weights / weights.sum()] * dimensions, indexing="ij"), -1)
    return points.reshape(-1, dimensions), grid.prod(axis=-1).ravel()
