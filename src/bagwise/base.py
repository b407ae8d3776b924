"""What all Gaussian-process estimators share: arguments, fit, predictions, model files."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bag_calibration import ALL_BAG_SCORES, BagCalibration, CalibratedMIL
from bagwise.bags import Bags
from bagwise.classifier import BagClassifierMIL
from bagwise.execution import TrainingData
from bagwise.inducing import kmeans_points
from bagwise.infer.fit import Problem, Result, fit_q
from bagwise.io.modelfile import register
from bagwise.kernels import RBF, Kernel
from bagwise.labels import BagLikelihood
from bagwise.parameters import (
    check_choice,
    check_dtype,
    check_integer,
    check_number,
    check_rows,
)
from bagwise.posterior import Posterior
from bagwise.sites import Sites

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


class GaussianProcessMIL(CalibratedMIL, BagClassifierMIL):
    """What all Gaussian-process models share; subclasses name their likelihood and sites."""

    posterior_: Posterior
    _posterior_type = Posterior
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
        self.random_state = random_state
        self.verbose = verbose

    def _fit_bags(
        self, bags: Bags, T: NDArray[np.bool_], known: Array | None, rng: np.random.Generator
    ) -> None:
        shift, scale = self._scaling(bags.X)
        Xs = self._scaled(bags.X, shift, scale)
        Z = self._inducing_points(Xs, bags, T, known, shift, scale, rng)
        problem = Problem(
            data=TrainingData(
                Xs, bags.offsets, T, known, self.chunk_size, self._neighbor_graph(bags)
            ),
            Z=Z,
            likelihood=self._likelihood(),
            sites=self._sites(self._checked_init(bags.n_instances)),
            jitter=self.jitter,
            seed=int(rng.integers(2**31)),
        )
        self._store(self._run(problem, Xs), problem, shift, scale)
        self._fit_calibration(bags, T, rng)

    def _frozen(self, rows: NDArray[np.bool_]) -> dict[str, Any]:
        """Arguments with which a fit to these rows keeps hyperparameters and scaling."""
        init = self.init
        return {
            "kernel": self.kernel_,
            "mean": self.mean_,
            "learn_hyperparameters": False,
            "standardize": bool(np.any(self.posterior_.scale != 1)),
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

    def _likelihood(self) -> BagLikelihood:
        raise NotImplementedError

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
        if not (isinstance(self.mean, str) and self.mean == "learn"):
            check_number("mean ('learn' or a number)", self.mean)
        check_choice("learn_hyperparameters", self.learn_hyperparameters, (True, False))
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
        if self.init is not None and not self._starting_values():
            raise ValueError(
                "this model starts from q(v) = N(0, I) and has no starting values to give; init is "
                "for label_posterior='factorised' and for LargeMarginVGPMIL"
            )

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

    def _scaled(self, X: Array, shift: Array, scale: Array) -> Array:
        X = X.astype(check_dtype(self.dtype) or X.dtype, copy=False)
        if not np.any(shift) and np.all(scale == 1):
            return X
        return (X - shift.astype(X.dtype)) / scale.astype(X.dtype)

    def _inducing_points(
        self,
        Xs: Array,
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
            return np.asarray(Xs, dtype=np.float64)
        group = np.repeat(T, bags.sizes).astype(np.int64)
        if known is not None:
            group = np.where(known == 1, 2, np.where(known == 0, 0, group))
        return kmeans_points(Xs, group, self.n_inducing, rng)

    def _run(self, problem: Problem, Xs: Array) -> Result:
        spread = float(np.sqrt(np.sum(Xs.var(axis=0, dtype=np.float64))))
        kernel = self.kernel or RBF()
        anchor = kernel.anchored(self._start_variance, 0.5 * spread if spread > 0 else 1.0)
        return fit_q(
            problem,
            self.kernel or anchor,
            anchor,
            mean=None if self.mean == "learn" else float(self.mean),
            learn_kernel=bool(self.learn_hyperparameters),
            prior_scale=0.2 if self.kernel is None else 0.5,
            inference=self.inference,
            max_iter=self.max_iter,
            tol=self.tol,
            verbose=self.verbose,
            chains=self._chains(),
        )

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
