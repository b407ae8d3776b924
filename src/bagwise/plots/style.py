"""Colours and axes that all figures share, and the check that matplotlib is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.io.requirements import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

# Okabe and Ito's colours, which stay apart for all common kinds of colour blindness.
POSITIVE = "#D55E00"
PROBABILITY = "#0072B2"
INK = "#222222"
QUIET = "#6E6E6E"
TRACK = "#E3E3E3"
UNKNOWN = "#A9A9A9"  # of instances without a label, where others have one
# For several series in one figure, in this order.
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def require_matplotlib() -> None:
    """Raise an ImportError that names the extra to install where matplotlib is missing."""
    require("matplotlib.figure", what="drawing figures", extra="plot")


class Display:
    """What all displays share: drawing what they are given, and where it was drawn."""

    figure_: Figure
    ax_: Any  # the axes, or an array of them

    @classmethod
    def from_predictions(cls, *values: Any, **more: Any) -> Self:
        """Draw given values, the arguments of the class, into `ax=`, or into a new figure."""
        ax = more.pop("ax", None)
        return cls(*values, **more).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw into `ax`, or into a new figure."""
        raise NotImplementedError

    def drawn_in(self, ax: Axes) -> Self:
        """The display, which knows where it was drawn."""
        self.ax_, self.figure_ = ax, ax.figure  # type: ignore[assignment]
        return self


def axes_for(ax: Axes | None, width: float = 4.2, height: float = 3.4) -> Axes:
    """The given axes, or those of a new figure of that size in inches."""
    require_matplotlib()
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def new_figure(width: float, height: float, **more: Any) -> Figure:
    """A new figure of that size in inches, which pyplot shows."""
    require_matplotlib()
    from matplotlib import pyplot as plt

    return plt.figure(figsize=(width, height), **more)


def tidy(ax: Axes, *, grid: str = "y") -> None:
    """Give axes the look of the project: quiet frame and grid, no box."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(QUIET)
    ax.tick_params(colors=QUIET, labelcolor=INK, labelsize=9)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(axis=grid, color=TRACK, lw=0.8)  # type: ignore[arg-type]
    for text in (ax.xaxis.label, ax.yaxis.label):
        text.set_color(INK)


def unit_square(ax: Axes) -> None:
    """Axes from 0 to 1 both ways, with a little room for marks at the edges."""
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    ticks = [0, 0.25, 0.5, 0.75, 1]
    ax.set_xticks(ticks, ["0", "0.25", "0.5", "0.75", "1"])
    ax.set_yticks(ticks, ["0", "0.25", "0.5", "0.75", "1"])
    tidy(ax, grid="both")


def column(p: ArrayLike, n: int | None = None, name: str = "p") -> Floats:
    """Probability of the positive class from (n,) or from the two columns of predict_proba."""
    values = np.asarray(p, dtype=np.float64)
    if values.ndim == 2 and values.shape[1] == 2:
        values = values[:, 1]
    return vector(values, n, name)


def vector(values: ArrayLike, n: int | None, name: str) -> Floats:
    """A vector of n numbers, or of any number of them."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or (n is not None and len(array) != n):
        wanted = "one dimension" if n is None else f"{n} entries"
        raise ValueError(f"{name} must have {wanted}, got shape {array.shape}")
    return array


def one_bag(bags: Any) -> Any:
    """The bag to draw, which must be a single one."""
    if len(bags) != 1:
        raise ValueError(f"one bag is drawn at a time, got {len(bags)}; pass e.g. bags[0]")
    return bags
