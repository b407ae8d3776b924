"""A report in words: what the model found, how far it can be trusted, and when not to use it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise import metrics
from bagwise.bags import Bags
from bagwise.core.calibration.novelty import SHIFTED
from bagwise.models._base import Predictions
from bagwise.models.metadata import seen_bags, seen_patients
from bagwise.report.decisions import ALPHA, NOVEL, Decisions
from bagwise.report.model_card import why_not_calibrated

Array = NDArray[Any]

NEAR_CHANCE = 0.6  # an AUC whose interval reaches down to it
FEW = 20  # bags of a class


def summary(
    model: Any,
    bags: Bags,
    found: Predictions,
    decisions: Decisions,
    truth: Array | None,
    limits: dict[str, Any],
    names: list[Any],
) -> list[str]:
    """Sentences for the top of a page; `limits` are intervals of scores, `names` the classes."""
    lines = [_calls(model, decisions, names), _sets(bags, decisions, names)]
    lines += [_scores(found, decisions, truth, limits), _novelty(decisions)]
    return [line for line in lines if line]


def warnings_of(
    model: Any, bags: Bags, decisions: Decisions, truth: Array | None, limits: dict[str, Any]
) -> list[str]:
    """When not to rely on the model, as far as these bags and the fit show it."""
    found = []
    if decisions.table is not None and decisions.table < SHIFTED:
        found.append(
            "These bags look unlike those of the fit (chance "
            f"{decisions.table:.1g}): neither probabilities nor sets need hold for them."
        )
    if "roc_auc" in limits and limits["roc_auc"][0] < NEAR_CHANCE:
        found.append(
            "From these bags it is not sure that the model ranks better than chance: its AUC may "
            f"be as low as {limits['roc_auc'][0]:.2f}."
        )
    if truth is not None and min(int(truth.sum()), int((~truth).sum())) < FEW:
        found.append(
            f"Scores rest on {int(truth.sum())} positive and {int((~truth).sum())} negative bags: "
            "look at their intervals."
        )
    if (reason := why_not_calibrated(model)) is not None:
        found.append(f"Probabilities are not calibrated: {reason}.")
    if truth is not None and (seen_bags(model, bags) | seen_patients(model, bags)).any():
        found.append("Scores flatter the model, which was trained on some of these bags or groups.")
    return found


def _calls(model: Any, decisions: Decisions, names: list[Any]) -> str:
    n, called = len(decisions.called), int(decisions.called.sum())
    point = getattr(model, "operating_point_", None)
    how = "at the more probable class"
    if point is not None:
        how = f"from a probability of {point.threshold:.3g} on, chosen for {point.asked}"
    return f"Of {_bags(n)} the model calls {called:,} positive ({names[1]}), {how}."


def _sets(bags: Bags, decisions: Decisions, names: list[Any]) -> str | None:
    if decisions.sets is None or decisions.for_expert is None:
        return None
    both = int(np.sum(decisions.sets.all(axis=1)))
    neither = int(np.sum(~decisions.sets.any(axis=1)))
    looks = int(decisions.for_expert.sum())
    patients = ""
    if bags.groups is not None:
        count = len(np.unique(np.asarray(bags.groups)[decisions.for_expert]))
        patients = f" of {count:,} group{'' if count == 1 else 's'}"
    per = "" if looks == 0 else f", one in {len(decisions.called) / looks:.3g}"
    return (
        f"If at most {ALPHA:.0%} of the bags of either class may be left without their own label, "
        f"it cannot tell the class of {_bags(both)} ({names[0]} or {names[1]}), and {neither:,} "
        f"look unlike either class: {_bags(looks)}{patients} for an expert to look at{per}."
    )


def _scores(
    found: Predictions, decisions: Decisions, truth: Array | None, limits: dict[str, Any]
) -> str | None:
    if truth is None or "roc_auc" not in limits:
        return None
    (low, high), right = limits["roc_auc"], int(np.sum(decisions.called == truth))
    return (
        f"It calls {right:,} of the {len(truth):,} labelled bags rightly, and ranks a positive bag "
        f"above a negative one with a chance of {metrics.roc_auc(truth, found.bag_p):.2f} "
        f"({low:.2f} to {high:.2f})."
    )


def _novelty(decisions: Decisions) -> str | None:
    if decisions.novelty is None:
        return None
    strange = int(np.sum(decisions.novelty <= NOVEL))
    usual = NOVEL * len(decisions.novelty)
    return (
        f"As strange as the strangest {NOVEL:.0%} of the bags of the fit: {_bags(strange)}, where "
        f"about {usual:.3g} are to be expected."
    )


def _bags(n: int) -> str:
    """A number of bags in words.

    >>> _bags(1), _bags(1200)
    ('1 bag', '1,200 bags')
    """
    return f"{n:,} bag{'' if n == 1 else 's'}"
