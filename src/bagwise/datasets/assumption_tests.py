"""Bags that only a model which respects the multiple instance assumption gets right.

After Raff and Holt, "Reproducibility in Multiple Instance Learning: A Case For Algorithmic Unit
Tests", NeurIPS 2023: training bags offer a shortcut (the absence of an instance, or a count) that
contradicts the assumption, and test bags have the shortcut turned round. A model that respects the
assumption has a high AUC on the test bags; one that took the shortcut has one far below 1/2. The
tests follow the paper's ideas with distributions of our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.parameters import check_choice, check_integer

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SMALLEST_BAG = 8  # concepts and decoys fit in and background is left
# What an instance is. Only concepts make bags positive.
BACKGROUND, FIRST, SECOND, DECOY = range(4)


def make_single_concept(
    n_bags: int = 100,
    bag_size: int = 10,
    n_features: int = 4,
    *,
    part: str = "train",
    random_state: Any = None,
) -> tuple[Bags, Ints]:
    """Bags with one concept, and a decoy that tempts a model to learn from absence.

    A bag is positive if it holds an instance of the concept, and positive bags hold one or two.
    In training bags an easily seen decoy is in every negative bag and in no positive one, so "no
    decoy" would predict the positive class; under the multiple instance assumption a decoy is
    just a negative instance. In test bags (`part="test"`) it is the other way round.

    Returns the bags and the true instance labels (N,).

    >>> train, _ = make_single_concept(random_state=0)
    >>> test, _ = make_single_concept(part="test", random_state=1)
    >>> [bool(b.X.min() < -6) for b in test] == test.y.astype(bool).tolist()
    True
    """

    def counts(positive: bool, as_trained: bool, rng: np.random.Generator) -> dict[int, int]:
        return {FIRST: positive * int(rng.integers(1, 3)), DECOY: int(positive != as_trained)}

    return _make(counts, n_bags, bag_size, n_features, part, random_state)


def make_multi_concept(
    n_bags: int = 100,
    bag_size: int = 10,
    n_features: int = 4,
    *,
    rule: str = "any",
    part: str = "train",
    random_state: Any = None,
) -> tuple[Bags, Ints]:
    """Bags with two concepts: one of them makes a bag positive, or both are needed.

    With `rule="any"` the multiple instance assumption holds, and the two kinds of positive
    instances lie on two sides of the negative ones, so that no linear model finds both. With
    `rule="all"` a bag is positive if it holds both; a negative bag holds one of the two. That is
    beyond the standard assumption: bagwise's models cannot represent it, and their AUC shows it.
    The decoy of `make_single_concept` is there in both cases.

    Returns the bags and the true instance labels (N,): 1 for instances of the concepts.

    >>> bags, truth = make_multi_concept(10, rule="all", random_state=0)
    >>> np.add.reduceat(truth, bags.offsets[:-1]).min()
    np.int64(1)
    """
    check_choice("rule", rule, ("any", "all"))

    def counts(positive: bool, as_trained: bool, rng: np.random.Generator) -> dict[int, int]:
        one = int(rng.choice([FIRST, SECOND]))
        if rule == "any":
            concepts = {one: int(positive)}
        else:
            concepts = {FIRST: 1, SECOND: 1} if positive else {one: 1}
        return concepts | {DECOY: int(positive != as_trained)}

    return _make(counts, n_bags, bag_size, n_features, part, random_state)


def make_false_frequency(
    n_bags: int = 100,
    bag_size: int = 10,
    n_features: int = 4,
    *,
    part: str = "train",
    random_state: Any = None,
) -> tuple[Bags, Ints]:
    """Bags with one concept, and a decoy whose number tempts a model to count.

    A bag is positive if it holds the one instance of the concept. All bags hold decoys: in
    training bags positive ones have four to six and negative ones one; in test bags
    (`part="test"`) it is the other way round. As decoys are in negative bags they say nothing
    under the multiple instance assumption, but a model that averages over instances, or counts
    them, will take their number for evidence.

    Returns the bags and the true instance labels (N,).

    >>> bags, truth = make_false_frequency(10, random_state=0)
    >>> truth.sum() == bags.y.sum()
    np.True_
    """

    def counts(positive: bool, as_trained: bool, rng: np.random.Generator) -> dict[int, int]:
        many = positive == as_trained
        return {FIRST: int(positive), DECOY: int(rng.integers(4, 7)) if many else 1}

    return _make(counts, n_bags, bag_size, n_features, part, random_state)


def _make(
    counts: Callable[[bool, bool, np.random.Generator], dict[int, int]],
    n_bags: int,
    bag_size: int,
    n_features: int,
    part: str,
    random_state: Any,
) -> tuple[Bags, Ints]:
    """Bags of which `counts` says, of a positive or negative one, what is in it.

    Background is standard normal; concepts at +-4 on feature 0; decoys far down feature 1.
    """
    check_integer("n_bags", n_bags, at_least=2)
    check_integer("bag_size", bag_size, at_least=SMALLEST_BAG)
    check_integer("n_features", n_features, at_least=2)
    check_choice("part", part, ("train", "test"))
    rng = np.random.default_rng(random_state)
    y = rng.permutation(np.arange(n_bags) % 2)
    kinds = np.zeros((n_bags, bag_size), dtype=np.int64)
    for b in range(n_bags):
        _fill(kinds[b], counts(bool(y[b]), part == "train", rng), rng)
    flat = kinds.ravel()
    X = rng.standard_normal((len(flat), n_features))
    X[flat != BACKGROUND] *= 0.5
    X[:, 0] += 4.0 * (flat == FIRST) - 4.0 * (flat == SECOND)
    X[:, 1] -= 10.0 * (flat == DECOY)
    truth = np.isin(flat, (FIRST, SECOND)).astype(np.int64)
    return Bags.from_arrays(X, np.repeat(np.arange(n_bags), bag_size), y=y), truth


def _fill(kinds: Ints, counts: dict[int, int], rng: np.random.Generator) -> None:
    """Put so many instances of each kind in random places of a bag; the rest is background."""
    places = iter(rng.permutation(len(kinds)))
    for kind, n in counts.items():
        for _ in range(n):
            kinds[next(places)] = kind
