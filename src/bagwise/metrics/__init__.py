"""Scores of predicted probabilities against true labels, for bags and for instances.

Every function takes the true labels, which may be any two values, and `p`, the probability of the
positive label: either one number per label, (n,), or the two columns of `predict_proba`, (n, 2),
in the sorted order of the two labels. The positive label is `pos_label`, by default the larger of
the two. `bag_scores` and `instance_scores` compute everything for a fitted model.
"""

from bagwise.metrics.bootstrap import (
    Band,
    bootstrap_interval,
    bootstrap_scores,
    precision_recall_band,
    roc_band,
)
from bagwise.metrics.models import bag_scores, instance_scores
from bagwise.metrics.reliability import reliability_curve
from bagwise.metrics.scores import (
    accuracy,
    average_precision,
    brier,
    confusion_matrix,
    expected_calibration_error,
    f1,
    log_likelihood,
    precision,
    recall,
    roc_auc,
)

__all__ = [
    "Band",
    "accuracy",
    "average_precision",
    "bag_scores",
    "bootstrap_interval",
    "bootstrap_scores",
    "brier",
    "confusion_matrix",
    "expected_calibration_error",
    "f1",
    "instance_scores",
    "log_likelihood",
    "precision",
    "precision_recall_band",
    "recall",
    "reliability_curve",
    "roc_auc",
    "roc_band",
]
