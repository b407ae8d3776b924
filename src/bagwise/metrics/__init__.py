"""Scores of predicted probabilities against true labels, for bags and for instances.

Every function takes the true labels, which may be any two values, and `p`, the probability of the
positive label: either one number per label, (n,), or the two columns of `predict_proba`, (n, 2),
in the sorted order of the two labels. The positive label is `pos_label`, by default the larger of
the two. `y_true` may also be Bags, whose labels are taken. `bag_scores` and `instance_scores`
compute everything for a fitted model.
"""

from bagwise.metrics.calibration import (
    ReliabilityCurve,
    classwise_calibration_error,
    reliability_curve,
)
from bagwise.metrics.comparison import (
    PairedTest,
    WinTieLoss,
    corrected_resampled_ttest,
    win_tie_loss,
)
from bagwise.metrics.models import bag_scores, instance_scores
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
from bagwise.metrics.uncertainty import SelectiveRisk, selective_risk, within_bag_variability

__all__ = [
    "PairedTest",
    "ReliabilityCurve",
    "SelectiveRisk",
    "WinTieLoss",
    "accuracy",
    "average_precision",
    "bag_scores",
    "brier",
    "classwise_calibration_error",
    "confusion_matrix",
    "corrected_resampled_ttest",
    "expected_calibration_error",
    "f1",
    "instance_scores",
    "log_likelihood",
    "precision",
    "recall",
    "reliability_curve",
    "roc_auc",
    "selective_risk",
    "win_tie_loss",
    "within_bag_variability",
]
