"""Which bags and patients a model was trained on: scores on these flatter it, and notes say so."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags

Array = NDArray[Any]


def id_hashes(ids: Array) -> Array:
    """(n,) hashes of ids as text: enough to know a bag or a patient again."""
    digests = [blake2b(str(i).encode(), digest_size=8).digest() for i in ids.tolist()]
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
