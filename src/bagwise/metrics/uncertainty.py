"""What a model's uncertainty is worth: spread inside bags, and accuracy when it may abstain."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bagwise.bags import Bags
from bagwise.metrics.inputs import Floats, labels_and_probabilities


def within_bag_variability(p: ArrayLike, bags: Bags | ArrayLike) -> Floats:
    """Standard deviation of the instance probabilities inside each bag, (B,) [M24, Fig. 6].

    The paper reports its mean over bags. A coupling lowers it at a given q(v) and in fits with
    diagonal moments; fits with EP's moments make up for part of that, or all.

    Parameters
    ----------
    p : (N,) probability of each instance, or the two columns of `predict_instance_proba`.
    bags : the bags, or the bag of each instance as (N,) ids; bags come in the order of the ids.

    >>> bags = Bags.from_list([[[0.0], [1.0]], [[2.0]]])
    >>> within_bag_variability([0.2, 0.8, 0.5], bags)
    array([0.3, 0. ])
    """
    scores = np.asarray(p, dtype=np.float64)
    scores = scores[:, -1] if scores.ndim == 2 else scores
    _, group = (
        (None, bags.bag_index)
        if isinstance(bags, Bags)
        else np.unique(np.asarray(bags), return_inverse=True)
    )
    if scores.shape != group.shape or scores.size == 0 or not np.isfinite(scores).all():
        raise ValueError(
            f"p must have one finite number for each of the {group.size} instances, got shape "
            f"{scores.shape}"
        )
    size = np.bincount(group)
    mean = np.bincount(group, weights=scores) / size
    # From deviations, not from E p^2 - (E p)^2, which loses digits and may be negative.
    return np.sqrt(np.bincount(group, weights=(scores - mean[group]) ** 2) / size)


class SelectiveRisk(NamedTuple):
    """Accuracy among the most certain predictions, for each number of them that is kept.

    `coverage` is the share kept, `risk` is 1 - `accuracy`, and `area` is the mean risk over all
    shares (the area under the risk-coverage curve): lower is better.
    """

    coverage: Floats
    accuracy: Floats
    risk: Floats
    area: float


def selective_risk(
    y_true: ArrayLike,
    p: ArrayLike,
    uncertainty: ArrayLike | None = None,
    *,
    threshold: float = 0.5,
    pos_label: Any = None,
) -> SelectiveRisk:
    """Accuracy if only the most certain predictions are kept and the rest goes to a human.

    Parameters
    ----------
    y_true, p, threshold, pos_label : as in `accuracy`.
    uncertainty : (n,) larger is less certain, e.g. the standard deviation of `predict_proba(...,
        return_std=True)`; default the closeness of p to the threshold.

    Among equally uncertain predictions, the mean over all orders is taken.

    >>> found = selective_risk([1, 0, 1, 0], [0.9, 0.1, 0.6, 0.6])
    >>> found.accuracy, round(found.area, 4)
    (array([1.        , 1.        , 0.83333333, 0.75      ]), 0.1042)
    """
    positive, p1 = labels_and_probabilities(y_true, p, pos_label)
    unsure = -np.abs(p1 - threshold) if uncertainty is None else np.asarray(uncertainty, float)
    if unsure.shape != p1.shape or not np.isfinite(unsure).all():
        raise ValueError(
            f"uncertainty must have one finite number for each of the {p1.size} predictions, got "
            f"shape {unsure.shape}"
        )
    wrong = (p1 > threshold) != positive
    _, group = np.unique(unsure, return_inverse=True)
    tied = np.bincount(group, weights=wrong) / np.bincount(group)  # mean error of equals
    kept = np.arange(1, p1.size + 1)
    risk = np.cumsum(tied[np.sort(group)]) / kept
    return SelectiveRisk(kept / p1.size, 1 - risk, risk, float(risk.mean()))
