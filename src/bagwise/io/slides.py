"""Folders of slide features: one HDF5 file per slide, as CLAM and TRIDENT write them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.io.columns import Columns
from bagwise.io.frames import one_line, read_frame, require_io
from bagwise.io.streams import TableError

ENDINGS = (".h5", ".hdf5")


def read_slides(
    folder: str | os.PathLike[str],
    slides: str | os.PathLike[str] | None = None,
    *,
    slide_column: str = "slide_id",
    label_column: str | None = "label",
) -> Bags:
    """Read a folder of HDF5 features, one file per slide, into Bags.

    Each file `SLIDE_ID.h5` holds `features` (n, D) and, where known, `coords` (n, 2): a slide is
    a bag, a tile an instance. `slides` is a CSV with the columns slide_id, label and optionally
    case_id (which becomes `groups`); only its slides are read, in its order. Without it all files
    of the folder are read, without labels.

    >>> import h5py, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(Path(folder) / "s1.h5", "w") as file:
    ...         file["features"] = np.ones((3, 2), dtype=np.float32)
    ...         file["coords"] = np.zeros((3, 2))
    ...     read_slides(folder)
    Bags(1 bag, unlabelled; 3 instances x 2 features, 3 per bag; float32; with coords)
    """
    _require_h5py()
    root = Path(folder)
    if not root.is_dir():
        raise TableError(f"{root} is no folder; give the folder of the .h5 files")
    if slides is None:
        ids, y, groups = np.array(sorted(_files(root))), None, None
        if not len(ids):
            raise TableError(f"{root} has no .h5 files; one per slide is needed")
    else:
        ids, y, groups = _slide_list(os.fspath(slides), slide_column, label_column)
    parts = [_read_slide(_find(root, slide)) for slide in ids.tolist()]
    with_coords = [c is not None for _, c in parts]
    if any(with_coords) and not all(with_coords):
        lacking = ids[with_coords.index(False)]
        raise TableError(f"slide {str(lacking)!r} has no coords, others have; extract it again")
    widths = {X.shape[1] for X, _ in parts}
    if len(widths) > 1:
        raise TableError(
            f"all slides need equally many features, got {sorted(widths)}; use one extractor"
        )
    return Bags.from_list(
        [X for X, _ in parts],
        y,
        ids=ids,
        groups=groups,
        coords=[c for _, c in parts] if all(with_coords) else None,
    )


def _require_h5py() -> None:
    require_io()
    try:
        import h5py  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'HDF5 files need h5py, which is not installed; run: pip install "bagwise[io]"'
        ) from error


def _slide_list(
    path: str, slide_column: str, label_column: str | None
) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]:
    name = Path(path).name
    asked = Columns(bag=slide_column, label=label_column)
    frame, _, _, _ = read_frame(path, name, asked, (), None, ("coords", "instance_id", "group"))
    ids = frame[slide_column].astype(str).to_numpy()
    if len(ids) == 0:
        raise TableError(f"{name} lists no slides")
    if len(set(ids)) < len(ids):
        twice = next(i for i in ids if list(ids).count(i) > 1)
        raise TableError(f"{name} lists the slide {twice!r} twice; one row per slide is needed")
    groups = frame["case_id"].to_numpy() if "case_id" in frame.columns else None
    return ids, None if label_column is None else frame[label_column].to_numpy(), groups


def _files(root: Path) -> dict[str, Path]:
    return {p.stem: p for p in root.iterdir() if p.suffix.lower() in ENDINGS}


def _find(root: Path, slide: str) -> Path:
    # An id comes from a file of the user's; it must not lead out of the folder.
    if Path(slide).name != slide:
        raise TableError(f"the slide id {slide!r} is a path; ids are file names without ending")
    for stem in (slide, Path(slide).stem):  # some lists carry the image's ending: s1.svs
        for ending in ENDINGS:
            if (path := root / f"{stem}{ending}").is_file():
                return path
    raise TableError(f"no file {slide}.h5 in {root}; extract its features, or drop it from the CSV")


def _read_slide(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Features (n, D) and coords (n, 2) of one file; a leading axis of length 1 is dropped."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            if "features" not in file:
                raise TableError(f"{path.name} has no data set 'features'; it has {sorted(file)}")
            X = np.asarray(file["features"])
            coords = np.asarray(file["coords"]) if "coords" in file else None
    except OSError as error:
        raise TableError(f"{path.name} cannot be read as HDF5: {one_line(error)}") from error
    X = X[0] if X.ndim == 3 and len(X) == 1 else X
    coords = coords[0] if coords is not None and coords.ndim == 3 and len(coords) == 1 else coords
    if X.ndim != 2 or not len(X):
        raise TableError(f"features of {path.name} must be (n, D), n > 0; got shape {X.shape}")
    if coords is not None and coords.shape[:1] != X.shape[:1]:
        raise TableError(
            f"{path.name} has {len(X)} rows of features but coords of shape {coords.shape}; "
            "extract it again"
        )
    return (X if X.dtype in (np.float32, np.float64) else X.astype(np.float32)), coords
