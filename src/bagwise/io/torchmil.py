"""Data sets of torchmil: `features/`, `labels/`, `patch_labels/`, `coords/`, a file per bag."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.files.reading import check_regular, one_error
from bagwise.io.slide_features import SlideFileError
from bagwise.io.stores import open_store

Array = NDArray[Any]
ENDINGS = (".npy", ".h5")
# Folders of each part, the first that is there, and the name of the dataset in .h5 files.
PARTS = {
    "features": (("features",), "features"),
    "labels": (("labels",), "labels"),
    "inst_labels": (("patch_labels", "inst_labels"), "inst_labels"),
    "coords": (("coords",), "coords"),
}


def read_torchmil(folder: str | os.PathLike[str]) -> Bags:
    """Read a folder as torchmil's `ProcessedMILDataset` has it, one bag per file of `features/`.

    `features/BAG.npy` is (n, D), `labels/BAG.npy` one label, `patch_labels/BAG.npy` (or
    `inst_labels/`) n labels of instances, `coords/BAG.npy` (n, k); all but the features may be
    left out as a folder, but not for single bags. Files may also be `.h5` with a dataset of that
    name. Bags come in the order of their names. Pickled arrays are refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part, values in {"features": np.eye(3), "labels": np.array([1])}.items():
    ...         (Path(folder) / part).mkdir()
    ...         np.save(Path(folder) / part / "slide_1.npy", values)
    ...     bags = read_torchmil(folder)
    >>> bags.ids.tolist(), bags.y.tolist(), bags.sizes.tolist()
    (['slide_1'], [1], [3])
    """
    root = Path(folder)
    if not is_torchmil(root):
        raise SlideFileError(
            f"{root} has no folder 'features' with .npy or .h5 files, as torchmil's data sets have"
        )
    names = sorted({p.stem for p in (root / "features").iterdir() if p.suffix in ENDINGS})
    parts = {part: _read_part(root, part, names) for part in PARTS}
    features, labels = parts["features"], parts["labels"]
    assert features is not None
    marked = parts["inst_labels"]
    try:
        return Bags.from_list(
            features,
            None
            if labels is None
            else np.array([_one_label(root, v, n) for n, v in zip(names, labels, strict=True)]),
            ids=np.array(names),
            coords=parts["coords"],
            instance_labels=None if marked is None else [np.ravel(v) for v in marked],
        )
    except (TypeError, ValueError) as error:
        raise SlideFileError(f"{root}: {error}") from error


def is_torchmil(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a data set of torchmil: features of bags in a folder of their own."""
    features = Path(folder) / "features"
    return features.is_dir() and any(p.suffix in ENDINGS for p in features.iterdir())


def _read_part(root: Path, part: str, names: list[str]) -> list[Array] | None:
    """One array per bag; None where the data set has no such part."""
    folders, key = PARTS[part]
    folder = next((root / f for f in folders if (root / f).is_dir()), None)
    if folder is None:
        return None
    found = []
    for name in names:
        path = next((p for e in ENDINGS if os.path.exists(p := folder / f"{name}{e}")), None)
        if path is None:
            raise SlideFileError(
                f"{folder} has no file of bag {name!r:.80}, which has features; add it, or take "
                "the folder away"
            )
        found.append(_read_array(path, key))
    if part == "features" and (
        odd := [n for n, X in zip(names, found, strict=True) if X.ndim != 2]
    ):
        raise SlideFileError(
            f"{folder}: features of bag {odd[0]!r:.80} must be (n, D); embed pictures first"
        )
    return found


def _read_array(path: Path, key: str) -> Array:
    if path.suffix == ".h5":
        with open_store(path, SlideFileError) as store:
            return store.values(key)
    check_regular(path, SlideFileError)
    with one_error(path, SlideFileError, "it is no .npy file of numbers, or damaged or cut off"):
        # Mapped, since the header may claim more than there is; pickles would run code.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if mapped.dtype.kind not in "fiubU" or mapped.dtype.itemsize == 0:  # any number of nothing
            raise SlideFileError(f"{path} holds {mapped.dtype}, which is neither numbers nor text")
        return np.array(mapped)


def _one_label(root: Path, values: Array, name: str) -> Any:
    if values.size != 1:
        raise SlideFileError(
            f"{root}: the label of bag {name!r:.80} must be one value; got shape {values.shape}; "
            "for several labels at once read the features and fit OneVsRestMIL with a matrix"
        )
    return values.ravel()[0]
