"""Figures of a benchmark: reliability of several models, ranking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from bagwise.plots.curves import ReliabilityDisplay
from bagwise.plots.style import INK, POSITIVE, PROBABILITY, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 130


def plot_reliability_panels(
    predictions: Mapping[str, tuple[ArrayLike, ArrayLike]], n_bins: int = 8
) -> Figure:
    """One small `ReliabilityDisplay` per model, from its labels (0 and 1) and probabilities.

    >>> figure = plot_reliability_panels({"A": ([0, 1, 1, 0], [0.1, 0.6, 0.9, 0.4])}, n_bins=2)
    >>> figure.axes[0].get_title(loc="left")
    'A'
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    columns = min(4, len(predictions))
    lines = -(-len(predictions) // columns)
    figure = Figure(figsize=(2.3 * columns, 2.35 * lines), dpi=DPI, layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes, (name, (y, p)) in zip(grid, predictions.items(), strict=False):
        ReliabilityDisplay.from_predictions(y, p, n_bins=n_bins, ax=axes)
        axes.set(xlabel="", ylabel="")
        axes.set_title(name, loc="left", fontsize=9, color=INK)
        axes.tick_params(labelsize=7)
    for axes in grid[len(predictions) :]:
        axes.set_axis_off()
    figure.supxlabel("predicted probability of a positive bag", fontsize=9)
    figure.supylabel("observed share", fontsize=9)
    return figure


def plot_ranking(ranks: Mapping[str, float], critical_difference: float) -> Figure:
    """Mean ranks of models on a line, best first; bars join those that are not told apart.

    Models whose mean ranks differ by less than the critical difference of Nemenyi's test are
    joined (Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 2006).

    >>> figure = plot_ranking({"A": 1.2, "B": 1.8}, 0.9)
    >>> [text.get_text() for text in figure.axes[0].texts][:2]
    ['A  1.20', 'B  1.80']
    """
    best_first = sorted(ranks.items(), key=lambda pair: pair[1])
    names, values = [n for n, _ in best_first], np.array([v for _, v in best_first])
    axes = _axes((6.8, 1.1 + 0.27 * len(names)))
    y = -np.arange(float(len(names)))
    axes.scatter(values, y, s=30, color=PROBABILITY, zorder=3)
    for name, value, at in zip(names, values, y, strict=True):
        axes.text(
            float(value) + 0.12,
            float(at),
            f"{name}  {value:.2f}",
            fontsize=8.5,
            color=INK,
            va="center",
        )
    gutter = 0.6
    for first, last in cliques(values, critical_difference):
        axes.plot([gutter] * 2, [y[first] + 0.3, y[last] - 0.3], color="#B5B5B5", lw=3.5)
        gutter -= 0.2
    axes.plot([1, 1 + critical_difference], [1.1, 1.1], color=POSITIVE, lw=2)
    said = f"critical difference {critical_difference:.2f}; bars on the left join what is within it"
    axes.text(1, 1.65, said, fontsize=8, color=POSITIVE, va="center")
    right = max(len(names) + 1.6, 1.2 + critical_difference)
    axes.set(xlim=(gutter - 0.1, right), ylim=(y[-1] - 0.8, 2.1), yticks=[])
    axes.set_xticks(range(1, len(names) + 1))
    axes.set_xlabel("mean rank of bag accuracy (1 is best)")
    axes.spines["left"].set_visible(False)
    return axes.figure  # type: ignore[return-value]


def cliques(values: ArrayLike, width: float) -> list[tuple[int, int]]:
    """Longest runs of two or more sorted values that lie within `width`.

    >>> cliques([1.0, 1.5, 2.0, 4.0], 1.1)
    [(0, 2)]
    """
    v = np.asarray(values, dtype=float)
    found: list[tuple[int, int]] = []
    for first in range(len(v)):
        last = int(np.searchsorted(v, v[first] + width, side="right")) - 1
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def _axes(size: tuple[float, float]) -> Axes:
    require_matplotlib()
    from matplotlib.figure import Figure

    axes = Figure(figsize=size, dpi=DPI, layout="constrained").subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    return axes
