"""From which probability on a bag is called positive, chosen on bags that were left out of fits.

A threshold for a sensitivity is that of the conformal set of the positive class: of new positive
bags at least that share is called positive on average (and likewise for a specificity). For a
cost, the ratio of a missed positive to a false alarm, it is where the calibrated odds are
1 : cost, the threshold of least expected cost. How far left-out bags settle it is found by giving
them, or whole groups of them, random weights (the Bayesian bootstrap [Rubin 1981]).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.calibration.conformal import LeftOutBags
from bagwise.core.parameters import check_number

Array = NDArray[Any]
Flags = NDArray[np.bool_]

DRAWS, BLOCKS = 1000, 10  # of weights, and how many at a time
LEVEL = 0.95  # of intervals
NEWTON_STEPS, TOLERANCE = 25, 1e-4
SLOPE_SCALE, B_SCALE = 1.0, 3.0  # of the priors of a and b, about 1 and 0
FURTHEST = 60.0  # logit of a threshold


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold, why it was chosen and what left-out bags say of it.

    >>> point = OperatingPoint("cost=1", 0.0, (-0.5, 0.5), 0.9, (0.8, 1.0), 0.7, (0.6, 0.8), 40, 40)
    >>> point.threshold, point.called_positive(np.array([[0.4, 0.6], [0.8, 0.2]]))
    (0.5, array([ True, False]))
    """

    asked: str  # e.g. "sensitivity=0.95"
    logit: float
    logit_interval: tuple[float, float]  # at LEVEL, as all intervals here
    sensitivity: float  # of left-out bags
    sensitivity_interval: tuple[float, float]
    specificity: float
    specificity_interval: tuple[float, float]
    n_positive: int  # left-out bags
    n_negative: int

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        if not isinstance(self.asked, str):
            raise ValueError("operating point: asked must be a text")
        check_number("operating point: logit", self.logit)
        for name in ("logit", "sensitivity", "specificity"):
            ends = getattr(self, f"{name}_interval")
            if not (isinstance(ends, tuple) and len(ends) == 2):
                raise ValueError(f"operating point: {name}_interval must be two numbers")
            low, high = (check_number(f"operating point: {name}_interval", end) for end in ends)
            if low > high:
                raise ValueError(f"operating point: {name}_interval must be in order")
        for name in ("sensitivity", "specificity"):
            value = check_number(f"operating point: {name}", getattr(self, name), at_least=0)
            if value > 1:
                raise ValueError(f"operating point: {name} must be at most 1, got {value}")
        for name in ("n_positive", "n_negative"):
            check_number(f"operating point: {name}", getattr(self, name), above=0)

    @property
    def threshold(self) -> float:
        """The probability from which on a bag is called positive."""
        return float(special.expit(self.logit))

    @property
    def interval(self) -> tuple[float, float]:
        """That of the threshold."""
        low, high = special.expit(np.array(self.logit_interval)).tolist()
        return low, high

    def words(self) -> str:
        """The point in one line, with its intervals."""

        def share(name: str) -> str:
            low, high = getattr(self, f"{name}_interval")
            return f"{name} {getattr(self, name):.3f} ({low:.3f} to {high:.3f})"

        low, high = self.interval
        bags = f"{self.n_positive} positive and {self.n_negative} negative bags"
        return (
            f"a probability of {self.threshold:.3g} on ({low:.3g} to {high:.3g}), for "
            f"{self.asked}: {share('sensitivity')} and {share('specificity')} of {bags} that were "
            "left out of fits"
        )

    def called_positive(self, p: Array) -> Flags:
        """Which bags with probabilities (B, 2) are called positive."""
        with np.errstate(divide="ignore"):  # logits keep apart what rounds to the same probability
            return np.log(p[:, 1]) - np.log(p[:, 0]) >= self.logit


def choose(
    kept: LeftOutBags,
    seed: int,
    *,
    sensitivity: float | None = None,
    specificity: float | None = None,
    cost: float | None = None,
) -> OperatingPoint:
    """The operating point for what was asked, one of the three; see the module's docstring.

    >>> z = np.linspace(-4, 4, 80)
    >>> point = choose(LeftOutBags(z + np.tile([-1.0, 1.0], 40), np.arange(80) % 2 == 1), 0, cost=5)
    >>> round(point.threshold, 3)  # 1 / (1 + cost)
    0.167
    """
    ((name, value),) = asked_for(
        sensitivity=sensitivity, specificity=specificity, cost=cost
    ).items()
    find = threshold_of_cost if name == "cost" else threshold_of_rate
    how = {"positive": name == "sensitivity"}
    equal = np.ones((1, len(kept.T)))
    # Probabilities are calibrated: left-out bags say no more than how far that is certain.
    logit = -np.log(value) if name == "cost" else find(kept, equal, float(value), **how)[0]
    logit = float(logit)
    drawn = [
        np.vstack([find(kept, weights, float(value), **how), *rates(kept, weights, logit)])
        for weights in random_weights(kept, seed)
    ]
    ends = np.quantile(np.hstack(drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1).T.tolist()
    sensitivity_, specificity_ = (float(rate[0]) for rate in rates(kept, equal, logit))
    return OperatingPoint(
        f"{name}={value:g}",
        logit,
        _pair(ends[0]),
        sensitivity_,
        _pair(ends[1]),
        specificity_,
        _pair(ends[2]),
        int(kept.T.sum()),
        int((~kept.T).sum()),
    )


def asked_for(**asked: float | None) -> dict[str, float]:
    """The one thing that was asked for, checked.

    >>> asked_for(sensitivity=0.95, specificity=None, cost=None)
    {'sensitivity': 0.95}
    """
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) != 1:
        raise ValueError(
            "choose one of sensitivity, specificity and cost, got "
            f"{' and '.join(given) if given else 'none of them'}"
        )
    ((name, value),) = given.items()
    check_number(name, value, above=0)
    if name != "cost" and not value < 1:
        raise ValueError(f"{name} is a share of bags, above 0 and below 1, got {value}")
    return {name: float(value)}


def _pair(ends: list[float]) -> tuple[float, float]:
    low, high = ends
    return low, high


def rates(kept: LeftOutBags, weights: Array, logit: float) -> tuple[Array, Array]:
    """Sensitivity and specificity of a threshold for each row of weights."""
    found = []
    for positive in (True, False):
        own = kept.of_class(positive)
        share = kept.weights_of(positive) * weights[:, own]
        right = (kept.logits[own] >= logit) == positive
        found.append((share @ right) / share.sum(axis=1))
    return found[0], found[1]


def random_weights(kept: LeftOutBags, seed: int) -> Iterator[Array]:
    """Blocks of rows (n, B) of random weights of mean 1, the same for all bags of a group."""
    B = len(kept.T)
    unit = np.arange(B) if kept.groups is None else np.unique(kept.groups, return_inverse=True)[1]
    rng = np.random.default_rng(seed)
    for _ in range(BLOCKS):
        yield rng.standard_exponential((DRAWS // BLOCKS, int(unit.max()) + 1))[:, unit]


def threshold_of_rate(kept: LeftOutBags, weights: Array, rate: float, *, positive: bool) -> Array:
    """For each row of weights the threshold that a share `rate` of new bags of a class keeps to.

    The bags of a class that lie on its side of the threshold are those whose conformal p-value
    exceeds 1 - rate.
    """
    sign = 1.0 if positive else -1.0
    own = kept.of_class(positive)
    z, w = sign * kept.logits[own], kept.weights_of(positive)
    W, allowed = float(w.sum()), (1 - rate) * (1 + float(w.sum())) - 1
    if allowed < -1e-9:
        name, what = ("sensitivity", "positive") if positive else ("specificity", "negative")
        units = "bags" if kept.groups is None else "groups with bags"
        raise ValueError(
            f"a {name} of {rate:g} of new bags cannot be chosen from {W:.3g} {what} {units}, which "
            f"allow at most {W / (1 + W):.3g}; ask for less, or fit to more bags"
        )
    order = np.argsort(z, kind="stable")
    share = (w * weights[:, own])[:, order]
    reached = np.cumsum(share, axis=1) * (W / share.sum(axis=1, keepdims=True))
    last = sign * z[order][np.argmax(reached > allowed, axis=1)]  # that is on its side
    return last if positive else np.nextafter(last, np.inf)


def threshold_of_cost(kept: LeftOutBags, weights: Array, cost: float, *, positive: bool) -> Array:
    """For each row of weights the logit z at which the odds are 1 : cost.

    Left-out logits are calibrated, but for what weights say of logit P(T) = a z + b, of which a and
    b are the most probable ones, by Newton's method.
    """
    z, sign = kept.logits, np.where(kept.T, 1.0, -1.0)
    counts = weights if kept.counts is None else weights * kept.counts
    a, b = np.ones((len(weights), 1)), np.zeros((len(weights), 1))
    for _ in range(NEWTON_STEPS):
        f = a * z + b
        pull = counts * sign * special.expit(-sign * f)
        w = counts * special.expit(f) * special.expit(-f)
        g_a, g_b = pull @ z - (a[:, 0] - 1) / SLOPE_SCALE**2, pull.sum(1) - b[:, 0] / B_SCALE**2
        h_aa, h_ab, h_bb = w @ z**2 + 1 / SLOPE_SCALE**2, w @ z, w.sum(1) + 1 / B_SCALE**2
        det = h_aa * h_bb - h_ab**2
        step = np.column_stack([h_bb * g_a - h_ab * g_b, h_aa * g_b - h_ab * g_a]) / det[:, None]
        step = np.clip(step, -1.0, 1.0)  # far from the mode Newton's are too long
        a, b = a + step[:, :1], b + step[:, 1:]
        if np.max(np.abs(step)) < TOLERANCE:
            break
    # Where logits tell nothing, no threshold is better than those that call all bags the same.
    slope = np.maximum(a[:, 0], np.finfo(float).tiny)
    moved = np.clip((-np.log(cost) - b[:, 0]) / slope, -FURTHEST, FURTHEST)
    return moved
