"""A bag's mean features as one more score, for bags whose instances all differ a little.

The rule "at least one positive" looks for instances that stand out. Where positive bags differ in
all of their instances (another scanner, another stain, a shift of everything), none may, and the
mean of a bag tells more than any of them. So a logistic regression on the means of bags, with a
Gaussian prior whose width is not learned, stands beside the scores of the model when bags are
calibrated; where it adds nothing for bags that were left out, its weight is about zero.

Gaussian-process models average the features of their kernel: that is a regression on the bags' mean
embeddings, whose kernel is the mean of k(x, x') over both bags. Linear ones average the features
as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from bagwise.core.calibration.left_out import kept_off
from bagwise.core.inference.passes import by_chunk
from bagwise.core.posteriors.gaussian import Posterior

Array = NDArray[Any]
Flags = NDArray[np.bool_]

VARIANCE = 4.0  # of the logit before any label is seen, at bags as far from the centre as usual


@dataclass(frozen=True)
class PooledRegression:
    """logit p = coef . (mean over the bag's instances) + intercept."""

    coef: Array  # (D,) of raw features, or (M,) of those of the kernel
    intercept: float
    of_kernel: bool = False  # which of them

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        coef = np.asarray(self.coef)
        if coef.ndim != 1 or coef.dtype.kind != "f" or not np.all(np.isfinite(coef)):
            raise ValueError("pooled: coef must be finite numbers, one for each feature")
        if not np.isfinite(self.intercept):
            raise ValueError("pooled: intercept must be finite")
        if not isinstance(self.of_kernel, bool):
            raise ValueError("pooled: of_kernel must be True or False")

    def logits(self, means: Array) -> Array:
        """logit P(positive) of bags with these mean features (B, D)."""
        return self.from_readout(means @ self.coef)

    def from_readout(self, values: Array) -> Array:
        """The same, from coef . (mean over the bag's instances), (B,)."""
        return kept_off(values + self.intercept)


@dataclass(frozen=True)
class PooledBags:
    """Mean features of bags, and the units in which a prior of one width suits them."""

    means: Array  # (B, D) or (B, M)
    scale: Array  # (D,) or (M,)
    of_kernel: bool

    @classmethod
    def by(cls, posterior: Any, X: Any, offsets: Array) -> PooledBags:
        """What is averaged over the bags that a fitted model has seen."""
        if not isinstance(posterior, Posterior):
            return cls(bag_means(X, offsets), posterior.scale, False)
        means = bag_means(X, offsets, posterior.pooled_rows)
        return cls(means, np.ones(means.shape[1]), True)

    def left_out_logits(self, T: Flags, folds: Array, counts: Array | None = None) -> Array:
        """(B,) logits of bags by regressions on those of the other folds."""
        return left_out_logits(self.means, T, folds, self.scale, counts)

    def regression(self, T: Flags, counts: Array | None = None) -> PooledRegression:
        """The regression on all of them."""
        found = fit_pooled(self.means, T, self.scale, counts)
        return replace(found, of_kernel=self.of_kernel)


def bag_means(
    X: Any, offsets: Array, features: Callable[[Array], Array] = lambda rows: rows
) -> Array:
    """(B, D) mean of the features of each bag's instances; X may stay where it is."""

    def of_chunk(some: Array, rows: slice, own: Array) -> Array:
        found = features(np.asarray(some, dtype=np.float64))
        return np.asarray(np.add.reduceat(found, own[:-1]) / np.diff(own)[:, None])

    return np.concatenate(by_chunk(X, offsets, of_chunk))


def fit_pooled(
    means: Array, T: Flags, scale: Array, counts: Array | None = None
) -> PooledRegression:
    """The most probable regression, with a prior of the same width for all scaled features.

    `counts` say how many times each bag counts.

    >>> means, T = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([False, False, True, True])
    >>> fit_pooled(means, T, np.ones(1)).logits(means).round(1)
    array([-2.4, -1.4,  1.4,  2.4])
    """
    counts = np.ones(len(T)) if counts is None else counts
    centre = np.average(means, axis=0, weights=counts)
    B = (means - centre) / scale
    unit = np.sqrt(np.average(np.sum(B**2, axis=1), weights=counts) / VARIANCE) or 1.0
    B, sign = B / unit, np.where(T, 1.0, -1.0)

    def objective(x: Array) -> tuple[float, Array]:
        z = sign * (B @ x[:-1] + x[-1])
        pull = counts * sign * special.expit(-z)
        value = 0.5 * float(x[:-1] @ x[:-1]) - float(counts @ special.log_expit(z))
        return value, np.append(x[:-1] - pull @ B, -pull.sum())

    start = np.zeros(B.shape[1] + 1)
    found = optimize.minimize(objective, start, jac=True, method="L-BFGS-B")
    coef = found.x[:-1] / (scale * unit)
    return PooledRegression(coef, float(found.x[-1] - centre @ coef))


def left_out_logits(
    means: Array, T: Flags, folds: Array, scale: Array, counts: Array | None = None
) -> Array:
    """(B,) logits of bags by regressions on those of the other folds."""
    counts = np.ones(len(T)) if counts is None else counts
    logits = np.empty(len(T))
    for k in range(int(folds.max()) + 1):
        out = folds == k
        others = fit_pooled(means[~out], T[~out], scale, counts[~out])
        logits[out] = others.logits(means[out])
    return logits
