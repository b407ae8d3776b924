"""Figures of predictions; matplotlib is needed only when one is drawn.

Each display has `from_estimator` or `from_predictions`, which draw, and `plot(ax=None)`, which
draws again; both return the display with `ax_` and `figure_`.
"""

from bagwise.plots.benchmark import plot_ranking
from bagwise.plots.curves import (
    FrocDisplay,
    PrecisionRecallDisplay,
    ReliabilityDisplay,
    RocDisplay,
)
from bagwise.plots.heatmap import HeatmapDisplay
from bagwise.plots.image_bags import ImageBagsDisplay
from bagwise.plots.inspection import DependenceDisplay, ImportanceDisplay
from bagwise.plots.instances import InstancePosteriorDisplay, InstanceProbabilityDisplay
from bagwise.plots.overlay import plot_ct_montage, plot_detections, plot_slide_heatmap
from bagwise.plots.relevance import RelevanceDisplay
from bagwise.plots.style import POSITIVE, require_matplotlib
from bagwise.plots.training import (
    AucTimeDisplay,
    ElboDisplay,
    VariabilityDisplay,
)

__all__ = [
    "POSITIVE",
    "AucTimeDisplay",
    "DependenceDisplay",
    "ElboDisplay",
    "FrocDisplay",
    "HeatmapDisplay",
    "ImageBagsDisplay",
    "ImportanceDisplay",
    "InstancePosteriorDisplay",
    "InstanceProbabilityDisplay",
    "PrecisionRecallDisplay",
    "RelevanceDisplay",
    "ReliabilityDisplay",
    "RocDisplay",
    "VariabilityDisplay",
    "plot_ct_montage",
    "plot_detections",
    "plot_ranking",
    "plot_slide_heatmap",
    "require_matplotlib",
]
