"""Figures at the top of a report: scores with their intervals, or counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise import metrics
from bagwise.models._base import Predictions
from bagwise.report.decisions import Decisions

Array = NDArray[Any]

HEADLINES = {
    "roc_auc": ("ROC AUC", "Chance that a positive bag is ranked above a negative one."),
    "accuracy": ("Accuracy", "Share of bags called rightly."),
    "average_precision": ("Average precision", "Area under the precision-recall curve."),
    "log_likelihood": ("Log-likelihood", "Mean log probability of the true label; 0 is best."),
    "brier": ("Brier score", "Mean squared error of the probability; 0 is best."),
}


def score_limits(
    truth: Array, found: Predictions, decisions: Decisions, groups: Array | None, seed: int
) -> dict[str, Any]:
    """Intervals of scores where there are both classes."""
    return metrics.headline_intervals(truth, found.bag_p, groups, seed, decisions.called)


def headline(
    truth: Array | None, found: Predictions, decisions: Decisions, limits: dict[str, Any]
) -> list[dict[str, Any]]:
    """Figures at the top: scores with intervals where labels are known, else counts."""
    called, p = int(decisions.called.sum()), found.bag_p[:, 1]
    counts = [
        {"name": "Bags", "text": f"{len(p):,}", "help": f"{len(found.p):,} instances"},
        {"name": "Called positive", "text": f"{called:,}", "help": "As the model decides."},
    ]
    if decisions.for_expert is None:
        unsure = int(np.sum((p > 0.2) & (p < 0.8)))
        told = {"name": "Undecided", "text": f"{unsure:,}", "help": "Probability from 0.2 to 0.8."}
    else:
        looks = int(decisions.for_expert.sum())
        told = {"name": "For an expert", "text": f"{looks:,}", "help": "Either class, or neither."}
    if truth is None or not limits:
        return [*counts, told]
    return [*map(_figure_maker(truth, found, decisions, limits), HEADLINES), counts[0], told]


def _figure_maker(
    truth: Array, found: Predictions, decisions: Decisions, limits: dict[str, Any]
) -> Any:
    def make(key: str) -> dict[str, Any]:
        name, explained = HEADLINES[key]
        of_calls = key == "accuracy"
        value = getattr(metrics, key)(truth, decisions.called * 1.0 if of_calls else found.bag_p)
        low, high = limits[key]
        return {
            "name": name,
            "text": _short(value),
            "interval": f"{_short(low)} to {_short(high)}",
            "help": explained,
        }

    return make


def _short(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else str(value)
