"""Which features a sparse model uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from bagwise.models.single_model import check_one_model
from bagwise.plots.style import INK, POSITIVE, PROBABILITY, QUIET, Display, axes_for, tidy, vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class RelevanceDisplay(Display):
    """Weights of the features of MI-RVM with their standard deviations [R08, Sec. 6].

    The largest weights come first; orange ones speak for the positive class, blue ones against
    it, and features that the fit pruned have weight 0 and are counted below.

    >>> display = RelevanceDisplay(["area", "shade", "edge"], [1.5, 0.0, -0.7], [0.2, 0.0, 0.1])
    >>> [t.get_text() for t in display.plot().ax_.get_yticklabels()]
    ['area', 'edge']
    """

    def __init__(
        self,
        names: Sequence[str],
        coefficients: ArrayLike,
        stds: ArrayLike | None = None,
        *,
        max_features: int = 20,
    ) -> None:
        self.coefficients = vector(coefficients, len(names), "coefficients")
        self.stds = None if stds is None else vector(stds, len(names), "stds")
        self.names = [str(n) for n in names]
        self.max_features = max_features

    @classmethod
    def from_estimator(
        cls, model: Any, *, task: Any = None, ax: Axes | None = None, max_features: int = 20
    ) -> Self:
        """Draw the weights of a fitted linear model, of one task of a `MultiTaskMIRVM`.

        They are those of the features as the model scaled them (`scaled_coef_`): in raw units a
        feature measured in metres would seem a thousand times as important as in millimetres.
        """
        if hasattr(model, "for_task"):
            model = model.for_task(task)
        check_one_model(model)
        if not hasattr(model, "coef_"):
            raise TypeError(
                f"{type(model).__name__} has no weights of features; use MIRVM, RVM or "
                "MILogisticRegression"
            )
        names = getattr(model, "feature_names_in_", None)
        if names is None:
            names = [f"feature {j}" for j in range(model.n_features_in_)]
        model.get_support()  # raises where weights are those of a kernel's basis points
        return cls(
            list(names), model.scaled_coef_, model.scaled_coef_std_, max_features=max_features
        ).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new figure."""
        used = np.flatnonzero(self.coefficients)
        order = used[np.argsort(-np.abs(self.coefficients[used]), kind="stable")]
        shown = order[: self.max_features]
        ax = axes_for(ax, 4.8, 0.9 + 0.24 * max(len(shown), 3))
        y, weights = np.arange(len(shown)), self.coefficients[shown]
        colours = [POSITIVE if w > 0 else PROBABILITY for w in weights]
        ax.barh(y, weights, 0.68, color=colours)
        if self.stds is not None:
            ax.hlines(y, weights - self.stds[shown], weights + self.stds[shown], color=INK, lw=1.2)
        ax.axvline(0, color=QUIET, lw=0.9)
        ax.set_yticks(y, [self.names[j] for j in shown])
        ax.invert_yaxis()
        ax.set(xlabel="weight, ± one standard deviation" if self.stds is not None else "weight")
        kept = f"{len(order)} of {len(self.names)} features used"
        more = f", the {len(shown)} largest shown" if len(shown) < len(order) else ""
        ax.set_title(kept + more, loc="left", fontsize=9, color=INK)
        tidy(ax, grid="x")
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        return self.drawn_in(ax)
