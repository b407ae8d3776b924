"""How unlike the instances of a fit new ones are: p-values against bags that were left out.

Strangeness is what training instances leave unexplained of a Gaussian process: with M of them, Z,
and an RBF kernel of a typical width, the residual variance kt_n = 1 - |a_n|^2 (see
`bagwise.core.features`) is 0 at an instance like those and 1 far from all. That of left-out bags,
by instances of the others, says what is usual. A bag is as strange as its instances are on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.bags import Bags
from bagwise.bags.rows import blocks, column_moments
from bagwise.core.calibration.conformal import Reference, unit_weights
from bagwise.core.calibration.left_out import FOLDS
from bagwise.core.features import Whitener, common_features, whitener
from bagwise.core.inference.passes import rows_per_chunk
from bagwise.core.warnings import ShiftWarning, warn_user
from bagwise.kernels import RBF

Array = NDArray[Any]

POINTS = 200  # instances that stand for all
MOST_ROWS, ROWS_PER_BAG = 20_000, 400  # that are looked at, so that there are bags enough
WIDTH = 0.5  # of the kernel, in spreads of the features
JITTER = 1e-6
SHIFTED = 1e-3  # a table this improbable is said to be shifted


class Novelty(NamedTuple):
    """p-values: small ones are of what the model has not seen the like of."""

    instances: Array  # (N,)
    bags: Array  # (B,)
    table: float  # of all bags together


@dataclass(frozen=True)
class SeenInstances:
    """What instances of a fit look like, and how strange those of left-out bags are.

    >>> rng = np.random.default_rng(0)
    >>> seen = SeenInstances.of(Bags.from_list(rng.normal(size=(60, 5, 2))), np.ones(2), 0)
    >>> near, far = (Bags.from_list([rng.normal(size=(5, 2)) + x]) for x in (0.0, 9.0))
    >>> bool(seen.novelty(near).bags[0] > 0.05), seen.novelty(far).bags.round(3)
    (True, array([0.016]))
    """

    centre: Array  # (D,)
    unit: Array  # (D,) in which the kernel has the lengthscale 1
    Z: Array  # (M, D) float32, in these units
    instances: Reference
    bags: Reference

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        Z = np.asarray(self.Z)
        if Z.ndim != 2 or not len(Z) or Z.dtype != np.float32 or not np.all(np.isfinite(Z)):
            raise ValueError("seen instances: Z must be finite numbers, one row for each")
        for name in ("centre", "unit"):
            values = np.asarray(getattr(self, name))
            if values.shape != Z.shape[1:] or values.dtype.kind != "f":
                raise ValueError(f"seen instances: {name} must be one number for each feature")
        if not (np.all(np.isfinite(self.centre)) and np.all(np.isfinite(self.unit))):
            raise ValueError("seen instances: centre and unit must be finite")
        if not np.all(self.unit > 0):
            raise ValueError("seen instances: units must be positive")
        if not (isinstance(self.instances, Reference) and isinstance(self.bags, Reference)):
            raise ValueError("seen instances: instances and bags must be references")

    @classmethod
    def of(cls, bags: Bags, scale: Array, seed: int, counts: Array | None = None) -> SeenInstances:
        """What is kept of the bags of a fit that saw features in units of `scale` (D,).

        Bags that count nothing, by `counts`, are no part of it.
        """
        rng = np.random.default_rng(seed)
        rows = rows_to_look_at(bags, rng, counts)
        X, bag = np.asarray(bags.X[rows], dtype=np.float64), bags.bag_index[rows]
        centre, variance = column_moments(X)
        unit = scale * (WIDTH * float(np.sqrt(np.sum(variance / scale**2))) or 1.0)
        X = (X - centre) / unit
        units = bag if bags.groups is None else np.asarray(bags.groups)[bag]
        scores = left_out_strangeness(X, units, rng)
        starts = np.flatnonzero(np.append(True, bag[1:] != bag[:-1]))
        Z = X[some_rows(np.arange(len(X)), rng)]
        return cls(
            centre,
            unit,
            Z.astype(np.float32),
            Reference.of(scores, units),
            Reference.of(means_of(scores, np.append(starts, len(X))), units[starts]),
        )

    def novelty(self, bags: Bags) -> Novelty:
        """p-values of new instances, of their bags, and of all these bags together."""
        parts = blocks(len(bags.X), rows_per_chunk(bags.n_features))
        scores = np.concatenate([self.strangeness(bags.X[rows]) for rows in parts])
        of_bags = self.bags.p_value(means_of(scores, bags.offsets))
        weights = unit_weights(len(of_bags), bags.groups)
        return Novelty(self.instances.p_value(scores), of_bags, self._of_table(of_bags, weights))

    def strangeness(self, X: Array) -> Array:
        """(n,) kt of instances in raw units."""
        return self._whitener((np.asarray(X, dtype=np.float64) - self.centre) / self.unit)[1]

    def _of_table(self, p: Array, weights: Array) -> float:
        """P(bags of the same kind have so small p-values) [Mann and Whitney 1947].

        Ranks of one sample among another: p-values have the mean 1/2 and, on average over n units
        compared with m, the variance (1/n + 1/m) / 12.
        """
        error = np.sqrt((1 / weights.sum() + 1 / self.bags.n_units) / 12)
        return float(special.ndtr((np.average(p, weights=weights) - 0.5) / error))

    @cached_property
    def _whitener(self) -> Whitener:
        return whitener(RBF(1.0, 1.0), self.Z.astype(np.float64), JITTER)


def seen_instances(
    bags: Bags, scale: Array, seed: int, counts: Array | None
) -> SeenInstances | None:
    """What is kept of the bags of a fit; None where no two of them, or groups, are independent."""
    units = np.arange(len(bags)) if bags.groups is None else np.asarray(bags.groups)
    some = units if counts is None else units[counts > 0]
    if len(np.unique(some)) < 2:
        return None
    common = common_features()
    if common is None:
        return SeenInstances.of(bags, scale, seed, counts)
    # Labels play no part in it.
    told = ("seen", scale, seed, counts, np.unique(units, return_inverse=True)[1], bags.offsets)
    size = 4 * POINTS * bags.n_features
    return common.once(bags.X, told, size, lambda: SeenInstances.of(bags, scale, seed, counts))


def rows_to_look_at(
    bags: Bags, rng: np.random.Generator, counts: Array | None = None
) -> NDArray[np.int64]:
    """Rows of the bags that count: of many bags some, of large bags some rows.

    >>> bags = Bags.from_list([np.zeros((2, 1)), np.zeros((3, 1))])
    >>> rows_to_look_at(bags, np.random.default_rng(0), np.array([0.0, 1.0]))
    array([2, 3, 4])
    """
    some = np.arange(len(bags)) if counts is None else np.flatnonzero(counts)
    sizes = np.minimum(bags.sizes, ROWS_PER_BAG)
    if int(sizes[some].sum()) > MOST_ROWS:
        some = rng.permutation(some)
        if bags.groups is not None:  # or those of one group might be all
            some = some[by_turns(np.asarray(bags.groups)[some])]
        some = np.sort(some[np.cumsum(sizes[some]) <= MOST_ROWS])
    drawn = [
        bags.offsets[b] + np.sort(rng.choice(bags.sizes[b], sizes[b], replace=False)) for b in some
    ]
    return np.concatenate(drawn)


def by_turns(units: Array) -> NDArray[np.intp]:
    """An order of members in which all units have their first one before any has a second.

    >>> by_turns(np.array(["a", "a", "a", "b", "b"]))
    array([0, 3, 1, 4, 2])
    """
    _, unit = np.unique(units, return_inverse=True)
    order = np.argsort(unit, kind="stable")
    starts = np.cumsum(np.bincount(unit)) - np.bincount(unit)
    turn = np.empty(len(unit), dtype=np.intp)
    turn[order] = np.arange(len(unit)) - starts[unit[order]]
    return np.argsort(turn, kind="stable")


def left_out_strangeness(X: Array, units: Array, rng: np.random.Generator) -> Array:
    """(n,) kt of scaled instances by some of those of other units, a fifth of which is left out."""
    _, unit = np.unique(units, return_inverse=True)
    n_units = int(unit.max()) + 1
    fold = rng.permutation(n_units)[unit] % min(FOLDS, n_units)
    scores = np.empty(len(X))
    for k in range(int(fold.max()) + 1):
        out = fold == k
        Z = X[some_rows(np.flatnonzero(~out), rng)]
        scores[out] = whitener(RBF(1.0, 1.0), Z, JITTER)(X[out])[1]
    return scores


def some_rows(rows: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """`POINTS` of these rows, or all of fewer."""
    return rows if len(rows) <= POINTS else np.sort(rng.choice(rows, POINTS, replace=False))


def means_of(scores: Array, offsets: Array) -> Array:
    """(B,) mean score of each bag."""
    return np.add.reduceat(scores, offsets[:-1]) / np.diff(offsets)


def warn_of_shift(found: Novelty, n_bags: int) -> None:
    """Warn where a whole table is unlike the bags of the fit."""
    if found.table < SHIFTED:
        warn_user(
            f"these {n_bags} bags look unlike those that the model was fitted to: their p-values "
            f"are {np.mean(found.bags):.2f} on average, those of bags of the same kind 0.5 (chance "
            f"{found.table:.1g}); what the model says of them may not hold. Check units, scanner "
            "and preparation of the features, or fit to bags of this kind too",
            ShiftWarning,
        )
