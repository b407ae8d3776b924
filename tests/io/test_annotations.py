"""Annotations of QuPath as instance labels, and suggestions back as annotations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.io import AnnotationError, SlideFeatures, annotate_bags, read_annotations
from command_line import good, refused, run, small_frame

pytest.importorskip("shapely")

GRID = np.array([[x, y] for y in range(0, 40, 10) for x in range(0, 40, 10)], dtype=float)  # 4 x 4
CLASSES = {"Tumor": 1, "Stroma": 0, "Fold": None}


def square(x0: float, y0: float, x1: float, y1: float) -> list[list[float]]:
    return [[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]]


def feature(coordinates: Any, name: Any = "Tumor", kind: str = "Polygon", **more: Any) -> Any:
    properties: dict[str, Any] = {"objectType": "annotation", **more}
    if name is not None:
        properties["classification"] = {"name": name, "color": [200, 0, 0]}
    geometry = {"type": kind, "coordinates": coordinates}
    return {"type": "Feature", "id": "x", "geometry": geometry, "properties": properties}


def written(tmp_path: Path, *features: Any, name: str = "s.geojson") -> Path:
    file = tmp_path / name
    file.write_text(json.dumps({"type": "FeatureCollection", "features": list(features)}))
    return file


def labels(tmp_path: Path, *features: Any, **more: Any) -> Any:
    how = {"classes": CLASSES, "tile_size": 10} | more
    return read_annotations(written(tmp_path, *features), GRID, **how)


def test_tiles_have_the_class_that_covers_most_of_them(tmp_path: Path) -> None:
    tumor, stroma = square(0, 0, 20, 24), square(20, 0, 40, 10)
    found = labels(tmp_path, feature([tumor]), feature([stroma], "Stroma")).reshape(4, 4)
    expected = np.full((4, 4), np.nan)
    expected[:2, :2] = 1  # of the third row 4 of 10 pixels
    expected[0, 2:] = 0
    np.testing.assert_array_equal(found, expected)
    low = labels(tmp_path, feature([tumor]), least=0.4).reshape(4, 4)
    assert np.all(low[2, :2] == 1)


def test_shares_are_those_of_counted_pixels(tmp_path: Path) -> None:
    """An octagon against the share of a fine grid of points inside of it."""
    rng = np.random.default_rng(0)
    angles = np.sort(rng.uniform(0, 2 * np.pi, 8))
    ring = 18 + 15 * np.column_stack([np.cos(angles), np.sin(angles)])
    file = written(tmp_path, feature([[*ring.tolist(), ring[0].tolist()]]))
    steps = (np.arange(100) + 0.5) / 10
    for i, (x, y) in enumerate(GRID):
        px, py = np.meshgrid(x + steps, y + steps)
        a, b = ring, np.roll(ring, -1, axis=0)
        side = [
            (q[0] - p[0]) * (py - p[1]) - (q[1] - p[1]) * (px - p[0])
            for p, q in zip(a, b, strict=True)
        ]
        share = np.mean(np.all(np.array(side) > 0, axis=0))
        for least in (share - 0.01, share + 0.01):
            if 0 < least <= 1:
                found = read_annotations(file, GRID, classes=CLASSES, tile_size=10, least=least)
                assert (found[i] == 1) == (least < share)


def test_holes_parts_overlaps_and_points(tmp_path: Path) -> None:
    ring = [square(0, 0, 40, 40), square(10, 10, 30, 30)]
    found = labels(tmp_path, feature(ring)).reshape(4, 4)
    assert np.isnan(found[1:3, 1:3]).all() and np.nansum(found) == 12
    parts = [[square(0, 0, 10, 10)], [square(30, 30, 40, 40)]]
    found = labels(tmp_path, feature(parts, kind="MultiPolygon")).reshape(4, 4)
    assert found[0, 0] == found[3, 3] == 1 and np.nansum(found) == 2
    # Two outlines of the same 4 pixels in 10 are not 8, and one half each says nothing.
    thin = feature([square(0, 0, 4, 10)])
    assert np.isnan(labels(tmp_path, thin, thin)).all()
    halves = feature([square(0, 0, 5, 10)]), feature([square(5, 0, 10, 10)], "Stroma")
    assert np.isnan(labels(tmp_path, *halves)).all()
    found = labels(tmp_path, feature([35, 5], kind="Point"), feature([[5, 5]], kind="MultiPoint"))
    assert found[3] == found[0] == 1 and np.nansum(found) == 2


def test_a_point_is_in_one_tile(tmp_path: Path) -> None:
    for x, y, tile in ((10, 5, 1), (10, 10, 5), (0, 0, 0)):
        found = labels(tmp_path, feature([x, y], kind="Point"))
        assert found[tile] == 1 and np.nansum(found) == 1
    assert np.isnan(labels(tmp_path, feature([40, 40], kind="Point"))).all()  # below the last tile


def test_points_count_inside_of_small_outlines_too(tmp_path: Path) -> None:
    small = feature([square(0, 0, 3, 10)])
    assert labels(tmp_path, small, feature([1, 1], kind="Point"))[0] == 1


def test_holes_that_touch_their_outline_are_holes(tmp_path: Path) -> None:
    rings = [square(0, 0, 20, 20), square(0, 0, 10, 10)]
    with pytest.warns(UserWarning, match="cross or touch themselves"):
        found = labels(tmp_path, feature(rings)).reshape(4, 4)
    assert np.isnan(found[0, 0]) and found[0, 1] == found[1, 0] == found[1, 1] == 1


def test_parts_that_overlap_are_their_union(tmp_path: Path) -> None:
    parts = [[square(0, 0, 20, 10)], [square(10, 0, 30, 10)]]
    with pytest.warns(UserWarning, match="cross or touch themselves"):
        found = labels(tmp_path, feature(parts, kind="MultiPolygon"))
    assert np.all(found[:3] == 1) and np.isnan(found[3:]).all()


def test_what_is_left_out(tmp_path: Path) -> None:
    whole = [square(0, 0, 40, 40)]
    assert np.isnan(labels(tmp_path, feature(whole, "Fold"))).all()
    assert np.isnan(labels(tmp_path, feature(whole, objectType="tile"))).all()
    unclassified = feature(whole, None)
    assert np.all(labels(tmp_path, unclassified, classes={None: 0, "Tumor": 1}) == 0)
    single = tmp_path / "one.geojson"
    single.write_text(json.dumps(feature(whole)))
    assert np.all(read_annotations(single, GRID, classes=CLASSES, tile_size=10) == 1)
    single.write_text(json.dumps([]))
    assert np.isnan(read_annotations(single, GRID, classes=CLASSES, tile_size=10)).all()


def test_slides_know_their_tiles(tmp_path: Path) -> None:
    file = written(tmp_path, feature([square(0, 0, 10, 40)]))
    slide = SlideFeatures(np.ones((16, 2)), GRID, 10)
    np.testing.assert_array_equal(
        read_annotations(file, slide, classes=CLASSES),
        read_annotations(file, GRID, classes=CLASSES, tile_size=10),
    )
    with pytest.raises(ValueError, match="tile_size must be a positive number"):
        read_annotations(file, SlideFeatures(np.ones((16, 2)), GRID), classes=CLASSES)
    with pytest.raises(ValueError, match="no coords"):
        read_annotations(file, SlideFeatures(np.ones((16, 2))), classes=CLASSES)


def test_outlines_that_cross_themselves_are_said(tmp_path: Path) -> None:
    bow = [[0, 0], [20, 20], [20, 0], [0, 20], [0, 0]]
    with pytest.warns(UserWarning, match="1 outlines cross or touch themselves"):
        labels(tmp_path, feature([bow]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no GeoJSON"),
        ("[" * 100_000, "is no GeoJSON"),
        ('"text"', "no list of features"),
        ('{"type": "FeatureCollection"}', "no list of features"),
        ("[1]", "no list of features"),
        (json.dumps([feature([square(0, 0, 1, 1)], "Unknown")]), "which classes does not name"),
        (json.dumps([feature([square(0, 0, 1, 1)], ["a"])]), "its class is no text"),
        (json.dumps([feature([[0, 0], [1, 1]], kind="LineString")]), "is a 'LineString'"),
        (json.dumps([feature([[[0, 0], [1, 1]]])]), "no outline"),
        (json.dumps([feature([[["a", 0], [1, 1], [2, 2], [0, 0]]])]), "no outline"),
        (json.dumps([feature([[[float("nan"), 0], [1, 1], [2, 2]]])]), "finite"),
        (json.dumps([feature([])]), "no outline"),
        (json.dumps([feature([1e300, 0], kind="Point")]), "at most 1e\\+12 pixels"),
        (json.dumps([feature([0, 0], kind="Point")]).replace("0, 0", "9" * 5000), "is no GeoJSON"),
        (json.dumps([feature(None, objectType=["annotation"])]), "say not what it is"),
        (json.dumps([feature(None) | {"properties": "text"}]), "say not what it is"),
        (json.dumps([feature(None)]), "no outline"),
        (json.dumps([{"type": "Feature", "properties": {"classification": "Tumor"}}]), "is a None"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "a.geojson"
    file.write_text(text)
    with pytest.raises(AnnotationError, match=message):
        read_annotations(file, GRID, classes=CLASSES, tile_size=10)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"classes": {"Tumor": 2}}, "got 2 for 'Tumor'"),
        ({"classes": {"Tumor": None}}, "none is 1 or 0"),
        ({"tile_size": 0}, "tile_size"),
        ({"least": 0}, "least is a share"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        labels(tmp_path, **how)


def make_bags(**more: Any) -> bw.Bags:
    X, bag = np.zeros((32, 1)), np.repeat(["s1", "s2"], 16)
    return bw.Bags.from_arrays(X, bag, y=[1, 0], coords=np.tile(GRID, (2, 1)), **more)


def test_outlines_that_cross_too_often_are_refused(tmp_path: Path) -> None:
    """A file of kilobytes would take gigabytes: n edges can cross n^2 / 2 times."""
    ring = [[i % 2 * 10.0, i * 7919 % 5003] for i in range(2000)]
    with pytest.raises(AnnotationError, match="annotation 1: its outline of 2000 edges crosses"):
        labels(tmp_path, feature([[*ring, ring[0]]]))
    bars = [feature([square(0, i, 999, i + 0.5)]) for i in range(500)]
    bars += [feature([square(i, 0, i + 0.5, 999)]) for i in range(500)]
    with pytest.raises(AnnotationError, match="label 1, of 4000 edges crosses itself too often"):
        labels(tmp_path, *bars)
    circle = 20 + 20j + 15 * np.exp(2j * np.pi * np.arange(20_000) / 20_000)
    circle[100:102] = circle[101:99:-1]  # a slip of the pen
    drawn = np.column_stack([circle.real, circle.imag]).tolist()
    with pytest.warns(UserWarning, match="1 outlines cross"):
        found = labels(tmp_path, feature([[*drawn, drawn[0]]]))
    assert np.nansum(found) >= 4


def test_bags_get_the_labels_of_their_files(tmp_path: Path) -> None:
    written(tmp_path, feature([square(0, 0, 10, 10)]), name="s1.geojson")
    found = annotate_bags(make_bags(), tmp_path, classes=CLASSES, tile_size=10)
    assert found.instance_labels is not None
    assert found.instance_labels[0] == 1 and np.isnan(found.instance_labels[1:]).all()
    before = np.full(32, np.nan)
    before[5] = 0
    both = annotate_bags(make_bags(instance_labels=before), tmp_path, classes=CLASSES, tile_size=10)
    assert both.instance_labels is not None and both.instance_labels[5] == 0
    before[0] = 0
    with pytest.raises(ValueError, match="says otherwise"):
        annotate_bags(make_bags(instance_labels=before), tmp_path, classes=CLASSES, tile_size=10)
    written(tmp_path, name="s3.geojson")
    with pytest.raises(AnnotationError, match=r"'s3.geojson' is of no bag"):
        annotate_bags(make_bags(), tmp_path, classes=CLASSES, tile_size=10)
    with pytest.raises(NotADirectoryError):
        annotate_bags(make_bags(), tmp_path / "no", classes=CLASSES, tile_size=10)
    with pytest.raises(ValueError, match="two coordinates"):
        annotate_bags(
            make_bags(), tmp_path, classes=CLASSES, tile_size=10, coords=np.zeros((32, 3))
        )


# --- From the command line -----------------------------------------------------------------------


def test_there_and_back(tmp_path: Path) -> None:
    """Suggestions go out as annotations; given a class in QuPath, they come back as labels."""
    frame = small_frame(20)
    frame["x"], frame["y"] = 10 * (np.arange(60) % 8), 10 * (np.arange(60) // 8)
    frame.to_csv(tmp_path / "t.csv", index=False)
    columns = ("--bag", "slide", "--label", "diagnosis", "--coords", "x", "y")
    fit = ("fit", tmp_path / "t.csv", *columns, "--positive", "cancer")
    good(*fit, "-o", tmp_path / "m.bagwise")
    out = tmp_path / "next"
    tiles = ("--tile-size", "10", "-k", "6")
    good("suggest", tmp_path / "m.bagwise", tmp_path / "t.csv", "-o", f"{out}/", *tiles)
    files = sorted(out.iterdir())
    ranks = []
    for file in files:
        asked = json.loads(file.read_text())
        for tile in asked["features"]:
            assert tile["properties"]["objectType"] == "annotation"
            assert tile["properties"]["classification"] == {"name": "to label"}
            ranks.append(int(tile["properties"]["name"]))
            tile["properties"]["classification"] = {"name": "Tumor"}
        file.write_text(json.dumps(asked))
    assert sorted(ranks) == [1, 2, 3, 4, 5, 6]
    told = ("--annotations", out, "--tile-size", "10")
    result = run(*fit, *told, "--class", "Tumor=1", "-o", tmp_path / "told.bagwise")
    assert result.exit_code == 0, result.stderr
    assert f"annotations in {out}: 6 positive, 0 negative" in result.stderr
    assert bw.load(tmp_path / "told.bagwise").left_out_positives_ is not None
    wrong = ("-o", tmp_path / "a.bagwise")
    assert "say what the classes" in refused(*fit, *wrong, *told)
    assert "size of tiles in pixels" in refused(*fit, *wrong, *told[:2], "--class", "Tumor=1")
    assert "--class takes" in refused(*fit, *wrong, "--class", "Tumor=2")
    assert "pass their folder" in refused(*fit, *wrong, "--class", "T=1")
    assert "pass their folder" in refused(*fit, *wrong, "--tile-size", "10")
    assert "end the output in /" in refused(
        "suggest", tmp_path / "m.bagwise", tmp_path / "t.csv", "-o", tmp_path / "a.geojson", *tiles
    )


def test_predicted_tiles_have_their_class(tmp_path: Path) -> None:
    bw.io.write_geojson(
        tmp_path / "a.geojson", GRID[:2], [0.1, 0.9], [0, 0], 10, classes=["no", "yes"]
    )
    tiles = json.loads((tmp_path / "a.geojson").read_text())["features"]
    assert [t["properties"]["classification"]["name"] for t in tiles] == ["no", "yes"]
    with pytest.raises(ValueError, match="one text per tile"):
        bw.io.write_geojson(tmp_path / "b.geojson", GRID[:2], [0, 1], [0, 0], 10, classes=["no"])
    with pytest.raises(ValueError, match="kind must be one of"):
        bw.io.write_geojson(tmp_path / "b.geojson", GRID[:2], [0, 1], [0, 0], 10, kind="cell")
