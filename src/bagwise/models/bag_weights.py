"""How many times each bag counts in a fit: weights of bags and of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.bags.checks import check_per_bag, refuse_masked
from bagwise.bags.labels import in_bag_order
from bagwise.bags.messages import show
from bagwise.core.parameters import check_number
from bagwise.models.inputs import labels_for

Array = NDArray[Any]
Flags = NDArray[np.bool_]


def bag_counts(
    X: Any, bags: Bags, sample_weight: Any, class_weight: Any, classes: Array, T: Flags
) -> Array | None:
    """(B,) how many times each bag counts, by its own weight and its class's; None if all once.

    X is what `fit` was given, whose bags have ids or not.
    """
    counts = np.ones(len(bags))
    if sample_weight is not None:
        counts = sample_weights(X, bags, sample_weight)
    negative, positive = weights_of_classes(class_weight, classes, T, counts)
    counts = counts * np.where(T, positive, negative)
    for label, side in zip(classes, (~T, T), strict=True):
        if not np.any(counts[side]):
            raise ValueError(
                f"bags of each class must count, but all {int(side.sum())} bags of class "
                f"{show(label)} have a weight of zero; give some of them a positive sample_weight, "
                "and their class a positive class_weight"
            )
    return None if np.all(counts == 1) else counts


def sample_weights(X: Any, bags: Bags, sample_weight: Any) -> Array:
    """One finite weight per bag, none of them negative, in the order of the bags."""
    refuse_masked(sample_weight, "sample_weight")
    in_order = in_bag_order(labels_for(X, sample_weight), bags.ids, "sample_weight")
    given = check_per_bag(in_order, len(bags), bags.n_instances, "sample_weight")
    try:
        weights = given.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"sample_weight must be numbers, one per bag; got {given[:3].tolist()}; convert them"
        ) from None
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if np.any(wrong):
        b = int(np.argmax(wrong))
        raise ValueError(
            f"sample_weight must be finite and not negative; bag {show(bags.ids[b])} has "
            f"{weights[b]:g}; give it 0 to leave it out of the likelihood"
        )
    return weights


def weights_of_classes(
    class_weight: Any, classes: Array, T: Flags, counts: Array
) -> tuple[float, float]:
    """Weights of the negative and the positive class.

    "balanced" gives both classes the same total weight, which is that of all bags together:
    bags that count twice are two bags there too.

    >>> T = np.array([True, False, False, False])
    >>> weights_of_classes("balanced", np.array([0, 1]), T, np.ones(4))
    (0.6666666666666666, 2.0)
    """
    if class_weight is None:
        return 1.0, 1.0
    if isinstance(class_weight, str):
        sums = [float(counts[side].sum()) for side in (~T, T)]
        total = sum(sums)
        negative, positive = (total / (2 * s) if s > 0 else 0.0 for s in sums)
        return negative, positive
    unknown = [key for key in class_weight if key not in classes.tolist()]
    if unknown:
        raise ValueError(
            f"class_weight has the class {show(unknown[0])}, which no bag has; the classes are "
            f"{', '.join(show(c) for c in classes.tolist())}: {{class: weight}}"
        )
    first, second = (float(class_weight.get(c, 1.0)) for c in classes.tolist())
    return first, second


def check_class_weight(class_weight: Any) -> None:
    """Raise unless it is None, "balanced" or a dict of weights by class."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            "class_weight must be None, 'balanced' or {class: weight}, got "
            f"{class_weight!r:.80}; weights of single bags are fit(..., sample_weight=)"
        )
    for label, weight in class_weight.items():
        check_number(f"class_weight of {show(label)}", weight, at_least=0)
