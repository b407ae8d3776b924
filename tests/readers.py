"""Every reader of files with small good files of its kinds: what `make fuzz` damages."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bagwise as bw
from bagwise.datasets.readers import (
    csv_table,
    gzip_content,
    idx_array,
    npz_table,
    tar_member,
    zip_member,
)
from bagwise.detection import load_detector
from bagwise.detection.voc import Annotation, read_boxes_json, read_voc, write_boxes_json, write_voc
from bagwise.io import (
    Columns,
    Hdf5Rows,
    ParquetRows,
    UnreadableFileError,
    read_anndata,
    read_annotations,
    read_dicom_series,
    read_image,
    read_molecules,
    read_slide,
    read_slide_table,
    read_table,
    read_torchmil,
)
from bagwise.io.cell_tables import read_cell_table
from cell_files import write_h5ad
from data_files import TABLE, csv_bytes, idx, write_tgz
from fuzzing import Fuzzer, Rng, damaged, model_files, small_bags

WORDS = [
    *(b"nan", b"inf", b"-inf", b"1e999", b"-1", b"0", b"1" * 400, b"9" * 5000, b"1e-400", b"\x00"),
    *(b'"', b",", b"\n", b"\r", b"\t", b"\xff", b"\xef\xbb\xbf", b"<", b">", b"&amp;", b"[", b"{"),
    *(b"null", b"true", b"2147483648", b"18446744073709551616", b"\x1b[31m", b"=1+1", b"../x"),
    *(b"<!DOCTYPE x>", b"\xed\xa0\x80", b"utf-16", b"__class__", "é".encode() * 9),
]


@dataclass(frozen=True)
class Reader:
    """What makes something of a file, and good files of it by their names."""

    read: Callable[[Path], Any]
    seeds: dict[str, bytes]
    make: Callable[[int], tuple[str, bytes]] | None = None

    def one(self, number: int) -> tuple[str, bytes]:
        """The name of damaged file number `number`, and the file."""
        if self.make is not None:
            return self.make(number)
        rng = np.random.default_rng(number)
        name = sorted(self.seeds)[int(rng.integers(len(self.seeds)))]
        way = damaged if rng.random() < 0.7 else reworded
        return name, way(self.seeds[name], rng)


def reworded(data: bytes, rng: Rng) -> bytes:
    """Words that readers of text may stumble over, put in or over some bytes."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        word = WORDS[int(rng.integers(len(WORDS)))]
        at = int(rng.integers(len(out) + 1))
        out[at : at + int(rng.integers(0, 1 + len(word)))] = word
    return bytes(out)


def outcome(reader: Reader, path: Path) -> str:
    """What became of a file; any error but ours goes on its way."""
    try:
        reader.read(path)
    except UnreadableFileError as error:
        assert len(str(error)) < 2000, "a message to be read"
        return "refused"
    return "read"


# --- Models -------------------------------------------------------------------------------------


def _models(folder: Path) -> Reader:
    files = {k: v for k, v in model_files(folder).items() if k != "checkpoint"}
    fuzzer, bags = Fuzzer(files), small_bags(1)

    def read(path: Path) -> None:
        model = bw.load(path)
        try:
            p = model.predict_proba(bags)
        except (ValueError, FloatingPointError):
            return  # parts of which each is fine may predict nothing
        assert np.all((p >= 0) & (p <= 1))

    return Reader(read, {f"{k}.bagwise": v for k, v in files.items()}, _numbered(fuzzer))


def _checkpoints(folder: Path) -> Reader:
    """Damaged checkpoints, and fits that go on from them."""
    settings: dict[str, Any] = {"n_inducing": 4, "random_state": 0, "max_iter": 5}
    models: dict[str, Any] = {
        "logistic": bw.VGPMIL(**settings),
        "margin": bw.LargeMarginVGPMIL(learn_hyperparameters=False, **settings),
        "probit": bw.ProbitVGPMIL(**settings),
        "ising": bw.IsingVGPMIL(coupling=0.2, **settings),
    }
    bags, files = small_bags(), {}
    for name, model in models.items():
        path = folder / f"{name}.ckpt"
        model.fit(bags, checkpoint=path, checkpoint_minutes=0)
        files[name] = path.read_bytes()
        files[f"{name}, on its way"] = path.with_name(f"{path.name}.previous").read_bytes()

    def read(path: Path) -> None:
        name = path.stem.split(" ", 1)[1].partition(",")[0]
        try:
            models[name].fit(bags, resume=path)
        except ValueError as error:
            if "is of another fit" not in str(error):
                raise

    return Reader(read, {f"seed {k}.ckpt": v for k, v in files.items()}, _numbered(Fuzzer(files)))


def _numbered(fuzzer: Fuzzer) -> Callable[[int], tuple[str, bytes]]:
    def make(number: int) -> tuple[str, bytes]:
        kind, data = fuzzer.one(number)
        return f"{kind}.file", data

    return make


def _detector(folder: Path) -> Reader:
    canvases = bw.datasets.make_digit_canvases(8, (0,), random_state=0)
    detector = bw.detection.WeaklySupervisedDetector(
        bw.VGPMIL(n_inducing=4, max_iter=3, learn_hyperparameters=False),
        proposals=bw.detection.SlidingWindows((16, 24), top=4),
        n_components=3,
        class_names=[0],
        random_state=0,
    )
    detector.fit(canvases.images, canvases.y).save(folder / "d.bagwise")
    files = {"detector": (folder / "d.bagwise").read_bytes()}
    return Reader(load_detector, {"d.bagwise": files["detector"]}, _numbered(Fuzzer(files)))


# --- Networks -----------------------------------------------------------------------------------


def _networks(folder: Path) -> Reader:
    from bagwise.deep import AttentionMIL, load_network

    bags = small_bags(1)
    for name, changes in {"mlp": {}, "cnn": {"image_shape": (1, 2)}}.items():
        network = AttentionMIL(
            n_features=3, attention_size=2, max_epochs=1, random_state=0, **changes
        )
        network.fit(small_bags()).save(folder / f"{name}.safetensors")

    def read(path: Path) -> None:
        network = load_network(path)
        try:
            p = network.predict_proba(bags)
        except ValueError:
            return  # of other features
        assert np.all((p >= 0) & (p <= 1))

    return Reader(read, _contents(folder, "*.safetensors"))


def _torch_slides(folder: Path) -> dict[str, bytes]:
    import torch

    features, coords = torch.ones((3, 4)), torch.tensor([[0, 0], [8, 0], [0, 16]])
    torch.save(features, folder / "tensor.pt")
    torch.save({"features": features.half(), "coords": coords}, folder / "dict.pt")
    return _contents(folder, "*.pt")


# --- Tables -------------------------------------------------------------------------------------

SLIDES = b"case_id,slide_id,label\np,s,1\nq,t,0\n"
ROWS = "bag,label,x,y,area,shade\na,1,0,0,0.5,2\na,1,1,0,1e3,3\nb,0,0,0,-4,5.25\nc,1,2,2,0,1\n"


def _text_tables() -> dict[str, bytes]:
    tabs = ROWS.replace(",", "\t").encode()
    lists = b'bag,label,f\na,1,"[1.5, 2]"\nb,0,"[3, 4]"\n'
    zipped = gzip.compress(ROWS.encode(), mtime=0)
    return {"t.csv": ROWS.encode(), "t.tsv": tabs, "t.csv.gz": zipped, "lists.csv": lists}


def _arrow_tables(folder: Path, ending: str) -> dict[str, bytes]:
    import pandas as pd

    frame = pd.read_csv(io.StringIO(ROWS))
    frame["lists"] = [[1.0, 2.0]] * len(frame)
    for name, how in {"plain": "none", "packed": "zstd"}.items():
        path = folder / f"{name}.{ending}"
        if ending == "parquet":
            frame.to_parquet(path, compression=how)
        else:
            frame.to_feather(path, compression="uncompressed" if how == "none" else how)
    return _contents(folder, f"*.{ending}")


def _parquet_rows(path: Path) -> None:
    rows = ParquetRows(path, ["area", "shade"])
    rows.read(0, len(rows))


def _slide_list(path: Path) -> None:
    try:
        read_slide_table(path, path.parent)
    except FileNotFoundError as error:
        assert "slides have no file in" in str(error)


# --- Slides, scans, pictures --------------------------------------------------------------------


def _hdf5(folder: Path) -> dict[str, bytes]:
    import h5py

    for name, how in {"plain": {}, "packed": {"chunks": (2, 4), "compression": "gzip"}}.items():
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file.create_dataset("features", data=np.arange(12.0).reshape(3, 4), **how)
            coords = file.create_dataset("coords", data=[[0, 0], [512, 0], [0, 1024]])
            coords.attrs["patch_size_level0"] = 512
    return _contents(folder, "*.h5")


def _hdf5_rows(path: Path) -> None:
    rows = Hdf5Rows(path)
    rows.read(0, len(rows))


def _cells(folder: Path) -> dict[str, bytes]:
    write_h5ad(folder / "c.h5ad")
    return _contents(folder, "*.h5ad")


def _cell_bags(path: Path) -> None:
    read_anndata(path, "donor", "disease", coords="spatial", instance_label="marked")
    read_cell_table(path, Columns(bag="donor", label="disease", rep="X_pca"))


def _molecules(folder: Path) -> dict[str, bytes]:
    smiles = {"a": "CC(=O)Oc1ccccc1", "b": "CCCO"}
    (folder / "m.smi").write_text("".join(f"{s} {n}\n" for n, s in smiles.items()))
    lines = ["id,smiles,active", *(f"{n},{s},1" for n, s in smiles.items())]
    (folder / "m.csv").write_text("\n".join(lines) + "\n")
    found = {**_contents(folder, "*.smi"), **_contents(folder, "*.csv")}
    if importlib.util.find_spec("rdkit"):
        from rdkit import Chem

        with Chem.SDWriter(str(folder / "m.sdf")) as writer:
            for mol in read_molecules(list(smiles.values()), n_conformers=2).mols:
                writer.write(mol)
        found |= _contents(folder, "*.sdf")
    return found


def _npy(folder: Path) -> dict[str, bytes]:
    np.save(folder / "bag.npy", np.arange(12.0).reshape(4, 3))
    return _contents(folder, "*.npy")


def _torchmil(path: Path) -> None:
    place = path.parent / "set" / "features"
    place.mkdir(parents=True, exist_ok=True)
    path.replace(place / path.name)
    try:
        read_torchmil(place.parent)
    finally:
        (place / path.name).replace(path)
        place.rmdir()
        place.parent.rmdir()


def _dicom(path: Path) -> None:
    read_dicom_series(path.parent)


def _dicoms(folder: Path) -> dict[str, bytes]:
    import pydicom
    from pydicom.uid import DeflatedExplicitVRLittleEndian, RLELossless

    from ct_slices import write_slice

    write_slice(folder / "plain.dcm", np.arange(64, dtype=np.int16).reshape(8, 8), 1.0)
    packed = pydicom.dcmread(folder / "plain.dcm")
    packed.compress(RLELossless, generate_instance_uid=False)
    packed.save_as(folder / "rle.dcm")
    deflated = pydicom.dcmread(folder / "plain.dcm")
    deflated.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    deflated.save_as(folder / "deflated.dcm")
    return _contents(folder, "*.dcm")


def _pictures() -> dict[str, bytes]:
    from PIL import Image

    found, pixels = {}, np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    for kind in ("png", "jpeg", "bmp", "tiff", "webp"):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, kind)
        found[f"p.{kind}"] = buffer.getvalue()
    buffer = io.BytesIO()
    Image.fromarray(pixels[:, :, 0].astype(np.uint16)).save(buffer, "tiff", compression="tiff_lzw")
    return found | {"grey.tiff": buffer.getvalue()}


def _voc(folder: Path) -> dict[str, bytes]:
    boxes = (bw.detection.Box("cat", (10, 10, 50, 60)), bw.detection.Box("dog & co", (0, 0, 3, 4)))
    write_voc(folder / "a.xml", Annotation("a.jpg", 640, 480, boxes))
    return _contents(folder, "*.xml")


def _boxes(folder: Path) -> dict[str, bytes]:
    found = [bw.detection.Detection("cat", (1, 2, 3, 4), 0.5, 0.1)]
    write_boxes_json(folder / "b.json", {"a": [bw.detection.Box(1, (0, 0, 1, 1))], "b": found})
    return _contents(folder, "*.json")


def _outlines() -> dict[str, bytes]:
    square = [[0, 0], [20, 0], [20, 20], [0, 20], [0, 0]]
    hole = [[2, 2], [9, 2], [9, 9], [2, 9], [2, 2]]
    shapes: dict[str, Any] = {
        "Polygon": [square, hole],
        "MultiPolygon": [[square], [hole]],
        "Point": [5, 5.5],
    }
    found = [
        {
            "type": "Feature",
            "geometry": {"type": kind, "coordinates": coordinates},
            "properties": {"objectType": "annotation", "classification": {"name": "Tumor"}},
        }
        for kind, coordinates in shapes.items()
    ]
    collection = {"type": "FeatureCollection", "features": found}
    return {"a.geojson": json.dumps(collection).encode(), "b.geojson": json.dumps(found).encode()}


def _annotations(path: Path) -> None:
    found = read_annotations(path, [[0, 0], [10, 0]], classes={"Tumor": 1, None: 0}, tile_size=10)
    assert np.all(np.isnan(found) | (found == 0) | (found == 1))


# --- Files of data sets -------------------------------------------------------------------------


def _data_set(path: Path) -> None:
    readers: dict[str, Callable[[Path], Any]] = {
        ".npz": npz_table,
        ".csv": lambda p: csv_table(p.read_bytes()),
        ".idx": lambda p: idx_array(p.read_bytes()),
        ".tgz": lambda p: tar_member(p, "a"),
        ".zip": lambda p: zip_member(p, "a"),
        ".gz": gzip_content,
    }
    readers[path.suffix](path)


def _data_sets(folder: Path) -> dict[str, bytes]:
    parts = {"X": TABLE.X, "bag": TABLE.bag, "y_bag": TABLE.y}
    np.savez(folder / "a.npz", **parts)
    np.savez_compressed(folder / "packed.npz", **parts)
    write_tgz(folder / "a.tgz", {"a": b"content"})
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"content")
    (folder / "a.csv").write_bytes(csv_bytes())
    (folder / "a.idx").write_bytes(idx(np.zeros((2, 3, 3), np.uint8)))
    (folder / "a.gz").write_bytes(gzip.compress(b"content", mtime=0))
    endings = ("npz", "tgz", "zip", "csv", "idx", "gz")
    return {k: v for end in endings for k, v in _contents(folder, f"*.{end}").items()}


def _contents(folder: Path, pattern: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(pattern))}


MAKERS: dict[str, Callable[[Path], Reader]] = {
    "models": _models,
    "checkpoints": _checkpoints,
    "text tables": lambda folder: Reader(read_table, _text_tables()),
    "parquet": lambda folder: Reader(read_table, _arrow_tables(folder, "parquet")),
    "feather": lambda folder: Reader(read_table, _arrow_tables(folder, "feather")),
    "parquet rows": lambda folder: Reader(_parquet_rows, _arrow_tables(folder, "parquet")),
    "hdf5 slides": lambda folder: Reader(read_slide, _hdf5(folder)),
    "hdf5 rows": lambda folder: Reader(_hdf5_rows, _hdf5(folder)),
    "cells": lambda folder: Reader(_cell_bags, _cells(folder)),
    "torchmil": lambda folder: Reader(_torchmil, _npy(folder)),
    "molecules": lambda folder: Reader(
        lambda path: read_molecules(path, n_conformers=1), _molecules(folder)
    ),
    "slide lists": lambda folder: Reader(_slide_list, {"s.csv": SLIDES}),
    "dicom": lambda folder: Reader(_dicom, _dicoms(folder)),
    "pictures": lambda folder: Reader(read_image, _pictures()),
    "voc": lambda folder: Reader(read_voc, _voc(folder)),
    "boxes": lambda folder: Reader(read_boxes_json, _boxes(folder)),
    "annotations": lambda folder: Reader(_annotations, _outlines()),
    "data sets": lambda folder: Reader(_data_set, _data_sets(folder)),
    "detectors": _detector,
    "torch slides": lambda folder: Reader(read_slide, _torch_slides(folder)),
    "networks": _networks,
}
NEED_TORCH = ("torch slides", "networks")
NEED_RDKIT = ("molecules",)


def make_reader(name: str, folder: Path) -> Reader:
    """The reader of that name, whose good files are made in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MAKERS[name](folder)


def reader_names() -> list[str]:
    """All readers that this installation has the packages for."""
    torch = all(importlib.util.find_spec(p) for p in ("torch", "safetensors"))
    rdkit = importlib.util.find_spec("rdkit") is not None
    missing = (*(() if torch else NEED_TORCH), *(() if rdkit else NEED_RDKIT))
    return [name for name in MAKERS if name not in missing]
