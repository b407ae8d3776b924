"""What a fit chooses before it begins: scaling, inducing points, a kernel to start from."""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.extmath import randomized_svd

from bagwise.bags import Bags
from bagwise.bags.rows import RowSource, ScaledRows, column_moments, is_elsewhere
from bagwise.core.features import features_in_common
from bagwise.core.inference.feature_store import default_budget
from bagwise.core.likelihoods.targets import halves
from bagwise.core.parameters import check_dtype, check_integer
from bagwise.core.threads import at_once
from bagwise.distributed import DaskRows
from bagwise.kernels import RBF, Kernel

if TYPE_CHECKING:
    from bagwise.models._gaussian_process import GaussianProcessMIL
    from bagwise.models._shared_features import OfWhole

Array = NDArray[Any]

ROWS_PER_CENTRE = 64  # of which k-means sees at most so many
FEW_ROWS = 2048  # whose distances from each other are all kept, 32 MiB
WIDE = 256  # features from which on k-means begins in a projection: its first centres cost most
PROJECTED = 128  # directions of it
LAST_STEPS = 10  # with all features, after that


def prepare(
    model: GaussianProcessMIL,
    bags: Bags,
    T: NDArray[np.bool_],
    known: Array | None,
    rng: np.random.Generator,
    of_whole: OfWhole | None,
) -> dict[str, Any]:
    """What is chosen at random or takes a pass over X before a fit begins."""
    if of_whole is None:
        shift, scale = scaling(bags.X, model.standardize)
    else:
        shift, scale = of_whole.shift, of_whole.scale
    if of_whole is not None and of_whole.Z is not None:
        Z = of_whole.Z
    elif isinstance(model.inducing, str):
        Xs = scaled(bags.X, shift, scale, model.dtype)
        Z = inducing_points(model.inducing, model.n_inducing, Xs, bags, T, known, rng)
    else:
        Z = (check_inducing(model.inducing, bags.n_features) - shift) / scale
    return {"shift": shift, "scale": scale, "Z": Z, "seed": int(rng.integers(2**31))}


def scaling(X: Any, standardize: str | bool) -> tuple[Array, Array]:
    """Shift and scale of each feature; a constant feature is only shifted."""
    unscaled = np.zeros(X.shape[1]), np.ones(X.shape[1])
    if standardize is False:
        return unscaled
    shift, variance = column_moments(X)
    spread = np.sqrt(variance)
    constant = spread <= 1e-12 * np.abs(shift)
    if standardize == "auto" and same_unit(spread[~constant]):
        return unscaled
    return shift, np.where(constant, 1.0, spread)


def same_unit(spread: Array) -> bool:
    """Whether no feature's spread dwarfs the others', as a different unit would make it."""
    return len(spread) == 0 or float(np.max(spread)) <= 20 * float(np.median(spread))


def scaled(X: Any, shift: Array, scale: Array, dtype: Any) -> Array | RowSource:
    """X as the kernel sees it; what has to be scaled or cast is so when it is read."""
    dtype = check_dtype(dtype) or X.dtype
    if dtype == X.dtype and not np.any(shift) and np.all(scale == 1):
        return X
    return ScaledRows(X, shift, scale, dtype)


def inducing_points(
    inducing: str | ArrayLike,
    n_inducing: int,
    Xs: Array | RowSource,
    bags: Bags,
    T: NDArray[np.bool_],
    known: Array | None,
    rng: np.random.Generator,
) -> Array:
    """Scaled inducing points, (M, D) float64: k-means centres per label, or all rows of Xs."""
    if isinstance(inducing, str) and inducing == "all":
        return np.asarray(Xs[:], dtype=np.float64)
    group = np.repeat(halves(T), bags.sizes).astype(np.int64)
    if known is not None:
        group = np.where(known == 1, 2, np.where(known == 0, 0, group))
    return kmeans_points(Xs, group, n_inducing, rng)


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
    drawn = [
        _to_cluster(np.flatnonzero(group == g), int(k), rng)
        for g, k in zip(names, shares, strict=True)
        if k
    ]
    some = X[np.concatenate([rows for rows, _, _ in drawn])]  # one question, where they are away
    ends = np.cumsum([len(rows) for rows, _, _ in drawn])
    told = [
        (some[end - len(rows) : end], *how) for end, (rows, *how) in zip(ends, drawn, strict=True)
    ]
    return np.concatenate([centres() for centres in at_once(_centres, told)])


def principal_points(X: Array, n: int, seed: int) -> Array:
    """Points along the `n` directions in which centred rows X vary most, or along all features.

    A linear function is its values at them: of all `n` points these leave the least of a linear
    kernel to the residuals.

    >>> principal_points(np.array([[3.0, 3.0, 0.0], [-3.0, -3.0, 0.0]]), 1, 0).round(1) ** 2
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


def _to_cluster(
    rows: NDArray[np.intp], k: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], int, int]:
    """Which of some rows k-means finds k centres of, with k and a seed."""
    if len(rows) > ROWS_PER_CENTRE * k:  # more rows move the centres little and cost a lot
        rows = rows[np.sort(rng.choice(len(rows), ROWS_PER_CENTRE * k, replace=False))]
    seed = int(rng.integers(2**31)) if len(rows) > k else 0
    return rows, k, seed


def _centres(drawn: tuple[Array, int, int]) -> Array:
    """k-means centres of some rows, or no more rows than that as they are."""
    X, k, seed = drawn
    if len(X) <= k:
        return np.asarray(X, dtype=np.float64)
    with warnings.catch_warnings():
        # Fewer distinct instances than centres: the duplicates are harmless (jitter).
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = _projected_centres(X, k, seed) if X.shape[1] > WIDE else None
        if start is None:
            model = _clusters(X, k, seed)
        else:
            model = KMeans(k, n_init=1, init=start, max_iter=LAST_STEPS).fit(X)
    return np.asarray(model.cluster_centers_, dtype=np.float64)


def _clusters(X: Array, k: int, seed: int) -> KMeans:
    """k-means from rows that are far apart."""
    if len(X) > FEW_ROWS:
        return KMeans(k, n_init=1, random_state=seed).fit(X)
    return KMeans(k, n_init=1, init=X[far_apart(X, k, seed)]).fit(X)


def far_apart(X: Array, k: int, seed: int) -> NDArray[np.intp]:
    """k rows of few, each drawn by its squared distance to those before it: k-means++.

    Of some that are drawn at a time, that one is taken which leaves the smallest distances [Arthur
    and Vassilvitskii 2007]. These are the rows that scikit-learn finds, with all distances from one
    product: the checks of its every step take ten times as long as steps with few rows.

    >>> X = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> np.sort(far_apart(X, 2, 0) // 2)
    array([0, 1])
    """
    X = np.asarray(X, dtype=np.float64) - np.mean(X, axis=0, dtype=np.float64)
    norm = np.einsum("nd,nd->n", X, X)
    squares = np.maximum(norm + norm[:, None] - 2 * (X @ X.T), 0)
    random, trials = np.random.RandomState(seed), 2 + int(np.log(k))
    chosen = [int(random.choice(len(X), p=np.full(len(X), 1 / len(X))))]
    nearest = squares[chosen[0]]
    while len(chosen) < k:
        places = random.uniform(size=trials) * nearest.sum()
        drawn = np.minimum(np.searchsorted(np.cumsum(nearest), places), len(X) - 1)
        after = np.minimum(nearest, squares[drawn])  # (trials, n)
        best = int(np.argmin(after.sum(axis=1)))
        chosen.append(int(drawn[best]))
        nearest = after[best]
    return np.array(chosen)


def _projected_centres(X: Array, k: int, seed: int) -> Array | None:
    """Means of k clusters that are found in random directions; None where there are fewer.

    Distances there are those of all features to about a tenth [Johnson and Lindenstrauss 1984].
    """
    directions = np.random.default_rng(seed).standard_normal((X.shape[1], PROJECTED))
    labels = _clusters(X @ directions.astype(X.dtype), k, seed).labels_
    sizes = np.bincount(labels, minlength=k)
    if np.any(sizes == 0):
        return None
    in_order = X[np.argsort(labels, kind="stable")]
    means = np.add.reduceat(in_order, np.cumsum(sizes) - sizes, dtype=np.float64) / sizes[:, None]
    return np.asarray(means, dtype=X.dtype)


def with_shared_inducing(estimator: Any, X: Any) -> Any:
    """A clone of the estimator that has common inducing points in place of its own k-means."""
    settings = estimator.get_params(deep=False)
    kind = settings.get("inducing")
    if not (isinstance(kind, str) and kind == "kmeans"):
        return clone(estimator)
    n = check_integer("n_inducing", settings["n_inducing"], at_least=1)
    seed = check_random_state(settings.get("random_state")).randint(2**31)
    scale = scaling(X, settings.get("standardize", False))[1].astype(X.dtype)
    one_group = np.zeros(len(X), dtype=np.int64)
    rows = X if np.all(scale == 1) else ScaledRows(X, np.zeros_like(scale), scale)
    Z = kmeans_points(rows, one_group, n, np.random.default_rng(seed)) * scale
    return clone(estimator).set_params(inducing=Z)


def sharing_features(estimator: Any, X: Any) -> AbstractContextManager[None]:
    """A context in which fits of an estimator to X compute what kernels make of it once.

    Kernels that are learned differ from fit to fit, and have nothing in common.
    """
    settings = estimator.get_params(deep=False)
    kernel, learn = settings.get("kernel"), settings.get("learn_hyperparameters", True)
    if "inducing" not in settings or (learn and not isinstance(kernel, str)):
        return nullcontext()
    return features_in_common(X, feature_budget(settings["memory_budget"], X))


def check_inducing(Z: ArrayLike, n_features: int) -> NDArray[np.float64]:
    """A given array of inducing points, finite and with the data's features."""
    Z = np.asarray(Z, dtype=np.float64)
    if Z.ndim != 2 or len(Z) == 0 or Z.shape[1] != n_features:
        raise ValueError(
            f"inducing must be 'kmeans', 'all' or an (M, {n_features}) array in raw feature "
            f"units, got shape {Z.shape}"
        )
    if not np.all(np.isfinite(Z)):
        raise ValueError("inducing points must be finite, got NaN or infinity")
    return Z


def anchor(kernel: Kernel | None, learn: bool, variance: float, X: Any) -> Kernel:
    """A kernel of the kind asked for, with parameters that suit the data's spread."""
    if kernel is not None and not learn:
        return kernel  # nothing starts there, so that the data need not be read
    spread = float(np.sqrt(np.sum(column_moments(X)[1])))
    return (kernel or RBF()).anchored(variance, 0.5 * spread if spread > 0 else 1.0)


def feature_budget(memory_budget: float | None, X: Any) -> int:
    """Bytes of features that are kept in memory."""
    if memory_budget is not None:
        return int(memory_budget)
    if isinstance(X, DaskRows):
        return sys.maxsize  # Dask's workers write to disk what exceeds their memory
    return default_budget(is_elsewhere(X))
