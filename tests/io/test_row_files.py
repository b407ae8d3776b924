"""HDF5 and Parquet features fit and predict like arrays, without being loaded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.io.row_files import FileRows, Hdf5Rows, ParquetRows

h5py = pytest.importorskip("h5py")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")

B, SIZE, D = 24, 5, 3
N = B * SIZE
IDS = np.repeat(np.arange(B), SIZE)
Y = np.arange(B) % 2
NAMES = [f"x{j}" for j in range(D)]


def features() -> np.ndarray:
    X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
    X[np.arange(1, B, 2) * SIZE, 0] += 3
    return X


def one_hdf5(folder: Path) -> FileRows:
    with h5py.File(folder / "all.h5", "w") as file:
        file["features"] = features()
    return Hdf5Rows(folder / "all.h5")


def hdf5_per_bag(folder: Path) -> FileRows:
    paths = [folder / f"{b:02d}.h5" for b in range(B)]
    for b, path in enumerate(paths):
        with h5py.File(path, "w") as file:
            file["features"] = features()[b == IDS]
    return Hdf5Rows(paths)


def parquet(folder: Path) -> FileRows:
    frame = pd.DataFrame(features(), columns=NAMES)
    frame[:70].to_parquet(folder / "a.parquet", row_group_size=16)
    frame[70:].to_parquet(folder / "b.parquet", row_group_size=16)
    return ParquetRows([folder / "a.parquet", folder / "b.parquet"], NAMES)


SOURCES = {"one HDF5": one_hdf5, "HDF5 per bag": hdf5_per_bag, "Parquet": parquet}
each_source = pytest.mark.parametrize("kind", SOURCES)


@each_source
def test_rows_are_those_of_the_file(kind: str, tmp_path: Path) -> None:
    rows, X = SOURCES[kind](tmp_path), features()
    assert rows.shape == X.shape and rows.dtype == X.dtype and rows.sizes.sum() == N
    for key in (slice(0, 1), slice(13, 77), slice(60, 120), slice(5, 5), np.array([119, 3, 70])):
        np.testing.assert_array_equal(rows[key], X[key])
    np.testing.assert_array_equal(np.asarray(rows), X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_source
@pytest.mark.parametrize("model", [bw.ProbitVGPMIL, bw.VGPMIL, bw.MIRVM])
def test_files_fit_and_predict_like_arrays(kind: str, model: Any, tmp_path: Path) -> None:
    bags = bw.Bags.from_arrays(SOURCES[kind](tmp_path), IDS, y=Y)
    assert isinstance(bags.X, FileRows) and "24 bags" in repr(bags)
    plain = bw.Bags.from_arrays(features(), IDS, y=Y)
    settings = {"random_state": 0, "max_iter": 20}
    found, expected = (model(**settings).fit(b) for b in (bags, plain))
    for method in ("predict_proba", "predict_instance_proba"):
        p, q = getattr(found, method)(bags), getattr(expected, method)(plain)
        np.testing.assert_allclose(p, q, atol=1e-6)


def test_some_bags_are_read(tmp_path: Path) -> None:
    bags = bw.Bags.from_arrays(one_hdf5(tmp_path), IDS, y=Y)
    np.testing.assert_array_equal(bags[3:5].X, features()[15:25])
    np.testing.assert_array_equal(bags[[7, 2]].X, features()[[*range(35, 40), *range(10, 15)]])


def test_rows_must_be_in_the_order_of_bags(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rows of a file must be sorted by bag"):
        bw.Bags.from_arrays(one_hdf5(tmp_path), IDS[::-1].copy(), y=Y)


def test_missing_values_are_found(tmp_path: Path) -> None:
    X = features()
    X[17, 1] = np.nan
    with h5py.File(tmp_path / "nan.h5", "w") as file:
        file["features"] = X
    bags = bw.Bags.from_arrays(Hdf5Rows(tmp_path / "nan.h5"), IDS, y=Y)
    with pytest.raises(ValueError, match=r"contains NaN: bag 3, row 2"):
        bw.ProbitVGPMIL().fit(bags)


def test_wrong_files_are_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"] = np.zeros((2, 3))
        file["whole"] = np.zeros((2, 3), dtype=int)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["features"] = np.zeros((2, 4))
    with pytest.raises(ValueError, match="no dataset 'coords'; there is features, whole"):
        Hdf5Rows(tmp_path / "a.h5", "coords")
    with pytest.raises(ValueError, match=r"same D in all files: .*a.h5 has \(2, 3\), .*b.h5"):
        Hdf5Rows([tmp_path / "a.h5", tmp_path / "b.h5"])
    with pytest.raises(ValueError, match=r"float32 or float64, .*a.h5 has int64"):
        Hdf5Rows(tmp_path / "a.h5", "whole")
    with pytest.raises(ValueError, match="no files given"):
        Hdf5Rows([])
    pd.DataFrame({"u": [1.0]}).to_parquet(tmp_path / "c.parquet")
    with pytest.raises(ValueError, match="has no column 'v'"):
        ParquetRows(tmp_path / "c.parquet", ["u", "v"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("rows_at_once", [1, 17, 1000])
def test_predictions_are_written_in_chunks(rows_at_once: int, tmp_path: Path) -> None:
    bags = bw.Bags.from_arrays(one_hdf5(tmp_path), IDS, y=Y)
    model = bw.ProbitVGPMIL(n_inducing=10, random_state=0, max_iter=5).fit(bags)
    of_bags, of_rows = tmp_path / "bags.parquet", tmp_path / "rows.parquet"
    bw.io.write_predictions(model, bags, of_bags, rows_at_once=rows_at_once)
    bw.io.write_predictions(model, bags, of_rows, instances=True, rows_at_once=rows_at_once)
    found, p, std = pd.read_parquet(of_bags), *model.predict_proba(bags, return_std=True)
    assert found["bag_id"].tolist() == list(range(B))
    np.testing.assert_allclose(found[["p_0", "p_1"]], p, atol=1e-12)
    np.testing.assert_allclose(found["std"], std, atol=1e-9)
    found = pd.read_parquet(of_rows)
    assert found["row"].tolist() == list(range(N)) and found["bag_id"].tolist() == IDS.tolist()
    np.testing.assert_allclose(found["p_1"], model.predict_instance_proba(bags)[:, 1], atol=1e-12)
    with pytest.raises(FileExistsError):
        bw.io.write_predictions(model, bags, of_bags)
