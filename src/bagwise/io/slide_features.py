"""`SlideFeatures`: patch features of one slide, and the grid that its patches lie on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags
from bagwise.core.files.reading import UnreadableFileError

Array = NDArray[Any]
Floats = NDArray[np.float64]

ON_GRID = 0.05  # of a stride: how far from its cell a patch may lie
STRAY_SHARE = 0.05  # of the patches may lie off the grid
MAX_GAPS = 8  # gaps that are tried as strides


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

    @property
    def stride(self) -> tuple[float, float]:
        """Distance between neighbouring patches in pixels of level 0, along x and y."""
        if self.coords is None:
            raise ValueError("the slide has no coords, hence no stride")
        return grid_stride(self.coords, self.patch_size_level0)

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
) -> Bags:
    """Make bags of slides, one slide per bag.

    `coords="grid"` numbers the patches by column and row of their slide's own grid, so that
    slides scanned at different resolutions have the same neighbour graph; `"level0"` keeps
    pixels. Slides without coordinates give bags without. In grid units
    `IsingVGPMIL(neighbors=("radius", 1))` links exactly the patches side by side.

    >>> slide = SlideFeatures(np.ones((2, 3)), np.array([[0, 0], [512, 0]]), 512)
    >>> slides_to_bags([slide, slide], y=[0, 1]).coords.tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
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
    return Bags.from_list(features, y, ids=ids, groups=groups, coords=places)


def check_slide(
    features: Any, coords: Any, patch_size_level0: Any, attributes: dict[str, Any], name: str
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
    return SlideFeatures(features, coords, _size_of(patch_size_level0, name), attributes)


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
