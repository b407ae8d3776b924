"""Slide features: CLAM and TRIDENT files, grids and neighbour graphs, tables, hostile files."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.bags.graphs import neighbor_graph
from bagwise.io import (
    SlideFeatures,
    SlideFileError,
    grid_stride,
    read_slide_h5,
    read_slide_pt,
    read_slide_table,
    slides_to_bags,
)
from bagwise.io.slide_tables import list_folder

h5py = pytest.importorskip("h5py", reason='reading HDF5 needs the extra: pip install ".[io]"')

# Cells of a slide as (column, row): an L of four patches and one by itself.
CELLS = np.array([[0, 0], [1, 0], [2, 0], [2, 1], [5, 3]])
LINKS = {(0, 1), (1, 2), (2, 3)}


def write_h5(path: Path, coords: Any, attributes: dict[str, Any], width: int = 4) -> np.ndarray:
    X = np.random.default_rng(len(path.name)).normal(size=(len(coords), width)).astype(np.float32)
    with h5py.File(path, "w") as file:
        file["features"] = X
        file["coords"] = np.asarray(coords)
        file["coords"].attrs.update(attributes)
    return X


def links(graph: Any) -> set[tuple[int, int]]:
    i, j = graph.nonzero()
    return {(int(a), int(b)) for a, b in zip(i, j, strict=True) if a < b}


@pytest.mark.parametrize(
    "attributes",
    [
        {"patch_size": 256, "patch_size_level0": 512, "target_magnification": 20},  # TRIDENT
        {"patch_size": 256, "patch_level": 1, "downsample": np.array([2.0, 2.0])},  # CLAM
    ],
    ids=["TRIDENT", "CLAM"],
)
def test_level0_patch_size_gives_the_right_graph(attributes: dict, tmp_path: Path) -> None:
    X = write_h5(tmp_path / "s.h5", CELLS * 512 + [1000, 77], attributes)
    slide = read_slide_h5(tmp_path / "s.h5")
    np.testing.assert_array_equal(slide.features, X)
    assert slide.patch_size_level0 == 512 and slide.stride == (512, 512)
    assert slide.attributes["patch_size"] == 256
    np.testing.assert_array_equal(slide.grid_coords(), CELLS)
    bags = slides_to_bags([slide])
    for rule in ("auto", ("radius", 1)):
        assert links(neighbor_graph(bags.coords, bags.offsets, rule)) == LINKS


def test_sparse_tissue_keeps_the_size_of_a_patch(tmp_path: Path) -> None:
    # All gaps are two patches wide: nobody has a neighbour, whatever the gaps look like.
    sparse = np.array([[0, 0], [2, 0], [4, 2], [0, 2]])
    write_h5(tmp_path / "s.h5", sparse * 512, {"patch_size": 256, "patch_size_level0": 512})
    bags = slides_to_bags([read_slide_h5(tmp_path / "s.h5")])
    assert links(neighbor_graph(bags.coords, bags.offsets, ("radius", 1))) == set()


def test_slides_of_different_resolution_have_the_same_graph() -> None:
    fine = SlideFeatures(np.ones((5, 2)), CELLS * 512, 512)
    coarse = SlideFeatures(np.ones((5, 2)), CELLS * 256, 256)
    bags = slides_to_bags([fine, coarse])
    expected = LINKS | {(i + 5, j + 5) for i, j in LINKS}
    assert links(neighbor_graph(bags.coords, bags.offsets)) == expected
    raw = slides_to_bags([fine, coarse], coords="level0")
    np.testing.assert_array_equal(raw.coords[:5], CELLS * 512)


def test_overlapping_patches_have_the_stride_of_their_gaps() -> None:
    assert grid_stride(CELLS * 192 + 13, patch_size_level0=256) == (192, 192)
    assert grid_stride([[0, 0], [224, 0], [672, 0]]) == (224, 224)
    assert grid_stride([[3, 4]], patch_size_level0=100) == (100, 100)
    with pytest.raises(ValueError, match="there is no stride"):
        grid_stride([[3, 4]])


def test_a_stray_patch_does_not_spoil_the_grid() -> None:
    cells = np.array([[i, j] for i in range(8) for j in range(8)])
    coords = np.vstack([cells * 300 + 50, [[477, 1011]]])
    slide = SlideFeatures(np.ones((65, 1)), coords)
    assert slide.stride == (300, 300)
    np.testing.assert_array_equal(slide.grid_coords()[:64], cells)


@pytest.mark.filterwarnings("ignore:f is constant")  # all slides are alike
def test_ising_model_learns_from_a_slide_file(tmp_path: Path) -> None:
    slides = []
    for i in range(8):
        write_h5(tmp_path / f"{i}.h5", CELLS * 512, {"patch_size_level0": 512})
        slides.append(read_slide_h5(tmp_path / f"{i}.h5"))
    bags = slides_to_bags(slides, y=[0, 1] * 4)
    model = bw.IsingVGPMIL(random_state=0, n_inducing=5, learn_hyperparameters=False)
    assert model.fit(bags).predict_proba(bags).shape == (8, 2)


# --- tables --------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "h5_files").mkdir()
    rows = ["case_id,slide_id,label"]
    for case, slide, label in [("p1", "a", 1), ("p1", "b", 0), ("p2", "c", 0), ("p3", "d", 1)]:
        rows.append(f"{case},{slide},{label}")
        write_h5(tmp_path / "h5_files" / f"{slide}.h5", CELLS * 512, {"patch_size_level0": 512})
    path = tmp_path / "slides.csv"
    path.write_text("\n".join(rows))
    return path


def test_slide_table(table: Path) -> None:
    bags = read_slide_table(table, table.parent)
    assert bags.ids.tolist() == ["a", "b", "c", "d"] and bags.y.tolist() == [1, 0, 0, 1]
    assert bags.groups.tolist() == ["p1", "p1", "p2", "p3"]
    for seed in range(5):
        train, test = bags.split(0.4, random_state=seed, stratify=False)
        assert not set(train.groups) & set(test.groups)


def test_slide_table_with_text_and_other_columns(table: Path) -> None:
    table.write_text("patient,slide,subtype\nx,a,LUAD\ny,b,LUSC\n")
    bags = read_slide_table(
        table, table.parent, case="patient", slide="slide", label="subtype", coords="level0"
    )
    assert bags.y.tolist() == ["LUAD", "LUSC"]
    with pytest.raises(ValueError, match="no column 'slide_id'; it has"):
        read_slide_table(table, table.parent)


def test_slide_table_without_patients(table: Path) -> None:
    assert read_slide_table(table, table.parent, case=None).groups is None
    table.write_text("slide_id,label\na.svs,0\nb,1\n")
    for more in ({}, {"case": None}):
        bags = read_slide_table(table, table.parent, **more)
        assert bags.groups is None and bags.ids.tolist() == ["a.svs", "b"]
    with pytest.raises(ValueError, match="no column 'case_id'; it has"):
        read_slide_table(table, table.parent, case="case_id")


def test_all_slides_of_a_folder(table: Path) -> None:
    listed = list_folder(table.parent)
    assert listed.ids.tolist() == ["a", "b", "c", "d"] and listed.y is None
    assert [path.name for path in listed.paths] == ["a.h5", "b.h5", "c.h5", "d.h5"]
    (table.parent / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"has no \.h5, \.hdf5, \.zarr, \.pt files"):
        list_folder(table.parent / "empty")
    with pytest.raises(NotADirectoryError, match="is no folder"):
        list_folder(table)


def test_slide_tables_in_another_encoding(table: Path) -> None:
    table.write_bytes(b"slide_id,label\n\xff,1\n")
    with pytest.raises(SlideFileError, match="is no CSV in UTF-8"):
        read_slide_table(table, table.parent, case=None)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("p4,../a,1", "is a path, not a name"),
        ("p4,a,1", "lists slide 'a' more than once"),
        ("p4,,1", "line 6: column 'slide_id' is empty"),
        ("p4,x,1,9", "line 6: more fields than column names"),
    ],
)
def test_slide_tables_that_are_wrong(table: Path, row: str, message: str) -> None:
    table.write_text(table.read_text() + f"\n{row}")
    with pytest.raises(ValueError, match=message):
        read_slide_table(table, table.parent)


@pytest.mark.parametrize("name", ["gone", "g" * 5000])  # which the system takes for no name at all
def test_missing_slides(table: Path, name: str) -> None:
    table.write_text(table.read_text() + f"\np4,{name},1")
    with pytest.raises(FileNotFoundError, match=r"1 of 5 slides have no file .*'g.*drop"):
        read_slide_table(table, table.parent)
    with pytest.warns(UserWarning, match="left out"):
        assert len(read_slide_table(table, table.parent, missing="drop")) == 4


# --- hostile and damaged files -------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_truncated_hdf5(share: float, tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    write_h5(path, np.arange(2000).reshape(-1, 2) * 512, {"patch_size_level0": 512}, width=50)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(SlideFileError, match="damaged or cut off"):
        read_slide_h5(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"coords": np.zeros((3, 2))}, "no dataset 'features' or 'feats'; there is coords"),
        ({"features": np.zeros((3, 2)), "coords": np.zeros((4, 2))}, r"shape \(3, 2\)"),
        ({"features": np.zeros((0, 2))}, "at least one patch"),
        ({"features": np.zeros(3)}, r"\(n, D\)"),
    ],
)
def test_incomplete_hdf5(content: dict, message: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        for name, values in content.items():
            file[name] = values
    with pytest.raises(SlideFileError, match=message):
        read_slide_h5(tmp_path / "s.h5")


def test_hdf5_that_claims_more_than_it_holds(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("features", (10**7, 10**4), "f4", chunks=(1000, 1000))
    with pytest.raises(SlideFileError, match=r"claims shape .* but 0 bytes are stored"):
        read_slide_h5(tmp_path / "s.h5")
    packed = np.zeros((5000, 100), dtype=np.float32)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("features", data=packed, compression="gzip", compression_opts=9)
    np.testing.assert_array_equal(read_slide_h5(tmp_path / "s.h5").features, packed)


def test_batched_features_of_one_slide(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["features"] = np.ones((1, 5, 3))
        file["coords"] = CELLS[None] * 512
    assert read_slide_h5(tmp_path / "s.h5").features.shape == (5, 3)


class Bomb:
    """Pickles to code that writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (Path.write_text, (self.path, "boom"))


def test_pt_features(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason='.pt files need: pip install ".[torch]"')
    torch.save(torch.ones(5, 3, dtype=torch.bfloat16), tmp_path / "a.pt")
    assert read_slide_pt(tmp_path / "a.pt").features.tolist() == np.ones((5, 3)).tolist()
    content = {"features": torch.ones(5, 3), "coords": torch.tensor(CELLS * 512)}
    torch.save(content | {"patch_size_level0": 512}, tmp_path / "b.pt")
    slide = read_slide_pt(tmp_path / "b.pt")
    np.testing.assert_array_equal(slide.grid_coords(), CELLS)
    for wrong, message in [({"x": 1}, "no 'features'"), ([1, 2], "must be a tensor; got list")]:
        torch.save(wrong, tmp_path / "c.pt")
        with pytest.raises(SlideFileError, match=message):
            read_slide_pt(tmp_path / "c.pt")


def test_pt_with_code_inside_runs_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason='.pt files need: pip install ".[torch]"')
    trace = tmp_path / "trace"
    torch.save({"features": Bomb(trace)}, tmp_path / "zip.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Bomb(trace), protocol=2))
    for name in ("zip.pt", "plain.pt"):
        with pytest.raises(SlideFileError, match=r"nothing of it was run|damaged"):
            read_slide_pt(tmp_path / name)
    assert not trace.exists(), "code from the file was run"
    torch.load(tmp_path / "zip.pt", weights_only=False)
    assert trace.exists(), "the bomb of this test is a dud"


def test_damaged_pt(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason='.pt files need: pip install ".[torch]"')
    buffer = io.BytesIO()
    torch.save(torch.ones(50, 50), buffer)
    for name, data in [("cut", buffer.getvalue()[:900]), ("text", b"hello"), ("none", b"")]:
        (tmp_path / f"{name}.pt").write_bytes(data)
        with pytest.raises(SlideFileError):
            read_slide_pt(tmp_path / f"{name}.pt")
    with zipfile.ZipFile(tmp_path / "zip.pt", "w") as archive:
        archive.writestr("hello", "world")
    with pytest.raises(SlideFileError, match="damaged or cut off"):
        read_slide_pt(tmp_path / "zip.pt")


def elsewhere(path: Path, how: str, other: Path) -> None:
    """An HDF5 file whose features are in another one, in one of the ways that there are."""
    with h5py.File(path, "w") as file:
        file["coords"] = np.zeros((4, 2))
        if how == "link":
            file["features"] = h5py.ExternalLink(other, "/features")
        elif how == "group":
            file["a"] = h5py.ExternalLink(other, "/")
            file["features"] = h5py.SoftLink("/a/features")
        elif how == "storage":
            raw = [(str(other), 0, h5py.h5f.UNLIMITED)]
            file.create_dataset("features", (4, 4), dtype="u1", external=raw)
        else:
            layout = h5py.VirtualLayout((4, 4), dtype="f4")
            layout[:] = h5py.VirtualSource(other, "features", shape=(4, 4))
            file.create_virtual_dataset("features", layout)


@pytest.mark.parametrize("how", ["link", "group", "storage", "virtual"])
def test_features_of_other_files_are_not_read(tmp_path: Path, how: str) -> None:
    other, path = tmp_path / "other.h5", tmp_path / "slide.h5"
    write_h5(other, CELLS[:4], {})
    elsewhere(path, how, other)
    for read in (read_slide_h5, bw.io.Hdf5Rows):
        with pytest.raises(SlideFileError, match="only what is in the file itself is read"):
            read(path)


def test_large_claims_of_few_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        zeros = np.zeros((2**12, 256), dtype="f4")
        file.create_dataset("features", data=zeros, chunks=zeros.shape, compression="gzip")
    assert read_slide_h5(tmp_path / "bomb.h5").features.shape == (2**12, 256)
    monkeypatch.setattr("bagwise.io.hdf5.LARGE", 2**20)
    with pytest.raises(SlideFileError, match="claims shape"):
        read_slide_h5(tmp_path / "bomb.h5")


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.ones(1, 1).expand(10**5, 10**5),
        lambda t: t.ones(3, 4).to_sparse(),
        lambda t: t.ones(3, 4, device="meta"),
        lambda t: t.quantize_per_tensor(t.ones(3, 4), 0.1, 0, t.qint8),
        lambda t: {"features": t.ones(3, 4), "coords": t.ones(3, 2, device="meta")},
        lambda t: {"features": t.ones(3, 4), "coords": t.ones(3, 2) * np.nan},
        lambda t: {"features": t.ones(3, 4), "patch_size_level0": "x"},
        lambda t: {"features": t.ones(3, 4), "patch_size_level0": 10**400},
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_no_plain_numbers_are_refused(make: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")
    torch.save(make(torch), tmp_path / "s.pt")
    with pytest.raises(SlideFileError, match=r"s\.pt"):
        read_slide_pt(tmp_path / "s.pt")


def with_pickle(path: Path, pickled: bytes) -> None:
    """A .pt file with these bytes for its pickle."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")
    buffer = io.BytesIO()
    torch.save(torch.ones(4, 3), buffer)
    with zipfile.ZipFile(buffer) as good, zipfile.ZipFile(path, "w") as archive:
        for name in good.namelist():
            archive.writestr(name, pickled if name.endswith("data.pkl") else good.read(name))


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",  # two gigabytes
        b"\x80\x02ctorch\nTensor\nM\x00\x04M\x00\x04\x86R.",  # what was in memory before
        b"\x80\x02ctorch.storage\nUntypedStorage\nM\x00\x04\x85R.",
        b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.",  # a key that no stack is enough for
    ],
    ids=["buffer", "tensor", "storage", "tuples"],
)
def test_pt_files_make_nothing_that_is_not_in_them(pickled: bytes, tmp_path: Path) -> None:
    with_pickle(tmp_path / "new.pt", pickled)
    (tmp_path / "old.pt").write_bytes(pickled)
    for name in ("new.pt", "old.pt"):
        with pytest.raises(SlideFileError, match="more than plain tensors, numbers and text"):
            read_slide_pt(tmp_path / name)


def test_pt_files_name_few_of_their_keys(tmp_path: Path) -> None:
    deep = b"\x80\x02})" + b"\x85" * 30_000 + b"K\x01s."
    many = b"".join(b"X\x04\x00\x00\x00%04dK\x01" % i for i in range(5000))
    for pickled in (b"\x80\x02}(" + many + b"u.", deep):
        with_pickle(tmp_path / "s.pt", pickled)
        with pytest.raises(SlideFileError) as caught:
            read_slide_pt(tmp_path / "s.pt")
        assert len(str(caught.value)) < 1000


def test_packed_pt_files_are_not_unpacked(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")
    buffer = io.BytesIO()
    torch.save(torch.zeros(1000, 3), buffer)
    packed = zipfile.ZipFile(tmp_path / "s.pt", "w", zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(buffer) as good, packed as archive:
        for name in good.namelist():
            archive.writestr(name, good.read(name))
    with pytest.raises(SlideFileError, match=r"packed bytes, which torch\.save never writes"):
        read_slide_pt(tmp_path / "s.pt")


def test_pt_files_of_old_versions_are_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")
    content = {"features": torch.nn.Parameter(torch.ones(5, 3)), "note": torch.Size([2])}
    torch.save(content, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert read_slide_pt(tmp_path / "old.pt").features.tolist() == np.ones((5, 3)).tolist()
