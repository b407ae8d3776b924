"""Averages of the logistic link over a Gaussian residual of each of many draws of f."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Averages over draws of f: up to that width, so many Gauss-Hermite nodes, or a trapezoid rule with
# that step and reach (errors below 1e-6); wider ones go on halving the step.
HERMITE = ((1e-4, 1), (0.2, 3), (0.5, 5))
TRAPEZOID = ((1.4, 1.0, 6.0), (2.8, 0.5, 8.0), (5.6, 0.25, 9.0))
WIDEST = 44.8  # beyond which exp(r) leaves the numbers, and moments of single averages take over


@lru_cache
def _hermite(n: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss and Hermite: their eigenvalues cost more than a bag's average."""
    return np.polynomial.hermite_e.hermegauss(n)


def smoothing_rules(sd: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Rows that share a rule by their width, its nodes in units of sd, and its weights."""
    last = 0.0
    for width, n in HERMITE:
        yield from _with_rows(sd, last, width, *_hermite(n))
        last = width
    widest, (width, step, reach) = float(np.max(sd, initial=0.0)), TRAPEZOID[0]
    rules = iter(TRAPEZOID)
    while last <= widest and last < WIDEST:
        width, step, reach = next(rules, (2 * width, step / 2, reach + 1))
        nodes = np.arange(-reach, reach + step / 2, step)
        yield from _with_rows(sd, last, width, nodes, np.exp(-0.5 * nodes**2))
        last = width


def _with_rows(
    sd: Array, above: float, up_to: float, nodes: Array, weights: Array
) -> Iterator[tuple[Array, Array, Array]]:
    """The rule, if any row has a width in [above, up_to)."""
    rows = np.flatnonzero((sd >= above) & (sd < up_to))
    if len(rows):
        yield rows, nodes, weights / weights.sum()


def smoothed_logistic(
    f: Array, c: Array, weights: Array, second: bool
) -> tuple[Array, Array | None]:
    """log E[P] and log E[P^2] - 2 log E[P], P = sigmoid(-f - r), over nodes c = exp(r), (k, n, 1).

    With t = exp(-|f|) the rarer label has probability t x, x = c / (1 + t c): no digit is lost
    on either side. Nodes are symmetric, so that c serves for 1 / c.
    """
    t = np.exp(-np.abs(f))
    first = np.zeros_like(t)
    for ck, weight in zip(c, weights, strict=True):
        first += weight * (ck / (1 + t * ck))
    negative_is_rare = f > 0
    common = np.log1p(-t * first)
    log_first = np.where(negative_is_rare, np.log(first) - f, common)
    if not second:
        return log_first, None
    spread = np.zeros_like(t)
    for ck, weight in zip(c, weights, strict=True):
        spread += weight * (ck / (1 + t * ck) - first) ** 2
    scale = np.where(negative_is_rare, 1 / first, t * np.exp(-common))
    return log_first, np.log1p(spread * scale**2)
