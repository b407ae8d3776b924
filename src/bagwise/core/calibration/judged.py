"""The table of kernels that left-out bags have judged: what was found of each, and its weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.kernels import Kernel

Array = NDArray[Any]

POWER = 2 / 3  # of the likelihood of left-out bags, in weights of candidates
LEAST_WEIGHT = 0.1  # of a candidate that takes part in the average, as a share of the best one's


@dataclass(frozen=True)
class JudgedKernel:
    """What bags that were left out say of a candidate."""

    name: str
    kernel: Kernel  # in the units of its features
    standardized: bool
    log_likelihood: float  # of a bag that was left out, on average; -inf where the fit broke down
    auc: float
    n_bags: int
    chosen: bool = False  # whether it leads the average
    weight: float = 0.0  # in the average

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        if not (isinstance(self.name, str) and isinstance(self.kernel, Kernel)):
            raise ValueError("candidate: name must be a text and kernel a kernel")
        if not (self.log_likelihood <= 0 and 0 <= self.auc <= 1 and self.n_bags > 0):
            raise ValueError("candidate: no log-likelihood, AUC or number of bags")
        if not (isinstance(self.chosen, bool) and isinstance(self.standardized, bool)):
            raise ValueError("candidate: chosen and standardized must be True or False")
        if not 0 <= self.weight <= 1:
            raise ValueError("candidate: weight must be a share")


def weights_of(heights: Array, *, alone: bool = False) -> Array | None:
    """Weights of candidates by log-likelihoods of left-out bags; None where all fits broke down.

    Those that would have less than `LEAST_WEIGHT` of the best one's have none.

    >>> weights_of(np.array([-40.0, -41.0, -60.0, -np.inf])).round(2)
    array([0.66, 0.34, 0.  , 0.  ])
    """
    if np.max(heights) == -np.inf:
        return None
    relative = np.exp(POWER * (heights - np.max(heights)))
    relative[relative < (1 if alone else LEAST_WEIGHT)] = 0
    if alone:
        relative[np.arange(len(heights)) != np.argmax(heights)] = 0
    weights: Array = relative / relative.sum()
    return weights


def choice_line(table: Sequence[JudgedKernel]) -> str | None:
    """What was chosen and why, in one line; None where nothing was tried."""
    chosen = next((row for row in table if row.chosen), None)
    if chosen is None:
        return None
    others = sorted((row for row in table if row is not chosen), key=lambda row: -row.weight)
    beside = [row for row in others if row.weight > 0]
    best = max(others, key=lambda row: row.log_likelihood, default=None)
    than = "" if best is None or beside else f"; next: {best.name}, {best.log_likelihood:.3f}"
    if beside:
        than = "".join(f"; {row.weight:.0%} {row.name}" for row in beside)
        than = f"; averaged with its weight of {chosen.weight:.0%}{than}"
    return (
        f"{chosen.name}, of {len(table)} candidates that {chosen.n_bags} left-out bags judged: "
        f"log-likelihood {chosen.log_likelihood:.3f} per bag, AUC {chosen.auc:.3f}{than}"
    )
