"""Scores of predicted probabilities against true labels, for bags and for instances.

Every function takes the true labels, which may be any two values, and `p`, the probability of the
positive label: either one number per label, (n,), or the two columns of `predict_proba`, (n, 2),
in the sorted order of the two labels. The positive label is `pos_label`, by default the larger of
the two. `y_true` may also be Bags, whose labels are taken. `bag_scores` and `instance_scores`
compute everything for a fitted model. `froc_curve` and `froc_band` are for detection, where false
positives are counted per volume.
"""

from bagwise.metrics.bootstrap import (
    Band,
    bootstrap_interval,
    bootstrap_scores,
    headline_intervals,
    precision_recall_band,
    roc_band,
)
from bagwise.metrics.calibration import (
    ReliabilityCurve,
    classwise_calibration_error,
    reliability_curve,
)
from bagwise.metrics.comparison import (
    Difference,
    PairedTest,
    WinTieLoss,
    corrected_resampled_ttest,
    paired_differences,
    win_tie_loss,
)
from bagwise.metrics.froc import (
    FROC,
    FROCBand,
    bag_tpr_instance_fpr_auc,
    froc_band,
    froc_curve,
)
from bagwise.metrics.models import bag_scores, instance_scores, scorer
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
    "FROC",
    "Band",
    "Difference",
    "FROCBand",
    "PairedTest",
    "ReliabilityCurve",
    "SelectiveRisk",
    "WinTieLoss",
    "accuracy",
    "average_precision",
    "bag_scores",
    "bag_tpr_instance_fpr_auc",
    "bootstrap_interval",
    "bootstrap_scores",
    "brier",
    "classwise_calibration_error",
    "confusion_matrix",
    "corrected_resampled_ttest",
    "expected_calibration_error",
    "f1",
    "froc_band",
    "froc_curve",
    "headline_intervals",
    "instance_scores",
    "log_likelihood",
    "paired_differences",
    "precision",
    "precision_recall_band",
    "recall",
    "reliability_curve",
    "roc_auc",
    "roc_band",
    "scorer",
    "selective_risk",
    "win_tie_loss",
    "within_bag_variability",
]
