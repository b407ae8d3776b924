"""Where a model comes from: what its file may say of that, and which bags it was trained on."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags

Array = NDArray[Any]

_ROLES = ("bag", "label", "instance_label", "instance_id", "group", "rep")


def check_metadata(found: Any) -> dict[str, Any]:
    """What a file says of where a model comes from, each known entry of its own kind.

    Entries that bagwise does not write are the user's own, and stay as they are.
    """
    if not isinstance(found, dict):
        raise ValueError(f"metadata must be a dictionary, got {found!r:.80}")
    for name, (fits, kind) in _METADATA.items():
        if name in found and not fits(found[name]):
            raise ValueError(f"metadata: {name} must be {kind}, got {found[name]!r:.80}")
    return dict(found)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | np.generic)


def _are_scalars(values: Any) -> bool:
    array = isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind != "V"
    return array or (isinstance(values, list | tuple) and all(map(_is_scalar, values)))


def _are_classes(values: Any) -> bool:
    two = isinstance(values, list | tuple) and len(values) == 2 and all(map(_is_scalar, values))
    return bool(two and values[0] != values[1] and str(values[0]) != str(values[1]))


def _are_columns(found: Any) -> bool:
    if not (isinstance(found, dict) and isinstance(found.get("coords", []), list | tuple)):
        return False
    roles = [found.get(role) for role in _ROLES]
    return all(isinstance(v, str | None) for v in roles) and all(
        isinstance(v, str) for v in found.get("coords", [])
    )


def _is_origin(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("name", ""), str):
        return False
    return all(isinstance(v, int) for k, v in found.items() if k != "name")


def _are_hashes(found: Any) -> bool:
    return found is None or (
        isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype == np.uint64
    )


def _are_medians(found: Any) -> bool:
    numbers = isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype == np.float64
    return numbers and bool(np.all(np.isfinite(found)))


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


_METADATA: dict[str, tuple[Callable[[Any], bool], str]] = {
    "columns": (_are_columns, "names of columns"),
    "classes": (_are_classes, "two different labels"),
    "held_out": (_are_scalars, "a list of bag ids"),
    "seed": (lambda v: v is None or isinstance(v, int), "a whole number"),
    "command": (_is_text, "a text"),
    "bagwise": (_is_text, "a text"),
    "data": (_is_origin, "a name and counts"),
    "missing": (lambda v: v in ("median", "drop", "error"), "median, drop or error"),
    "medians": (_are_medians, "finite numbers"),
    "trained_bags": (_are_hashes, "hashes of ids"),
    "trained_groups": (_are_hashes, "hashes of ids"),
}


# --- Bags and patients of the fit: scores on these flatter a model, and notes say so --------------


def id_hashes(ids: Array) -> Array:
    """(n,) hashes of ids as text: enough to know a bag or a patient again."""
    # Names of files that are not UTF-8 have halves of characters in them.
    texts = [str(i).encode("utf-8", "surrogatepass") for i in ids.tolist()]
    digests = [blake2b(text, digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def seen_bags(model: Any, bags: Bags) -> NDArray[np.bool_]:
    """(B,) bags whose ids the model was trained on; none for models that do not know theirs."""
    return _seen(model, "trained_bags", bags.ids)


def seen_patients(model: Any, bags: Bags) -> NDArray[np.bool_]:
    """(B,) other bags of groups that the model was trained on; none where nobody knows."""
    if bags.groups is None:
        return np.zeros(len(bags), dtype=bool)
    return _seen(model, "trained_groups", bags.groups) & ~seen_bags(model, bags)


def _seen(model: Any, what: str, ids: Array) -> NDArray[np.bool_]:
    trained = getattr(model, "metadata_", {}).get(what)
    return np.isin(id_hashes(ids), () if trained is None else trained)


def seen_in_fit(model: Any, bags: Bags, data_name: str) -> list[str]:
    """Notes where a model was trained on some of the bags, or on others of their groups."""
    fitted_on = getattr(model, "metadata_", {}).get("data", {}).get("name")
    seen, shared = (int(np.sum(f(model, bags))) for f in (seen_bags, seen_patients))
    notes = []
    if seen:
        sure = "" if fitted_on == data_name else "If they are the same bags, "
        notes.append(
            f"{seen} of these {len(bags)} bags have ids that the model was trained on. {sure}"
            f"{'t' if sure else 'T'}heir scores are better than those of new bags: give other "
            "bags, or hold some out of the fit."
        )
    if shared:
        notes.append(
            f"{shared} of these {len(bags)} bags are of groups (patients) of which the model was "
            "trained on other bags. Their scores may be better than those of new patients: give "
            "bags of other groups, or hold some out of the fit."
        )
    return notes
