"""One penalty for all weights: fitted as given, or chosen by cross-validation over bags."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from bagwise.infer.loop import Trace
from bagwise.labels import BagLikelihood
from bagwise.rvm.design import Design, whitened
from bagwise.rvm.evidence import Fit, start_intercept
from bagwise.rvm.laplace import LogJoint, Mode, find_mode

Array = NDArray[Any]

GRID = tuple(10.0 ** np.arange(4, -1.5, -0.5))  # down to a prior deviation of 3 per weight
N_FOLDS = 5
GOLDEN = 0.6180339887498949
SINGULAR = 1e-12  # smallest eigenvalue of P, relative to the largest
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
    return Fit(design.columns, precisions, (mode,), mode.evidence_trace())


def fit_evidence(
    design: Design, likelihood: BagLikelihood, *, max_iter: int, tol: float, verbose: int = 0
) -> Fit:
    """The alpha with the highest Laplace evidence: best of GRID, then golden-section steps.

    The evidence itself is searched. The fixed point would neglect how the curvature changes
    with alpha, which matters for few bags. GRID ends where the Laplace approximation does: for
    bags that a linear rule separates, its evidence of smaller alphas can even exceed 1.
    """
    d = design.shape[1]
    w, b = np.zeros(d), start_intercept(design)

    def mode_at(log_alpha: float) -> Mode:
        nonlocal w, b
        mode = find_mode(likelihood, whitened(design, np.full(d, np.exp(log_alpha))), w, b)
        w, b = mode.w, mode.b
        return mode

    modes = {float(x): mode_at(float(x)) for x in np.log(GRID)}
    best = max(modes, key=lambda x: modes[x].log_evidence)
    width = 0.5 * float(np.log(10))
    low, high = max(best - width, np.log(GRID[-1])), min(best + width, np.log(GRID[0]))
    mode = modes[best]
    history, converged = [mode.log_evidence], False
    while not converged and len(history) <= max_iter:
        inner = [(high - GOLDEN * (high - low)), (low + GOLDEN * (high - low))]
        tried = [mode_at(x) for x in inner]
        values = [t.log_evidence for t in tried]
        low, high = (low, inner[1]) if values[0] > values[1] else (inner[0], high)
        gap = abs(values[0] - values[1])
        for x, t in zip(inner, tried, strict=True):
            if t.log_evidence > mode.log_evidence:
                best, mode = x, t
        history.append(mode.log_evidence)
        converged = gap <= tol
        if verbose:
            print(f"step {len(history) - 1:3d}  alpha {np.exp(best):.4g}  {history[-1]:.6f}")
    return Fit(design.columns, np.full(d, np.exp(best)), (mode,), Trace(tuple(history), converged))


def _check_maximum_likelihood(mode: Mode, enough: float) -> None:
    if mode.summit.value >= enough:
        warnings.warn(
            "a linear rule separates the bags, so the likelihood has no maximum at finite "
            f"weights; stopped at log-likelihood {mode.summit.value:.3g}; use alpha > 0 or "
            "alpha='evidence'",
            ConvergenceWarning,
            stacklevel=5,
        )
    eigenvalues = np.linalg.eigvalsh(mode.summit.P)
    if eigenvalues[0] <= SINGULAR * eigenvalues[-1]:
        raise ValueError(
            "alpha=0 (maximum likelihood) leaves some weights undetermined: features outnumber "
            "instances or repeat each other; use alpha > 0 or alpha='evidence'"
        )


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
