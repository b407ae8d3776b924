"""What the papers draw: curves over sweeps and over known labels, and histograms."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from bagwise.bags import Bags
from bagwise.benchmark.registry import Problem
from bagwise.benchmark.reproduce.measures import Array, mean_of, parts, truth_of
from bagwise.benchmark.reproduce.table import Figures
from bagwise.metrics import average_precision, roc_auc


def known_truth(problem: Problem, some: Array) -> Array:
    """True labels of the instances of some bags, without which there is no curve."""
    truth = truth_of(problem, some)
    if truth is None:
        raise ValueError(f"{problem.name} has no instance labels (y_inst), which a curve needs")
    return truth


class Watcher:
    """A callback that scores the model so far on other bags after every sweep."""

    def __init__(self, bags: Bags, truth: Array) -> None:
        self.bags, self.truth = bags, truth
        self.found: dict[int, float] = {}

    def __call__(self, stage: str, step: int, objective: float, seconds: float) -> None:
        """All that is wanted is in `look`."""

    def look(self, model: Any, stage: str, step: int) -> None:
        """Note the average precision of this sweep."""
        p = np.asarray(model.predict_instance_proba(self.bags))
        self.found[step] = average_precision(self.truth, p)


def learning_curve(
    problem: Problem, model: Any, seed: int, *, sweeps: tuple[int, ...], folds: int
) -> Figures:
    """Instance AP of test folds after each sweep [V17, suppl. Fig. 2].

    Of fits with several starts, as LM-VGPMIL's, it is the last one's.
    """
    y = np.asarray(problem.bags.y)
    rows = []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(y, y):
        training, held_out = parts(problem, train, test)
        watcher = Watcher(held_out, known_truth(problem, test))
        model.fit(training, callbacks=[watcher])
        last = max(watcher.found)
        rows.append({f"sweep {k}": watcher.found[min(k, last)] for k in sweeps})
    return mean_of(rows)


class StopError(Exception):
    """Raised by a callback to end a fit."""


class EarlyStopping:
    """Ends a fit when the AUC of validation bags has not risen for `patience` sweeps [C24, 6.1].

    `model` is that of the last sweep: the paper halts there, and does not say that it goes back.
    """

    def __init__(self, bags: Bags, patience: int = 10) -> None:
        self.bags, self.patience = bags, patience
        self.best, self.since = -np.inf, 0
        self.model: Any = None

    def __call__(self, stage: str, step: int, objective: float, seconds: float) -> None:
        """All that is wanted is in `look`."""

    def look(self, model: Any, stage: str, step: int) -> None:
        """Score the model so far."""
        score = roc_auc(self.bags, np.asarray(model.predict_proba(self.bags)))
        self.model = model
        self.since += 1
        if score > self.best:
            self.best, self.since = score, 0
        if self.since >= self.patience:
            raise StopError


def fitted_early(model: Any, train: Bags, validation: Bags) -> Any:
    """The model at the sweep at which the validation bags have it halted."""
    stopping = EarlyStopping(validation)
    with suppress(StopError):
        model.fit(train, callbacks=[stopping])
    return stopping.model


def supervision_curve(
    problem: Problem, model: Any, seed: int, *, shares: tuple[int, ...]
) -> Figures:
    """Instance AP on test bags when so many percent of the training bags are labelled throughout.

    [V17, Fig. 4]. The same bags, drawn at random, are labelled for all models; a larger share
    holds the smaller ones.
    """
    rng = np.random.default_rng(seed)
    everything = rng.permutation(len(problem.bags))
    train, test = np.sort(everything[: problem.n_train]), np.sort(everything[problem.n_train :])
    training, held_out = parts(problem, train, test)
    known, order = known_truth(problem, train), rng.permutation(len(train))
    figures = {}
    for share in shares:
        labelled = order[: round(share / 100 * len(order))]
        shown = np.where(np.isin(training.bag_index, labelled), known, np.nan)
        given = training if share == 0 else training.with_instance_labels(shown)
        p = np.asarray(model.fit(given).predict_instance_proba(held_out))
        figures[f"{share} %"] = average_precision(known_truth(problem, test), p)
    return figures


def label_histogram(problem: Problem, model: Any, seed: int, *, bins: int) -> Figures:
    """Percent of the instances of positive training bags whose q(y = 1) is in each bin."""
    bags = problem.bags.with_instance_labels(None)
    model.fit(bags)
    q = np.asarray(model.instance_posterior(bags))[:, 1]
    q = q[np.asarray(bags.y)[bags.bag_index] == model.classes_[1]]
    counts, edges = np.histogram(q, bins, (0.0, 1.0))
    names = [f"q(y) in {low:.1f}–{high:.1f}, %" for low, high in pairwise(edges)]
    return dict(zip(names, (100 * counts / counts.sum()).tolist(), strict=True))
