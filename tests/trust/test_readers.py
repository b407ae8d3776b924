"""Every reader refuses what it cannot read, with an error of ours; `make fuzz` tries many more."""

from __future__ import annotations

import gzip
import os
import signal
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.files import reading
from bagwise.datasets.readers import npz_table
from bagwise.io import (
    DicomError,
    ImageFileError,
    ParquetRows,
    TableError,
    UnreadableFileError,
    dicom,
    read_dicom_series,
    read_image,
    read_table,
)
from ct_slices import write_slice
from fuzzing import small_bags
from readers import MAKERS, NEED_TORCH, Reader, make_reader, outcome, reader_names

FIRST, INPUTS = 5_000_000, 40
# Found by `make fuzz` once, in the order of the readers: crashes, and errors of other libraries.
FOUND: dict[str, list[int]] = {
    "feather": [85],
    "hdf5 rows": [0, 525],
    "pictures": [211, 576],
    "voc": [305, 781],
    "dicom": [22800],
    "checkpoints": [20230, 20609],
}


@pytest.fixture(scope="module", params=list(MAKERS))
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    if request.param not in reader_names():
        needed = "PyTorch and safetensors: make test-torch"
        pytest.skip(f"needs {needed if request.param in NEED_TORCH else 'RDKit'}")
    return make_reader(request.param, tmp_path_factory.mktemp("seeds"))


@pytest.fixture
def deadline() -> Iterator[None]:
    """Whoever waits for a pipe is woken up, with an error."""

    def ring(*_: Any) -> None:
        raise TimeoutError("it waits for a pipe")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_good_files_are_read(reader: Reader, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in reader.seeds.items():
            path = tmp_path / name
            path.write_bytes(data)
            assert outcome(reader, path) == "read", name
            path.unlink()


@pytest.mark.filterwarnings("ignore")
def test_damaged_files_are_refused_or_harmless(
    reader: Reader, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = []
    name = request.node.callspec.params["reader"]
    for number in [*FOUND.get(name, []), *range(FIRST, FIRST + INPUTS)]:
        file, data = reader.one(number)
        path = tmp_path / file
        path.write_bytes(data)
        found.append(outcome(reader, path))  # any other error fails
        path.unlink()
    assert "refused" in found


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
@pytest.mark.filterwarnings("ignore")
def test_pipes_are_not_waited_for(reader: Reader, tmp_path: Path, deadline: None) -> None:
    for name in reader.seeds:
        path = tmp_path / name
        os.mkfifo(path)
        if name.endswith((".csv", ".tsv", ".csv.gz", ".npz", ".tgz", ".zip", ".gz", ".idx")):
            continue  # text may come from pipes; data sets are looked for among regular files
        with pytest.raises(UnreadableFileError, match=r"regular file|no DICOM file"):
            reader.read(path)
        path.unlink()


def test_errors_of_the_system_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), reading.one_error("x", TableError, "damaged"):
        open(tmp_path / "x").close()
    with pytest.raises(FileNotFoundError, match="no file"):
        read_image(tmp_path / "x.png")


# --- More than the file holds -------------------------------------------------------------------


def test_parquet_that_claims_more_than_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    path = tmp_path / "bomb.parquet"
    pd.DataFrame({"bag": np.zeros(10**5, np.int8), "f": np.zeros(10**5)}).to_parquet(path)
    monkeypatch.setattr(reading, "LARGE", 2**20)
    for read in (read_table, lambda p: ParquetRows(p, ["f"])):
        with pytest.raises(TableError, match="claims 100000 rows"):
            read(path)


def test_gzip_that_unpacks_to_more_than_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"bag,label,f\n" + b"a,1,0\n" * 10**6))
    monkeypatch.setattr(reading, "LARGE", 2**20)
    with pytest.raises(TableError, match="unpacks to more than"):
        read_table(path)


def test_npz_that_unpacks_to_more_than_a_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "b.npz", X=np.zeros((10**6, 1)), bag=[0], y_bag=[0])
    monkeypatch.setattr("bagwise.datasets.readers.MAX_MEMBER", 2**20)
    with pytest.raises(UnreadableFileError, match="at most 1048576 bytes"):
        npz_table(tmp_path / "b.npz")


def test_deflated_slices_that_unpack_to_more_than_a_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pydicom = pytest.importorskip("pydicom")
    path = tmp_path / "s.dcm"
    write_slice(path, np.zeros((8, 8), np.int16), 0.0)
    slice_ = pydicom.dcmread(path)
    slice_.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    slice_.save_as(path)
    assert read_dicom_series(tmp_path).hounsfield.shape == (1, 8, 8)
    start = len(path.read_bytes()) - len(_deflated_part(path))
    bomb = zlib.compressobj(wbits=-15)
    packed = bomb.compress(bytes(2**22)) + bomb.flush()
    path.write_bytes(path.read_bytes()[:start] + packed)
    monkeypatch.setattr(dicom, "LARGE", 2**20)
    with pytest.raises(DicomError, match="unpacks to more than 1048576 bytes"):
        read_dicom_series(tmp_path)


def _deflated_part(path: Path) -> bytes:
    import pydicom

    meta = pydicom.filereader.read_file_meta_info(path)
    return path.read_bytes()[128 + 4 + 12 + meta.FileMetaInformationGroupLength :]


@pytest.mark.parametrize("change", [{"Rows": 65535, "Columns": 65535}, {"NumberOfFrames": 10**9}])
def test_slices_that_claim_more_pixels_than_a_slice(change: dict, tmp_path: Path) -> None:
    pytest.importorskip("pydicom")
    write_slice(tmp_path / "s.dcm", np.zeros((8, 8), np.int16), 0.0, **change)
    with pytest.raises(DicomError, match="claims pixels"):
        read_dicom_series(tmp_path)


def test_postscript_in_a_picture_starts_no_program(tmp_path: Path) -> None:
    text = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    (tmp_path / "p.png").write_text(text)
    with pytest.raises(ImageFileError, match="no picture"):
        read_image(tmp_path / "p.png")


# --- Checkpoints that were altered --------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_errors_of_callbacks_are_not_blamed_on_the_checkpoint(tmp_path: Path) -> None:
    how: dict[str, Any] = {"n_inducing": 4, "random_state": 0}
    path, bags = tmp_path / "fit.ckpt", small_bags()
    bw.VGPMIL(max_iter=2, **how).fit(bags, checkpoint=path, checkpoint_minutes=0)

    def stop(stage: str, step: int, objective: float, seconds: float) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        bw.VGPMIL(max_iter=9, **how).fit(bags, resume=path, callbacks=[stop])
