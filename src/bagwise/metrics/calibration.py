"""Whether probabilities mean what they say: reliability and calibration of several classes."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.metrics.inputs import Bools, Floats, as_vector, labels_and_probabilities
from bagwise.metrics.scores import bin_edges

Strategy = Literal["quantile", "uniform"]


class ReliabilityCurve(NamedTuple):
    """Bins that are not empty: mean prediction, share of positives with its 95 % interval, count.

    The interval is Wilson's.
    """

    predicted: Floats
    observed: Floats
    low: Floats
    high: Floats
    counts: NDArray[np.int64]


def reliability_curve(
    y_true: ArrayLike,
    p: ArrayLike,
    n_bins: int = 10,
    *,
    strategy: Strategy = "quantile",
    pos_label: Any = None,
) -> ReliabilityCurve:
    """Share of positives against the predicted probability, in bins of the latter.

    Calibrated predictions lie on the diagonal. The bins are those of
    `expected_calibration_error`, which is the mean distance from the diagonal weighted by `counts`.

    >>> curve = reliability_curve([0, 1, 0, 1], [0.2, 0.2, 0.9, 0.9], n_bins=2)
    >>> curve.predicted, curve.observed, curve.counts
    (array([0.2, 0.9]), array([0.5, 0.5]), array([2, 2]))
    """
    positive, p1 = labels_and_probabilities(y_true, p, pos_label)
    bins = np.searchsorted(bin_edges(p1, n_bins, strategy)[1:-1], p1)
    count = np.bincount(bins)
    used = count > 0
    predicted = np.bincount(bins, weights=p1)[used] / count[used]
    observed = np.bincount(bins, weights=positive)[used] / count[used]
    shares = zip(observed, count[used], strict=True)
    low, high = np.array([wilson(float(share), int(n)) for share, n in shares]).T
    return ReliabilityCurve(predicted, observed, low, high, count[used])


def wilson(share: float, n: float, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a share seen in n trials.

    >>> [round(v, 3) for v in wilson(0.5, 10)]
    [0.237, 0.763]
    """
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At 0 and 1 both terms cancel, but for rounding.
    low, high = 0.0 if share == 0 else centre - half, 1.0 if share == 1 else centre + half
    return max(0.0, low), min(1.0, high)


def classwise_calibration_error(
    y_true: ArrayLike,
    p: ArrayLike,
    n_bins: int = 10,
    *,
    strategy: Strategy = "quantile",
    classes: ArrayLike | None = None,
) -> float:
    """Mean over classes of the expected calibration error of each class against the rest.

    Parameters
    ----------
    y_true : (n,) the class of each row, or (n, K) 0/1 where rows have several classes or none.
    p : (n, K) probability of each class.
    classes : (K,) the class of each column; default the sorted values of `y_true`, which must
        then be K.

    >>> P = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]
    >>> round(classwise_calibration_error(["a", "b", "c"], P, n_bins=1), 4)
    0.0444
    """
    P = np.asarray(p, dtype=np.float64)
    if P.ndim != 2 or not np.isfinite(P).all() or P.min() < 0 or P.max() > 1:
        raise ValueError(f"p must be (n, K) probabilities in [0, 1], got shape {P.shape}")
    member = _membership(y_true, P, classes)
    errors = []
    for k in range(P.shape[1]):
        curve = reliability_curve(member[:, k], P[:, k], n_bins, strategy=strategy, pos_label=True)
        errors.append(np.sum(curve.counts * np.abs(curve.predicted - curve.observed)) / len(P))
    return float(np.mean(errors))


def _membership(y_true: Any, P: Floats, classes: Any) -> Bools:
    """(n, K) which row is of which class."""
    labels = np.asarray(y_true) if np.ndim(y_true) == 2 else as_vector(y_true, "y_true")
    if len(labels) != len(P) or (labels.ndim == 2 and labels.shape != P.shape):
        raise ValueError(
            f"y_true and p must have the same rows (and columns), got shapes {labels.shape} and "
            f"{P.shape}"
        )
    if labels.ndim == 2:
        if not np.isin(labels, (0, 1)).all():
            raise ValueError("y_true with a column per class must hold 0 and 1")
        return labels == 1
    named = np.unique(labels) if classes is None else np.asarray(classes)
    if named.shape != (P.shape[1],) or not np.isin(labels, named).all():
        raise ValueError(
            f"p has {P.shape[1]} columns, but the classes are {named.tolist()[:10]} and the labels "
            f"{np.unique(labels).tolist()[:10]}; pass classes=, the class of each column"
        )
    return np.asarray(labels[:, None] == named[None, :], dtype=bool)
