"""Learning kernel hyperparameters and the constant mean from the Laplace evidence.

The evidence integrates instance labels out, so it sees how bag labels constrain f; a mean-field
bound does not (its covariance ignores positive bags' labels and lengthscales can run away).
Log-normal priors, centred at parameters that suit the data's spread, keep in place what bag
labels do not determine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.features import whitener
from bagwise.core.inference.laplace import Laplace, Mode
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.passes import Sweeper, TrainingData
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.linalg import NotPositiveDefiniteError
from bagwise.kernels import Kernel

Array = NDArray[Any]

ENOUGH = 0.1  # nats that a step of the search has to gain for another one


@dataclass(frozen=True)
class Hyperparameters:
    """A kernel and a constant mean."""

    kernel: Kernel
    c0: float


@dataclass
class EvidenceObjective:
    """-(log evidence + log prior) and its gradient as a function of (theta, c0)."""

    data: TrainingData
    likelihood: BagLikelihood
    Z: Array
    jitter: float
    start: Hyperparameters
    anchor: Hyperparameters  # where the priors are centred
    learn_kernel: bool
    learn_mean: bool
    prior_scale: float = 0.2
    mean_scale: float = 1.0  # wider ones let large bags drive the mean far down
    also: tuple[Hyperparameters, ...] = ()  # further places where the search may start

    def __post_init__(self) -> None:
        self.v: Array | None = None  # warm start: the mode of the last accepted step
        self._tried: Array | None = None
        self._kept: Laplace | None = None
        self.centre = self.pack(self.anchor)
        self.scale = np.full(self.centre.size, self.prior_scale)
        self.scale[self.centre.size - self.learn_mean :] = self.mean_scale

    def as_exact_rule(self) -> EvidenceObjective:
        """The same for bag labels that are never wrong."""
        return replace(self, likelihood=self.likelihood.as_exact_rule())

    def pack(self, h: Hyperparameters) -> Array:
        """The learned part as a vector."""
        theta = h.kernel.theta if self.learn_kernel else np.empty(0)
        return np.concatenate([theta, [h.c0] if self.learn_mean else []])

    def unpack(self, x: Array) -> Hyperparameters:
        """The hyperparameters a vector stands for."""
        c0 = float(x[-1]) if self.learn_mean else self.start.c0
        theta = x[: len(x) - self.learn_mean]
        kernel = self.start.kernel.with_theta(theta) if self.learn_kernel else self.start.kernel
        return Hyperparameters(kernel, c0)

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Negative log posterior of the hyperparameters and its gradient."""
        h = self.unpack(x)
        laplace = self._laplace(h.kernel)
        mode = laplace.mode(laplace.start(h.c0) if self.v is None else self.v, h.c0)
        self._tried = mode.v
        gradient = self._gradient(laplace, mode, h.c0)
        deviation = (x - self.centre) / self.scale
        return (
            -mode.evidence + 0.5 * float(deviation @ deviation),
            -gradient + deviation / self.scale,
        )

    def accept(self) -> None:
        """Go on from the setting tried last; modes of rejected ones may be far from any good."""
        self.v = self._tried

    def _laplace(self, kernel: Kernel) -> Laplace:
        """Laplace's method for a kernel, whose features are kept while it is the same."""
        if self._kept is None or self._kept.sweeper.whitener.kernel is not kernel:
            self._kept = None  # not both at once
            sweeper = Sweeper(self.data, whitener(kernel, self.Z, self.jitter))
            self._kept = Laplace(self.likelihood, sweeper)
        return self._kept

    def _gradient(self, laplace: Laplace, mode: Mode, c0: float) -> Array:
        """Gradient of the log evidence in what is learned."""
        if not self.learn_kernel:
            return np.array([laplace.mean_gradient(mode, c0)])
        features, c0_bar = laplace.evidence_gradient(mode, c0)
        theta_bar = laplace.sweeper.whitener.theta_gradient(features, self.jitter)
        return np.append(theta_bar, c0_bar) if self.learn_mean else theta_bar


def learn(
    objective: EvidenceObjective,
    max_iter: int = 40,
    monitor: Monitor | None = None,
    state: State | None = None,
) -> Hyperparameters:
    """Maximise the evidence, from the best of the start, the anchor and what the objective adds.

    `state` is what the monitor was given after a step of a run that goes on.
    """

    def note(step: int, search: Search) -> None:
        objective.accept()
        v = objective.v
        if monitor is not None:
            monitor.step(step, -search.value, lambda: {"v": v, "step": step} | vars(search))

    def in_prior_units(u: Array) -> tuple[float, Array]:
        value, gradient = objective(objective.centre + objective.scale * u)
        return value, objective.scale * gradient

    # Less than ENOUGH is nothing to search for: modes part and meet along the way, and close to
    # such a place the evidence of one diverges, which would lead the search on and on.
    search = partial(
        minimise, in_prior_units, max_iter=max_iter, tol=ENOUGH, gradient_tol=np.inf, note=note
    )
    if state is not None:
        objective.v = state["v"]
        found = Search(**{k: state[k] for k in ("x", "value", "gradient", "pairs")})
        u = search(found, past=state["step"])
        return objective.unpack(objective.centre + objective.scale * u)
    if objective.centre.size == 0:
        return objective.start
    u = (_best_start(objective) - objective.centre) / objective.scale
    first = Search(u, *in_prior_units(u))
    objective.accept()
    u = search(first)
    return objective.unpack(objective.centre + objective.scale * u)


def _best_start(objective: EvidenceObjective) -> Array:
    """Where the evidence is largest among the places to start from."""
    starts = [objective.pack(objective.start)]
    for x in (objective.centre, *map(objective.pack, objective.also)):
        if not any(np.allclose(x, y) for y in starts):
            starts.append(x)
    return starts[0] if len(starts) == 1 else min(starts, key=lambda x: objective(x)[0])


@dataclass(frozen=True)
class Search:
    """Where L-BFGS is: a point, the objective there, and its last steps."""

    x: Array
    value: float
    gradient: Array
    pairs: tuple[tuple[Array, Array], ...] = ()


def minimise(
    objective: Callable[[Array], tuple[float, Array]],
    start: Array | Search,
    *,
    max_iter: int,
    tol: float = 1e-3,
    gradient_tol: float = 0.05,
    max_step: float = 1.0,
    memory: int = 10,
    past: int = 0,
    note: Callable[[int, Search], None] | None = None,
) -> Array:
    """L-BFGS with backtracking; stops at a small gradient when a step gains less than `tol`.

    Steps never exceed `max_step` in any coordinate, which keeps the search away from settings
    where the Laplace approximation breaks down; a setting where it does break down counts as
    a rejected step. A search that goes on starts from where it was after `past` steps; `note`
    hears of every step.

    >>> minimise(lambda x: (float(x @ x), 2 * x), np.array([3.0, -4.0]), max_iter=50).round(3) + 0
    array([0., 0.])
    """
    at = start if isinstance(start, Search) else Search(start, *objective(start))
    x, value, gradient, pairs = at.x, at.value, at.gradient, list(at.pairs)
    for k in range(past, max_iter):
        step = -_two_loop(gradient, pairs)
        step *= min(1.0, max_step / float(np.max(np.abs(step), initial=1e-300)))
        found = _backtrack(objective, x, value, gradient, step)
        if found is None:
            break
        new_x, new_value, new_gradient = found
        s, y = new_x - x, new_gradient - gradient
        if s @ y > 1e-10 * (y @ y):
            pairs = [*pairs, (s, y)][-memory:]
        gain, x, value, gradient = value - new_value, new_x, new_value, new_gradient
        if gain <= tol and np.max(np.abs(gradient)) <= gradient_tol:
            break  # without a note: a search that goes on has to end here too
        if note is not None:
            note(k + 1, Search(x, value, gradient, tuple(pairs)))
    return x


def _backtrack(
    objective: Callable[[Array], tuple[float, Array]],
    x: Array,
    value: float,
    gradient: Array,
    step: Array,
) -> tuple[Array, float, Array] | None:
    """The first of x + step / 2^k that lowers the objective enough; None if none does."""
    slope = float(gradient @ step)
    for k in range(12):
        candidate = x + step / 2**k
        try:
            new_value, new_gradient = objective(candidate)
        except (FloatingPointError, NotPositiveDefiniteError):
            continue
        if new_value <= value + 1e-4 * slope / 2**k:
            return candidate, new_value, new_gradient
    return None


def _two_loop(gradient: Array, pairs: list[tuple[Array, Array]]) -> Array:
    """Inverse Hessian times gradient from the last steps [Nocedal & Wright, Algorithm 7.4]."""
    q = gradient.copy()
    alphas = []
    for s, y in reversed(pairs):
        alphas.append((s @ q) / (s @ y))
        q -= alphas[-1] * y
    if pairs:
        s, y = pairs[-1]
        q *= (s @ y) / (y @ y)
    for (s, y), alpha in zip(pairs, reversed(alphas), strict=True):
        q += (alpha - (y @ q) / (s @ y)) * s
    return q
