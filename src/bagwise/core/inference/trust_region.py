"""Newton's steps within a radius in which a log density is trusted to be its parabola.

Where P = -Hessian is indefinite, the best step within the radius is long along the few directions
in which the density is convex or flat, and Newton's own along all others; a common factor for the
whole step, as a line search finds it, would be that of the worst direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.newton import Expansion, LogDensity
from bagwise.core.linalg import solve_from_cholesky, try_cholesky

Array = NDArray[Any]

START_RADIUS = 1.0  # the deviation of v ~ N(0, I)
POOR, GOOD = 0.1, 0.5  # of what the parabola gains: less is refused, more asks for a longer step
SHORTER, LONGER = 0.25, 2.0
LEAST_RADIUS = 1e-9  # rounding is all that shorter steps see
PRECISELY = 1e-6  # relatively: any length of about the radius will do
MOST_HALVES = 100


@dataclass(frozen=True)
class Parabola:
    """g's - s'Ps / 2 as a function of the step s from `here`."""

    here: Expansion

    def gain(self, step: Array) -> float:
        """What the parabola gains by a step."""
        return float(self.here.gradient @ step - 0.5 * step @ (self.here.P @ step))

    @cached_property
    def top(self) -> Array | None:
        """Newton's step; None where the parabola has no top."""
        L = try_cholesky(self.here.P)
        return None if L is None else solve_from_cholesky(L, self.here.gradient)

    @cached_property
    def _spectrum(self) -> tuple[Array, Array, Array]:
        """Eigenvalues and eigenvectors of P, and the gradient along them."""
        values, vectors = np.linalg.eigh(self.here.P)
        return values, vectors, vectors.T @ self.here.gradient

    def best_within(self, radius: float) -> Array:
        """The step no longer than `radius` that gains most.

        It is (P + lambda I)^-1 g with the smallest lambda >= 0 that makes P + lambda I positive
        definite and the step as short [Moré & Sorensen 1983, Lemma 2.1]. If the step is short for
        all of them, the eigenvector of the lowest eigenvalue makes up for it.
        """
        if self.top is not None and np.linalg.norm(self.top) <= radius:
            return self.top
        values, vectors, slopes = self._spectrum
        above = values - values[0]  # so that shifts near the lowest eigenvalue keep their digits
        low = max(0.0, float(values[0])) + 1e-12 * max(1.0, float(np.max(np.abs(values))))
        along = slopes / (above + low)
        lacking = radius**2 - float(along @ along)
        if lacking >= 0:
            rest = float(along[1:] @ along[1:])
            along[0] = np.copysign(np.sqrt(radius**2 - rest), along[0])
            return vectors @ along
        high = low + float(np.linalg.norm(slopes)) / radius
        for _ in range(MOST_HALVES):
            middle = 0.5 * (low + high)
            too_long = np.linalg.norm(slopes / (above + middle)) > radius
            low, high = (middle, high) if too_long else (low, middle)
            if high - low <= PRECISELY * high:
                break
        return vectors @ (slopes / (above + high))


def trusted_step(
    density: LogDensity, here: Expansion, radius: float
) -> tuple[tuple[Array, float] | None, float]:
    """The next point with its value, None if no step gains, and the radius for the step after.

    Values cost much less than derivatives: the radius grows while the step gains by it.
    """
    parabola = Parabola(here)
    step = parabola.best_within(radius)
    value = density.value(here.v + step)
    while not value - here.value >= POOR * parabola.gain(step):
        radius = SHORTER * min(radius, float(np.linalg.norm(step)))
        if radius < LEAST_RADIUS:
            return None, START_RADIUS
        step = parabola.best_within(radius)
        value = density.value(here.v + step)
    found = here.v + step, value
    while step is not parabola.top and value - here.value > GOOD * parabola.gain(step):
        step = parabola.best_within(LONGER * radius)
        value = density.value(here.v + step)
        if not value > found[1]:
            break
        found, radius = (here.v + step, value), LONGER * radius
    return found, radius
