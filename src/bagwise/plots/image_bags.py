"""Bags of small images with the predictions under them [C24, Fig. 2]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from bagwise.bags import Bags
from bagwise.models.single_model import check_one_model
from bagwise.plots.style import (
    INK,
    POSITIVE,
    PROBABILITY,
    QUIET,
    TRACK,
    Display,
    column,
    new_figure,
    vector,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# All lengths below are in widths of one image.
LABEL_WIDTH = 2.15
GAP = 0.22
CAPTION = 0.47
ROW_GAP = 0.24
HEADER = 0.4
INCHES_PER_IMAGE = 0.82
DPI = 130  # smooth images in a file of a few hundred kB


class ImageBagsDisplay(Display):
    """The images of each bag, with the probability of each under it [C24, Fig. 2].

    Parameters
    ----------
    bags : the rows of `bags.X` are images, flattened; true bag labels are `bags.y`.
    image_shape : height and width of an image.
    p, std : probability that an instance is positive and its standard deviation, as
        `predict_instance_proba(bags, return_std=True)` gives them: (N,) or both columns.
    truth : (N,) true instance labels 0 and 1, where known: positive ones get a frame.
    bag_p, bag_std : the same as `p` and `std` for the bags.
    positive_label : the value in `bags.y` that means positive.
    frame_name : what the legend says of a framed instance.
    title, subtitle : one line each, above the legend.

    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(2, random_state=0)
    >>> display = ImageBagsDisplay(bags, (8, 8), np.full(20, 0.5), truth=truth).plot()
    >>> len(display.ax_.images)
    20
    """

    def __init__(
        self,
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
    ) -> None:
        check_images(bags, image_shape)
        self.bags = bags
        self.image_shape = image_shape
        self.p = column(p, bags.n_instances, "p")
        self.std = None if std is None else vector(std, bags.n_instances, "std")
        self.truth = None if truth is None else vector(truth, bags.n_instances, "truth")
        self.bag_p = None if bag_p is None else column(bag_p, len(bags), "bag_p")
        self.bag_std = None if bag_std is None else vector(bag_std, len(bags), "bag_std")
        self.positive_label = positive_label
        self.frame_name = frame_name
        self.title = title
        self.subtitle = subtitle
        self.images_per_row = min(images_per_row, int(bags.sizes.max()))

    @classmethod
    def from_estimator(
        cls, model: Any, bags: Bags, image_shape: tuple[int, int], *, ax: Axes | None = None,
        **more: Any,
    ) -> Self:  # fmt: skip
        """Draw the predictions of a fitted model for bags of images."""
        check_one_model(model)
        check_images(bags, image_shape)
        p, std = model.predict_instance_proba(bags, return_std=True)
        bag_p, bag_std = model.predict_proba(bags, return_std=True)
        more.setdefault("truth", bags.instance_labels)
        more.setdefault("positive_label", model.classes_[1])
        return cls(bags, image_shape, p, std, bag_p=bag_p, bag_std=bag_std, **more).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new figure of the right size."""
        columns = self.images_per_row
        lines = -(-self.bags.sizes // columns)  # rows of images of each bag
        width = LABEL_WIDTH + columns + (columns - 1) * GAP + 0.1
        titles = (self.title is not None) + (self.subtitle is not None)
        header = HEADER + 0.22 + 0.34 * titles
        height = header + float(np.sum(lines * (1 + CAPTION))) + len(self.bags) * ROW_GAP
        if ax is None:
            figure = new_figure(INCHES_PER_IMAGE * width, INCHES_PER_IMAGE * height, dpi=DPI)
            ax = figure.add_axes((0.012, 0.012, 0.976, 0.976))
        ax.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
        ax.set_axis_off()
        legend_y = _draw_titles(ax, self.title, self.subtitle)
        framed = None if self.truth is None else self.frame_name
        _draw_legend(ax, legend_y, framed, self.std is not None)
        top = legend_y + HEADER
        for b in range(len(self.bags)):
            self._draw_bag(ax, b, top)
            top += float(lines[b]) * (1 + CAPTION) + ROW_GAP
            if b + 1 < len(self.bags):
                ax.plot([0, width], [top - 0.6 * ROW_GAP] * 2, color=TRACK, lw=0.8)
        return self.drawn_in(ax)

    def _draw_bag(self, ax: Axes, b: int, top: float) -> None:
        bags = self.bags
        first, last = int(bags.offsets[b]), int(bags.offsets[b + 1])
        self._draw_bag_label(ax, b, top)
        # Pixels that are missing stay empty.
        low, high = float(np.nanmin(bags.X[first:last])), float(np.nanmax(bags.X[first:last]))
        for n in range(first, last):
            line, place = divmod(n - first, self.images_per_row)
            x = LABEL_WIDTH + place * (1 + GAP)
            y = top + line * (1 + CAPTION)
            ax.imshow(
                bags.X[n].reshape(self.image_shape),
                cmap="gray_r",
                vmin=low,
                vmax=high,
                extent=(x, x + 1, y + 1, y),
                interpolation="bicubic",
            )
            _draw_frame(ax, x, y, positive=self.truth is not None and bool(self.truth[n] == 1))
            _draw_bar(ax, x, y + 1.09, 1.0, float(self.p[n]))
            caption = _with_spread(self.p[n], None if self.std is None else self.std[n])
            ax.text(x + 0.5, y + 1.32, caption, fontsize=6.8, color=INK, ha="center", va="center")

    def _draw_bag_label(self, ax: Axes, b: int, top: float) -> None:
        if self.bags.y is not None:
            positive = bool(self.bags.y[b] == self.positive_label)
            ax.text(
                0,
                top + 0.18,
                "positive bag" if positive else "negative bag",
                fontsize=9.5,
                weight="bold",
                color=POSITIVE if positive else QUIET,
                va="center",
            )
        if self.bag_p is not None:
            spread = None if self.bag_std is None else self.bag_std[b]
            caption = f"P = {_with_spread(self.bag_p[b], spread)}"
            _draw_bar(ax, 0, top + 0.44, LABEL_WIDTH - 0.6, float(self.bag_p[b]))
            ax.text(0, top + 0.72, caption, fontsize=8.5, color=INK, va="center")


def check_images(bags: Bags, image_shape: tuple[int, int]) -> None:
    """Check that the features of the bags are images of that shape."""
    if len(bags) == 0:
        raise ValueError("there are 0 bags to draw; pass at least one")
    if int(np.prod(image_shape)) != bags.n_features:
        raise ValueError(
            f"image_shape={image_shape!r} has {int(np.prod(image_shape))} pixels, but an instance "
            f"has {bags.n_features} features; pass the height and width of the images"
        )


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
