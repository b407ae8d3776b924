"""`MultiTaskMIRVM`: related tasks that share which features matter [R08, 8]."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.bags.checks import as_1d, check_per_bag
from bagwise.bags.labels import in_bag_order
from bagwise.bags.messages import show
from bagwise.core.files.modelfile import register
from bagwise.core.inference.monitor import Callback, Monitor
from bagwise.core.posteriors.linear import TaskPosteriors
from bagwise.models._linear_stage import store, watched
from bagwise.models.mirvm import MIRVM

Array = NDArray[Any]

register(TaskPosteriors)


class MultiTaskMIRVM(MIRVM):
    """`MIRVM` for several related tasks, which share the prior of their weights [R08, 8].

    Each task has weights and an intercept of its own. What they share is how large each
    feature's weights tend to be, and which features are dropped: a task with few bags learns
    that from the others. Features are scaled by all tasks together.

    Predictions are made for one task: `predict_proba(bags, task="b")`. `for_task("b")` is that
    task's fitted `MIRVM`, with its `coef_` and `get_support`.

    Parameters are those of `MIRVM`.

    Attributes
    ----------
    alpha_ : (D,) shared prior precisions, infinite where a feature was pruned.

    Examples
    --------
    >>> from bagwise.datasets import make_related_tasks
    >>> bags, tasks, _ = make_related_tasks(n_bags=(60, 15), random_state=0)
    >>> model = MultiTaskMIRVM(random_state=0).fit(bags, tasks=tasks)
    >>> model.predict_proba(bags[tasks == 1], task=1).shape
    (15, 2)
    """

    posterior_: TaskPosteriors  # type: ignore[assignment]
    _posterior_type = TaskPosteriors

    def fit(  # type: ignore[override]  # no checkpoints
        self,
        X: Any,
        y: ArrayLike | None = None,
        tasks: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        positive: Any = None,
        callbacks: Sequence[Callback] = (),
        client: Any = None,
    ) -> Self:
        """Fit all tasks together.

        Parameters
        ----------
        X : a dict of Bags, {task name: Bags}; a list of Bags, one per task (tasks are then called
            0, 1, ...); or one set of bags, or `DaskBags`, as any other model takes it.
        y : one label per bag, in the order of the bags; overrides the labels of the bags.
        tasks : one task name per bag, where X is one set of bags. Without it there is one task.
        sample_weight, positive, callbacks, client : as in `ProbitVGPMIL.fit`; a list or dict of
            Bags has one weight for each bag of the first task, then of the second, and so on.
        """
        X, tasks = _joined(X, tasks)
        return self._fit(
            X,
            y,
            client,
            sample_weight=sample_weight,
            positive=positive,
            callbacks=callbacks,
            tasks=tasks,
        )

    def _fit_bags(  # type: ignore[override]
        self,
        bags: Bags,
        T: NDArray[np.bool_],
        known: Array | None,
        rng: np.random.Generator,
        *,
        counts: Array | None,
        callbacks: Sequence[Callback],
        tasks: ArrayLike | None = None,
    ) -> None:
        reasons = self._reasons_against(bags, T, counts, self._whole, None)
        names, of_task = _check_tasks(tasks, bags, T, counts)
        design = self._design(bags, T, known, counts, self._columns(bags, T, rng))
        designs = [design.of_bags(np.flatnonzero(of_task == j)) for j in range(len(names))]
        solve, tasks = partial(self._maximise, designs), tuple(names.tolist())
        found = watched(Monitor(callbacks), self._stage, solve, rng, tasks)
        store(self, found, found["posterior"].posteriors[0])
        self._not_calibrated(reasons)

    _whole = "tasks share their penalties, and some may have few bags"

    def _check_ranking(self, bags: Bags, T: NDArray[np.bool_], counts: Array | None = None) -> None:
        """Nothing is said: tasks may have so few bags that their ranking tells nothing."""

    @property
    def tasks_(self) -> Array:
        """Names of the tasks."""
        return np.array(self.posterior_.tasks)

    def for_task(self, task: Any = None) -> MIRVM:
        """The fitted `MIRVM` of one task; `task` may be left out where there is only one.

        Its weights and predictions are that task's. `alpha_`, `log_evidence_`,
        `log_evidence_history_`, `n_iter_` and `converged_` are those of the fit of all tasks
        together: tasks share the prior, so that no task has an evidence of its own.
        """
        check_is_fitted(self)
        names = self.posterior_.tasks
        if task is None and len(names) == 1:
            task = names[0]
        if task not in names:
            raise ValueError(
                f"task must be one of {', '.join(show(n) for n in names)}, got {task!r}; each task "
                "has its own weights, so predictions need one"
            )
        model = MIRVM(**self.get_params(deep=False))
        for name in self._fitted_names():
            setattr(model, name, getattr(self, name))
        model.posterior_ = self.posterior_.posteriors[names.index(task)]
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_
        return model

    @property
    def coef_(self) -> Array:
        """(n_tasks, D) weights of each task; see `MIRVM.coef_`."""
        return np.array([self.for_task(t).coef_ for t in self.posterior_.tasks])

    @property
    def coef_std_(self) -> Array:
        """(n_tasks, D) posterior standard deviations of `coef_`."""
        return np.array([self.for_task(t).coef_std_ for t in self.posterior_.tasks])

    @property
    def scaled_coef_(self) -> Array:
        """(n_tasks, D) weights of the scaled features; see `MIRVM.scaled_coef_`."""
        return np.array([self.for_task(t).scaled_coef_ for t in self.posterior_.tasks])

    @property
    def scaled_coef_std_(self) -> Array:
        """(n_tasks, D) posterior standard deviations of `scaled_coef_`."""
        return np.array([self.for_task(t).scaled_coef_std_ for t in self.posterior_.tasks])

    @property
    def intercept_(self) -> Array:  # type: ignore[override]
        """(n_tasks,) intercepts."""
        return np.array([self.for_task(t).intercept_ for t in self.posterior_.tasks])

    @property
    def selected_features_(self) -> NDArray[np.int64]:
        """Numbers of the features that were not pruned, the same for all tasks."""
        return self._any_task().selected_features_

    @property
    def relevance_vectors_(self) -> Array:
        """With a kernel: the basis points that were not pruned, the same for all tasks."""
        return self._any_task().relevance_vectors_

    def get_support(self, indices: bool = False) -> Array:
        """Features that are supported in at least one task; see `MIRVM.get_support`."""
        check_is_fitted(self)
        each = [self.for_task(t).get_support() for t in self.posterior_.tasks]
        mask = np.any(each, axis=0)
        return np.flatnonzero(mask) if indices else mask

    def predict_proba(
        self, X: Any, return_std: bool = False, *, task: Any = None
    ) -> Array | tuple[Array, Array]:
        """Probability of each class for each bag under one task's model."""
        return self.for_task(task).predict_proba(X, return_std)

    def predict(self, X: Any, *, task: Any = None) -> Array:
        """The more probable class of each bag under one task's model."""
        return self.for_task(task).predict(X)

    def predict_instance_proba(
        self, X: Any, return_std: bool = False, *, task: Any = None
    ) -> Array | tuple[Array, Array]:
        """Probability of each class for each instance under one task's model."""
        return self.for_task(task).predict_instance_proba(X, return_std)

    def instance_posterior(
        self, X: Any, return_std: bool = False, *, y: ArrayLike | None = None, task: Any = None
    ) -> Array | tuple[Array, Array]:
        """The same given the labels of the bags; see `MIRVM.instance_posterior`."""
        return self.for_task(task).instance_posterior(X, return_std, y=y)

    def predict_instances(self, X: Any, *, task: Any = None) -> Array:
        """The more probable class of each instance under one task's model."""
        return self.for_task(task).predict_instances(X)

    def latent(self, X: Any, *, task: Any = None) -> tuple[Array, Array]:
        """Posterior mean and variance of f at each instance under one task's model."""
        return self.for_task(task).latent(X)

    def top_instances(self, X: Any, k: int = 1, *, task: Any = None) -> list[NDArray[np.intp]]:
        """For each bag the rows of its `k` most probable instances under one task's model."""
        return self.for_task(task).top_instances(X, k)

    def suggest_instances(self, X: Any, k: int = 10, *, task: Any = None) -> NDArray[np.intp]:
        """Rows whose labels would tell most of a task; see `MIRVM.suggest_instances`."""
        return self.for_task(task).suggest_instances(X, k)

    def suggest_bags(self, X: Any, k: int = 10, *, task: Any = None) -> NDArray[np.intp]:
        """Bags whose labels would tell most of a task; see `MIRVM.suggest_bags`."""
        return self.for_task(task).suggest_bags(X, k)

    def score(
        self, X: Any, y: ArrayLike | None = None, sample_weight: Any = None, *, task: Any = None
    ) -> float:
        """Accuracy on bags under one task's model."""
        return self.for_task(task).score(X, y, sample_weight)

    def _any_task(self) -> MIRVM:
        check_is_fitted(self)
        return self.for_task(self.posterior_.tasks[0])


def _joined(X: Any, tasks: ArrayLike | None) -> tuple[Any, ArrayLike | None]:
    """One set of bags with a task for each, where a list of Bags stands for one task each."""
    names: Array | None = None
    if isinstance(X, dict) and not sparse.issparse(X):  # scipy's dictionary of keys is a dict
        if not X or not all(isinstance(b, Bags) for b in X.values()):
            raise TypeError("a dict of tasks must be {task name: Bags}, one entry per task")
        names, X = as_1d(list(X), "task names"), list(X.values())
    several = isinstance(X, list | tuple) and len(X) > 0 and all(isinstance(b, Bags) for b in X)
    if not several:
        return X, tasks
    if tasks is not None:
        raise ValueError(
            "a list or dict of Bags is one task each and takes no tasks=; to name the tasks pass a "
            "dict {name: Bags}, or one set of Bags: Bags.concat(list_of_bags)"
        )
    counts = [b.n_features for b in X]
    if len(set(counts)) > 1:
        raise ValueError(
            f"tasks must have the same features, but they have {counts} features; keep the "
            "common ones, in the same order"
        )
    names = np.arange(len(X)) if names is None else names
    return Bags.concat(X), np.repeat(names, [len(b) for b in X])


def _check_tasks(
    tasks: ArrayLike | None, bags: Bags, T: NDArray[np.bool_], counts: Array | None
) -> tuple[Array, NDArray[np.intp]]:
    """Names of the tasks and the number of each bag's task; in every task both classes count."""
    if tasks is None:
        tasks = np.zeros(len(bags), dtype=np.int64)
    tasks = in_bag_order(tasks, bags.ids, "tasks")
    labels = check_per_bag(tasks, len(bags), bags.n_instances, "tasks")
    if labels.dtype.kind not in "iuUb":
        raise ValueError(
            f"tasks must be names or whole numbers, all of one type; got {labels.dtype}; use "
            "strings or integers"
        )
    names, of_task = np.unique(labels, return_inverse=True)
    some = np.ones(len(T), dtype=bool) if counts is None else counts > 0
    positives = np.bincount(of_task[some], weights=T[some], minlength=len(names))
    sizes = np.bincount(of_task[some], minlength=len(names))
    for name, size, positive in zip(names, sizes, positives, strict=True):
        if positive in (0, size):
            which = "positive" if positive else "negative"
            raise ValueError(
                f"every task needs bags of both classes, but all {size} bags of task "
                f"{show(name)} are {which}; add bags of the other class or leave the task out"
            )
    return names, of_task
