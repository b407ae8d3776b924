"""One penalty for all weights: fitted as given, or chosen by cross-validation over bags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from bagwise.core.inference.loop import Trace
from bagwise.core.inference.monitor import Note
from bagwise.core.inference.stats import FoldedLikelihood
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.targets import halves
from bagwise.core.linear.design import Design, whitened
from bagwise.core.linear.evidence import NEWTON_STEPS, NO_MODE, Fit, ignore, start_intercept
from bagwise.core.linear.laplace import Mode, find_mode

Array = NDArray[Any]

GRID = tuple(10.0 ** np.arange(4, -1.5, -0.5))  # down to a prior deviation of 3 per weight
N_FOLDS = 5
GOLDEN = 0.6180339887498949
PARTING = 0.1  # least precision of whitened weights, whose prior's is 1, that Laplace may have
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
    note: Note = ignore,
) -> Fit:
    """Weights for one given alpha on all features; alpha = 0 is maximum likelihood."""
    precisions = np.full(design.shape[1], alpha)
    coordinates = whitened(design, precisions)
    start = (np.zeros(design.shape[1]), start_intercept(design))
    certain = (likelihood.highest - SEPARATED) * design.data.n_counted
    enough = certain if alpha == 0 else np.inf
    mode = find_mode(
        likelihood,
        coordinates,
        *start,
        max_iter=max_iter,
        tol=min(tol, 1e-9),
        enough=enough,
        verbose=verbose,
        note=note,
    )
    if alpha == 0:
        _require_determined(mode)
    problem = "" if mode.trace.n_iter >= max_iter else NO_MODE
    if mode.value >= enough:
        problem = (
            "a linear rule separates the bags, so the likelihood has no maximum at finite "
            f"weights; stopped at log-likelihood {mode.value:.3g}; use alpha > 0 or "
            "alpha='evidence'"
        )
    return Fit(design.columns, precisions, (mode,), mode.evidence_trace(), problem)


def fit_evidence(
    design: Design,
    likelihood: BagLikelihood,
    *,
    max_iter: int,
    tol: float,
    verbose: int = 0,
    note: Note = ignore,
) -> Fit:
    """The alpha with the highest Laplace evidence: best of GRID, then a golden-section search.

    The evidence itself is searched. The fixed point would neglect how the curvature changes
    with alpha, which matters for few bags. Where Laplace's approximation fails its evidence
    is too high and would attract the search: such alphas are refused (`usable`). Modes of GRID
    begin at the one before, those of the search at the best, whose branch it follows. It ends
    when log alpha is known to `tol`.
    """
    search = EvidenceSearch(design, likelihood, max(max_iter, NEWTON_STEPS))
    last = None
    for log_alpha in np.log(GRID):
        last = search.mode_of(float(log_alpha), last) or last
    if search.best is None:
        raise FloatingPointError(
            f"no alpha from {GRID[-1]:.2g} to {GRID[0]:.2g} has a mode that Laplace's "
            "approximation fits, so alpha='evidence' cannot choose one; give alpha as a number, "
            "or use alpha='cv'"
        )
    width = 0.5 * float(np.log(10))
    low = max(search.best - width, float(np.log(GRID[-1])))
    high = min(search.best + width, float(np.log(GRID[0])))
    history = [search.mode.evidence]
    for a, b in golden_section(search.evidence, low, high):
        history.append(search.mode.evidence)
        note(len(history) - 1, history[-1])
        if verbose:
            alpha = np.exp(search.best)
            print(f"step {len(history) - 1:3d}  alpha {alpha:.4g}  {history[-1]:.6f}")
        if (settled := b - a <= tol) or len(history) > max_iter:
            break
    # Another mode may have become the higher one since the search began with a large alpha.
    search.mode_of(search.best, None)
    history[-1] = search.mode.evidence
    alpha = np.full(design.shape[1], np.exp(search.best))
    found = search.mode.trace.converged
    trace = Trace(tuple(history), settled and found)
    return Fit(design.columns, alpha, (search.mode,), trace, "" if found else NO_MODE)


class EvidenceSearch:
    """The usable mode with the highest Laplace evidence of the alphas that were tried."""

    def __init__(self, design: Design, likelihood: BagLikelihood, max_iter: int) -> None:
        self.design = design
        self.likelihood = likelihood
        self.max_iter = max_iter
        self.best: float | None = None  # log alpha
        self.mode: Mode

    def evidence(self, log_alpha: float) -> float:
        """The log evidence of a mode begun at the best, minus infinity where it is not usable."""
        mode = self.mode_of(log_alpha, self.mode)
        return -np.inf if mode is None else mode.evidence

    def mode_of(self, log_alpha: float, start: Mode | None) -> Mode | None:
        """The mode begun at another one, or anew; None if it is not usable. The best is kept."""
        coordinates = whitened(self.design, np.full(self.design.shape[1], np.exp(log_alpha)))
        if start is None:
            w, b, near = np.zeros(self.design.shape[1]), start_intercept(self.design), None
        else:
            w, b, near = start.w, start.b, start.curvature_of()
        mode = find_mode(self.likelihood, coordinates, w, b, max_iter=self.max_iter, near=near)
        if not usable(mode, self.likelihood.highest * self.design.data.n_counted):
            return None
        if self.best is None or mode.evidence > self.mode.evidence:
            self.best, self.mode = log_alpha, mode
        return mode


def usable(mode: Mode, highest: float = 0.0) -> bool:
    """Whether a mode may speak for its alpha: Laplace's approximation can be a fair one.

    Refused are saddles; modes just parting, whose evidence diverges (see `firmer_than`); and
    log evidence above the `highest` that labels may have, 0 for classes: more than certainty.
    Labels of bags that are far apart leave the intercept, whose prior has density 1, undetermined
    over more than a unit.
    """
    return mode.firmer_than(PARTING) and mode.evidence <= highest


def golden_section(
    f: Callable[[float], float], low: float, high: float
) -> Iterator[tuple[float, float]]:
    """Ever smaller brackets of a maximum of f, with one new value for each.

    >>> for low, high in golden_section(lambda x: -((x - 1) ** 2), 0.0, 5.0):
    ...     if high - low < 1e-4:
    ...         break
    >>> round(low, 3), round(high, 3)
    (1.0, 1.0)
    """
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    f_left, f_right = f(left), f(right)
    while True:
        if f_left >= f_right:
            high, right, f_right = right, left, f_left
            left = high - GOLDEN * (high - low)
            f_left = f(left)
        else:
            low, left, f_left = left, right, f_right
            right = low + GOLDEN * (high - low)
            f_right = f(right)
        yield low, high


def _require_determined(mode: Mode) -> None:
    eigenvalues = np.linalg.eigvalsh(mode.P)
    if eigenvalues[0] <= SINGULAR * eigenvalues[-1]:
        raise ValueError(
            "alpha=0 (maximum likelihood) leaves some weights undetermined: features outnumber "
            "instances or repeat each other; use alpha > 0 or alpha='evidence'"
        )


def fit_by_folds(
    design: Design,
    likelihood: BagLikelihood,
    rng: np.random.Generator,
    *,
    max_iter: int,
    tol: float,
    verbose: int = 0,
    note: Note = ignore,
) -> Fit:
    """Weights for the alpha that predicts held-out bags best."""
    alpha, found = choose_alpha(design, likelihood, rng, max(max_iter, NEWTON_STEPS))
    limits: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "verbose": verbose}
    fit = fit_alpha(design, likelihood, alpha, note=note, **limits)
    if found:
        return fit
    return replace(fit, trace=replace(fit.trace, converged=False), problem=NO_MODE)


def choose_alpha(
    design: Design,
    likelihood: BagLikelihood,
    rng: np.random.Generator,
    max_iter: int = NEWTON_STEPS,
) -> tuple[float, bool]:
    """The alpha of GRID with the highest held-out log-likelihood of bags [R08, 9.2].

    Also whether all modes were reached on the way.
    """
    bags = design.data.counting
    T = halves(design.data.T[bags])
    fewest = int(min(np.sum(T), np.sum(~T)))
    if fewest < 2:
        raise ValueError(
            f"alpha='cv' needs at least 2 bags of each class, got {fewest} (shares are cut at "
            "their median); use alpha='evidence'"
        )
    folds = StratifiedKFold(
        min(N_FOLDS, fewest), shuffle=True, random_state=int(rng.integers(2**31))
    )
    scores, converged = np.zeros(len(GRID)), True
    for train, test in folds.split(np.zeros(len(T)), T):
        fitted, held_out = (design.of_bags(bags[part]) for part in (train, test))
        found = held_out_scores(fitted, held_out, likelihood, max_iter)
        scores, converged = scores + found[0], converged and found[1]
    return float(GRID[int(np.argmax(scores))]), converged


def held_out_scores(
    train: Design, test: Design, likelihood: BagLikelihood, max_iter: int = NEWTON_STEPS
) -> tuple[Array, bool]:
    """log p(T | w) of the test bags for each alpha of GRID, and whether all modes were reached.

    Weights are carried from one to the next: GRID falls, so each fit starts near its mode.
    """
    w, b, near = np.zeros(train.shape[1]), start_intercept(train), None
    scores, converged = np.empty(len(GRID)), True
    for i, alpha in enumerate(GRID):
        coordinates = whitened(train, np.full(train.shape[1], alpha))
        mode = find_mode(likelihood, coordinates, w, b, max_iter=max_iter, tol=1e-6, near=near)
        near = mode.curvature_of()
        w, b, converged = mode.w, mode.b, converged and mode.trace.converged
        scores[i] = plug_in_log_likelihood(likelihood, test, w, b)
    return scores, converged


def plug_in_log_likelihood(likelihood: BagLikelihood, design: Design, w: Array, b: float) -> float:
    """log p(T | w, b) summed over bags."""
    return design.sweeper.total(partial(FoldedLikelihood(likelihood, 0.0).log_prob, m=w, c0=b))
