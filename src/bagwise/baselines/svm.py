"""Baselines on support vector machines, with probabilities from held-out decision values."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC
from sklearn.utils import check_random_state

from bagwise.baselines.base import (
    BaselineMIL,
    Columns,
    Flags,
    Floats,
    InstanceMixin,
    Offsets,
    from_logit,
    subset,
)
from bagwise.core.parameters import check_choice, check_integer, check_number

BLOCK = 1024  # rows of the kernel matrix at a time


class _CalibratedSVM(BaselineMIL):
    """Probabilities are a sigmoid of decision values, fitted to those of held-out bags."""

    calibration_folds: int
    random_state: Any

    def _machine(self, X: Floats, offsets: Offsets, T: Flags, counts: Floats) -> Any:
        """A trained machine."""
        raise NotImplementedError

    def _decision(self, machine: Any, X: Floats, offsets: Offsets) -> Floats:
        """Its decision value of each bag."""
        raise NotImplementedError

    def _learn(self, X: Floats, offsets: Offsets, T: Flags, counts: Floats) -> None:
        decision = self._held_out(X, offsets, T, counts)
        self._model = self._machine(X, offsets, T, counts)
        if decision is None:
            decision = self._decision(self._model, X, offsets)
        self.slope_, self.intercept_ = fit_sigmoid(decision, T, counts)

    def _bag_probability(self, X: Floats, offsets: Offsets) -> Columns:
        f = self._decision(self._model, X, offsets)
        return from_logit(self.slope_ * f + self.intercept_)

    def _held_out(self, X: Floats, offsets: Offsets, T: Flags, counts: Floats) -> Floats | None:
        """Decision values of bags that the machine was not trained on; None for too few bags."""
        n_folds = min(self.calibration_folds, int(T.sum()), int((~T).sum()))
        if n_folds < 2:
            return None
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
        decision = np.empty(len(T))
        for train, test in folds.split(np.zeros(len(T)), T):
            machine = self._machine(*subset(X, offsets, train), T[train], counts[train])
            decision[test] = self._decision(machine, *subset(X, offsets, test))
        return decision

    def _check_svm(self) -> None:
        check_integer("calibration_folds", self.calibration_folds, at_least=2)


class _AlternatingSVM(InstanceMixin, _CalibratedSVM):
    """A machine on instances, trained in turns with the choice of what is positive."""

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: str = "rbf",
        gamma: str | float = "scale",
        max_iter: int = 50,
        calibration_folds: int = 3,
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.max_iter = max_iter
        self.calibration_folds = calibration_folds
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_number("C", self.C, above=0)
        check_choice("kernel", self.kernel, ("rbf", "linear", "poly"))
        if self.gamma not in ("scale", "auto"):
            check_number("gamma ('scale', 'auto' or a number)", self.gamma, above=0)
        check_integer("max_iter", self.max_iter, at_least=1)
        self._check_svm()

    def _svc(self, X: Floats, labels: Flags, weights: Floats) -> SVC:
        machine = SVC(C=self.C, kernel=self.kernel, gamma=self.gamma)
        return machine.fit(X, labels, sample_weight=weights)

    def _decision(self, machine: SVC, X: Floats, offsets: Offsets) -> Floats:
        return np.maximum.reduceat(machine.decision_function(X), offsets[:-1])

    def _instance_probability(self, X: Floats) -> Columns:
        f = self._model.decision_function(X)
        return from_logit(self.slope_ * f + self.intercept_)

    def _alternate(self, machine: SVC, choice: NDArray[Any], step: Any) -> SVC:
        """Repeat `step`, machine -> (choice, machine), until a choice comes again."""
        seen = {choice.tobytes()}
        for turn in range(1, self.max_iter + 1):
            choice, train = step(machine)
            self.n_iter_ = turn
            if choice.tobytes() in seen:
                return machine
            seen.add(choice.tobytes())
            machine = train()
        warnings.warn(
            f"{type(self).__name__} still changed its choice of positive instances after "
            f"max_iter={self.max_iter} turns; raise max_iter",
            ConvergenceWarning,
            stacklevel=2,
        )
        return machine


class MISVM(_AlternatingSVM):
    """MI-SVM: one instance stands for each positive bag (Andrews et al., NIPS 2002).

    Starting from the mean of each positive bag, a support vector machine is trained on these and
    on all instances of negative bags, then each positive bag is represented by its instance with
    the largest decision value, and so on until nothing changes. A bag's decision value is that of
    its best instance; probabilities come from decision values of held-out bags (Platt's method),
    so training takes `calibration_folds` + 1 machines.

    Parameters
    ----------
    C, kernel, gamma : of scikit-learn's `SVC`.
    max_iter : limit of the turns.
    calibration_folds : folds for the held-out decision values.
    random_state : seed of these folds.

    >>> from bagwise.datasets import make_bags
    >>> bags, _ = make_bags(60, overlap=0.02, random_state=0)
    >>> MISVM(random_state=0).fit(bags).score(bags) > 0.9
    True
    """

    def _machine(self, X: Floats, offsets: Offsets, T: Flags, counts: Floats) -> SVC:
        sizes = np.diff(offsets)
        outside = ~np.repeat(T, sizes)
        negative = X[outside]
        labels = np.repeat([False, True], [len(negative), int(T.sum())])
        weights = np.append(np.repeat(counts, sizes)[outside], counts[T])

        def train(chosen: Floats) -> SVC:
            return self._svc(np.vstack([negative, chosen]), labels, weights)

        def step(machine: SVC) -> tuple[NDArray[np.int64], Any]:
            best = best_rows(machine.decision_function(X), offsets)[T]
            return best, lambda: train(X[best])

        means = np.add.reduceat(X, offsets[:-1]) / sizes[:, None]
        return self._alternate(train(means[T]), np.array([-1]), step)


class miSVM(_AlternatingSVM):
    """mi-SVM: every instance gets a label of its own (Andrews et al., NIPS 2002).

    Starting from all instances of positive bags as positive, a support vector machine is trained,
    instances of positive bags are labelled by its decisions, the best instance of a positive bag
    without a positive one is made positive, and so on until nothing changes. For the rest, and
    the parameters, see `MISVM`.

    >>> from bagwise.datasets import make_bags
    >>> bags, _ = make_bags(60, overlap=0.02, random_state=0)
    >>> miSVM(random_state=0).fit(bags).score(bags) > 0.9
    True
    """

    def _machine(self, X: Floats, offsets: Offsets, T: Flags, counts: Floats) -> SVC:
        sizes = np.diff(offsets)
        inside, weights = np.repeat(T, sizes), np.repeat(counts, sizes)

        def step(machine: SVC) -> tuple[Flags, Any]:
            f = machine.decision_function(X)
            labels = inside & (f > 0)
            labels[best_rows(f, offsets)[T]] = True
            return labels, lambda: self._svc(X, labels, weights)

        return self._alternate(self._svc(X, inside, weights), inside, step)


class SetKernelSVM(_CalibratedSVM):
    """Support vector machine with a kernel between bags (Gärtner et al., ICML 2002).

    The normalised set kernel: the mean of an RBF kernel over all pairs of instances of two bags,
    divided so that each bag has length 1. Probabilities as in `MISVM`. It compares whole bags and
    does not follow the multiple instance assumption; instances get no probability.

    Parameters
    ----------
    C : of scikit-learn's `SVC`.
    gamma : of the RBF kernel, `exp(-gamma |x - x'|²)`; "scale" is 1 / number of features, since
        features are standardised.
    calibration_folds : folds for the held-out decision values.
    random_state : seed of these folds.

    >>> from bagwise.datasets import make_bags
    >>> bags, _ = make_bags(60, overlap=0.02, random_state=0)
    >>> SetKernelSVM(random_state=0).fit(bags).score(bags) > 0.9
    True
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        gamma: str | float = "scale",
        calibration_folds: int = 3,
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.calibration_folds = calibration_folds
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_number("C", self.C, above=0)
        if self.gamma != "scale":
            check_number("gamma ('scale' or a number)", self.gamma, above=0)
        self._check_svm()

    def _machine(self, X: Floats, offsets: Offsets, T: Flags, counts: Floats) -> tuple[SVC, Any]:
        gamma = 1 / X.shape[1] if self.gamma == "scale" else float(self.gamma)
        K = set_kernel(X, offsets, X, offsets, gamma)
        length = np.sqrt(np.diag(K))
        svc = SVC(C=self.C, kernel="precomputed")
        svc.fit(K / np.outer(length, length), T, sample_weight=counts)
        return svc, (X, offsets, length, gamma)

    def _decision(self, machine: tuple[SVC, Any], X: Floats, offsets: Offsets) -> Floats:
        svc, (train, train_offsets, length, gamma) = machine
        K = set_kernel(X, offsets, train, train_offsets, gamma)
        own = np.sqrt(_self_kernel(X, offsets, gamma))
        return np.asarray(svc.decision_function(K / np.outer(own, length)))


# --- Pieces --------------------------------------------------------------------------------------


def set_kernel(X: Floats, x: Offsets, Z: Floats, z: Offsets, gamma: float) -> Floats:
    """Mean RBF kernel over all pairs of instances, for each pair of bags of X and Z.

    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> set_kernel(X, np.array([0, 2, 3]), X, np.array([0, 1, 2, 3]), gamma=0.0)
    array([[1., 1., 1.],
           [1., 1., 1.]])
    """
    rows = np.empty((len(X), len(z) - 1))
    for start in range(0, len(X), BLOCK):
        block = rbf_kernel(X[start : start + BLOCK], Z, gamma=gamma)
        rows[start : start + BLOCK] = np.add.reduceat(block, z[:-1], axis=1)
    total = np.add.reduceat(rows, x[:-1], axis=0)
    return total / np.outer(np.diff(x), np.diff(z))


def _self_kernel(X: Floats, offsets: Offsets, gamma: float) -> Floats:
    """The kernel of each bag with itself."""
    return np.array([rbf_kernel(X[a:b], gamma=gamma).mean() for a, b in pairwise(offsets)])


def best_rows(f: Floats, offsets: Offsets) -> NDArray[np.int64]:
    """The row of the largest value in each bag.

    >>> best_rows(np.array([1.0, 3.0, 2.0]), np.array([0, 2, 3]))
    array([1, 2])
    """
    return np.array([a + np.argmax(f[a:b]) for a, b in pairwise(offsets)])


def fit_sigmoid(f: Floats, T: Flags, counts: Floats | None = None) -> tuple[float, float]:
    """Slope and intercept of σ(a f + b) for decision values f (Platt 1999).

    Targets are Platt's (n + 1) / (n + 2) and 1 / (n + 2) for n of a class, which bags make up as
    often as they count, and the slope is not negative: probabilities keep the order of decision
    values.
    """
    counts = np.ones(len(f)) if counts is None else counts
    n1, n0 = float(counts[T].sum()), float(counts[~T].sum())
    target = np.where(T, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))
    unit = max(float(np.std(f)), 1e-12)
    u = f / unit

    def loss(v: Floats) -> tuple[float, Floats]:
        logit = v[0] * u + v[1]
        residual = counts * (expit(logit) - target)
        value = counts @ (target * logit - np.logaddexp(0, logit))  # t log σ + (1 - t) log(1 - σ)
        return float(-value), np.array([residual @ u, residual.sum()])

    bounds = [(1e-3, None), (None, None)]
    found = minimize(loss, [1.0, 0.0], jac=True, method="L-BFGS-B", bounds=bounds)
    return float(found.x[0] / unit), float(found.x[1])
