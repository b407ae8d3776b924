"""AnnData files (.h5ad, Zarr, tables of SpatialData) as Bags, by their documented layout.

Only what is asked for is read, without the package anndata: one representation of the cells, the
columns of obs, and coordinates.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bagwise.bags import Bags
from bagwise.bags.sparse_rows import check_indices
from bagwise.core.files.reading import UnreadableFileError
from bagwise.io.columns import show_names
from bagwise.io.requirements import require
from bagwise.io.stores import Store, is_zarr, open_store

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
SPARSE = {"csr_matrix": sparse.csr_array, "csc_matrix": sparse.csc_array}
NULLABLE = ("nullable-integer", "nullable-boolean", "nullable-string-array")


class AnnDataFileError(UnreadableFileError):
    """An AnnData file is damaged, or not laid out as one; the message says where."""


@dataclass(frozen=True)
class Cells:
    """The parts of an AnnData file that were read, under the names that AnnData objects have."""

    obs: pd.DataFrame
    var_names: list[str]
    X: Any = None
    obsm: dict[str, Any] = field(default_factory=dict)
    layers: dict[str, Any] = field(default_factory=dict)

    @property
    def obs_names(self) -> Any:
        """Names of the cells."""
        return self.obs.index


def read_anndata(
    path: str | os.PathLike[str],
    bag: str,
    label: str | None = None,
    *,
    rep: str | None = None,
    instance_label: str | None = None,
    coords: str | Sequence[str] | None = None,
    groups: str | None = None,
    positive: Any = None,
) -> Bags:
    """Read the cells of an AnnData file as bags, e.g. one per donor.

    Arguments are those of `Bags.from_anndata`; only what they name is read, so that large files
    need no memory for the rest. The file is `.h5ad`, a Zarr store of anndata, or one of SpatialData
    with one table (of several name the table: `data.zarr/tables/cells`). Nothing in a file is
    executed; damaged ones raise `AnnDataFileError`.

    >>> import tempfile
    >>> import h5py
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(f"{folder}/cells.h5ad", "w") as file:  # as anndata lays it out
    ...         obs = file.create_group("obs")
    ...         obs.attrs.update({"_index": "cell", "column-order": ["donor"]})
    ...         obs["cell"], obs["donor"] = ["c0", "c1", "c2"], ["d2", "d1", "d2"]
    ...         file["obsm/X_pca"] = np.eye(3)
    ...     bags = read_anndata(f"{folder}/cells.h5ad", bag="donor", rep="X_pca")
    >>> bags.ids.tolist(), bags.sizes.tolist(), bags.instance_ids.tolist()
    (['d1', 'd2'], [1, 2], ['c1', 'c0', 'c2'])
    """
    named = [c for c in (bag, label, instance_label, groups) if c is not None]
    located = coords if isinstance(coords, str) else None
    if coords is not None and located is None:
        named += [*coords]
    cells = read_cells(path, rep=rep, located=located, columns=named)
    try:
        return Bags.from_anndata(
            cells, bag, label, rep=rep, instance_label=instance_label, coords=coords,
            groups=groups, positive=positive,
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        raise AnnDataFileError(f"{os.fspath(path)}: {error}") from error


def read_cells(
    path: str | os.PathLike[str],
    *,
    rep: str | None = None,
    located: str | None = None,
    columns: Sequence[str] | None = None,
) -> Cells:
    """One representation of the cells, columns of obs (None: all) and an entry of obsm."""
    require("pandas", what="reading AnnData files", extra="io")
    with open_store(path, AnnDataFileError) as whole:
        store = _table_of(whole)
        obs = read_obs(store, columns)
        obsm = {} if located is None else {located: _entry(store, "obsm", located, len(obs))}
        names = _index(store, "var") if store.keys("var") else []
        if rep is None:
            return Cells(obs, names, _matrix(store, "X", len(obs)), obsm)
        place = _place_of(store, rep)
        found = {rep: _entry(store, place, rep, len(obs))}
        if place == "layers":
            return Cells(obs, names, None, obsm, found)
        return Cells(obs, names, None, obsm | found)


def read_cells_names(path: str | os.PathLike[str]) -> list[str]:
    """The names of all cells."""
    with open_store(path, AnnDataFileError) as whole:
        return _index(_table_of(whole), "obs")


def entries(path: str | os.PathLike[str], group: str) -> list[str]:
    """The names in a group such as obsm."""
    with open_store(path, AnnDataFileError) as whole:
        return _table_of(whole).keys(group)


def is_anndata(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of an AnnData file, by its ending or since it is a Zarr store."""
    name = os.fspath(path)
    return name.lower().endswith(".h5ad") or is_zarr(name) or name.lower().endswith(".zarr")


# --- Elements ------------------------------------------------------------------------------------


class _Below:
    """A group of a store as a store of its own: a table of SpatialData."""

    def __init__(self, whole: Store, group: str) -> None:
        self.whole, self.group, self.name = whole, group, f"{whole.name}/{group}"

    def _key(self, key: str) -> str:
        return f"{self.group}/{key}" if key else self.group

    def keys(self, group: str) -> list[str]:
        return self.whole.keys(self._key(group))

    def is_array(self, key: str) -> bool:
        return self.whole.is_array(self._key(key))

    def attributes(self, key: str) -> dict[str, Any]:
        return self.whole.attributes(self._key(key))

    def values(self, key: str) -> Array:
        return self.whole.values(self._key(key))


def _table_of(store: Store) -> Store:
    group = table_group(store)
    return _Below(store, group) if group else store


def table_group(store: Store) -> str:
    """The one table of a SpatialData store; '' where the store itself is laid out as AnnData."""
    names = store.keys("")
    if "obs" in names:
        if store.is_array("obs"):
            raise AnnDataFileError(
                f"{store.name}: obs is one array, as anndata before 0.7 wrote it; read the file "
                "with anndata and write it again"
            )
        return ""
    tables = store.keys("tables") or store.keys("table")
    group = "tables" if store.keys("tables") else "table"
    if len(tables) == 1:
        return f"{group}/{tables[0]}"
    if tables:
        raise AnnDataFileError(
            f"{store.name} has the tables {show_names(tables)}; name one of them: "
            f"{store.name}/{group}/{tables[0]}"
        )
    raise AnnDataFileError(
        f"{store.name} has no obs, so it is no AnnData file; there is {show_names(names)}"
    )


def read_obs(store: Store, columns: Sequence[str] | None) -> pd.DataFrame:
    """Columns of obs (None: all that are numbers, text or categories), indexed by cell."""
    import pandas as pd

    index = _index(store, "obs")
    order = [str(c) for c in np.ravel(store.attributes("obs").get("column-order", []))]
    for column in columns or ():
        if column not in order:
            raise AnnDataFileError(
                f"{store.name}: obs has no column {column!r}; its columns are {show_names(order)}"
            )
    wanted = order if columns is None else list(dict.fromkeys(columns))
    found = {c: _column(store, c) for c in wanted}
    for column, values in found.items():
        if len(values) != len(index):
            raise AnnDataFileError(
                f"{store.name}: obs has {len(index)} cells but {len(values)} entries of "
                f"{column!r}; write the file again"
            )
    return pd.DataFrame(found, index=index)


def _index(store: Store, group: str) -> list[str]:
    key = store.attributes(group).get("_index", "_index")
    if not isinstance(key, str):
        raise AnnDataFileError(f"{store.name}: {group} does not name its index; write it again")
    values = store.values(f"{group}/{key}")
    if values.ndim != 1:
        raise AnnDataFileError(f"{store.name}: the index of {group} has shape {values.shape}")
    return [str(v) for v in values.tolist()]


def _column(store: Store, column: str) -> Any:
    """One column of obs: numbers, text, categories, or values with gaps."""
    key = f"obs/{column}"
    if store.is_array(key):
        values = store.values(key)
        old = f"obs/__categories/{column}"  # where anndata 0.7 kept them
        if "__categories" in store.keys("obs") and column in store.keys("obs/__categories"):
            return _categories(store, values, store.values(old), False, key)
        return values
    kind = store.attributes(key).get("encoding-type") if store.keys(key) else None
    if kind == "categorical":
        ordered = bool(store.attributes(key).get("ordered", False))
        codes, names = store.values(f"{key}/codes"), store.values(f"{key}/categories")
        return _categories(store, codes, names, ordered, key)
    if kind in NULLABLE:
        values = store.values(f"{key}/values").astype(object)
        values[store.values(f"{key}/mask").astype(bool)] = None
        return _with_gaps(values, str(kind))
    raise AnnDataFileError(f"{store.name}: column {column!r} is {kind!r:.40}, which is not read")


def _with_gaps(values: Array, kind: str) -> Any:
    import pandas as pd

    types = {"nullable-integer": "Int64", "nullable-boolean": "boolean"}
    return pd.array(values.tolist(), dtype=types.get(kind, "object"))


def _categories(store: Store, codes: Array, names: Array, ordered: bool, key: str) -> Any:
    import pandas as pd

    if codes.dtype.kind not in "iu" or np.any((codes < -1) | (codes >= len(names))):
        raise AnnDataFileError(f"{store.name}: {key!r} has codes of categories that it lacks")
    return pd.Categorical.from_codes(codes, names.tolist(), ordered=ordered)


def _place_of(store: Store, rep: str) -> str:
    """The group that has a representation; an error where none has, or two have."""
    places = [group for group in ("obsm", "layers") if rep in store.keys(group)]
    if len(places) != 1:
        found = "both obsm and layers have" if places else "neither obsm nor layers has"
        there = show_names([*store.keys("obsm"), *store.keys("layers")])
        raise AnnDataFileError(
            f"{store.name}: {found} {rep!r}; there is {there or 'nothing'}; leave it out for X"
        )
    return places[0]


def _entry(store: Store, group: str, name: str, n_cells: int) -> Any:
    if name not in store.keys(group):
        there = show_names(store.keys(group)) or "nothing"
        raise AnnDataFileError(f"{store.name}: {group} has no {name!r}; there is {there}")
    return _matrix(store, f"{group}/{name}", n_cells)


def _matrix(store: Store, key: str, n_cells: int) -> Any:
    """A matrix with one row per cell, dense, sparse or of the columns of a table."""
    if store.is_array(key):
        X: Any = store.values(key)
    else:
        kind = store.attributes(key).get("encoding-type") if store.keys(key) else None
        readers: dict[Any, Callable[[Store, str], Any]] = {
            **dict.fromkeys(SPARSE, _sparse), "dataframe": _frame_matrix,
        }  # fmt: skip
        if kind not in readers:
            raise AnnDataFileError(
                f"{store.name}: {key} is {kind!r:.40} and no matrix of numbers; choose another "
                "representation, such as X_pca"
            )
        X = readers[kind](store, key)
    dtype = np.asarray(X).dtype if hasattr(X, "columns") else np.dtype(X.dtype)
    if X.ndim != 2 or X.shape[0] != n_cells or dtype.kind not in "fiub":
        raise AnnDataFileError(
            f"{store.name}: {key} must be numbers with one row for each of {n_cells} cells; got "
            f"{dtype} of shape {X.shape}"
        )
    return X


def _sparse(store: Store, key: str) -> Any:
    attributes = store.attributes(key)
    shape = tuple(int(n) for n in np.ravel(attributes["shape"]))
    parts = tuple(store.values(f"{key}/{part}") for part in ("data", "indices", "indptr"))
    matrix = SPARSE[str(attributes["encoding-type"])](parts, shape=shape)
    check_indices(matrix)
    return matrix


def _frame_matrix(store: Store, key: str) -> pd.DataFrame:
    import pandas as pd

    order = [str(c) for c in np.ravel(store.attributes(key).get("column-order", []))]
    return pd.DataFrame({c: store.values(f"{key}/{c}") for c in order})
