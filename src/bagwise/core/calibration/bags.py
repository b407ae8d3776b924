"""Bag probabilities calibrated on training bags that were left out of a fit.

The scores "joint" and "max" of a bag rank bags well, but their level depends on what bag labels do
not tell: how many instances of a positive bag are positive, and how far the residuals of a sparse
approximation are independent. So the model is fitted again without a fifth of its training bags at
a time, its hyperparameters as they are, and a logistic regression on the scores of the bags that
were left out turns them into a probability: Platt's scaling of two scores instead of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from bagwise.bags import Bags
from bagwise.bags.rows import is_elsewhere
from bagwise.core.calibration.ranking import class_counts, warn_near_chance
from bagwise.core.inference.monitor import Monitor
from bagwise.core.linalg import BREAKDOWNS
from bagwise.core.links import LOG_SQRT_2PI, Probit
from bagwise.core.posteriors.gaussian import BAG_SCORES, Predicted, columns, parts_of
from bagwise.core.warnings import warn_user

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Scores = Callable[[Bags], Array]  # bags -> (B, 2) logits of SCORES

SCORES = ("joint", "max")
ALL_BAG_SCORES = ("auto", "calibrated", *BAG_SCORES)
FOLDS = 5
MIN_BAGS = 10  # of each class: fewer scores say too little
MAX_INSTANCES = 100_000  # beyond, "auto" does not pay for five more fits
CLOSEST = 1e-9  # to 0 and to 1, of a probability whose logit is taken
WIDEST = 12.0  # logarithm of a width that stands for certain but unknown labels
BISECTIONS = 45  # of a width's logarithm: to 1e-12
NOTHING = 1e-300  # a probability whose logarithm is finite
PRIOR_MEAN = np.array([1.0, 0.0, 0.0])  # weights and intercept: "joint" as it is
PRIOR_SCALE = np.array([1.0, 1.0, 3.0])


@dataclass(frozen=True)
class BagCalibration:
    """logit p = weights . (logit of "joint", logit of "max") + intercept.

    No weight is negative, so a more probable instance never makes its bag less probable.

    >>> as_it_is = BagCalibration(np.array([1.0, 0.0]), 0.0, n_bags=40)
    >>> as_it_is.probability(logits(np.array([0.2, 0.9]), np.array([0.1, 0.7])))
    array([0.2, 0.9])
    """

    weights: Array  # (2,), of SCORES
    intercept: float
    n_bags: int  # whose scores it was fitted to

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        weights = np.asarray(self.weights)
        if weights.shape != (len(SCORES),) or weights.dtype.kind != "f":
            raise ValueError(f"calibration: weights must be {len(SCORES)} numbers")
        if not (np.all(np.isfinite(weights)) and np.all(weights >= 0)):
            raise ValueError("calibration: weights must be finite and not negative")
        if not (np.isfinite(self.intercept) and self.n_bags > 0):
            raise ValueError("calibration: intercept must be finite and n_bags positive")

    def probability(self, scores: Array) -> Array:
        """P(positive) of bags with these logits (B, 2)."""
        return special.expit(self.logit(scores))

    def logit(self, scores: Array) -> Array:
        """logit P(positive), by which no two bags tie that differ."""
        return scores @ self.weights + self.intercept

    def both(self, scores: Array) -> Array:
        """P(negative) and P(positive), each with all its digits, (B, 2)."""
        z = self.logit(scores)
        return special.expit(np.column_stack([-z, z]))

    def deviation(self, negative: Array, positive: Array, stds: Array) -> Array:
        """Standard deviation of P(positive), from P(negative), P(positive) and std of both scores.

        Each score is taken for Phi(x) of a Gaussian x with the score's mean and deviation. Scores
        rise and fall together, so that their widths add up as their logits do: each by its weight,
        and by d logit / dx there and at the calibrated probability.
        """
        score = quantile(np.log(negative), np.log(positive))
        both = self.both(kept_off(np.log(positive) - np.log(negative)))
        calibrated = quantile(*np.log(both).T)
        logit_widths = width(score, stds) * np.exp(_log_logit_slope(score))
        own = (logit_widths @ self.weights) * np.exp(-_log_logit_slope(calibrated))
        return spread(calibrated, own)


def quantile(log_negative: Array, log_positive: Array) -> Array:
    """-|x| for the probability Phi(x): which label is the rarer one does not matter here."""
    return special.ndtri_exp(np.minimum(np.minimum(log_negative, log_positive), -np.log(2)))


def spread(x: Array, width: Array) -> Array:
    """Standard deviation of Phi(y) over Gaussian y of that width, where Phi(y) averages to Phi(x).

    It is at most sqrt(p (1 - p)), which it nears as the width grows.

    >>> spread(np.zeros(3), np.array([0.0, 1.0, 1e4])).round(3)
    array([0.   , 0.289, 0.5  ])
    """
    return Probit().moments(-x * np.sqrt(1 + width**2), width**2).std


def width(x: Array, std: Array) -> Array:
    """The width that has this `spread`, by bisection of its logarithm.

    >>> width(np.array([-1.0]), spread(np.array([-1.0]), np.array([0.5]))).round(6)
    array([0.5])
    """
    low, high = np.full(x.shape, -WIDEST), np.full(x.shape, WIDEST)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        narrow = spread(x, np.exp(middle)) < std
        low, high = np.where(narrow, middle, low), np.where(narrow, high, middle)
    return np.where(std > 0, np.exp(high), 0.0)


def _log_logit_slope(x: Array) -> Array:
    """log of d logit(Phi(x)) / dx = phi(x) / (Phi(x) Phi(-x))."""
    return -0.5 * x**2 - LOG_SQRT_2PI - special.log_ndtr(x) - special.log_ndtr(-x)


def logits(joint: Array, best: Array) -> Array:
    """(B, 2) logits of the two scores, which are kept off 0 and 1."""
    with np.errstate(divide="ignore"):
        return kept_off(special.logit(np.column_stack([joint, best])))


def kept_off(scores: Array) -> Array:
    """Logits of probabilities that are at least `CLOSEST` from 0 and 1."""
    furthest = float(special.logit(1 - CLOSEST))
    return np.clip(scores, -furthest, furthest)


def _scores_of(found: Predicted) -> tuple[Array, Array, Array]:
    """P(negative), P(positive) and std of both scores, (B, 2) each."""
    parts = [found.bags(score) for score in SCORES]
    negative = np.column_stack([np.exp(part.log_negative) for part in parts])
    positive = np.column_stack([np.exp(part.log_positive) for part in parts])
    stds = np.column_stack([part.std for part in parts])
    return np.maximum(negative, NOTHING), np.maximum(positive, NOTHING), stds


def too_few(bags: Bags, T: Flags) -> str | None:
    """Why these bags are too few to calibrate on, or None."""
    counts = class_counts(bags, T)
    if min(counts) >= MIN_BAGS:
        return None
    what = "bags" if bags.groups is None else "groups with bags"
    return f"it takes {MIN_BAGS} {what} of each class, there are {counts[0]} and {counts[1]}"


def calibrate(
    bags: Bags,
    T: Flags,
    seed: int,
    refit: Callable[[NDArray[np.int64]], Scores],
    keep: Callable[[str, Callable[[], Array]], Array] = lambda stage, work: work(),
    remedies: str = "another model",
) -> BagCalibration:
    """Fit the calibration, where `refit(numbers of bags)` gives the scores of a fit to those.

    `keep(stage, work)` does the work of one fold, or has done it in a fit that goes on. `remedies`
    say what else may help where left-out bags are ranked near chance.

    Folds are stratified by label; whole groups are left out together.

    >>> rng = np.random.default_rng(0)
    >>> T = np.arange(60) % 2 == 1
    >>> bags = Bags.from_list([[[t + 0.5 * rng.normal()]] for t in T], y=T)
    >>> too_sure = lambda bags: np.repeat(20 * bags.X - 10, 2, axis=1)
    >>> bool(calibrate(bags, T, 0, lambda kept: too_sure).weights.sum() < 0.5)
    True
    """
    kind = StratifiedKFold if bags.groups is None else StratifiedGroupKFold
    cut = kind(FOLDS, shuffle=True, random_state=seed)
    scores = np.empty((len(bags), len(SCORES)))
    for k, (kept, left_out) in enumerate(cut.split(np.zeros(len(bags)), T, bags.groups), 1):
        stage = f"calibration {k} of {FOLDS}"
        scores[left_out] = keep(stage, partial(_fold, bags, kept, left_out, refit))
    if not np.all(np.isfinite(scores)):
        raise FloatingPointError("scores of bags that were left out are not finite")
    x = _most_probable(scores, T)
    found = BagCalibration(x[:-1], float(x[-1]), len(bags))
    left_out = "bags that were left out of the fit"
    # Logits: probabilities that round to 1 would be ties.
    warn_near_chance(found.logit(scores), bags, T, left_out, remedies, scores[:, 1])
    return found


def _fold(bags: Bags, kept: Array, left_out: Array, refit: Callable[[Array], Scores]) -> Array:
    """Scores of the bags that were left out."""
    return refit(kept)(bags[left_out])


def _most_probable(scores: Array, T: Flags) -> Array:
    """Weights and intercept at the mode of their posterior.

    The prior is centred at "joint" as it is: few bags move it little.
    """
    design = np.column_stack([scores, np.ones(len(scores))])
    sign = np.where(T, 1.0, -1.0)

    def objective(x: Array) -> tuple[float, Array]:
        z, deviation = sign * (design @ x), (x - PRIOR_MEAN) / PRIOR_SCALE
        value = -float(np.sum(special.log_expit(z))) + 0.5 * float(deviation @ deviation)
        return value, -design.T @ (sign * special.expit(-z)) + deviation / PRIOR_SCALE

    bounds = [(0.0, None)] * len(SCORES) + [(None, None)]
    found = optimize.minimize(objective, PRIOR_MEAN, jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(found.x, dtype=np.float64)


class CalibratedMIL:
    """What estimators need for bag_score="calibrated" and "auto": a mixin."""

    bag_score: str
    posterior_: Any
    calibration_: BagCalibration | None
    why_not_calibrated_: str | None
    _remedies: str
    _predictor: Callable[[Bags], Any]
    _frozen: Callable[[Flags], dict[str, Any]]  # arguments of a refit to these rows

    @property
    def bag_score_(self) -> str:
        """Where bag probabilities come from; it says what `bag_score="auto"` came to."""
        if self.bag_score != "auto":
            return self.bag_score
        return "joint" if getattr(self, "calibration_", None) is None else "calibrated"

    def _calibration(
        self, bags: Bags, T: Flags, seed: int, monitor: Monitor
    ) -> tuple[BagCalibration | None, str | None]:
        """The calibration, or why there is none; each fold is a stage of the watched fit.

        A refit that breaks down numerically must not take the fit with it, which succeeded.
        """
        refit = partial(self._refit, bags, T, seed, monitor)

        def keep(stage: str, work: Callable[[], Array]) -> Array:
            return np.asarray(monitor.run(stage, lambda state: {"scores": work()})["scores"])

        try:
            return calibrate(bags, T, seed, refit, keep, self._remedies), None
        except BREAKDOWNS as error:
            reason = f"a fit without a fifth of the bags broke down: {error}"
        warn_user(
            f"bag probabilities are not calibrated: {reason}; those of bag_score='joint' are as "
            "they were"
        )
        return None, reason

    def _reason_against(self, bags: Bags, T: Flags) -> str | None:
        """Why bag probabilities are not calibrated; an error where they were asked for."""
        if self.bag_score not in ("auto", "calibrated"):
            return f"bag_score={self.bag_score!r} was asked for"
        reason = self._cannot_calibrate(bags, T)
        if self.bag_score == "auto":
            return reason or self._too_costly(bags)
        if reason is not None:
            raise ValueError(
                f"bag_score='calibrated' cannot be fitted here: {reason}; use bag_score='joint', "
                "or 'auto', which calibrates only where it can"
            )
        return None

    def _cannot_calibrate(self, bags: Bags, T: Flags) -> str | None:
        """Why there is no calibration for these bags, or None."""
        if bags.n_instances > MAX_INSTANCES and is_elsewhere(bags.X):
            return (
                f"the features of {bags.n_instances} instances are in files or with Dask workers, "
                "and refits would load four fifths of them"
            )
        return too_few(bags, T)

    def _too_costly(self, bags: Bags) -> str | None:
        """Why "auto" does not pay for five more fits, or None."""
        if self._learns_nothing():
            return "learn_hyperparameters=False: nothing is to be learned but the posterior"
        if bags.n_instances > MAX_INSTANCES:
            return f"{bags.n_instances} instances are more than {MAX_INSTANCES}"
        if getattr(self, "inference", "vi") == "gibbs":
            return "inference='gibbs' would sample five times more"
        return None

    def _learns_nothing(self) -> bool:
        """Whether the user asked to learn nothing but the posterior."""
        return not getattr(self, "learn_hyperparameters", True)

    def _refit(
        self, bags: Bags, T: Flags, seed: int, monitor: Monitor, kept: NDArray[np.int64]
    ) -> Scores:
        """The scores of a model fitted to some of the bags, hyperparameters as they are."""
        frozen = self._frozen(np.isin(bags.bag_index, kept))
        model = clone(self).set_params(bag_score="joint", random_state=seed, verbose=0, **frozen)
        model._fixed_scaling = (self.posterior_.shift, self.posterior_.scale)

        def hear(stage: str, step: int, objective: float, seconds: float) -> None:
            monitor.step(step, objective, dict)  # a refit that goes on begins anew

        scores: Scores = model.fit(bags[kept], T[kept], callbacks=[hear])._bag_logits
        return scores

    def _bag_logits(self, bags: Bags) -> Array:
        """Logits of both scores, (B, 2), from one pass."""
        found = self._predictor(bags).predicted(
            bags.X, bags.offsets, joint=True, instances=True, second=False
        )
        negative, positive, _ = _scores_of(found)
        return kept_off(np.log(positive) - np.log(negative))

    def _parts(self) -> dict[str, bool]:
        if self.bag_score_ != "calibrated":
            return parts_of(self.bag_score_)
        return {"joint": True, "instances": True}

    def _bag_probability(self, found: Predicted) -> tuple[Array, Array]:
        """(B, 2) probabilities and the posterior standard deviation of each bag's."""
        if self.bag_score_ != "calibrated":
            return columns(found.bags(self.bag_score_))
        calibration: BagCalibration | None = getattr(self, "calibration_", None)
        if calibration is None:
            raise ValueError(
                "bag_score='calibrated' was set after fit, or could not be fitted: this model has "
                f"no calibration ({getattr(self, 'why_not_calibrated_', None)}); set it, or "
                "'auto', before fit, or go on with bag_score='joint'"
            )
        negative, positive, stds = _scores_of(found)
        both = calibration.both(kept_off(np.log(positive) - np.log(negative)))
        return both, calibration.deviation(negative, positive, stds)
