"""Data sets that come with bagwise or are made from those of scikit-learn."""

from bagwise.datasets.canvases import Canvases, make_digit_canvases
from bagwise.datasets.digits import make_digit_bags
from bagwise.datasets.musk import load_musk1

__all__ = ["Canvases", "load_musk1", "make_digit_bags", "make_digit_canvases"]
