"""Whether one model is better than another over folds or over data sets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from bagwise.core.parameters import check_number

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
