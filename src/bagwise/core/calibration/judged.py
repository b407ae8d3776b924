"""The bags that judge kernels when they are left out, and the table of what they found of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.calibration.left_out import cut_folds
from bagwise.core.inference.passes import TrainingData
from bagwise.core.inference.thinning import rows_per_bag, some_bags
from bagwise.kernels import Kernel

Array = NDArray[Any]
Flags = NDArray[np.bool_]

WHOLE_ROWS = 8_000  # instances up to which candidates are judged by all of them
SAMPLE_ROWS = 8_000  # of more; half of it, 40 bags of 100, often takes too simple a kernel
ROWS_PER_BAG = 100  # of large bags that are sampled, before fewer bags are looked at
POWER = 2 / 3  # of the likelihood of left-out bags, in weights of candidates
LEAST_WEIGHT = 0.1  # of a candidate that takes part in the average, as a share of the best one's


@dataclass(frozen=True)
class JudgedBags:
    """Bags in memory by which candidates are judged: all of them, or a sample."""

    bags: Bags
    T: Flags
    known: Array | None
    folds: NDArray[np.int64]
    whole: bool
    counts: Array | None = None  # (B,) how many times each bag counts, which is positive
    reliability: Array | None = None  # (B,) how probably each label is right


def bags_to_judge(
    bags: Bags,
    T: Flags,
    known: Array | None,
    seed: int,
    counts: Array | None = None,
    reliability: Array | None = None,
    in_parts: bool = True,
) -> JudgedBags:
    """All bags that count, or of many instances some rows of them, drawn without looking.

    Instance labels that are known belong to whole bags, and are not used where rows are left out.
    Not `in_parts`, some of the bags are taken whole.
    """
    data = TrainingData(bags.X, bags.offsets, T, counts=counts, reliability=reliability)
    some = data.counting
    whole = int(bags.sizes[some].sum()) <= WHOLE_ROWS
    if whole or not in_parts:
        some = some if whole else some_bags(data, SAMPLE_ROWS, seed)
        here, known = _in_memory(bags, known, some)
        labels = (T[some], known, cut_folds(here, T[some], seed), whole)
        return JudgedBags(here, *labels, data.counts_of(some), data.reliability_of(some))
    rng = np.random.default_rng(seed)
    k = rows_per_bag(data, SAMPLE_ROWS, rng, least=ROWS_PER_BAG)
    some = np.flatnonzero(k)
    drawn = [np.sort(rng.choice(bags.sizes[b], k[b], replace=False)) for b in some]
    rows = np.concatenate([bags.offsets[b] + own for b, own in zip(some, drawn, strict=True)])
    groups = None if bags.groups is None else np.asarray(bags.groups)[some]
    X = np.asarray(bags.X[rows], dtype=np.float64)
    here = Bags.from_arrays(X, np.repeat(np.arange(len(some)), k[some]), groups=groups)
    labels = (T[some], None, cut_folds(here, T[some], seed), False)
    return JudgedBags(here, *labels, data.counts_of(some))


def _in_memory(
    bags: Bags, known: Array | None, some: NDArray[np.intp]
) -> tuple[Bags, Array | None]:
    """Some of the bags with their known labels, their features in memory."""
    if len(some) < len(bags):
        known = None if known is None else known[np.isin(bags.bag_index, some)]
        bags = bags[some]
    return bags.with_X(np.asarray(bags.X[:], dtype=np.float64)), known


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
