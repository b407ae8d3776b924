"""What a fitted model makes of its features: importances by permutation, partial dependence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch

from bagwise.bags import Bags, as_bags
from bagwise.bags.labels import in_bag_order
from bagwise.bags.rows import is_elsewhere
from bagwise.bags.sparse_rows import SparseRows
from bagwise.core.parameters import check_choice, check_integer, generator
from bagwise.metrics import scorer
from bagwise.models.single_model import check_one_model

__all__ = ["partial_dependence", "permutation_importance"]

Floats = NDArray[np.float64]
Scorer = Callable[[Any, Bags, Any], float]
Columns = Mapping[str, Sequence[str | int]] | Sequence[str | int] | None


def permutation_importance(
    model: Any,
    bags: Any,
    y: ArrayLike | None = None,
    *,
    scoring: str | Scorer = "roc_auc",
    n_repeats: int = 5,
    columns: Columns = None,
    within_bags: bool = False,
    random_state: Any = None,
) -> Bunch:
    """How much the score of a fitted model falls when the values of a feature are shuffled.

    The values of one feature change places among *all* instances of all bags, so that they tell
    nothing any more, neither of an instance nor of its bag; the other features stay. That is the
    importance of the feature for this model, on these bags: give bags that the fit has not seen.
    Features that say the same stand in for each other and seem unimportant alone: shuffle them
    together (`columns`).

    With `within_bags` values change places inside each bag only. A bag then keeps its values, and
    with them all that the feature tells of the bag by itself: what is left is how much it matters
    *which* instance has them, beside the other features. It is the question to ask with a
    `scoring` of instances.

    Parameters
    ----------
    model : a fitted model, baseline or pipeline that takes bags.
    bags : labelled Bags, in memory.
    y : one label per bag; overrides the labels of the bags.
    scoring : a name that `bagwise.metrics.scorer` knows, of bags ("roc_auc") or, where their labels
        are known, of instances ("instance_roc_auc"); or a function of (model, bags, y).
    n_repeats : how many times each feature is shuffled.
    columns : which features, by name or number, each by itself; or a dict whose entries are
        shuffled as one, {"colour": ["red", "green", "blue"]}. All features by default.
    within_bags : whether values stay in their bag.
    random_state : seed of the permutations.

    Returns
    -------
    Bunch with `names` (F,), `importances` (F, n_repeats), the fall of the score at each repetition,
    `importances_mean`, `importances_std` (F,), and the `score` (float) before.

    >>> from bagwise import Bags, MIRVM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 2)); X[:20:2, 0] += 5
    >>> ids = np.repeat(np.arange(20), 2)
    >>> bags = Bags.from_arrays(X, ids, np.arange(20) < 10, feature_names=["signal", "noise"])
    >>> found = permutation_importance(MIRVM().fit(bags), bags, random_state=0)
    >>> found.names, found.importances_mean[0] > 0.2 > found.importances_mean[1]
    (['signal', 'noise'], np.True_)
    """
    check_integer("n_repeats", n_repeats, at_least=1)
    bags = _in_memory(bags)
    truth = _labels(bags, y)
    score = scoring if callable(scoring) else scorer(scoring)
    groups = _groups(columns, bags)
    rng = generator(random_state)
    before = float(score(model, bags, truth))
    falls = np.empty((len(groups), n_repeats))
    for g, moved in enumerate(groups.values()):
        for r in range(n_repeats):
            rows = _permutation(bags, within_bags, rng)
            falls[g, r] = before - float(score(model, _shuffled(bags, moved, rows), truth))
    return Bunch(
        names=list(groups),
        importances=falls,
        importances_mean=falls.mean(axis=1),
        importances_std=falls.std(axis=1),
        score=before,
    )


def partial_dependence(
    model: Any,
    bags: Any,
    feature: str | int,
    *,
    kind: str = "bag",
    grid: int | ArrayLike = 20,
    percentiles: tuple[float, float] = (0.05, 0.95),
) -> Bunch:
    """The average probability where one feature has the same value in all instances.

    For each value of the grid every instance gets it, and keeps its other features; the model
    predicts these bags, and their probabilities are averaged. So a bag is not one that occurs: it
    says how the model would take a scan all of whose slices had this value. Where features go
    together, values are combined that do not.

    Parameters
    ----------
    model : a fitted model, baseline or pipeline that takes bags.
    bags : Bags in memory, with labels or without.
    feature : its name or number.
    kind : "bag", the probability that a bag is positive, or "instance", that of its instances,
        averaged inside each bag.
    grid : values, or how many, evenly spaced between the `percentiles` of the feature.
    percentiles : shares of instances below the first and the last value of the grid.

    Returns
    -------
    Bunch with `name`, `kind`, `grid_values` (G,), `average` (G,) over bags, `individual` (B, G) of
    each bag, and `deciles` (9,) of the feature.

    >>> from bagwise import Bags, MIRVM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 2)); X[:20:2, 0] += 5
    >>> bags = Bags.from_arrays(X, np.repeat(np.arange(20), 2), np.arange(20) < 10)
    >>> found = partial_dependence(MIRVM().fit(bags), bags, 0, grid=[0.0, 5.0])
    >>> found.average[0] < 0.5 < found.average[1]
    np.True_
    """
    check_choice("kind", kind, ("bag", "instance"))
    check_one_model(model, instances=kind == "instance")
    bags = _in_memory(bags)
    column = _column(feature, bags)
    values = np.asarray(bags.X[:, column], dtype=np.float64)
    points = _grid(values[~np.isnan(values)], grid, percentiles)
    individual = np.empty((len(bags), len(points)))
    X = np.array(bags.X)
    for i, point in enumerate(points):
        X[:, column] = point
        individual[:, i] = _positive(model, bags.with_X(X, bags.feature_names), kind)
    return Bunch(
        name=_name(column, bags),
        kind=kind,
        grid_values=points,
        average=individual.mean(axis=0),
        individual=individual,
        deciles=np.nanquantile(values, np.linspace(0.1, 0.9, 9)),
    )


def _in_memory(bags: Any) -> Bags:
    bags = as_bags(bags)
    if isinstance(bags.X, SparseRows) or is_elsewhere(bags.X):
        raise TypeError(
            "features are changed one by one, for which they must be a dense array in memory; "
            "give some of the bags, such as bags[:100] of a file, or X.toarray() of sparse features"
        )
    return bags


def _labels(bags: Bags, y: ArrayLike | None) -> Any:
    truth = bags.y if y is None else in_bag_order(y, bags.ids, "y")
    if truth is None:
        raise ValueError("a score needs labels of the bags: pass y, or Bags with y")
    if len(truth) != len(bags):
        raise ValueError(f"y must have one entry per bag: {len(bags)}; got {len(truth)}")
    return truth


def _name(column: int, bags: Bags) -> str:
    return f"x{column}" if bags.feature_names is None else bags.feature_names[column]


def _column(feature: str | int, bags: Bags) -> int:
    """The number of a feature that is given by its name or number."""
    names = [_name(j, bags) for j in range(bags.n_features)]
    if isinstance(feature, str):
        if feature not in names:
            shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            raise ValueError(f"there is no feature {feature!r}; there are {shown}")
        return names.index(feature)
    number = check_integer("a feature's number", feature, at_least=0)
    if number >= len(names):
        raise ValueError(f"features have the numbers 0 to {len(names) - 1}, got {number}")
    return number


def _groups(columns: Columns, bags: Bags) -> dict[str, list[int]]:
    """Which features are shuffled together, by the name of each group."""
    if columns is None:
        columns = list(range(bags.n_features))
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of features, got {columns!r}; pass [{columns!r}]")
    if isinstance(columns, Mapping):
        groups = {str(n): [_column(f, bags) for f in fs] for n, fs in columns.items()}
    else:
        numbers = [_column(f, bags) for f in columns]
        groups = {_name(j, bags): [j] for j in numbers}
    if not groups or not all(groups.values()):
        raise ValueError("columns must name at least one feature in each group")
    return groups


def _permutation(bags: Bags, within: bool, rng: np.random.Generator) -> NDArray[np.intp]:
    """(N,) the row whose values each row gets."""
    if not within:
        return rng.permutation(bags.n_instances)
    return np.lexsort((rng.random(bags.n_instances), bags.bag_index))


def _shuffled(bags: Bags, columns: list[int], rows: NDArray[np.intp]) -> Bags:
    X = np.array(bags.X)
    X[:, columns] = bags.X[rows][:, columns]
    return bags.with_X(X, bags.feature_names)


def _grid(values: Floats, grid: int | ArrayLike, percentiles: tuple[float, float]) -> Floats:
    if np.ndim(grid) == 0:
        n = check_integer("grid", grid, at_least=2)
        low, high = percentiles
        if not 0 <= low < high <= 1:
            raise ValueError(f"percentiles must be two rising shares of 1, got {percentiles!r}")
        first, last = np.quantile(values, [low, high]).tolist()
        points = np.linspace(first, last, n)
        if points[0] == points[-1]:
            raise ValueError(
                f"{n} values between {points[0]:g} and {points[-1]:g} are one: the feature hardly "
                "varies; give the values themselves, grid=[...]"
            )
        return np.asarray(points)
    points = np.asarray(grid, dtype=np.float64)
    if points.ndim != 1 or not len(points) or not np.all(np.isfinite(points)):
        raise ValueError(f"grid must be finite numbers, one after another; got {grid!r:.80}")
    return points


def _positive(model: Any, bags: Bags, kind: str) -> Floats:
    """(B,) probabilities of bags, or means of those of their instances."""
    if kind == "bag":
        return np.asarray(model.predict_proba(bags)[:, 1])
    if not hasattr(model, "predict_instance_proba"):
        raise TypeError(f"{type(model).__name__} predicts bags only; use kind='bag'")
    p = model.predict_instance_proba(bags)[:, 1]
    return np.asarray(np.add.reduceat(p, bags.offsets[:-1]) / bags.sizes)
