"""Evidence maximisation: prior precisions alpha from the data, useless features pruned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.loop import Trace
from bagwise.core.inference.monitor import Note
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.linear.design import Columns, Design, whitened
from bagwise.core.linear.laplace import Mode, find_mode

Array = NDArray[Any]
Update = Callable[[Array, Array, Array], Array]

SLOWER, FASTER = 0.5, 1.2  # steps of a log alpha that turns back, and of one that does not
NEWTON_TOL = 1e-6  # of the log joint; the last step squares what is left of the error
NEWTON_STEPS = 100  # of a mode at least; max_iter where that is more
PATIENCE, SETTLING = 100, 0.97
SETTLED = 0.1  # where steps have shrunk to that part, a fit that rests is not continued
STEADY = 0.1  # largest |log| of a whole update at a fixed point
GROWTH = 1.5  # least factor by which the precision of a useless feature grows
NO_MODE = (
    "Newton's method did not reach the mode of the weights, so that evidence and deviations are "
    "not exact; check the features' scale (standardize=True) or raise max_iter"
)


@dataclass(frozen=True)
class Fit:
    """Weights of each task on the features that are left."""

    columns: Columns  # those in use
    alpha: Array  # (d,)
    modes: tuple[Mode, ...]  # one per task
    trace: Trace
    problem: str = ""  # why there is no convergence, where max_iter is not why


def ignore(step: int, objective: float) -> None:
    """Where nobody wants to hear of a step."""


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
    """Features whose evidence, all else fixed, is highest at alpha = infinity, where it is 0.

    Seen from weight i each task is one Gaussian observation with precision s and precision
    times mean q: 1/Sigma_ii = alpha + s, w_i/Sigma_ii = q (Tipping and Faul's sparsity and
    quality factors, with all other weights integrated out). For large alpha the evidence is
    (sum q^2 - sum s) / (2 alpha). Of one task it has no other sign elsewhere; of several it may
    have: one that needs the weight and others that do not.
    """
    s, q = 1 / variances - alpha, w / variances  # (J, d)
    found = np.sum(q**2, axis=0) < np.sum(s, axis=0)
    if len(w) > 1 and np.any(found):
        found[found] = _best_gain(alpha[found], s[:, found], q[:, found]) <= 0
    return found


def _best_gain(alpha: Array, s: Array, q: Array) -> Array:
    """Highest sum_j [log(alpha/(alpha + s_j)) + q_j^2/(alpha + s_j)] over alpha, (d,)."""
    trial = alpha * np.geomspace(2.0**-20, 2.0**20, 81)[:, None]  # (81, d)
    precision = trial[:, None, :] + s  # (81, J, d)
    valid = np.all(precision > 0, axis=1)
    safe = np.where(precision > 0, precision, 1.0)
    gains = np.sum(np.log(trial[:, None, :] / safe) + q**2 / safe, axis=1)
    return np.max(np.where(valid, gains, -np.inf), axis=0)


def printed_update(alpha: Array, w: Array, variances: Array) -> Array:
    """alpha_i = J / sum_j (w_ij^2 + Sigma_ii^j) [R08, Eq. 17]; Section 8 forgets the J tasks."""
    return len(w) / np.sum(w**2 + variances, axis=0)


@dataclass(frozen=True)
class Pace:
    """How far each log alpha follows its update: less where it turns back and forth.

    Weights interact, so that updating all precisions at once can make some of them cycle, or the
    mode jump between two. If `settles`, all steps shrink after `PATIENCE` updates, so that such a
    fit comes to rest. That is not convergence.
    """

    rate: Array  # (d,)
    last: Array  # (d,) steps taken before
    settles: bool
    left: int = PATIENCE  # updates before all steps shrink

    @classmethod
    def start(cls, d: int, *, settles: bool) -> Pace:
        """Full steps."""
        return cls(np.ones(d), np.zeros(d), settles)

    @property
    def shrinkage(self) -> float:
        """What the time taken leaves of all steps."""
        return SETTLING ** max(0, -self.left) if self.settles else 1.0

    def apply(self, step: Array) -> tuple[Array, Pace]:
        """The steps to take, and the pace afterwards."""
        turned = step * self.last < 0
        rate = np.where(turned, SLOWER * self.rate, np.minimum(1.0, FASTER * self.rate))
        taken = rate * self.shrinkage * step
        return taken, replace(self, rate=rate, last=taken, left=self.left - 1)

    def only(self, keep: NDArray[np.bool_]) -> Pace:
        """The pace of the features that are left."""
        return replace(self, rate=self.rate[keep], last=self.last[keep])


def start_intercept(design: Design) -> float:
    """Intercept at which a bag of average size is as likely positive as negative.

    Where labels are shares, that at which so many instances are positive.
    """
    data = design.data
    if data.T.dtype != bool:
        share = float(np.clip(np.average(data.T, weights=data.counts), 0.01, 0.99))
        return float(np.log(share) - np.log1p(-share))
    rows = len(data.X) if data.row_counts is None else float(np.sum(data.row_counts))
    size = rows / data.n_counted
    return float(np.log(np.expm1(np.log(2) / size)))


def maximise_evidence(
    designs: Sequence[Design],
    likelihood: BagLikelihood,
    alpha_init: float,
    update: Update,
    *,
    limits: tuple[float, float],
    max_iter: int = 500,
    tol: float = 5e-3,
    verbose: int = 0,
    note: Note = ignore,
) -> Fit:
    """Alternate modes and updates of alpha until both rest [R08, Algorithm 1].

    Tasks share alpha, which stays above the lower limit. Features whose alpha exceeds the upper
    one leave for good. A fit has converged where whole updates, as they are before `Pace` makes
    them smaller, hardly change alpha within the limits, and the evidence rests. `note` hears of
    every update.
    """
    alpha = np.full(designs[0].shape[1], alpha_init)
    starts: list[Any] = [(np.zeros(len(alpha)), start_intercept(d), None) for d in designs]
    history: list[float] = []
    hurry = update is not printed_update
    resting, pace = 0, Pace.start(len(alpha), settles=hurry)
    while True:
        modes = _modes(designs, likelihood, alpha, starts, max(max_iter, NEWTON_STEPS))
        history.append(sum(mode.evidence for mode in modes))
        note(len(history) - 1, history[-1])
        if verbose:
            print(f"update {len(history) - 1:3d}  {len(alpha)} features  {history[-1]:.6f}")
        w, variances = (np.array([getattr(m, x) for m in modes]) for x in ("w", "variances"))
        whole = np.log(update(alpha, w, variances) / alpha)
        step, pace = pace.apply(whole)
        growing = useless(alpha, w, variances) & (step > 0) & hurry
        # Near q^2 = s the precision of a useless feature would take hundreds of steps to infinity.
        step = np.where(growing, np.maximum(step, np.log(GROWTH)), step)
        new = np.maximum(alpha * np.exp(step), limits[0])
        keep = new <= limits[1]
        resting = resting + 1 if _rests(history, tol) and not np.any(growing) else 0
        steady = _largest_change(alpha, whole, limits[0]) <= STEADY
        done = resting >= 2 and (steady or pace.shrinkage <= SETTLED)
        if done or len(history) > max_iter or (not len(alpha) and len(history) > 1):
            converged = steady and (resting >= 2 or not len(alpha))
            problem = "" if converged or not done else _restless(alpha, whole, limits[0])
            return _finished(designs[0].columns, alpha, modes, history, converged, problem)
        alpha, pace = new[keep], pace.only(keep)
        designs = [design.only(keep) for design in designs]
        starts = [(mode.w[keep], mode.b, mode.curvature_of(keep)) for mode in modes]


def _modes(
    designs: Sequence[Design],
    likelihood: BagLikelihood,
    alpha: Array,
    starts: Sequence[tuple[Array, float, Array | None]],
    max_iter: int,
) -> tuple[Mode, ...]:
    """The mode of each task for shared alpha."""
    return tuple(
        find_mode(
            likelihood,
            whitened(design, alpha),
            w,
            b,
            max_iter=max_iter,
            tol=NEWTON_TOL,
            near=near,
        )
        for design, (w, b, near) in zip(designs, starts, strict=True)
    )


def _finished(
    columns: Columns,
    alpha: Array,
    modes: tuple[Mode, ...],
    history: list[float],
    converged: bool,
    problem: str,
) -> Fit:
    """The fit; it has converged only if Newton's method did for each task."""
    found = all(mode.trace.converged for mode in modes)
    if not found and not problem:
        problem = NO_MODE
    return Fit(columns, alpha, modes, Trace(tuple(history), converged and found), problem)


def _rests(history: list[float], tol: float) -> bool:
    """Whether the last change is within tol, in nats: evidence counts by differences."""
    return len(history) > 1 and abs(history[-1] - history[-2]) <= tol


def _changes(alpha: Array, whole: Array, lowest: float) -> Array:
    """|log| of what whole updates would change, which the lower limit may stop."""
    return np.abs(np.maximum(whole, np.log(lowest / alpha)))


def _largest_change(alpha: Array, whole: Array, lowest: float) -> float:
    return float(np.max(_changes(alpha, whole, lowest), initial=0.0))


def _restless(alpha: Array, whole: Array, lowest: float) -> str:
    changes = _changes(alpha, whole, lowest)
    return (
        f"the prior precisions of {np.sum(changes > STEADY)} of {len(alpha)} features have no "
        "fixed point that updates reach: they went back and forth until ever smaller steps stopped "
        f"them, where a whole update would still change one by a factor of "
        f"{np.exp(np.max(changes)):.2g}; read the weights of such a fit with care and compare its "
        "predictions with those of MILogisticRegression"
    )
