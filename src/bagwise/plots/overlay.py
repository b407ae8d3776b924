"""Predictions over pictures: heatmaps on slides and CT scans, boxes on images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise.plots.heatmap import PROBABILITY_COLOURS, HeatmapDisplay, colour_map
from bagwise.plots.style import (
    INK,
    POSITIVE,
    Floats,
    column,
    new_figure,
    require_matplotlib,
    vector,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASS_COLORS = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#F0E442", "#0072B2")


def plot_slide_heatmap(
    coords: ArrayLike,
    p: ArrayLike,
    std: ArrayLike | None = None,
    *,
    patch_size: float | tuple[float, float],
    thumbnail: Any = None,
    downsample: float = 1.0,
    top: float | None = 1.0,
    title: str | None = None,
) -> Figure:
    """Draw the probability of each patch over the slide, and beside it its uncertainty.

    Parameters
    ----------
    coords : (n, 2) x and y of the patches' upper left corners, in pixels of level 0.
    p, std : (n,) or both columns of `predict_instance_proba(bags, return_std=True)`.
    patch_size : side of a patch in the units of coords (`SlideFeatures.patch_size_level0`, or
        `.stride`), or (width, height).
    thumbnail : (height, width) or (height, width, 3) picture of the slide, or None.
    downsample : pixels of level 0 per pixel of the thumbnail.
    top : probability at the top of the colour scale; None: the largest there is, which tells
        patches apart where all probabilities are low.

    >>> figure = plot_slide_heatmap([[0, 0], [512, 0]], [0.1, 0.9], [0.1, 0.2], patch_size=512)
    >>> len(figure.axes)
    4
    """
    corners = np.asarray(coords, dtype=np.float64)
    width, height = (float(side) for side in np.broadcast_to(patch_size, 2))
    half = np.array([width, height]) / 2
    extent = None
    if thumbnail is not None:
        rows, columns = np.shape(thumbnail)[:2]
        extent = (0.0, columns * downsample, rows * downsample, 0.0)
    display = HeatmapDisplay(
        corners + half if corners.ndim == 2 else corners,
        p,
        std,
        image=thumbnail,
        extent=extent,
        tile=(width, height),
        vmax="largest" if top is None else top,
    ).plot()
    if title is not None:
        display.figure_.suptitle(title, fontsize=12, weight="bold", color=INK)
    return display.figure_


def plot_ct_montage(
    images: ArrayLike,
    image_shape: tuple[int, ...],
    p: ArrayLike,
    std: ArrayLike | None = None,
    *,
    columns: int = 8,
    truth: ArrayLike | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the slices of a scan side by side, each framed in the colour of its probability.

    Parameters
    ----------
    images : (n, D) slices, flattened, e.g. `bags[0].X`.
    image_shape : (channels, height, width) or (height, width) of a slice; three channels are
        shown as colours, as the windows of [C24, Fig. 7].
    p, std : (n,) or both columns of `predict_instance_proba(bags[0], return_std=True)`.
    truth : (n,) true labels where known; positive slices get a mark.

    >>> figure = plot_ct_montage(np.zeros((3, 16)), (4, 4), [0.1, 0.5, 0.9])
    >>> len(figure.axes[0].images) + len(figure.axes[1].images)
    2
    """
    require_matplotlib()
    pictures = _pictures(images, image_shape)
    n = len(pictures)
    p = column(p, n)
    spread = None if std is None else vector(std, n, "std")
    marks = np.zeros(n) if truth is None else vector(truth, n, "truth")
    colours = colour_map(PROBABILITY_COLOURS)
    columns = min(columns, n)
    rows = -(-n // columns)
    header = 0.5 if title else 0.1
    figure = new_figure(1.25 * columns, 1.5 * rows + header, dpi=130)
    for i, picture in enumerate(pictures):
        axes = figure.add_axes(_cell(i, rows, columns, header / (1.5 * rows + header)))
        axes.imshow(picture, cmap="gray", vmin=0.0, vmax=1.0)
        axes.set_xticks([])
        axes.set_yticks([])
        for side in axes.spines.values():
            side.set(color=colours(p[i]), linewidth=3)
        caption = f"{p[i]:.2f}" + ("" if spread is None else f" ± {spread[i]:.2f}")
        axes.set_xlabel(caption, fontsize=7.5, color=POSITIVE if marks[i] == 1 else INK, labelpad=2)
    if title:
        figure.suptitle(title, fontsize=11, weight="bold", color=INK)
    return figure


def _pictures(images: ArrayLike, image_shape: tuple[int, ...]) -> Floats:
    """(n, height, width) or (n, height, width, 3) with values stretched to 0..1."""
    flat = np.asarray(images, dtype=np.float64)
    shape = (1, *image_shape) if len(image_shape) == 2 else tuple(image_shape)
    if flat.ndim != 2 or len(flat) == 0 or len(shape) != 3 or int(np.prod(shape)) != flat.shape[1]:
        raise ValueError(
            f"images must be (n, D) with D = {int(np.prod(image_shape))} for image_shape="
            f"{image_shape!r}; got shape {flat.shape}"
        )
    low, high = float(flat.min()), float(flat.max())
    flat = (flat - low) / (high - low) if high > low else np.zeros_like(flat)
    stack = flat.reshape(len(flat), *shape)
    if shape[0] == 3:
        return stack.transpose(0, 2, 3, 1)
    return np.asarray(stack.mean(axis=1))


def _cell(i: int, rows: int, columns: int, header: float) -> tuple[float, float, float, float]:
    """Place of the i-th of rows x columns pictures below a header, in shares of the figure."""
    row, column = divmod(i, columns)
    height = (1 - header) / rows
    return (
        (column + 0.06) / columns,
        1 - header - (row + 0.84) * height,
        0.88 / columns,
        0.8 * height,
    )


def plot_detections(
    images: Sequence[Any],
    detections: Sequence[Sequence[Any]],
    truth: Sequence[Sequence[Any]] | None = None,
    *,
    columns: int = 4,
    min_score: float = 0.5,
    title: str | None = None,
) -> Figure:
    """Draw images with the boxes found in them, their class, probability and its uncertainty.

    Parameters
    ----------
    images : grey or colour images, channels last.
    detections : for each image its `bagwise.detection.Detection` objects; those below `min_score`
        are not drawn.
    truth : for each image its true `Box` objects, drawn dashed in white.

    >>> from bagwise.bags.boxes import Detection
    >>> found = [[Detection("dog", (1, 1, 5, 5), 0.9, 0.05)]]
    >>> len(plot_detections([np.zeros((8, 8))], found).axes[0].patches)
    1
    """
    require_matplotlib()
    if not len(images) == len(detections) == (len(images) if truth is None else len(truth)):
        raise ValueError("images, detections and truth must have one entry per image")
    labels = sorted({d.label for found in detections for d in found}, key=str)
    colors = {label: CLASS_COLORS[i % len(CLASS_COLORS)] for i, label in enumerate(labels)}
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    figure = new_figure(2.6 * columns, 2.7 * rows + 0.4, dpi=120, layout="constrained")
    for i, image in enumerate(images):
        axes = figure.add_subplot(rows, columns, i + 1)
        axes.imshow(np.asarray(image), cmap="gray")
        axes.set_axis_off()
        for known in () if truth is None else truth[i]:
            _draw_box(axes, known.box, "white", style="--")
        for d in detections[i]:
            if d.score >= min_score:
                _draw_box(axes, d.box, colors[d.label])
                text = f"{d.label}: {d.score:.2f} ± {d.std:.2f}"
                _write_above(axes, d.box, text, colors[d.label])
    if title is not None:
        figure.suptitle(title, fontsize=12, weight="bold", color=INK)
    return figure


def _draw_box(axes: Axes, box: tuple[float, ...], color: str, style: str = "-") -> None:
    from matplotlib.patches import Rectangle

    x0, y0, x1, y1 = box
    # imshow puts the centre of pixel 0 at 0, while a box starts at its edge.
    corner = (x0 - 0.5, y0 - 0.5)
    axes.add_patch(Rectangle(corner, x1 - x0, y1 - y0, fill=False, ec=color, ls=style, lw=1.8))


def _write_above(axes: Axes, box: tuple[float, ...], text: str, color: str) -> None:
    axes.text(
        box[0] - 0.5,
        box[1] - 1.0,
        text,
        color="black",
        fontsize=7,
        va="bottom",
        bbox={"facecolor": color, "edgecolor": "none", "pad": 1.0},
    )
