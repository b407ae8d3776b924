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
