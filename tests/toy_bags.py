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
