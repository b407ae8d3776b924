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


SLOWER, FASTER = 0.5, 1.2  # steps of a log alpha that turns back, and of one that does not
NEWTON_TOL = 1e-6  # of the log joint; the last step squares what is left of the error
PATIENCE, SETTLING = 100, 0.97
GROWTH = 1.5  # least factor by which the precision of a useless feature grows


@dataclass(frozen=True)
class Fit:
    """Weights of each task on the features that are left."""

    columns: NDArray[np.intp]  # (d,) numbers of the features in use
    alpha: Array  # (d,)
    modes: tuple[Mode, ...]  # one per task
    trace: Trace


def fixed_point(alpha: Array, w: Array, variances: Array) -> Array:
    """alpha_i = sum_j gamma_ij / sum_j w_ij^2, gamma_ij = 1 - alpha_i Sigma_ii^j; w is (J, d).

    MacKay's form of [R08, Eq. 17]: the same stationary points, reached in tens of steps instead
    of thousands. Where labels make a weight less certain than its prior (gamma <= 0, possible as
    the likelihood is not concave) only the printed form is positive, and serves.
    """
    gamma = np.sum(1 - alpha * variances, axis=0)
    size = np.sum(w**2, axis=0)
    with np.errstate(divide="ignore", over="ignore"):
        mackay = np.where(gamma > 0, gamma, 1.0) / size
    return np.where(gamma > 0, mackay, printed_update(alpha, w, variances))


def useless(alpha: Array, w: Array, variances: Array) -> NDArray[np.bool_]:
    """Features whose evidence, all else fixed, is highest at alpha = infinity: sum q^2 < sum s.

    Seen from weight i the data are one Gaussian observation with precision s and precision
    times mean q: 1/Sigma_ii = alpha + s, w_i/Sigma_ii = q (Tipping and Faul's sparsity and
    quality factors, with all other weights integrated out).
    """
    s = np.sum(1 / variances - alpha, axis=0)
    return np.sum((w / variances) ** 2, axis=0) < s


def printed_update(alpha: Array, w: Array, variances: Array) -> Array:
    """alpha_i = J / sum_j (w_ij^2 + Sigma_ii^j) [R08, Eq. 17]; Section 8 forgets the J tasks."""
    return len(w) / np.sum(w**2 + variances, axis=0)


@dataclass(frozen=True)
class Pace:
    """How far each log alpha follows its update: less where it turns back and forth.

    Weights interact, so that updating all precisions at once can make some of them cycle, or the
    mode jump between two. After `PATIENCE` updates all steps shrink, so that the fit settles.
    """

    rate: Array  # (d,)
    last: Array  # (d,) steps taken before
    left: int = PATIENCE  # updates before all steps shrink

    @classmethod
    def start(cls, d: int) -> Pace:
        """Full steps."""
        return cls(np.ones(d), np.zeros(d))

    def apply(self, step: Array) -> tuple[Array, Pace]:
        """The steps to take, and the pace afterwards."""
        turned = step * self.last < 0
        rate = np.where(turned, SLOWER * self.rate, np.minimum(1.0, FASTER * self.rate))
        taken = rate * SETTLING ** max(0, -self.left) * step
        return taken, Pace(rate, taken, self.left - 1)

    def only(self, keep: NDArray[np.bool_]) -> Pace:
        """The pace of the features that are left."""
        return Pace(self.rate[keep], self.last[keep], self.left)


def start_intercept(design: Design) -> float:
    """Intercept at which a bag of average size is as likely positive as negative."""
    size = len(design.data.X) / len(design.data.T)
    return float(np.log(np.expm1(np.log(2) / size)))


def maximise_evidence(
    designs: Sequence[Design],
    likelihood: BagLikelihood,
    alpha_init: float,
    update: Update,
    *,
    limits: tuple[float, float] = (1e-6, 1e6),
    max_iter: int = 500,
    tol: float = 5e-3,
    verbose: int = 0,
) -> Fit:
    """Alternate modes and updates of alpha until the evidence rests [R08, Algorithm 1].

    Tasks share alpha, which stays above the lower limit. Features whose alpha exceeds the upper
    one leave for good.
    """
    alpha = np.full(designs[0].shape[1], alpha_init)
    starts = [(np.zeros(len(alpha)), start_intercept(design)) for design in designs]
    history: list[float] = []
    still, pace, hurry = 0, Pace.start(len(alpha)), update is not printed_update
    while True:
        modes = tuple(
            find_mode(likelihood, whitened(design, alpha), *start, tol=NEWTON_TOL)
            for design, start in zip(designs, starts, strict=True)
        )
        history.append(sum(mode.log_evidence for mode in modes))
        if verbose:
            print(f"update {len(history) - 1:3d}  {len(alpha)} features  {history[-1]:.6f}")
        w, variances = (np.array([getattr(m, x) for m in modes]) for x in ("w", "variances"))
        step, pace = pace.apply(np.log(update(alpha, w, variances) / alpha))
        growing = useless(alpha, w, variances) & (step > 0)
        # Near q^2 = s the precision of a useless feature would take hundreds of steps to infinity.
        step = np.where(growing & hurry, np.maximum(step, np.log(GROWTH)), step)
        new = np.maximum(alpha * np.exp(step), limits[0])
        keep = new <= limits[1]
        moving = hurry and bool(np.any(growing))
        still = still + 1 if _rests(history, tol) and not moving else 0
        if still == 2 or len(history) > max_iter or (not len(alpha) and len(history) > 1):
            converged = still == 2 or not len(alpha)
            return Fit(designs[0].columns, alpha, modes, Trace(tuple(history), converged))
        alpha, pace = new[keep], pace.only(keep)
        designs = [design.only(keep) for design in designs]
        starts = [(mode.w[keep], mode.b) for mode in modes]


def _rests(history: list[float], tol: float) -> bool:
    """Whether the last change is within tol, in nats: evidence counts by differences."""
    return len(history) > 1 and abs(history[-1] - history[-2]) <= tol
