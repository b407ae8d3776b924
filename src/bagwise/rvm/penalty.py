"""One penalty for all weights: fitted as given, or chosen by cross-validation over bags."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from bagwise.labels import BagLikelihood
from bagwise.rvm.design import Design, whitened
from bagwise.rvm.evidence import Fit, start_intercept
from bagwise.rvm.laplace import LogJoint, Mode, find_mode

Array = NDArray[Any]

GRID = tuple(10.0 ** np.arange(4, -3.5, -0.5))
N_FOLDS = 5
SEPARATED = 1e-3  # mean log-likelihood of a bag above minus that: the bags are separated


def fit_alpha(
    design: Design,
    likelihood: BagLikelihood,
    alpha: float,
    *,
    max_iter: int,
    tol: float,
    verbose: int = 0,
) -> Fit:
    """Weights for one given alpha on all features; alpha = 0 is maximum likelihood."""
    precisions = np.full(design.shape[1], alpha)
    coordinates = whitened(design, precisions)
    start = (np.zeros(design.shape[1]), start_intercept(design))
    enough = -SEPARATED * len(design.data.T) if alpha == 0 else np.inf
    mode = find_mode(
        likelihood,
        coordinates,
        *start,
        max_iter=max_iter,
        tol=min(tol, 1e-9),
        enough=enough,
        verbose=verbose,
    )
    if alpha == 0:
        _check_maximum_likelihood(mode, enough)
    columns = np.arange(design.shape[1])
    return Fit(columns, precisions, (mode,), mode.evidence_trace())


def _check_maximum_likelihood(mode: Mode, enough: float) -> None:
    if mode.summit.value >= enough:
        warnings.warn(
            "a linear rule separates the bags, so the likelihood has no maximum at finite "
            f"weights; stopped at log-likelihood {mode.summit.value:.3g}; use alpha > 0 or "
            "alpha='evidence'",
            ConvergenceWarning,
            stacklevel=5,
        )
    try:
        mode.log_evidence  # noqa: B018
    except FloatingPointError:
        raise ValueError(
            "alpha=0 (maximum likelihood) leaves some weights undetermined: features outnumber "
            "instances, repeat each other or are constant; use alpha > 0 or alpha='evidence'"
        ) from None


def choose_alpha(design: Design, likelihood: BagLikelihood, rng: np.random.Generator) -> float:
    """The alpha of GRID with the highest held-out log-likelihood of bags [R08, 9.2]."""
    T = design.data.T
    fewest = int(min(np.sum(T), np.sum(~T)))
    if fewest < 2:
        raise ValueError(
            f"alpha='cv' needs at least 2 bags of each class, got {fewest}; use alpha='evidence'"
        )
    folds = StratifiedKFold(
        min(N_FOLDS, fewest), shuffle=True, random_state=int(rng.integers(2**31))
    )
    scores = sum(
        held_out_scores(design.of_bags(train), design.of_bags(test), likelihood)
        for train, test in folds.split(np.zeros(len(T)), T)
    )
    return float(GRID[int(np.argmax(scores))])


def held_out_scores(train: Design, test: Design, likelihood: BagLikelihood) -> Array:
    """log p(T | w) of the test bags for each alpha of GRID, weights carried from one to the next.

    GRID falls, so each fit starts near its mode.
    """
    w, b = np.zeros(train.shape[1]), start_intercept(train)
    scores = np.empty(len(GRID))
    for i, alpha in enumerate(GRID):
        precisions = np.full(train.shape[1], alpha)
        mode = find_mode(likelihood, whitened(train, precisions), w, b, tol=1e-6)
        w, b = mode.w, mode.b
        scores[i] = plug_in_log_likelihood(likelihood, test, w, b)
    return scores


def plug_in_log_likelihood(likelihood: BagLikelihood, design: Design, w: Array, b: float) -> float:
    """log p(T | w, b) summed over bags."""
    flat = whitened(design, np.zeros(design.shape[1]))
    return LogJoint(likelihood, flat).log_likelihood(np.append(w, b))
