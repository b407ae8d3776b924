"""What a report says about decisions: calls, possible labels, novelty, groups, two models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise import metrics
from bagwise.bags import Bags
from bagwise.models._base import Predictions

Array = NDArray[Any]
Flags = NDArray[np.bool_]

ALPHA = 0.1  # of the sets that are shown
NOVEL = 0.05  # p-values up to which a bag is shown as unlike those of the fit
MAX_GROUPS = 500
MAX_DIFFERENT = 30  # bags of which two models think differently
SCORES = {"roc_auc": "ROC AUC", "log_likelihood": "Log-likelihood", "brier": "Brier score"}


@dataclass(frozen=True)
class Decisions:
    """What is decided about each bag; None where the model cannot tell."""

    called: Flags  # (B,) called positive
    sets: Flags | None  # (B, 2) may be negative, may be positive
    novelty: Array | None  # (B,) p-values
    table: float | None  # that of all bags

    @property
    def for_expert(self) -> Flags | None:
        """Bags of which the model cannot tell the class, or that are unlike either."""
        return None if self.sets is None else self.sets[:, 0] == self.sets[:, 1]


def decide(model: Any, bags: Bags, found: Predictions) -> Decisions:
    """What the model decides about bags with these predictions."""
    seen = getattr(model, "seen_instances_", None)
    new = None if seen is None else seen.novelty(bags)
    called = model.called_positive(found.bag_p)
    return Decisions(
        called,
        _sets(model, found.bag_p),
        None if new is None else new.bags,
        None if new is None else new.table,
    )


def _sets(model: Any, p: Array) -> Flags | None:
    """Sets at ALPHA, where there are bags enough to leave a class out."""
    kept = getattr(model, "left_out_bags_", None)
    if kept is None or model.bag_score_ != "calibrated":
        return None
    if any(1 / (1 + kept.strangeness(side).n_units) > ALPHA for side in (False, True)):
        return None
    with np.errstate(divide="ignore"):
        sets: Flags = kept.sets(np.log(p[:, 1]) - np.log(p[:, 0]), ALPHA)
    return sets


def confusion(decisions: Decisions, truth: Array | None) -> dict[str, int] | None:
    """How many bags of each class are called what."""
    if truth is None:
        return None
    called = decisions.called
    return {
        "true_positives": int(np.sum(called & truth)),
        "false_negatives": int(np.sum(~called & truth)),
        "false_positives": int(np.sum(called & ~truth)),
        "true_negatives": int(np.sum(~called & ~truth)),
    }


def operating_point(decisions: Decisions, truth: Array | None) -> list[float] | None:
    """Where on the ROC curve of these bags the calls are: false and true positive rate."""
    if truth is None or truth.all() or not truth.any():
        return None
    called = decisions.called
    return [round(float(np.mean(called[~truth])), 4), round(float(np.mean(called[truth])), 4)]


def group_rows(
    bags: Bags, found: Predictions, decisions: Decisions, truth: Array | None
) -> list[dict[str, Any]] | None:
    """One row per group (patient), the most probable first: its bags, calls and labels."""
    if bags.groups is None:
        return None
    names, group = np.unique(bags.groups, return_inverse=True)
    highest = np.zeros(len(names))
    np.maximum.at(highest, group, found.bag_p[:, 1])
    counts = {"bags": np.bincount(group), "called": np.bincount(group, decisions.called)}
    if truth is not None:
        counts["positive"] = np.bincount(group, truth)
    if decisions.for_expert is not None:
        counts["expert"] = np.bincount(group, decisions.for_expert)
    order = np.argsort(-highest, kind="stable")[:MAX_GROUPS]
    return [
        {"name": str(names[g]), "highest": f"{highest[g]:.2f}"}
        | {key: int(values[g]) for key, values in counts.items()}
        for g in order
    ]


def comparison(
    model: Any, other: Any, name: str, bags: Bags, found: Predictions, truth: Array | None
) -> dict[str, Any]:
    """Scores of two models on the same bags, and of which bags they think differently."""
    p = np.asarray(other.predict_proba(bags))
    called, theirs = model.called_positive(found.bag_p), other.called_positive(p)
    apart = np.abs(found.bag_p[:, 1] - p[:, 1])
    different = np.flatnonzero(called != theirs)
    different = different[np.argsort(-apart[different], kind="stable")]
    rows = []
    if truth is not None and truth.any() and not truth.all():
        scores = metrics.paired_differences(truth, found.bag_p, p, groups=bags.groups)
        rows = [_score_row(SCORES[key], scores[key]) for key in SCORES]
    return {
        "name": name,
        "model": type(other).__name__,
        "scores": rows,
        "different": len(different),
        "correlation": round(_correlation(found.bag_p[:, 1], p[:, 1]), 3),
        "bags": [
            {
                "id": str(bags.ids[b]),
                "own": f"{found.bag_p[b, 1]:.2f}",
                "other": f"{p[b, 1]:.2f}",
                "truth": None if truth is None else int(truth[b]),
            }
            for b in different[:MAX_DIFFERENT]
        ],
    }


def _score_row(name: str, found: metrics.Difference) -> dict[str, Any]:
    surely = "surely" if found.low > 0 or found.high < 0 else "not surely"
    return {
        "name": name,
        "own": f"{found.a:.3f}",
        "other": f"{found.b:.3f}",
        "difference": f"{found.difference:+.3f}",
        "interval": f"{found.low:+.3f} to {found.high:+.3f}"
        if np.isfinite(found.low)
        else "unknown: one bag, or group, of a class",
        "verdict": f"{surely} different",
    }


def _correlation(a: Array, b: Array) -> float:
    """Spearman's correlation of both rankings; 1 where nothing differs."""
    from scipy.stats import rankdata

    ranks = np.column_stack([rankdata(a), rankdata(b)])
    if np.any(np.ptp(ranks, axis=0) == 0):
        return 1.0 if np.array_equal(a, b) else 0.0
    return float(np.corrcoef(ranks.T)[0, 1])
