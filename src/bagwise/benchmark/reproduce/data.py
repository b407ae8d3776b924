"""Where the data of the papers come from, and what stands in for those that cannot be had."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise import datasets
from bagwise.bags import Bags
from bagwise.benchmark.registry import Problem

T = TypeVar("T")
Array = NDArray[Any]


@dataclass(frozen=True)
class Source:
    """Folders in which data are looked for; what is in none of them may be downloaded.

    These are `folder` (`--data`), the folder that BAGWISE_DATA names, `data` in the folder that
    BAGWISE_SHARED names or else in `../shared`, and the cache of the operating system.
    """

    folder: str | None = None
    download: bool = True

    def homes(self) -> list[str]:
        """The folders that are there, the one that was asked for first."""
        shared = Path(os.environ.get("BAGWISE_SHARED") or "../shared") / "data"
        named = [self.folder, os.environ.get("BAGWISE_DATA"), str(shared)]
        return [home for home in named if home and Path(home).is_dir()]

    def fetched(self, fetch: Callable[..., T]) -> T | None:
        """What a `fetch_*` function finds or downloads; None where it cannot be had.

        A file that is there but is not what it should be is an error.
        """
        for home in self.homes():
            try:
                return fetch(data_home=home, download=False)
            except OSError:
                continue
        try:
            return fetch(download=self.download)
        except (OSError, ImportError):
            return None

    def file(self, name: str) -> Path | None:
        """A file of the folders."""
        paths = (Path(home) / name for home in self.homes())
        return next((path for path in paths if path.is_file()), None)

    def arrays(self, name: str) -> Problem | None:
        """The set of NAME.npz in one of the folders: see docs/papers.md for its arrays."""
        path = self.file(f"{name}.npz")
        return None if path is None else read_problem(path)


def read_problem(path: Path) -> Problem:
    """Bags of an .npz with X, bag, y_bag and where known y_inst, coords, groups and train.

    `groups` are patients or scans, (B,). `train` says which bags are for training, (B,) 0 or 1;
    they come first in the problem.
    """
    with np.load(path, allow_pickle=False) as file:
        data = {name: file[name] for name in file.files}
    missing = [name for name in ("X", "bag", "y_bag") if name not in data]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}; it needs X, bag and y_bag")
    X = data["X"].astype(np.float64)
    more = {name: data.get(name) for name in ("coords", "groups")}
    bags = Bags.from_arrays(X, data["bag"], y=data["y_bag"], **more)
    truth = data.get("y_inst")
    problem = Problem(path.stem, bags, None if truth is None else truth[bags.row_index])
    return problem if "train" not in data else training_first(problem, data["train"] == 1)


def training_first(problem: Problem, train: NDArray[np.bool_]) -> Problem:
    """The same problem with its training bags in front."""
    order = np.argsort(~train, kind="stable")
    truth = None if problem.truth is None else problem.truth[rows_of(problem.bags, order)]
    bags = problem.bags[order]
    return replace(problem, bags=bags, truth=truth, n_train=int(train.sum()))


def rows_of(bags: Bags, order: Array) -> Array:
    """Rows of the bags in this order."""
    starts, ends = bags.offsets[:-1], bags.offsets[1:]
    return np.concatenate([np.arange(starts[b], ends[b]) for b in order])


def digit_bags(n_bags: int, n_train: int, random_state: int = 0) -> Problem:
    """Bags of scikit-learn's digits, the first `n_train` for training: what is always there."""
    bags, truth = datasets.make_digit_bags(n_bags, random_state=random_state)
    return Problem("digits", bags, truth, n_train=n_train)


def some_bags(problem: Problem, n: int, seed: int = 0) -> Problem:
    """At most n of the bags, in their order, both labels as often as before."""
    if len(problem.bags) <= n:
        return problem
    rng = np.random.default_rng(seed)
    y = np.asarray(problem.bags.y)
    share = n / len(y)
    kept = [rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y)]
    chosen = np.sort(np.concatenate([rows[: max(2, round(share * len(rows)))] for rows in kept]))
    truth = None if problem.truth is None else problem.truth[rows_of(problem.bags, chosen)]
    return replace(problem, bags=problem.bags[chosen], truth=truth)
