"""States as JSON values: what a model file's header may say, and nothing else.

JSON's own values stand for themselves; everything else is an object with one tagged key:
{"__array__": 0}, {"__scalar__": 1} (a numpy scalar), {"__tuple__": [...]}, {"__float__": "inf"},
{"__object__": ["RBF", {fields}]} (a registered dataclass) and {"__dict__": [[key, value], ...]}
(a dict whose own keys look like tags). Arrays are numbered, and kept elsewhere.

Nothing names code to import or call: a dataclass is rebuilt only if the running program
registered its name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from bagwise.core.files.reading import UnreadableFileError

MAX_DEPTH = 100

_SPECIAL_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}

_registered: dict[str, type] = {}
_Class = TypeVar("_Class", bound=type)


class ModelFileError(UnreadableFileError):
    """A model file cannot be written or read; the message says what is wrong and what to do."""


def register(cls: _Class) -> _Class:
    """Let instances of a frozen dataclass appear in states; usable as a decorator.

    It is written as its name and its `__init__` fields, and rebuilt by calling it with them, so
    its own validation runs on what a file says.

    >>> @register
    ... @dataclasses.dataclass(frozen=True)
    ... class Scaling:
    ...     factor: float
    """
    params = getattr(cls, "__dataclass_params__", None)
    if params is None or not params.frozen:
        raise TypeError(f"{cls.__name__} is not a frozen dataclass; use @dataclass(frozen=True)")
    known = _registered.get(cls.__name__, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(
            f"the name {cls.__name__!r} is registered by {known.__module__}; rename one of the two"
        )
    _registered[cls.__name__] = cls
    return cls


def is_registered(cls: type) -> bool:
    """Whether instances of this class may appear in states."""
    return _registered.get(cls.__name__) is cls


def crafted(what: str) -> NoReturn:
    """Reject what a file of ours never holds."""
    raise ModelFileError(f"{what}, which bagwise never writes; get the file from its source again")


def describe(error: Exception) -> str:
    """Name and message of an error, short enough for a message of our own; ours as they are."""
    if isinstance(error, UnreadableFileError):
        return str(error)
    return f"{type(error).__name__}: {error}"[:200]


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict of pairs whose keys differ."""
    result = dict(pairs)
    if len(result) != len(pairs):
        crafted("a key of the header is there twice")
    return result


class Encoder:
    """Turns a state into JSON values and collects its arrays."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []

    def encode(self, value: Any, where: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ModelFileError(
                f"{where[:80]}... is nested more than {MAX_DEPTH} deep; flatten it, and make sure "
                "that it does not contain itself"
            )
        # Types are compared exactly: a subclass would come back as its base.
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"__float__": str(value)}
        if kind is list:
            return self._encode_items(value, where, depth)
        if kind is tuple:
            return {"__tuple__": self._encode_items(value, where, depth)}
        if kind is dict:
            return self._encode_dict(value, where, depth)
        if kind in (np.ndarray, np.memmap):
            return {"__array__": self._add(value, where)}
        if isinstance(value, np.generic):
            return {"__scalar__": self._add(np.asarray(value), where)}
        return self._encode_object(value, where, depth)

    def _encode_items(self, items: Any, where: str, depth: int) -> list[Any]:
        return [self.encode(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(items)]

    def _encode_dict(self, value: dict[Any, Any], where: str, depth: int) -> dict[str, Any]:
        for key in value:
            if type(key) is not str:
                raise ModelFileError(f"{where} has the key {key!r}; keys must be str, convert it")
        items = {k: self.encode(v, f"{where}[{k!r}]", depth + 1) for k, v in value.items()}
        if any(key.startswith("__") for key in items):
            return {"__dict__": [[k, v] for k, v in items.items()]}
        return items

    def _encode_object(self, value: Any, where: str, depth: int) -> dict[str, Any]:
        cls = type(value)
        if not is_registered(cls):
            raise ModelFileError(
                f"{where} is a {cls.__module__}.{cls.__qualname__}, which model files cannot "
                "hold; convert it to arrays and plain values, or register its dataclass"
            )
        fields = {n: getattr(value, n) for n in _init_fields(cls)}
        encoded = {n: self.encode(v, f"{where}.{n}", depth + 1) for n, v in fields.items()}
        return {"__object__": [cls.__name__, encoded]}

    def _add(self, array: NDArray[Any], where: str) -> int:
        if not is_storable(array.dtype):
            raise ModelFileError(
                f"{where} has dtype {array.dtype}, which model files cannot hold; convert it to "
                "numbers, booleans, dates or fixed-width strings"
            )
        self.arrays.append(array)
        return len(self.arrays) - 1


def _init_fields(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls) if f.init]


def is_storable(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of this dtype come back as they were, without pickles."""
    if dtype.hasobject or dtype.itemsize == 0 or dtype.subdtype is not None:
        return False
    if dtype.kind not in "biufcmMSUV" or dtype.metadata:
        return False
    # Types of other packages, and records with names the .npy header cannot spell, come back
    # as something else.
    descr = np.lib.format.dtype_to_descr(dtype)
    return bool(np.lib.format.descr_to_dtype(descr) == dtype) and str(descr).isascii()


class Decoder:
    """Turns JSON values back into a state; each array is read once, when it is met."""

    def __init__(self, n_arrays: int, read_array: Callable[[int], NDArray[Any]]) -> None:
        self._unread = set(range(n_arrays))
        self._read_array = read_array
        self._tags: dict[str, Callable[[Any, int], Any]] = {
            "__array__": self._array,
            "__scalar__": self._scalar,
            "__float__": self._float,
            "__tuple__": self._tuple,
            "__dict__": self._dict,
            "__object__": self._object,
        }

    def decode(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            crafted(f"the state is nested more than {MAX_DEPTH} deep")
        if isinstance(value, list):
            return [self.decode(v, depth + 1) for v in value]
        if not isinstance(value, dict):
            return value
        tag = next((key for key in value if key.startswith("__")), None)
        if tag is None:
            return {k: self.decode(v, depth + 1) for k, v in value.items()}
        if tag not in self._tags or len(value) != 1:
            crafted(f"the state has the unknown tag {tag!r:.40}")
        return self._tags[tag](value[tag], depth)

    def check_all_used(self) -> None:
        if self._unread:
            crafted(f"array {min(self._unread)} is not part of the state")

    def _array(self, index: Any, depth: int) -> NDArray[Any]:
        if type(index) is not int or index not in self._unread:
            crafted(f"the state refers to array {index!r:.40}, which is absent or used already")
        self._unread.remove(index)
        return self._read_array(index)

    def _scalar(self, index: Any, depth: int) -> np.generic:
        array = self._array(index, depth)
        if array.ndim != 0:
            crafted(f"the scalar {index} has shape {array.shape}")
        return cast(np.generic, array[()])

    def _float(self, name: Any, depth: int) -> float:
        if not isinstance(name, str) or name not in _SPECIAL_FLOATS:
            crafted(f"the state has the float {name!r:.40}")
        return _SPECIAL_FLOATS[name]

    def _tuple(self, items: Any, depth: int) -> tuple[Any, ...]:
        if not isinstance(items, list):
            crafted("a tuple in the state is not a list of items")
        return tuple(self.decode(v, depth + 1) for v in items)

    def _dict(self, pairs: Any, depth: int) -> dict[str, Any]:
        if not isinstance(pairs, list) or not all(_is_pair(p) for p in pairs):
            crafted("a dict in the state is not a list of pairs")
        return unique_keys([(k, self.decode(v, depth + 1)) for k, v in pairs])

    def _object(self, content: Any, depth: int) -> Any:
        if not _is_pair(content) or not isinstance(content[1], dict):
            crafted("an object in the state is not a name with fields")
        name, encoded = content
        cls = _registered.get(name)
        if cls is None:
            raise ModelFileError(
                f"the state has a {name!r:.80}, which this program does not know; upgrade bagwise "
                "or import the module that registers it"
            )
        fields = {k: self.decode(v, depth + 1) for k, v in encoded.items()}
        try:
            return cls(**fields)
        except ModelFileError:
            raise
        except Exception as error:
            raise ModelFileError(
                f"its {name} cannot be rebuilt ({describe(error)}); save the model again"
            ) from error


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)
