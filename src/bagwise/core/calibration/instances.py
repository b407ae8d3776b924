"""Both ends of instance probabilities, fitted to bags that were left out; see `instance_ends`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from bagwise.bags import Bags
from bagwise.core.calibration.instance_ends import InstanceCalibration, is_alone
from bagwise.core.parameters import check_number
from bagwise.core.smoothing import log_sigmoids
from bagwise.core.threads import at_once

Array = NDArray[Any]
Flags = NDArray[np.bool_]

INSTANCE_SCORES = ("auto", "calibrated", "posterior")
WEIGHT = 0.7  # of the upper end, chosen in a study, see docs/results.md
WEIGHT_PRIOR = (3.5, 1.5)  # of a Beta distribution with that mean, where instance labels are known
PRIOR_SCALE = np.array([0.5, 3.0, 3.0, 0.3])  # of log a, b, r and c / a, all around 0
MOST_DRIFT = 0.9  # of c / a: the upper end rises with s, whatever negatives do
FURTHEST = 60.0  # shift of a logit for a stated share of positives
BOUNDS = [(-3.0, 3.0), (-30.0, 30.0), (-15.0, 15.0), (0.0, MOST_DRIFT)]


def calibrate_instances(
    s: Array,
    offsets: Array,
    T: Flags,
    known: Array | None = None,
    witness_rate: float | None = None,
    counts: Array | None = None,
) -> InstanceCalibration:
    """The calibration of logits of instances whose bags, labelled T, were left out of the fit.

    `known` labels of instances are NaN where they are not; `witness_rate` is the share of positives
    among the instances of positive bags; `counts` say how many times each bag counts.

    >>> rng = np.random.default_rng(0)
    >>> T = np.arange(100) % 2 == 1
    >>> y = np.repeat(T, 20) & (rng.random(2000) < 0.4)
    >>> s = np.where(y, 3.0, -3.0) + rng.normal(size=2000) - 4  # the level is far too low
    >>> ends = calibrate_instances(s, np.arange(0, 2001, 20), T)
    >>> bags = np.column_stack([~T, T]).astype(float)
    >>> round(float(ends.probability(s, np.arange(0, 2001, 20), bags).high.mean()), 1)
    0.2
    """
    known = np.full(len(s), np.nan) if known is None else known
    weights = np.repeat(np.ones(len(T)) if counts is None else counts, np.diff(offsets))
    x = most_probable(Rows(s, *rows_of(offsets, T, known), weights))
    slope = float(np.exp(x[0]))
    plain = InstanceCalibration(
        slope, float(x[1]), float(x[2]), slope * float(x[3]), np.zeros(2), WEIGHT, 1.0, len(T)
    )
    z = plain.logits(s, offsets)
    inside = np.repeat(T, np.diff(offsets))
    shifts = np.zeros(2)
    if witness_rate is not None:
        told = (known[inside], witness_rate, weights[inside])
        shifts = np.array([shift_to_share(end[inside], *told) for end in z.T])
    at = inside & np.isfinite(known) & ~is_alone(offsets)
    weight, doubt = weight_from_labels(special.expit(z + shifts)[at], known[at] == 1, weights[at])
    fields = vars(plain) | {"shifts": shifts, "weight": weight, "doubt": doubt}
    return InstanceCalibration(**fields)


@dataclass(frozen=True)
class Rows:
    """Instances of left-out bags: logits, and what is known of them."""

    s: Array  # (N,)
    T: Flags  # (N,) label of the bag
    y: Array  # (N,) 1, 0, or NaN where the label is not known
    alone: Flags  # (N,) whether the bag has no other instance
    weights: Array  # (N,) how many times the bag counts


def rows_of(offsets: Array, T: Flags, known: Array) -> tuple[Flags, Array, Flags]:
    """Label of the bag, of the instance where the bag's or its own settles it, and if alone."""
    inside, alone = np.repeat(T, np.diff(offsets)), is_alone(offsets)
    y = np.where(np.isnan(known) & (alone | ~inside), inside, known)
    return inside, y, alone


def most_probable(rows: Rows) -> Array:
    """log a, b, r and c / a at the mode of their posterior, from starts at both ends."""
    share = float(np.clip(np.average(rows.T, weights=rows.weights), 0.01, 0.99))
    r = float(special.logit(share))
    starts = ((0.0, 0.0, r, 0.0), (0.0, 3.0, r - 1, 0.0), (0.0, 0.0, r, 0.2))
    found = [mode() for mode in at_once(_mode_from, starts, (rows,))]
    return min(found, key=lambda mode: mode[0])[1]


def _mode_from(start: Sequence[float], rows: Rows) -> tuple[float, Array]:
    """Minus the log posterior at the mode that is climbed to from a start, and the mode."""
    how: dict[str, Any] = {"jac": True, "method": "L-BFGS-B", "bounds": BOUNDS}
    found = optimize.minimize(neg_log_posterior, start, (rows,), **how)
    return float(found.fun), np.asarray(found.x, dtype=np.float64)


def neg_log_posterior(x: Array, rows: Rows) -> tuple[float, Array]:
    """-sum_n w_n log P(T_n, y_n where known | s_n) - log prior, and its gradient."""
    a, (b, r, k) = np.exp(x[0]), x[1:]
    s, (z, u) = rows.s, (a * rows.s + b, r + k * a * rows.s)
    inside, outside = log_sigmoids(u)
    log_1, log_0 = log_sigmoids(z)
    log_0 = log_0 + np.where(rows.alone, 0.0, np.where(rows.T, inside, outside))
    log_gamma, log_rest = log_sigmoids(log_1 - log_0)
    free = np.isnan(rows.y)
    either = np.where(log_1 > log_0, log_1 - log_gamma, log_0 - log_rest)
    log_p = np.where(free, either, np.where(rows.y == 1, log_1, log_0))
    gamma = np.where(free, np.exp(log_gamma), rows.y)  # P(y_n = 1 | T_n, s_n)
    d_z = rows.weights * (gamma - np.exp(log_1))
    d_u = np.where(rows.alone, 0.0, rows.weights * (1 - gamma) * (rows.T - np.exp(inside)))
    slope = float(np.sum((d_z + k * d_u) * a * s))
    gradient = np.array([slope, np.sum(d_z), np.sum(d_u), np.sum(d_u * a * s)])
    deviation = x / PRIOR_SCALE
    value = -float(rows.weights @ log_p) + 0.5 * float(deviation @ deviation)
    return value, -gradient + deviation / PRIOR_SCALE


def shift_to_share(z: Array, known: Array, rate: float, weights: Array | None = None) -> float:
    """The shift of all logits by which this share of instances, as they count, is positive.

    >>> round(shift_to_share(np.array([0.0, 0.0]), np.array([np.nan, np.nan]), 0.25), 3)  # log 1/3
    -1.099
    """

    def excess(shift: float) -> float:
        p = np.where(np.isnan(known), special.expit(z + shift), known)
        return float(np.average(p, weights=weights)) - rate

    if excess(FURTHEST) <= 0:
        return FURTHEST
    if excess(-FURTHEST) >= 0:
        return -FURTHEST
    return float(optimize.brentq(excess, -FURTHEST, FURTHEST))


def weight_from_labels(ends: Array, y: Flags, weights: Array | None = None) -> tuple[float, float]:
    """Posterior mean of the upper end's weight, and its deviation as a share of the prior's.

    `ends` (n, 2) are probabilities of n instances whose labels y are known, each of which counts
    `weights` times.

    >>> weight_from_labels(np.empty((0, 2)), np.empty(0, dtype=bool))
    (0.7, 1.0)
    """
    w = (np.arange(400) + 0.5) / 400
    alpha, beta = WEIGHT_PRIOR
    log_prior = (alpha - 1) * np.log(w) + (beta - 1) * np.log1p(-w)
    of_y = np.where(y[:, None], ends, 1 - ends)
    mixed = of_y[:, :1] * (1 - w) + of_y[:, 1:] * w
    weights = np.ones(len(y)) if weights is None else weights
    log_posterior = log_prior + weights @ np.log(np.maximum(mixed, 1e-12))
    mean, std = _moments(w, log_posterior)
    prior_mean, prior_std = _moments(w, log_prior)
    return round(WEIGHT + mean - prior_mean, 12), min(round(std / prior_std, 12), 1.0)


def _moments(w: Array, log_density: Array) -> tuple[float, float]:
    """Mean and standard deviation of points with these unnormalised log-weights."""
    density = special.softmax(log_density)
    mean = float(density @ w)
    return mean, float(np.sqrt(density @ (w - mean) ** 2))


def check_witness_rate(rate: Any, score: str) -> None:
    """Raise where `witness_rate` is no share, or asked for beside what does not use it."""
    if rate is None:
        return
    check_number("witness_rate (None or a share of positive instances)", rate, above=0)
    if rate > 1:
        raise ValueError(f"witness_rate must be at most 1, got {rate}; it is a share, not percent")
    if score == "posterior":
        raise ValueError(
            "witness_rate calibrates instances, but instance_score='posterior' leaves them as they "
            "are; use instance_score='auto' or 'calibrated', or leave witness_rate out"
        )


def refuse_witness_rate(
    rate: float | None, not_calibrated: str | None, bags: Bags, T: Flags
) -> None:
    """Raise where a stated share cannot be used, or is less than one instance of each bag."""
    if rate is None:
        return
    if not_calibrated is not None:
        raise ValueError(
            f"witness_rate calibrates instances, which is not done here: {not_calibrated}; leave "
            "it out, or ask for instance_score='calibrated'"
        )
    n_instances, n_bags = int(bags.sizes[T].sum()), int(T.sum())
    if rate * n_instances < n_bags:
        raise ValueError(
            f"witness_rate={rate} of the {n_instances} instances of positive bags are fewer than "
            f"one for each of the {n_bags} bags; it is the share of positive instances in positive "
            f"bags, at least {n_bags / n_instances:.3g} here"
        )


def reason_against_instances(score: str, cannot: str | None, bags: str | None) -> str | None:
    """Why instances are not calibrated; an error where that was asked for.

    `cannot` says why nothing can be calibrated, `bags` why bags are not.
    """
    if score == "posterior":
        return "instance_score='posterior' was asked for"
    if score == "auto":
        return bags
    if cannot is not None:
        raise ValueError(
            f"instance_score='calibrated' cannot be fitted here: {cannot}; use "
            "instance_score='posterior', or 'auto', which calibrates only where it can"
        )
    return None


def no_calibration(why_not: str | None) -> str:
    """What to say where calibrated instances were asked of a model that has no calibration."""
    return (
        "instance_score='calibrated' was set after fit, or could not be fitted: this model has no "
        f"calibration of instances ({why_not}); set it, or 'auto', before fit, or go on with "
        "instance_score='posterior'"
    )
