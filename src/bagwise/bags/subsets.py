"""Where bags start, which a key means, which a split tests on, which can be joined (internal)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from bagwise.bags.checks import Array, has_index, refuse_masked
from bagwise.bags.labels import in_bag_order
from bagwise.bags.messages import show
from bagwise.bags.rows import RowSource


def offsets_of(sizes: Array) -> NDArray[np.int64]:
    """Where bags of these sizes start, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def resolve_key(key: Any, ids: Array) -> slice | NDArray[np.intp]:
    """Turn any accepted key into a step-1 slice (a view) or an array of bag positions.

    A mask in a pandas Series whose index holds the ids of the bags is put in their order.
    """
    n_bags = len(ids)
    if isinstance(key, tuple):
        if not key or any(k is not Ellipsis and k != slice(None) for k in key[1:]):
            raise IndexError(
                f"Bags are indexed by bag only; got the key {key!r}; to choose features use "
                "bags.with_X(bags.X[:, columns])"
            )
        key = key[0]
    if key is Ellipsis:
        key = slice(None)
    if isinstance(key, slice):
        start, stop, step = key.indices(n_bags)
        if step == 1:
            return slice(start, max(start, stop), 1)
        return np.arange(start, stop, step, dtype=np.intp)
    if isinstance(key, bool | np.bool_):
        raise IndexError(f"a single {bool(key)} is no index; pass a mask with one entry per bag")
    if hasattr(key, "__index__") and np.ndim(key) == 0:
        position = _positions(np.array([operator.index(key)]), n_bags)[0]
        return slice(int(position), int(position) + 1, 1)
    refuse_masked(key, "the choice of bags")
    if has_index(key) and np.asarray(key).dtype.kind == "b":
        key = in_bag_order(key, ids, "the mask")
    return _resolve_array(np.asarray(key), n_bags)


def _resolve_array(key: Array, n_bags: int) -> slice | NDArray[np.intp]:
    if key.ndim == 1 and key.dtype.kind == "b":
        if len(key) != n_bags:
            raise IndexError(
                f"a boolean mask must have one entry per bag: {n_bags}; got {len(key)}; "
                "a mask over instances does not select bags"
            )
        return np.flatnonzero(key)
    if key.ndim != 1 or (key.dtype.kind not in "iu" and len(key)):
        raise IndexError(
            "bags are chosen by an int, a slice, a boolean mask or a 1-D array of ints; got "
            f"an array of shape {key.shape} and dtype {key.dtype}; to find bags by id use "
            "np.isin(bags.ids, wanted)"
        )
    positions = _positions(key.astype(np.intp), n_bags)
    if len(positions) and (np.diff(positions) == 1).all():
        return slice(int(positions[0]), int(positions[-1]) + 1, 1)
    return positions


def _positions(index: NDArray[np.intp], n_bags: int) -> NDArray[np.intp]:
    """Wrap negative positions; raise for those out of range."""
    bad = (index < -n_bags) | (index >= n_bags)
    if bad.any():
        raise IndexError(
            f"bag positions must lie in -{n_bags}..{n_bags - 1} for {n_bags} bags; "
            f"got {index[int(np.argmax(bad))]}"
        )
    return np.where(index < 0, index + n_bags, index)


def held_out(
    y: Array | None, units: Array, test_size: float | int, random_state: Any
) -> NDArray[np.bool_]:
    """(B,) which bags a split tests on: whole units, with the shares of labels."""
    if isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**31))
    distinct, unit_of_bag = np.unique(units, return_inverse=True)
    strata = None if y is None else check_strata(y, unit_of_bag)
    n_strata = 1 if strata is None else len(np.unique(strata))
    check_test_size(test_size, len(distinct), n_strata)
    _, chosen = train_test_split(
        np.arange(len(distinct)), test_size=test_size, random_state=random_state, stratify=strata
    )
    return np.isin(unit_of_bag, chosen)


def check_strata(y: Array, unit_of_bag: Array) -> Array:
    """Class of each unit (bag or group) for a stratified split; each needs two units.

    A group of bags with several labels counts for the label it has the largest share of.
    """
    classes, code = np.unique(y, return_inverse=True)
    counts = np.zeros((unit_of_bag.max() + 1, len(classes)))
    np.add.at(counts, (unit_of_bag, code), 1)
    strata = np.argmax(counts / counts.sum(axis=0), axis=1)
    found, n_units = np.unique(strata, return_counts=True)
    if n_units.min() < 2:
        label = classes[found[int(np.argmin(n_units))]]
        raise ValueError(
            f"a stratified split needs two bags (or groups) of each label; label {show(label)} "
            "has 1; add bags, or pass stratify=False in Python"
        )
    return strata


def check_test_size(test_size: float, n_units: int, n_strata: int, name: str = "test_size") -> None:
    """Check that both sides of a split get at least one unit (bag or group), of each label."""
    if isinstance(test_size, bool) or not isinstance(test_size, Real) or test_size <= 0:
        raise ValueError(f"{name} must be a share between 0 and 1, got {test_size!r}")
    whole = isinstance(test_size, Integral)
    n_test = int(test_size) if whole else int(np.ceil(test_size * n_units))
    if min(n_test, n_units - n_test) < n_strata or (not whole and test_size >= 1):
        least = n_strata / n_units
        raise ValueError(
            f"{name}={test_size!r} of {n_units} bags (or groups) leaves {min(n_test, n_units)} to "
            f"test and {max(0, n_units - n_test)} to train on, but each side needs at least "
            f"{n_strata}, one of each label; choose from {least:.2g} to {1 - least:.2g}"
        )


def check_concat(parts: Sequence[Any], optional: Sequence[str]) -> None:
    """Check that Bags can be put after each other."""
    if not parts:
        raise ValueError("concat needs at least one Bags; got an empty list")
    for name in ("n_features", "feature_names"):
        found = list(dict.fromkeys(getattr(p, name) for p in parts))
        if len(found) > 1 and None not in found:
            raise ValueError(
                f"all Bags must have the same {name}; got {found}; align their columns"
            )
    for name in optional:
        have = [getattr(p, name) is not None for p in parts]
        if any(have) and not all(have):
            raise ValueError(
                f"{name} must be in all Bags or in none; Bags {have.index(False)} of {len(parts)} "
                f"has none; add it there, or build the others without {name}"
            )
    for name in ("y", "groups"):
        kinds = {p_field.dtype.kind for p in parts if (p_field := getattr(p, name)) is not None}
        if len(kinds) > 1 and "U" in kinds:
            raise ValueError(f"{name} mixes text and other types; give all Bags the same type")
    if parts[0].coords is not None and len(widths := {p.coords.shape[1] for p in parts}) > 1:
        raise ValueError(f"coords must have the same number of columns; got {sorted(widths)}")


def taken(values: Array | None, rows: slice | Array) -> Any:
    """Some rows of what bags hold; features that are sparse stay so."""
    if isinstance(values, RowSource):
        return values.part(rows)
    return None if values is None else values[rows]
