"""Whether one model is better than another over bags, folds or data sets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from bagwise.core.parameters import check_number
from bagwise.metrics.inputs import labels_and_columns, tails
from bagwise.metrics.intervals import auc_influence, units_of
from bagwise.metrics.scores import roc_auc

Floats = NDArray[np.float64]


class PairedTest(NamedTuple):
    """Mean difference a - b, its t statistic and the two-sided p value."""

    difference: float
    t: float
    p_value: float


def corrected_resampled_ttest(
    a: ArrayLike, b: ArrayLike, *, test_share: float | None = None, n_folds: int | None = None
) -> PairedTest:
    """Compare two models over the same folds, with the variance corrected for shared training data.

    Folds of (repeated) cross-validation share most of their training bags, so the plain t-test
    finds differences where there are none. Nadeau and Bengio (2003) replace the variance factor
    1/n by 1/n + n_test/n_train.

    Parameters
    ----------
    a, b : (n,) scores of both models, fold by fold.
    n_folds : folds of one cross-validation, so that n_test/n_train = 1/(n_folds - 1); or
    test_share : share of the bags that each split tests on.

    >>> a = [0.90, 0.80, 0.85, 0.95, 0.90]
    >>> b = [0.85, 0.80, 0.80, 0.85, 0.85]
    >>> test = corrected_resampled_ttest(a, b, n_folds=5)
    >>> round(test.difference, 3), round(test.p_value, 3)
    (0.05, 0.103)
    """
    first, second = _pairs(a, b)
    if (test_share is None) == (n_folds is None):
        raise ValueError("pass one of n_folds and test_share, so that n_test/n_train is known")
    share = 1 / n_folds if n_folds is not None and n_folds > 1 else test_share
    if share is None or not 0 < share < 1:
        raise ValueError(
            f"a split tests on a share of the bags between 0 and 1, got test_share={test_share!r}, "
            f"n_folds={n_folds!r}"
        )
    difference = first - second
    n = len(difference)
    if n < 2:
        raise ValueError(f"a paired test needs at least two folds, got {n}")
    mean, variance = float(difference.mean()), float(difference.var(ddof=1))
    if variance == 0:
        t = 0.0 if mean == 0 else float(np.copysign(np.inf, mean))
    else:
        t = mean / np.sqrt(variance * (1 / n + share / (1 - share)))
    return PairedTest(mean, float(t), float(2 * stats.t.sf(abs(t), n - 1)))


class Difference(NamedTuple):
    """Scores of two models on the same bags, and the interval of a - b."""

    a: float
    b: float
    difference: float
    low: float
    high: float


def paired_differences(
    y_true: ArrayLike,
    p_a: ArrayLike,
    p_b: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    pos_label: Any = None,
) -> dict[str, Difference]:
    """Compare two models on the same bags: `roc_auc`, `log_likelihood` and `brier`, a - b.

    Intervals are of Student's t with the variance of what each bag, or group of bags (`groups`),
    moves the difference by; for the area under the ROC curve these are DeLong's placements. They
    are those of new bags of the same kind, as far as these are many, and infinite where one bag, or
    group, is all there is (for the area: of a class).

    >>> y = [0, 0, 0, 1, 1, 1]
    >>> good, poor = [0.1, 0.2, 0.3, 0.7, 0.8, 0.9], [0.4, 0.3, 0.6, 0.5, 0.4, 0.7]
    >>> found = paired_differences(y, good, poor)["roc_auc"]
    >>> round(found.a, 3), round(found.difference, 3), found.low < found.difference < found.high
    (1.0, 0.278, True)
    """
    positive, columns_a = labels_and_columns(y_true, p_a, pos_label)
    _, columns_b = labels_and_columns(y_true, p_b, pos_label)
    units = units_of(groups, positive.size)
    t = stats.t.ppf(tails(level)[1], max(len(np.unique(units)) - 1, 1))
    found = {}
    for name, (of_a, own_a), (of_b, own_b) in zip(
        ("roc_auc", "log_likelihood", "brier"),
        *(_scores_with_influence(positive, columns) for columns in (columns_a, columns_b)),
        strict=True,
    ):
        parts = (positive, ~positive) if name == "roc_auc" else (np.ones_like(positive),)
        alone = any(len(np.unique(units[part])) < 2 for part in parts)
        error = np.inf if alone else float(t) * _error(own_a - own_b, units)
        found[name] = Difference(of_a, of_b, of_a - of_b, of_a - of_b - error, of_a - of_b + error)
    return found


def _scores_with_influence(
    positive: NDArray[np.bool_], columns: Floats
) -> list[tuple[float, Floats]]:
    """AUC, log-likelihood and Brier score, each with how far every label moves it."""
    p = columns[:, 1]
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(positive, p, columns[:, 0]))
    means = (np.maximum(logs, np.log(np.finfo(np.float64).tiny)), (p - positive) ** 2)
    area = roc_auc(positive, p), auc_influence(positive, p)
    return [area, *((float(v.mean()), (v - v.mean()) / v.size) for v in means)]


def _error(influence: Floats, units: NDArray[Any]) -> float:
    """Standard error of a sum of influences, whose units are independent."""
    sums = np.bincount(np.unique(units, return_inverse=True)[1], influence)
    k = len(sums)
    return float(np.sqrt(np.sum(sums**2) * k / max(k - 1, 1)))


class WinTieLoss(NamedTuple):
    """On how many folds or data sets the first model wins, ties and loses."""

    wins: int
    ties: int
    losses: int


def win_tie_loss(a: ArrayLike, b: ArrayLike, *, margin: float = 0.0) -> WinTieLoss:
    """Count on how many folds or data sets `a` is better, equal (within `margin`) or worse.

    Higher scores are better. NaN, a score that is undefined on a fold, is refused.

    >>> win_tie_loss([0.9, 0.8, 0.7], [0.8, 0.8, 0.75], margin=0.01)
    WinTieLoss(wins=1, ties=1, losses=1)
    """
    check_number("margin", margin, at_least=0)
    first, second = _pairs(a, b)
    wins, losses = int(np.sum(first - second > margin)), int(np.sum(second - first > margin))
    return WinTieLoss(wins, len(first) - wins - losses, losses)


def _pairs(a: Any, b: Any) -> tuple[Floats, Floats]:
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or first.size == 0:
        raise ValueError(
            f"a and b must be scores of the same folds, got shapes {first.shape} and {second.shape}"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("scores must be finite; leave out folds on which a score is undefined")
    return first, second
