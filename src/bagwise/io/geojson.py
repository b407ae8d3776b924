"""Tiles as GeoJSON for QuPath, with predictions or as annotations, written as a stream."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.core.files.atomic import atomic_file
from bagwise.core.parameters import check_choice


def write_geojson(
    path: str | os.PathLike[str],
    coords: ArrayLike,
    p_mean: ArrayLike,
    p_std: ArrayLike,
    tile_size: float,
    *,
    kind: str = "tile",
    classes: ArrayLike | None = None,
    p_range: tuple[ArrayLike, ArrayLike] | None = None,
    more: Mapping[str, ArrayLike] | None = None,
    names: ArrayLike | None = None,
    overwrite: bool = False,
) -> None:
    """Write one square tile per instance with the measurements p_mean and p_std.

    QuPath opens the file with File > Import objects, and colours tiles by each measurement
    under Measure > Show measurement maps. Features are written one after the other, so memory
    does not grow with their number.

    Parameters
    ----------
    coords : (n, 2) the upper left corner of each tile, in pixels of the full-resolution image.
    p_mean, p_std : (n,) probability of the positive class and its standard deviation.
    tile_size : edge of a tile in the same pixels.
    kind : "tile", or "annotation" for objects that can be edited in QuPath.
    classes : (n,) names of the classes that QuPath gives them.
    p_range : both ends of the probability, (n,) each, where the model knows them: the
        measurements p_low and p_high.
    more : further measurements by their names, (n,) each.
    names : (n,) shown as the name of each tile.
    """
    corners = np.asarray(coords, dtype=np.float64)
    measured = {"p_mean": p_mean, "p_std": p_std}
    if p_range is not None:
        measured |= {"p_low": p_range[0], "p_high": p_range[1]}
    measured |= more or {}
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in measured.items()}
    if corners.ndim != 2 or corners.shape[1] != 2:
        raise ValueError(f"tiles need (n, 2) coordinates, got shape {corners.shape}")
    shapes = [values.shape for values in columns.values()]
    if any(shape != (len(corners),) for shape in shapes):
        raise ValueError(
            f"{' and '.join(columns)} need one number per tile, {len(corners)}; got shapes "
            f"{' and '.join(map(str, shapes))}"
        )
    if not 0 < tile_size < np.inf:
        raise ValueError(f"tile_size must be a positive number of pixels, got {tile_size!r}")
    check_choice("kind", kind, ("tile", "annotation"))
    texts = {"name": names, "classification": classes}
    told = {key: np.asarray(values) for key, values in texts.items() if values is not None}
    if any(values.shape != (len(corners),) for values in told.values()):
        raise ValueError(f"names and classes need one text per tile, {len(corners)}")
    with atomic_file(path, overwrite=overwrite) as file:
        file.write(b'{"type":"FeatureCollection","features":[')
        for i, feature in enumerate(_features(corners, columns, float(tile_size), kind, told)):
            file.write((",\n" if i else "\n").encode())
            file.write(json.dumps(feature, separators=(",", ":"), allow_nan=False).encode())
        file.write(b"\n]}\n")


def _features(
    corners: NDArray[np.float64],
    measured: dict[str, NDArray[np.float64]],
    edge: float,
    kind: str,
    told: dict[str, NDArray[Any]],
) -> Iterator[dict[str, Any]]:
    for i, (x, y) in enumerate(corners.tolist()):
        ring = [[x, y], [x + edge, y], [x + edge, y + edge], [x, y + edge], [x, y]]
        properties: dict[str, Any] = {
            "objectType": kind,
            "measurements": {name: float(values[i]) for name, values in measured.items()},
        }
        if "name" in told:
            properties["name"] = str(told["name"][i])
        if "classification" in told:
            properties["classification"] = {"name": str(told["classification"][i])}
        yield {
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [ring]},
            "properties": properties,
        }
