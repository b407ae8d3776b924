"""Features of 0 and 1 that look like labels, which would give the truth away (internal)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.column_names import is_label_name

Array = NDArray[Any]

FEW_BAGS = 4  # of a class: among fewer, features agree with labels by chance
_FIRST_ROWS = 1024  # tell most features that are not 0 and 1


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


def describe(found: Ones, T: NDArray[np.bool_], names: Sequence[str]) -> dict[str, str]:
    """Features that look like labels, by their values or by their names, and why."""
    alike = found.like_labels(T)
    reasons = {}
    for j in np.flatnonzero(found.binary).tolist():
        if alike[j]:
            reasons[names[j]] = "it is 0 or 1, and 0 in all negative bags"
        elif is_label_name(names[j]):
            reasons[names[j]] = "it is 0 or 1, and its name speaks of labels"
    return reasons
