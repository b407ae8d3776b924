"""Features that look like labels, which would give the truth away (internal)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FEW_BAGS = 4  # of a class: among fewer, features agree with labels by chance
_FIRST_ROWS = 1024  # tell most features that are not 0 and 1, or not constant in bags
_BY_CHANCE = 1e-3  # of features that separate the classes without having to do with them
_LABEL_WORD = re.compile(
    r"(^|[^a-z])(labels?|truth|target|diagnosis|annotations?|annotated)($|[^a-z])", re.IGNORECASE
)
COPY = (
    "is the same in all instances of each bag and tells the classes apart alone, as a copy of the "
    "label would"
)


@dataclass(frozen=True)
class Ones:
    """Where each feature of some bags is 1; all but the first field matter only if it is 0 or 1."""

    binary: NDArray[np.bool_]  # (D,) 0 or 1 in all instances
    in_negative: NDArray[np.bool_]  # (D,) 1 in some negative bag
    positive: NDArray[np.int64]  # (D,) positive bags in which it is 1 somewhere

    def __add__(self, other: Ones) -> Ones:
        return Ones(
            self.binary & other.binary,
            self.in_negative | other.in_negative,
            self.positive + other.positive,
        )

    def like_labels(self, T: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Features that are never 1 in a negative bag, and 1 in at least half of the positive."""
        if min(np.sum(T), np.sum(~T)) < FEW_BAGS:
            return np.zeros(len(self.binary), dtype=bool)
        return self.binary & ~self.in_negative & (self.positive >= 0.5 * np.sum(T))


def count_ones(X: Array, offsets: NDArray[np.int64], T: NDArray[np.bool_]) -> Ones:
    """Where each feature is 1.

    >>> X = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 1.0]])
    >>> count_ones(X, np.array([0, 1, 2]), np.array([False, True]))
    Ones(binary=array([ True,  True, False]),
         in_negative=array([False,  True, False]), positive=array([1, 0, 0]))
    """
    binary = _is_binary(X[:_FIRST_ROWS])
    binary[binary] = _is_binary(X[:, binary])
    in_negative, positive = np.zeros(len(binary), dtype=bool), np.zeros(len(binary), dtype=np.int64)
    any_one = np.maximum.reduceat(X[:, binary], offsets[:-1], axis=0) == 1  # (B, F)
    in_negative[binary] = np.any(any_one[~T], axis=0)
    positive[binary] = np.sum(any_one[T], axis=0)
    return Ones(binary, in_negative, positive)


def _is_binary(X: Array) -> NDArray[np.bool_]:
    return np.asarray(np.all((X == 0) | (X == 1), axis=0))


@dataclass(frozen=True)
class Levels:
    """Where features lie that are constant inside bags; the others have no meaning there."""

    constant: NDArray[np.bool_]  # (D,) the same in all instances of each bag
    low: NDArray[np.float64]  # (2, D) lowest in negative and in positive bags
    high: NDArray[np.float64]  # (2, D)
    n_rows: int

    def __add__(self, other: Levels) -> Levels:
        return Levels(
            self.constant & other.constant,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.n_rows + other.n_rows,
        )

    def separate(self, T: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Features that are constant in bags and tell the two classes apart by themselves.

        Not where most bags have one instance: there every feature is constant.
        """
        n_positive = int(np.sum(T))
        if min(n_positive, len(T) - n_positive) < FEW_BAGS or self.n_rows < 2 * len(T):
            return np.zeros(len(self.constant), dtype=bool)
        apart = (self.high[0] < self.low[1]) | (self.high[1] < self.low[0])
        one_value_each = np.all(self.low == self.high, axis=0)
        chance = 2 * int(np.sum(self.constant)) / comb(len(T), n_positive)
        return np.asarray(self.constant & apart & (one_value_each | (chance < _BY_CHANCE)))


def find_levels(X: Array, offsets: NDArray[np.int64], T: NDArray[np.bool_]) -> Levels:
    """Where features lie that are constant inside bags.

    >>> X = np.array([[1.0, 1.0], [1.0, 2.0], [2.0, 1.0], [2.0, 1.0]])
    >>> find_levels(X, np.array([0, 2, 4]), np.array([False, True])).constant
    array([ True, False])
    """
    starts, head = offsets[:-1], X[:_FIRST_ROWS]
    constant = _is_constant(head, starts[starts < len(head)])
    constant[constant] = _is_constant(X[:, constant], starts)
    values = X[starts][:, constant]  # (B, F)
    low, high = np.full((2, len(constant)), np.inf), np.full((2, len(constant)), -np.inf)
    for side, bags in enumerate((~T, T)):
        low[side, constant] = np.min(values[bags], axis=0, initial=np.inf)
        high[side, constant] = np.max(values[bags], axis=0, initial=-np.inf)
    return Levels(constant, low, high, len(X))


def _is_constant(X: Array, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    low, high = (f.reduceat(X, starts, axis=0) for f in (np.minimum, np.maximum))
    return np.asarray(np.all(low == high, axis=0))


@dataclass(frozen=True)
class Signs:
    """What features have of labels; that of parts of the bags adds up."""

    ones: Ones
    levels: Levels

    def __add__(self, other: Signs) -> Signs:
        return Signs(self.ones + other.ones, self.levels + other.levels)


def look(X: Array, offsets: NDArray[np.int64], T: NDArray[np.bool_]) -> Signs:
    """What the features of bags have of labels, of which T says which are positive."""
    return Signs(count_ones(X, offsets, T), find_levels(X, offsets, T))


def copies(found: Signs, T: NDArray[np.bool_], names: Sequence[str]) -> list[str]:
    """Features that look like copies of the bags' labels, as 1 and 2 for instance."""
    return [names[j] for j in np.flatnonzero(found.levels.separate(T)).tolist()]


def describe(found: Signs, T: NDArray[np.bool_], names: Sequence[str]) -> dict[str, str]:
    """Features of 0 and 1 that look like labels, by their values or by their names, and why."""
    alike = found.ones.like_labels(T)
    reasons = {}
    for j in np.flatnonzero(found.ones.binary).tolist():
        if alike[j]:
            reasons[names[j]] = "it is 0 or 1, and 0 in all negative bags"
        elif is_label_name(names[j]):
            reasons[names[j]] = "it is 0 or 1, and its name speaks of labels"
    return reasons


def is_label_name(name: str) -> bool:
    """Whether a name speaks of labels.

    >>> is_label_name("tile_label"), is_label_name("ground truth"), is_label_name("labelled_area")
    (True, True, False)
    """
    return _LABEL_WORD.search(name) is not None
