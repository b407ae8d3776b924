"""What is decided about bags and their instances, as columns of a table of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.calibration.novelty import SeenInstances
from bagwise.io.class_labels import class_names
from bagwise.models._base import Predictions

Array = NDArray[Any]

NOVELTY = "novelty_p_value"  # small where the fit has seen nothing like it


@dataclass(frozen=True)
class Decided:
    """Columns beside probabilities: of bags (B,) and of instances (N,), in the order of Bags."""

    of_bags: dict[str, Array]
    of_instances: dict[str, Array]


def predicted(model: Any, bags: Bags, told: Array | None) -> Predictions:
    """Predictions for bags; of bags whose labels are shares, the expected share."""
    if not getattr(model, "labels_are_shares", False):
        found: Predictions = model.predict_all(bags, y=told)
        return found
    share, std = model.predict_share(bags, return_std=True)
    p, p_std = model.predict_instance_proba(bags, return_std=True)
    given: Any = (None, None)
    if told is not None:
        given = model.instance_posterior(bags, return_std=True, y=told)
    both = np.column_stack([1 - share, share])
    return Predictions(both, std, p, p_std, given=given[0], given_std=given[1])


def decided(model: Any, bags: Bags, alpha: float | None) -> Decided:
    """What is new, which labels bags may have, and which instances may be positive.

    Each where the model can tell, labels where `alpha` is given.
    """
    of_bags: dict[str, Array] = {}
    of_instances: dict[str, Array] = {}
    if alpha is not None:
        sets = model.predict_set(bags, alpha)
        of_bags["possible"] = set_names(sets, class_names(model))
        if model.left_out_positives_ is not None:
            of_instances["may_be_positive"] = model.possible_positives(bags, alpha)
    if model.seen_instances_ is not None:
        found = model.novelty(bags)
        of_bags[NOVELTY], of_instances[NOVELTY] = found.bags, found.instances
    return Decided(of_bags, of_instances)


def on_novelty(seen: SeenInstances | None) -> str:
    """How to read the column of novelty, and how small it can be; nothing where there is none.

    >>> rng = np.random.default_rng(0)
    >>> seen = SeenInstances.of(Bags.from_list(rng.normal(size=(19, 5, 2))), np.ones(2), 0)
    >>> on_novelty(seen)[16:]
    'is small for bags unlike those of the fit (19 bags or groups), and never below 0.05'
    """
    if seen is None:
        return ""
    return (
        f"{NOVELTY} is small for bags unlike those of the fit ({seen.bags.n_units:.0f} bags or "
        f"groups), and never below {seen.bags.smallest:.2g}"
    )


def set_names(sets: Array, classes: list[Any]) -> Array:
    """Each set in words.

    >>> set_names(np.array([[True, False], [True, True], [False, False]]), ["no", "yes"]).tolist()
    ['no', 'no or yes', 'neither']
    """
    negative, positive = map(str, classes)
    names = np.array(["neither", negative, positive, f"{negative} or {positive}"], dtype=object)
    return names[sets @ np.array([1, 2])]
