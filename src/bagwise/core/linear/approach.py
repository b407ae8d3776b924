"""The way to a mode of many weights by gradients alone, where curvature costs many of them.

The Hessian of D weights takes as long as D / 25 gradients or so. It is taken where the way begins,
unless it is known from a mode nearby, and where it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from bagwise.core.inference.newton import PRIOR_CURVATURE, Slope
from bagwise.core.linalg import try_cholesky

Array = NDArray[Any]
Map = Callable[[Array], Array]

WIDE = 200  # coordinates, from which on this pays
MEMORY = 40  # steps that tell how the curvature differs from where they began
LEAST_GAIN = 3e-15  # of a step, relative to the log density: less is rounding
TRIALS = 10  # of the length of a step
LEAST_SLOPE = 3e-9  # in a whitened direction, from which a step would gain no more than that


def approach(
    slope: Slope, v: Array, P: Array, max_iter: int, heard: Callable[[list[float]], None]
) -> tuple[Array, list[float]]:
    """Steps of L-BFGS from v, where -Hessian is about P [Nocedal & Wright 2006, Algorithm 7.5].

    Returns where they end, and the log density at each. Where P is not positive definite |P|
    serves in its place, so that the first direction is that of `damped_step`.
    """
    outward, inward = whitening(P)
    values: list[float] = []

    def loss(z: Array) -> tuple[float, Array]:
        value, gradient = slope(v + outward(z))
        if not values:
            values.append(value)
        return -value, -inward(gradient)

    def after(intermediate_result: Any) -> None:
        values.append(-float(intermediate_result.fun))
        heard(values)

    how: dict[str, Any] = {"maxcor": MEMORY, "maxiter": max_iter, "maxls": TRIALS}
    how |= {"ftol": LEAST_GAIN, "gtol": LEAST_SLOPE}
    start = np.zeros(len(v))
    end = minimize(loss, start, method="L-BFGS-B", jac=True, callback=after, options=how)
    return v + outward(end.x), values


def whitening(P: Array) -> tuple[Map, Map]:
    """z -> R z and g -> R'g of a matrix with R R' = |P|^-1, in which P is +-1 in all directions.

    Flat directions of an indefinite P are not trusted further than the prior is wide.
    """
    L = try_cholesky(P)
    if L is None:
        values, vectors = np.linalg.eigh(P)
        R = vectors / np.sqrt(np.maximum(np.abs(values), PRIOR_CURVATURE))
        return (lambda z: R @ z), (lambda g: R.T @ g)
    return (
        lambda z: np.asarray(solve_triangular(L, z, lower=True, trans=1, check_finite=False)),
        lambda g: np.asarray(solve_triangular(L, g, lower=True, check_finite=False)),
    )
