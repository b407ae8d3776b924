"""Where the inducing points go: k-means centres per label, or principal directions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import randomized_svd

Array = NDArray[Any]
ROWS_PER_CENTRE = 64


def kmeans_points(X: Any, group: NDArray[np.int64], n: int, rng: np.random.Generator) -> Array:
    """About `n` k-means centres, the same number for each group of instances [V17, 4.2].

    `group` says which instances belong together: those of positive and of negative bags, or
    known positives and negatives where there are any. With `n` or fewer instances, all are
    taken.

    >>> X = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> kmeans_points(X, np.array([0, 0, 1, 1]), 2, np.random.default_rng(0)).ravel()
    array([0.05, 5.05])
    """
    if len(X) <= n:
        return np.asarray(X[:], dtype=np.float64)
    names, counts = np.unique(group, return_counts=True)
    shares = equal_shares(counts, n)
    return np.concatenate(
        [
            _centres(X, np.flatnonzero(group == g), int(k), rng)
            for g, k in zip(names, shares, strict=True)
            if k
        ]
    )


def principal_points(X: Array, n: int, seed: int) -> Array:
    """Points along the `n` directions in which centred rows X vary most, or along all features.

    A linear function is its values at them: of all `n` points these leave the least of a linear
    kernel to the residuals.

    >>> principal_points(np.array([[3.0, 3.0, 0.0], [-3.0, -3.0, 0.1]]), 1, 0).round(1) ** 2
    array([[9., 9., 0.]])
    """
    length = float(np.sqrt(np.mean(np.sum(X**2, axis=1)))) or 1.0
    if X.shape[1] <= n:
        return length * np.eye(X.shape[1])
    directions = randomized_svd(X, min(n, len(X)), n_iter=2, random_state=seed)[2]
    return length * np.asarray(directions, dtype=np.float64)


def equal_shares(counts: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Split `n` equally over groups that have `counts` members, none getting more than it has.

    >>> equal_shares(np.array([3, 100, 100]), 43)
    array([ 3, 20, 20])
    """
    shares = np.zeros(len(counts), dtype=np.int64)
    left = n
    for rank, g in enumerate(np.argsort(counts, kind="stable")):
        shares[g] = min(counts[g], left // (len(counts) - rank))
        left -= shares[g]
    return shares


def _centres(X: Any, rows: NDArray[np.intp], k: int, rng: np.random.Generator) -> Array:
    """k-means centres of some rows, of which only those that are used are read."""
    if len(rows) <= k:
        return np.asarray(X[rows], dtype=np.float64)
    if len(rows) > ROWS_PER_CENTRE * k:  # more rows move the centres little and cost a lot
        rows = rows[np.sort(rng.choice(len(rows), ROWS_PER_CENTRE * k, replace=False))]
    seed = int(rng.integers(2**31))
    with warnings.catch_warnings():
        # Fewer distinct instances than centres: the duplicates are harmless (jitter).
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(k, n_init=1, random_state=seed).fit(X[rows])
    return np.asarray(model.cluster_centers_, dtype=np.float64)
