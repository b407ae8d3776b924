"""Bags of handwritten digits with known instance labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from bagwise.bags import Bags

Ints = NDArray[np.int64]


def make_digit_bags(
    n_bags: int = 160,
    bag_size: int = 10,
    positive: Iterable[int] | int = (2, 9),
    witness: tuple[int, int] = (1, 4),
    random_state: Any = None,
) -> tuple[Bags, Ints]:
    """Make bags of 8x8 digit images; a bag is positive if it holds one of the `positive` digits.

    `n_bags // 2` bags are positive, in random places. The number of positive digits in a positive
    bag is uniform over `witness[0]..witness[1]`, and all numbers occur equally often (up to one).
    Each image is used at most once, so the number of bags is limited.

    Returns the bags (64 pixel features from 0 to 16, no instance labels) and the true instance
    labels (N,) in the row order of `bags.X`, for evaluation.

    >>> bags, truth = make_digit_bags(20, random_state=0)
    >>> bags
    Bags(20 bags: 10 positive, 10 negative; 200 instances x 64 features, 10 per bag; float64)
    >>> bool((np.maximum.reduceat(truth, bags.offsets[:-1]) == bags.y).all())
    True
    """
    wanted = check_positive(positive)
    low, high = check_counts(n_bags, bag_size, witness)
    images, digits = load_digits(return_X_y=True)
    is_positive = np.isin(digits, wanted)
    pools = int(is_positive.sum()), int((~is_positive).sum())
    if not _feasible(n_bags, bag_size, low, high, pools):
        raise ValueError(
            f"each digit image is used once, which allows at most "
            f"{_max_bags(bag_size, low, high, pools)} bags for bag_size={bag_size}, "
            f"positive={tuple(wanted.tolist())}, witness=({low}, {high}); got n_bags={n_bags}; "
            "ask for fewer or smaller bags"
        )
    rng = np.random.default_rng(random_state)
    rows, y, truth = draw_bags(is_positive, n_bags, bag_size, (low, high), rng)
    return Bags.from_arrays(images[rows], np.repeat(np.arange(n_bags), bag_size), y=y), truth


def draw_bags(
    is_positive: NDArray[np.bool_],
    n_bags: int,
    bag_size: int,
    witness: tuple[int, int],
    rng: np.random.Generator,
) -> tuple[Ints, Ints, Ints]:
    """Rows of the images in each bag, labels of the bags and of the instances.

    Half of the bags are positive; images come twice only where there are too few of their kind.
    """
    y = rng.permutation(np.arange(n_bags) < n_bags // 2).astype(np.int64)
    n_witness = np.zeros(n_bags, dtype=np.int64)
    n_witness[y == 1] = balanced_counts(n_bags // 2, *witness, rng)
    truth = place_witnesses(n_witness, bag_size, rng)
    rows = np.empty(len(truth), dtype=np.int64)
    for kind in (0, 1):
        pool = np.flatnonzero(is_positive == kind)
        rows[truth == kind] = _cycled(pool, int(np.sum(truth == kind)), rng)
    return rows, y, truth


def _cycled(pool: Ints, n: int, rng: np.random.Generator) -> Ints:
    """n entries in random order; none comes again before all others have come."""
    rounds = [rng.permutation(pool) for _ in range(-(-n // len(pool)))]
    return np.concatenate([*rounds, pool[:0]])[:n]


def balanced_counts(n: int, low: int, high: int, rng: np.random.Generator) -> Ints:
    """n numbers in low..high, each equally often, the remainder without repetition, shuffled.

    Each one alone is uniform, but the sum hardly varies: independent draws could, for some seeds,
    ask for more images than there are.
    """
    values = np.arange(low, high + 1)
    repeats, rest = divmod(n, len(values))
    counts = [np.tile(values, repeats), rng.choice(values, rest, replace=False)]
    return rng.permutation(np.concatenate(counts)).astype(np.int64)


def place_witnesses(n_witness: Ints, bag_size: int, rng: np.random.Generator) -> Ints:
    """(N,) instance labels with n_witness[b] ones in random places of bag b."""
    labels = (np.arange(bag_size) < n_witness[:, None]).astype(np.int64)
    return rng.permuted(labels, axis=1).ravel()


def _feasible(n_bags: int, bag_size: int, low: int, high: int, pools: tuple[int, int]) -> bool:
    """Whether the images suffice for every possible draw of `balanced_counts`."""
    repeats, rest = divmod(n_bags // 2, high - low + 1)
    base = repeats * (low + high) * (high - low + 1) // 2
    fewest = base + sum(range(low, low + rest))
    most = base + sum(range(high - rest + 1, high + 1))
    return most <= pools[0] and n_bags * bag_size - fewest <= pools[1]


def _max_bags(bag_size: int, low: int, high: int, pools: tuple[int, int]) -> int:
    n = 0
    while _feasible(n + 1, bag_size, low, high, pools):
        n += 1
    return n


def check_positive(positive: Iterable[int] | int) -> Ints:
    """The positive digits, sorted."""
    digits = np.unique(np.atleast_1d(np.asarray(positive)))
    whole = digits.dtype.kind in "iu" and len(digits) > 0
    if not whole or digits[0] < 0 or digits[-1] > 9 or len(digits) > 9:
        raise ValueError(
            "positive must be one to nine of the digits 0..9, so that others are left for negative "
            f"bags; got {positive!r}; pass e.g. (2, 9)"
        )
    return digits.astype(np.int64)


def check_counts(n_bags: int, bag_size: int, witness: tuple[int, int]) -> tuple[int, int]:
    """Check the numbers of bags, instances and witnesses; returns the last."""
    for name, value in (("n_bags", n_bags), ("bag_size", bag_size)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
    pair = np.asarray(witness)
    whole = pair.shape == (2,) and pair.dtype.kind in "iu"
    if not whole or not 1 <= pair[0] <= pair[1] <= bag_size:
        raise ValueError(
            "witness must be two whole numbers (low, high) with 1 <= low <= high <= bag_size = "
            f"{bag_size}; got {witness!r}; pass e.g. (1, {min(4, bag_size)})"
        )
    return int(pair[0]), int(pair[1])
