"""The logistic link, and its averages over Gaussians: residuals of many draws, and tilted f."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.bags.rows import blocks

Array = NDArray[Any]

# Averages over draws of f: up to that width, so many Gauss-Hermite nodes, or a trapezoid rule with
# that step and reach (errors below 1e-6); wider ones go on halving the step.
HERMITE = ((1e-4, 1), (0.2, 3), (0.5, 5))
TRAPEZOID = ((1.4, 1.0, 6.0), (2.8, 0.5, 8.0), (5.6, 0.25, 9.0))
LOG_SQRT_2PI = 0.9189385332046727
TILT_WIDTHS = (1.0, 2.0, 4.0, 8.0)  # classes of deviations, with steps of 0.8 / width of them
TILT_REACH = 7.0  # deviations on either side of the mode
MODE_STEPS = 6
TILTED_AT_ONCE = 2**12
TRAPEZOID_WIDTHS = (1.0, 3.0, 9.0)  # classes of single averages, each with steps 0.8 / width
REACH = 8.0  # standard deviations on either side of an integrand's mode
NODES_AT_ONCE = 2**17  # times instances, 1 MiB
NEARLY_GONE = 1e-300  # a probability whose inverse is a number
WIDEST = 44.8  # beyond which exp(r) leaves the numbers, and moments of single averages take over


def log_sigmoids(z: Array) -> tuple[Array, Array]:
    """log sigmoid(z) and log sigmoid(-z).

    By functions that have vector instructions, and so take a fifth of the time of SciPy's.

    >>> log_sigmoids(np.array([0.0, 800.0]))
    (array([-0.69314718,  0.        ]), array([-6.93147181e-01, -8.00000000e+02]))
    """
    rest = np.log1p(np.exp(-np.abs(z)))
    return np.minimum(z, 0) - rest, -np.maximum(z, 0) - rest


def logistic_logs(z: Array) -> tuple[Array, Array]:
    """log(-log P(y = 0 | z)) and log P(y = 1 | z)."""
    log_positive, log_negative = log_sigmoids(z)
    low = z < -30
    cost = np.log(-np.where(low, -1.0, log_negative))
    return np.where(low, z - 0.5 * np.exp(np.minimum(z, 0)), cost), log_positive


@lru_cache
def _hermite(n: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss and Hermite: their eigenvalues cost more than a bag's average."""
    return np.polynomial.hermite_e.hermegauss(n)


@lru_cache
def legendre(n: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss and Legendre: their eigenvalues cost more than a few averages."""
    return np.polynomial.legendre.leggauss(n)


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


def rare_logistic(distance: Array, sd: Array, width: float) -> tuple[Array, Array]:
    """log E[p] and log(Var[p] / E[p]^2), p = sigmoid(f), f ~ N(-distance, sd^2), sd <= width.

    By the trapezoid rule around the mode of sigmoid(f) times the density; its error is about
    exp(-2 pi^2 / (step sd)). All in units of exp(-distance).
    """
    t, mode = np.exp(-distance), _tilted_mode(distance, sd)
    step = 0.8 / width
    offsets = np.arange(-REACH, REACH + width + step, step)
    first, spread = np.empty(sd.shape), np.empty(sd.shape)
    for rows in blocks(len(sd), NODES_AT_ONCE // len(offsets)):
        nodes = mode[rows] + offsets[:, None]  # (nodes, rows)
        c = np.exp(sd[rows] * nodes)
        x = c / (1 + t[rows] * c)
        weight = step * np.exp(-0.5 * nodes**2 - LOG_SQRT_2PI)
        first[rows] = np.sum(weight * x, axis=0)
        spread[rows] = np.sum(weight * (x - first[rows]) ** 2, axis=0)
    with np.errstate(divide="ignore"):  # no spread
        return np.log(first) - distance, np.log(spread) - 2 * np.log(first)


def _tilted_mode(distance: Array, sd: Array) -> Array:
    """About where log sigmoid(sd x - distance) - x^2 / 2 is largest, by bisection on [0, sd]."""
    low, high = np.zeros(sd.shape), sd
    for _ in range(8):
        middle = 0.5 * (low + high)
        rising = sd * special.expit(distance - sd * middle) > middle
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return 0.5 * (low + high)


def wide_logistic(distance: Array, sd: Array) -> tuple[Array, Array]:
    """The same for a wide Gaussian, where f varies faster than the sigmoid.

    With logistic noise e, sigmoid(f) = P(e < f), so E[sigmoid(f)] = E_e[Phi((-distance - e) / sd)],
    and sigmoid^2 = sigmoid - density: both are smooth in e and summed by the trapezoid rule, with
    errors of about 8 pi^2 / step exp(-2 pi^2 / step) and exp(-reach).
    """
    first, density = np.zeros(sd.shape), np.zeros(sd.shape)
    nodes = 0.75 * np.arange(-80, 81)
    weights = special.expit(nodes) * special.expit(-nodes)
    for e, weight in zip(nodes, weights / weights.sum(), strict=True):
        x = (-distance - e) / sd
        first += weight * special.ndtr(x)
        density += weight * np.exp(-0.5 * x**2 - LOG_SQRT_2PI) / sd
    # Beyond all numbers either the Gaussian's tail decides or that of the sigmoid.
    tail = np.where(distance > sd**2, 0.5 * sd**2 - distance, special.log_ndtr(-distance / sd))
    gone = first < NEARLY_GONE
    first = np.where(gone, 1.0, first)
    relative = np.maximum(1 - density / first, first) / first - 1  # E[p]^2 <= E[p^2] <= E[p]
    with np.errstate(divide="ignore"):
        return np.where(gone, tail, np.log(first)), np.where(gone, -tail, np.log(relative))


def tilted_logistic(mean: Array, variance: Array, power: int) -> tuple[Array, ...]:
    """log E[sigmoid(-f)^power], f ~ N(mean, variance), and its derivatives in the mean: a `Tilt`.

    By the trapezoid rule about the mode of the tilted density. The sigmoid's poles are pi away
    from the real axis: steps of 0.8 in f, and of 0.8 deviations, make errors of about exp(-24).
    NaN where Gaussians are wider than the last of `TILT_WIDTHS`.
    """
    shape = np.shape(mean)
    m, sd = np.ravel(mean).astype(np.float64), np.sqrt(np.ravel(variance))
    found, last = np.full((5, len(m)), np.nan), -1.0
    for width in TILT_WIDTHS:
        rows = np.flatnonzero((sd > last) & (sd <= width))
        for first in range(0, len(rows), TILTED_AT_ONCE):
            some = rows[first : first + TILTED_AT_ONCE]
            found[:, some] = _tilted(m[some], sd[some], power, 0.8 / width)
        last = width
    return tuple(x.reshape(shape) for x in found)


def _tilted(m: Array, sd: Array, power: int, step: float) -> Array:
    """The same of some Gaussians N(m, sd^2), with steps in units of sd, (5, n)."""
    mode = np.zeros_like(m)
    slope = power * sd
    for _ in range(MODE_STEPS):  # Newton's, on t = -power sd sigmoid(m + sd t), concave
        p = special.expit(m + sd * mode)
        mode -= (mode + slope * p) / (1 + slope * sd * p * (1 - p))
    t = mode + np.arange(-TILT_REACH, TILT_REACH + step / 2, step)[:, None]  # (nodes, n)
    f = m + sd * t
    logs = power * special.log_expit(-f) - 0.5 * t**2
    top = np.max(logs, axis=0)
    weights = np.exp(logs - top)
    total = weights.sum(axis=0)
    weights /= total
    log_mass = top + np.log(step * total) - LOG_SQRT_2PI
    return np.array([log_mass, *_derivatives(weights, special.expit(f), power)])


def _derivatives(weights: Array, p: Array, power: int) -> tuple[Array, ...]:
    """Slope, curvature, third and fourth derivative, from averages over the tilted density.

    With l = power log sigmoid(-f): slope E[l'], second derivative E[l''] + Var[l'], and so on by
    joint cumulants of l', l'', ...; none of them is a small difference.
    """

    def average(x: Array) -> Array:
        return np.einsum("kn,kn->n", weights, x)

    q = p * (1 - p)
    one, two, three = -power * p, -power * q, -power * q * (1 - 2 * p)
    four = -power * q * (1 - 6 * q)
    slope, second, last = average(one), average(two), average(three)
    u, w = one - slope, two - second
    uu = u**2
    variance = average(uu)
    third = last + 3 * average(u * w) + average(uu * u)
    fourth = average(four) + 4 * average(u * (three - last)) + 3 * average(w**2)
    fourth += 6 * average(uu * w) + average(uu**2) - 3 * variance**2
    return slope, np.maximum(-second - variance, 0), third, fourth
