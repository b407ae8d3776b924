"""Slide features of other tools: STAMP, torchmil, Zarr, names of one's own, patients as bags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import bagwise as bw
from bagwise.bags.graphs import neighbor_graph
from bagwise.io import (
    SlideFeatures,
    SlideFileError,
    TableError,
    read_slide,
    read_slide_h5,
    read_slide_table,
    read_torchmil,
    slides_to_bags,
)
from command_line import good, refused

CELLS = np.array([[i, j] for i in range(3) for j in range(3)])


def features(label: int, seed: int, n: int = 9) -> np.ndarray:
    X = np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)
    return X + 4 * label * (np.arange(n) < 2)[:, None].astype(np.float32)


def write_stamp(path: Path, X: Any, size_name: str = "tile_size_um") -> None:
    """As STAMP writes its files: everything is in micrometres, attributes are of the file."""
    with h5py.File(path, "w") as file:
        file["coords"], file["feats"] = CELLS * 256.0, X.astype(np.float16)
        file.attrs["stamp_version"], file.attrs["extractor"] = "2.3.0", "ctranspath"
        file.attrs["unit"], file.attrs[size_name] = "um", 256.0
        file.attrs["tile_size_px"] = 224


@pytest.mark.parametrize("size_name", ["tile_size_um", "tile_size"])
def test_stamp_files_are_in_micrometres(size_name: str, tmp_path: Path) -> None:
    write_stamp(tmp_path / "s.h5", features(1, 0), size_name)
    slide = read_slide(tmp_path / "s.h5")
    assert slide.unit == "um" and slide.patch_size_level0 == 256
    np.testing.assert_array_equal(slide.grid_coords(), CELLS)
    pixels = slide.in_pixels(0.5)
    assert pixels.unit == "px" and pixels.patch_size_level0 == 512
    np.testing.assert_array_equal(pixels.coords, CELLS * 512)
    with pytest.raises(ValueError, match="mpp must be a positive number"):
        slide.in_pixels(0)


def test_datasets_with_other_names(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["level0/embeddings"], file["xy"] = features(0, 0), CELLS * 512
    with pytest.raises(SlideFileError, match=r"no dataset 'features' or 'feats'; there is level0"):
        read_slide_h5(tmp_path / "s.h5")
    slide = read_slide(tmp_path / "s.h5", features_key="level0/embeddings", coords_key="xy")
    np.testing.assert_array_equal(slide.features, features(0, 0))
    np.testing.assert_array_equal(slide.grid_coords(), CELLS)
    with pytest.raises(SlideFileError, match="no dataset 'places'; there is level0, xy"):
        read_slide(tmp_path / "s.h5", features_key="level0/embeddings", coords_key="places")
    with pytest.raises(SlideFileError, match="'level0' is no dataset"):
        read_slide(tmp_path / "s.h5", features_key="level0")
    with pytest.raises(ValueError, match=r"for \.h5 and \.zarr"):
        read_slide(tmp_path / "s.pt", features_key="x")


@pytest.mark.filterwarnings("ignore")
def test_slides_in_zarr(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", reason='needs zarr: pip install "bagwise[scverse]"')
    for name in ("a", "b"):
        root = zarr.open_group(str(tmp_path / f"{name}.zarr"), mode="w", zarr_format=2)
        root.create_array("features", data=features(1, 0))
        root.create_array("coords", data=CELLS * 512).attrs["patch_size_level0"] = 512
    slide = read_slide(tmp_path / "a.zarr")
    np.testing.assert_array_equal(slide.features, features(1, 0))
    assert slide.patch_size_level0 == 512
    (tmp_path / "slides.csv").write_text("slide_id,label\na,0\nb,1\n")
    assert len(read_slide_table(tmp_path / "slides.csv", tmp_path, case=None)) == 2
    description = tmp_path / "a.zarr" / "features" / ".zarray"
    description.write_text(
        json.dumps(json.loads(description.read_text()) | {"shape": [10**9, 300]})
    )
    with pytest.raises(SlideFileError, match="claims shape"):
        read_slide(tmp_path / "a.zarr")
    (tmp_path / "c.zarr").mkdir()
    with pytest.raises(SlideFileError, match="no Zarr store"):
        read_slide(tmp_path / "c.zarr")


# --- torchmil ------------------------------------------------------------------------------------


def write_torchmil(root: Path, n: int = 12) -> None:
    """The layout of torchmil's ProcessedMILDataset."""
    for part in ("features", "labels", "patch_labels", "coords"):
        (root / part).mkdir(parents=True)
    for i in range(n):
        values = {
            "features": features(i % 2, i),
            "labels": np.array([i % 2]),
            "patch_labels": (np.arange(9) < 2 * (i % 2)).astype(np.int64)[:, None],
            "coords": CELLS,
        }
        for part, array in values.items():
            np.save(root / part / f"bag{i:02d}.npy", array)


def test_folders_of_torchmil(tmp_path: Path) -> None:
    write_torchmil(tmp_path)
    bags = read_torchmil(tmp_path)
    assert bags.ids.tolist()[:2] == ["bag00", "bag01"]
    assert bags.y is not None and bags.y.tolist() == [0, 1] * 6
    assert bags.instance_labels is not None and bags.instance_labels.sum() == 12
    np.testing.assert_array_equal(bags[1].X, features(1, 1))
    np.testing.assert_array_equal(bags[1].coords, CELLS)
    with h5py.File(tmp_path / "features" / "bag99.h5", "w") as file:
        file["features"] = features(0, 0)
    with pytest.raises(SlideFileError, match="labels has no file of bag 'bag99'"):
        read_torchmil(tmp_path)
    longest = "b" * 252  # with .h5 a name as long as names may be, with .npy longer
    (tmp_path / "features" / "bag99.h5").rename(tmp_path / "features" / f"{longest}.h5")
    with pytest.raises(SlideFileError, match="labels has no file of bag 'bbb"):
        read_torchmil(tmp_path)


def endless(path: Path, kind: str) -> None:
    """A header that claims 10^13 entries of no bytes, which a file of any size holds."""
    with path.open("wb") as file:
        header = {"descr": kind, "fortran_order": False, "shape": (10**13, 3)}
        np.lib.format.write_array_header_1_0(file, header)


@pytest.mark.parametrize(
    ("part", "damage", "says"),
    [
        ("features", lambda p: p.write_bytes(p.read_bytes()[:-50]), "damaged or cut off"),
        ("features", lambda p: np.save(p, np.array([{}], dtype=object)), "no .npy file of numbers"),
        ("features", lambda p: np.save(p, np.zeros((9, 3, 2))), r"must be \(n, D\)"),
        ("features", lambda p: endless(p, "|V0"), "neither numbers nor text"),
        ("features", lambda p: endless(p, "<U0"), "neither numbers nor text"),
        ("labels", lambda p: np.save(p, np.array([0, 1])), "must be one value"),
        ("coords", lambda p: np.save(p, np.zeros((3, 2))), "one entry per instance: 9"),
        ("patch_labels", lambda p: np.save(p, np.full(9, 7)), "instance labels must be 0, 1"),
    ],
)
def test_damaged_data_sets_of_torchmil(part: str, damage: Any, says: str, tmp_path: Path) -> None:
    write_torchmil(tmp_path, 2)
    damage(tmp_path / part / "bag01.npy")
    with pytest.raises(SlideFileError, match=says):
        read_torchmil(tmp_path)


def test_torchmil_itself_reads_the_same(tmp_path: Path) -> None:
    data = pytest.importorskip("torchmil.datasets", reason="needs torchmil")
    write_torchmil(tmp_path)
    names = ("features", "labels", "patch_labels", "coords")
    theirs = data.ProcessedMILDataset(*(str(tmp_path / name) for name in names))
    ours = read_torchmil(tmp_path)
    for i, name in enumerate(theirs.bag_names):
        own = ours[ours.ids.tolist().index(name)]
        np.testing.assert_array_equal(own.X, theirs[i]["X"].numpy())


def test_torchmil_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_torchmil(tmp_path / "set")
    good("fit", "set", "--model", "vgpmil", "--set", "n_inducing=10")
    shown = json.loads(good("evaluate", "set.bagwise", "set", "--json"))
    assert shown["bags"]["n"] == 12 and shown["instances"] is not None
    assert "whose folders say" in refused("fit", "set", "--bag", "x", "--force")


# --- Patients ------------------------------------------------------------------------------------


def test_slides_of_a_patient_are_no_neighbours() -> None:
    slide = SlideFeatures(np.ones((9, 2)), CELLS * 512, 512)
    apart = slides_to_bags([slide, slide, slide], y=[1, 1, 0], patients=["p", "p", "q"])
    assert apart.ids.tolist() == ["p", "q"] and apart.sizes.tolist() == [18, 9]
    alone = slides_to_bags([slide, slide, slide])
    for rule in ("auto", ("radius", 1), ("radius", 30)):
        one = neighbor_graph(apart.coords, apart.offsets, rule)
        three = neighbor_graph(alone.coords, alone.offsets, rule)
        np.testing.assert_array_equal(one.toarray(), three.toarray())
    nearest = neighbor_graph(apart.coords, apart.offsets, ("knn", 4)).toarray()
    assert not nearest[:9, 9:].any()  # of equally near tiles either may be taken
    pixels = slides_to_bags([slide, slide], patients=["p", "p"], coords="level0")
    assert pixels.coords is not None
    np.testing.assert_array_equal(pixels.coords[9:] - pixels.coords[:9], [[512 * 1002, 0]] * 9)


def test_patients_that_cannot_be() -> None:
    slide = SlideFeatures(np.ones((9, 2)), CELLS * 512, 512)
    with pytest.raises(ValueError, match=r"agree in y; those of 'p' have \[1, 0\]"):
        slides_to_bags([slide, slide], y=[1, 0], patients=["p", "p"])
    with pytest.raises(ValueError, match="patients needs one entry per slide: 2"):
        slides_to_bags([slide, slide], patients=["p"])


def test_patients_as_bags_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("features").mkdir()
    lines = ["slide_id,case_id,label"]
    for i in range(20):
        label = i % 4 // 2  # two slides per patient, not beside each other in the table
        write_stamp(Path("features") / f"s{i}.h5", features(label, i))
        lines.append(f"s{i},p{i // 2 % 10:02d},{label}")
    Path("slides.csv").write_text("\n".join(lines[:1] + lines[1::2] + lines[2::2]) + "\n")
    slides = ("--slides", "slides.csv")
    good(
        "fit", "features", *slides, "--bag", "case_id", "--model", "vgpmil",
        "--set", "n_inducing=10", "-o", "m.bagwise",
    )  # fmt: skip
    shown = json.loads(good("evaluate", "m.bagwise", "features", *slides, "--json"))
    assert shown["bags"]["n"] == 10
    told = refused("predict", "m.bagwise", "features", *slides, "-o", "tiles/")
    assert "--mpp 0.25" in told
    good("predict", "m.bagwise", "features", *slides, "-o", "tiles/", "--mpp", "0.5")
    assert len(list(Path("tiles").glob("*.geojson"))) == 20
    tiles = json.loads((Path("tiles") / "s3.geojson").read_text())["features"]
    assert tiles[1]["geometry"]["coordinates"][0][:3] == [[0, 512], [512, 512], [512, 1024]]
    model = bw.load("m.bagwise")
    bags = read_slide_table("slides.csv", "features", bag="case_id", case=None)
    rows = bags.offsets[bags.ids.tolist().index("p01")] + 9 + np.arange(9)  # s2, then s3
    p = [tile["properties"]["measurements"]["p_mean"] for tile in tiles]
    np.testing.assert_allclose(p, model.predict_instance_proba(bags)[rows, 1])
    Path("slides.csv").write_text("slide_id,case_id,label\ns0,p,0\ns3,p,1\n")
    with pytest.raises(TableError, match="agree in y"):
        read_slide_table("slides.csv", "features", bag="case_id", case=None)
