"""How much the instances of a bag differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise.metrics.inputs import Floats


def bag_variability(p: ArrayLike, bags: Any) -> Floats:
    """Standard deviation of the instance probabilities inside each bag [M24, Sec. 4.4].

    >>> from bagwise import Bags
    >>> bag_variability([0.1, 0.3, 0.5], Bags.from_list([[[1.0], [2.0]], [[3.0]]]))
    array([0.1, 0. ])
    """
    values = np.asarray(p, dtype=np.float64)
    if values.shape != (bags.n_instances,):
        raise ValueError(
            f"p must have one entry per instance: {bags.n_instances}; got shape {values.shape}"
        )
    mean = np.add.reduceat(values, bags.offsets[:-1]) / bags.sizes
    deviation = values - mean[bags.bag_index]
    return np.sqrt(np.add.reduceat(deviation**2, bags.offsets[:-1]) / bags.sizes)
