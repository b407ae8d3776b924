"""Data sets that come with bagwise, are made from those of scikit-learn, or are drawn."""

from bagwise.datasets.cad import CadData, make_cad_bags, make_related_tasks
from bagwise.datasets.canvases import Canvases, make_digit_canvases
from bagwise.datasets.digits import make_digit_bags
from bagwise.datasets.musk import load_musk1

__all__ = [
    "CadData",
    "Canvases",
    "load_musk1",
    "make_cad_bags",
    "make_digit_bags",
    "make_digit_canvases",
    "make_related_tasks",
]
