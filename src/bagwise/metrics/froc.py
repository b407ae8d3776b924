"""Free-response ROC for detection, and the pooled ROC of [R08]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise.core.parameters import check_integer
from bagwise.metrics.inputs import (
    Bools,
    Floats,
    as_vector,
    labels_and_scores,
    require_positive,
    tails,
)
from bagwise.metrics.intervals import placements


@dataclass(frozen=True)
class FROC:
    """A free-response ROC curve: one point per threshold, from none called to all called."""

    false_positives: Floats  # per volume, rising
    sensitivity: Floats  # share of positive bags called
    thresholds: Floats  # a bag is called where score >= threshold; the first is inf

    def at(self, false_positives: ArrayLike) -> Floats:
        """Sensitivity reached with at most so many false positives per volume.

        >>> froc_curve([1, 0, 1, 0], [4.0, 3.0, 2.0, 1.0], ["a", "a", "b", "b"]).at([0.0, 0.5])
        array([0.5, 1. ])
        """
        wanted = np.asarray(false_positives, dtype=np.float64)
        if np.any(~(wanted >= 0)):
            raise ValueError(f"false_positives must be at least 0, got {false_positives!r}")
        last = np.searchsorted(self.false_positives, wanted, side="right") - 1
        return self.sensitivity[last]

    def area(self, low: float = 0.0, high: float = 10.0) -> float:
        """Mean sensitivity between `low` and `high` false positives per volume, in [0, 1].

        The curve is a staircase: between two thresholds the sensitivity is that of the stricter.

        >>> froc_curve([1, 0, 1, 0], [4.0, 3.0, 2.0, 1.0], ["a", "a", "b", "b"]).area(0, 1)
        0.75
        """
        if not 0 <= low < high < np.inf:
            raise ValueError(f"area needs 0 <= low < high, got low={low!r}, high={high!r}")
        inside = self.false_positives[(self.false_positives > low) & (self.false_positives < high)]
        edges = np.unique(np.concatenate([[low], inside, [high]]))
        return float(np.sum(np.diff(edges) * self.at(edges[:-1])) / (high - low))


@dataclass(frozen=True)
class FROCBand:
    """Pointwise confidence band of a FROC curve, over weighted volumes."""

    false_positives: Floats  # grid
    sensitivity: Floats  # of the data themselves
    low: Floats
    high: Floats
    area: tuple[float, float, float]  # of the data, low, high, over the grid's range


def froc_curve(
    y_true: ArrayLike, score: ArrayLike, volume: ArrayLike, *, pos_label: Any = None
) -> FROC:
    """Share of lesions found against false positives per volume, over all thresholds [R08, 10].

    One entry per bag: whether it is a lesion, its score (any finite number, or the two columns
    of `predict_proba`), and the volume (scan, patient) it comes from. A called negative bag is a
    false positive. Volumes without any bag are unknown here and do not count. Where candidates of
    one lesion form a bag, score it by its best candidate (`bag_score="max"`): at test time nobody
    knows which candidates belong together.

    >>> curve = froc_curve([1, 0, 1, 0], [4.0, 3.0, 2.0, 1.0], ["a", "a", "b", "b"])
    >>> curve.false_positives
    array([0. , 0. , 0.5, 0.5, 1. ])
    >>> curve.sensitivity
    array([0. , 0.5, 0.5, 1. , 1. ])
    """
    positive, scores, volumes = _checked(y_true, score, volume, pos_label)
    return _curve(positive, scores, np.ones(len(scores)), len(np.unique(volumes)))


def froc_band(
    y_true: ArrayLike,
    score: ArrayLike,
    volume: ArrayLike,
    *,
    max_false_positives: float = 10.0,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: Any = 0,
    pos_label: Any = None,
) -> FROCBand:
    """Confidence band of the FROC curve: volumes get random weights, since bags of one are alike.

    Resampling is that of `roc_band`: one more volume, which has not been seen, holds as many bags
    as the others on average; for the lower limit its lesions are missed and its other bags are
    called first, for the upper limit the other way round. So few volumes that agree leave doubt.

    >>> y, volume = [1, 0, 0, 1, 0, 0] * 10, [i // 3 for i in range(60)]
    >>> band = froc_band(y, [i * 7 % 13 for i in range(60)], volume, n_resamples=50)
    >>> bool((band.low <= band.high).all())
    True
    """
    ends = tails(level)
    check_integer("n_resamples", n_resamples, at_least=2)
    positive, scores, volumes = _checked(y_true, score, volume, pos_label)
    _, of_volume = np.unique(volumes, return_inverse=True)
    n_volumes, last = int(of_volume.max()) + 1, float(max_false_positives)
    grid = np.linspace(0.0, last, 201)
    curve = _curve(positive, scores, np.ones(len(scores)), n_volumes)
    W = _volume_weights(of_volume, positive, n_resamples, np.random.default_rng(random_state))
    labels = np.append(positive, [True, False])
    own, own_area = curve.at(grid), curve.area(0.0, last)
    limits, areas = [], []
    for best, end, beyond in zip((-np.inf, np.inf), ends, (np.minimum, np.maximum), strict=True):
        ranked = np.append(scores, [best, -best])  # the unseen last and first, or first and last
        drawn = [_curve(labels, ranked, w, n_volumes) for w in W]
        limits.append(beyond(np.quantile([d.at(grid) for d in drawn], end, axis=0), own))
        area = np.quantile([d.area(0.0, last) for d in drawn], end)
        areas.append(float(beyond(area, own_area)))
    return FROCBand(grid, own, limits[0], limits[1], (own_area, areas[0], areas[1]))


def bag_tpr_instance_fpr_auc(
    y_true: ArrayLike, instance_score: ArrayLike, offsets: ArrayLike, *, pos_label: Any = None
) -> float:
    """Area under bag-level true positive rate against instance-level false positive rate.

    This is the AUC that [R08, Table 2] reports: a positive bag counts as found if one of its
    instances is called, while each instance of a negative bag can be a false positive by itself.
    It is not the AUC of bags (`roc_auc`), and it is higher where bags are large: use it only to
    compare with that paper. Ties count half.

    `y_true` has one label per bag, `instance_score` one number per instance (or two columns),
    and bag b has rows offsets[b]:offsets[b + 1].

    >>> bag_tpr_instance_fpr_auc([1, 0], [0.9, 0.1, 0.5, 0.2, 0.95, 0.3], [0, 2, 6])
    0.75
    """
    labels = as_vector(y_true, "y_true")
    ends = np.asarray(offsets)
    if ends.shape != (len(labels) + 1,) or ends[0] != 0 or np.any(np.diff(ends) < 1):
        raise ValueError(
            f"offsets must be {len(labels) + 1} rising row numbers from 0, got "
            f"{ends.tolist()[:5]}; pass bags.offsets"
        )
    rows, scores = labels_and_scores(np.repeat(labels, np.diff(ends)), instance_score, pos_label)
    positive = rows[ends[:-1]]
    require_positive(positive, "bag_tpr_instance_fpr_auc")
    if positive.all():
        raise ValueError("bag_tpr_instance_fpr_auc needs negative bags, but all are positive")
    bag_top = np.maximum.reduceat(scores, ends[:-1])[positive]
    return float(np.mean(placements(bag_top, scores[~rows])))


def _checked(
    y_true: ArrayLike, score: ArrayLike, volume: ArrayLike, pos_label: Any
) -> tuple[Bools, Floats, np.ndarray[Any, Any]]:
    positive, scores = labels_and_scores(y_true, score, pos_label)
    require_positive(positive, "froc_curve")
    volumes = as_vector(volume, "volume")
    if len(volumes) != len(scores):
        raise ValueError(
            f"volume must have one entry per bag: {len(scores)}; got {len(volumes)}; "
            "pass the scan that each bag comes from"
        )
    return positive, scores, volumes


def _curve(positive: Bools, scores: Floats, weights: Floats, n_volumes: int) -> FROC:
    """The curve of bags that count `weights` times each."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)  # equal scores fall together
    hits = np.cumsum(np.where(positive, weights, 0.0)[order])[last]
    false = np.cumsum(np.where(positive, 0.0, weights)[order])[last]
    return FROC(
        np.append(0.0, false / n_volumes),
        np.append(0.0, hits / hits[-1]),
        np.append(np.inf, ranked[last]),
    )


def _volume_weights(
    of_volume: np.ndarray[Any, Any], positive: Bools, n: int, rng: np.random.Generator
) -> Floats:
    """(n, bags + 2) weights of bags and of the lesions and other bags of one unseen volume.

    Those of the volumes, the unseen one among them, sum to the number of volumes seen.
    """
    n_volumes = int(of_volume.max()) + 1
    drawn = rng.standard_gamma(1.0, (n, n_volumes + 1))
    drawn *= n_volumes / drawn.sum(axis=1, keepdims=True)
    share = np.array([positive.sum(), (~positive).sum()]) / n_volumes
    return np.hstack([drawn[:, of_volume], drawn[:, -1:] * share])
