"""Values of features that are missing, NaN: refused by models, filled in, or dropped."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.checks import cell
from bagwise.bags.container import PER_ROW, Bags
from bagwise.bags.messages import InputError, show
from bagwise.bags.rows import blocks
from bagwise.bags.subsets import offsets_of, taken

Array = NDArray[Any]


def refuse_missing(bags: Bags, column: int, model: str, remedy: str | None = None) -> NoReturn:
    """Say where the first missing value of a feature is, and how to fill it in."""
    row = next(
        part.start + int(np.argmax(missing))
        for part in blocks(bags.n_instances)
        if (missing := np.isnan(bags.X[part][:, column])).any()
    )
    remedy = remedy or (
        "fill them in with what training bags tell, e.g. make_pipeline(InstanceTransformer("
        f"SimpleImputer(strategy='median')), {model}()), or drop such instances"
    )
    where = cell(row, column, bags.offsets, bags.ids, bags.feature_names)
    raise InputError(
        f"Input X contains NaN: {where}; {model} takes no missing values: {remedy}",
        int(bags.row_index[row]),
    )


def missing_cells(bags: Bags) -> NDArray[np.int64]:
    """(D,) how many instances lack a value of each feature.

    >>> from bagwise import Bags
    >>> missing_cells(Bags.from_list([[[1.0, np.nan], [np.nan, np.nan]]]))
    array([1, 2])
    """
    total = np.zeros(bags.n_features, dtype=np.int64)
    for part in blocks(bags.n_instances):
        total += np.isnan(bags.X[part]).sum(axis=0)
    return total


def medians(bags: Bags) -> NDArray[np.float64]:
    """(D,) median of what is known of each feature; one of which nothing is known is refused.

    >>> from bagwise import Bags
    >>> medians(Bags.from_list([[[1.0, np.nan], [np.nan, 4.0]], [[3.0, 5.0]]]))
    array([2. , 4.5])
    """
    empty = missing_cells(bags) == bags.n_instances
    if empty.any():
        column = int(np.argmax(empty))
        name = column if bags.feature_names is None else bags.feature_names[column]
        raise InputError(
            f"a median needs at least one value, but feature {name!r} has none; leave it out",
            argument="features",
        )
    return np.asarray(np.nanmedian(np.asarray(bags.X), axis=0), dtype=np.float64)


def filled(bags: Bags, values: Array) -> Bags:
    """The bags with `values` (D,) where features are missing.

    >>> from bagwise import Bags
    >>> filled(Bags.from_list([[[1.0, np.nan]]]), np.array([0.0, 7.0])).X
    array([[1., 7.]])
    """
    X = np.asarray(bags.X)
    full = np.where(np.isnan(X), np.asarray(values, dtype=X.dtype), X)
    return bags.with_X(full, feature_names=bags.feature_names)


def complete_instances(bags: Bags) -> Bags:
    """The bags without instances of which a feature is missing; `row_index` tells which stayed.

    >>> from bagwise import Bags
    >>> bags = complete_instances(Bags.from_list([[[1.0], [np.nan]], [[2.0]]]))
    >>> bags.sizes, bags.row_index
    (array([1, 1]), array([0, 2]))
    """
    keep = ~np.isnan(np.asarray(bags.X)).any(axis=1)
    sizes = np.add.reduceat(keep, bags.offsets[:-1], dtype=np.int64)
    if np.any(sizes == 0):
        raise InputError(
            f"every instance of bag {show(bags.ids[int(np.argmin(sizes))])} has a missing value, "
            "so that none would stay; drop the bag, leave features out, or fill in medians"
        )
    rows = {name: taken(getattr(bags, name), keep) for name in PER_ROW}
    return bags._replace(**rows, offsets=offsets_of(sizes))
