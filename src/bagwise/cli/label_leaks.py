"""Warnings about features that look like labels, which would give the truth away."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.bags.label_like import COPY, Signs, copies, describe, look
from bagwise.distributed import DistributedData, training_data
from bagwise.distributed.passes import Part


def suspects(bags: Bags) -> list[str]:
    """Warnings about features that look like labels, see `bagwise.bags.label_like`.

    Labels of bags are 0 and 1.
    """
    T = np.asarray(bags.y) == 1
    names = bags.feature_names or [f"x{j}" for j in range(bags.n_features)]
    seen = _signs(bags, T)
    reasons = describe(seen, T, names)
    return [
        f"warning: the feature {name!r} looks like instance labels: {reason}; if it is, fit again "
        f"with --instance-label {name}"
        for name, reason in reasons.items()
    ] + [
        f"warning: the feature {name!r} {COPY}; if it is one, fit again and choose other columns "
        "with --features"
        for name in copies(seen, T, names)
        if name not in reasons
    ]


def _signs(bags: Bags, T: NDArray[np.bool_]) -> Signs:
    data = training_data(bags.X, bags.offsets, T)
    if not isinstance(data, DistributedData):
        return look(bags.X, bags.offsets, T)
    cluster = data.rows.cluster
    found = [cluster.submit(_of_part, X, data.part(i)) for i, X in enumerate(data.rows.futures)]
    return reduce(add, cluster.gather(found))


def _of_part(X: Any, part: Part) -> Signs:
    return look(np.asarray(X), part.offsets, part.T)
