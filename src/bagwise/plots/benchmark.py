"""Figures of a benchmark: AUC against time, reliability, ranking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from bagwise.metrics import reliability_curve
from bagwise.plots.style import INK, POSITIVE, PROBABILITY, QUIET, TRACK, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 130


def plot_auc_against_time(points: Mapping[str, tuple[float, float]]) -> Figure:
    """One point per model: seconds per fit (logarithmic) and bag AUC; up and left is better.

    >>> len(plot_auc_against_time({"A": (0.1, 0.8), "B": (2.0, 0.9)}).axes[0].texts)
    2
    """
    axes = _axes((6.4, 4.0))
    seconds, auc = np.array(list(points.values())).T
    axes.scatter(seconds, auc, s=34, color=PROBABILITY, zorder=3)
    axes.set_xscale("log")
    axes.margins(x=0.28, y=0.12)
    _spread_labels(axes, list(points), seconds, auc)
    axes.set(xlabel="seconds per fit", ylabel="bag AUC, mean over folds and sets")
    axes.grid(color=TRACK, lw=0.8)
    return axes.figure  # type: ignore[return-value]


def _spread_labels(axes: Axes, names: list[str], x: ArrayLike, y: ArrayLike) -> None:
    """Names beside their points, moved up where they would lie on each other."""
    x, y = np.asarray(x), np.asarray(y)
    low, high = axes.get_ylim()
    step = 0.052 * (high - low)
    left, right = np.log(np.asarray(axes.get_xlim()))
    placed: list[tuple[float, float]] = []
    for i in np.argsort(y):
        at, across = float(y[i]), (np.log(x[i]) - left) / (right - left)
        while any(abs(at - v) < step and abs(across - u) < 0.2 for u, v in placed):
            at += step / 4
        placed.append((across, at))
        axes.annotate(
            names[i],
            (x[i], y[i]),
            (x[i] * np.exp(0.015 * (right - left)), at),
            fontsize=8,
            color=INK,
            va="center",
        )


def plot_reliability(
    predictions: Mapping[str, tuple[ArrayLike, ArrayLike]], n_bins: int = 8
) -> Figure:
    """Observed share of positive bags against predicted probability, one small panel per model.

    `predictions` has the labels (0 and 1) and probabilities of each model.

    >>> figure = plot_reliability({"A": ([0, 1, 1, 0], [0.1, 0.6, 0.9, 0.4])}, n_bins=2)
    >>> figure.axes[0].get_title()
    'A'
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    columns = min(4, len(predictions))
    lines = -(-len(predictions) // columns)
    figure = Figure(figsize=(2.3 * columns, 2.35 * lines), dpi=DPI, layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes, (name, (y, p)) in zip(grid, predictions.items(), strict=False):
        curve = reliability_curve(y, p, n_bins, pos_label=1)
        axes.plot([0, 1], [0, 1], color=QUIET, lw=0.9, ls=(0, (4, 3)))
        axes.plot(curve.predicted, curve.observed, color=PROBABILITY, lw=1.4, marker="o", ms=3.5)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        axes.set_title(name, fontsize=9, color=INK)
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
