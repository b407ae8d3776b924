"""Folders of pictures as bags."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bagwise.io import ImageFileError, read_image, read_image_folders

Image = pytest.importorskip(
    "PIL.Image", reason='reading images needs the extra: pip install ".[io]"'
)


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for bag, n in (("b", 2), ("a", 3)):
        for i in range(n):
            save(tmp_path / bag / f"{i}.png", rng.integers(0, 256, (4, 6, 3)))
    (tmp_path / "a" / "notes.txt").write_text("no picture")
    return tmp_path


def test_a_folder_is_a_bag(root: Path) -> None:
    bags = read_image_folders(root, {"a": 1, "b": 0})
    assert bags.ids.tolist() == ["a", "b"] and bags.y.tolist() == [1, 0]
    assert bags.sizes.tolist() == [3, 2] and bags.n_features == 3 * 4 * 6
    assert bags.instance_ids.tolist() == ["0.png", "1.png", "2.png", "0.png", "1.png"]
    pixels = np.asarray(Image.open(root / "b" / "1.png"))
    np.testing.assert_allclose(bags.X[4].reshape(3, 4, 6), pixels.transpose(2, 0, 1) / 255)


def test_grey_and_scaled(root: Path) -> None:
    save(root / "b" / "2.png", np.full((8, 12), 51))
    with pytest.raises(ValueError, match=r"one size; .*pass size="):
        read_image_folders(root)
    bags = read_image_folders(root, mode="L", size=(2, 3))
    assert bags.n_features == 6
    np.testing.assert_allclose(bags.X[-1], 0.2)


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bits_of_grey_are_kept(ending: str, tmp_path: Path) -> None:
    pixels = (np.arange(24).reshape(4, 6) * 2500).astype(np.uint16)
    Image.fromarray(pixels).save(tmp_path / f"a.{ending}")
    values = read_image(tmp_path / f"a.{ending}", mode="L")
    np.testing.assert_allclose(values[0], pixels / 65535, atol=1e-6)
    coloured = read_image(tmp_path / f"a.{ending}", size=(2, 3))
    assert coloured.shape == (3, 2, 3)
    means = pixels.reshape(2, 2, 3, 2).mean(axis=(1, 3)) / 65535
    np.testing.assert_allclose(coloured[2], means, atol=1e-6)


def test_pictures_of_which_not_all_would_be_read(tmp_path: Path) -> None:
    Image.fromarray(np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)).save(tmp_path / "f.tif")
    with pytest.raises(ImageFileError, match="32 bits per pixel"):
        read_image(tmp_path / "f.tif")
    pages = [Image.fromarray(np.full((4, 4), v, dtype=np.uint8)) for v in (0, 9)]
    pages[0].save(tmp_path / "p.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(ImageFileError, match="has 2 pages"):
        read_image(tmp_path / "p.tif")


def test_files_that_are_no_pictures(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "a" / "0.png"
    data = path.read_bytes()
    for broken in (b"", b"hello", data[: len(data) // 2]):
        path.write_bytes(broken)
        with pytest.raises(ImageFileError, match="damaged or cut off"):
            read_image_folders(root)
    path.write_bytes(data)
    monkeypatch.setattr("bagwise.io.images.MAX_PIXELS", 20)
    with pytest.raises(ImageFileError, match="6 x 4 pixels, more than"):
        read_image(path)


def test_folders_that_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no folder"):
        read_image_folders(tmp_path / "gone")
    with pytest.raises(ValueError, match="no folders in it"):
        read_image_folders(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match="'a' has no picture"):
        read_image_folders(tmp_path)
