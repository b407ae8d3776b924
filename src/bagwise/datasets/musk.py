"""MUSK1, the data set on which multiple instance learning was introduced."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from bagwise.bags import Bags


def load_musk1() -> Bags:
    """Load MUSK1: 92 molecules (47 musks) with 476 conformations of 166 features.

    A bag is a molecule, an instance one of its low-energy shapes; the label is 1 if people
    perceive the molecule as a musk. The features are distances in hundredths of an Angstrom.

    Origin: Chapman, D. and Jain, A. (1994), "Musk (Version 1)", UCI Machine Learning Repository,
    DOI 10.24432/C5ZK5B; licence CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/). Changes:
    the names of molecules and conformations are left out, bags are numbered 0 to 91.

    >>> load_musk1()
    Bags(92 bags: 47 positive, 45 negative; 476 instances x 166 features, 2-40 per bag; float64)
    """
    path = files("bagwise.datasets") / "data" / "musk1.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
        return Bags.from_arrays(
            data["X"].astype(np.float64),
            data["bag"].astype(np.int64),
            y=data["y"].astype(np.int64),
        )
