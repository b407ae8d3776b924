"""Figures of predictions; matplotlib is needed only when one is drawn."""

from bagwise.plots.image_bags import plot_image_bags
from bagwise.plots.overlay import plot_ct_montage, plot_detections, plot_slide_heatmap
from bagwise.plots.style import POSITIVE, require_matplotlib

__all__ = [
    "POSITIVE",
    "plot_ct_montage",
    "plot_detections",
    "plot_image_bags",
    "plot_slide_heatmap",
    "require_matplotlib",
]
