"""How sure a model is of the instances of labelled bags: a histogram of q(y)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from bagwise.core.parameters import check_integer
from bagwise.models.single_model import check_one_model
from bagwise.plots.style import SERIES, Display, axes_for, column, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class InstancePosteriorDisplay(Display):
    """Histogram of the expected instance labels, given the labels of bags [V17, Fig. 2].

    Instances at 0 and 1 are decided, those between are not. Several models may share axes. Counts
    are on a log scale, since most instances are at 0.

    >>> display = InstancePosteriorDisplay([0.0, 0.0, 0.02, 0.5, 0.97], name="VGPMIL").plot()
    >>> display.ax_.get_xlabel()
    'expected instance label, given the labels of bags'
    """

    def __init__(self, p: ArrayLike, *, name: str | None = None, n_bins: int = 20) -> None:
        self.p = column(p)
        if len(self.p) == 0 or not np.all((self.p >= 0) & (self.p <= 1)):
            raise ValueError("p must be probabilities of at least one instance; see its values")
        self.name = name
        self.n_bins = check_integer("n_bins", n_bins, at_least=1)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        bags: Any,
        *,
        ax: Axes | None = None,
        colour: str | None = None,
        **more: Any,
    ) -> Self:
        """Draw `model.instance_posterior(bags)` of a fitted model, named as its class."""
        check_one_model(model)
        more.setdefault("name", type(model).__name__)
        return cls(model.instance_posterior(bags), **more).plot(ax, colour=colour)

    @classmethod
    def from_predictions(
        cls, p: ArrayLike, *, ax: Axes | None = None, colour: str | None = None, **more: Any
    ) -> Self:
        """Draw given probabilities, (n,) or the two columns of `instance_posterior`."""
        return cls(p, **more).plot(ax, colour=colour)

    def plot(self, ax: Axes | None = None, *, colour: str | None = None) -> Self:
        """Draw into `ax`, or into a new figure; each model in shared axes has its colour."""
        ax = axes_for(ax, 4.6, 2.9)
        colour = colour or SERIES[len(ax.patches) // 2 % len(SERIES)]  # two patches each
        counts, edges = np.histogram(self.p, self.n_bins, (0.0, 1.0))
        ax.stairs(counts, edges, color=colour, fill=True, alpha=0.25)
        ax.stairs(counts, edges, color=colour, lw=1.8, label=self.name)
        ax.set(
            xlim=(0, 1),
            yscale="log",
            ylim=(0.7, None),
            xlabel="expected instance label, given the labels of bags",
            ylabel="instances",
        )
        tidy(ax)
        if self.name is not None:
            ax.legend(frameon=False, fontsize=9, loc="upper center")
        return self.drawn_in(ax)
