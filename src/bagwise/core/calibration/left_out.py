"""What fits to the other bags say of bags and instances that were left out of them.

A model is fitted again without a fifth of its training bags at a time, and asked about those: one
pass gives the scores of bags and of instances that calibrations are fitted to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from bagwise.bags import Bags
from bagwise.core.calibration.ranking import class_counts
from bagwise.core.likelihoods.bag_scores import CLOSEST, Predicted, log_odds
from bagwise.core.likelihoods.targets import halves
from bagwise.core.rounds import side_by_side

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Scores = tuple[Array, Array]  # (B, 2) logits of SCORES, (N,) logits of instances
Scorer = Callable[[Bags], Scores]

SCORES = ("joint", "max")
FOLDS = 5
MOST_INSTANCES = 100_000  # of the bags that are left out by turns
LEAST_BAGS = 10  # of each class among them, or groups with such bags
NOTHING = 1e-300  # a probability whose logarithm is finite


@dataclass(frozen=True)
class LeftOut:
    """Scores of each training bag and its instances, by a fit that did not see the bag."""

    bag_scores: Array  # (B, 2) logits of SCORES
    instance_logits: Array  # (N,) logit P(y_n = 1)
    folds: NDArray[np.int64]  # (B,) the fold that each bag was left out with
    sizes: NDArray[np.int64] | None = None  # (B,) instances of each bag, where they differ

    def __post_init__(self) -> None:
        if not (np.all(np.isfinite(self.bag_scores)) and np.all(np.isfinite(self.instance_logits))):
            raise FloatingPointError("scores of bags that were left out are not finite")

    @property
    def log_sizes(self) -> Array:
        """(B,) logarithms of the sizes of bags."""
        return np.zeros(len(self.folds)) if self.sizes is None else np.log(self.sizes)


def left_out(
    bags: Bags,
    T: Flags,
    seed: int,
    refit: Callable[[NDArray[np.intp]], Scorer],
    keep: Callable[[str, Callable[[], Scores]], Scores] = lambda stage, work: work(),
    at_once: int = 1,
) -> LeftOut:
    """Scores of all bags, where `refit(numbers of bags)` is a fit to those that scores others.

    `keep(stage, work)` does the work of one fold, or has done it in a fit that goes on. So many as
    `at_once` says go on side by side.

    >>> bags = Bags.from_list([[[b], [b + 0.5]] for b in range(10)])
    >>> def fitted(kept):
    ...     return lambda others: (np.zeros((len(others), 2)), others.X[:, 0])
    >>> left_out(bags, np.arange(10) % 2 == 1, 0, fitted).instance_logits[:4]
    array([0. , 0.5, 1. , 1.5])
    """
    folds = cut_folds(bags, T, seed)
    bag_scores, instance_logits = np.empty((len(bags), len(SCORES))), np.empty(bags.n_instances)
    n_folds = int(folds.max()) + 1
    refits = [partial(_fold, bags, folds == k, refit) for k in range(n_folds)]
    with side_by_side(refits, at_once) as works:
        for k, work in enumerate(works):
            scores = keep(f"calibration {k + 1} of {n_folds}", work)
            bag_scores[folds == k], instance_logits[folds[bags.bag_index] == k] = scores
    return LeftOut(bag_scores, instance_logits, folds, bags.sizes)


def bags_to_leave_out(
    bags: Bags, T: Flags, seed: int, counts: Array | None = None
) -> NDArray[np.intp]:
    """Numbers of the bags that are left out by turns: all that count, or a sample of them.

    Of many instances whole bags, and whole groups, are drawn until they have `MOST_INSTANCES`, but
    `LEAST_BAGS` bags, or groups, of each class where there are as many.
    """
    some = np.arange(len(bags)) if counts is None else np.flatnonzero(counts)
    T, sizes = T[some], bags.sizes[some]
    if int(sizes.sum()) <= MOST_INSTANCES:
        return some
    units = some if bags.groups is None else np.asarray(bags.groups)[some]
    _, unit = np.unique(units, return_inverse=True)
    order = np.random.default_rng(seed).permutation(int(unit.max()) + 1)
    place = np.argsort(order)[unit]  # of each bag's group among those drawn
    by_place = np.argsort(place, kind="stable")
    drawn_units = [_units_so_far(unit[by_place], side[by_place]) for side in (T, ~T)]
    enough = max(int(np.sum(drawn < min(LEAST_BAGS, drawn[-1]))) for drawn in drawn_units)
    last = max(int(np.searchsorted(np.cumsum(sizes[by_place]), MOST_INSTANCES)), enough)
    return some[place <= place[by_place[min(last, len(some) - 1)]]]


def _units_so_far(units: Array, some: Flags) -> Array:
    """(n,) how many units have been met in some of the rows up to each.

    >>> _units_so_far(np.array([7, 7, 5, 7, 5]), np.array([False, True, True, True, True]))
    array([0, 1, 2, 2, 2])
    """
    first = np.zeros(len(units), dtype=bool)
    first[np.flatnonzero(some)[np.unique(units[some], return_index=True)[1]]] = True
    return np.cumsum(first)


def cut_folds(bags: Bags, T: Flags, seed: int) -> NDArray[np.int64]:
    """(B,) folds, stratified by label; whole groups are left out together.

    There are fewer of them where a class has fewer bags, or groups, than `FOLDS`.
    """
    kind = StratifiedKFold if bags.groups is None else StratifiedGroupKFold
    n_folds = max(2, min(FOLDS, *class_counts(bags, T)))
    cut = kind(n_folds, shuffle=True, random_state=seed)
    folds = np.empty(len(bags), dtype=np.int64)
    for k, (_, out) in enumerate(cut.split(np.zeros(len(bags)), halves(T), bags.groups)):
        folds[out] = k
    return folds


def _fold(
    bags: Bags, out: Flags, refit: Callable[[NDArray[np.intp]], Scorer]
) -> tuple[Array, Array]:
    """Scores of the bags that are left out."""
    return refit(np.flatnonzero(~out))(bags[np.flatnonzero(out)])


def scores_of(found: Predicted) -> Scores:
    """Logits of SCORES and of instances, from one pass that found both parts."""
    assert found.instances is not None
    negative, positive, _ = score_moments(found)
    bag_scores = kept_off(np.log(positive) - np.log(negative))
    return bag_scores, kept_off(log_odds(found.instances))


def averaged_scores(parts: Sequence[Scores], weights: Array, offsets: Array) -> Scores:
    """The weighted means of the logits that several fits have found of the same bags.

    "max" is the instance that is most probable on average.
    """
    if len(parts) == 1:
        return parts[0]
    joint = sum(w * bag_scores[:, 0] for w, (bag_scores, _) in zip(weights, parts, strict=True))
    instances = sum(w * logits for w, (_, logits) in zip(weights, parts, strict=True))
    best = np.maximum.reduceat(instances, np.asarray(offsets)[:-1])
    return np.column_stack([joint, best]), np.asarray(instances)


def score_moments(found: Predicted) -> tuple[Array, Array, Array]:
    """P(negative), P(positive) and std of both scores, (B, 2) each."""
    parts = [found.bags(score) for score in SCORES]
    negative = np.column_stack([np.exp(part.log_negative) for part in parts])
    positive = np.column_stack([np.exp(part.log_positive) for part in parts])
    stds = np.column_stack([part.std for part in parts])
    return np.maximum(negative, NOTHING), np.maximum(positive, NOTHING), stds


def kept_off(logits: Array) -> Array:
    """Logits of probabilities that are at least `CLOSEST` from 0 and 1."""
    furthest = float(special.logit(1 - CLOSEST))
    return np.clip(logits, -furthest, furthest)
