"""A coupling for each group of bags: lambda of a scanner, a stain, or an image.

The precision I + lambda R is linear in the weights of the graph's edges, none of which crosses
bags: a lambda of its own for each bag is a graph whose edges weigh as much, with lambda = 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bagwise.core.parameters import check_number

Array = NDArray[Any]


@dataclass(frozen=True)
class GroupCouplings:
    """lambda by group; groups are compared as text. Bags of other groups have the mean.

    >>> by_scanner = GroupCouplings(("a", "b"), (0.2, 0.6))
    >>> by_scanner.of_bags(["b", "a", "c"], 3).round(2)
    array([0.6, 0.2, 0.4])
    """

    groups: tuple[str, ...]
    couplings: tuple[float, ...]

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        if len(self.groups) != len(self.couplings) or len(set(self.groups)) != len(self.groups):
            raise ValueError("couplings by group: one number for each of different groups")
        if not self.groups:
            raise ValueError("couplings by group: give at least one, {group: lambda}")
        for group, lam in zip(self.groups, self.couplings, strict=True):
            check_coupling(lam, f"coupling of group {group!r:.80}")

    @classmethod
    def of(cls, given: Mapping[Any, float]) -> GroupCouplings:
        """Of a dict."""
        return cls(tuple(str(g) for g in given), tuple(given.values()))

    def as_dict(self) -> dict[str, float]:
        """{group: lambda}."""
        return dict(zip(self.groups, self.couplings, strict=True))

    @property
    def none(self) -> bool:
        """Whether nothing is coupled."""
        return not any(self.couplings)

    def of_bags(self, groups: Any, n_bags: int) -> Array:
        """(B,) lambda of bags of these groups; of all bags the mean where they have none."""
        shared = float(np.mean(self.couplings))
        if groups is None:
            return np.full(n_bags, shared)
        known = self.as_dict()
        return np.array([known.get(str(g), shared) for g in np.asarray(groups).tolist()])

    def weigh(self, graph: Any, groups: Any, sizes: Array) -> Any:
        """The graph whose edges weigh as much as their bag is coupled."""
        rows = np.repeat(self.of_bags(groups, len(sizes)), sizes)
        weighed = sparse.csr_array(sparse.diags_array(rows) @ graph)
        weighed.eliminate_zeros()
        return weighed


def check_coupling(lam: Any, name: str = "coupling ('learn' or lambda)") -> None:
    """Raise where lambda is no number, or would push neighbours apart."""
    if isinstance(lam, int | float | np.number) and not isinstance(lam, bool) and lam < 0:
        raise ValueError(
            f"{name} must be at least 0, got {lam!r}: a negative lambda pushes neighbours apart, "
            "and I + lambda R is then no precision of anything on most graphs; use 0, which leaves "
            "neighbours alone"
        )
    check_number(name, lam, at_least=0)
