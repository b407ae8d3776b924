"""What the papers show as pictures: curves, histograms and maps, drawn from rows of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.benchmark.results import Row
from bagwise.plots.style import INK, SERIES, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 110
WIDTH, HEIGHT = 4.4, 3.3  # inches of a panel
MARKS = "osD^vPX"
NO_MATPLOTLIB = "No picture: drawing needs matplotlib (pip install 'bagwise[plot]')."
Place = tuple[str, str]  # a setting and one of its measures


@dataclass(frozen=True)
class Curves:
    """Lines over x, or groups of bars: one series of places by name."""

    xlabel: str
    ylabel: str
    x: Sequence[float | str]
    series: Mapping[str, Sequence[Place]]
    bars: bool = False
    title: str = ""


@dataclass(frozen=True)
class Map:
    """Probabilities of the instances of one bag on a square grid, row by row."""

    title: str
    setting: str
    measures: Sequence[str]


@dataclass(frozen=True)
class Picture:
    """A figure of a paper: panels side by side, with what it shows in words."""

    name: str
    caption: str
    panels: Sequence[Curves | Map]


def over_measures(settings: Sequence[str], measures: Sequence[str]) -> dict[str, list[Place]]:
    """One series per setting, whose points are measures.

    >>> over_measures(["VGPMIL"], ["0 %", "100 %"])
    {'VGPMIL': [('VGPMIL', '0 %'), ('VGPMIL', '100 %')]}
    """
    return {setting: [(setting, measure) for measure in measures] for setting in settings}


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def draw(picture: Picture, rows: Sequence[Row], path: Path) -> None:
    """Draw the means of the rows of one table, shaded from the lowest to the highest."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    n = len(picture.panels)
    wide = WIDTH if any(isinstance(panel, Curves) for panel in picture.panels) else 0.6 * WIDTH
    figure = Figure(figsize=(wide * n + (1.2 if n == 1 else 0.0), HEIGHT), layout="constrained")
    axes = figure.subplots(1, n, squeeze=False)[0]
    for ax, panel in zip(axes, picture.panels, strict=True):
        if isinstance(panel, Map):
            _map(ax, panel, rows)
        else:
            _curves(ax, panel, rows)
        ax.set_title(panel.title, loc="left", fontsize=9, color=INK)
    drawn: dict[str, Any] = {}
    for ax in axes:
        handles, names = ax.get_legend_handles_labels()
        drawn |= dict(zip(names, handles, strict=True))
    if drawn:
        figure.legend(
            list(drawn.values()), list(drawn), loc="outside lower center", frameon=False,
            fontsize=8, ncols=1 if n == 1 else 2,
        )  # fmt: skip
    figure.set_size_inches(figure.get_figwidth(), HEIGHT + 0.2 * len(drawn) / min(n, 2))
    FigureCanvasAgg(figure).print_png(path, metadata={"Software": None})


def spread(rows: Sequence[Row], place: Place) -> tuple[float, float, float]:
    """Mean, lowest and highest of a measure of a setting; NaN where it was not run."""
    setting, measure = place
    found = [row[measure] for row in rows if row["model"] == setting and measure in row]
    values: NDArray[np.float64] = np.array([v for v in found if v is not None], dtype=np.float64)
    if not values.size:
        return np.nan, np.nan, np.nan
    return float(values.mean()), float(values.min()), float(values.max())


def _curves(ax: Axes, panel: Curves, rows: Sequence[Row]) -> None:
    at = np.arange(len(panel.x), dtype=np.float64)
    numbers = all(not isinstance(x, str) for x in panel.x)
    if numbers:
        at = np.array(panel.x, dtype=np.float64)
    width = 0.8 / len(panel.series)
    for i, (name, places) in enumerate(panel.series.items()):
        mean, low, high = np.array([spread(rows, place) for place in places]).T
        colour = SERIES[i % len(SERIES)]
        if panel.bars:
            ax.bar(at + (i + 0.5) * width - 0.4, mean, width, color=colour, label=name)
            continue
        ax.plot(at, mean, color=colour, marker=MARKS[i % len(MARKS)], ms=4, lw=1.5, label=name)
        if np.any(high > low):
            ax.fill_between(at, low, high, color=colour, alpha=0.15, lw=0)
    if not numbers:
        ax.set_xticks(at, [str(x) for x in panel.x])
    ax.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
    tidy(ax)


def _map(ax: Axes, panel: Map, rows: Sequence[Row]) -> None:
    p = np.array([spread(rows, (panel.setting, measure))[0] for measure in panel.measures])
    side = round(np.sqrt(len(p)))
    ax.imshow(p.reshape(side, side), cmap="gray", vmin=0, vmax=1)
    ax.set(xticks=[], yticks=[])
