"""Artificial bags with known instance labels, for controlled studies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from bagwise.bags import Bags
from bagwise.core.parameters import check_integer

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def make_bags(
    n_bags: int = 200,
    bag_size: int | tuple[int, int] = 10,
    n_features: int = 10,
    *,
    witness_rate: float = 0.2,
    overlap: float = 0.1,
    spatial_correlation: float | None = None,
    label_noise: float = 0.0,
    positive_share: float = 0.5,
    random_state: Any = None,
) -> tuple[Bags, Ints]:
    """Make bags of Gaussian instances whose difficulty is set by hand.

    Negative instances are standard normal; positive ones are shifted along the diagonal.

    Parameters
    ----------
    n_bags, n_features : how many.
    bag_size : instances per bag, or (low, high), uniform between both.
    witness_rate : expected share of positive instances in a positive bag, which has at least one:
        their number is binomial, drawn again where it is 0.
    overlap : common area of the densities of positive and negative instances along the shift,
        in (0, 1]: 2 Φ(-d/2) for a shift of length d. At 1 instances tell nothing.
    spatial_correlation : None for bags without coordinates. Otherwise instances lie on the cells
        of a square grid, `bags.coords`, and positive ones tend to lie together: 0 puts them
        anywhere, 1 on the cells nearest to a random one.
    label_noise : share of bag labels that are wrong; each is flipped with this probability.
    positive_share : share of positive bags before label noise (their number is rounded).
    random_state : seed or numpy Generator.

    Returns the bags (without instance labels) and the true instance labels (N,), for evaluation.
    Wrong bag labels are wrong in `bags.y` only.

    >>> bags, truth = make_bags(6, 9, 2, spatial_correlation=0.5, random_state=0)
    >>> bags
    Bags(6 bags: 3 positive, 3 negative; 54 instances x 2 features, 9 per bag; float64; with coords)
    >>> bool((np.maximum.reduceat(truth, bags.offsets[:-1]) == bags.y).all())
    True
    """
    check_integer("n_bags", n_bags, at_least=2)
    check_integer("n_features", n_features, at_least=1)
    low, high = _check_size(bag_size)
    _check_shares(True, witness_rate=witness_rate, overlap=overlap)
    _check_shares(False, label_noise=label_noise, positive_share=positive_share)
    _check_shares(False, spatial_correlation=spatial_correlation or 0.0)
    rng = np.random.default_rng(random_state)
    positive = rng.permutation(np.arange(n_bags) < round(positive_share * n_bags))
    sizes = rng.integers(low, high + 1, n_bags)
    grids = [_grid(int(n)) for n in sizes]
    truth = [
        _witnesses(xy, int(k), spatial_correlation or 0.0, rng)
        for k, xy in zip(positive * _counts(sizes, witness_rate, rng), grids, strict=True)
    ]
    labels = np.concatenate(truth)
    X = rng.standard_normal((len(labels), n_features))
    X += labels[:, None] * shift_of(overlap) / np.sqrt(n_features)
    y = (positive ^ (rng.random(n_bags) < label_noise)).astype(np.int64)
    coords = None if spatial_correlation is None else np.concatenate(grids)
    return Bags.from_arrays(X, np.repeat(np.arange(n_bags), sizes), y=y, coords=coords), labels


def shift_of(overlap: float) -> float:
    """Distance d of two standard normals whose densities have `overlap` = 2 Φ(-d/2) in common.

    >>> round(shift_of(0.3173105), 6)
    2.0
    >>> abs(shift_of(1.0))
    0.0
    """
    return float(-2 * special.ndtri(overlap / 2))


def _counts(sizes: Ints, rate: float, rng: np.random.Generator) -> Ints:
    """Binomial numbers that are not 0, by inverting their distribution functions."""
    at_zero = stats.binom.pmf(0, sizes, rate)
    u = at_zero + (1 - at_zero) * rng.random(len(sizes))
    return np.maximum(1, stats.binom.ppf(u, sizes, rate)).astype(np.int64)


def _witnesses(xy: Floats, k: int, correlation: float, rng: np.random.Generator) -> Ints:
    """Instance labels of one bag with these places of its instances, k of them positive."""
    n = len(xy)
    # Ranks, so that `correlation` means the same in bags of all sizes.
    distance = np.linalg.norm(xy - xy[rng.integers(n)], axis=1) + 1e-6 * rng.random(n)
    near = distance.argsort().argsort() / n
    order = correlation * near + (1 - correlation) * rng.random(n)
    labels = np.zeros(n, dtype=np.int64)
    labels[np.argsort(order, kind="stable")[:k]] = 1
    return labels


def _grid(n: int) -> Floats:
    """Row and column of n cells of the smallest square grid that has as many."""
    side = int(np.ceil(np.sqrt(n)))
    cells = np.arange(n)
    return np.column_stack([cells // side, cells % side]).astype(np.float64)


def _check_size(bag_size: int | tuple[int, int]) -> tuple[int, int]:
    pair = (bag_size, bag_size) if isinstance(bag_size, int | np.integer) else tuple(bag_size)
    if len(pair) != 2:
        raise ValueError(f"bag_size must be a number or (low, high), got {bag_size!r}")
    low, high = (check_integer("bag_size", size, at_least=1) for size in pair)
    if low > high:
        raise ValueError(f"bag_size must be (low, high) with low <= high, got {bag_size!r}")
    return low, high


def _check_shares(open_at_0: bool, **shares: Any) -> None:
    for name, share in shares.items():
        ok = isinstance(share, int | float | np.number) and 0 <= share <= 1
        if not ok or (open_at_0 and share == 0):
            bounds = "above 0 and at most 1" if open_at_0 else "from 0 to 1"
            raise ValueError(f"{name} must be a number {bounds}, got {share!r}")
