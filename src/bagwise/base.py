"""What all Gaussian-process estimators share: arguments, fit, predictions, model files."""

from __future__ import annotations

import inspect
import os
from dataclasses import is_dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.execution import TrainingData
from bagwise.inducing import kmeans_points
from bagwise.infer.fit import Problem, Result, fit_q
from bagwise.io.modelfile import register, write_state
from bagwise.kernels import RBF, Kernel
from bagwise.labels import BagLikelihood
from bagwise.parameters import (
    check_choice,
    check_dtype,
    check_integer,
    check_number,
    check_rows,
)
from bagwise.posterior import BAG_SCORES, Posterior
from bagwise.sites import Sites
from bagwise.validation import (
    bags_to_fit,
    bags_to_predict,
    binary_targets,
    known_labels,
    record_features,
)

Array = NDArray[Any]

FITTED = (
    "classes_",
    "n_features_in_",
    "posterior_",
    "elbo_",
    "elbo_history_",
    "n_iter_",
    "converged_",
)

register(Posterior)


class GaussianProcessMIL(ClassifierMixin, BaseEstimator):
    """What all Gaussian-process models share; subclasses name their likelihood and sites."""

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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show a model's own arguments and the shared ones in one signature.

        scikit-learn (`get_params`, `clone`) and `help` read it; the arguments that all models
        share are written down once, above.
        """
        super().__init_subclass__(**kwargs)
        if "__init__" not in vars(cls):
            return
        own = inspect.signature(cls.__init__).parameters
        shared = inspect.signature(super(cls, cls).__init__).parameters
        names = {n: p for n, p in own.items() if p.kind is not inspect.Parameter.VAR_KEYWORD}
        merged = [*names.values(), *(p for n, p in shared.items() if n not in names)]
        cls.__init__.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Fit from bag labels.

        Parameters
        ----------
        X : Bags, a list of (n_b, D) arrays, or a 2-D array with one instance per bag.
        y : one label per bag; overrides the labels of the bags. Two classes of any type;
            the larger one in sorted order is the positive class.

        Instance labels of the bags (1, 0; NaN or -1 where unknown) are used where known.
        """
        self._check_parameters()
        bags = bags_to_fit(self, X, y)
        classes, T = binary_targets(bags)
        known = known_labels(bags, T)
        rng = generator(self.random_state)
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
        self.classes_ = classes
        self.metadata_: dict[str, Any] = {}  # what was said of an earlier fit no longer holds
        record_features(self, bags)
        return self

    def predict_proba(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Probability of each class for each bag, columns in the order of `classes_`.

        With `return_std`, also the posterior standard deviation of that probability.
        """
        bags = bags_to_predict(self, X)
        p, std = self._predictor(bags).bags(bags.X, bags.offsets, self.bag_score)
        both = np.column_stack([1 - p, p])
        return (both, std) if return_std else both

    def predict(self, X: Any) -> Array:
        """The more probable class of each bag."""
        p = self.predict_proba(X)
        return self.classes_[np.argmax(p, axis=1)]

    def predict_instance_proba(
        self, X: Any, return_std: bool = False
    ) -> Array | tuple[Array, Array]:
        """Probability of each class for each instance, rows as in `bags.X`.

        With `return_std`, also the posterior standard deviation of that probability.
        """
        bags = bags_to_predict(self, X)
        p, std = self._predictor(bags).instances(bags.X)
        both = np.column_stack([1 - p, p])
        return (both, std) if return_std else both

    def predict_instances(self, X: Any) -> Array:
        """The more probable class of each instance."""
        p = self.predict_instance_proba(X)
        return self.classes_[np.argmax(p, axis=1)]

    def latent(self, X: Any) -> tuple[Array, Array]:
        """Posterior mean and variance of the latent function at each instance."""
        bags = bags_to_predict(self, X)
        return self.posterior_.latent(bags.X)

    def top_instances(self, X: Any, k: int = 1) -> list[NDArray[np.intp]]:
        """For each bag the rows of `bags.X` of its `k` most probable instances, best first."""
        check_integer("k", k, at_least=1)
        bags = bags_to_predict(self, X)
        p, _ = self._predictor(bags).instances(bags.X)
        ranges = zip(bags.offsets[:-1], bags.offsets[1:], strict=True)
        return [a + np.argsort(-p[a:b], kind="stable")[:k] for a, b in ranges]

    def score(self, X: Any, y: ArrayLike | None = None, sample_weight: Any = None) -> float:
        """Accuracy on bags; `y` defaults to the labels of the bags."""
        bags = bags_to_predict(self, X)
        truth = bags.y if y is None else y
        if truth is None:
            raise ValueError("score needs labels: pass y, or Bags with y")
        return float(accuracy_score(truth, self.predict(bags), sample_weight=sample_weight))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the fitted model to one file that `bagwise.load` reads without running code.

        With `overwrite=False` an existing file is kept and FileExistsError raised. If the model
        has a dictionary `metadata_` of plain values, it is kept in the file; the command line
        notes there which columns and classes the model was fitted on.
        """
        check_is_fitted(self)
        fitted = {name: getattr(self, name) for name in self._fitted_names()}
        names = getattr(self, "feature_names_in_", None)
        state = {
            "parameters": self._storable_parameters(),
            "fitted": fitted,
            "feature_names": None if names is None else [str(n) for n in names],
        }
        if getattr(self, "metadata_", None):
            state["metadata"] = self.metadata_
        register_kernels()
        write_state(path, state, kind=type(self).__name__, overwrite=overwrite)

    def _fitted_names(self) -> tuple[str, ...]:
        """Attributes that make a fitted model."""
        return FITTED

    def _storable_parameters(self) -> dict[str, Any]:
        """Arguments as plain values; a random generator's state is not part of a model."""
        parameters = self.get_params(deep=False)
        seed = parameters["random_state"]
        parameters["random_state"] = seed if isinstance(seed, int) else None
        if parameters["dtype"] is not None:
            parameters["dtype"] = np.dtype(parameters["dtype"]).name
        return parameters

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

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")  # a fit that failed leaves n_features_in_ only

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _make_posterior(self, parts: dict[str, Any], result: Result) -> Posterior:
        return Posterior(**parts)

    def _neighbor_graph(self, bags: Bags) -> Any:
        """Which instances of a bag are neighbours, for models that couple them."""
        return None

    def _predictor(self, bags: Bags) -> Any:
        """What answers `instances` and `bags` for these bags."""
        return self.posterior_

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
        check_choice("bag_score", self.bag_score, BAG_SCORES)
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

    def _scaling(self, X: Array) -> tuple[Array, Array]:
        """Shift and scale of each feature; a constant feature is only shifted."""
        unscaled = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if self.standardize is False:
            return unscaled
        shift = X.mean(axis=0, dtype=np.float64)
        spread = X.std(axis=0, dtype=np.float64)
        constant = spread <= 1e-12 * np.abs(shift)
        if self.standardize == "auto" and same_unit(spread[~constant]):
            return unscaled
        return shift, np.where(constant, 1.0, spread)

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


def register_kernels() -> None:
    """Let model files hold every kernel there is, also those written elsewhere."""
    waiting = Kernel.__subclasses__()
    while waiting:
        kernel = waiting.pop()
        waiting += kernel.__subclasses__()
        if is_dataclass(kernel):
            register(kernel)


def generator(random_state: Any) -> np.random.Generator:
    """A numpy Generator from whatever scikit-learn or numpy take for a seed."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def same_unit(spread: Array) -> bool:
    """Whether no feature's spread dwarfs the others', as a different unit would make it."""
    return len(spread) == 0 or float(np.max(spread)) <= 20 * float(np.median(spread))


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
