"""Where the inducing points go: k-means centres per label, all instances, or a given array."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

Array = NDArray[Any]
ROWS_PER_CENTRE = 64
WIDE = 256  # features from which on k-means begins in a projection: its first centres cost most
PROJECTED = 128  # directions of it
LAST_STEPS = 10  # with all features, after that


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
    X = X[rows]
    with warnings.catch_warnings():
        # Fewer distinct instances than centres: the duplicates are harmless (jitter).
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = _projected_centres(X, k, seed) if X.shape[1] > WIDE else None
        if start is None:
            model = KMeans(k, n_init=1, random_state=seed).fit(X)
        else:
            model = KMeans(k, n_init=1, init=start, max_iter=LAST_STEPS).fit(X)
    return np.asarray(model.cluster_centers_, dtype=np.float64)


def _projected_centres(X: Array, k: int, seed: int) -> Array | None:
    """Means of k clusters that are found in random directions; None where there are fewer.

    Distances there are those of all features to about a tenth [Johnson and Lindenstrauss 1984].
    """
    directions = np.random.default_rng(seed).standard_normal((X.shape[1], PROJECTED))
    labels = KMeans(k, n_init=1, random_state=seed).fit(X @ directions.astype(X.dtype)).labels_
    sizes = np.bincount(labels, minlength=k)
    if np.any(sizes == 0):
        return None
    in_order = X[np.argsort(labels, kind="stable")]
    means = np.add.reduceat(in_order, np.cumsum(sizes) - sizes, dtype=np.float64) / sizes[:, None]
    return np.asarray(means, dtype=X.dtype)
