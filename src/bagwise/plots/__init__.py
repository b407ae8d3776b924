"""Figures of predictions; matplotlib is needed only when one is drawn."""

from bagwise.plots.image_bags import plot_image_bags
from bagwise.plots.style import POSITIVE, require_matplotlib

__all__ = ["POSITIVE", "plot_image_bags", "require_matplotlib"]
