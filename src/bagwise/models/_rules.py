"""Models whose bag labels may be about numbers of positive instances: at least k, or a share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import column_or_1d

from bagwise.bags import Bags, as_bags
from bagwise.bags.labels import in_bag_order
from bagwise.bags.messages import show
from bagwise.core.calibration.conformal import LeftOutBags
from bagwise.core.files.modelfile import register
from bagwise.core.inference.checkpoints import Saving
from bagwise.core.inference.monitor import Callback
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.bag_scores import Predicted
from bagwise.core.likelihoods.count_rule import CountRule
from bagwise.core.likelihoods.rules import AT_LEAST_ONE, AtLeast, BagRule, Share, check_rule
from bagwise.core.links import Link
from bagwise.core.posteriors.given_labels import BagDraws
from bagwise.core.posteriors.ruled import RulePredictor
from bagwise.distributed import DaskBags
from bagwise.models._calibrated import CalibratedMIL, Reasons
from bagwise.models.bag_weights import sample_weights
from bagwise.models.inputs import bags_to_predict, labels_for

Array = NDArray[Any]

UNSURE_H = 100.0  # any finite one: that labels may be wrong, as their reliabilities say

register(AtLeast)
register(Share)


class RuledMIL(CalibratedMIL, abstract=True):
    """Labels by a `rule`; without one a bag is positive if at least one instance is.

    To stand before the kind of model among the parents of a class.
    """

    rule: Any
    _unsure = False  # labels have reliabilities, which the fit is told

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        reliability: ArrayLike | None = None,
        positive: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_minutes: float = 5.0,
        resume: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callback] = (),
        client: Any = None,
    ) -> Self:
        """Fit from bag labels, as `VGPMIL.fit` does.

        `reliability` is the probability that each bag's label is right, one number per bag in the
        order of the bags, or in a pandas Series as `y`: for a `rule` about numbers of positives,
        such as `bagwise.AtLeast(1)`. A class that is wrong is the other one, a share that is wrong
        may be any.
        """
        saving = Saving(checkpoint, checkpoint_minutes, resume)
        told = {"sample_weight": sample_weight, "positive": positive, "callbacks": callbacks}
        if reliability is not None:
            told["reliability"] = self._reliabilities(X, reliability)
        return self._fit(X, y, client, **told, saving=saving)

    @property
    def _rule(self) -> BagRule | None:
        usual = isinstance(self.rule, str) and self.rule == AT_LEAST_ONE
        return None if usual else check_rule(self.rule)

    @property
    def _shares(self) -> bool:
        return self._rule is not None and self._rule.shares

    @property
    def labels_are_shares(self) -> bool:
        """Whether the labels of bags are shares of positive instances, not classes."""
        return self._shares

    def predict_share(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """The expected share of positive instances of each bag, (B,), where labels are shares.

        With `return_std`, also its standard deviation: of what instances are, and of what is not
        known of the model. Labels scatter about shares by the rule's `std` besides.

        Examples
        --------
        >>> from bagwise import ProbitVGPMIL, Share
        >>> rng = np.random.default_rng(0)
        >>> y = rng.uniform(size=40)
        >>> bags = [rng.normal(size=(20, 1)) + 4 * (rng.uniform(size=(20, 1)) < s) for s in y]
        >>> model = ProbitVGPMIL(rule=Share(std=0.1), n_inducing=10, random_state=0).fit(bags, y)
        >>> share, std = model.predict_share([np.full((20, 1), 4.0)], return_std=True)
        >>> bool(share[0] > 0.9 and std[0] < 0.1)
        True
        """
        if not self._shares:
            raise ValueError(
                "predict_share is for models whose labels are shares (rule=bagwise.Share()); "
                f"the rule of this one is {self.rule!r}: use predict_proba for its bags, "
                "predict_instance_proba for instances"
            )
        bags = bags_to_predict(self, X)
        with self._predicting(bags):
            mean, std = self._predictor(bags).shares(bags.X, bags.offsets)
        return (mean, std) if return_std else mean

    def _ruled(self, link: Link) -> BagLikelihood:
        """What bag labels say."""
        rule = self._rule
        if rule is None:
            return BagLikelihood(link)
        return CountRule(link, rule, UNSURE_H if self._unsure else np.inf)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self._rule is None:
            return
        if self.bag_score == "noisy-or" or (self._shares and self.bag_score != "auto"):
            use = "'auto'" if self._shares else "'auto', 'joint', 'max' or 'calibrated'"
            raise ValueError(
                f"bag_score={self.bag_score!r} is no score of bags under rule={self.rule!r}; use "
                f"{use}"
            )
        if self._shares and self.class_weight is not None:
            raise ValueError(
                "class_weight weighs classes of bags, but the labels of rule="
                f"{self.rule!r} are shares; weigh single bags by fit(..., sample_weight=)"
            )

    def _rule_against(self) -> Reasons:
        if self._rule is None:
            return None, None
        of_instances = (
            f"rule={self.rule!r}: calibration knows no more of instances than that a positive bag "
            "has one"
        )
        if not self._shares:
            return None, of_instances
        of_shares = f"rule={self.rule!r}: labels are shares, which set the level of probabilities"
        return of_shares, of_shares

    def _targets(
        self, X: Any, bags: Bags, y: ArrayLike | None, positive: Any, sample_weight: Any
    ) -> tuple[Array, Array, Array | None]:
        if not self._shares:
            return super()._targets(X, bags, y, positive, sample_weight)
        if positive is not None:
            raise ValueError(
                f"positive= names a class of bags, but the labels of rule={self.rule!r} are "
                "shares of positive instances; leave it out"
            )
        T = shares_of(bags)
        if np.all(T[0] == T):
            raise ValueError(
                f"shares must differ between bags to tell anything of instances, but all {len(T)} "
                f"are {T[0]:g}; add bags with other shares"
            )
        counts = None if sample_weight is None else sample_weights(X, bags, sample_weight)
        return np.array([0, 1]), T, counts

    def _fit_bags(self, bags: Bags, T: Array, known: Array | None, *told: Any, **more: Any) -> None:
        reliability = more.get("reliability")
        if self._rule is not None and not self._shares:
            check_possible(bags, T, known, self._rule, reliability)
        self._unsure = reliability is not None
        super()._fit_bags(bags, T, known, *told, **more)

    def _reliabilities(self, X: Any, given: ArrayLike | None) -> Array | None:
        """(B,) as `fit` was given them, in the order of the bags."""
        if given is None:
            return None
        if self._rule is None:
            raise ValueError(
                "reliability= needs a rule about numbers of positives: "
                f"{type(self).__name__}(rule=bagwise.AtLeast(1)); VGPMIL(H=100) is for labels that "
                "are all equally reliable"
            )
        if isinstance(X, DaskBags):
            raise ValueError(
                "reliability= is for bags on this machine; collect them first, or leave it out"
            )
        bags = as_bags(X, estimator_name=type(self).__name__)
        return reliabilities(labels_for(X, given), bags, self._rule)

    def _told_targets(self, bags: Bags, y: ArrayLike | None) -> Array:
        if not self._shares:
            return super()._told_targets(bags, y)
        if y is not None:
            bags = bags.with_labels(column_or_1d(in_bag_order(y, bags.ids, "y"), warn=True))
        return shares_of(bags)

    def _check_ranking(self, bags: Bags, T: Any, counts: Array | None = None) -> None:
        if not self._shares:  # which have no classes to rank
            super()._check_ranking(bags, T, counts)

    def _predictor(self, bags: Bags) -> Any:
        likelihood = self._fitted_likelihood()
        if isinstance(likelihood, CountRule):
            return RulePredictor(self.posterior_, likelihood)
        return super()._predictor(bags)

    def _predicted(self, bags: Bags, **asked: Any) -> Predicted:
        self._refuse_shares()
        return super()._predicted(bags, **asked)

    def _kept_bags(self, what: str) -> LeftOutBags:
        self._refuse_shares()
        return super()._kept_bags(what)

    def _refuse_shares(self) -> None:
        if self._shares:
            raise ValueError(
                f"the labels of rule={self.rule!r} are shares, not classes: a bag has no "
                "probability of a class, and no decision is made of it; use "
                "predict_share(bags, return_std=True) for bags and predict_instance_proba for "
                "instances"
            )

    def _bag_labels_may_be_wrong(self) -> bool:
        """True where a rule has its own way to check known labels, too."""
        return self._rule is not None

    def _draws_over_v(self, bags: Bags) -> tuple[Iterator[BagDraws], BagLikelihood]:
        if self._rule is not None:
            raise ValueError(
                "suggestions know the rule 'at least one' only; with "
                f"rule={self.rule!r} ask about instances whose predict_instance_proba is nearest "
                "to 1/2"
            )
        return super()._draws_over_v(bags)


def shares_of(bags: Bags) -> Array:
    """(B,) labels as shares from 0 to 1."""
    if bags.y is None:
        raise ValueError(
            "instance_posterior needs the label of every bag, but the bags have none; pass y= or "
            "Bags with y, or ask predict_instance_proba, which needs none"
        )
    y = np.asarray(bags.y)
    if y.dtype.kind not in "fiub":
        raise ValueError(
            "labels of rule=Share() are numbers from 0 to 1, the share of positive instances; got "
            f"{show(y[0])}; convert them"
        )
    T = y.astype(np.float64)
    wrong = ~((T >= 0) & (T <= 1))
    if np.any(wrong):
        b = int(np.argmax(wrong))
        raise ValueError(
            "labels of rule=Share() are shares of positive instances, from 0 to 1; bag "
            f"{show(bags.ids[b])} has {T[b]:g}; divide percentages by 100, and numbers of "
            "positives by those of instances"
        )
    return T


def reliabilities(given: Any, bags: Bags, rule: BagRule) -> Array:
    """One probability per bag that its label is right."""
    values = np.asarray(in_bag_order(given, bags.ids, "reliability"))
    values = column_or_1d(values).astype(np.float64)
    if len(values) != len(bags):
        raise ValueError(
            f"reliability must have one value per bag; there are {len(bags)} bags and "
            f"{len(values)} values"
        )
    least = 0.0 if rule.shares else 0.5
    wrong = ~((values > least) & (values <= 1))
    if np.any(wrong):
        b = int(np.argmax(wrong))
        raise ValueError(
            f"reliability is the probability that a label is right, above {least:g} and at most 1; "
            f"bag {show(bags.ids[b])} has {values[b]:g}; correct it, or leave the bag out"
        )
    return values


def check_possible(
    bags: Bags, T: Array, known: Array | None, rule: BagRule, reliability: Array | None
) -> None:
    """Raise where a label that is surely right cannot be, by the bag's size or known labels."""
    sure = np.ones(len(bags), dtype=bool) if reliability is None else reliability == 1
    least: Array = np.zeros(len(bags))
    most: Array = bags.sizes.astype(np.float64)
    if known is not None:
        least = np.add.reduceat(known == 1, bags.offsets[:-1], dtype=np.float64)
        most = most - np.add.reduceat(known == 0, bags.offsets[:-1], dtype=np.float64)
    wrong = sure & np.where(T, most < rule.fewest, least >= rule.fewest)
    if not np.any(wrong):
        return
    b = int(np.argmax(wrong))
    what = f"at most {most[b]:g}" if T[b] else f"at least {least[b]:g}"
    raise ValueError(
        f"by rule={rule!r} a bag is positive if it has {rule.fewest} or more positive instances; "
        f"bag {show(bags.ids[b])} is {'positive' if T[b] else 'negative'}, but has {what}, by its "
        "size and the known labels of its instances; correct its label or theirs, or give it a "
        "reliability below 1"
    )
