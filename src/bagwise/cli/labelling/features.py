"""The features of an instance against those of its bag."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.bags import Bags

MOST_FEATURES = 12


def against_bag(bags: Bags, row: int) -> list[dict[str, Any]]:
    """The features in which a row differs most from its bag, in standard deviations of the bag.

    >>> bags = Bags.from_list([[[0.0, 5.0], [0.0, 6.0], [9.0, 5.5]]])
    >>> [f["name"] for f in against_bag(bags, 2)]
    ['x0', 'x1']
    """
    b = int(np.searchsorted(bags.offsets, row, side="right")) - 1
    start, stop = int(bags.offsets[b]), int(bags.offsets[b + 1])
    X = np.asarray(bags.X[start:stop], dtype=np.float64)
    value, low, high = X[row - start], X.min(axis=0), X.max(axis=0)
    mean, std = X.mean(axis=0), X.std(axis=0)
    z = (value - mean) / np.where(std > 0, std, 1.0)
    order = np.argsort(-np.abs(z), kind="stable")[:MOST_FEATURES]
    q1, median, q3 = np.quantile(X[:, order], (0.25, 0.5, 0.75), axis=0)
    names = bags.feature_names or tuple(f"x{j}" for j in range(bags.n_features))
    return [
        {
            "name": names[j],
            "value": float(value[j]),
            "low": float(low[j]),
            "high": float(high[j]),
            "quartiles": [float(q1[i]), float(median[i]), float(q3[i])],
            "z": round(float(z[j]), 2),
        }
        for i, j in enumerate(order.tolist())
    ]
