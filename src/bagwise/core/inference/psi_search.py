"""Learning psi and its kernel by the bound minus log Z [C24, Eq. 29], where log Z is known.

The bound of an unnormalised psi grows without end along directions that only make w(f) larger;
log Z takes that away. It is estimated from the same draws for every setting, so that the search
sees a smooth function. Settings whose log Z is not known well enough are not entered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from bagwise.core.features import whitener
from bagwise.core.inference.cavi import CoordinateAscent
from bagwise.core.inference.monitor import Monitor
from bagwise.core.inference.passes import Sweeper, TrainingData
from bagwise.core.inference.psi_normaliser import log_normaliser
from bagwise.core.inference.stats import Sites, standard_q
from bagwise.core.linalg import BREAKDOWNS
from bagwise.densities import Density
from bagwise.kernels import Kernel

Array = NDArray[Any]

LARGEST_ERROR = 0.2  # nats of log Z: a difference below it is none
PRIOR_SCALE = 0.5  # of the logarithm of each parameter around where the search starts
FIRST_STEP = 0.5  # of the simplex, in prior standard deviations
ENOUGH = 0.1  # nats within which the corners of the simplex agree at the end
TRIALS = 25  # a parameter


@dataclass(frozen=True)
class PsiKernel:
    """A psi and the kernel of f."""

    psi: Density
    kernel: Kernel

    @property
    def theta(self) -> Array:
        """Logarithms of the numbers of psi, then those of the kernel."""
        return np.concatenate([np.log(list(_numbers(self.psi).values())), self.kernel.theta])

    def with_theta(self, theta: Array) -> PsiKernel:
        """The same kinds with other numbers."""
        names = list(_numbers(self.psi))
        values = np.exp(theta[: len(names)]).tolist()
        new: Any = dict(zip(names, values, strict=True))
        psi = replace(self.psi, **new) if new else self.psi  # type: ignore[type-var]
        return PsiKernel(psi, self.kernel.with_theta(theta[len(names) :]))


def _numbers(psi: Density) -> dict[str, float]:
    """The parameters of a density that are positive numbers: a pair of functions has none."""
    if not is_dataclass(psi):
        return {}
    values = {f.name: getattr(psi, f.name) for f in fields(psi)}
    return {k: float(v) for k, v in values.items() if isinstance(v, int | float) and v > 0}


@dataclass(frozen=True)
class NormalisedBound:
    """The bound of [C24, Eq. 29] at its best q, as a function of psi and kernel."""

    data: TrainingData
    Z: Array
    jitter: float
    c0: float
    seed: int
    sites: Callable[[Density], Sites]
    max_iter: int = 500
    tol: float = 1e-8

    def __call__(self, setting: PsiKernel) -> float:
        """ELBO - log Z; ValueError says why where log Z is not known."""
        features = whitener(setting.kernel, self.Z, self.jitter)
        A, kt = features(np.asarray(self.data.X))
        counts = self.data.row_counts
        estimate = log_normaliser(setting.psi, A, kt, self.c0, self.seed, counts)
        estimate.check(LARGEST_ERROR)
        sites, sweeper = self.sites(setting.psi), Sweeper(self.data, features)
        ascent = CoordinateAscent(sites, sweeper, learn_mean=False)
        start = standard_q(len(self.Z), self.c0)
        _, trace = ascent.run(start, max_iter=self.max_iter, tol=self.tol, warn=False)
        return trace.history[-1] - estimate.value


def learn_psi(
    bound: NormalisedBound, start: PsiKernel, monitor: Monitor | None = None
) -> PsiKernel:
    """The most probable psi and kernel under log-normal priors around `start`, by Nelder-Mead.

    ValueError where log Z is not known at the start itself.
    """
    at_start = bound(start)
    trials = 0

    def objective(u: Array) -> float:
        nonlocal trials
        trials += 1
        try:
            value = at_start  # the first corner of the simplex
            if np.any(u):
                value = bound(start.with_theta(start.theta + PRIOR_SCALE * u)) - 0.5 * float(u @ u)
        except (ValueError, *BREAKDOWNS):
            return np.inf  # log Z is not known there
        if monitor is not None:
            monitor.step(trials, value, dict)
        return -value

    n = len(start.theta)
    simplex = np.vstack([np.zeros(n), FIRST_STEP * np.eye(n)])
    options = {"initial_simplex": simplex, "maxfev": TRIALS * n, "fatol": ENOUGH, "xatol": 0.1}
    found = optimize.minimize(objective, np.zeros(n), method="Nelder-Mead", options=options)
    return start.with_theta(start.theta + PRIOR_SCALE * found.x)
