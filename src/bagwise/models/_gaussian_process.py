"""What all Gaussian-process estimators share: arguments, fit, predictions, model files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags
from bagwise.bags.rows import is_elsewhere
from bagwise.core.calibration.judged import JudgedKernel
from bagwise.core.files.modelfile import register
from bagwise.core.inference.checkpoints import NOT_SAVED, Saving, Session
from bagwise.core.inference.driver import Problem, Result, fit_q
from bagwise.core.inference.monitor import Callback
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.posteriors.averaged import AveragedPosterior
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.posteriors.gibbs import GibbsPosterior
from bagwise.distributed import training_data
from bagwise.kernels import Kernel
from bagwise.models._calibrated import CALIBRATED, CalibratedMIL
from bagwise.models._kernel_choice import chosen_setting, given_kernel
from bagwise.models._parts import (
    Init,
    Parts,
    asked,
    check_arguments,
    check_way_of_fitting,
    checked_init,
    too_costly,
)
from bagwise.models._preparation import anchor, feature_budget, prepare, scaled
from bagwise.models._refits import GaussianRefits, model_so_far
from bagwise.models._shared_features import OfWhole

Array = NDArray[Any]

MANY_FEATURES = 30  # so many may hide what matters in a direction of little variance
FITTED = (
    "classes_",
    "n_features_in_",
    "posterior_",
    "elbo_",
    "elbo_history_",
    "n_iter_",
    "converged_",
    *CALIBRATED,
    "candidates_",
)

register(Posterior)
register(GibbsPosterior)
register(AveragedPosterior)
register(JudgedKernel)


class GaussianProcessMIL(CalibratedMIL, abstract=True):
    """What all Gaussian-process models share.

    A model has an `__init__` with its own arguments and `_parts`, which says what it is made of;
    `_check_parameters` where it has arguments to check, and `_predictor` where predictions are
    made by something else than its posterior.
    """

    posterior_: Posterior
    candidates_: tuple[JudgedKernel, ...]
    _posterior_type = Posterior

    def __init__(
        self,
        *,
        kernel: Kernel | str | None = None,
        n_inducing: int = 200,
        inducing: str | ArrayLike = "kmeans",
        mean: str | float = "learn",
        learn_hyperparameters: bool = True,
        standardize: str | bool = "auto",
        approximation: str = "fitc",
        inference: str = "vi",
        bag_score: str = "auto",
        instance_score: str = "auto",
        witness_rate: float | None = None,
        class_weight: Any = None,
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
        self.instance_score = instance_score
        self.witness_rate = witness_rate
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.jitter = jitter
        self.init = init
        self.dtype = dtype
        self.chunk_size = chunk_size
        self.memory_budget = memory_budget
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _remedies(self) -> str:
        """What may help where bags are ranked near chance, but for what is so already."""
        done = {
            "standardize=True": self.standardize is True or self.kernel == "auto",
            "mean='learn'": self.mean == "learn",
            "learn_hyperparameters=True": self.learn_hyperparameters or self.kernel == "auto",
        }
        settings = [setting for setting, is_so in done.items() if not is_so]
        settings.append(f"more inducing points (n_inducing={2 * self.n_inducing})")
        if self.n_features_in_ >= MANY_FEATURES:
            settings.append(
                "whitened principal components as features where directions of little variance "
                "may matter"
            )
        # RBF kernels see little of what is in sums over many features.
        own = "" if self.kernel == "auto" else "ProbitVGPMIL, which chooses its kernel, or "
        return ", ".join(
            [*settings, f"another model ({own}MIRVM where few of many features matter)"]
        )

    def _fit_bags(
        self,
        bags: Bags,
        T: NDArray[np.bool_],
        known: Array | None,
        rng: np.random.Generator,
        *,
        counts: Array | None,
        callbacks: Sequence[Callback],
        saving: Saving = NOT_SAVED,
        of_whole: OfWhole | None = None,
        reliability: Array | None = None,
    ) -> None:
        """Fit; one that is part of another model's fit is given what it has `of_whole` that."""
        parts = self._parts(checked_init(self, self._parts(), bags.n_instances))
        check_way_of_fitting(self, bags.X, parts.sites, counts, saves=saving.asked)
        reasons = self._reasons_against(bags, T, counts, parts.whole, too_costly(self, parts))
        labels = {"the labels": T, "the instance labels": known, "the weights of bags": counts}
        labels |= {} if reliability is None else {"the reliabilities of labels": reliability}
        session = Session.begin(self, bags, labels, saving)
        prepared = session.prepared or prepare(self, bags, T, known, rng, of_whole)
        monitor = session.monitor(prepared, callbacks)
        told = (parts, bags, T, known, counts, prepared, monitor, reliability)
        setting = session.do(partial(chosen_setting, self, *told), monitor)
        problem = Problem(
            data=training_data(
                scaled(bags.X, setting.shift, setting.scale, self.dtype),
                bags.offsets,
                T,
                known,
                self.chunk_size,
                None if parts.graph is None else parts.graph(bags),
                feature_budget(self.memory_budget, bags.X),
                counts=counts,
                given=None if of_whole is None else of_whole.features,
                reliability=reliability,
            ),
            Z=setting.Z,
            likelihood=parts.likelihood,
            sites=parts.sites,
            jitter=self.jitter,
            seed=prepared["seed"],
            monitor=monitor,
            start=None if of_whole is None else of_whole.start,
            so_far=partial(model_so_far, self, setting),
        )
        run = partial(self._run, problem, setting.kernel, parts=parts, refit=of_whole is not None)
        result = session.do(run, monitor)
        session.do(partial(self._store, result, problem, setting.shift, setting.scale), monitor)
        refits = GaussianRefits(self, bags, T, counts, problem.seed, monitor, reliability)
        self.posterior_, setting = session.do(partial(refits.averaged, setting), monitor)
        self.candidates_ = setting.table
        how = (known, reasons, refits, setting.left_out)
        session.do(partial(self._calibrate, *how), monitor)

    def _n_basis(self, bags: Bags) -> int:
        if not isinstance(self.inducing, str):
            return len(np.atleast_1d(np.asarray(self.inducing, dtype=np.float64)))
        wanted = self.n_inducing if self.inducing == "kmeans" else bags.n_instances
        return min(wanted, bags.n_instances)

    def _fits_by_chunk(self, bags: Bags) -> bool:
        # Files are read by one thread: not all of their readers can do with several.
        return self.inference != "gibbs" and not is_elsewhere(bags.X)

    def _fit_in_parts(self) -> bool:
        return self._parts().whole is None

    def _fitted_names(self) -> tuple[str, ...]:
        return (*FITTED, *(f"{name}_" for name in self._parts().learned))

    def _likelihood(self) -> BagLikelihood:
        return self._parts().likelihood

    def _fitted_likelihood(self) -> BagLikelihood:
        parts = self._parts()
        return parts.likelihood.with_H(self.H_) if "H" in parts.learned else parts.likelihood

    def _bag_labels_may_be_wrong(self) -> bool:
        return bool(np.isfinite(self._parts().likelihood.H))

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

    def _parts(self, init: Init = None) -> Parts:
        """What the model is made of; its sites start from `init`, where they take it."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_arguments(self, self._parts())

    def _run(self, problem: Problem, chosen: Kernel | None, *, parts: Parts, refit: bool) -> Result:
        """q(v) and what belongs to it; a `refit` is part of a fit that has been looked at.

        A kernel that was `chosen` stays as it is.
        """
        mean, learn = asked(self, parts)
        learn = bool(learn) and chosen is None
        kernel = chosen or given_kernel(self.kernel)
        start = anchor(kernel, learn, parts.variance, problem.data.X)
        result = fit_q(
            problem,
            kernel or start,
            start,
            mean=None if mean == "learn" else float(mean),
            learn_kernel=learn,
            prior_scale=0.2 if kernel is None else 0.5,
            inference=self.inference,
            max_iter=self.max_iter,
            tol=self.tol,
            verbose=self.verbose,
            chains=parts.chains,
            learn_H="H" in parts.learned,
            refit=refit,
        )
        return result if parts.refine is None else parts.refine(problem, result, refit)

    def _store(self, result: Result, problem: Problem, shift: Array, scale: Array) -> None:
        q = result.q
        parts: dict[str, Any] = {
            "kernel": result.kernel,
            "Z": problem.Z,
            "m": q.m,
            "S": q.S,
            "c0": q.c0,
            "link": problem.likelihood.link.name,
            "shift": shift,
            "scale": scale,
            "jitter": float(self.jitter),
            "seed": problem.seed,
        }
        if result.H is not None:
            self.H_ = result.H
        if result.gibbs is None:
            self.posterior_ = Posterior(**parts)
        else:
            self.gibbs_ = result.gibbs
            means = result.gibbs.mixture_means()
            self.posterior_ = GibbsPosterior(**(parts | {"m": means.mean(axis=0)}), means=means)
        self.elbo_history_ = np.array(result.trace.history)
        self.elbo_ = result.trace.history[-1]
        self.n_iter_ = result.trace.n_iter
        self.converged_ = result.trace.converged
