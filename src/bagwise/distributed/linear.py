"""A design whose rows stay with Dask workers: they add up their own blocks, only sums travel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numpy.typing import NDArray

from bagwise.core.linear.design import Design, Step, add_up
from bagwise.distributed import DistributedData
from bagwise.distributed.passes import Part

Array = NDArray[Any]


class DistributedDesign(Design):
    """The same sums over the parts of distributed data.

    `blocks` gathers the rows here. Only data with fewer instances than features are fitted from
    them, which are small.
    """

    data: DistributedData

    def __init__(
        self, data: DistributedData, shift: Array, scale: Array, columns: Array | None = None
    ) -> None:
        super().__init__(data, shift, scale, columns)
        self._parts: list[Any] = []

    def total(self, change: Callable[[Array], Array]) -> Callable[[Step], Any]:
        """What sums a step over the workers' blocks."""
        cluster = self.data.rows.cluster
        if not self._parts:
            self._parts = [
                cluster.submit(
                    _prepared, X, self.data.part(i), self.shift, self.scale, self.columns
                )
                for i, X in enumerate(self.data.rows.futures)
            ]

        def sums(step: Step) -> Any:
            return cluster.total(partial(_sum, change=change, step=step), self._parts)

        return sums


# --- What runs on workers -----------------------------------------------------------------------


def _prepared(X: Any, part: Part, shift: Array, scale: Array, columns: Array) -> Design:
    return Design(part.data(X), shift, scale, columns).prepared()


def _sum(design: Design, change: Callable[[Array], Array], step: Step) -> Any:
    return add_up(design.blocks, lambda X, targets: step(change(X), targets))
