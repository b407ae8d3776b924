"""Non-maximum suppression: of boxes that overlap only the best is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags.boxes import as_boxes, iou
from bagwise.core.parameters import check_number


def non_maximum_suppression(
    boxes: Any, scores: ArrayLike, threshold: float = 0.3
) -> NDArray[np.intp]:
    """Indices of the boxes to keep, best first.

    From the best score down, a box is dropped if its overlap (`iou`) with one that was kept
    exceeds `threshold`. Of equal scores the earlier box comes first.

    >>> boxes = [[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]]
    >>> non_maximum_suppression(boxes, [0.8, 0.9, 0.1])
    array([1, 2])
    """
    boxes = as_boxes(boxes)
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (len(boxes),) or not np.all(np.isfinite(values)):
        raise ValueError(
            f"scores must be one finite number per box, {len(boxes)}; got shape {values.shape}"
        )
    check_number("threshold", threshold, at_least=0)
    waiting = np.argsort(-values, kind="stable")
    kept = []
    while len(waiting):
        best, waiting = waiting[0], waiting[1:]
        kept.append(best)
        overlap = iou(boxes[best : best + 1], boxes[waiting])[0]
        waiting = waiting[overlap <= threshold]
    return np.array(kept, dtype=np.intp)
