"""Figures of predictions; matplotlib is needed only when one is drawn."""

from bagwise.plots.benchmark import plot_auc_against_time, plot_ranking, plot_reliability
from bagwise.plots.image_bags import plot_image_bags
from bagwise.plots.style import POSITIVE, require_matplotlib

__all__ = [
    "POSITIVE",
    "plot_auc_against_time",
    "plot_image_bags",
    "plot_ranking",
    "plot_reliability",
    "require_matplotlib",
]
