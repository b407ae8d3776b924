"""How good probabilities are: ROC, precision-recall, FROC and reliability curves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from bagwise import metrics
from bagwise.bags.labels import in_bag_order
from bagwise.metrics import Band
from bagwise.models.single_model import check_one_model
from bagwise.plots.style import (
    INK,
    PROBABILITY,
    QUIET,
    Display,
    axes_for,
    tidy,
    unit_square,
    vector,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _bag_predictions(model: Any, bags: Any, y: ArrayLike | None) -> tuple[Any, Any]:
    """Which bags are positive, by `y` or else `bags.y`, and their probabilities.

    A Series whose index holds the bag ids is put in their order.
    """
    check_one_model(model, instances=False)
    truth = np.asarray(bags.y if y is None else in_bag_order(y, bags.ids, "y"))
    return truth == model.classes_[1], model.predict_proba(bags)[:, 1]


class _BandDisplay(Display):
    """A curve over the unit square with a 95 % band."""

    _make_band: ClassVar[Callable[..., Band]]
    _score: ClassVar[Callable[..., float]]
    _score_name: ClassVar[str]
    _axis_names: ClassVar[tuple[str, str]]

    def __init__(self, band: Band, score: float, *, name: str | None = None) -> None:
        self.band = band
        self.score = score
        self.name = name

    @classmethod
    def from_estimator(
        cls, model: Any, bags: Any, y: ArrayLike | None = None, *, ax: Axes | None = None,
        **more: Any,
    ) -> Self:  # fmt: skip
        """Draw the curve of a fitted model's bag probabilities, against `y` or else `bags.y`."""
        positive, p = _bag_predictions(model, bags, y)
        more.setdefault("name", type(model).__name__)
        more.setdefault("groups", getattr(bags, "groups", None))
        return cls.from_predictions(positive, p, ax=ax, **more)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        p: ArrayLike,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        colour: str = PROBABILITY,
        **band: Any,
    ) -> Self:
        """Draw the curve of given probabilities; `level` and `n_resamples` set the band."""
        drawn = cls._make_band(y_true, p, **band)
        return cls(drawn, cls._score(y_true, p), name=name).plot(ax, colour=colour)

    def plot(self, ax: Axes | None = None, *, colour: str = PROBABILITY) -> Self:
        """Draw into `ax`, or into a new figure; several curves may share axes."""
        fresh = ax is None or not ax.lines
        ax = axes_for(ax, 3.9, 3.7)
        if fresh:
            self._reference(ax)
        band = self.band
        name = f"{self.name}, " if self.name else ""
        label = f"{name}{self._score_name} {self.score:.3f}"
        ax.fill_between(band.x, band.low, band.high, color=colour, alpha=0.18, lw=0)
        ax.plot(*self._line(), color=colour, lw=2, label=label)
        unit_square(ax)
        ax.set(xlabel=self._axis_names[0], ylabel=self._axis_names[1])
        ax.legend(frameon=False, fontsize=9, loc="lower right")
        return self.drawn_in(ax)

    def _line(self) -> tuple[Any, Any]:
        return self.band.x, self.band.y

    def _reference(self, ax: Axes) -> None:
        """What a coin would give."""


class RocDisplay(_BandDisplay):
    """ROC curve with a 95 % band.

    >>> display = RocDisplay.from_predictions([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], n_resamples=50)
    >>> display.ax_.get_xlabel()
    'false positive rate'
    """

    _make_band = staticmethod(metrics.roc_band)
    _score = staticmethod(metrics.roc_auc)
    _score_name = "AUC"
    _axis_names = ("false positive rate", "true positive rate")

    def _line(self) -> tuple[Any, Any]:
        return np.append(0.0, self.band.x), np.append(0.0, self.band.y)

    def _reference(self, ax: Axes) -> None:
        ax.plot([0, 1], [0, 1], color=QUIET, lw=1, ls=(0, (4, 4)))


class PrecisionRecallDisplay(_BandDisplay):
    """Precision against recall, with a 95 % band.

    Precision is the best one at a recall of at least that on the axis.

    >>> display = PrecisionRecallDisplay.from_predictions(
    ...     [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], n_resamples=50
    ... )
    >>> round(display.score, 3)
    0.833
    """

    _make_band = staticmethod(metrics.precision_recall_band)
    _score = staticmethod(metrics.average_precision)
    _score_name = "AP"
    _axis_names = ("recall", "precision")


class FrocDisplay(Display):
    """Share of lesions found against false positives per scan [R08, Fig. 4].

    Takes the arrays of a curve and of its band, as `bagwise.metrics.froc_band` gives them.

    >>> display = FrocDisplay([0.0, 1.0, 4.0], [0.0, 0.7, 0.9], name="MI-RVM").plot()
    >>> display.ax_.get_ylabel()
    'sensitivity'
    """

    def __init__(
        self,
        false_positives: ArrayLike,
        sensitivity: ArrayLike,
        *,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        name: str | None = None,
    ) -> None:
        self.false_positives = vector(false_positives, None, "false_positives")
        n = len(self.false_positives)
        self.sensitivity = vector(sensitivity, n, "sensitivity")
        if (low is None) != (high is None):
            raise ValueError("low and high limit a band together; pass both or none")
        self.low = None if low is None else vector(low, n, "low")
        self.high = None if high is None else vector(high, n, "high")
        self.name = name

    @classmethod
    def from_estimator(
        cls, model: Any, bags: Any, y: ArrayLike | None = None, *, volume: ArrayLike | None = None,
        ax: Axes | None = None, **more: Any,
    ) -> Self:  # fmt: skip
        """Draw the curve of a fitted model's bag probabilities.

        `volume` is the scan of each bag, by default `bags.groups`. Where bags are the candidates
        of one lesion, fit with `bag_score="max"`: see `bagwise.metrics.froc_curve`.
        """
        if volume is None and bags.groups is None:
            raise ValueError("FROC counts false positives per scan; pass volume=, or bags.groups")
        positive, p = _bag_predictions(model, bags, y)
        more.setdefault("name", type(model).__name__)
        where = bags.groups if volume is None else volume
        return cls.from_predictions(positive, p, where, ax=ax, **more)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        p: ArrayLike,
        volume: ArrayLike,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        colour: str = PROBABILITY,
        **band: Any,
    ) -> Self:
        """Draw the curve of given scores; `max_false_positives`, `level` and others set the band.

        Its mean sensitivity over the axis, with the interval of it, is in the legend.
        """
        drawn = metrics.froc_band(y_true, p, volume, **band)
        area, low, high = drawn.area
        figures = f"mean {area:.3f} ({low:.3f} to {high:.3f})"
        return cls(
            drawn.false_positives,
            drawn.sensitivity,
            low=drawn.low,
            high=drawn.high,
            name=f"{name}, {figures}" if name else figures,
        ).plot(ax, colour=colour)

    def plot(self, ax: Axes | None = None, *, colour: str = PROBABILITY) -> Self:
        """Draw into `ax`, or into a new figure; several curves may share axes."""
        ax = axes_for(ax, 4.4, 3.3)
        x = self.false_positives
        if self.low is not None and self.high is not None:
            ax.fill_between(x, self.low, self.high, color=colour, alpha=0.18, lw=0, step="post")
        ax.plot(x, self.sensitivity, color=colour, lw=2, drawstyle="steps-post", label=self.name)
        ax.set(xlabel="false positives per scan", ylabel="sensitivity", ylim=(-0.02, 1.02))
        ax.set_xlim(left=0)
        tidy(ax, grid="both")
        if self.name:
            ax.legend(frameon=False, fontsize=9, loc="lower right")
        return self.drawn_in(ax)


class ReliabilityDisplay(Display):
    """Observed share of positives against predicted probability, with 95 % intervals.

    Predictions are grouped into bins of equally many; on the dashed line they are calibrated.

    >>> p = np.linspace(0.05, 0.95, 40)
    >>> display = ReliabilityDisplay.from_predictions(np.arange(40) >= 20, p, n_bins=4)
    >>> display.share
    array([0., 0., 1., 1.])
    """

    def __init__(
        self, p: ArrayLike, share: ArrayLike, low: ArrayLike, high: ArrayLike, counts: ArrayLike
    ) -> None:
        self.p = vector(p, None, "p")
        self.share = vector(share, len(self.p), "share")
        self.low = vector(low, len(self.p), "low")
        self.high = vector(high, len(self.p), "high")
        self.counts = vector(counts, len(self.p), "counts")

    @classmethod
    def from_estimator(
        cls, model: Any, bags: Any, y: ArrayLike | None = None, *, ax: Axes | None = None,
        **more: Any,
    ) -> Self:  # fmt: skip
        """Draw the calibration of a fitted model's bag probabilities."""
        return cls.from_predictions(*_bag_predictions(model, bags, y), ax=ax, **more)

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, p: ArrayLike, *, n_bins: int = 10, ax: Axes | None = None
    ) -> Self:
        """Draw the calibration of given probabilities of bags or instances."""
        return cls(*metrics.reliability_curve(y_true, p, n_bins=n_bins)).plot(ax)

    def plot(self, ax: Axes | None = None, *, colour: str = PROBABILITY) -> Self:
        """Draw into `ax`, or into a new figure."""
        ax = axes_for(ax, 3.9, 3.7)
        ax.plot([0, 1], [0, 1], color=QUIET, lw=1, ls=(0, (4, 4)))
        ax.vlines(self.p, self.low, self.high, color=colour, lw=1.6)
        ax.plot(self.p, self.share, "o", color=colour, ms=6, mec="white", mew=0.8)
        unit_square(ax)
        ax.set(xlabel="predicted probability", ylabel="observed share of positives")
        fewest, most = int(self.counts.min()), int(self.counts.max())
        several = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        ax.set_title(f"{several} predictions per dot", loc="left", fontsize=9, color=INK)
        return self.drawn_in(ax)
