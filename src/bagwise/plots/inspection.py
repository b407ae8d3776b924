"""Which features matter to a model, and how: displays of `bagwise.inspection`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from bagwise.inspection import partial_dependence, permutation_importance
from bagwise.plots.style import INK, PROBABILITY, QUIET, Display, axes_for, tidy, vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ImportanceDisplay(Display):
    """How much the score falls when a feature is shuffled, the largest fall first.

    Bars are means over repetitions, dark lines one standard deviation to either side.

    >>> display = ImportanceDisplay(["area", "shade"], [0.01, 0.3], [0.02, 0.05])
    >>> [t.get_text() for t in display.plot().ax_.get_yticklabels()]
    ['shade', 'area']
    """

    def __init__(
        self,
        names: Sequence[str],
        means: ArrayLike,
        stds: ArrayLike,
        *,
        scoring: str = "score",
        max_features: int = 20,
    ) -> None:
        self.means = vector(means, len(names), "means")
        self.stds = vector(stds, len(names), "stds")
        self.names = [str(n) for n in names]
        self.scoring = scoring
        self.max_features = max_features

    @classmethod
    def from_estimator(
        cls, model: Any, bags: Any, y: ArrayLike | None = None, *, ax: Axes | None = None,
        max_features: int = 20, **how: Any,
    ) -> Self:  # fmt: skip
        """Shuffle features and draw; `how` are the arguments of `permutation_importance`."""
        found = permutation_importance(model, bags, y, **how)
        scoring = how.get("scoring", "roc_auc")
        name = scoring.replace("_", " ") if isinstance(scoring, str) else "score"
        means, stds = found.importances_mean, found.importances_std
        return cls(found.names, means, stds, scoring=name, max_features=max_features).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new figure."""
        shown = np.argsort(-self.means, kind="stable")[: self.max_features]
        ax = axes_for(ax, 4.8, 0.9 + 0.24 * max(len(shown), 3))
        y, means, stds = np.arange(len(shown)), self.means[shown], self.stds[shown]
        ax.barh(y, means, 0.68, color=PROBABILITY)
        ax.hlines(y, means - stds, means + stds, color=INK, lw=1.2)
        ax.axvline(0, color=QUIET, lw=0.9)
        ax.set_yticks(y, [self.names[j] for j in shown])
        ax.invert_yaxis()
        ax.set(xlabel=f"fall of the {self.scoring}, ± one standard deviation")
        if len(shown) < len(self.names):
            said = f"the {len(shown)} largest of {len(self.names)} features"
            ax.set_title(said, loc="left", fontsize=9, color=INK)
        tidy(ax, grid="x")
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        return self.drawn_in(ax)


class DependenceDisplay(Display):
    """The average probability as a feature varies, with what half of the bags do.

    The band holds the middle half of the bags; marks at the bottom are deciles of the feature.

    >>> display = DependenceDisplay([0.0, 1.0], [[0.1, 0.9], [0.3, 0.7]], name="area")
    >>> display.plot().ax_.get_xlabel()
    'area'
    """

    def __init__(
        self,
        grid_values: ArrayLike,
        individual: ArrayLike,
        deciles: ArrayLike = (),
        *,
        name: str = "feature",
        kind: str = "bag",
    ) -> None:
        self.individual = np.asarray(individual, dtype=np.float64)
        if self.individual.ndim != 2:
            raise ValueError(
                "individual must be (bags, values of the grid), got shape "
                f"{self.individual.shape}; see bagwise.inspection.partial_dependence"
            )
        self.grid_values = vector(grid_values, self.individual.shape[1], "grid_values")
        self.deciles = np.asarray(deciles, dtype=np.float64)
        self.name = name
        self.kind = kind

    @classmethod
    def from_estimator(
        cls, model: Any, bags: Any, feature: str | int, *, ax: Axes | None = None, **how: Any
    ) -> Self:
        """Vary a feature and draw; `how` are the arguments of `partial_dependence`."""
        found = partial_dependence(model, bags, feature, **how)
        told = {"name": found.name, "kind": found.kind}
        return cls(found.grid_values, found.individual, found.deciles, **told).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new figure."""
        ax = axes_for(ax)
        low, high = np.quantile(self.individual, [0.25, 0.75], axis=0)
        ax.fill_between(self.grid_values, low, high, color=PROBABILITY, alpha=0.2, lw=0)
        ax.plot(self.grid_values, self.individual.mean(axis=0), color=PROBABILITY, lw=2)
        at = self.deciles[
            (self.deciles >= self.grid_values.min()) & (self.deciles <= self.grid_values.max())
        ]
        ax.vlines(at, 0, 0.03, color=QUIET, lw=0.9)
        what = "bag" if self.kind == "bag" else "instance"
        ax.set(xlabel=self.name, ylabel=f"probability of a positive {what}", ylim=(0, 1))
        tidy(ax)
        return self.drawn_in(ax)
