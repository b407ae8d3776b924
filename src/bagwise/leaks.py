"""Warnings about features that look like instance labels, which would give the truth away."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.distributed import DistributedData, training_data
from bagwise.distributed.data import Part

Array = NDArray[Any]


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


def suspects(bags: Bags) -> list[str]:
    """Warnings about features that look like instance labels.

    A feature does if it is 0 or 1, never 1 in a negative bag, and 1 somewhere in at least half of
    the positive ones. Labels of bags are 0 and 1.
    """
    T = np.asarray(bags.y) == 1
    found = _ones(bags, T)
    alike = found.binary & ~found.in_negative & (found.positive >= 0.5 * np.sum(T))
    names = bags.feature_names or [f"x{j}" for j in range(bags.n_features)]
    return [
        f"warning: the feature {names[j]!r} looks like instance labels: it is 0 or 1, and 0 in all "
        f"negative bags; if it is, fit again with --instance-label {names[j]}"
        for j in np.flatnonzero(alike)
    ]


def _ones(bags: Bags, T: NDArray[np.bool_]) -> Ones:
    data = training_data(bags.X, bags.offsets, T)
    if not isinstance(data, DistributedData):
        return count_ones(bags.X, bags.offsets, T)
    cluster = data.rows.cluster
    counts = [cluster.submit(_of_part, X, data.part(i)) for i, X in enumerate(data.rows.futures)]
    return reduce(add, cluster.gather(counts))


def count_ones(X: Array, offsets: NDArray[np.int64], T: NDArray[np.bool_]) -> Ones:
    """Where each feature is 1.

    >>> X = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 1.0]])
    >>> count_ones(X, np.array([0, 1, 2]), np.array([False, True]))
    Ones(binary=array([ True,  True, False]),
         in_negative=array([False,  True, False]), positive=array([1, 0, 0]))
    """
    binary = np.all((X == 0) | (X == 1), axis=0)
    in_negative, positive = np.zeros(len(binary), dtype=bool), np.zeros(len(binary), dtype=np.int64)
    any_one = np.maximum.reduceat(X[:, binary], offsets[:-1], axis=0) == 1  # (B, F)
    in_negative[binary] = np.any(any_one[~T], axis=0)
    positive[binary] = np.sum(any_one[T], axis=0)
    return Ones(binary, in_negative, positive)


def _of_part(X: Any, part: Part) -> Ones:
    return count_ones(np.asarray(X), part.offsets, part.T)
