"""Baselines on logistic regression: by instance, by pooled features, and by pooled probability."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from bagwise.bags import Bags
from bagwise.baselines.base import (
    Array,
    BaselineMIL,
    Columns,
    Flags,
    Floats,
    InstanceMixin,
    Offsets,
    from_logit,
)
from bagwise.core.parameters import check_choice, check_integer, check_number


class SIL(InstanceMixin, BaselineMIL):
    """Single-instance learning: every instance gets the label of its bag.

    A logistic regression on the instances, as if bags did not exist; the usual yardstick for what
    multiple instance learning buys (Ray and Craven, "Supervised versus multiple instance
    learning", ICML 2005).

    Parameters
    ----------
    C : inverse strength of the squared penalty, as in scikit-learn.
    bag_score : "max", the probability of the most probable instance, or "mean".
    max_iter : limit of the solver.

    >>> from bagwise.datasets import make_bags
    >>> bags, _ = make_bags(60, overlap=0.02, random_state=0)
    >>> SIL(bag_score="mean").fit(bags).score(bags) > 0.8
    True
    """

    def __init__(self, *, C: float = 1.0, bag_score: str = "max", max_iter: int = 1000) -> None:
        self.C = C
        self.bag_score = bag_score
        self.max_iter = max_iter

    def _check_parameters(self) -> None:
        check_number("C", self.C, above=0)
        check_choice("bag_score", self.bag_score, ("max", "mean"))
        check_integer("max_iter", self.max_iter, at_least=1)

    def _learn(self, X: Floats, offsets: Offsets, T: Flags, counts: Floats) -> None:
        labels, weights = (np.repeat(x, np.diff(offsets)) for x in (T, counts))
        self._model = LogisticRegression(C=self.C, max_iter=self.max_iter)
        self._model.fit(X, labels, sample_weight=weights)
        self.n_iter_ = int(self._model.n_iter_[0])

    def _instance_probability(self, X: Floats) -> Columns:
        return from_logit(self._model.decision_function(X))

    def _bag_probability(self, X: Floats, offsets: Offsets) -> Columns:
        f = self._model.decision_function(X)
        if self.bag_score == "max":
            return from_logit(np.maximum.reduceat(f, offsets[:-1]))
        negative, positive = (
            np.add.reduceat(p, offsets[:-1]) / np.diff(offsets) for p in from_logit(f)
        )
        return negative, positive


class _PooledLogistic(BaselineMIL):
    """Logistic regression on one vector per bag."""

    def __init__(self, *, C: float = 1.0, max_iter: int = 1000) -> None:
        self.C = C
        self.max_iter = max_iter

    def _check_parameters(self) -> None:
        check_number("C", self.C, above=0)
        check_integer("max_iter", self.max_iter, at_least=1)

    def _rows(self, bags: Bags) -> tuple[Array, Offsets]:
        pooled = self._pool(bags.X.astype(np.float64, copy=False), bags.offsets)
        return pooled, np.arange(len(bags) + 1)

    def _pool(self, X: Array, offsets: Offsets) -> Array:
        raise NotImplementedError

    def _learn(self, X: Floats, offsets: Offsets, T: Flags, counts: Floats) -> None:
        self._model = LogisticRegression(C=self.C, max_iter=self.max_iter)
        self._model.fit(X, T, sample_weight=counts)
        self.n_iter_ = int(self._model.n_iter_[0])

    def _bag_probability(self, X: Floats, offsets: Offsets) -> Columns:
        return from_logit(self._model.decision_function(X))


class MeanPoolLogistic(_PooledLogistic):
    """Logistic regression on the mean of each bag's instances.

    The simplest way to make one vector of a bag (the statistics kernel of Gärtner et al., ICML
    2002, in its plainest form). It does not follow the multiple instance assumption.

    Parameters
    ----------
    C : inverse strength of the squared penalty, as in scikit-learn.
    max_iter : limit of the solver.

    >>> from bagwise.datasets import make_bags
    >>> bags, _ = make_bags(60, overlap=0.02, witness_rate=0.5, random_state=0)
    >>> MeanPoolLogistic().fit(bags).score(bags) > 0.9
    True
    """

    def _pool(self, X: Array, offsets: Offsets) -> Array:
        return np.add.reduceat(X, offsets[:-1]) / np.diff(offsets)[:, None]


class MaxPoolLogistic(_PooledLogistic):
    """Logistic regression on the largest and smallest value of each feature in a bag.

    The minimax features of Gärtner et al. (ICML 2002): a witness that stands out in a feature
    stands out in them.

    Parameters
    ----------
    C : inverse strength of the squared penalty, as in scikit-learn.
    max_iter : limit of the solver.

    >>> from bagwise.datasets import make_bags
    >>> bags, _ = make_bags(60, overlap=0.02, random_state=0)
    >>> MaxPoolLogistic().fit(bags).score(bags) > 0.9
    True
    """

    def _pool(self, X: Array, offsets: Offsets) -> Array:
        starts = offsets[:-1]
        return np.hstack([np.maximum.reduceat(X, starts), np.minimum.reduceat(X, starts)])


class MILR(InstanceMixin, BaselineMIL):
    """Multiple instance logistic regression (Ray and Craven, ICML 2005).

    Instances have p = σ(w'x + b), and a bag has their softmax-weighted mean
    Σ p exp(αp) / Σ exp(αp): near the mean for a small α, near the maximum for a large one. w and b
    maximise the likelihood of the bag labels under a Gaussian prior of w.

    Parameters
    ----------
    alpha : α above.
    C : inverse strength of the squared penalty of w, as in scikit-learn.
    max_iter, tol : limits of L-BFGS. The likelihood is not concave; it is climbed from w = 0.

    >>> from bagwise.datasets import make_bags
    >>> bags, truth = make_bags(60, overlap=0.02, random_state=0)
    >>> model = MILR().fit(bags)
    >>> model.score(bags) > 0.9, np.mean(model.predict_instances(bags) == truth) > 0.9
    (True, np.True_)
    """

    def __init__(
        self, *, alpha: float = 2.5, C: float = 1.0, max_iter: int = 1000, tol: float = 1e-6
    ) -> None:
        self.alpha = alpha
        self.C = C
        self.max_iter = max_iter
        self.tol = tol

    def _check_parameters(self) -> None:
        check_number("alpha", self.alpha, at_least=0)
        check_number("C", self.C, above=0)
        check_integer("max_iter", self.max_iter, at_least=1)
        check_number("tol", self.tol, above=0)

    def _learn(self, X: Floats, offsets: Offsets, T: Flags, counts: Floats) -> None:
        found = minimize(
            milr_objective,
            np.zeros(X.shape[1] + 1),
            args=(X, offsets, T, self.alpha, self.C, counts),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.max_iter, "gtol": self.tol, "ftol": 1e-12, "maxfun": 10**6},
        )
        self.n_iter_ = max(1, int(found.nit))
        if found.nit >= self.max_iter:
            warnings.warn(
                f"MILR did not converge in max_iter={self.max_iter} steps; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.coef_, self.intercept_ = found.x[:-1], float(found.x[-1])

    def _instance_probability(self, X: Floats) -> Columns:
        return from_logit(X @ self.coef_ + self.intercept_)

    def _bag_probability(self, X: Floats, offsets: Offsets) -> Columns:
        f = X @ self.coef_ + self.intercept_
        P, Q, _ = softmax_pool(f, offsets, self.alpha)
        total = P + Q  # it is 1 up to rounding, which may carry P alone past 1
        return Q / total, P / total


def softmax_pool(f: Floats, offsets: Offsets, alpha: float) -> tuple[Floats, Floats, Floats]:
    """P and 1 - P of each bag, and the weight of each instance, from the logits f."""
    p = expit(f)
    weight = np.exp(alpha * p)  # p <= 1, so it cannot overflow for an alpha below 700
    weight /= np.repeat(np.add.reduceat(weight, offsets[:-1]), np.diff(offsets))
    P = np.add.reduceat(weight * p, offsets[:-1])
    Q = np.add.reduceat(weight * expit(-f), offsets[:-1])
    return P, Q, weight


def milr_objective(
    v: Floats,
    X: Floats,
    offsets: Offsets,
    T: Flags,
    alpha: float,
    C: float,
    counts: Floats | float = 1.0,
) -> tuple[float, Floats]:
    """|w|²/2 - C log-likelihood of the bag labels, and its gradient in v = (w, b).

    `counts` say how many times each bag counts.
    """
    w, f = v[:-1], X @ v[:-1] + v[-1]
    P, Q, weight = softmax_pool(f, offsets, alpha)
    tiny = np.finfo(float).tiny  # a bag that is wrong beyond 1e-308 is not worth more
    observed = np.maximum(np.where(T, P, Q), tiny)
    sizes = np.diff(offsets)
    p = expit(f)
    dP = weight * (1 + alpha * (p - np.repeat(P, sizes))) * p * expit(-f)
    df = -np.repeat(counts * np.where(T, 1.0, -1.0) / observed, sizes) * dP
    gradient = np.append(w + C * (X.T @ df), C * df.sum())
    return float(0.5 * w @ w - C * np.sum(counts * np.log(observed))), gradient
