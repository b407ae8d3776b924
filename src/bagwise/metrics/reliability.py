"""Observed frequencies against predicted probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise.metrics.inputs import Floats, labels_and_probabilities


def reliability_curve(
    y_true: ArrayLike, p: ArrayLike, n_bins: int = 10, *, pos_label: Any = None
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Mean probability, observed share, its 95 % interval and count, in bins of equally many.

    Returns five arrays, one entry per bin: mean of p, share of positives, low and high end of
    Wilson's interval of that share, number of predictions.

    >>> p, share, low, high, n = reliability_curve([0, 1, 1, 1], [0.2, 0.4, 0.6, 0.8], n_bins=2)
    >>> p, share, n
    (array([0.3, 0.7]), array([0.5, 1. ]), array([2., 2.]))
    """
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins!r}; try n_bins=10")
    positive, p1 = labels_and_probabilities(y_true, p, pos_label)
    bins = np.array_split(np.argsort(p1, kind="stable"), min(n_bins, p1.size))
    share = np.array([positive[b].mean() for b in bins])
    counts = np.array([float(len(b)) for b in bins])
    limits = np.array([wilson(float(s), int(n)) for s, n in zip(share, counts, strict=True)])
    return np.array([p1[b].mean() for b in bins]), share, limits[:, 0], limits[:, 1], counts


def wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a share seen in n trials.

    >>> [round(v, 3) for v in wilson(0.5, 10)]
    [0.237, 0.763]
    """
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
