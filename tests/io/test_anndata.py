"""Files of cells: read by their documented layout, refused where damaged, written back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.bags import Bags
from bagwise.io import AnnDataFileError, read_anndata, write_anndata
from bagwise.io.anndata_files import read_cells
from cell_files import N_CELLS, N_GENES, cells, write_h5ad
from command_line import good, refused

READ: dict[str, Any] = {"bag": "donor", "label": "disease", "positive": "sick"}


def anndata_like(found: dict[str, Any]) -> Any:
    """What an AnnData object shows of itself."""
    donor = np.array([f"d{i:02d}" for i in found["donor"]])
    obs = pd.DataFrame(
        {
            "donor": pd.Categorical(donor),
            "disease": pd.Categorical(np.where(found["sick"], "sick", "healthy")),
        },
        index=[f"cell{i}" for i in range(N_CELLS)],
    )
    return SimpleNamespace(
        obs=obs,
        obs_names=obs.index,
        var_names=[f"g{j}" for j in range(N_GENES)],
        X=found["counts"],
        obsm={"X_pca": found["pca"], "spatial": found["spatial"]},
        layers={},
        uns={},
    )


@pytest.fixture(scope="module")
def fitted() -> Any:
    found = cells()
    bags = Bags.from_anndata(anndata_like(found), **READ, rep="X_pca")
    return bw.VGPMIL(n_inducing=10, random_state=0).fit(bags)


def test_a_file_and_an_object_give_the_same_bags(tmp_path: Path) -> None:
    found = write_h5ad(tmp_path / "c.h5ad")
    adata = anndata_like(found)
    for rep in (None, "X_pca"):
        bags = read_anndata(tmp_path / "c.h5ad", **READ, rep=rep, coords="spatial")
        same = Bags.from_anndata(adata, **READ, rep=rep, coords="spatial")
        assert bags.feature_names == same.feature_names
        for part in ("ids", "y", "coords", "instance_ids", "row_index"):
            np.testing.assert_array_equal(getattr(bags, part), getattr(same, part))
        np.testing.assert_array_equal(bags.X[:], same.X[:])
    np.testing.assert_array_equal(bags.X, found["pca"][bags.row_index])
    layer = read_anndata(tmp_path / "c.h5ad", **READ, rep="counts", instance_label="marked")
    np.testing.assert_array_equal(layer.X, found["counts"][layer.row_index])
    np.testing.assert_array_equal(layer.instance_labels == 1, found["marked"][layer.row_index])


def test_columns_of_all_kinds(tmp_path: Path) -> None:
    found = write_h5ad(tmp_path / "c.h5ad")
    obs = read_cells(tmp_path / "c.h5ad", rep="X_pca").obs
    assert obs["age"].isna().sum() == np.sum(found["donor"] == 3)
    assert obs["batch"].tolist()[:3] == ["b0", "b1", "b0"]
    assert isinstance(obs["donor"].dtype, pd.CategoricalDtype)


def test_labels_that_differ_inside_a_donor_are_refused(tmp_path: Path) -> None:
    adata = anndata_like(cells())
    with pytest.raises(
        ValueError, match=r"column 'disease' must be constant inside a bag; bag 'd\d\d' has"
    ):
        Bags.from_anndata(
            SimpleNamespace(**vars(adata) | {"obs": adata.obs.assign(disease=range(N_CELLS))}),
            bag="donor",
            label="disease",
        )
    with pytest.raises(ValueError, match="obs has no column 'nobody'"):
        Bags.from_anndata(adata, bag="nobody")
    with pytest.raises(ValueError, match=r"neither obsm nor layers has rep='X_umap'.*'X_pca'"):
        Bags.from_anndata(adata, bag="donor", rep="X_umap")
    with pytest.raises(TypeError, match="takes an AnnData object"):
        Bags.from_anndata(adata.obs, bag="donor")


def edited(path: Path, change: Callable[[Any], Any]) -> None:
    with h5py.File(path, "r+") as file:
        change(file)


def put(file: Any, key: str, values: Any) -> None:
    if key in file:
        del file[key]
    file[key] = values


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: f.__delitem__("obs"), "no obs, so it is no AnnData file"),
        (lambda f: put(f, "obs", np.zeros(3)), "as anndata before 0.7 wrote it"),
        (lambda f: put(f, "obs/donor/codes", np.full(N_CELLS, 99)), "categories that it lacks"),
        (lambda f: put(f, "obs/donor/codes", np.zeros(3, int)), "160 cells but 3 entries"),
        (lambda f: put(f, "obsm/X_pca", np.zeros((3, 2))), "one row for each of 160 cells"),
        (lambda f: put(f, "obsm/X_pca", h5py.SoftLink("/layers/counts")), "is a link"),
        (lambda f: put(f, "obsm/X_pca", h5py.ExternalLink("x.h5", "/a")), "is a link"),
        (lambda f: put(f, "obsm/X_pca", np.zeros(N_CELLS, "V8")), "neither numbers nor text"),
        (lambda f: put(f, "X/indices", np.full(10**4, 77)), "cannot read"),
        (lambda f: f["X/indptr"].__setitem__(-1, 0), "index pointers"),
        (lambda f: f["X/indptr"].__setitem__(-1, -5), "index pointers"),
        (lambda f: f["X/indptr"].__setitem__(3, 10**6), "index pointers"),
        (lambda f: f["X"].attrs.__setitem__("shape", [10**12, 10**12]), "cannot read"),
        (lambda f: f["X"].attrs.__setitem__("encoding-type", "raw"), "is 'raw' and no matrix"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    change: Callable[[Any], Any], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "c.h5ad"
    write_h5ad(path)
    edited(path, change)
    with pytest.raises(AnnDataFileError, match=says) as caught:
        for rep in ("X_pca", None):
            read_anndata(path, **READ, rep=rep)
    assert str(path) in str(caught.value)


def test_names_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "c.h5ad"
    write_h5ad(path)
    with pytest.raises(AnnDataFileError, match=r"no column 'who'.*'donor', 'disease'"):
        read_anndata(path, "who")
    with pytest.raises(AnnDataFileError, match=r"neither obsm nor layers has 'X_umap'.*'X_pca'"):
        read_anndata(path, "donor", rep="X_umap")
    with pytest.raises(AnnDataFileError, match=r"obsm has no 'place'"):
        read_anndata(path, "donor", coords="place")


def test_results_go_back_beside_their_cells(fitted: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "c.h5ad", tmp_path / "out.h5ad"
    write_h5ad(path)
    before = path.read_bytes()
    bags = read_anndata(path, **READ, rep="X_pca")
    some = bags[:3]
    write_anndata(path, some, fitted, output=out, more_of_bags={"site": ["a", "b", "c"]})
    assert path.read_bytes() == before
    obs = read_cells(out, rep="X_pca").obs
    found = fitted.predict_all(some)
    np.testing.assert_array_equal(obs["p"].to_numpy()[some.row_index], found.p[:, 1])
    assert obs["p"].notna().sum() == some.n_instances
    with h5py.File(out) as file:
        table = file["uns/bagwise"]
        np.testing.assert_array_equal(table["p"][()], found.bag_p[:, 1])
        assert table["bag"].asstr()[()].tolist() == some.ids.tolist()
        assert table["site"].asstr()[()].tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"has obs\['p'\] already"):
        write_anndata(out, some, fitted)
    write_anndata(out, bags, found := fitted.predict_all(bags), overwrite=True)
    again = read_cells(out, rep="X_pca").obs
    np.testing.assert_array_equal(again["p"].to_numpy()[bags.row_index], found.p[:, 1])


def test_results_of_other_cells_are_refused(fitted: Any, tmp_path: Path) -> None:
    adata = anndata_like(cells())
    bags = Bags.from_anndata(adata, **READ, rep="X_pca")
    write_anndata(adata, bags, fitted)
    assert adata.uns["bagwise"].index.tolist() == bags.ids.tolist()
    other = anndata_like(cells())
    other.obs_names = other.obs_names[::-1]
    with pytest.raises(ValueError, match="not made of these cells: its cell"):
        write_anndata(other, bags, fitted)
    with pytest.raises(ValueError, match="pass the bags that were predicted"):
        write_anndata(adata, bags[:2], fitted.predict_all(bags))
    with pytest.raises(TypeError, match="one model of two classes"):
        write_anndata(adata, bags, bw.OneVsRestMIL(fitted))


def test_from_h5ad_to_report_in_two_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_h5ad(Path("c.h5ad"))
    good(
        "fit", "c.h5ad", "--bag", "donor", "--label", "disease", "--positive", "sick",
        "--rep", "X_pca", "--set", "n_inducing=10", "--model", "vgpmil",
    )  # fmt: skip
    good("report", "c.bagwise", "c.h5ad")
    assert "d01" in Path("c.report.html").read_text(encoding="utf-8")
    good("predict", "c.bagwise", "c.h5ad", "-o", "out.h5ad")
    p = read_cells("out.h5ad", rep="X_pca").obs["p"].to_numpy()
    model = bw.load("c.bagwise")
    bags = read_anndata("c.h5ad", **READ, rep="X_pca")
    np.testing.assert_allclose(p[bags.row_index], model.predict_instance_proba(bags)[:, 1])
    assert model.metadata_["columns"]["rep"] == "X_pca"
    assert "--rep" in refused("predict", "c.bagwise", "c.h5ad", "--rep", "counts")
    assert "end the output in .h5ad" in refused("predict", "c.bagwise", "c.h5ad", "-o", "o.zarr")
    pd.DataFrame({"bag": ["a"], "label": [1], "f": [1.0]}).to_csv("t.csv", index=False)
    assert "--rep chooses" in refused("fit", "t.csv", "--rep", "X_pca")
    assert "holds no cells" in refused("predict", "c.bagwise", "t.csv", "-o", "o.h5ad")


# --- Zarr ----------------------------------------------------------------------------------------


def write_zarr(path: Path, version: int) -> dict[str, Any]:
    """The cells of an .h5ad file copied into a Zarr store."""
    zarr = pytest.importorskip("zarr", reason='needs zarr: pip install "bagwise[scverse]"')
    source = path.with_suffix(".copy.h5ad")
    found = write_h5ad(source)
    root = zarr.open_group(str(path), mode="w", zarr_format=version)

    def copy(name: str, entry: Any) -> None:
        if isinstance(entry, h5py.Group):
            there = root.create_group(name)
        elif h5py.check_string_dtype(entry.dtype) is not None:
            there = root.create_array(name, shape=entry.shape, dtype=str)
            there[...] = entry.asstr()[()]
        else:
            there = root.create_array(name, data=entry[()])
        for key, value in entry.attrs.items():
            there.attrs[key] = np.asarray(value).tolist()

    with h5py.File(source) as file:
        file.visititems(copy)
    source.unlink()
    return found


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.filterwarnings("ignore")
def test_zarr_stores_of_both_versions(version: int, fitted: Any, tmp_path: Path) -> None:
    found = write_zarr(tmp_path / "c.zarr", version)
    for rep in (None, "counts"):
        bags = read_anndata(tmp_path / "c.zarr", **READ, rep=rep)
        np.testing.assert_array_equal(bags.X[:], found["counts"][bags.row_index])
    bags = read_anndata(tmp_path / "c.zarr", **READ, rep="X_pca")
    write_anndata(tmp_path / "c.zarr", bags, fitted, output=tmp_path / "out.zarr")
    obs = read_cells(tmp_path / "out.zarr", rep="X_pca").obs
    expected = fitted.predict_instance_proba(bags)[:, 1]
    np.testing.assert_array_equal(obs["p"].to_numpy()[bags.row_index], expected)
    assert "p" not in read_cells(tmp_path / "c.zarr", rep="X_pca").obs


@pytest.mark.filterwarnings("ignore")
def test_tables_of_spatialdata(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    zarr.open_group(str(tmp_path / "s.zarr"), mode="w", zarr_format=2).create_group("tables")
    write_zarr(tmp_path / "s.zarr" / "tables" / "first", 2)
    bags = read_anndata(tmp_path / "s.zarr", **READ, rep="X_pca")
    assert len(bags) == 16
    shutil.copytree(tmp_path / "s.zarr/tables/first", tmp_path / "s.zarr/tables/second")
    with pytest.raises(AnnDataFileError, match=r"tables 'first', 'second'; name one"):
        read_anndata(tmp_path / "s.zarr", **READ)
    assert len(read_anndata(tmp_path / "s.zarr/tables/second", **READ, rep="X_pca")) == 16


@pytest.mark.filterwarnings("ignore")
def test_pickles_and_links_in_zarr_are_refused(tmp_path: Path) -> None:
    write_zarr(tmp_path / "c.zarr", 2)
    array = tmp_path / "c.zarr" / "obs" / "batch" / ".zarray"
    array.write_text(array.read_text().replace('"vlen-utf8"', '"pickle"'))
    with pytest.raises(AnnDataFileError, match="packed by 'pickle'"):
        read_anndata(tmp_path / "c.zarr", bag="batch", rep="X_pca")
    (tmp_path / "c.zarr" / "obsm" / "linked").symlink_to(tmp_path / "c.zarr" / "layers" / "counts")
    with pytest.raises(AnnDataFileError, match=r"leads out of the store|no 'linked'"):
        read_anndata(tmp_path / "c.zarr", bag="donor", rep="linked")
    array.write_text("no json")
    with pytest.raises(AnnDataFileError, match="cannot read"):
        read_anndata(tmp_path / "c.zarr", bag="batch", rep="X_pca")


# --- The package anndata itself ------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["h5ad", "zarr"])
def test_files_of_anndata_itself(kind: str, fitted: Any, tmp_path: Path) -> None:
    ad = pytest.importorskip("anndata", reason='needs anndata: pip install "bagwise[scverse]"')
    from scipy import sparse

    like = anndata_like(cells())
    adata = ad.AnnData(sparse.csr_matrix(like.X), obs=like.obs.copy(), obsm=like.obsm)
    adata.var_names = like.var_names
    path, out = tmp_path / f"c.{kind}", tmp_path / f"out.{kind}"
    (adata.write_h5ad if kind == "h5ad" else adata.write_zarr)(path)
    read = ad.read_h5ad if kind == "h5ad" else ad.read_zarr
    for rep in (None, "X_pca"):
        bags = read_anndata(path, **READ, rep=rep)
        same = Bags.from_anndata(read(path), **READ, rep=rep)
        np.testing.assert_array_equal(bags.X[:], same.X[:])
        np.testing.assert_array_equal(bags.y, same.y)
    write_anndata(path, bags, fitted, output=out)
    back = read(out)
    p = fitted.predict_instance_proba(bags)[:, 1]
    np.testing.assert_array_equal(back.obs["p"].to_numpy()[bags.row_index], p)
    assert back.uns["bagwise"].index.tolist() == bags.ids.tolist()


@pytest.mark.filterwarnings("ignore")
def test_objects_in_backed_mode_and_views(tmp_path: Path) -> None:
    ad = pytest.importorskip("anndata", reason='needs anndata: pip install "bagwise[scverse]"')
    from scipy import sparse

    found = cells()
    like = anndata_like(found)
    adata = ad.AnnData(sparse.csr_matrix(like.X), obs=like.obs.copy(), obsm=like.obsm)
    adata.write_h5ad(tmp_path / "c.h5ad")
    backed = ad.read_h5ad(tmp_path / "c.h5ad", backed="r")
    bags = Bags.from_anndata(backed, **READ)
    np.testing.assert_array_equal(bags.X[:], found["counts"][bags.row_index])
    part = Bags.from_anndata(backed[:40], **READ, rep="X_pca")
    np.testing.assert_array_equal(part.X, found["pca"][:40][part.row_index])
