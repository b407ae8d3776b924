"""Learning H, the reliability of bag labels [V17, Eq. 3], from the bound.

A label is wrong with probability eps = 1 / (H + 1). Given f, bag b is labelled as it is with
probability (1 - eps) s_b + eps (1 - s_b), where s_b is the probability that its label is right.
The bound depends on H through the sum of their logarithms alone, which is concave in eps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning

from bagwise.core.inference.loop import Trace
from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.stats import Chunk, Q, latent_mean
from bagwise.core.likelihoods.at_least_one import BagLikelihood

Array = NDArray[Any]

# Beta prior of eps with its mode at H = 100, the papers' value, and the weight of ten bags. Bags
# without a wrong label then make H grow with their number, to infinity in the limit only.
PRIOR_WRONG, PRIOR_RIGHT = 0.1, 10.0
START_H = PRIOR_RIGHT / PRIOR_WRONG
LOWEST_H = 1.5
MAX_ROUNDS = 30
PRECISION = 0.01  # of log H


@dataclass(frozen=True)
class RightLabels:
    """log P(all negative) and label of some bags, and how many times each counts."""

    log_p0: Array  # (B,)
    T: NDArray[np.bool_]  # (B,)
    counts: Array  # (B,)

    def __add__(self, other: RightLabels) -> RightLabels:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return RightLabels(*(np.concatenate(pair) for pair in pairs))

    def probability(self) -> Array:
        """s_b: that the label is right, given f."""
        return np.where(self.T, -np.expm1(self.log_p0), np.exp(self.log_p0))


def best_H(s: Array, counts: Array | float = 1.0) -> float:
    """H at the maximum of sum_b c_b log((1 - eps) s_b + eps (1 - s_b)) and the log prior.

    >>> round(best_H(np.ones(0)), 3)  # nothing but the prior
    100.0
    >>> s = np.array([1.0] * 90 + [0.0] * 10)  # one label in ten is wrong
    >>> round(best_H(s), 1)
    9.9
    >>> round(best_H(np.array([1.0, 0.0]), np.array([90.0, 10.0])), 1)
    9.9
    """
    n_bags = float(np.sum(np.broadcast_to(counts, s.shape)))

    def slope(eps: float) -> float:
        label = float(np.sum(counts * (1 - 2 * s) / ((1 - eps) * s + eps * (1 - s))))
        return label + PRIOR_WRONG / eps - PRIOR_RIGHT / (1 - eps)

    low, high = PRIOR_WRONG / (10 * (n_bags + PRIOR_RIGHT)), 1 / (LOWEST_H + 1)
    if slope(high) >= 0:
        return LOWEST_H
    eps = optimize.brentq(slope, low, high, rtol=1e-12)
    return (1 - eps) / eps


def right_labels(chunk: Chunk, q: Q, likelihood: BagLikelihood) -> RightLabels:
    """What q says of a chunk's bag labels: the terms of the bound that depend on H."""
    mu = latent_mean(chunk, q)
    targets = chunk.targets
    counts = targets.counted_bags(np.ones(len(targets.T)))
    return RightLabels(likelihood.log_all_negative(mu, targets), targets.T, counts)


def learn_reliability(
    sweeper: Sweeper,
    likelihood: BagLikelihood,
    q: Q,
    trace: Trace,
    refit: Callable[[str, BagLikelihood, Q], tuple[Q, Trace]],
) -> tuple[float, Q, Trace]:
    """Maximise the bound over H and q in turn: each step raises bound and log prior.

    `q` with its `trace` is optimal for the likelihood; `refit(stage, likelihood, q)` finds the
    optimum for another H from there.
    """
    for k in range(1, MAX_ROUNDS + 1):
        bags = sweeper.total(partial(right_labels, q=q, likelihood=likelihood))
        H = best_H(bags.probability(), bags.counts)
        if abs(np.log(H / likelihood.H)) < PRECISION:
            break
        likelihood = likelihood.with_H(H)
        q, trace = refit(f"H {k}", likelihood, q)
    else:
        warnings.warn(
            f"H did not settle in {MAX_ROUNDS} rounds: it is {H:.3g}; compare with a given H",
            ConvergenceWarning,
            stacklevel=2,
        )
    if likelihood.H <= LOWEST_H * (1 + PRECISION):
        warnings.warn(
            f"the learned H is at its lower end, {LOWEST_H:g}: what f says of the bags has nothing "
            "to do with their labels; check labels and features, or give H",
            UserWarning,
            stacklevel=2,
        )
    return likelihood.H, q, trace
