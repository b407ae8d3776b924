"""What all Gaussian-process estimators share: arguments, fit, predictions, model files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from bagwise.bags import Bags
from bagwise.bags.rows import RowSource, ScaledRows, column_moments, is_elsewhere
from bagwise.core.calibration.bags import (
    ALL_BAG_SCORES,
    BagCalibration,
    calibrate,
    calibrated_probability,
    cannot_calibrate,
    reason_against,
    too_many,
    warn_of_left_out,
)
from bagwise.core.calibration.left_out import Scorer, Scores, left_out, scores_of
from bagwise.core.files.modelfile import register
from bagwise.core.inducing import kmeans_points
from bagwise.core.inference.checkpoints import Session, interruptible
from bagwise.core.inference.driver import Problem, Result, fit_q
from bagwise.core.inference.feature_store import default_budget
from bagwise.core.inference.monitor import Callback, Monitor, State
from bagwise.core.inference.sites import Sites
from bagwise.core.linalg import BREAKDOWNS
from bagwise.core.parameters import (
    check_choice,
    check_dtype,
    check_integer,
    check_number,
    check_rows,
)
from bagwise.core.posteriors.gaussian import Posterior, Predicted, columns, parts_of
from bagwise.core.warnings import warn_user
from bagwise.distributed import DaskRows, training_data
from bagwise.kernels import RBF, Kernel
from bagwise.models._base import BagClassifierMIL, generator, register_kernels
from bagwise.models.inputs import known_labels

Array = NDArray[Any]

FITTED = (
    "classes_",
    "n_features_in_",
    "posterior_",
    "elbo_",
    "elbo_history_",
    "n_iter_",
    "converged_",
    "calibration_",
    "why_not_calibrated_",
)

register(Posterior)
register(BagCalibration)


class GaussianProcessMIL(BagClassifierMIL):
    """What all Gaussian-process models share; subclasses name their likelihood and sites."""

    posterior_: Posterior
    calibration_: BagCalibration | None
    why_not_calibrated_: str | None
    _posterior_type = Posterior
    _remedies = (
        "standardize=True, learned hyperparameters (mean='learn', learn_hyperparameters=True), "
        "more inducing points, another model (MIRVM where few of many features matter)"
    )
    _link: ClassVar[str]
    _start_variance: ClassVar[float]  # of the kernel, on the scale of the link
    _inferences: ClassVar[tuple[str, ...]] = ("vi", "laplace")

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        n_inducing: int = 200,
        inducing: str | ArrayLike = "kmeans",
        mean: str | float = "learn",
        learn_hyperparameters: bool = True,
        standardize: str | bool = "auto",
        approximation: str = "fitc",
        inference: str = "vi",
        bag_score: str = "joint",
        max_iter: int = 500,
        tol: float = 1e-8,
        jitter: float = 1e-6,
        init: dict[str, ArrayLike] | None = None,
        dtype: Any = None,
        chunk_size: int | None = None,
        memory_budget: float | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.inducing = inducing
        self.mean = mean
        self.learn_hyperparameters = learn_hyperparameters
        self.standardize = standardize
        self.approximation = approximation
        self.inference = inference
        self.bag_score = bag_score
        self.max_iter = max_iter
        self.tol = tol
        self.jitter = jitter
        self.init = init
        self.dtype = dtype
        self.chunk_size = chunk_size
        self.memory_budget = memory_budget
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        positive: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_minutes: float = 5.0,
        resume: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callback] = (),
        client: Any = None,
    ) -> Self:
        """Fit from bag labels.

        Parameters
        ----------
        X : Bags, a list of (n_b, D) arrays, a 2-D array with one instance per bag, or
            `bagwise.distributed.DaskBags`.
        y : one label per bag; overrides the labels of the bags. Two classes of any type. A pandas
            Series whose index holds the bag ids is put in their order.
        positive : the label of bags with a positive instance, `classes_[1]`. By default the larger
            of two numbers or of two ordered categories; text needs it, but for pairs such as no
            and yes.
        checkpoint : a file to which the state of the fit is written every `checkpoint_minutes`,
            and on Ctrl-C. The state before it stays beside it, as `<file>.previous`.
        resume : a checkpoint to go on from, with the same data and arguments; further states
            are written to it unless `checkpoint` names another file.
        callbacks : functions called after every step as f(stage, step, objective, seconds).
            `begin(model)` and `end()` of those that have them are called before and after.
        client : the Dask client whose workers hold `DaskBags`.

        A fit that does not finish (an error, Ctrl-C) leaves the model as it was before.
        Instance labels of the bags (1, 0; NaN or -1 where unknown) are used where known.
        """
        return self._fit(
            X,
            y,
            client,
            positive=positive,
            checkpoint=checkpoint,
            checkpoint_minutes=checkpoint_minutes,
            resume=resume,
            callbacks=callbacks,
        )

    def _fit_bags(
        self,
        bags: Bags,
        T: NDArray[np.bool_],
        known: Array | None,
        rng: np.random.Generator,
        *,
        callbacks: Sequence[Callback],
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_minutes: float = 5.0,
        resume: str | os.PathLike[str] | None = None,
        scaling: tuple[Array, Array] | None = None,
    ) -> None:
        """Fit; one that is part of another model's fit is given that model's `scaling`."""
        sites = self._sites(self._checked_init(bags.n_instances))
        self._check_way_of_fitting(bags, sites, checkpoint, resume)
        against = reason_against(
            self.bag_score, self._cannot_calibrate(bags, T), self._too_costly(bags)
        )
        register_kernels()  # checkpoints hold them
        session = Session.begin(self, bags, T, known, checkpoint, checkpoint_minutes, resume)
        prepared = session.prepared or self._prepare(bags, T, known, rng, scaling)
        shift, scale = prepared["shift"], prepared["scale"]
        problem = Problem(
            data=training_data(
                self._scaled(bags.X, shift, scale),
                bags.offsets,
                T,
                known,
                self.chunk_size,
                self._neighbor_graph(bags),
                self._feature_budget(bags),
            ),
            Z=prepared["Z"],
            likelihood=self._likelihood(),
            sites=sites,
            jitter=self.jitter,
            seed=prepared["seed"],
            monitor=session.monitor(prepared, callbacks),
        )
        result = interruptible(
            lambda: self._run(problem, refit=scaling is not None), problem.monitor.save
        )
        self._store(result, problem, shift, scale)
        self.calibration_, self.why_not_calibrated_ = None, against
        if against is None:
            work = partial(self._calibrate, bags, T, problem.seed, problem.monitor)
            found = interruptible(work, problem.monitor.save)
            self.calibration_, self.why_not_calibrated_ = found

    def _prepare(
        self,
        bags: Bags,
        T: NDArray[np.bool_],
        known: Array | None,
        rng: np.random.Generator,
        scaling: tuple[Array, Array] | None,
    ) -> dict[str, Any]:
        """What is chosen at random or takes a pass over X before a fit begins."""
        shift, scale = scaling or self._scaling(bags.X)
        Xs = self._scaled(bags.X, shift, scale)
        Z = self._inducing_points(Xs, bags, T, known, shift, scale, rng)
        return {"shift": shift, "scale": scale, "Z": Z, "seed": int(rng.integers(2**31))}

    def _check_way_of_fitting(self, bags: Bags, sites: Sites, checkpoint: Any, resume: Any) -> None:
        """Raise where a way of fitting has no checkpoints, or is not distributed."""
        away = isinstance(bags.X, DaskRows)
        saves = checkpoint is not None or resume is not None
        if self.inference == "gibbs" and (saves or away):
            what = "writes no checkpoints" if saves else "is not distributed"
            raise ValueError(
                f"inference='gibbs' runs its chains in processes of its own and {what}; use "
                "inference='vi' or 'laplace', or leave checkpoint, resume and client out"
            )
        if saves and away and sites.stateful:
            raise ValueError(
                f"{type(self).__name__} with these arguments keeps values per instance, which "
                "stay with the Dask workers: a distributed fit of it writes no checkpoints; leave "
                "checkpoint and resume out"
            )

    def _n_basis(self, bags: Bags) -> int:
        if not isinstance(self.inducing, str):
            return len(np.atleast_1d(np.asarray(self.inducing, dtype=np.float64)))
        wanted = self.n_inducing if self.inducing == "kmeans" else bags.n_instances
        return min(wanted, bags.n_instances)

    def _check_ranking(self, bags: Bags, T: NDArray[np.bool_]) -> None:
        """Where there is a calibration, left-out bags were looked at."""
        if self.calibration_ is None:
            super()._check_ranking(bags, T)

    @property
    def bag_score_(self) -> str:
        """Where bag probabilities come from; it says what `bag_score="auto"` came to."""
        if self.bag_score != "auto":
            return self.bag_score
        return "joint" if getattr(self, "calibration_", None) is None else "calibrated"

    def _parts(self) -> dict[str, bool]:
        if self.bag_score_ != "calibrated":
            return parts_of(self.bag_score_)
        return {"joint": True, "instances": True}

    def _bag_probability(self, found: Predicted) -> tuple[Array, Array]:
        if self.bag_score_ != "calibrated":
            return columns(found.bags(self.bag_score_))
        calibration = getattr(self, "calibration_", None)
        return calibrated_probability(
            calibration, found, getattr(self, "why_not_calibrated_", None)
        )

    def _calibrate(
        self, bags: Bags, T: NDArray[np.bool_], seed: int, monitor: Monitor
    ) -> tuple[BagCalibration | None, str | None]:
        """The calibration, or why there is none; each fold is a stage of the watched fit.

        A refit that breaks down numerically must not take the fit with it, which succeeded.
        """

        def keep(stage: str, work: Callable[[], Scores]) -> Scores:
            def fold(state: State | None) -> State:
                bag_scores, instance_logits = work()
                return {"bags": bag_scores, "instances": instance_logits}

            done = monitor.run(stage, fold)
            return done["bags"], done["instances"]

        try:
            found = left_out(bags, T, seed, partial(self._refit, bags, T, seed, monitor), keep)
            calibration = calibrate(found, T)
        except BREAKDOWNS as error:
            reason = f"a fit without a fifth of the bags broke down: {error}"
            warn_user(
                f"bag probabilities are not calibrated: {reason}; those of bag_score='joint' are "
                "as they were"
            )
            return None, reason
        warn_of_left_out(calibration, found, bags, T, self._remedies)
        return calibration, None

    def _refit(
        self,
        bags: Bags,
        T: NDArray[np.bool_],
        seed: int,
        monitor: Monitor,
        kept: NDArray[np.intp],
    ) -> Scorer:
        """A fit to some of the bags, scaling and hyperparameters as they are."""
        frozen = self._frozen(np.isin(bags.bag_index, kept))
        model = clone(self).set_params(bag_score="joint", random_state=seed, verbose=0, **frozen)
        part, T = bags[kept], T[kept]
        known = known_labels(part, T, noisy=self._bag_labels_may_be_wrong())

        def hear(stage: str, step: int, objective: float, seconds: float) -> None:
            monitor.step(step, objective, dict)  # a refit that goes on begins anew

        scaling = (self.posterior_.shift, self.posterior_.scale)
        with model._threads(part):
            model._fit_bags(part, T, known, generator(seed), callbacks=[hear], scaling=scaling)
        return model._scores

    def _scores(self, bags: Bags) -> Scores:
        """Logits of bags and of instances, from one pass."""
        found = self._predictor(bags).predicted(
            bags.X, bags.offsets, joint=True, instances=True, second=False
        )
        return scores_of(found)

    def _cannot_calibrate(self, bags: Bags, T: NDArray[np.bool_]) -> str | None:
        """Why there is no calibration for these bags, or None."""
        return cannot_calibrate(bags, T)

    def _too_costly(self, bags: Bags) -> str | None:
        """Why "auto" does not pay for five more fits, or None."""
        if self._learns_nothing():
            return "learn_hyperparameters=False: nothing is to be learned but the posterior"
        if self.inference == "gibbs":
            return too_many(bags) or "inference='gibbs' would sample five times more"
        return too_many(bags)

    def _learns_nothing(self) -> bool:
        """Whether the user asked to learn nothing but the posterior."""
        return not self.learn_hyperparameters

    def _frozen(self, rows: NDArray[np.bool_]) -> dict[str, Any]:
        """Arguments with which a fit to these rows keeps hyperparameters and scaling."""
        init = self.init
        return {
            "kernel": self.kernel_,
            "mean": self.mean_,
            "learn_hyperparameters": False,
            "init": None if init is None else {k: np.asarray(v)[rows] for k, v in init.items()},
        }

    def _fitted_names(self) -> tuple[str, ...]:
        return FITTED

    @property
    def kernel_(self) -> Kernel:
        """The kernel after learning, in the units of the scaled features."""
        return self.posterior_.kernel

    @property
    def mean_(self) -> float:
        """The constant mean c0 after learning."""
        return self.posterior_.c0

    @property
    def inducing_points_(self) -> Array:
        """(M, D) inducing points in the units of the raw features."""
        return self.posterior_.Z * self.posterior_.scale + self.posterior_.shift

    def _make_posterior(self, parts: dict[str, Any], result: Result) -> Posterior:
        return Posterior(**parts)

    def _neighbor_graph(self, bags: Bags) -> Any:
        """Which instances of a bag are neighbours, for models that couple them."""
        return None

    def _feature_budget(self, bags: Bags) -> int:
        """Bytes of features that are kept in memory."""
        if self.memory_budget is None and isinstance(bags.X, DaskRows):
            return sys.maxsize  # Dask's workers write to disk what exceeds their memory
        if self.memory_budget is None:
            return default_budget(is_elsewhere(bags.X))
        return int(self.memory_budget)

    def _sites(self, init: dict[str, Array] | None) -> Sites:
        raise NotImplementedError

    def _check_parameters(self) -> None:
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise TypeError(
                "kernel must be a bagwise kernel such as bagwise.kernels.RBF(), "
                f"got {self.kernel!r}"
            )
        check_integer("n_inducing", self.n_inducing, at_least=1)
        if isinstance(self.inducing, str):
            check_choice("inducing", self.inducing, ("kmeans", "all"))
        mean = self._argument("mean")
        if not (isinstance(mean, str) and mean == "learn"):
            check_number("mean ('learn' or a number)", mean)
        learn = self._argument("learn_hyperparameters")
        check_choice("learn_hyperparameters", learn, (True, False))
        check_choice("standardize", self.standardize, ("auto", True, False))
        check_choice("approximation", self.approximation, ("fitc", "vfe"))
        check_choice("inference", self.inference, self._inferences)
        if self.inference != "vi" and self.approximation == "vfe":
            raise ValueError(
                f"inference={self.inference!r} integrates the residual out and has no 'vfe' form; "
                "use approximation='fitc'"
            )
        check_choice("bag_score", self.bag_score, ALL_BAG_SCORES)
        check_integer("max_iter", self.max_iter, at_least=1)
        check_number("tol", self.tol, at_least=0)
        check_number("jitter", self.jitter, above=0)
        check_dtype(self.dtype)
        if self.chunk_size is not None:
            check_integer("chunk_size", self.chunk_size, at_least=1)
        if self.memory_budget is not None:
            check_number("memory_budget (bytes)", self.memory_budget, at_least=0)
        if self.init is not None and not self._starting_values():
            raise ValueError(
                "this model starts from q(v) = N(0, I) and has no starting values to give; init is "
                "for label_posterior='factorised' and for LargeMarginVGPMIL"
            )

    def _argument(self, name: str) -> Any:
        """The value of an argument; models whose defaults depend on others say which."""
        return getattr(self, name)

    def _kernel_variance(self) -> float:
        """Variance of the default kernel."""
        return self._start_variance

    def _starting_values(self) -> tuple[str, ...]:
        """Names of the values per instance that `init` may give."""
        return ()

    def _checked_init(self, n_rows: int) -> dict[str, Array] | None:
        """`init` with each array checked against the data's rows."""
        if self.init is None:
            return None
        return {
            check_choice("a key of init", name, self._starting_values()): check_rows(
                f"init[{name!r}]", values, n_rows
            )
            for name, values in self.init.items()
        }

    def _scaled(self, X: Any, shift: Array, scale: Array) -> Array | RowSource:
        """X as the kernel sees it; what has to be scaled or cast is so when it is read."""
        dtype = check_dtype(self.dtype) or X.dtype
        if dtype == X.dtype and not np.any(shift) and np.all(scale == 1):
            return X
        return ScaledRows(X, shift, scale, dtype)

    def _inducing_points(
        self,
        Xs: Array | RowSource,
        bags: Bags,
        T: NDArray[np.bool_],
        known: Array | None,
        shift: Array,
        scale: Array,
        rng: np.random.Generator,
    ) -> Array:
        """Scaled inducing points, (M, D) float64."""
        if not isinstance(self.inducing, str):
            return (check_inducing(self.inducing, bags.n_features) - shift) / scale
        if self.inducing == "all":
            return np.asarray(Xs[:], dtype=np.float64)
        group = np.repeat(T, bags.sizes).astype(np.int64)
        if known is not None:
            group = np.where(known == 1, 2, np.where(known == 0, 0, group))
        return kmeans_points(Xs, group, self.n_inducing, rng)

    def _anchor(self, X: Any) -> Kernel:
        """A kernel of the kind asked for, with parameters that suit the data's spread."""
        if self.kernel is not None and not self._argument("learn_hyperparameters"):
            return self.kernel  # nothing starts there, so that the data need not be read
        spread = float(np.sqrt(np.sum(column_moments(X)[1])))
        kernel = self.kernel or RBF()
        return kernel.anchored(self._kernel_variance(), 0.5 * spread if spread > 0 else 1.0)

    def _run(self, problem: Problem, *, refit: bool) -> Result:
        """q(v) and what belongs to it; a `refit` is part of a fit that has been looked at."""
        anchor, mean = self._anchor(problem.data.X), self._argument("mean")
        return fit_q(
            problem,
            self.kernel or anchor,
            anchor,
            mean=None if mean == "learn" else float(mean),
            learn_kernel=bool(self._argument("learn_hyperparameters")),
            prior_scale=0.2 if self.kernel is None else 0.5,
            inference=self.inference,
            max_iter=self.max_iter,
            tol=self.tol,
            verbose=self.verbose,
            chains=self._chains(),
            learn_H=self._learns_H(),
        )

    def _learns_H(self) -> bool:
        """Whether the reliability of bag labels is to be learned."""
        return False

    def _chains(self) -> dict[str, int] | None:
        """Settings of the Gibbs sampler, for models that have one."""
        return None

    def _store(self, result: Result, problem: Problem, shift: Array, scale: Array) -> None:
        q = result.q
        parts = {
            "kernel": result.kernel,
            "Z": problem.Z,
            "m": q.m,
            "S": q.S,
            "c0": q.c0,
            "link": self._link,
            "shift": shift,
            "scale": scale,
            "jitter": float(self.jitter),
            "seed": problem.seed,
        }
        self.posterior_ = self._make_posterior(parts, result)
        self.elbo_history_ = np.array(result.trace.history)
        self.elbo_ = result.trace.history[-1]
        self.n_iter_ = result.trace.n_iter
        self.converged_ = result.trace.converged


def check_inducing(Z: ArrayLike, n_features: int) -> NDArray[np.float64]:
    """A given array of inducing points, finite and with the data's features."""
    Z = np.asarray(Z, dtype=np.float64)
    if Z.ndim != 2 or len(Z) == 0 or Z.shape[1] != n_features:
        raise ValueError(
            f"inducing must be 'kmeans', 'all' or an (M, {n_features}) array in raw feature "
            f"units, got shape {Z.shape}"
        )
    if not np.all(np.isfinite(Z)):
        raise ValueError("inducing points must be finite, got NaN or infinity")
    return Z
