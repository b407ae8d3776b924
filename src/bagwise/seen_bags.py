"""Which bags a model was trained on: scores on these flatter it, and a note should say so."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags

Array = NDArray[Any]


def id_hashes(bags: Bags) -> Array:
    """(B,) hashes of the bag ids as text: enough to know a bag again, however many there are."""
    digests = [blake2b(str(i).encode(), digest_size=8).digest() for i in bags.ids.tolist()]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def count_seen(model: Any, bags: Bags) -> int:
    """Bags whose ids the model was trained on; 0 for models that do not know theirs."""
    trained = getattr(model, "metadata_", {}).get("trained_bags")
    return 0 if trained is None else int(np.isin(id_hashes(bags), trained).sum())


def seen_in_fit(model: Any, bags: Bags, data_name: str) -> str | None:
    """A note where a model was trained on some of the bags, by their ids."""
    seen = count_seen(model, bags)
    if not seen:
        return None
    fitted_on = getattr(model, "metadata_", {}).get("data", {}).get("name")
    sure = "" if fitted_on == data_name else "If they are the same bags, "
    return (
        f"{seen} of these {len(bags)} bags have ids that the model was trained on. {sure}"
        f"{'t' if sure else 'T'}heir scores are better than those of new bags: give other bags, "
        "or fit with --valid."
    )
