"""One fold: what is trained on what, and what is measured.

Splits are made by bag, never by instance, stratified by bag label, and whole groups (patients) go
to one side. A model sees the training bags only: scaling, inducing points, hyperparameters,
thresholds and calibration are fitted inside its `fit`. Instance labels are never given to it.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from bagwise.bags import Bags
from bagwise.benchmark.registry import Problem, make_model
from bagwise.metrics import bag_scores, instance_scores
from bagwise.metrics.models import Given

Split = tuple[NDArray[np.int64], NDArray[np.int64]]

BAG_SCORES = (
    "roc_auc",
    "average_precision",
    "accuracy",
    "f1",
    "log_likelihood",
    "brier",
    "expected_calibration_error",
)


@dataclass(frozen=True)
class Job:
    """One fit: a model on a fold of a repeat of a problem."""

    problem: Problem
    model_name: str
    model: str | BaseEstimator
    repeat: int
    fold: int
    folds: int
    seed: int

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """What the result is filed under."""
        p = self.problem
        return p.name, p.target, self.model_name, self.repeat, self.fold

    def run(self) -> dict[str, Any]:
        """Fit and score it: see `evaluate`."""
        return evaluate(self)


def splits(problem: Problem, folds: int, seed: int) -> list[Split]:
    """(train, test) bags of each fold; the one given split where the set has one.

    >>> from bagwise.datasets import load_musk1
    >>> [len(test) for _, test in splits(Problem("musk1", load_musk1()), 10, seed=0)]
    [10, 10, 9, 9, 9, 9, 9, 9, 9, 9]
    """
    bags = problem.bags
    if problem.n_train is not None:
        everything = np.arange(len(bags))
        return [(everything[: problem.n_train], everything[problem.n_train :])]
    rarest = int(np.unique(np.asarray(bags.y), return_counts=True)[1].min())
    if rarest < folds:
        raise ValueError(
            f"{folds} folds need as many bags of each class, but {problem.name} "
            f"{problem.target} has {rarest} of one; ask for fewer folds"
        )
    kind = StratifiedKFold if bags.groups is None else StratifiedGroupKFold
    cut = kind(folds, shuffle=True, random_state=seed)
    return list(cut.split(np.zeros(len(bags)), bags.y, bags.groups))


def evaluate(job: Job) -> dict[str, Any]:
    """Fit and score one fold: a row of the tidy table, with the predictions of its test bags."""
    problem = job.problem
    train, test = splits(problem, job.folds, job.seed + job.repeat)[job.fold]
    model = make_model(job.model, problem.bags, job.seed + job.repeat)
    training = problem.bags[train].with_instance_labels(None)
    held_out = problem.bags[test].with_instance_labels(None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()  # of the processor: other programs do not count
        model.fit(training)
        fitted = time.process_time()
        P = np.asarray(model.predict_proba(held_out))
        predicted = time.process_time()
    row: dict[str, Any] = dict(
        zip(("set", "target", "model", "repeat", "fold"), job.key, strict=True)
    )
    row |= {
        "seed": job.seed,
        "n_train": len(train),
        "n_test": len(test),
        "fit_seconds": fitted - start,
        "predict_seconds": predicted - fitted,
        "warnings": len(caught),
    }
    scores = bag_scores(Given(model.classes_, P), held_out)
    row |= {f"bag_{name}": scores[name] for name in BAG_SCORES}
    row |= _instance_row(model, problem, test, held_out)
    positive = np.asarray(held_out.y) == model.classes_[1]
    row["predictions"] = {
        "bag": test.tolist(),
        "positive": positive.astype(int).tolist(),
        "p": P[:, 1].tolist(),
    }
    return row


def _instance_row(
    model: Any, problem: Problem, test: NDArray[np.int64], held_out: Bags
) -> dict[str, float]:
    """Scores of the instances whose truth is known; nothing where there is none."""
    if problem.truth is None or not hasattr(model, "predict_instance_proba"):
        return {}
    truth = problem.truth[np.isin(problem.bags.bag_index, test)]
    if np.all(np.isnan(truth) | (truth < 0)):
        return {}
    P = np.asarray(model.predict_instance_proba(held_out))
    scores = instance_scores(Given(np.array([0, 1]), p=P), held_out, truth)
    return {f"instance_{name}": scores[name] for name in ("n", *BAG_SCORES)}
