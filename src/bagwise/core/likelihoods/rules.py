"""Bag rules: what the label of a bag says of how many of its instances are positive.

A rule is one method, `log_label`: log p(label | k of n instances are positive). All else, the
log-probability of a label given latent values with its derivatives, the labels of instances given
it, and what is predicted of new bags, follows from that in `counts`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise.core.parameters import check_integer, check_number

Array = NDArray[Any]

AT_LEAST_ONE = "at_least_one"


class BagRule(ABC):
    """log p(label | k of n positive); a subclass is a frozen dataclass, which model files hold.

    It is best log-concave in k, as those below are. A label is right with probability
    `reliability`, which says how probable it is where it is wrong, too.
    """

    shares: ClassVar[bool] = False  # labels are numbers from 0 to 1, not one of two classes
    fewest: int = 1  # positives that a bag of the positive class has, where labels are classes
    highest: float = 0.0  # what log p(label | k) may be at most

    @abstractmethod
    def log_label(self, k: Array, n: Array, label: Array, reliability: Array | float) -> Array:
        """(B, C) for k (B, C) of n (B, 1) instances, labels and reliabilities (B, 1)."""


@dataclass(frozen=True)
class AtLeast(BagRule):
    """A bag is positive if at least `k` of its instances are.

    AtLeast(1) is the usual rule. Bags of fewer than k instances are then negative.

    >>> rule = AtLeast(2)
    >>> k = np.arange(4)[None]  # of three instances
    >>> np.exp(rule.log_label(k, np.array([[3]]), np.array([[True]]), 0.9)).round(2)
    array([[0.1, 0.1, 0.9, 0.9]])
    """

    k: int = 2

    def __post_init__(self) -> None:
        check_integer("k of AtLeast", self.k, at_least=1)

    @property
    def fewest(self) -> int:  # type: ignore[override]
        """k."""
        return self.k

    def log_label(self, k: Array, n: Array, label: Array, reliability: Array | float) -> Array:
        """log of the reliability where the label is right, of the rest where it is wrong."""
        right = (k >= self.k) == np.asarray(label, dtype=bool)
        with np.errstate(divide="ignore"):  # labels that are never wrong
            return np.where(right, np.log(reliability), np.log1p(-np.asarray(reliability)))


@dataclass(frozen=True)
class Share(BagRule):
    """The label of a bag is the share of its instances that are positive, known to `std`.

    Given k of n positives a label is normal about k / n with standard deviation `std`; what may
    lie outside of 0 to 1 is not cut off. A label that is wrong may be any share.

    >>> rule = Share(std=0.1)
    >>> k = np.arange(5)[None]  # of four instances
    >>> np.exp(rule.log_label(k, np.array([[4]]), np.array([[0.5]]), 1.0)).round(2)
    array([[0.  , 0.18, 3.99, 0.18, 0.  ]])
    """

    std: float = 0.05
    shares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("std of Share (standard deviation of the labels)", self.std, above=0)
        if self.std > 1:
            raise ValueError(
                f"std of Share is the standard deviation of shares, which lie from 0 to 1; got "
                f"{self.std!r}; give 0.05 for shares that are known to 5 %"
            )

    @property
    def highest(self) -> float:  # type: ignore[override]
        """log of the density at its peak."""
        return -float(np.log(self.std * np.sqrt(2 * np.pi)))

    def log_label(self, k: Array, n: Array, label: Array, reliability: Array | float) -> Array:
        """log of a normal density, with one of a uniform one where the label may be wrong."""
        deviation = (k / n - label) / self.std
        log_normal = -0.5 * deviation**2 - np.log(self.std * np.sqrt(2 * np.pi))
        with np.errstate(divide="ignore"):
            wrong = np.log1p(-np.asarray(reliability, dtype=np.float64))
            return np.logaddexp(np.log(reliability) + log_normal, wrong)


def check_rule(rule: Any) -> BagRule:
    """The rule that an argument is, where it is not the name of the usual one."""
    if isinstance(rule, BagRule):
        return rule
    raise ValueError(
        f"rule must be 'at_least_one', or a rule such as bagwise.AtLeast(2) or "
        f"bagwise.Share(std=0.05), got {rule!r}"
    )
