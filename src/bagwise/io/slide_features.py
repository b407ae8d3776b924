"""`SlideFeatures`: patch features of one slide, and the grid that its patches lie on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags
from bagwise.bags.messages import some
from bagwise.core.files.reading import UnreadableFileError

Array = NDArray[Any]
Floats = NDArray[np.float64]

ON_GRID = 0.05  # of a stride: how far from its cell a patch may lie
STRAY_SHARE = 0.05  # of the patches may lie off the grid
MAX_GAPS = 8  # gaps that are tried as strides
APART = 1000  # patches between two slides of a patient


class SlideFileError(UnreadableFileError):
    """A file of slide features is damaged, incomplete or not what it is taken for."""


@dataclass(frozen=True)
class SlideFeatures:
    """Features of the patches of one slide.

    Parameters
    ----------
    features : (n, D).
    coords : (n, 2) x and y of the patches' upper left corners in pixels of level 0 (full
        resolution), or None.
    patch_size_level0 : side of a patch in pixels of level 0, or None where it is not known.
    attributes : what else the file says.
    unit : "px", or "um" where coordinates and size are in micrometres, as in files of STAMP.

    Examples
    --------
    >>> slide = SlideFeatures(np.ones((3, 2)), np.array([[0, 0], [512, 0], [0, 1024]]), 512)
    >>> slide.stride
    (512.0, 512.0)
    >>> slide.grid_coords()
    array([[0., 0.],
           [1., 0.],
           [0., 2.]])
    """

    features: Array
    coords: Array | None = None
    patch_size_level0: float | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    unit: str = "px"

    @property
    def stride(self) -> tuple[float, float]:
        """Distance between neighbouring patches in pixels of level 0, along x and y."""
        if self.coords is None:
            raise ValueError("the slide has no coords, hence no stride")
        return grid_stride(self.coords, self.patch_size_level0)

    def in_pixels(self, mpp: float) -> SlideFeatures:
        """The slide with coordinates in pixels, of which each is `mpp` micrometres wide.

        >>> SlideFeatures(np.ones((1, 2)), np.array([[256.0, 0.0]]), 256, unit="um").in_pixels(0.5)
        SlideFeatures(features=..., coords=array([[512.,   0.]]), patch_size_level0=512.0, ...)
        """
        if not 0 < mpp < np.inf:
            raise ValueError(f"mpp must be a positive number of micrometres per pixel, got {mpp!r}")
        if self.unit == "px" or self.coords is None:
            return self
        size = self.patch_size_level0
        return replace(
            self,
            coords=np.asarray(self.coords, dtype=np.float64) / mpp,
            patch_size_level0=None if size is None else size / mpp,
            unit="px",
        )

    def grid_coords(self) -> Floats:
        """(n, 2) column and row of each patch, from 0; fractions where it lies off the grid."""
        stride = self.stride  # raises where there are no coords
        xy = np.asarray(self.coords, dtype=np.float64)
        return np.column_stack([_cells(x, step) for x, step in zip(xy.T, stride, strict=True)])


def grid_stride(coords: ArrayLike, patch_size_level0: float | None = None) -> tuple[float, float]:
    """Distance between neighbouring patches along x and y, from the gaps of their coordinates.

    The stride of an axis is the smallest of its frequent gaps that puts nearly all patches on one
    grid. Where tissue is sparse that may be several patches wide: if it is a multiple of the
    patch's own size at level 0, that size is the stride. An axis with one position only has the
    patch's size, or the other axis' stride.

    >>> grid_stride([[0, 0], [224, 0], [448, 224], [672, 0]])
    (224.0, 224.0)
    >>> grid_stride([[0, 0], [1024, 0], [2048, 512]], patch_size_level0=512)
    (512.0, 512.0)
    """
    xy = np.asarray(coords, dtype=np.float64)
    found = [_axis_stride(x) for x in xy.T]
    size = patch_size_level0
    if size is not None:
        found = [size if s is None or _is_multiple(s, size) else s for s in found]
    known = [s for s in found if s is not None]
    if not known:
        raise ValueError(
            "the patches' coordinates are all the same and the file has no patch_size_level0, so "
            "there is no stride; use the raw coordinates (coords='level0')"
        )
    x, y = (known[0] if s is None else s for s in found)
    return float(x), float(y)


def _axis_stride(x: Floats) -> float | None:
    """The smallest frequent gap that puts nearly all positions on one grid; None if there is none.

    Where no gap does (patches lie anywhere), the most frequent one.
    """
    values = np.unique(x)
    gaps, counts = np.unique(np.diff(values), return_counts=True)
    if len(gaps) == 0:
        return None
    frequent = gaps[np.argsort(-counts, kind="stable")[:MAX_GAPS]]
    for gap in np.sort(frequent):
        position = (x - _phase(x, gap)) / gap
        if np.mean(np.abs(position - np.rint(position)) > ON_GRID) <= STRAY_SHARE:
            return float(gap)
    return float(frequent[0])


def _phase(x: Floats, stride: float) -> float:
    """Where the grid starts that most positions lie on: the corner itself may lie off it."""
    turn = np.angle(np.mean(np.exp(2j * np.pi * x / stride)))
    return float(turn / (2 * np.pi) * stride)


def _is_multiple(stride: float, size: float) -> bool:
    ratio = stride / size
    return ratio > 1.5 and abs(ratio - round(ratio)) <= ON_GRID


def _cells(x: Floats, stride: float) -> Floats:
    """Cell numbers from 0; positions off the grid keep their fraction."""
    position = (x - _phase(x, stride)) / stride
    whole = np.rint(position)
    cells = np.where(np.abs(position - whole) <= ON_GRID, whole, position)
    return cells - np.floor(cells.min())


def slides_to_bags(
    slides: Sequence[SlideFeatures],
    y: ArrayLike | None = None,
    *,
    ids: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    coords: str = "grid",
    patients: ArrayLike | None = None,
) -> Bags:
    """Make bags of slides, one slide per bag, or with `patients` all slides of one.

    `coords="grid"` numbers the patches by column and row of their slide's own grid, so that
    slides scanned at different resolutions have the same neighbour graph; `"level0"` keeps
    pixels. Slides without coordinates give bags without. In grid units
    `IsingVGPMIL(neighbors=("radius", 1))` links exactly the patches side by side.

    `patients` has the patient of each slide: bags are then the patients, in the order in which they
    first appear, and `y`, `groups` have one entry per slide, the same for all of a patient. The
    slides of a patient are put beside each other, 1000 patches apart: tiles of different slides
    are no neighbours by the grid or a radius (`("knn", k)` needs more than k tiles on each slide).

    >>> slide = SlideFeatures(np.ones((2, 3)), np.array([[0, 0], [512, 0]]), 512)
    >>> slides_to_bags([slide, slide], y=[0, 1]).coords.tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    >>> slides_to_bags([slide, slide], y=[1, 1], patients=["p", "p"]).coords[:, 0].tolist()
    [0.0, 1.0, 1001.0, 1002.0]
    """
    if coords not in ("grid", "level0"):
        raise ValueError(f"coords must be 'grid' or 'level0', got {coords!r}")
    if not slides:
        raise ValueError("there are 0 slides; give at least one")
    located = [s.coords is not None for s in slides]
    if any(located) and not all(located):
        raise ValueError(
            f"slide {located.index(False)} has no coords while others have; give all slides from "
            "files of one kind"
        )
    places: Any = None
    if all(located):
        places = [s.grid_coords() if coords == "grid" else np.asarray(s.coords) for s in slides]
    features = [s.features for s in slides]
    if patients is None:
        return Bags.from_list(features, y, ids=ids, groups=groups, coords=places)
    if ids is not None:
        raise ValueError("the bags of patients have their ids; leave ids out")
    strides = [s.stride[0] if coords == "level0" else 1.0 for s in slides] if places else []
    return _patient_bags(features, y, groups, places, np.asarray(patients), strides)


def _patient_bags(
    features: list[Array], y: Any, groups: Any, places: Any, patients: Array, strides: list[float]
) -> Bags:
    """One bag per patient, whose slides follow each other, apart."""
    check_length(patients, len(features), "patients")
    names = list(dict.fromkeys(patients.tolist()))
    own = [np.flatnonzero(patients == name) for name in names]
    for what, values in (("y", y), ("groups", groups)):
        _check_of_patients(values, own, names, what)
    beside = None
    if places is not None:
        beside = [_side_by_side([places[i] for i in part], strides[part[0]]) for part in own]
    first = [part[0] for part in own]
    return Bags.from_list(
        [np.concatenate([features[i] for i in part]) for part in own],
        None if y is None else np.asarray(y)[first],
        ids=np.array(names),
        groups=None if groups is None else np.asarray(groups)[first],
        coords=beside,
    )


def check_length(values: Any, n: int, name: str) -> None:
    """Raise unless there is one entry per slide."""
    if np.ndim(values) != 1 or len(values) != n:
        raise ValueError(f"{name} needs one entry per slide: {n}; got shape {np.shape(values)}")


def _check_of_patients(values: Any, own: list[Array], names: list[Any], what: str) -> None:
    if values is None:
        return
    check_length(values, sum(map(len, own)), what)
    for part, name in zip(own, names, strict=True):
        found = list(dict.fromkeys(np.asarray(values)[part].tolist()))
        if len(found) > 1:
            raise ValueError(
                f"the slides of a patient must agree in {what}; those of {name!r} have "
                f"{some(found)}; correct the table, or make every slide a bag"
            )


def _side_by_side(places: list[Array], stride: float) -> Floats:
    """Coordinates of several slides, each put APART patches to the right of the one before."""
    moved: list[Floats] = []
    start = 0.0
    for xy in places:
        shift = start - float(xy[:, 0].min()) if moved else 0.0
        moved.append(np.asarray(xy, dtype=np.float64) + np.array([shift, 0.0]))
        start = float(moved[-1][:, 0].max()) + APART * stride
    return np.concatenate(moved)


def check_slide(
    features: Any,
    coords: Any,
    patch_size_level0: Any,
    attributes: dict[str, Any],
    name: str,
    *,
    unit: str = "px",
) -> SlideFeatures:
    """Slide features that hang together, or a SlideFileError that says what is wrong."""
    features = np.asarray(features)
    if features.ndim == 3 and features.shape[0] == 1:  # one slide per batch, as some tools write
        features = features[0]
    if features.ndim != 2 or 0 in features.shape or features.dtype.kind not in "fiu":
        raise SlideFileError(
            f"{name}: features must be an (n, D) array of numbers with at least one patch; got "
            f"{features.dtype} of shape {features.shape}"
        )
    if coords is not None:
        coords = np.asarray(coords)
        coords = coords[0] if coords.ndim == 3 and coords.shape[0] == 1 else coords
        if coords.shape != (len(features), 2) or coords.dtype.kind not in "fiu":
            raise SlideFileError(
                f"{name}: coords must be numbers of shape ({len(features)}, 2), one row per patch; "
                f"got {coords.dtype} of shape {coords.shape}"
            )
        if not np.all(np.isfinite(coords)):
            raise SlideFileError(f"{name}: coords must be finite; extract the features again")
    return SlideFeatures(features, coords, _size_of(patch_size_level0, name), attributes, unit)


def _size_of(value: Any, name: str) -> float | None:
    """The side of a patch that a file gives, if any."""
    if value is None:
        return None
    if not isinstance(value, int | float | np.integer | np.floating) or not 0 < value < 2**53:
        raise SlideFileError(f"{name}: patch_size_level0 must be positive; got {value!r:.80}")
    return float(value)


def first_of(mapping: dict[str, Any], *names: str) -> Any:
    """The first of several names that a mapping has, or None.

    >>> first_of({"feats": 1}, "features", "feats")
    1
    """
    return next(itertools.chain((mapping[n] for n in names if n in mapping), [None]))
