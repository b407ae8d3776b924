"""Where in a bag the positive instances are: probability and uncertainty side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.one_model import check_one_model
from bagwise.plots.style import INK, TRACK, Floats, column, one_bag, require_matplotlib, vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lightness runs one way in both, so order survives grey print and colour blindness.
_PROBABILITY = ("#FBF3E4", "#FDC88B", "#F48A4B", "#C9412F", "#6D0B2F")
_UNCERTAINTY = ("#EFF4F8", "#B9D2E6", "#6FA8D0", "#2B70AD", "#0B2F5E")


class HeatmapDisplay:
    """Probability and uncertainty of each instance at its place in the bag [M24, Fig. 5].

    Places are (n, 2) coordinates, x to the right and y downwards as in images. Instances of a
    regular grid are drawn as tiles, others as dots; `image` is drawn underneath.

    >>> xy = [[x, y] for x in range(4) for y in range(3)]
    >>> display = HeatmapDisplay(xy, np.linspace(0, 1, 12), np.full(12, 0.1)).plot()
    >>> [ax.get_title(loc="left") for ax in display.ax_]
    ['probability', 'standard deviation']
    """

    figure_: Figure
    ax_: NDArray[Any]

    def __init__(
        self,
        coords: ArrayLike,
        p: ArrayLike,
        std: ArrayLike,
        *,
        image: ArrayLike | None = None,
        extent: tuple[float, float, float, float] | None = None,
        vmax: float | None = None,
    ) -> None:
        self.coords = np.asarray(coords, dtype=np.float64)
        if self.coords.ndim != 2 or self.coords.shape[1] != 2:
            raise ValueError(f"coords must be (n, 2), got shape {self.coords.shape}")
        self.p = column(p, len(self.coords))
        self.std = vector(std, len(self.coords), "std")
        self.image = None if image is None else np.asarray(image)
        self.extent = extent
        self.vmax = vmax

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

    @classmethod
    def from_predictions(
        cls, coords: ArrayLike, p: ArrayLike, std: ArrayLike, *, ax: Any = None, **more: Any
    ) -> Self:
        """Draw given probabilities at given places."""
        return cls(coords, p, std, **more).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw into two axes, or into a new figure."""
        require_matplotlib()
        axes = self._new_axes() if ax is None else np.asarray(ax, dtype=object).ravel()
        if len(axes) != 2:
            raise ValueError(f"ax must be two axes, for probability and uncertainty; got {axes!r}")
        self._panel(axes[0], self.p, _PROBABILITY, "probability", self.vmax or 1.0)
        top = max(float(self.std.max()), 1e-3)
        self._panel(axes[1], self.std, _UNCERTAINTY, "standard deviation", top)
        self.ax_, self.figure_ = axes, axes[0].figure
        return self

    def _new_axes(self) -> NDArray[Any]:
        from matplotlib import pyplot as plt

        spans = np.ptp(self.coords, axis=0)
        height = float(np.clip(3.6 * spans[1] / max(spans[0], 1e-12), 1.6, 6.0))
        _, axes = plt.subplots(1, 2, figsize=(8.6, height + 0.6), layout="constrained")
        return np.asarray(axes)

    def _panel(
        self, ax: Axes, values: Floats, colours: tuple[str, ...], title: str, top: float
    ) -> None:
        from matplotlib.collections import PatchCollection
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.patches import Circle, Rectangle

        if self.image is not None:
            ax.imshow(self.image, extent=self.extent, cmap="gray", alpha=0.65)
        size, is_grid = _cell(self.coords)
        order = np.argsort(values, kind="stable")  # the strongest are drawn last, on top
        half = np.full(2, size / 2)
        patches = [
            Rectangle(tuple(self.coords[i] - half), size, size)
            if is_grid
            else Circle(tuple(self.coords[i]), 0.34 * size)
            for i in order
        ]
        drawn = PatchCollection(
            patches,
            cmap=LinearSegmentedColormap.from_list(title, colours),
            edgecolor="none" if is_grid else INK,
            linewidth=0 if is_grid else 0.15,
            alpha=0.75 if self.image is not None else None,
        )
        drawn.set_array(values[order])
        drawn.set_clim(0, top)
        ax.add_collection(drawn)
        low, high = self.coords.min(axis=0) - size, self.coords.max(axis=0) + size
        ax.set(xlim=(low[0], high[0]), ylim=(high[1], low[1]), aspect="equal", xticks=[], yticks=[])
        ax.set_title(title, loc="left", fontsize=10, color=INK)
        ax.spines[:].set_color(TRACK)
        bar = ax.figure.colorbar(drawn, ax=ax, shrink=0.85, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8, length=2)


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
