"""The Gaussian-process head on features of a frozen encoder, and its calibration.

The head is a `ProbitVGPMIL` with kernel and inducing points as they were trained: its q(v), its
predictions and its decisions are those of that model. An encoder knows the bags that it was trained
on, so that fits of the head without them would look better than the model is: calibrations come
from bags that neither encoder nor head had.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.calibration.bags import calibrate, warn_of_left_out
from bagwise.core.calibration.conformal import known_positives, left_out_bags
from bagwise.core.calibration.instances import calibrate_instances
from bagwise.core.calibration.left_out import LeftOut, Scores, cut_folds
from bagwise.core.calibration.novelty import seen_instances
from bagwise.kernels import RBF, Kernel, Linear, Sum
from bagwise.models._refits import scores
from bagwise.models.inputs import known_labels
from bagwise.models.probit import ProbitVGPMIL

Array = NDArray[Any]
Flags = NDArray[np.bool_]

VARIANCE = 4.0  # of the kernel that training starts from


def fitted_head(
    bags: Bags, positive: Any, kernel: Kernel, Z: Array, seed: int, *, quiet: bool = False
) -> ProbitVGPMIL:
    """q(v) in closed form for features of bags, with a given kernel and given points.

    A `quiet` one is no end of a fit: what it warns of may be different there.
    """
    head = ProbitVGPMIL(
        kernel=kernel,
        inducing=Z,
        learn_hyperparameters=False,
        standardize=False,
        bag_score="joint",
        instance_score="posterior",
        random_state=seed,
    )
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        return head.fit(bags, positive=positive)


def starting_kernel(h: Array) -> Sum:
    """A kernel that suits features (n, D): smooth functions over their spread, and linear ones."""
    spread = float(np.sqrt(np.sum(np.var(h, axis=0)))) or 1.0
    return RBF(0.5 * VARIANCE, spread) + Linear(0.5 * VARIANCE / spread**2)


@dataclass(frozen=True)
class HeldOut:
    """Bags that an encoder and its head have not seen, and what these say of them."""

    numbers: NDArray[np.intp]  # of the bags, in the order of `bags`
    bags: Bags  # with the encoder's features
    found: Scores

    @classmethod
    def by(cls, head: ProbitVGPMIL, numbers: NDArray[np.intp], bags: Bags) -> HeldOut:
        """What a head says of bags that it was not fitted to."""
        return cls(numbers, bags, scores(head, bags))


def calibrate_head(
    head: ProbitVGPMIL,
    parts: Sequence[HeldOut],
    bags: Bags,
    T: Flags,
    asked: dict[str, Any],
    seed: int,
) -> None:
    """Calibrate a fitted head on the scores of held-out bags, where there are enough of them.

    `bags` and labels T are of the whole fit; the first of the parts is of the head's own encoder.
    Bags are not compared by their mean features, which differ between encoders.
    """
    head.set_params(**asked)
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.argsort(numbers)
    some = bags[numbers[order]]
    T = T[numbers[order]]
    reasons = head._reasons_against(some, T, None, None, None)
    head._not_calibrated(reasons)
    _keep_seen(head, parts[0])
    if None not in reasons:
        return
    scored = joined([part.found for part in parts], [part.bags for part in parts], order)
    found = LeftOut(*scored, cut_folds(some, T, seed), some.sizes)
    if reasons[0] is None:
        head.calibration_ = calibrate(found, T)
        head.left_out_bags_ = left_out_bags(found, some, T)
        warn_of_left_out(head.left_out_bags_.logits, found, some, T, head._remedies)
    known = known_labels(some, T)
    if reasons[1] is None:
        head.instance_calibration_ = calibrate_instances(
            found.instance_logits, some.offsets, T, known, head.witness_rate
        )
    head.left_out_positives_ = known_positives(found.instance_logits, some, known, None)


def joined(found: Sequence[Scores], bags: Sequence[Bags], order: NDArray[np.intp]) -> Scores:
    """Scores of bags and of instances of several parts, with the bags in another order.

    >>> one, two = Bags.from_list([[[0.0], [1.0]]]), Bags.from_list([[[2.0]]])
    >>> parts = [(np.zeros((1, 2)), np.arange(2.0)), (np.ones((1, 2)), np.array([2.0]))]
    >>> joined(parts, [one, two], np.array([1, 0]))[1]
    array([2., 0., 1.])
    """
    of_instances = [
        part
        for (_, logits), own in zip(found, bags, strict=True)
        for part in np.split(logits, own.offsets[1:-1])
    ]
    of_bags = np.concatenate([scores for scores, _ in found])
    return of_bags[order], np.concatenate([of_instances[i] for i in order])


def _keep_seen(head: ProbitVGPMIL, own: HeldOut) -> None:
    """New bags are compared with held-out ones: an encoder spreads those of its training less."""
    posterior = head.posterior_
    head.seen_instances_ = seen_instances(own.bags, posterior.scale, posterior.seed, None)
