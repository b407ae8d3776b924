"""Where in a bag the positive instances are: probability and uncertainty side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.models.single_model import check_one_model
from bagwise.plots.style import (
    INK,
    TRACK,
    Display,
    Floats,
    column,
    one_bag,
    require_matplotlib,
    vector,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Lightness runs one way in both, so order survives grey print and colour blindness.
PROBABILITY_COLOURS = ("#FBF3E4", "#FDC88B", "#F48A4B", "#C9412F", "#6D0B2F")
SPREAD_COLOURS = ("#EFF4F8", "#B9D2E6", "#6FA8D0", "#2B70AD", "#0B2F5E")


class HeatmapDisplay(Display):
    """Probability and uncertainty of each instance at its place in the bag [M24, Fig. 5].

    Places are (n, 2) coordinates of the instances' centres, x to the right and y downwards as in
    images. Instances of a regular grid are drawn as tiles, others as dots; `tile`, the width and
    height of a tile, says that they are tiles. `image` is drawn underneath, over
    `extent` = (left, right, bottom, top), and seen where values are low. `std=None` leaves the
    second panel out. `vmax` is the probability at the top of the colour scale; "largest" is the
    largest there is, which tells instances apart where all probabilities are low.

    >>> xy = [[x, y] for x in range(4) for y in range(3)]
    >>> display = HeatmapDisplay(xy, np.linspace(0, 1, 12), np.full(12, 0.1)).plot()
    >>> [ax.get_title(loc="left") for ax in display.ax_]
    ['probability', 'standard deviation']
    """

    def __init__(
        self,
        coords: ArrayLike,
        p: ArrayLike,
        std: ArrayLike | None,
        *,
        image: ArrayLike | None = None,
        extent: tuple[float, float, float, float] | None = None,
        tile: tuple[float, float] | None = None,
        vmax: float | str = 1.0,
    ) -> None:
        self.coords = np.asarray(coords, dtype=np.float64)
        if self.coords.ndim != 2 or self.coords.shape[1] != 2 or not len(self.coords):
            raise ValueError(f"coords must be (n, 2), x and y; got shape {self.coords.shape}")
        self.p = column(p, len(self.coords))
        self.std = None if std is None else vector(std, len(self.coords), "std")
        self.image = None if image is None else np.asarray(image)
        self.extent = extent
        self.tile = tile
        self.vmax = max(float(self.p.max()), 1e-3) if vmax == "largest" else float(vmax)

    @classmethod
    def from_estimator(
        cls, model: Any, bag: Any, *, ax: Any = None, axes: tuple[int, int] = (0, 1), **more: Any
    ) -> Self:
        """Draw the predictions of a fitted model for one bag, over two columns of its coords."""
        check_one_model(model)
        bag = one_bag(bag)
        if bag.coords is None or bag.coords.shape[1] <= max(axes):
            raise ValueError("a heat map needs two coordinates per instance; give bags coords")
        p, std = model.predict_instance_proba(bag, return_std=True)
        return cls(bag.coords[:, axes], p, std, **more).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw into one axes per panel, or into a new figure."""
        require_matplotlib()
        panels = self._panels()
        axes = self._new_axes(len(panels)) if ax is None else np.asarray(ax, dtype=object).ravel()
        if len(axes) != len(panels):
            raise ValueError(
                f"ax must be {len(panels)} axes, for {' and '.join(n for n, *_ in panels)}; "
                f"got {len(axes)}"
            )
        for one, panel in zip(axes, panels, strict=True):
            self._draw(one, *panel)
        self.ax_, self.figure_ = axes, axes[0].figure
        return self

    def _panels(self) -> list[tuple[str, Floats, tuple[str, ...], float]]:
        """Name, values, colours and top of the scale of each picture side by side."""
        panels: list[tuple[str, Floats, tuple[str, ...], float]] = [
            ("probability", self.p, PROBABILITY_COLOURS, self.vmax)
        ]
        if self.std is not None:
            top = max(float(self.std.max()), 1e-3)
            panels.append(("standard deviation", self.std, SPREAD_COLOURS, top))
        return panels

    def _new_axes(self, n: int) -> NDArray[Any]:
        from matplotlib import pyplot as plt

        low, high = self._limits()
        width, height = high - low
        inches = float(np.clip(3.6 * height / max(width, 1e-12), 1.6, 6.0))
        _, axes = plt.subplots(1, n, figsize=(4.3 * n, inches + 0.6), layout="constrained")
        return np.atleast_1d(np.asarray(axes))

    def _limits(self) -> tuple[Floats, Floats]:
        """Corners of what is shown: all instances with some room, and the whole image."""
        room = _cell(self.coords)[0] if self.tile is None else np.asarray(self.tile) / 2
        low, high = self.coords.min(axis=0) - room, self.coords.max(axis=0) + room
        if self.image is not None and self.extent is not None:
            left, right, bottom, top = self.extent
            low = np.minimum(low, [min(left, right), min(bottom, top)])
            high = np.maximum(high, [max(left, right), max(bottom, top)])
        return low, high

    def _draw(
        self, ax: Axes, title: str, values: Floats, colours: tuple[str, ...], top: float
    ) -> None:
        if self.image is not None:
            ax.imshow(self.image, extent=self.extent, cmap="gray")
        drawn = self._marks(values, colours, top)
        ax.add_collection(drawn)
        low, high = self._limits()
        ax.set(xlim=(low[0], high[0]), ylim=(high[1], low[1]), aspect="equal", xticks=[], yticks=[])
        ax.set_title(title, loc="left", fontsize=10, color=INK)
        ax.spines[:].set_color(TRACK)
        bar = ax.figure.colorbar(drawn, ax=ax, shrink=0.85, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8, length=2)

    def _marks(self, values: Floats, colours: tuple[str, ...], top: float) -> Any:
        from matplotlib.collections import PatchCollection
        from matplotlib.patches import Circle, Rectangle

        size, is_grid = _cell(self.coords)
        width, height = (size, size) if self.tile is None else self.tile
        tiles = is_grid or self.tile is not None
        order = np.argsort(values, kind="stable")  # the strongest are drawn last, on top
        corners = self.coords[order] - [width / 2, height / 2]
        if tiles:
            marks: list[Any] = [Rectangle((x, y), width, height) for x, y in corners]
        else:
            marks = [Circle(tuple(self.coords[i]), 0.34 * size) for i in order]
        drawn = PatchCollection(
            marks,
            cmap=colour_map(colours),
            edgecolor="none" if tiles else INK,
            linewidth=0 if tiles else 0.15,
        )
        drawn.set_array(values[order])
        drawn.set_clim(0, top)
        if self.image is not None:  # low values let the picture through
            opacity = 0.75 * np.clip(0.15 + values[order] / top, 0.0, 1.0)
            drawn.set_alpha(opacity.tolist())
        return drawn


def colour_map(colours: tuple[str, ...]) -> Any:
    """The colours with all between them."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("bagwise", colours)


def _cell(coords: Floats) -> tuple[float, bool]:
    """Edge of a tile and whether the places are tiles of a grid; else the typical spacing."""
    steps = []
    for axis in coords.T:
        places = np.unique(axis)
        if len(places) > 1:
            steps.append(np.diff(places))
    if not steps:
        return 1.0, True
    step = min(float(s.min()) for s in steps)
    regular = all(np.allclose(s / step, np.rint(s / step), atol=0.02) for s in steps)
    cells = np.prod(np.ptp(coords, axis=0) / step + 1)
    if regular and cells <= 8 * len(coords):
        return step, True
    area = float(np.prod(np.maximum(np.ptp(coords, axis=0), 1e-12)))
    return max(step, float(np.sqrt(area / len(coords)))), False
