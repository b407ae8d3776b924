"""Bags of small images with the predictions under them [C24, Fig. 2]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise.bags import Bags
from bagwise.plots.style import (
    INK,
    POSITIVE,
    PROBABILITY,
    QUIET,
    TRACK,
    Floats,
    column,
    new_figure,
    require_matplotlib,
    vector,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# All lengths below are in widths of one image.
LABEL_WIDTH = 2.15
GAP = 0.22
CAPTION = 0.47
ROW_GAP = 0.24
HEADER = 0.4
INCHES_PER_IMAGE = 0.82
DPI = 130  # smooth images in a file of a few hundred kB


def plot_image_bags(
    bags: Bags,
    image_shape: tuple[int, int],
    p: ArrayLike,
    std: ArrayLike | None = None,
    truth: ArrayLike | None = None,
    *,
    bag_p: ArrayLike | None = None,
    bag_std: ArrayLike | None = None,
    positive_label: Any = 1,
    frame_name: str = "truly positive",
    title: str | None = None,
    subtitle: str | None = None,
    images_per_row: int = 10,
) -> Figure:
    """Draw the images of each bag with the probability of each under it.

    Parameters
    ----------
    bags : the rows of `bags.X` are images, flattened.
    image_shape : height and width of an image.
    p, std : probability that an instance is positive and its standard deviation, as
        `predict_instance_proba(bags, return_std=True)` gives them: (N,) or both columns.
    truth : (N,) true instance labels 0 and 1, where known: positive ones get a frame.
    bag_p, bag_std : the same for the bags; true bag labels are `bags.y`.
    positive_label : the value in `bags.y` that means positive.
    frame_name : what the legend says of a framed instance.
    title, subtitle : one line each, above the legend.

    Returns a matplotlib Figure; `figure.savefig("bags.png")` writes it.

    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(2, random_state=0)
    >>> figure = plot_image_bags(bags, (8, 8), np.full(20, 0.5), truth=truth)
    >>> len(figure.axes[0].images)
    20
    """
    require_matplotlib()
    check_images(bags, image_shape)
    shown = _Shown(
        bags,
        image_shape,
        column(p, bags.n_instances, "p"),
        None if std is None else vector(std, bags.n_instances, "std"),
        np.zeros(bags.n_instances) if truth is None else vector(truth, len(bags.X), "truth"),
        None if bag_p is None else column(bag_p, len(bags), "bag_p"),
        None if bag_std is None else vector(bag_std, len(bags), "bag_std"),
        positive_label,
    )
    return _draw_sheet(
        shown,
        min(images_per_row, int(bags.sizes.max())),
        title,
        subtitle,
        None if truth is None else frame_name,
    )


def _draw_sheet(
    shown: _Shown, columns: int, title: str | None, subtitle: str | None, frame_name: str | None
) -> Figure:
    """Titles, legend, and bag under bag with so many images in a line."""
    bags = shown.bags
    lines = -(-bags.sizes // columns)  # rows of images of each bag
    width = LABEL_WIDTH + columns + (columns - 1) * GAP + 0.1
    header = HEADER + 0.22 + 0.34 * (title is not None) + 0.34 * (subtitle is not None)
    height = header + float(np.sum(lines * (1 + CAPTION))) + len(bags) * ROW_GAP
    figure = new_figure(INCHES_PER_IMAGE * width, INCHES_PER_IMAGE * height, dpi=DPI)
    axes = figure.add_axes((0.012, 0.012, 0.976, 0.976))
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    axes.set_axis_off()
    legend_y = _draw_titles(axes, title, subtitle)
    _draw_legend(axes, legend_y, frame_name, shown.std is not None)
    top = legend_y + HEADER
    for b in range(len(bags)):
        _draw_bag(axes, shown, b, top, columns)
        top += float(lines[b]) * (1 + CAPTION) + ROW_GAP
        if b + 1 < len(bags):
            axes.plot([0, width], [top - 0.6 * ROW_GAP] * 2, color=TRACK, lw=0.8)
    return figure


def check_images(bags: Bags, image_shape: tuple[int, int]) -> None:
    """Check that the features of the bags are images of that shape."""
    if len(bags) == 0:
        raise ValueError("there are 0 bags to draw; pass at least one")
    if int(np.prod(image_shape)) != bags.n_features:
        raise ValueError(
            f"image_shape={image_shape!r} has {int(np.prod(image_shape))} pixels, but an instance "
            f"has {bags.n_features} features; pass the height and width of the images"
        )


@dataclass(frozen=True)
class _Shown:
    """Bags with everything that is written beside them."""

    bags: Bags
    image_shape: tuple[int, int]
    p: Floats
    std: Floats | None
    truth: Floats
    bag_p: Floats | None
    bag_std: Floats | None
    positive_label: Any


def _draw_titles(axes: Axes, title: str | None, subtitle: str | None) -> float:
    """Write the lines above the legend; returns where the legend goes."""
    y = 0.16
    if title is not None:
        axes.text(0, y, title, fontsize=12.5, weight="bold", color=INK, va="center")
        y += 0.34
    if subtitle is not None:
        axes.text(0, y, subtitle, fontsize=9, color=QUIET, va="center")
        y += 0.34
    return y + 0.06


def _draw_legend(axes: Axes, y: float, framed: str | None, spread: bool) -> None:
    from matplotlib.patches import Rectangle

    x = 0.0
    if framed is not None:
        box = Rectangle((x + 0.03, y - 0.13), 0.26, 0.26, fill=False, ec=POSITIVE, lw=2.2)
        axes.add_patch(box)
        axes.text(x + 0.42, y, framed, fontsize=9, color=INK, va="center")
        x += 0.85 + 0.075 * len(framed)
    _draw_bar(axes, x, y - 0.05, 0.7, 0.7)
    text = "predicted probability" + (" ± its standard deviation" if spread else "")
    axes.text(x + 0.82, y, text, fontsize=9, color=INK, va="center")


def _draw_bag(axes: Axes, shown: _Shown, b: int, top: float, columns: int) -> None:
    first, last = int(shown.bags.offsets[b]), int(shown.bags.offsets[b + 1])
    _draw_bag_label(axes, shown, b, top)
    low, high = float(shown.bags.X[first:last].min()), float(shown.bags.X[first:last].max())
    for n in range(first, last):
        line, column = divmod(n - first, columns)
        x = LABEL_WIDTH + column * (1 + GAP)
        y = top + line * (1 + CAPTION)
        image = shown.bags.X[n].reshape(shown.image_shape)
        axes.imshow(
            image,
            cmap="gray_r",
            vmin=low,
            vmax=high,
            extent=(x, x + 1, y + 1, y),
            interpolation="bicubic",
        )
        _draw_frame(axes, x, y, positive=bool(shown.truth[n] == 1))
        _draw_bar(axes, x, y + 1.09, 1.0, float(shown.p[n]))
        caption = _with_spread(shown.p[n], None if shown.std is None else shown.std[n])
        axes.text(x + 0.5, y + 1.32, caption, fontsize=6.8, color=INK, ha="center", va="center")


def _draw_bag_label(axes: Axes, shown: _Shown, b: int, top: float) -> None:
    y = shown.bags.y
    if y is not None:
        positive = bool(y[b] == shown.positive_label)
        axes.text(
            0,
            top + 0.18,
            "positive bag" if positive else "negative bag",
            fontsize=9.5,
            weight="bold",
            color=POSITIVE if positive else QUIET,
            va="center",
        )
    if shown.bag_p is not None:
        spread = None if shown.bag_std is None else shown.bag_std[b]
        caption = f"P = {_with_spread(shown.bag_p[b], spread)}"
        _draw_bar(axes, 0, top + 0.44, LABEL_WIDTH - 0.6, float(shown.bag_p[b]))
        axes.text(0, top + 0.72, caption, fontsize=8.5, color=INK, va="center")


def _draw_frame(axes: Axes, x: float, y: float, *, positive: bool) -> None:
    from matplotlib.patches import Rectangle

    pad = 0.03 if positive else 0.0
    axes.add_patch(
        Rectangle(
            (x - pad, y - pad),
            1 + 2 * pad,
            1 + 2 * pad,
            fill=False,
            ec=POSITIVE if positive else "#C8C8C8",
            lw=2.4 if positive else 0.6,
        )
    )


def _draw_bar(axes: Axes, x: float, y: float, width: float, share: float) -> None:
    """A thin bar, filled from the left in proportion to a probability."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, 0.1, color=TRACK, lw=0))
    axes.add_patch(Rectangle((x, y), width * share, 0.1, color=PROBABILITY, lw=0))


def _with_spread(p: float, std: float | None) -> str:
    return f"{p:.2f}" if std is None else f"{p:.2f} ± {std:.2f}"
