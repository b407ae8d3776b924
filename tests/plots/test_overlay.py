"""Pictures with predictions over them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from bagwise.bags.boxes import Box, Detection
from bagwise.plots import plot_ct_montage, plot_detections, plot_slide_heatmap

pytest.importorskip("matplotlib", reason='figures need: pip install ".[plot]"')


def drawn(figure: Any) -> int:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.tell()


def test_heatmap_puts_each_patch_in_its_place() -> None:
    coords = np.array([[0, 0], [512, 0], [512, 1024]])
    figure = plot_slide_heatmap(
        coords, [0.1, 0.9, 0.4], [0.05, 0.2, 0.1], patch_size=512,
        thumbnail=np.ones((30, 20, 3)), downsample=64,
    )  # fmt: skip
    heat, spread = (a.collections[0] for a in figure.axes[:2])  # then the colour bars
    # The strongest are drawn last, on top.
    np.testing.assert_array_equal(heat.get_array(), [0.1, 0.4, 0.9])
    np.testing.assert_array_equal(spread.get_array(), [0.05, 0.1, 0.2])
    assert heat.get_clim() == (0, 1) and spread.get_clim() == (0, 0.2)
    corners = [path.vertices.min(axis=0).tolist() for path in heat.get_paths()]
    assert corners == coords[[0, 2, 1]].tolist()
    # 20 pixels of 64: the thumbnail is 1280 wide, the patches reach 1536 down.
    assert figure.axes[0].get_xlim() == (0, 1280) and figure.axes[0].get_ylim() == (1920, 0)
    assert drawn(figure) > 1000


def test_heatmap_takes_both_columns_and_may_stretch_its_scale() -> None:
    p = np.array([[0.98, 0.02], [0.9, 0.1]])
    figure = plot_slide_heatmap([[0, 0], [1, 1]], p, patch_size=1, top=None)
    assert figure.axes[0].collections[0].get_clim() == (0, 0.1)
    assert len(figure.axes) == 2
    with pytest.raises(ValueError, match="p must have 2 entries"):
        plot_slide_heatmap([[0, 0], [1, 1]], [0.1], patch_size=1)
    with pytest.raises(ValueError, match=r"coords must be \(n, 2\), x and y"):
        plot_slide_heatmap([0, 1], [0.1, 0.2], patch_size=1)


@pytest.mark.parametrize("shape", [(8, 6), (1, 8, 6), (3, 8, 6)])
def test_montage(shape: tuple) -> None:
    X = np.random.default_rng(0).random((11, int(np.prod(shape))))
    p = np.linspace(0, 1, 11)
    figure = plot_ct_montage(X, shape, p, p / 10, columns=4, truth=p > 0.5, title="scan")
    assert len(figure.axes) == 11
    assert figure.axes[10].get_xlabel() == "1.00 ± 0.10"
    assert figure.axes[0].images[0].get_array().shape[:2] == (8, 6)
    assert drawn(figure) > 1000
    with pytest.raises(ValueError, match="image_shape"):
        plot_ct_montage(X, (5, 5), p)


def test_detections_are_drawn_above_the_limit() -> None:
    found = [[Detection("a", (1, 2, 5, 8), 0.9, 0.1), Detection("b", (0, 0, 3, 3), 0.2, 0.1)], []]
    truth = [[Box("a", (1, 2, 6, 8))], []]
    figure = plot_detections(np.zeros((2, 10, 10)), found, truth)
    first, second = figure.axes
    boxes = [(*b.get_xy(), b.get_width(), b.get_height()) for b in first.patches]
    assert boxes == [(0.5, 1.5, 5, 6), (0.5, 1.5, 4, 6)] and not second.patches
    assert [t.get_text() for t in first.texts] == ["a: 0.90 ± 0.10"]
    assert drawn(figure) > 1000
    with pytest.raises(ValueError, match="one entry per image"):
        plot_detections(np.zeros((2, 10, 10)), [[]])
