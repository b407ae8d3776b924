"""Which instances a page shows where there are too many for a file that opens at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags

MAX_INSTANCES = 100_000
MAX_THUMBNAIL_BYTES = 1_500_000


def shown_rows(bags: Bags, p: NDArray[np.float64], limit: int = MAX_INSTANCES) -> list[NDArray]:
    """For each bag the rows of `bags.X` to show, in their order; all of them where they fit.

    A bag above its share of the limit keeps its most probable instances (half of the share) and
    others evenly spaced over the ranking, so that the least probable are seen too.

    >>> bags = Bags.from_list([np.zeros((2, 1)), np.zeros((8, 1))])
    >>> [r.tolist() for r in shown_rows(bags, np.arange(10) / 10, limit=6)]
    [[0, 1], [2, 7, 8, 9]]
    """
    share = fair_share(bags.sizes, limit)
    rows = []
    for start, stop in zip(bags.offsets[:-1], bags.offsets[1:], strict=True):
        if stop - start <= share:
            rows.append(np.arange(start, stop))
            continue
        ranked = start + np.argsort(-p[start:stop], kind="stable")
        top = ranked[: share - share // 2]
        rest = ranked[len(top) :]
        spaced = rest[np.linspace(0, len(rest) - 1, share // 2).round().astype(np.int64)]
        rows.append(np.sort(np.concatenate([top, spaced])))
    return rows


def fair_share(sizes: NDArray[np.int64], limit: int) -> int:
    """The largest number per bag such that bags cut to it hold at most `limit` in all.

    >>> fair_share(np.array([2, 8]), 6)
    4
    """
    low, high = 1, int(sizes.max())
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(sizes, middle).sum()) <= limit:
            low = middle
        else:
            high = middle - 1
    return low
