"""Evidence maximisation: prior precisions alpha from the data, useless features pruned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.infer.loop import Trace
from bagwise.labels import BagLikelihood
from bagwise.rvm.design import Design, whitened
from bagwise.rvm.laplace import Mode, find_mode

Array = NDArray[Any]
Update = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True)
class Fit:
    """Weights of each task on the features that are left."""

    columns: NDArray[np.intp]  # (d,) numbers of the features in use
    alpha: Array  # (d,)
    modes: tuple[Mode, ...]  # one per task
    trace: Trace

    @property
    def log_evidence(self) -> float:
        """Sum over tasks of log p(T_j | A)."""
        return sum(mode.log_evidence for mode in self.modes)


def fixed_point(alpha: Array, w: Array, variances: Array) -> Array:
    """alpha_i = sum_j gamma_ij / sum_j w_ij^2, gamma_ij = 1 - alpha_i Sigma_ii^j, w (J, d).

    MacKay's form of [R08, Eq. 17]: the same stationary points, reached in tens of steps instead
    of thousands. Where labels make a weight less certain than its prior (gamma <= 0, possible as
    the likelihood is not concave) only the printed form is positive, and serves.
    """
    gamma = np.sum(1 - alpha * variances, axis=0)
    size = np.sum(w**2, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gamma > 0, gamma / size, printed_update(alpha, w, variances))


def printed_update(alpha: Array, w: Array, variances: Array) -> Array:
    """alpha_i = J / sum_j (w_ij^2 + Sigma_ii^j) [R08, Eq. 17]; Section 8 forgets the J tasks."""
    return len(w) / np.sum(w**2 + variances, axis=0)


def shared_fixed_point(alpha: Array, w: Array, variances: Array) -> Array:
    """One alpha for all weights: sum_i gamma_i / sum_i w_i^2."""
    one = fixed_point(alpha[:1], w.reshape(-1, 1), variances.reshape(-1, 1))
    return np.full(len(alpha), one[0])


def start_intercept(design: Design) -> float:
    """Intercept at which a bag of average size is as likely positive as negative."""
    size = len(design.data.X) / len(design.data.T)
    return float(-np.log(np.expm1(np.log(2) / size)) if size > 1 else 0.0)


def maximise_evidence(
    designs: Sequence[Design],
    likelihood: BagLikelihood,
    alpha: Array,
    update: Update,
    *,
    limit: float = np.inf,
    max_iter: int = 500,
    tol: float = 1e-3,
    verbose: int = 0,
) -> Fit:
    """Alternate modes and alpha until no log alpha moves by more than tol [R08, Algorithm 1].

    Features whose alpha exceeds `limit` leave for good. Tasks share alpha.
    """
    d = len(alpha)
    columns = np.arange(d)
    starts = [(np.zeros(d), start_intercept(design)) for design in designs]
    history: list[float] = []
    converged = False
    while True:
        modes = tuple(
            find_mode(likelihood, whitened(design, alpha), *start)
            for design, start in zip(designs, starts, strict=True)
        )
        history.append(sum(mode.log_evidence for mode in modes))
        if verbose:
            print(f"step {len(history) - 1:3d}  {len(columns)} features  {history[-1]:.6f}")
        if converged or len(history) > max_iter or not len(columns):
            return Fit(columns, alpha, modes, Trace(tuple(history), converged))
        w, variances = (np.array([getattr(m, x) for m in modes]) for x in ("w", "variances"))
        new = update(alpha, w, variances)
        keep = new <= limit
        converged = bool(np.all(keep)) and float(np.max(np.abs(np.log(new / alpha)))) <= tol
        columns, alpha = columns[keep], new[keep]
        designs = [design.only(keep) for design in designs]
        starts = [(mode.w[keep], mode.b) for mode in modes]
