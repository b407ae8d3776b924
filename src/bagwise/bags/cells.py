"""Cells of an AnnData object as the parts of `Bags` (internal)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from bagwise.bags.inputs import names_of
from bagwise.bags.sparse_rows import checked_sparse

if TYPE_CHECKING:
    import pandas as pd

_PARTS = ("obs", "obs_names", "var_names", "obsm", "layers")


def check_cells(adata: Any, columns: Sequence[str]) -> pd.DataFrame:
    """The table of cells, which must have these columns."""
    if not all(hasattr(adata, part) for part in _PARTS):
        raise TypeError(
            f"from_anndata takes an AnnData object; got {type(adata).__name__}; read a file with "
            "bagwise.io.read_anndata(path, ...) or anndata.read_h5ad(path)"
        )
    obs: pd.DataFrame = adata.obs
    for column in columns:
        if column not in obs.columns:
            raise ValueError(
                f"adata.obs has no column {column!r}; its columns are {list(obs.columns)}; name "
                "the right one (label=None if the donors have no labels)"
            )
    return obs


def representation(adata: Any, rep: str | None) -> tuple[Any, list[str]]:
    """Features of the cells and their names: X, or what obsm or layers have under a name."""
    if rep is None:
        if adata.X is None:
            raise ValueError(
                f"adata.X is empty; choose what stands for the cells: rep={_known(adata)}"
            )
        return in_memory(adata.X), [str(v) for v in adata.var_names]
    places = [part for part in ("obsm", "layers") if rep in getattr(adata, part)]
    if len(places) != 1:
        found = "both obsm and layers have" if places else "neither obsm nor layers has"
        raise ValueError(f"{found} rep={rep!r}; there is {_known(adata)}, or None for adata.X")
    values = getattr(adata, places[0])[rep]
    if places == ["layers"]:
        return in_memory(values), [str(v) for v in adata.var_names]
    names = names_of(values)
    X = in_memory(values)
    return X, list(names) if names else [f"{rep}[{j}]" for j in range(X.shape[1])]


def _known(adata: Any) -> str:
    return ", ".join(map(repr, [*adata.obsm.keys(), *adata.layers.keys()])) or "nothing else"


def in_memory(values: Any) -> Any:
    """A matrix that may be in an open file (backed mode) or in parts (Dask), as one in memory."""
    if hasattr(values, "to_memory"):
        values = values.to_memory()
    if hasattr(values, "compute"):
        values = values.compute()
    if sparse.issparse(values):
        return sparse.csr_array(checked_sparse(values))
    return np.asarray(values)


def places(adata: Any, obs: pd.DataFrame, coords: Any) -> Any:
    """(N, k) coordinates: two columns of obs or more, or what obsm has under a name."""
    if coords is None:
        return None
    if not isinstance(coords, str):
        check_cells(adata, coords)
        return obs[list(coords)].to_numpy(dtype=float, na_value=np.nan)
    if coords not in adata.obsm:
        raise ValueError(
            f"obsm has no coords={coords!r}; there is {_known(adata)}; or name two columns of obs"
        )
    return np.asarray(in_memory(adata.obsm[coords]))
