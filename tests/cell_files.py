"""Files of cells in the layout that anndata documents, written without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy import sparse

N_CELLS, N_DONORS, N_GENES = 160, 16, 6


def cells(seed: int = 0) -> dict[str, Any]:
    """Donors of ten cells in mixed order; some cells of sick donors lie apart."""
    rng = np.random.default_rng(seed)
    donor = rng.permutation(np.repeat(np.arange(N_DONORS), N_CELLS // N_DONORS))
    marked = (donor % 2 == 1) & (rng.random(N_CELLS) < 0.4)
    pca = rng.normal(size=(N_CELLS, 3)).astype(np.float32)
    pca[marked] += 3
    return {
        "donor": donor,
        "sick": donor % 2,
        "marked": marked,
        "pca": pca,
        "counts": rng.poisson(1.0, (N_CELLS, N_GENES)).astype(np.float32),
        "spatial": rng.random((N_CELLS, 2)),
    }


def write_h5ad(path: Path, seed: int = 0) -> dict[str, Any]:
    """Categories, numbers, gaps, text, a sparse X, a layer, obsm; what went in comes back."""
    found = cells(seed)
    with h5py.File(path, "w") as file:
        obs = file.create_group("obs")
        obs.attrs["_index"], obs.attrs["encoding-type"] = "cell", "dataframe"
        obs.attrs["column-order"] = ["donor", "disease", "marked", "age", "batch"]
        obs["cell"] = [f"cell{i}" for i in range(N_CELLS)]
        categorical(obs, "donor", found["donor"], [f"d{i:02d}" for i in range(N_DONORS)])
        categorical(obs, "disease", found["sick"], ["healthy", "sick"])
        obs["marked"] = np.where(found["marked"], 1.0, np.nan)
        gaps = obs.create_group("age")
        gaps.attrs["encoding-type"] = "nullable-integer"
        gaps["values"], gaps["mask"] = found["donor"], found["donor"] == 3
        obs["batch"] = [f"b{i % 2}" for i in range(N_CELLS)]
        var = file.create_group("var")
        var.attrs["_index"], var["gene"] = "gene", [f"g{j}" for j in range(N_GENES)]
        matrix(file, "X", sparse.csr_array(found["counts"]))
        file["layers/counts"] = found["counts"]
        file["obsm/X_pca"], file["obsm/spatial"] = found["pca"], found["spatial"]
    return found


def categorical(group: Any, name: str, codes: Any, names: list[str]) -> None:
    column = group.create_group(name)
    column.attrs["encoding-type"], column.attrs["ordered"] = "categorical", False
    column["codes"], column["categories"] = np.asarray(codes, dtype=np.int8), names


def matrix(file: Any, name: str, X: Any) -> None:
    group = file.create_group(name)
    group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", X.shape
    group["data"], group["indices"], group["indptr"] = X.data, X.indices, X.indptr
