"""What the page shows of instances: files, slices, tiles and pixels, and nothing beside them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagwise.bags import Bags
from bagwise.cli.labelling.features import against_bag
from bagwise.cli.labelling.pictures import (
    CTSlices,
    Pictures,
    PixelFeatures,
    inside,
    pictures_in,
    whole_image,
)
from bagwise.io.dicom import DicomError
from bagwise.io.images import ImageFileError

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def pixels(png: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(png)))


def save(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(value, dtype=np.uint8)).save(path)


def named_bags() -> Bags:
    ids = [["a.png", "b"], ["a.png"]]
    return Bags.from_list([[[0.0], [1.0]], [[2.0]]], ids=["s1", "s2"], instance_ids=ids)


def test_pictures_of_folders_are_found_by_ids(tmp_path: Path) -> None:
    save(tmp_path / "s1" / "a.png", np.full((4, 4, 3), 10))
    save(tmp_path / "s1" / "b.jpg", np.full((4, 4, 3), 200))
    found = pictures_in(named_bags(), str(tmp_path))
    assert [found.has(row) for row in range(3)] == [True, True, False]
    assert np.all(pixels(found.png(0)) == 10) and np.all(np.abs(pixels(found.png(1)) - 200.0) < 3)


def test_names_are_no_paths(tmp_path: Path) -> None:
    save(tmp_path / "secret.png", np.zeros((2, 2)))
    save(tmp_path / "in" / "s1" / "a.png", np.zeros((2, 2)))
    base = tmp_path / "in"
    assert inside(base, "s1", "a") is not None
    for bag, name in ((".", "secret"), ("..", "secret"), ("s1", "../../secret"), ("s1/..", "a")):
        assert inside(base, bag, name) is None
    assert whole_image(base, "../secret") is None and whole_image(tmp_path, "secret") is not None
    (base / "s1" / "notes.txt").write_text("private")
    assert inside(base, "s1", "notes.txt") is None


def test_ids_that_are_too_long_for_names_have_no_picture(tmp_path: Path) -> None:
    """The system refuses to look for such names."""
    assert inside(tmp_path, "s", "i" * 300) is None
    assert inside(tmp_path, "s" * 300, "i") is None
    assert whole_image(tmp_path, "s" * 300) is None
    with pytest.raises(ValueError, match="neither a folder of pictures nor an image"):
        pictures_in(Bags.from_list([[[0.0]]], ids=["s" * 300]), str(tmp_path))


def test_a_damaged_picture_is_an_error_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / "a.png").write_bytes(b"no picture")
    with pytest.raises(ImageFileError, match="no picture"):
        pictures_in(named_bags(), str(tmp_path)).png(0)


def test_tiles_are_cut_at_their_corners_and_white_beyond_the_edge(tmp_path: Path) -> None:
    image = np.arange(64).reshape(8, 8)
    save(tmp_path / "s1.png", image)
    corners = np.array([[2, 4], [6, 6], [0, 0]])
    with pytest.raises(ValueError, match="--tile-size 256"):
        pictures_in(named_bags(), str(tmp_path))
    found = pictures_in(named_bags(), str(tmp_path), corners, 4)
    np.testing.assert_array_equal(pixels(found.png(0))[..., 0], image[4:8, 2:6])
    cut = pixels(found.png(1))[..., 0]
    np.testing.assert_array_equal(cut[:2, :2], image[6:, 6:])
    assert np.all(cut[2:] == 255) and np.all(cut[:, 2:] == 255)
    around = pixels(found.png(0, kind=1))[..., 0]
    np.testing.assert_array_equal(around[4:8, 4:8], image[4:8, 2:6])
    assert around.shape == (12, 12) and not found.has(2)


def test_slices_are_found_by_their_uid_and_windowed(tmp_path: Path) -> None:
    pytest.importorskip("pydicom")
    from pydicom import dcmread

    from ct_slices import write_slice

    stored = np.full((4, 4), 520, dtype=np.int16)  # 40 in Hounsfield units
    write_slice(tmp_path / "a.dcm", stored, 0.0)
    uid = str(dcmread(tmp_path / "a.dcm").SOPInstanceUID)
    bags = Bags.from_list([[[0.0], [1.0]]], ids=["s1"], instance_ids=[[uid, "other"]])
    found = CTSlices(bags, str(tmp_path))
    assert [found.has(row) for row in range(2)] == [True, False] and len(found.kinds) == 3
    assert np.all(pixels(found.png(0, kind=0)) == 128)
    assert np.all(pixels(found.png(0, kind=1)) == round(255 * 0.3))
    strange = Bags.from_list([[[0.0]]], ids=["s1"], instance_ids=[["other"]])
    with pytest.raises(DicomError, match="none of the slices"):
        CTSlices(strange, str(tmp_path))


def test_features_that_are_pixels_are_dark_on_light() -> None:
    bags = Bags.from_list([[[0.0, 1.0, 2.0, 4.0], [0.0, 0.0, 0.0, 0.0]]])
    found = PixelFeatures(bags, (2, 2))
    np.testing.assert_array_equal(pixels(found.png(0)), [[255, 191], [128, 0]])
    assert np.all(pixels(found.png(1)) == 255)


def test_ids_are_needed_where_files_are_named_by_them(tmp_path: Path) -> None:
    bags = Bags.from_list([[[0.0]]], ids=["s1"])
    (tmp_path / "s1").mkdir()
    with pytest.raises(ValueError, match="column instance_id"):
        pictures_in(bags, str(tmp_path))
    with pytest.raises(ValueError, match="neither a folder of pictures nor an image"):
        pictures_in(Bags.from_list([[[0.0]]], ids=["other"]), str(tmp_path))
    assert not Pictures().has(0) and Pictures().kinds == ()


def test_features_are_compared_with_the_bag() -> None:
    X = [[[0.0, 1.0], [2.0, 1.0], [4.0, 1.0], [10.0, 1.0]], [[99.0, 5.0]]]
    bags = Bags.from_list(X, feature_names=["area", "same"])
    first, second = against_bag(bags, 3)
    assert first["name"] == "area" and (first["low"], first["high"]) == (0, 10)
    assert first["quartiles"] == [1.5, 3.0, 5.5] and first["z"] == pytest.approx(
        6 / 14**0.5, abs=0.005
    )
    assert second["z"] == 0
    assert against_bag(bags, 4)[0]["z"] == 0  # alone in its bag
