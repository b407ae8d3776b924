"""How unlike those of other bags a score is: p-values that hold whatever the distribution.

Scores of bags that were left out of a fit and that of a new bag of the same kind may stand in any
order, all orders being equally probable. So the share of left-out scores that are as strange as the
new one, itself counted in, is a p-value: it is at most alpha in at most a share alpha of new bags
[Vovk et al. 2005]. What belongs together (the bags of a patient, the instances of a bag) is one
unit, whose members share its weight [Dunn, Wasserman and Ramdas 2022]:

    p(s) = (1 + sum_u share of the members of u with scores >= s) / (1 + number of units).

Left-out scores come from fits to four fifths of the bags, those of new bags from the fit to all:
that these are about alike is the one assumption, as in cross-conformal prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.calibration.bags import calibrate
from bagwise.core.calibration.left_out import LeftOut
from bagwise.core.parameters import check_number
from bagwise.core.warnings import warn_user

Array = NDArray[Any]
Flags = NDArray[np.bool_]

MOST_STEPS = 1000  # of a distribution that is kept


@dataclass(frozen=True)
class Reference:
    """Scores that new ones are compared with; the larger, the stranger.

    >>> three = Reference.of(np.array([0.1, 0.5, 0.9]))
    >>> three.p_value(np.array([0.0, 0.5, 1.0]))
    array([1.  , 0.75, 0.25])
    """

    steps: Array  # (K,) scores, rising
    beyond: Array  # (K,) number of units, in parts, whose scores are above that
    n_units: float

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        steps, beyond = np.asarray(self.steps), np.asarray(self.beyond)
        if not (steps.ndim == 1 and len(steps) and steps.shape == beyond.shape):
            raise ValueError("reference: steps and beyond must be of the same length")
        if not (steps.dtype.kind == beyond.dtype.kind == "f" and np.all(np.isfinite(steps))):
            raise ValueError("reference: steps and beyond must be finite numbers")
        check_number("reference: n_units", self.n_units, above=0)
        falls = np.append(self.n_units, beyond)
        if not (np.all(np.diff(steps) > 0) and np.all(np.diff(falls) <= 0) and beyond[-1] == 0):
            raise ValueError("reference: steps must rise, and what is beyond them fall to zero")

    @classmethod
    def of(
        cls, scores: Array, units: Array | None = None, counts: Array | None = None
    ) -> Reference:
        """The distribution of scores (n,), each a member of one of the `units`, or one by itself.

        `counts` (n,) say how many times each score counts.
        """
        weights = unit_weights(len(scores), units, counts)
        steps, place = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True)
        own = np.bincount(place, weights, len(steps))
        beyond = np.append(np.cumsum(own[:0:-1])[::-1], 0.0)
        kept = _kept_steps(len(steps))
        return cls(steps[kept], beyond[kept], float(weights.sum()))

    def p_value(self, scores: Array) -> Array:
        """p(s) of each score; where steps were left out the larger one, which promises less."""
        below = np.searchsorted(self.steps, scores, side="left")
        at_least = np.append(self.n_units, self.beyond)[below]
        return (1.0 + at_least) / (1.0 + self.n_units)

    @property
    def smallest(self) -> float:
        """The smallest p-value there is, of what is stranger than all."""
        return 1.0 / (1.0 + self.n_units)

    def accepted(self, scores: Array, alpha: float, of: str) -> Flags:
        """Which scores are not too strange: at most a share alpha of new ones is left out.

        `of` says whose scores these are, where they are too few to leave any out.
        """
        least = self.smallest
        if least > alpha:
            warn_user(
                f"alpha={alpha:g} is less than {self.n_units:.3g} {of} that were left out of the "
                f"fit can tell, 1 / (1 + {self.n_units:.3g}) = {least:.3g}, so that none is ruled "
                "out; use a larger alpha, or fit to more of them"
            )
        return self.p_value(scores) > alpha


def _kept_steps(n: int) -> NDArray[np.intp]:
    """Numbers of the steps that are kept: of many all that are strange, and some of the others."""
    if n <= MOST_STEPS:
        return np.arange(n)
    half = MOST_STEPS // 2
    others = np.linspace(0, n - half - 1, MOST_STEPS - half).astype(np.intp)
    return np.append(others, np.arange(n - half, n))


def unit_weights(n: int, units: Array | None = None, counts: Array | None = None) -> Array:
    """(n,) weights of the members of units, which add up to the number of units.

    A unit counts as often as its members do on average. Where units count differently, they tell
    as much as fewer that count alike [Kish 1965]: (sum w)^2 / sum w^2.

    >>> unit_weights(3, np.array(["a", "a", "b"]))
    array([0.5, 0.5, 1. ])
    >>> unit_weights(2, counts=np.array([3.0, 1.0])).sum()
    np.float64(1.6)
    """
    c = np.ones(n)
    if counts is not None:  # whose unit does not matter, but squares of which must be numbers
        c = np.ldexp(counts, -np.frexp(np.max(counts))[1])
    unit = np.arange(n) if units is None else np.unique(units, return_inverse=True)[1]
    size, total = np.bincount(unit), np.bincount(unit, c)
    of_unit = total / size
    scale = of_unit.sum() / np.sum(of_unit**2)
    return scale * c / size[unit]


@dataclass(frozen=True)
class LeftOutBags:
    """Calibrated logits of training bags by fits that did not see them, and what they are.

    >>> z, T = np.array([-3.0, -1.0, 2.0, -2.0, 1.0, 3.0]), np.arange(6) > 2
    >>> LeftOutBags(z, T).sets(np.array([-4.0, 0.0, 4.0]), alpha=0.3)
    array([[ True, False],
           [ True,  True],
           [False,  True]])
    """

    logits: Array  # (B,)
    T: Flags  # (B,)
    groups: NDArray[np.int64] | None = None  # (B,) numbers of what belongs together
    counts: Array | None = None  # (B,) how many times each bag counts

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        logits, T = np.asarray(self.logits), np.asarray(self.T)
        if logits.ndim != 1 or logits.dtype.kind != "f" or not np.all(np.isfinite(logits)):
            raise ValueError("left-out bags: logits must be finite numbers")
        if T.shape != logits.shape or T.dtype != bool or T.all() or not T.any():
            raise ValueError("left-out bags: T must say which are positive, some but not all")
        groups, counts = self.groups, self.counts
        whole = groups is None or np.asarray(groups).dtype.kind == "i"
        if not whole or np.shape(T if groups is None else groups) != T.shape:
            raise ValueError("left-out bags: groups must be None or whole numbers")
        if counts is not None:
            real = np.shape(counts) == T.shape and np.asarray(counts).dtype.kind == "f"
            if not (real and np.all(np.isfinite(counts)) and np.all(np.asarray(counts) > 0)):
                raise ValueError("left-out bags: counts must be None or positive numbers")

    def of_class(self, positive: bool) -> Flags:
        """(B,) which bags are of a class."""
        return self.T if positive else ~self.T

    def weights_of(self, positive: bool) -> Array:
        """(n,) weights of the bags of a class, which add up to the number of their units."""
        return unit_weights(int(self.of_class(positive).sum()), *self._units(positive))

    def strangeness(self, positive: bool) -> Reference:
        """How unlike one class its own bags look."""
        sign = -1.0 if positive else 1.0
        return Reference.of(sign * self.logits[self.of_class(positive)], *self._units(positive))

    def _units(self, positive: bool) -> tuple[Array | None, Array | None]:
        """Groups and counts of the bags of a class."""
        own = self.of_class(positive)
        groups = None if self.groups is None else self.groups[own]
        return groups, None if self.counts is None else self.counts[own]

    def sets(self, logits: Array, alpha: float) -> Flags:
        """(n, 2) whether new bags with these logits may be negative, and positive.

        Of new bags of either class a share of at most alpha is without its own label.
        """
        what = "bags" if self.groups is None else "groups with bags"
        sides = [
            self.strangeness(positive).accepted(sign * logits, alpha, f"{name} {what}")
            for positive, sign, name in ((False, 1.0, "negative"), (True, -1.0, "positive"))
        ]
        return np.column_stack(sides)


def known_positives(
    instance_logits: Array, bags: Bags, known: Array | None, counts: Array | None
) -> Reference | None:
    """How unlike positives the known ones of left-out bags look; None where none is known.

    Those of a bag, or of a group of bags, share its weight, so that a share of missed positives is
    one of each bag's on average [Angelopoulos et al. 2024].
    """
    positive = np.zeros(bags.n_instances, dtype=bool) if known is None else known == 1
    if not positive.any():
        return None
    bag = bags.bag_index[positive]
    units = bag if bags.groups is None else np.asarray(bags.groups)[bag]
    return Reference.of(-instance_logits[positive], units, None if counts is None else counts[bag])


def check_alpha(alpha: Any) -> float:
    """A share of errors that is asked for."""
    if check_number("alpha", alpha, above=0) >= 1:
        raise ValueError(f"alpha is a share of errors, between 0 and 1, got {alpha}")
    return float(alpha)


def left_out_bags(
    found: LeftOut,
    bags: Bags,
    T: Flags,
    pooled: Array | None = None,
    counts: Array | None = None,
) -> LeftOutBags:
    """What is kept of left-out bags; `pooled` (B,) are logits of their mean features, if any."""
    logits = calibrated_left_out(found, T, pooled, counts)
    groups = bags.groups
    numbers = None if groups is None else np.unique(groups, return_inverse=True)[1]
    return LeftOutBags(
        logits,
        T,
        None if numbers is None else numbers.astype(np.int64),
        None if counts is None else np.asarray(counts, dtype=np.float64),
    )


def calibrated_left_out(
    found: LeftOut, T: Flags, pooled: Array | None, counts: Array | None
) -> Array:
    """(B,) logits of left-out bags by calibrations to the other folds.

    Neither the fit nor the calibration has seen the label of the bag.
    """
    pooled = np.zeros(len(T)) if pooled is None else pooled
    logits = np.empty(len(T))
    for k in range(int(found.folds.max()) + 1):
        out = found.folds == k
        others = None if counts is None else counts[~out]
        own = calibrate(_part(found, ~out), T[~out], pooled[~out], others)
        part = _part(found, out)
        logits[out] = own.logit(part.bag_scores, own.offset(part.log_sizes, pooled[out]))
    return logits


def _part(found: LeftOut, some: Flags) -> LeftOut:
    """Scores of some of the bags, without those of instances."""
    sizes = None if found.sizes is None else found.sizes[some]
    return LeftOut(found.bag_scores[some], np.empty(0), found.folds[some], sizes)
