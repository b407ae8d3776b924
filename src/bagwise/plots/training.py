"""What happened in fits: bound over iterations, scores over time, effect of the coupling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bagwise.metrics import within_bag_variability
from bagwise.models.single_model import check_one_model
from bagwise.plots.style import INK, PROBABILITY, SERIES, Display, axes_for, tidy, vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ElboDisplay(Display):
    """The evidence lower bound over a fit, or the log evidence of a linear model.

    >>> ElboDisplay([-90.0, -40.0, -35.0]).plot().ax_.get_ylabel()
    'ELBO'
    """

    def __init__(
        self, history: ArrayLike, *, converged: bool | None = None, name: str = "ELBO"
    ) -> None:
        self.history = vector(history, None, "history")
        self.converged = converged
        self.name = name

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Axes | None = None) -> Self:
        """Draw the history of a fitted model."""
        check_one_model(model)
        check_is_fitted(model)
        if hasattr(model, "elbo_history_"):
            return cls(model.elbo_history_, converged=bool(model.converged_)).plot(ax)
        if not hasattr(model, "log_evidence_history_"):
            raise TypeError(
                f"{type(model).__name__} keeps no history of its fit; pass a model of bagwise, or "
                "the values to from_predictions"
            )
        history, converged = model.log_evidence_history_, bool(model.converged_)
        return cls(history, converged=converged, name="log evidence").plot(ax)

    def plot(self, ax: Axes | None = None, *, colour: str = PROBABILITY) -> Self:
        """Draw into `ax`, or into a new figure."""
        ax = axes_for(ax, 4.8, 3.0)
        sweeps = np.arange(1, len(self.history) + 1)
        ax.plot(sweeps, self.history, color=colour, lw=1.8)
        ax.plot(sweeps[-1], self.history[-1], "o", color=colour, ms=5)
        state = {True: ", converged", False: ", not converged", None: ""}[self.converged]
        ax.set(xlabel="iteration", ylabel=self.name)
        ax.set_title(f"{self.history[-1]:.2f}{state}", loc="right", fontsize=9, color=INK)
        # The first sweeps often start far below, and would flatten all that follows.
        low = float(np.quantile(self.history, 0.05))
        room = 0.08 * max(float(self.history.max()) - low, 1e-9)
        ax.set_ylim(low - room, float(self.history.max()) + room)
        tidy(ax)
        return self.drawn_in(ax)


class VariabilityDisplay(Display):
    """How much instance probabilities vary inside bags, against the coupling [M24, Fig. 6].

    `values[k]` holds, for the coupling `couplings[k]`, the standard deviation of the instance
    probabilities inside each bag; drawn are median and quartiles over bags.

    >>> display = VariabilityDisplay([0.0, 1.0], [[0.3, 0.2, 0.1], [0.1, 0.1, 0.05]]).plot()
    >>> display.ax_.get_xlabel()
    'coupling λ'
    """

    def __init__(self, couplings: ArrayLike, values: Sequence[ArrayLike]) -> None:
        self.couplings = vector(couplings, None, "couplings")
        if len(values) != len(self.couplings):
            raise ValueError(
                f"values needs one entry per coupling, {len(self.couplings)}; got {len(values)}"
            )
        self.values = [vector(v, None, "values") for v in values]

    @classmethod
    def from_estimator(cls, models: Sequence[Any], bags: Any, *, ax: Axes | None = None) -> Self:
        """Draw several fitted models that differ in their `coupling`."""
        spread = [within_bag_variability(m.predict_instance_proba(bags), bags) for m in models]
        return cls([getattr(m, "coupling_", m.coupling) for m in models], spread).plot(ax)

    def plot(self, ax: Axes | None = None, *, colour: str = PROBABILITY) -> Self:
        """Draw into `ax`, or into a new figure."""
        ax = axes_for(ax, 4.4, 3.2)
        quartiles = np.array([np.quantile(v, [0.25, 0.5, 0.75]) for v in self.values])
        order = np.argsort(self.couplings, kind="stable")
        x, (low, middle, high) = self.couplings[order], quartiles[order].T
        ax.fill_between(x, low, high, color=colour, alpha=0.18, lw=0, label="quartiles over bags")
        ax.plot(x, middle, "o-", color=colour, lw=1.8, ms=5, label="median")
        ax.set(xlabel="coupling λ", ylabel="std of instance probabilities in a bag")
        ax.set_ylim(bottom=0)
        tidy(ax)
        ax.legend(frameon=False, fontsize=9)
        return self.drawn_in(ax)


class AucTimeDisplay(Display):
    """Scores of models against the time of their fits: up and to the left is better.

    `results` maps the name of a model to (seconds, AUCs), one entry per fold or seed.

    >>> display = AucTimeDisplay({"VGPMIL": ([1.0, 1.2], [0.9, 0.92])}).plot()
    >>> display.ax_.get_xscale()
    'log'
    """

    def __init__(
        self, results: Mapping[str, tuple[ArrayLike, ArrayLike]], *, score_name: str = "bag AUC"
    ) -> None:
        self.results = {
            name: (vector(seconds, None, "seconds"), vector(auc, len(np.asarray(seconds)), "auc"))
            for name, (seconds, auc) in results.items()
        }
        if not self.results or any(np.any(s <= 0) for s, _ in self.results.values()):
            raise ValueError("results must have a model, and its seconds must be above 0")
        self.score_name = score_name

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new figure."""
        ax = axes_for(ax, 5.4, 3.6)
        ax.set_xscale("log")
        self._set_x_limits(ax)  # before the marks: matplotlib finds no limits for some single ones
        marks: list[tuple[str, str, float, float]] = []
        for k, (name, (seconds, auc)) in enumerate(self.results.items()):
            colour = SERIES[k % len(SERIES)]
            centre = float(np.exp(np.mean(np.log(seconds)))), float(np.mean(auc))
            ax.errorbar(
                *centre, yerr=np.std(auc), fmt="o", color=colour, ms=8, mec="white", capsize=0
            )
            if len(auc) > 1:
                ax.plot(seconds, auc, "o", color=colour, ms=4, alpha=0.4, mec="none")
            marks.append((name, colour, *centre))
        ax.margins(y=0.12)
        _name_marks(ax, marks)
        ax.set(xlabel="seconds of fitting", ylabel=self.score_name)
        tidy(ax, grid="both")
        _plain_log_ticks(ax)
        return self.drawn_in(ax)

    def _set_x_limits(self, ax: Axes) -> None:
        """Room for names on both sides, also where all fits took the same time."""
        every = np.log(np.concatenate([seconds for seconds, _ in self.results.values()]))
        room = max(0.25 * float(np.ptp(every)), 0.7)
        ax.set_xlim(float(np.exp(every.min() - room)), float(np.exp(every.max() + room)))


def _plain_log_ticks(ax: Axes) -> None:
    """0.1, 0.2, 0.5, 1, ...: powers of ten alone are too few, and all the others run together."""
    from matplotlib.ticker import LogLocator, NullLocator

    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter("{x:g}")


def _name_marks(ax: Axes, marks: Sequence[tuple[str, str, float, float]]) -> None:
    """Names beside their marks, moved up where they would lie on each other."""
    low, high = ax.get_ylim()
    left, right = np.log(np.asarray(ax.get_xlim()))
    step = 0.06 * (high - low)
    placed: list[tuple[float, float]] = []
    for name, colour, x, y in sorted(marks, key=lambda mark: mark[3]):
        at, across = y, (np.log(x) - left) / (right - left)
        while any(abs(at - v) < step and abs(across - u) < 0.25 for u, v in placed):
            at += step / 4
        placed.append((across, at))
        # Towards the middle of the figure, where there is room.
        side = 1 if across <= 0.5 else -1
        ax.annotate(
            name,
            (x * np.exp(side * 0.02 * (right - left)), at),
            ha="left" if side == 1 else "right",
            va="center",
            fontsize=8.5,
            color=colour,
            weight="bold",
        )
