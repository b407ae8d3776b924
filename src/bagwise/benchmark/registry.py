"""Data sets and models by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from bagwise import datasets
from bagwise.bags import Bags
from bagwise.baselines import BASELINES
from bagwise.datasets.fetch import Home
from bagwise.datasets.readers import npz_table
from bagwise.datasets.sources import data_folder
from bagwise.kernels import RBF
from bagwise.models import MODELS, VGPMIL

DEFAULT_SETS = ("musk1", "musk2", "elephant", "fox", "tiger")
DEFAULT_MODELS = ("ProbitVGPMIL", "VGPMIL", "VGPMIL-V17", *BASELINES)


@dataclass(frozen=True)
class Problem:
    """Labelled bags, and the true instance labels for evaluation (NaN or -1: unknown), if any.

    `target` tells the problems of one set apart, such as species. Where the set says which bags
    are for training, they come first and `n_train` is their number; otherwise it is None.
    """

    name: str
    bags: Bags
    truth: NDArray[Any] | None = None
    target: str = ""
    n_train: int | None = None

    def fingerprint(self) -> str:
        """SHA-256 of features, bags, labels, groups and truth: it changes if the data does."""
        total = hashlib.sha256()
        parts = [self.bags.X, self.bags.offsets, self.bags.y, self.bags.groups, self.truth]
        for part in (*parts, self.bags.coords, np.array([self.n_train or 0])):
            if part is not None:
                array = np.ascontiguousarray(part)
                array = array.astype(str) if array.dtype.kind == "O" else array
                total.update(f"{array.shape}{array.dtype}".encode())
                total.update(array.tobytes())
        return total.hexdigest()


# --- Data sets -----------------------------------------------------------------------------------


def problems(name: str, data_home: Home = None, download: bool = True) -> list[Problem]:
    """The problems of a data set: one, or one for each class.

    Besides the names in `SETS` this takes the name of any `.npz` in the data folder that holds X,
    bag, y_bag and perhaps y_inst (see docs/datasets.md).

    >>> [p.bags for p in problems("musk1")]
    [Bags(92 bags: 47 positive, 45 negative; 476 instances x 166 features, 2-40 per bag; float64)]
    """
    if name in SETS:
        return SETS[name](name, data_home, download)
    unknown = f"there is no data set {name!r}: it is none of {', '.join(SETS)}"
    try:
        path = data_folder(data_home) / f"{name}.npz"
    except ImportError as error:  # without pooch nobody knows where the folder is
        raise ValueError(f"{unknown}, and no folder of others was named") from error
    if not path.is_file():
        raise ValueError(f"{unknown}, and there is no {path.absolute()}")
    table = npz_table(path)
    if table.y.ndim != 1:
        raise ValueError(f"{path} has several labels per bag; build Bags and use run(sets=...)")
    bags = Bags.from_arrays(table.X.astype(np.float64), table.bag, y=table.y)
    return [Problem(name, bags, table.truth)]


def _plain(name: str, data_home: Home, download: bool) -> list[Problem]:
    fetch = getattr(datasets, f"fetch_{name}")
    return [Problem(name, fetch(data_home=data_home, download=download))]


def _musk1(name: str, data_home: Home, download: bool) -> list[Problem]:
    return [Problem(name, datasets.load_musk1())]


def _digits(name: str, data_home: Home, download: bool) -> list[Problem]:
    bags, truth = datasets.make_digit_bags(160, random_state=0)
    return [Problem(name, bags, truth)]


def _newsgroups(name: str, data_home: Home, download: bool) -> list[Problem]:
    bags, truth = datasets.fetch_newsgroups(data_home=data_home, download=download)
    return [Problem(name, bags, truth)]


def _birds(name: str, data_home: Home, download: bool) -> list[Problem]:
    song = datasets.fetch_birds_hja(drop_unknown=True, data_home=data_home, download=download)
    return [
        Problem(name, *song.against_rest(k), target=species.split()[0])
        for k, species in enumerate(song.species)
    ]


def _images(name: str, data_home: Home, download: bool) -> list[Problem]:
    fetch = getattr(datasets, f"fetch_{name}")
    parts = [
        fetch(subset, random_state=seed, data_home=data_home, download=download)
        for seed, subset in enumerate(("train", "test"))
    ]
    bags = Bags.concat([bags for bags, _ in parts])
    truth = np.concatenate([truth for _, truth in parts])
    return [Problem(name, bags, truth, n_train=len(parts[0][0]))]


SETS: dict[str, Callable[[str, Home, bool], list[Problem]]] = {
    "musk1": _musk1,
    "musk2": _plain,
    "elephant": _plain,
    "fox": _plain,
    "tiger": _plain,
    "birds_hja": _birds,
    "newsgroups_hockey": _newsgroups,
    "digits": _digits,
    "mnist_bags": _images,
    "fashion_mnist_bags": _images,
}


# --- Models --------------------------------------------------------------------------------------


def make_model(model: str | BaseEstimator, bags: Bags, seed: int) -> Any:
    """A fresh model with this seed: by name with its default arguments, or a clone.

    >>> make_model("ProbitVGPMIL", datasets.load_musk1(), 3)
    ProbitVGPMIL(random_state=3)
    """
    made = _by_name(model, bags) if isinstance(model, str) else clone(model)
    return made.set_params(random_state=seed) if "random_state" in made.get_params() else made


def _by_name(name: str, bags: Bags) -> Any:
    if name == "VGPMIL-V17":
        return published_vgpmil(bags.n_features)
    known = {**MODELS, **BASELINES}
    if name not in known:
        raise ValueError(
            f"there is no model {name!r}; there are: {', '.join([*known, 'VGPMIL-V17'])}"
        )
    return known[name]()


def published_vgpmil(n_features: int) -> VGPMIL:
    """Factorised VGPMIL with the settings of its authors' program [V17].

    That is H = 1e12 (the paper's text has 100), 20 sweeps from their start, zero mean, a fixed RBF
    kernel and 50 inducing points. Its lengthscale, the root of the number of features, is meant
    for standardised features. Bags are scored by their best instance.
    """
    return VGPMIL(
        label_posterior="factorised",
        H=1e12,
        kernel=RBF(1.0, float(np.sqrt(n_features))),
        learn_hyperparameters=False,
        mean=0.0,
        standardize=True,
        n_inducing=50,
        approximation="vfe",
        bag_score="max",
        max_iter=20,
        tol=1e-6,
    )
