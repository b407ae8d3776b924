"""Which bags a key of `bags[key]` means (internal)."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.checks import Array


def resolve_key(key: Any, n_bags: int) -> slice | NDArray[np.intp]:
    """Turn any accepted key into a step-1 slice (a view) or an array of bag positions."""
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
