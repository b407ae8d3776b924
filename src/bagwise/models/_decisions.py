"""What to make of predictions: sets with a guarantee, thresholds, what is new, what to ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.core.calibration.conformal import (
    LeftOutBags,
    Reference,
    check_alpha,
)
from bagwise.core.calibration.left_out import kept_off
from bagwise.core.calibration.novelty import Novelty, SeenInstances, warn_of_shift
from bagwise.core.calibration.thresholds import OperatingPoint, choose
from bagwise.core.files.modelfile import register
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.bag_scores import log_odds
from bagwise.core.parameters import check_integer
from bagwise.core.posteriors.given_labels import BagDraws
from bagwise.core.posteriors.information import (
    DRAWS,
    BagStates,
    suggested_bags,
    suggested_instances,
)
from bagwise.core.threads import suitable_threads
from bagwise.models._base import BagClassifierMIL
from bagwise.models.inputs import bag_targets, bags_to_predict, known_labels

Array = NDArray[Any]
Flags = NDArray[np.bool_]

DECISIONS = ("left_out_bags_", "left_out_positives_", "operating_point_", "seen_instances_")

register(LeftOutBags)
register(Reference)
register(OperatingPoint)
register(SeenInstances)


class DecidingMIL(BagClassifierMIL, abstract=True):
    """Decisions with guarantees, from scores of bags that were left out of fits."""

    bag_score_: Any  # that predictions come from
    why_not_calibrated_: str | None
    left_out_bags_: LeftOutBags | None
    left_out_positives_: Reference | None
    operating_point_: OperatingPoint | None
    seen_instances_: SeenInstances | None

    def predict_set(self, X: Any, alpha: float = 0.1) -> Flags:
        """Which classes each bag may have, (B, 2), columns in the order of `classes_`.

        Of new bags of either class, at most a share `alpha` has a set without its own class:
        class-conditional conformal sets, from scores of training bags that were left out of fits.
        Bags like those of the fit are all that it takes; bags of one group count together. A set
        of both classes is for an expert to look at; an empty one is unlike either class.

        Parameters
        ----------
        X : bags.
        alpha : share of errors, between 0 and 1. Below 1 / (1 + number of left-out bags of a
            class, or of their groups) no bag can be told from the class, which is said.

        Examples
        --------
        >>> from bagwise import ProbitVGPMIL
        >>> from bagwise.datasets import make_digit_bags
        >>> bags, _ = make_digit_bags(60, random_state=0)
        >>> model = ProbitVGPMIL(n_inducing=30, random_state=0).fit(bags[:40])
        >>> model.predict_set(bags[40:], alpha=0.2).mean(axis=0) < 0.7
        array([ True,  True])
        """
        check_alpha(alpha)
        kept = self._kept_bags("predict_set")
        p = np.asarray(self.predict_proba(X))
        with np.errstate(divide="ignore"):
            return kept.sets(np.log(p[:, 1]) - np.log(p[:, 0]), alpha)

    def possible_positives(self, X: Any, alpha: float = 0.1) -> Flags:
        """Which instances may be positive, (N,), rows as in `bags.X`.

        At most a share `alpha` of the positive instances of a bag is not among them, on average
        over new bags that hold positives. That takes instance labels that were known in `fit`:
        the positives of bags that were left out say how low the probability of one may be.

        Parameters
        ----------
        X : bags.
        alpha : share of missed positives, between 0 and 1.
        """
        check_alpha(alpha)
        check_is_fitted(self)
        kept = getattr(self, "left_out_positives_", None)
        if kept is None:
            raise ValueError(
                "possible_positives needs known positive instances in the bags of fit, and fits "
                "that leave these bags out: pass Bags with instance_labels, and bag_score or "
                f"instance_score 'auto' or 'calibrated' ({self._why_nothing_kept()})"
            )
        bags = bags_to_predict(self, X)
        with self._predicting(bags):
            found = self._predictor(bags).predicted(
                bags.X, bags.offsets, joint=False, instances=True, second=False
            )
        return kept.accepted(
            -kept_off(log_odds(found.instances)), alpha, "bags with known positives"
        )

    def choose_threshold(
        self,
        *,
        sensitivity: float | None = None,
        specificity: float | None = None,
        cost: float | None = None,
    ) -> OperatingPoint:
        """Choose from which probability on `predict` calls a bag positive.

        It is chosen on training bags that were left out of fits, so that new bags are called as
        asked on average. The model keeps it, also in its file, as `operating_point_`; before, and
        after another `fit`, `predict` takes the more probable class.

        Parameters
        ----------
        sensitivity : share of positive bags that are to be called positive, e.g. 0.95.
        specificity : share of negative bags that are to be called negative.
        cost : how many false alarms a missed positive bag is worth, e.g. 10; the threshold of least
            expected cost where positive bags are as frequent as in `fit`.

        Returns
        -------
        The operating point: `threshold` with its 95 % `interval` by the bootstrap over left-out
        bags, or groups of them, and `sensitivity` and `specificity` of these with theirs.

        Examples
        --------
        >>> from bagwise import ProbitVGPMIL
        >>> from bagwise.datasets import make_digit_bags
        >>> bags, _ = make_digit_bags(60, random_state=0)
        >>> model = ProbitVGPMIL(n_inducing=30, random_state=0).fit(bags)
        >>> point = model.choose_threshold(sensitivity=0.9)
        >>> point.sensitivity >= 0.9 and point.interval[0] <= model.threshold_ <= point.interval[1]
        True
        """
        kept = self._kept_bags("choose_threshold")
        asked = {"sensitivity": sensitivity, "specificity": specificity, "cost": cost}
        self.operating_point_ = choose(kept, self.posterior_.seed, **asked)
        return self.operating_point_

    @property
    def threshold_(self) -> float:
        """The probability from which on a bag is called positive: 1/2, or as was chosen."""
        chosen = getattr(self, "operating_point_", None)
        return 0.5 if chosen is None else chosen.threshold

    def called_positive(self, p: Array) -> Flags:
        """Which bags with the probabilities (B, 2) `predict` calls positive."""
        chosen = getattr(self, "operating_point_", None)
        if chosen is None:
            return super().called_positive(p)
        self._kept_bags("a chosen threshold")
        return chosen.called_positive(p)

    def novelty(self, X: Any) -> Novelty:
        """How unlike the bags of the fit these are, as p-values; small ones are of the unlike.

        Of instances and of bags like those of the fit a share of at most alpha has p-values of at
        most alpha: they are compared with training bags by instances of the others. What a model
        says of things it has not seen is little more than its prior. Where all bags together are
        less probable than 1 in 1000, a `bagwise.ShiftWarning` is given.

        Returns
        -------
        A tuple of p-values: `instances` (N,), rows as in `bags.X`, `bags` (B,), and `table`, of all
        bags together. Bags of one group count as one.

        Examples
        --------
        >>> from bagwise import ProbitVGPMIL
        >>> from bagwise.datasets import make_digit_bags
        >>> bags, _ = make_digit_bags(60, random_state=0)
        >>> model = ProbitVGPMIL(n_inducing=30, random_state=0).fit(bags[:40])
        >>> same, inverted = bags[40:], bags[40:42].with_X(16 - bags[40:42].X)
        >>> bool(model.novelty(same).bags.mean() > 0.3), model.novelty(inverted).bags.round(2)
        (True, array([0.02, 0.02]))
        """
        bags = bags_to_predict(self, X)
        seen = getattr(self, "seen_instances_", None)
        if seen is None:
            raise ValueError(
                "novelty compares with instances of the fit, of which this model has kept none: it "
                "is of a version that did not, or all its bags were of one group; fit again"
            )
        with suitable_threads(bags.n_instances, bags.n_features, len(seen.Z)):
            found = seen.novelty(bags)
        warn_of_shift(found, len(bags))
        return found

    def suggest_instances(self, X: Any, k: int = 10) -> NDArray[np.intp]:
        """Rows of `bags.X` whose labels would tell the model most, at most k, best first.

        Best is what says most of all other labels that are open (expected information gain), of
        all suggestions together: no ten copies of one instance. Known labels count: nothing is
        asked that they settle, such as instances of negative bags (but where bag labels may be
        wrong), the only instance of a bag, or instances whose label is known. Of models with
        coupled neighbours an instance stands for its neighbourhood.

        Parameters
        ----------
        X : bags, those of the fit or others; with labels where they are known, and with
            `instance_labels` of instances that were labelled already.
        k : how many to ask for.

        Examples
        --------
        >>> from bagwise import ProbitVGPMIL
        >>> from bagwise.datasets import make_digit_bags
        >>> bags, truth = make_digit_bags(40, random_state=0)
        >>> model = ProbitVGPMIL(n_inducing=30, random_state=0).fit(bags)
        >>> rows = model.suggest_instances(bags, 5)
        >>> bool(np.all(bags.y[bags.bag_index[rows]] == 1))
        True
        >>> answers = np.full(bags.n_instances, np.nan)
        >>> answers[rows] = truth[rows]  # ask somebody
        >>> again = model.fit(bags.with_instance_labels(answers))
        """
        check_integer("k", k, at_least=1)
        bags = bags_to_predict(self, X)
        T = np.full(len(bags), np.nan)
        known = bags.instance_labels
        if bags.y is not None:
            T = bag_targets(self, bags, None).astype(np.float64)
            known_labels(bags, T == 1, noisy=self._bag_labels_may_be_wrong())
        unknown = np.full(bags.n_instances, np.nan) if known is None else np.asarray(known)
        with self._predicting(bags):
            states = BagStates(bags.offsets, T, unknown, self._calibrated_level(bags, T))
            draws, likelihood = self._draws_over_v(bags)
            rows = suggested_instances(draws, states, likelihood, k, self.posterior_.seed)
        if not len(rows):
            raise ValueError(
                "no instance is left to ask about: labels of all are known, or settled by those of "
                "their bags; give other bags"
            )
        return rows

    def suggest_bags(self, X: Any, k: int = 10) -> NDArray[np.intp]:
        """Numbers of the bags whose labels would tell the model most, at most k, best first.

        Best is what says most of the labels of all these bags, of all suggestions together. Labels
        of `X` are not looked at: give bags that have none yet.
        """
        check_integer("k", k, at_least=1)
        bags = bags_to_predict(self, X)
        with self._predicting(bags):
            draws, likelihood = self._draws_over_v(bags)
            return suggested_bags(draws, bags.offsets, likelihood, k, self.posterior_.seed)

    def _calibrated_level(self, bags: Bags, T: Array) -> Array | None:
        """(N,) P(y_n = 1), of positive bags given that they are so, where it is calibrated."""
        if self._used_instance_calibration() is None:
            return None
        found = self._predicted(bags, second=False, instances=True)
        both, _ = self._bag_probability(found)
        p = self._ends(found, (both, None)).p[:, 1]
        of_bag = np.where(T == 1, np.maximum(both[:, 1], np.finfo(float).tiny), 1.0)
        return p / of_bag[bags.bag_index]

    def _draws_over_v(self, bags: Bags) -> tuple[Iterator[BagDraws], BagLikelihood]:
        predictor = self._predictor(bags)
        return predictor.posterior.draws_over_v(bags.X, bags.offsets, DRAWS), predictor.likelihood

    def _kept_bags(self, what: str) -> LeftOutBags:
        """Scores of left-out bags on the scale of predictions; an error where there are none."""
        check_is_fitted(self)
        kept = getattr(self, "left_out_bags_", None)
        if kept is None:
            raise ValueError(
                f"{what} needs calibrated bags: it compares with bags that were left out of fits, "
                f"which this model has not kept ({self._why_nothing_kept()}); fit again with "
                "bag_score='auto' or 'calibrated'"
            )
        if self.bag_score_ != "calibrated":
            raise ValueError(
                f"{what} compares with calibrated bags, but bag_score={self.bag_score!r} was set "
                "after fit; set it back to 'calibrated'"
            )
        return kept

    def _why_nothing_kept(self) -> str:
        reason = getattr(self, "why_not_calibrated_", None)
        return reason or "the model is of a version that did not keep them, or knew no positives"
