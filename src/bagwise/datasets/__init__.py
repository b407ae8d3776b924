"""Data sets: embedded ones, ones that are fetched when first used, and generators.

`load_musk1` is part of the package. `fetch_*` find or download a set and check it; `make_*` draw
bags with known instance labels. `bagwise datasets` on the command line lists what there is.
"""

from bagwise.datasets.assumption_tests import (
    make_false_frequency,
    make_multi_concept,
    make_single_concept,
)
from bagwise.datasets.cad import CadData, make_cad_bags, make_related_tasks
from bagwise.datasets.canvases import Canvases, make_digit_canvases
from bagwise.datasets.digits import make_digit_bags
from bagwise.datasets.fetch import (
    BirdSong,
    fetch_birds_hja,
    fetch_elephant,
    fetch_fox,
    fetch_musk2,
    fetch_newsgroups,
    fetch_tiger,
    load_musk1,
)
from bagwise.datasets.images import fetch_fashion_mnist_bags, fetch_mnist_bags
from bagwise.datasets.synthetic import make_bags

__all__ = [
    "BirdSong",
    "CadData",
    "Canvases",
    "fetch_birds_hja",
    "fetch_elephant",
    "fetch_fashion_mnist_bags",
    "fetch_fox",
    "fetch_mnist_bags",
    "fetch_musk2",
    "fetch_newsgroups",
    "fetch_tiger",
    "load_musk1",
    "make_bags",
    "make_cad_bags",
    "make_digit_bags",
    "make_digit_canvases",
    "make_false_frequency",
    "make_multi_concept",
    "make_related_tasks",
    "make_single_concept",
]
