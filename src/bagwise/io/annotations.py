"""Annotations of QuPath (GeoJSON) as labels of instances: which tiles outlines of a class hold."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags
from bagwise.core.files.reading import UnreadableFileError, check_regular
from bagwise.core.warnings import warn_user
from bagwise.io.requirements import require
from bagwise.io.slide_features import SlideFeatures

Array = NDArray[Any]
Classes = Mapping[Any, int | None]

AREAS, POINTS = ("Polygon", "MultiPolygon"), ("Point", "MultiPoint")
ENDINGS = (".geojson", ".json")
FURTHEST = 1e12  # pixels; areas of far larger numbers are not finite
MOST_CROSSINGS = 100_000  # pairs of edges whose boxes meet, beyond those of neighbours
NEAR_EDGES = 20  # of each edge, itself and its neighbours among them


class AnnotationError(UnreadableFileError):
    """A file of annotations is damaged, or not what it is taken for."""


def read_annotations(
    path: str | os.PathLike[str],
    slide: SlideFeatures | ArrayLike,
    *,
    classes: Classes,
    tile_size: float | None = None,
    least: float = 0.5,
) -> NDArray[np.float64]:
    """Labels of the tiles of a slide (1, 0, NaN where unknown) from annotations in GeoJSON.

    A tile has the class of the outlines that cover most of it, at least the share `least`; one that
    holds a point, also on its upper or left edge, has the point's class. QuPath writes such files
    with File > Export objects.

    Parameters
    ----------
    path : the file; features whose `objectType` is not "annotation" (cells, tiles) are left out.
    slide : what `read_slide` gives, or (n, 2) upper left corners of the tiles, in pixels of the
        full-resolution image.
    classes : what each class of the annotations means, e.g. {"Tumor": 1, "Stroma": 0,
        "Artefact": None}: 1 positive, 0 negative, None to leave out. The class of annotations
        that have none is None. A class that is not named is an error.
    tile_size : edge of a tile in the same pixels; default that of the slide's file.
    least : share of a tile that has to be covered.

    Examples
    --------
    >>> import json, tempfile
    >>> square = [[[0, 0], [20, 0], [20, 20], [0, 20], [0, 0]]]
    >>> feature = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": square},
    ...            "properties": {"classification": {"name": "Tumor"}}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "slide.geojson"
    ...     _ = file.write_text(json.dumps([feature]))
    ...     read_annotations(file, [[0, 0], [12, 0], [16, 0]], classes={"Tumor": 1}, tile_size=10)
    array([ 1.,  1., nan])
    """
    _shapely()  # before anything is read
    corners, edge = _tiles(slide, tile_size)
    _check_classes(classes)
    if not 0 < least <= 1:
        raise ValueError(f"least is a share of a tile, above 0 and at most 1, got {least!r}")
    outlines = list(_outlines(Path(path), classes))
    for label in (0, 1):
        own = [geometry for of, geometry in outlines if of == label]
        _check_crossings(f"{path}: all that is drawn for label {label},", own)
    covered = np.column_stack([_covered(corners, edge, outlines, label) for label in (0, 1)])
    enough = np.max(covered, axis=1) >= least - 1e-9
    told = enough & (covered[:, 0] != covered[:, 1])  # one half each says nothing
    return np.where(told, np.argmax(covered, axis=1), np.nan)


def annotate_bags(
    bags: Bags,
    folder: str | os.PathLike[str],
    *,
    classes: Classes,
    tile_size: float,
    coords: ArrayLike | None = None,
    least: float = 0.5,
) -> Bags:
    """The bags with instance labels from a folder with one `BAG_ID.geojson` for each, or for some.

    `coords` (N, 2) are the upper left corners of the tiles in pixels, by default those of the
    bags. Labels that the bags have already stay; one that says otherwise is an error. The other
    arguments are those of `read_annotations`.
    """
    places = bags.coords if coords is None else np.asarray(coords, dtype=np.float64)
    if places is None or places.shape != (bags.n_instances, 2):
        raise ValueError(
            "annotations need two coordinates per instance, the corner of its tile in pixels; give "
            "bags with coords, or coords="
        )
    files = _files_of(bags, Path(folder))
    before = bags.instance_labels
    known = np.full(bags.n_instances, np.nan) if before is None else np.array(before, dtype=float)
    for b, file in files.items():
        rows = slice(int(bags.offsets[b]), int(bags.offsets[b + 1]))
        new = read_annotations(
            file, places[rows], classes=classes, tile_size=tile_size, least=least
        )
        if np.any(np.isfinite(new) & np.isfinite(known[rows]) & (new != known[rows])):
            raise ValueError(
                f"{file} says otherwise of some instances than the labels that they have; correct "
                "one of them, or leave one out"
            )
        known[rows] = np.where(np.isnan(known[rows]), new, known[rows])
    return bags.with_instance_labels(known)


def _files_of(bags: Bags, folder: Path) -> dict[int, Path]:
    """The file of each bag that has one, by the number of the bag."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder; give the folder of the annotations")
    found = sorted(p for p in folder.iterdir() if p.suffix.lower() in ENDINGS)
    number = {str(i): b for b, i in enumerate(bags.ids.tolist())}
    strange = [p.name for p in found if p.stem not in number]
    if strange or not found:
        what = f"{strange[0]!r} is of no bag" if strange else "it has no .geojson files"
        raise AnnotationError(
            f"{folder}: {what}; a file is called as its bag, e.g. {bags.ids[0]}.geojson"
        )
    if len({p.stem for p in found}) < len(found):
        raise AnnotationError(f"{folder}: two files are of one bag; keep one")
    return {number[p.stem]: p for p in found}


def _tiles(slide: SlideFeatures | ArrayLike, tile_size: float | None) -> tuple[Array, float]:
    """Corners (n, 2) and edge of the tiles."""
    places: Any = slide
    of_file = None
    if isinstance(slide, SlideFeatures):
        places, of_file = slide.coords, slide.patch_size_level0
        if places is None:
            raise ValueError("the slide has no coords, so that its tiles have no place")
    corners = np.asarray(places, dtype=np.float64)
    if corners.ndim != 2 or corners.shape[1] != 2 or not np.all(np.isfinite(corners)):
        raise ValueError(f"tiles need (n, 2) finite coordinates, got shape {corners.shape}")
    edge = of_file if tile_size is None else tile_size
    if edge is None or not 0 < edge < np.inf:
        raise ValueError(f"tile_size must be a positive number of pixels, got {edge!r}; pass it")
    return corners, float(edge)


def _check_classes(classes: Classes) -> None:
    wrong = [name for name, label in classes.items() if label not in (0, 1, None)]
    if wrong or not any(label is not None for label in classes.values()):
        what = f"got {classes[wrong[0]]!r} for {wrong[0]!r}" if wrong else "none is 1 or 0"
        raise ValueError(
            f"classes says of each class 1 (positive), 0 (negative) or None (leave out): {what}"
        )


def _outlines(path: Path, classes: Classes) -> Iterator[tuple[int, Any]]:
    """Label and geometry of each annotation that has a label."""
    crossing = 0
    for number, feature in enumerate(_features(path), start=1):
        properties = feature.get("properties") or {}
        kind = properties.get("objectType", "annotation") if isinstance(properties, dict) else None
        if not isinstance(kind, str):
            raise AnnotationError(f"{path}, feature {number}: its properties say not what it is")
        if kind != "annotation":
            continue
        label = _label(path, number, properties.get("classification"), classes)
        if label is None:
            continue
        geometry = _geometry(path, number, feature.get("geometry"))
        if not geometry.is_valid:
            crossing += 1
            _check_crossings(f"{path}, annotation {number}: its outline", geometry)
            geometry = _shapely().make_valid(geometry, method="structure", keep_collapsed=False)
        yield label, geometry
    if crossing:
        warn_user(
            f"{path}: {crossing} outlines cross or touch themselves; all that they go around is "
            "taken for theirs, but for what is inside their holes"
        )


def _check_crossings(what: str, areas: Any) -> None:
    """Raise where outlines may cross so often that untangling them takes gigabytes.

    n edges can have n^2 / 2 crossings; of drawn outlines few edges come near another one.
    """
    shapely = _shapely()
    rings = shapely.get_rings(shapely.get_parts(areas))
    points, ring = shapely.get_coordinates(rings, return_index=True)
    within = ring[1:] == ring[:-1]
    edges = shapely.linestrings(np.stack([points[:-1][within], points[1:][within]], axis=1))
    tree, most = shapely.STRtree(edges), MOST_CROSSINGS + NEAR_EDGES * len(edges)
    step, near = max(16, 2**22 // max(len(edges), 1)), 0
    for start in range(0, len(edges), step):
        near += tree.query(edges[start : start + step]).shape[1]
        if near > most:
            raise AnnotationError(
                f"{what} of {len(edges)} edges crosses itself too often to go around anything; "
                "draw it again, or remove it"
            )


def _shapely() -> Any:
    return require("shapely", what="reading annotations", extra="io")


def _features(path: Path) -> list[dict[str, Any]]:
    check_regular(path, AnnotationError)
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # bytes, JSON, or numbers of 5,000 digits
        raise AnnotationError(f"{path} is no GeoJSON ({error}); export it again") from None
    if isinstance(found, dict):
        found = found.get("features") if found.get("type") == "FeatureCollection" else [found]
    if not isinstance(found, list) or not all(isinstance(f, dict) for f in found):
        raise AnnotationError(f"{path} is no GeoJSON: it has no list of features; export it again")
    return found


def _label(path: Path, number: int, classification: Any, classes: Classes) -> int | None:
    name = classification.get("name") if isinstance(classification, dict) else classification
    if not (name is None or isinstance(name, str)):
        raise AnnotationError(f"{path}, annotation {number}: its class is no text")
    if name not in classes:
        raise AnnotationError(
            f"{path}, annotation {number} is of the class {name!r:.80}, which classes does not "
            "name; say what it means: 1, 0, or None to leave it out"
        )
    return classes[name]


def _geometry(path: Path, number: int, found: Any) -> Any:
    """A shapely geometry of an area or of points."""
    shapely = _shapely()
    kind = found.get("type") if isinstance(found, dict) else None
    try:
        if kind in POINTS:
            return shapely.MultiPoint(_xy(np.atleast_2d(np.asarray(found["coordinates"]))))
        if kind in AREAS:
            areas = found["coordinates"] if kind == "MultiPolygon" else [found["coordinates"]]
            parts = [[_xy(np.asarray(ring)) for ring in rings] for rings in areas]
            return shapely.MultiPolygon([shapely.Polygon(p[0], p[1:]) for p in parts])
    except (KeyError, IndexError, TypeError, ValueError, shapely.errors.ShapelyError) as error:
        raise AnnotationError(f"{path}, annotation {number}: no outline ({error})") from None
    raise AnnotationError(
        f"{path}, annotation {number} is a {kind!r:.80}; areas (Polygon) and points give labels: "
        "leave its class out (None), or remove it"
    )


def _xy(points: Array) -> Array:
    if points.ndim != 2 or points.shape[1] < 2 or points.dtype.kind not in "iuf":
        raise ValueError("coordinates must be pairs of numbers")
    if not np.all(np.abs(points.astype(np.float64)) <= FURTHEST):
        raise ValueError(f"coordinates must be finite, at most {FURTHEST:g} pixels")
    return points[:, :2].astype(np.float64)


def _covered(corners: Array, edge: float, outlines: list[tuple[int, Any]], label: int) -> Array:
    """(n,) share of each tile that outlines of a label cover; 1 where it holds a point."""
    shapely = _shapely()
    x, y = corners.T
    tiles = shapely.box(x, y, x + edge, y + edge)
    own = [geometry for of, geometry in outlines if of == label]
    points = [geometry for geometry in own if geometry.geom_type == "MultiPoint"]
    areas = [geometry for geometry in own if geometry.geom_type != "MultiPoint"]
    share = np.zeros(len(corners))
    tree = shapely.STRtree(tiles)
    for part in shapely.get_parts(shapely.union_all(areas)):
        hit = tree.query(part, predicate="intersects")
        share[hit] += shapely.area(shapely.intersection(tiles[hit], part)) / edge**2
    share[_holding(tree, corners, edge, shapely.get_parts(points))] = 1.0
    return np.minimum(share, 1.0)


def _holding(tree: Any, corners: Array, edge: float, points: Any) -> Array:
    """Numbers of the tiles that hold points; one on an edge is of the tile that begins there."""
    of, tile = tree.query(points, predicate="intersects")
    place = _shapely().get_coordinates(points)[of]
    return tile[np.all(place < corners[tile] + edge, axis=1)]
