"""Synthetic data for computer-aided detection, with known relevant features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.parameters import check_integer, check_number

Ints = NDArray[np.int64]
Array = NDArray[Any]


@dataclass(frozen=True)
class CadData:
    """Synthetic candidates of a detection system; see `make_cad_bags`."""

    bags: Bags
    volume: Ints  # (B,) the scan each bag comes from; also bags.groups
    relevant: Ints  # numbers of the features that tell lesions from other candidates
    truth: Ints  # (N,) which candidates truly show a lesion


def make_cad_bags(
    n_volumes: int = 60,
    n_features: int = 60,
    n_relevant: int = 8,
    lesions_per_volume: float = 3.0,
    false_candidates: int = 40,
    effect: float = 1.0,
    random_state: Any = None,
) -> CadData:
    """Make synthetic detection data shaped like the pulmonary-embolism set of [R08, 10].

    Everything is drawn from Gaussians; nothing comes from patients. A volume (scan) has a Poisson
    number of lesions, at least one over the whole data set. One to eight candidates point to each
    lesion, and they form a positive bag; one of them truly shows it, each other one with chance
    0.1. Each of the `false_candidates` other candidates of a volume is a negative bag of its own.
    Features come in correlated groups of four, as measurements of one kind do. Candidates that
    show a lesion are shifted by `effect` standard deviations, up or down, in the `relevant`
    features, which are all in different groups where there are enough. (Others of such a group
    help a little too, since they share its noise.)

    >>> data = make_cad_bags(n_volumes=5, random_state=0)
    >>> data.bags.n_features, data.relevant.size, len(data.volume) == len(data.bags)
    (60, 8, True)
    """
    check_integer("n_volumes", n_volumes, at_least=1)
    check_integer("n_relevant", n_relevant, at_least=1)
    check_integer("n_features", n_features, at_least=n_relevant)
    check_integer("false_candidates", false_candidates, at_least=1)
    check_number("lesions_per_volume", lesions_per_volume, at_least=0)
    check_number("effect", effect)
    rng = np.random.default_rng(random_state)
    lesions = rng.poisson(lesions_per_volume, n_volumes)
    lesions[0] = max(1, lesions[0])
    volume = np.repeat(np.arange(n_volumes), lesions + false_candidates)
    y = np.concatenate([np.repeat([1, 0], [k, false_candidates]) for k in lesions])
    sizes = np.where(y == 1, rng.integers(1, 9, len(y)), 1)
    truth = _shown(y, sizes, rng)
    relevant = np.sort(_spread_over_groups(n_features, n_relevant, rng))
    X = _correlated(len(truth), n_features, rng)
    signs = rng.choice([-1.0, 1.0], n_relevant)
    X[:, relevant] += effect * truth[:, None] * signs
    ids = np.arange(len(y))
    bags = Bags.from_arrays(X, np.repeat(ids, sizes), y=y, groups=volume)
    return CadData(bags, volume, relevant, truth)


def make_related_tasks(
    n_bags: tuple[int, ...] = (200, 15),
    n_features: int = 50,
    n_relevant: int = 5,
    bag_size: int = 5,
    similarity: float = 0.7,
    random_state: Any = None,
) -> tuple[Bags, Ints, Ints]:
    """Make synthetic tasks whose instances depend on the same few features, with other weights.

    Task j has `n_bags[j]` bags, half of them positive (the smaller half if odd). An instance is
    positive where x'w_j exceeds a threshold that one instance in ten passes. On the relevant
    features w_j = similarity * w + (1 - similarity) * (weights of its own), all drawn from
    0.7 to 1.3 with random sign; on the others it is zero. A positive bag has one or two positive
    instances.

    Returns the bags of all tasks, the task of each bag, and the relevant features.

    >>> bags, tasks, relevant = make_related_tasks(n_bags=(20, 10), random_state=0)
    >>> len(bags), np.bincount(tasks), relevant.size
    (30, array([20, 10]), 5)
    """
    check_integer("n_relevant", n_relevant, at_least=1)
    check_integer("n_features", n_features, at_least=n_relevant)
    check_integer("bag_size", bag_size, at_least=2)
    check_number("similarity", similarity)
    rng = np.random.default_rng(random_state)
    relevant = np.sort(rng.choice(n_features, n_relevant, replace=False))
    common = _weights(n_relevant, rng)
    X, y = [], []
    for n in n_bags:
        w = similarity * common + (1 - similarity) * _weights(n_relevant, rng)
        labels = rng.permutation(np.arange(n) < n // 2).astype(np.int64)
        X += [_task_bag(bag_size, n_features, relevant, w, bool(t), rng) for t in labels]
        y.append(labels)
    tasks = np.repeat(np.arange(len(n_bags)), n_bags)
    return Bags.from_list(X, y=np.concatenate(y)), tasks, relevant


def _task_bag(
    size: int, n_features: int, relevant: Ints, w: Array, positive: bool, rng: np.random.Generator
) -> Array:
    """Instances on the wanted side of x'w = 1.28 |w|, by mirrored rejection."""
    X = rng.normal(size=(size, n_features))
    wanted = np.arange(size) < (rng.integers(1, 3) if positive else 0)
    while True:
        wrong = (X[:, relevant] @ w > 1.28 * np.linalg.norm(w)) != wanted
        if not np.any(wrong):
            return X
        X[wrong] = rng.normal(size=(int(wrong.sum()), n_features))


def _weights(n: int, rng: np.random.Generator) -> Array:
    return rng.choice([-1.0, 1.0], n) * rng.uniform(0.7, 1.3, n)


def _shown(y: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
    """(N,) which candidates show a lesion: one of a positive bag surely, others with chance 0.1."""
    sure = np.cumsum(sizes) - sizes + rng.integers(0, sizes)
    shown = rng.random(int(sizes.sum())) < 0.1
    shown[sure] = True
    return (shown & np.repeat(y == 1, sizes)).astype(np.int64)


def _correlated(n: int, n_features: int, rng: np.random.Generator) -> Array:
    """Unit-variance features in groups of four with correlation 0.5 inside a group."""
    groups = rng.normal(size=(n, -(-n_features // 4)))
    own = rng.normal(size=(n, n_features))
    return np.sqrt(0.5) * (np.repeat(groups, 4, axis=1)[:, :n_features] + own)


def _spread_over_groups(n_features: int, n: int, rng: np.random.Generator) -> Ints:
    """n features, no two of a group of four before all groups have one."""
    order = rng.permutation(n_features)
    rank_in_group = np.zeros(n_features, dtype=np.int64)
    seen: dict[int, int] = {}
    for feature in order:
        group = int(feature) // 4
        rank_in_group[feature] = seen.get(group, 0)
        seen[group] = rank_in_group[feature] + 1
    return order[np.argsort(rank_in_group[order], kind="stable")][:n]
