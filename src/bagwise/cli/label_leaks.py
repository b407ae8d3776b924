"""Warnings about features that look like instance labels, which would give the truth away."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.bags.label_like import Ones, count_ones, describe
from bagwise.distributed import DistributedData, training_data
from bagwise.distributed.passes import Part


def suspects(bags: Bags) -> list[str]:
    """Warnings about features that look like instance labels, see `bagwise.bags.label_like`.

    Labels of bags are 0 and 1.
    """
    T = np.asarray(bags.y) == 1
    names = bags.feature_names or [f"x{j}" for j in range(bags.n_features)]
    return [
        f"warning: the feature {name!r} looks like instance labels: {reason}; if it is, fit again "
        f"with --instance-label {name}"
        for name, reason in describe(_ones(bags, T), T, names).items()
    ]


def _ones(bags: Bags, T: NDArray[np.bool_]) -> Ones:
    data = training_data(bags.X, bags.offsets, T)
    if not isinstance(data, DistributedData):
        return count_ones(bags.X, bags.offsets, T)
    cluster = data.rows.cluster
    counts = [cluster.submit(_of_part, X, data.part(i)) for i, X in enumerate(data.rows.futures)]
    return reduce(add, cluster.gather(counts))


def _of_part(X: Any, part: Part) -> Ones:
    return count_ones(np.asarray(X), part.offsets, part.T)
