"""Whether a fitted model ranks bags better than chance, and what to say where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from bagwise.bags import Bags
from bagwise.bags.rows import is_elsewhere
from bagwise.core.likelihoods.bag_scores import BAG_SCORES, Predicted, log_odds
from bagwise.core.likelihoods.targets import halves
from bagwise.core.linalg import BREAKDOWNS
from bagwise.core.posteriors.joint import ROUGH
from bagwise.core.warnings import NearChanceWarning, warn_user

Array = NDArray[Any]
Flags = NDArray[np.bool_]

NEAR_CHANCE = 0.6  # an AUC below it is hardly better than guessing
USEFUL = 0.75  # what the bags have to rule out before that is said: few bags rule out little
CLEARLY = 0.1  # of an AUC
RANKED_ROWS = 20_000  # of the bags whose ranking is looked at after a fit
ONE_SIDED = 1.645  # standard errors of a bound that holds in 95 of 100 cases


def warn_near_chance(
    score: Array, bags: Bags, T: Flags, which: str, remedies: str, best: Array | None = None
) -> None:
    """Warn where these scores rank positive bags hardly above negative ones.

    `which` names the bags: left out of the fit, or those that were fitted to. `remedies` are those
    of the model. `best` are scores of each bag's most probable instance, which may rank better.
    """
    if not is_near_chance(score, bags, T):
        return
    value = auc(score, T)
    instance = "" if best is None else _better_by_instance(value, auc(best, T))
    warn_user(
        f"{which} are ranked near chance: their AUC is {value:.2f}, that of guessing 0.5 "
        f"({int(T.sum())} positive and {int((~T).sum())} negative bags); predictions of this model "
        f"tell little.{instance} Check that labels and bags belong together and that the features "
        f"show what the label is about; try {remedies}, known instance labels or more bags",
        NearChanceWarning,
    )


def _better_by_instance(value: float, of_best: float) -> str:
    """What to say where the most probable instances rank bags clearly better."""
    if of_best < USEFUL or of_best < value + CLEARLY:
        return ""
    return f" bag_score='max' would rank them with an AUC of {of_best:.2f}: try that first."


def is_near_chance(score: Array, bags: Bags, T: Flags) -> bool:
    """Whether the AUC is below NEAR_CHANCE, and USEFUL ruled out by the number of bags.

    >>> some, many = (Bags.from_list([np.zeros((1, 1))] * n) for n in (6, 40))
    >>> [is_near_chance(np.zeros(len(b)), b, np.arange(len(b)) % 2 == 1) for b in (some, many)]
    [False, True]
    """
    value = auc(score, T)
    highest = value + ONE_SIDED * chance_error(*class_counts(bags, T))
    return value < NEAR_CHANCE and highest < USEFUL


def auc(score: Array, T: Flags) -> float:
    """Share of pairs in which the positive bag has the higher score; ties count half.

    >>> auc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True]))
    0.875
    """
    n_positive, n_negative = int(T.sum()), int((~T).sum())
    above = rankdata(score)[T].sum() - n_positive * (n_positive + 1) / 2
    return float(above / (n_positive * n_negative))


def least_auc(found: Predicted, T: Flags, told: NDArray[np.intp]) -> float:
    """What the AUC of joint probabilities of the bags `told` is at least, whatever these are.

    No bag is less probable than its most probable instance, nor more than all of them added up.
    """
    assert found.instances is not None
    of_rows, starts = found.instances.log_positive, found.offsets[:-1]
    low = np.maximum.reduceat(of_rows, starts)[told]
    high = np.minimum(np.logaddexp.reduceat(of_rows, starts), 0.0)[told]
    return auc(np.where(T[told], low, high), T[told])


def chance_error(n_negative: int, n_positive: int) -> float:
    """Standard deviation of the AUC where scores tell nothing [Mann and Whitney 1947].

    >>> round(chance_error(10, 10), 3), round(chance_error(100, 100), 3)
    (0.132, 0.041)
    """
    return float(np.sqrt((n_negative + n_positive + 1) / (12 * n_negative * n_positive)))


def class_counts(bags: Bags, T: Flags, counts: Array | None = None) -> tuple[int, int]:
    """Independent negative and positive units: bags that count, or groups that have such bags."""
    T, units = halves(T), np.arange(len(bags)) if bags.groups is None else np.asarray(bags.groups)
    some = np.ones(len(bags), dtype=bool) if counts is None else counts > 0
    return len(np.unique(units[~T & some])), len(np.unique(units[T & some]))


def some_of_each_class(bags: Bags, T: Flags, max_rows: int) -> NDArray[np.intp]:
    """Numbers of bags with about `max_rows` rows, from all over both classes; all where fewer.

    >>> bags = Bags.from_list([np.zeros((5, 1))] * 8)
    >>> some_of_each_class(bags, np.arange(8) < 2, 20)
    array([0, 2, 4, 6])
    """
    step = -(-bags.n_instances // max_rows)
    sides = [np.flatnonzero(side)[::step] for side in (~T, T)]
    return np.sort(np.concatenate(sides))


def check_ranking(
    predictor: Callable[[Bags], Any],
    bags: Bags,
    T: Flags,
    score: str,
    remedies: str,
    whole: bool = False,
    counts: Array | None = None,
) -> None:
    """Warn where even the bags of the fit are ranked near chance.

    Of many bags some are looked at, unless predictions are of the `whole` data or none. Bags that
    count nothing, by `counts`, were not fitted to.
    """
    if is_elsewhere(bags.X) or (whole and bags.n_instances > RANKED_ROWS):
        return  # what is in files or with workers is not read once more
    some = some_of_each_class(bags, T, RANKED_ROWS)
    ranked = bags if len(some) == len(bags) else bags[some]
    told = np.arange(len(some)) if counts is None else np.flatnonzero(counts[some])
    score = score if score in BAG_SCORES else "joint"
    rows = (ranked.X, ranked.offsets)
    try:
        predict = predictor(ranked).predicted
        found: Predicted = predict(*rows, joint=False, instances=True)
        if score == "joint":
            if least_auc(found, T[some], told) >= NEAR_CHANCE:
                return
            found = predict(*rows, joint=True, instances=True, second=False, stages=ROUGH)
    except BREAKDOWNS:
        return  # the fit has succeeded; predictions will say what is wrong with them
    own, best = (log_odds(found.bags(name)) for name in (score, "max"))
    ranked = ranked if len(told) == len(some) else ranked[told]
    fitted = "even the bags that the model was fitted to"
    warn_near_chance(own[told], ranked, T[some][told], fitted, remedies, best[told])
