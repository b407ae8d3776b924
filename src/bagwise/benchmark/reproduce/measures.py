"""What is measured of a setting: fits on some bags, scores on others, by the papers' protocols.

Each function takes the data, a fresh model and a seed, and returns figures by the names that
tables have as columns. No model sees a test bag, or an instance label unless it is said.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from bagwise.bags import Bags
from bagwise.benchmark.registry import Problem
from bagwise.benchmark.reproduce.table import Figures
from bagwise.metrics import (
    average_precision,
    bag_scores,
    bag_tpr_instance_fpr_auc,
    froc_curve,
    instance_scores,
    roc_auc,
    within_bag_variability,
)
from bagwise.metrics.models import Given
from bagwise.models.transformer import InstanceTransformer

Array = NDArray[Any]

NAMES = {
    "roc_auc": "AUC",
    "average_precision": "AP",
    "accuracy": "accuracy",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "log_likelihood": "log-lik.",
    "expected_calibration_error": "ECE",
}

PERCENT = (0, 25, 50, 60, 70, 80, 85, 90, 95, 98, 100)


def parts(problem: Problem, train: Array, test: Array, features: Any = None) -> tuple[Bags, Bags]:
    """Training and test bags without instance labels; `features` are fitted to the first."""
    both = [problem.bags[np.sort(part)].with_instance_labels(None) for part in (train, test)]
    if features is not None:
        lift = InstanceTransformer(features).fit(both[0])
        both = [lift.transform(part) for part in both]
    return both[0], both[1]


def truth_of(problem: Problem, some: Array) -> Array | None:
    """True labels of the instances of some bags."""
    if problem.truth is None:
        return None
    return problem.truth[np.isin(problem.bags.bag_index, some)]


def scores(model: Any, test: Bags, truth: Array | None) -> Figures:
    """All scores of a fitted model on test bags, and on their instances where labels are known."""
    P = np.asarray(model.predict_proba(test))
    found = bag_scores(Given(model.classes_, P), test)
    figures = {f"bag {name}": found[key] for key, name in NAMES.items()}
    counts = ("true_negatives", "false_positives", "false_negatives", "true_positives")
    figures |= {key.replace("_", " "): found[key] for key in counts}
    if truth is not None and hasattr(model, "predict_instance_proba"):
        p = np.asarray(model.predict_instance_proba(test))
        found = instance_scores(Given(np.array([0, 1]), p=p), test, truth)
        figures |= {f"instance {name}": found[key] for key, name in NAMES.items()}
    return figures


def fitted(model: Any, train: Bags, grid: dict[str, list[Any]] | None = None) -> tuple[Any, float]:
    """A fresh model fitted to bags, and the seconds of the processor that it took.

    Arguments of a `grid` are chosen by five folds of these bags.
    """
    fresh = clone(model)
    start = time.process_time()
    if grid is None:
        fresh.fit(train)
    else:
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        search = GridSearchCV(fresh, grid, cv=folds, scoring="accuracy")
        fresh = search.fit(train, train.y).best_estimator_
    return fresh, time.process_time() - start


def mean_of(rows: list[Figures]) -> Figures:
    """Means over the rows in which a figure is defined."""
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: np.array([row.get(name, np.nan) for row in rows], float) for name in names}
    return {k: float(np.nanmean(v)) if np.isfinite(v).any() else np.nan for k, v in values.items()}


# --- Protocols -----------------------------------------------------------------------------------


def half_split(problem: Problem, model: Any, seed: int) -> Figures:
    """Half of the bags, drawn at random, train; the rest are scored [W21, 4.2]."""
    order = np.random.default_rng(seed).permutation(len(problem.bags))
    half = len(order) // 2
    return split_scores(problem, model, order[:half], order[half:])


def given_split(problem: Problem, model: Any, seed: int) -> Figures:
    """The training bags of the set train, the others are scored."""
    everything = np.arange(len(problem.bags))
    return split_scores(
        problem, model, everything[: problem.n_train], everything[problem.n_train :]
    )


def split_scores(problem: Problem, model: Any, train: Array, test: Array) -> Figures:
    """Scores of one fit, its seconds, and the spread of probabilities inside of bags."""
    training, held_out = parts(problem, train, test)
    fit, seconds = fitted(model, training)
    figures = scores(fit, held_out, truth_of(problem, test)) | {"fit s": seconds}
    if hasattr(fit, "predict_instance_proba"):
        figures |= negative_bags(fit, held_out)
    return figures


def negative_bags(model: Any, bags: Bags) -> Figures:
    """Variability [M24, Fig. 6] and what is called positive in negative bags [M24, Fig. 4, 5]."""
    p = np.asarray(model.predict_instance_proba(bags))[:, 1]
    negative = np.asarray(bags.y)[bags.bag_index] == model.classes_[0]
    figures = {"variability": float(np.mean(within_bag_variability(p, bags)))}
    if negative.any():
        tops = np.maximum.reduceat(np.where(negative, p, -1.0), bags.offsets[:-1])
        figures["wrongly positive, %"] = 100 * float(np.mean(p[negative] > 0.5))
        figures["highest p in negative bags"] = float(np.mean(tops[tops >= 0]))
        heights = np.quantile(p[negative], np.array(PERCENT) / 100)
        figures |= dict(zip(map(sorted_p, PERCENT), heights.tolist(), strict=True))
        worst = bags.offsets[np.argmax(tops)] + np.arange(bags.sizes[np.argmax(tops)])
        figures |= {patch(i): float(p[row]) for i, row in enumerate(worst)}
    return figures


def sorted_p(percent: int) -> str:
    """The name of the probability that so many percent of negative bags' instances are below."""
    return f"p below which {percent} % are"


def patch(i: int) -> str:
    """The name of the probability of an instance of the negative bag with the highest one."""
    return f"patch {i}"


def cross_validated(
    problem: Problem,
    model: Any,
    seed: int,
    *,
    folds: int = 10,
    features: Any = None,
    grid: dict[str, list[Any]] | None = None,
) -> Figures:
    """Means over stratified folds, and scores of all folds' predictions together ("pooled")."""
    bags = problem.bags
    y = np.asarray(bags.y)
    p_bag, p_instance = np.full(len(bags), np.nan), np.full(bags.n_instances, np.nan)
    rows = []
    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    for train, test in splitter.split(np.zeros(len(y)), y):
        training, held_out = parts(problem, train, test, features)
        fit, seconds = fitted(model, training, grid)
        row = scores(fit, held_out, truth_of(problem, test)) | {"fit s": seconds}
        if hasattr(fit, "selected_features_"):
            row["features"] = len(fit.selected_features_)
        p_bag[test] = np.asarray(fit.predict_proba(held_out))[:, 1]
        if hasattr(fit, "predict_instance_proba"):
            here = np.isin(bags.bag_index, test)
            p_instance[here] = np.asarray(fit.predict_instance_proba(held_out))[:, 1]
        rows.append(row)
    return mean_of(rows) | pooled(problem, p_bag, p_instance)


def pooled(problem: Problem, p_bag: Array, p_instance: Array) -> Figures:
    """Scores of the predictions of all folds together; [R08]'s AUC mixes bags and instances."""
    y, offsets = np.asarray(problem.bags.y), problem.bags.offsets
    figures = {"pooled bag AUC": roc_auc(y, p_bag)}
    if np.isfinite(p_instance).all():
        figures["pooled AUC of [R08]"] = bag_tpr_instance_fpr_auc(y, p_instance, offsets)
        if problem.truth is not None:
            figures["pooled instance AP"] = average_precision(problem.truth, p_instance)
    return figures


def lesions_found(
    problem: Problem, model: Any, seed: int, *, per_volume: tuple[float, ...]
) -> Figures:
    """Share of lesions found at so many false positives per volume: points of the FROC curve."""
    if problem.bags.groups is None or problem.n_train is None:
        raise ValueError(
            f"{problem.name} needs the scan of each bag (groups) and which bags train (train)"
        )
    everything = np.arange(len(problem.bags))
    train, test = everything[: problem.n_train], everything[problem.n_train :]
    training, held_out = parts(problem, train, test)
    fit, seconds = fitted(model, training)
    score = np.asarray(fit.predict_proba(held_out))[:, 1]
    figures = found_at(np.asarray(held_out.y), score, np.asarray(held_out.groups), per_volume)
    if hasattr(fit, "selected_features_"):
        figures["features"] = len(fit.selected_features_)
    return figures | {"fit s": seconds}


def found_at(y: Array, score: Array, volume: Array, per_volume: tuple[float, ...]) -> Figures:
    """Sensitivity at these numbers of false positives per volume."""
    curve = froc_curve(y, score, volume)
    return {
        f"found at {fp:g} FP": float(
            np.max(curve.sensitivity[curve.false_positives <= fp], initial=0.0)
        )
        for fp in per_volume
    }
