"""Bags of MNIST and Fashion-MNIST images with known instance labels [C24, Sec. 6.1]."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.parameters import check_choice, check_integer
from bagwise.datasets.catalogue import FASHION_PACKAGE, FASHION_SITE, MNIST, MNIST_MIRROR, entry
from bagwise.datasets.digits import check_counts, check_positive, draw_bags
from bagwise.datasets.fetch import Home, not_found, removed_if_wrong
from bagwise.datasets.readers import gzip_content, idx_array, tar_member
from bagwise.datasets.sources import Archive, data_folder, obtain, present

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

IDX_FILES = tuple(
    f"{subset}-{part}-ubyte"
    for subset in ("train", "t10k")
    for part in ("images-idx3", "labels-idx1")
)
# SHA-256 of the idx files themselves: the same content comes compressed in several ways.
DIGESTS = {
    "mnist": (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion-mnist": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}
CONTENT = {kind: dict(zip(IDX_FILES, found, strict=True)) for kind, found in DIGESTS.items()}
SITES = {"mnist": MNIST_MIRROR, "fashion-mnist": FASHION_SITE}
ENTRY = {"mnist": "mnist_bags", "fashion-mnist": "fashion_mnist_bags"}
N_BAGS = {"train": 5600, "test": 1400}
BLOCK = 5000  # images at a time


def fetch_mnist_bags(
    subset: str = "train",
    n_bags: int | None = None,
    *,
    bag_size: int = 10,
    positive: Iterable[int] | int = (2, 9),
    witness: tuple[int, int] = (1, 4),
    pca: int | None = 30,
    random_state: Any = 0,
    data_home: Home = None,
    download: bool = True,
) -> tuple[Bags, Ints]:
    """Make bags of MNIST digits; a bag is positive if it holds a 2 or a 9 [C24, Sec. 6.1].

    Parameters
    ----------
    subset : "train" takes the 60000 training images, "test" the 10000 others: no image is in both.
    n_bags : default 5600 for "train" and 1400 for "test", 80 and 20 % of the 7000 of [C24]. Half
        of them (rounded down) are positive.
    bag_size, positive, witness : as in `make_digit_bags`; a positive bag holds 1 to 4 positives.
    pca : number of principal components of the training images, or None for the 784 raw pixels.
        Components are those of all 60000 training images for both subsets. Pixels are 0 to 1.
    random_state : seed; the same seed gives the same bags.
    data_home, download : as in `fetch_musk2`.

    Returns the bags and the true instance labels (N,), for evaluation. Images come twice only
    where there are too few of their kind.
    """
    how = (subset, n_bags, bag_size, positive, witness, pca, random_state, data_home, download)
    return _image_bags("mnist", *how)


def fetch_fashion_mnist_bags(
    subset: str = "train",
    n_bags: int | None = None,
    *,
    bag_size: int = 10,
    positive: Iterable[int] | int = (2, 9),
    witness: tuple[int, int] = (1, 4),
    pca: int | None = 30,
    random_state: Any = 0,
    data_home: Home = None,
    download: bool = True,
) -> tuple[Bags, Ints]:
    """Make bags of Fashion-MNIST images; pullovers (2) and ankle boots (9) are positive.

    The arguments are those of `fetch_mnist_bags`.
    """
    how = (subset, n_bags, bag_size, positive, witness, pca, random_state, data_home, download)
    return _image_bags("fashion-mnist", *how)


def _image_bags(
    kind: str, subset: str, n_bags: int | None, bag_size: int, positive: Iterable[int] | int,
    witness: tuple[int, int], pca: int | None, random_state: Any, data_home: Home, download: bool,
) -> tuple[Bags, Ints]:  # fmt: skip
    """The bags of both functions above, with their arguments."""
    check_choice("subset", subset, tuple(N_BAGS))
    n = N_BAGS[subset] if n_bags is None else n_bags
    wanted, counts = check_positive(positive), check_counts(n, bag_size, witness)
    if pca is not None and check_integer("pca", pca, at_least=1) > 784:
        raise ValueError(f"an image has 784 pixels, so pca is at most 784, got {pca}")
    folder, rng = data_folder(data_home), np.random.default_rng(random_state)
    images, classes = _images(kind, subset, folder, download)
    rows, y, truth = draw_bags(np.isin(classes, wanted), n, bag_size, counts, rng)
    X = _features(images, rows, pca, kind, folder, download)
    return Bags.from_arrays(X, np.repeat(np.arange(n), bag_size), y=y), truth


def _features(
    images: NDArray[np.uint8],
    rows: Ints,
    pca: int | None,
    kind: str,
    folder: Path,
    download: bool,
) -> Floats:
    X = _flat(images[rows])
    if pca is None:
        return X
    content = CONTENT[kind]["train-images-idx3-ubyte"]
    mean, directions = _directions(content, kind, folder, download)
    return np.asarray((X - mean) @ directions[:, :pca])


def _flat(images: NDArray[np.uint8]) -> Floats:
    return images.reshape(len(images), -1) / 255.0


@lru_cache(maxsize=2)  # it takes seconds, and training and test bags are asked for in turn
def _directions(content: str, kind: str, folder: Path, download: bool) -> tuple[Floats, Floats]:
    """Mean and principal directions of the training images, whose SHA-256 is `content`."""
    return principal_directions(_images(kind, "train", folder, download)[0])


def principal_directions(images: NDArray[np.uint8]) -> tuple[Floats, Floats]:
    """Mean (D,) and all principal directions (D, D) of images, the entry of largest size positive.

    >>> mean, V = principal_directions(np.array([[[0, 0]], [[255, 255]]], dtype=np.uint8))
    >>> mean, V[:, 0]
    (array([0.5, 0.5]), array([0.70710678, 0.70710678]))
    """
    n_pixels = images[0].size
    total, second = np.zeros(n_pixels), np.zeros((n_pixels, n_pixels))
    for start in range(0, len(images), BLOCK):  # all in float64 at once would be 376 MB
        X = _flat(images[start : start + BLOCK])
        total += X.sum(axis=0)
        second += X.T @ X
    mean = total / len(images)
    vectors = np.linalg.eigh(second - len(images) * np.outer(mean, mean))[1][:, ::-1]
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(n_pixels)]
    return mean, vectors * np.sign(largest)


# --- Files ---------------------------------------------------------------------------------------


def _images(
    kind: str, subset: str, folder: Path, download: bool
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images and classes of one subset."""
    prefix = "train" if subset == "train" else "t10k"
    images, classes = (
        idx_array(_content(kind, f"{prefix}-{part}-ubyte", folder, download))
        for part in ("images-idx3", "labels-idx1")
    )
    return images, classes


def _content(kind: str, name: str, folder: Path, download: bool) -> bytes:
    """The idx file, decompressed and checked, from wherever it is."""
    expected = CONTENT[kind][name]
    for path in _places(kind, name, folder):
        if path.is_file():
            return _verified(gzip_content(path), expected, path)
    if kind == "mnist" and (packed := present(MNIST, folder)):
        return _verified(tar_member(packed, name), expected, packed)
    online = Archive(f"{name}.gz", "url", f"{SITES[kind]}{name}.gz")
    packages = [MNIST] if kind == "mnist" else []
    failures: list[str] = []
    if download:
        for content in _downloads(online, packages, name, folder, kind, failures):
            return content
    known = entry(ENTRY[kind])
    sources = [online, *packages]
    wanted = f"{name}, plain or .gz"
    if kind == "fashion-mnist":
        wanted += "; on Debian the package dataset-fashion-mnist has all, and is found by itself"
    raise FileNotFoundError(not_found(known, folder / kind, wanted, sources, failures, download))


def _places(kind: str, name: str, folder: Path) -> Iterator[Path]:
    folders = [folder / kind]
    if kind == "fashion-mnist":
        folders.append(Path(FASHION_PACKAGE))
    for place in folders:
        yield place / name
        yield place / f"{name}.gz"


def _downloads(
    online: Archive,
    packages: list[Archive],
    name: str,
    folder: Path,
    kind: str,
    failures: list[str],
) -> Iterator[bytes]:
    """The content from each source that works; what the others said is added to `failures`."""
    expected = CONTENT[kind][name]
    for archive in [online, *packages]:
        try:
            if archive.via == "url":
                path = obtain(archive, folder / kind)
                with removed_if_wrong(path):
                    content = _verified(gzip_content(path), expected, path)
            else:
                path = obtain(archive, folder)
                content = _verified(tar_member(path, name), expected, path)
            yield content
        except (OSError, ValueError) as error:
            failures.append(f"{archive.how()}: {error}")


def _verified(content: bytes, expected: str, path: str | os.PathLike[str]) -> bytes:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ValueError(
            f"{path} must hold a file with the SHA-256 {expected}, but it is {found}: damaged or "
            "another file; delete it and fetch it again"
        )
    return content
