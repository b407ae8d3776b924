"""Predictions beside the cells that they are of: columns of obs and a table of bags in uns."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags
from bagwise.bags.messages import show
from bagwise.core.files.atomic import atomic_file, check_target, refuse_existing
from bagwise.io.anndata_files import AnnDataFileError, read_cells_names, table_group
from bagwise.io.requirements import require
from bagwise.io.stores import is_zarr, open_store

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
Columns = dict[str, Array]
TABLE = "bagwise"  # the entry of uns


def write_anndata(
    target: Any,
    bags: Bags,
    found: Any,
    *,
    output: str | os.PathLike[str] | None = None,
    more: Mapping[str, ArrayLike] | None = None,
    more_of_bags: Mapping[str, ArrayLike] | None = None,
    overwrite: bool = False,
) -> None:
    """Write predictions into an AnnData object or file, beside the cells that they are of.

    `obs` gets the columns `p`, `p_std` and, where the instances of the model are calibrated,
    `p_low` and `p_high`; cells that are in none of the bags get NaN. `uns["bagwise"]` becomes a
    table with one row per bag: `p`, `p_std`, `n_instances`.

    Parameters
    ----------
    target : an AnnData object, which is changed; or the path of a file or store.
    bags : what `Bags.from_anndata` or `read_anndata` made of it, all or some of the bags.
    found : a fitted model of two classes, or what its `predict_all(bags)` returned.
    output : the file or Zarr store to write, `target` with the predictions in it. None changes an
        .h5ad file itself, which is replaced as a whole when all is written.
    more : further columns of obs by their names, (N,) in the order of the bags' rows.
    more_of_bags : further columns of the table of bags, (B,) each.
    overwrite : replace columns, a table or an output that are there already.

    >>> import pandas as pd
    >>> from types import SimpleNamespace
    >>> from bagwise import VGPMIL
    >>> rng = np.random.default_rng(0)
    >>> obs = pd.DataFrame({"donor": np.repeat(range(10), 3), "sick": np.repeat([0, 1] * 5, 3)})
    >>> adata = SimpleNamespace(  # or anndata.read_h5ad("cells.h5ad")
    ...     obs=obs, obs_names=obs.index, var_names=["a", "b"], obsm={}, layers={}, uns={},
    ...     X=rng.normal(size=(30, 2)) + 3 * obs[["sick"]].to_numpy())
    >>> bags = Bags.from_anndata(adata, bag="donor", label="sick")
    >>> model = VGPMIL(n_inducing=5, random_state=0).fit(bags)
    >>> write_anndata(adata, bags, model)
    >>> adata.obs.columns[:4].tolist(), adata.uns["bagwise"].shape
    (['donor', 'sick', 'p', 'p_std'], (10, 3))
    """
    found = _predictions(found, bags)
    of_cells = _of_cells(found) | {k: np.asarray(v) for k, v in (more or {}).items()}
    table = _bag_table(bags, found, more_of_bags or {})
    if isinstance(target, str | os.PathLike):
        names = read_cells_names(target)
        columns = _in_rows(of_cells, bags, names)
        _write_file(target, output or target, columns, table, overwrite)
        return
    if output is not None:
        raise ValueError("output is for files; write an AnnData object with adata.write_h5ad(path)")
    columns = _in_rows(of_cells, bags, [str(i) for i in target.obs_names])
    if not overwrite:
        _refuse_there([*target.obs.columns], [*target.uns], columns, "adata")
    for name, values in columns.items():
        target.obs[name] = values
    target.uns[TABLE] = table


def _predictions(found: Any, bags: Bags) -> Any:
    if hasattr(found, "predict_all"):
        found = found.predict_all(bags)
    if not all(hasattr(found, part) for part in ("p", "std", "bag_p", "bag_std")):
        raise TypeError(
            f"predictions of cells come from one model of two classes; got "
            f"{type(found).__name__}; pass a fitted model such as ProbitVGPMIL, or what its "
            "predict_all returned (of a OneVsRestMIL one of its estimators_)"
        )
    if len(found.p) != bags.n_instances or len(found.bag_p) != len(bags):
        raise ValueError(
            f"the predictions are of {len(found.bag_p)} bags with {len(found.p)} cells, the bags "
            f"are {len(bags)} with {bags.n_instances}; pass the bags that were predicted"
        )
    return found


def _of_cells(found: Any) -> Columns:
    columns = {"p": found.p[:, 1], "p_std": found.std}
    if found.low is not None and found.high is not None:
        columns |= {"p_low": found.low, "p_high": found.high}
    return columns


def _bag_table(bags: Bags, found: Any, more: Mapping[str, ArrayLike]) -> pd.DataFrame:
    pandas = require("pandas", what="writing AnnData files", extra="io")
    columns = {"p": found.bag_p[:, 1], "p_std": found.bag_std, "n_instances": bags.sizes}
    index = pandas.Index([str(i) for i in bags.ids.tolist()], name="bag")
    return pandas.DataFrame({**columns, **{k: np.asarray(v) for k, v in more.items()}}, index)


def _in_rows(columns: Columns, bags: Bags, names: list[str]) -> Columns:
    """Columns in the order of the cells, whose names must be those of the bags' instances."""
    rows = bags.row_index
    of_bags = bags.instance_ids
    if rows.max() >= len(names) or of_bags is None:
        _refuse_other_cells(f"it has {len(names)} cells")
    there = np.asarray(names, dtype=object)[rows]
    other = np.flatnonzero(there != of_bags.astype(object))  # type: ignore[union-attr]
    if len(other):
        row = int(rows[other[0]])
        _refuse_other_cells(f"its cell {row} is {names[row]!r}, not {show(of_bags[other[0]])}")  # type: ignore[index]
    result = {}
    for name, values in columns.items():
        text = values.dtype.kind in "OU"
        result[name] = np.full(len(names), "" if text else np.nan, dtype=object if text else float)
        result[name][rows] = values
    return result


def _refuse_other_cells(why: str) -> None:
    raise ValueError(
        f"the bags were not made of these cells: {why}; make them with Bags.from_anndata or "
        "bagwise.io.read_anndata of the same object or file"
    )


def _refuse_there(columns: list[str], uns: list[str], added: Mapping[str, Any], name: str) -> None:
    clash = [f"obs[{c!r}]" for c in added if c in columns]
    clash += [f"uns[{TABLE!r}]"] if TABLE in uns else []
    if clash:
        raise ValueError(
            f"{name} has {clash[0]} already; pass overwrite=True to replace it, or rename it"
        )


# --- Files ---------------------------------------------------------------------------------------


def _write_file(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    columns: Columns,
    table: pd.DataFrame,
    overwrite: bool,
) -> None:
    """A copy of the source with the results takes the place of the output when it is complete."""
    name, same = os.fspath(source), os.path.realpath(source) == os.path.realpath(output)
    with open_store(name, AnnDataFileError) as store:
        group = table_group(store)
        prefix = f"{group}/" if group else ""
        there = store.keys(f"{prefix}obs"), store.keys(f"{prefix}uns")  # which refuses links
        if not overwrite:
            _refuse_there(*there, columns, name)
    check_same_kind(name, output)
    if is_zarr(name):
        _write_zarr(Path(name, group), Path(output), columns, table)
        return
    h5py = require("h5py", what="writing HDF5 files", extra="io")
    with atomic_file(output, overwrite=overwrite or same) as file:
        with open(name, "rb") as whole:
            shutil.copyfileobj(whole, file)
        file.flush()
        with h5py.File(file.name, "r+") as copy:
            text = h5py.string_dtype()
            _add(copy, columns, table, lambda g, k, v: g.create_dataset(k, data=v, dtype=text))


def check_same_kind(source: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Raise where an output names another kind of file than the one that is copied there."""
    if is_zarr(source) != os.fspath(output).lower().rstrip("/").endswith(".zarr"):
        raise ValueError(
            f"results of {os.fspath(source)} are written to a file of the same kind; end the "
            f"output in {'.zarr' if is_zarr(source) else '.h5ad'}"
        )


def _write_zarr(source: Path, output: Path, columns: Columns, table: pd.DataFrame) -> None:
    zarr = require("zarr", what="writing Zarr stores", extra="scverse")
    refuse_existing(output)  # a folder cannot be replaced in one step
    check_target(output)
    if any(path.is_symlink() for path in source.rglob("*")):
        raise AnnDataFileError(f"{source} has links, which are not followed; copy what they name")
    copy = output.with_name(f".{output.name}.{secrets.token_hex(8)}.tmp")
    try:
        shutil.copytree(source, copy, symlinks=True)
        with suppress(FileNotFoundError):
            (copy / ".zmetadata").unlink()  # what is added is not in there
        root = zarr.open_group(os.fspath(copy), mode="r+", use_consolidated=False)
        _add(root, columns, table, _zarr_text)
        zarr.consolidate_metadata(os.fspath(copy))
        os.rename(copy, output)
    except BaseException:
        shutil.rmtree(copy, ignore_errors=True)
        raise


def _zarr_text(group: Any, key: str, values: Array) -> Any:
    array = group.create_array(key, shape=values.shape, dtype=str)
    array[...] = values
    return array


def _add(root: Any, columns: Columns, table: pd.DataFrame, write_text: Any) -> None:
    """Results in the layout that anndata documents, in a group of HDF5 or Zarr."""
    obs = root["obs"]
    for name, values in columns.items():
        _put(obs, name, values, write_text)
    order = [str(c) for c in np.ravel(obs.attrs.get("column-order", []))]
    obs.attrs["column-order"] = [*order, *(c for c in columns if c not in order)]
    if "uns" not in root:
        root.create_group("uns").attrs.update(
            {"encoding-type": "dict", "encoding-version": "0.1.0"}
        )
    if TABLE in root["uns"]:
        del root["uns"][TABLE]
    group = root["uns"].create_group(TABLE)
    for name in table.columns:
        _put(group, name, table[name].to_numpy(), write_text)
    _put(group, "bag", table.index.to_numpy(), write_text)
    group.attrs["_index"], group.attrs["column-order"] = "bag", list(table.columns)
    group.attrs["encoding-type"], group.attrs["encoding-version"] = "dataframe", "0.2.0"


def _put(group: Any, name: str, values: Array, write_text: Any) -> None:
    if name in group:
        del group[name]
    if values.dtype.kind in "OU":
        array, kind = write_text(group, name, values.astype(object)), "string-array"
    else:
        array = group.create_array(name, data=values) if hasattr(group, "create_array") else (
            group.create_dataset(name, data=values)
        )  # fmt: skip
        kind = "array"
    array.attrs["encoding-type"], array.attrs["encoding-version"] = kind, "0.2.0"
