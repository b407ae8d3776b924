"""Data sets that come with bagwise or are made from those of scikit-learn."""

from bagwise.datasets.digits import make_digit_bags
from bagwise.datasets.musk import load_musk1

__all__ = ["load_musk1", "make_digit_bags"]
