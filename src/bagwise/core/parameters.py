"""Checks of constructor arguments: each error states the rule, the value and the remedy; seeds."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """`value` if it is one of `choices`."""
    choices = tuple(choices)
    if not any(value is c or (type(value) is type(c) and value == c) for c in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def check_integer(name: str, value: Any, *, at_least: int) -> int:
    """A whole number not below `at_least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < at_least:
        raise ValueError(f"{name} must be an integer of at least {at_least}, got {value!r}")
    return int(value)


def check_number(
    name: str, value: Any, *, above: float = -np.inf, at_least: float = -np.inf
) -> float:
    """A finite number within its bounds."""
    ok = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (ok and np.isfinite(value) and value > above and value >= at_least):
        rule = _rule(above, at_least)
        raise ValueError(f"{name} must be a finite number{rule}, got {value!r}")
    return float(value)


def check_limits(name: str, value: Any) -> tuple[float, float]:
    """Two positive numbers, the smaller one first."""
    pair = np.asarray(value) if np.shape(value) == (2,) else np.zeros(2)
    if pair.dtype.kind not in "iuf" or not (np.all(np.isfinite(pair)) and 0 < pair[0] < pair[1]):
        raise ValueError(f"{name} must be two numbers (low, high), 0 < low < high, got {value!r}")
    return float(pair[0]), float(pair[1])


def check_dtype(value: Any) -> np.dtype[Any] | None:
    """None, float32 or float64."""
    if value is None:
        return None
    dtype = np.dtype(value)
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be None, 'float32' or 'float64', got {value!r}")
    return dtype


def check_rows(name: str, values: Any, n_rows: int) -> NDArray[np.float64]:
    """One finite number for each row of the data."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (n_rows,) or not np.all(np.isfinite(array)):
        raise ValueError(
            f"{name} must hold one finite number for each of the {n_rows} instances, in the row "
            f"order of bags.X, got shape {array.shape}"
        )
    return array


def _rule(above: float, at_least: float) -> str:
    if np.isfinite(above):
        return f" greater than {above:g}"
    return f" of at least {at_least:g}" if np.isfinite(at_least) else ""


def generator(random_state: Any) -> np.random.Generator:
    """A numpy Generator from whatever scikit-learn or numpy take for a seed."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def plain_seed(random_state: Any) -> int | None:
    """A seed that can be written to a file; a generator's state is not part of a model."""
    return int(random_state) if isinstance(random_state, numbers.Integral) else None
