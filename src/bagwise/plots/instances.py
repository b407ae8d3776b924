"""Probabilities of instances: of one bag with their uncertainty, and given the labels of bags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from bagwise.core.parameters import check_integer
from bagwise.models.single_model import check_one_model
from bagwise.plots.style import (
    INK,
    POSITIVE,
    PROBABILITY,
    SERIES,
    UNKNOWN,
    Display,
    axes_for,
    column,
    one_bag,
    tidy,
    vector,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST_BARS = 80  # more bars than this are thinner than their error bars


class InstanceProbabilityDisplay(Display):
    """Instance probabilities of a bag with error bars [M24, Fig. 4; C24, Fig. 10].

    Most probable first, or along an axis such as the slices of a scan (`position`). Where labels
    are known (`truth`: 1, 0, NaN or -1 if unknown), bars of truly positive instances are orange, of
    truly negative ones blue and of others grey. Bags of more than 80 instances are drawn as a
    line with a band. Error bars and band are one standard deviation, cut off at 0 and 1. `ends`,
    low and high (n,), are drawn paler behind them: what bag labels leave open.

    >>> display = InstanceProbabilityDisplay([0.1, 0.9, 0.3], [0.05, 0.1, 0.1], truth=[0, 1, 0])
    >>> display.plot().ax_.get_xlabel()
    'instances, most probable first'
    """

    def __init__(
        self,
        p: ArrayLike,
        std: ArrayLike | None = None,
        *,
        ends: tuple[ArrayLike, ArrayLike] | None = None,
        truth: ArrayLike | None = None,
        position: ArrayLike | None = None,
        position_name: str = "slice",
    ) -> None:
        self.p = column(p)
        n = len(self.p)
        self.std = None if std is None else vector(std, n, "std")
        self.ends = None if ends is None else tuple(vector(end, n, "ends") for end in ends)
        self.truth = None if truth is None else vector(truth, n, "truth")
        self.position = None if position is None else vector(position, n, "position")
        self.position_name = position_name

    @classmethod
    def from_estimator(
        cls, model: Any, bag: Any, *, along: int | None = None, ax: Axes | None = None, **more: Any
    ) -> Self:
        """Draw the predictions of a fitted model for one bag.

        `along` is the column of `bag.coords` to draw along, e.g. 0 for the slices of a scan.
        """
        check_one_model(model)
        bag = one_bag(bag)
        found = model.predict_all(bag)
        if found.low is not None:
            more.setdefault("ends", (found.low, found.high))
        more.setdefault("truth", bag.instance_labels)
        if along is not None:
            if bag.coords is None:
                raise ValueError("along needs coordinates, but the bag has none; drop it")
            more["position"] = bag.coords[:, along]
        return cls(found.p, found.std, **more).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new figure."""
        ax = axes_for(ax, 5.6, 2.8)
        order = np.argsort(-self.p if self.position is None else self.position, kind="stable")
        x = np.arange(len(order)) if self.position is None else self.position[order]
        (self._bars if len(order) <= LONGEST_BARS else self._band)(ax, x, order)
        sorted_name = "instances, most probable first"
        ax.set(
            ylim=(0, 1.02),
            xlabel=sorted_name if self.position is None else self.position_name,
            ylabel="probability",
        )
        if self.position is None:
            ax.set_xticks([])
        tidy(ax)
        if self._labelled:
            # Above the axes: inside, it would lie on the bars.
            ax.legend(
                frameon=False, fontsize=9, ncols=3, loc="lower right", bbox_to_anchor=(1, 0.98)
            )
        return self.drawn_in(ax)

    def _bars(self, ax: Axes, x: Any, order: Any) -> None:
        gap = float(np.min(np.diff(np.unique(x)))) if len(np.unique(x)) > 1 else 1.0
        for chosen, colour, name in self._kinds(order):
            ax.bar(x[chosen], self.p[order][chosen], 0.75 * gap, color=colour, label=name)
        if self.ends is not None:
            low, high = (end[order] for end in self.ends)
            ax.vlines(x, low, high, color=INK, lw=4, alpha=0.2)
        if self.std is not None:
            p, std = self.p[order], self.std[order]
            low, high = np.maximum(p - std, 0), np.minimum(p + std, 1)
            ax.vlines(x, low, high, color=INK, lw=1.1)

    def _band(self, ax: Axes, x: Any, order: Any) -> None:
        p = self.p[order]
        if self.ends is not None:
            low, high = (end[order] for end in self.ends)
            ax.fill_between(x, low, high, color=INK, alpha=0.1, lw=0)
        if self.std is not None:
            low, high = np.maximum(p - self.std[order], 0), np.minimum(p + self.std[order], 1)
            ax.fill_between(x, low, high, color=PROBABILITY, alpha=0.22, lw=0)
        ax.plot(x, p, color=PROBABILITY, lw=1.4)
        for chosen, colour, name in self._kinds(order) if self._labelled else []:
            ticks = np.full(int(chosen.sum()), 0.012)
            ax.plot(x[chosen], ticks, "|", color=colour, ms=6, label=name)

    @property
    def _labelled(self) -> bool:
        """Whether the label of any instance is known."""
        return self.truth is not None and bool(np.isin(self.truth, (0, 1)).any())

    def _kinds(self, order: Any) -> list[tuple[Any, str, str | None]]:
        """Which instances, in that order, are drawn how, and what the legend calls them."""
        if self.truth is None or not self._labelled:
            return [(np.ones(len(order), dtype=bool), PROBABILITY, None)]
        truth = self.truth[order]
        kinds = [
            (truth == 1, POSITIVE, "truly positive"),
            (truth == 0, PROBABILITY, "truly negative"),
            (~np.isin(truth, (0, 1)), UNKNOWN, "not labelled"),
        ]
        return [kind for kind in kinds if np.any(kind[0])]


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
