"""Small bags that every model should tell apart."""

from typing import Any

import numpy as np

import bagwise as bw


def separable_bags(n_bags: int, n_features: int, seed: int = 0, **more: Any) -> bw.Bags:
    """Bags of 1 to 5 instances: positive ones hold a point far along feature 0."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, n_bags)
    y = np.arange(n_bags) % 2
    X = rng.normal(size=(sizes.sum(), n_features))
    starts = np.cumsum(sizes) - sizes
    X[starts[y == 1], 0] += 6
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n_bags), sizes), y=y, **more)


def overlapping_bags(n_bags: int, seed: int = 0) -> tuple[bw.Bags, np.ndarray]:
    """Bags of 1 to 7 instances whose classes overlap, and which instances are positive."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 8, n_bags)
    T = np.arange(n_bags) % 2
    y = (rng.random(sizes.sum()) < 0.3) & (np.repeat(T, sizes) == 1)
    y[(np.cumsum(sizes) - sizes)[T == 1]] = True
    X = rng.normal(size=(len(y), 2))
    X[y, 0] += 2.5
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n_bags), sizes), y=T), y


def share_bags(n_bags: int, seed: int) -> tuple[bw.Bags, np.ndarray, np.ndarray]:
    """Bags of 50 with shares known to 5 %, the labels of their instances, and their true shares."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n_bags, 50)) < rng.beta(2, 3, (n_bags, 1))
    X = rng.normal(size=(n_bags, 50, 5))
    X[..., 0] += 2.5 * truth
    X[..., 1] += 1.25 * truth
    share = truth.mean(axis=1)
    y = np.clip(share + 0.05 * rng.normal(size=n_bags), 0, 1)
    return bw.Bags.from_list(list(X), y), truth.ravel(), share


def pair_bags(n_bags: int, seed: int, n: int = 8) -> tuple[bw.Bags, np.ndarray]:
    """Bags with 0 to 3 positives; positive are those with two or more."""
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 4, n_bags)
    truth = np.arange(n) < k[:, None]
    X = rng.normal(size=(n_bags, n, 3))
    X[..., 0] += 4 * truth
    return bw.Bags.from_list(list(X), (k >= 2).astype(int)), truth.ravel()
