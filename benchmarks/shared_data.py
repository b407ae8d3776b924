"""Data sets of the shared folder (BAGWISE_SHARED, or ../shared beside the project)."""

import os
from pathlib import Path

import numpy as np

import bagwise as bw


def load(name: str) -> tuple[bw.Bags, dict[str, np.ndarray]]:
    """Bags of a shared set, and all its arrays; rows are in bag order already."""
    root = Path(os.environ.get("BAGWISE_SHARED") or Path(__file__).parents[2] / "shared")
    path = root / "data" / f"{name}.npz"
    if not path.is_file():
        raise SystemExit(f"{name}: no shared data here; set BAGWISE_SHARED to its folder")
    with np.load(path, allow_pickle=False) as file:
        data = {key: file[key] for key in file.files}
    y = data["y_bag"] if data["y_bag"].ndim == 1 else None
    X = data["X"].astype(np.float64)
    return bw.Bags.from_arrays(X, data["bag"], y=y, coords=data.get("coords")), data
