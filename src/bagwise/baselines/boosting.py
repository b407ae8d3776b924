"""Boosting of weak learners that look at instances, with weights of bags."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

from bagwise.baselines.base import (
    BaselineMIL,
    Columns,
    Flags,
    Floats,
    InstanceMixin,
    Offsets,
    from_logit,
)
from bagwise.core.parameters import check_integer

LARGEST_STEP = 5.0  # where every bag is mostly right the best step would be infinite
_FAR = 1e30  # in deviations: beyond all thresholds of trees, which compare in float32


class MIBoost(InstanceMixin, BaselineMIL):
    """MIBoost (Xu and Frank, "Logistic regression and boosting for labeled bags", PAKDD 2004).

    AdaBoost whose weights belong to bags: a tree is fitted to the instances, each with the label
    of its bag and an equal share of its weight, and the step minimises the exponential loss of the
    bags' mean error. The log-odds of a bag are the mean of those of its instances, so all
    instances count alike: this is not the standard multiple instance assumption.

    Parameters
    ----------
    n_estimators : number of trees; fewer if no tree helps any more.
    max_depth : depth of a tree; 1 is a decision stump.
    random_state : seed of the trees, which break ties between features at random.

    >>> from bagwise.datasets import make_bags
    >>> bags, _ = make_bags(60, overlap=0.02, witness_rate=0.5, random_state=0)
    >>> MIBoost(random_state=0).fit(bags).score(bags) > 0.9
    True
    """

    def __init__(
        self, *, n_estimators: int = 50, max_depth: int = 1, random_state: Any = None
    ) -> None:
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_integer("n_estimators", self.n_estimators, at_least=1)
        check_integer("max_depth", self.max_depth, at_least=1)

    def _learn(self, X: Floats, offsets: Offsets, T: Flags, counts: Floats) -> None:
        random = check_random_state(self.random_state)
        sizes = np.diff(offsets)
        labels = np.repeat(T, sizes)
        W = counts / counts.sum()
        self._trees: list[tuple[float, DecisionTreeClassifier]] = []
        for _ in range(self.n_estimators):
            tree = DecisionTreeClassifier(
                max_depth=self.max_depth, random_state=random.randint(2**31 - 1)
            )
            tree.fit(X, labels, sample_weight=np.repeat(W / sizes, sizes))
            wrong = (tree.predict(X) != labels).astype(np.float64)
            error = np.add.reduceat(wrong, offsets[:-1]) / sizes
            c = best_step(W, 2 * error - 1)
            if c == 0:
                break
            self._trees.append((c, tree))
            if c == LARGEST_STEP:
                break
            W = W * np.exp(c * (2 * error - 1))
            W /= W.sum()
        used = [tree.tree_.feature for _, tree in self._trees]
        self.selected_features_ = np.unique([f for tree in used for f in tree if f >= 0])

    def _logit(self, X: Floats) -> Floats:
        """Twice the boosted score: the log-odds of the exponential loss."""
        total = np.zeros(len(X))
        X = np.clip(X, -_FAR, _FAR)
        for c, tree in self._trees:
            total += 2 * c * np.where(tree.predict(X), 1.0, -1.0)
        return total

    def _instance_probability(self, X: Floats) -> Columns:
        return from_logit(self._logit(X))

    def _bag_probability(self, X: Floats, offsets: Offsets) -> Columns:
        return from_logit(np.add.reduceat(self._logit(X), offsets[:-1]) / np.diff(offsets))


def best_step(W: Floats, margin: Floats) -> float:
    """The c in [0, LARGEST_STEP] that minimises Σ W exp(c margin); 0 if none is better than 0.

    >>> round(best_step(np.array([0.5, 0.5]), np.array([-1.0, 0.5])), 4)  # log(2) / 1.5
    0.4621
    """

    def slope(c: float) -> float:
        return float(np.sum(W * margin * np.exp(c * margin)))

    if slope(0.0) >= 0:
        return 0.0
    if slope(LARGEST_STEP) <= 0:
        return LARGEST_STEP
    return float(brentq(slope, 0.0, LARGEST_STEP))
