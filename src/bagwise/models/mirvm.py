"""The MI-RVM family, one thin estimator each: linear rules with few features [R08]."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, TransformerTags
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags, is_bagged
from bagwise.bags.rows import ScaledRows
from bagwise.core.files.modelfile import register
from bagwise.core.inducing import kmeans_points
from bagwise.core.inference.loop import warn_not_converged
from bagwise.core.inference.monitor import Callback, Monitor, Note
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.linear.design import Design
from bagwise.core.linear.evidence import (
    Fit,
    fixed_point,
    maximise_evidence,
    printed_update,
)
from bagwise.core.linear.penalty import fit_alpha, fit_by_folds, fit_evidence
from bagwise.core.links import Logistic
from bagwise.core.parameters import check_choice, check_integer, check_limits, check_number
from bagwise.core.posteriors.gaussian import BAG_SCORES
from bagwise.core.posteriors.linear import LinearPosterior
from bagwise.kernels import Kernel
from bagwise.models._base import BagClassifierMIL
from bagwise.models._preparation import scaling
from bagwise.models.inputs import bags_to_predict
from bagwise.models.linear_features import FeatureMap

Array = NDArray[Any]

FITTED = (
    "classes_",
    "n_features_in_",
    "posterior_",
    "alpha_",
    "log_evidence_",
    "log_evidence_history_",
    "n_iter_",
    "converged_",
)

register(LinearPosterior)


class LinearMIL(BagClassifierMIL, abstract=True):
    """What all linear models share; subclasses say how weights and penalties are found."""

    posterior_: LinearPosterior
    _posterior_type: ClassVar[type] = LinearPosterior
    _stage: str = "evidence"  # what callbacks are told

    _remedies = (
        "kernel=bagwise.kernels.RBF() where no straight line parts the instances, another model "
        "(ProbitVGPMIL)"
    )

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        n_basis: int = 300,
        standardize: str | bool = True,
        support_z: float = 2.5,
        bag_score: str = "joint",
        max_iter: int = 500,
        tol: float = 5e-3,
        chunk_size: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_basis = n_basis
        self.standardize = standardize
        self.support_z = support_z
        self.bag_score = bag_score
        self.max_iter = max_iter
        self.tol = tol
        self.chunk_size = chunk_size
        self.random_state = random_state
        self.verbose = verbose

    def _fit_bags(
        self,
        bags: Bags,
        T: NDArray[np.bool_],
        known: Array | None,
        rng: np.random.Generator,
        *,
        callbacks: Sequence[Callback],
    ) -> None:
        features = self._feature_map(bags, T, rng)
        design = self._design(bags, T, known, features)
        fit = self._watched(lambda note: self._solve(design, rng, note), callbacks)
        self.posterior_ = features.posterior(fit.modes[0], fit.columns, int(rng.integers(2**31)))
        self._store(fit, self.posterior_.n_weights)

    @property
    def coef_(self) -> Array:
        """(D,) weights in the units of the raw features, 0 where pruned: f = intercept + x'coef.

        With a kernel, (M,) weights of the basis points.
        """
        return self._raw(self.scaled_coef_)

    @property
    def coef_std_(self) -> Array:
        """Posterior standard deviations of `coef_`, 0 where pruned."""
        return self._raw(self.scaled_coef_std_)

    @property
    def scaled_coef_(self) -> Array:
        """Weights of the features as the model scaled them: their sizes can be compared."""
        return self._spread_out(self.posterior_.m[:-1])

    @property
    def scaled_coef_std_(self) -> Array:
        """Posterior standard deviations of `scaled_coef_`."""
        return self._spread_out(np.sqrt(np.diagonal(self.posterior_.S)[:-1]))

    @property
    def intercept_(self) -> float:
        """The intercept that belongs to `coef_`."""
        q = self.posterior_
        shift = 0.0 if q.kernel is not None else float(q.shift @ self.coef_)
        return float(q.m[-1]) - shift

    @property
    def selected_features_(self) -> NDArray[np.int64]:
        """Numbers of the features that were not pruned: all that predictions need."""
        self._require_features("selected_features_")
        return self.posterior_.columns

    @property
    def relevance_vectors_(self) -> Array:
        """With a kernel: the basis points that were not pruned, in raw feature units."""
        q = self.posterior_
        if q.basis is None:
            raise AttributeError("relevance_vectors_ exist only with kernel=...; see coef_")
        return q.basis[q.columns] * q.scale + q.shift

    def get_support(self, indices: bool = False) -> Array:
        """Features whose weight exceeds `support_z` standard deviations in size.

        A mask (D,), or with `indices` their numbers.
        """
        check_is_fitted(self)
        self._require_features("get_support")
        mask = np.abs(self.coef_) > self.support_z * self.coef_std_
        return np.flatnonzero(mask) if indices else mask

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> Array:
        """Names of the supported features; x0, x1, ... where the bags had none."""
        support = self.get_support()
        fitted = getattr(self, "feature_names_in_", None)
        if input_features is None:
            input_features = [f"x{j}" for j in range(len(support))] if fitted is None else fitted
        names = np.asarray(input_features, dtype=object)
        if names.shape != support.shape or (fitted is not None and list(names) != list(fitted)):
            raise ValueError(
                f"input_features must be the {len(support)} names seen in fit, got "
                f"{names.tolist()[:5]}; leave it out"
            )
        return names[support]

    def fit_transform(self, X: Any, y: ArrayLike | None = None, **fit_params: Any) -> Any:
        """Fit, then `transform` the same bags."""
        return self.fit(X, y, **fit_params).transform(X)

    def transform(self, X: Any) -> Any:
        """The same bags with the supported features only; a 2-D array gives a 2-D array.

        Where no feature is supported, bags raise an error; an array without columns comes with a
        warning, as from scikit-learn's own selectors.
        """
        bags = bags_to_predict(self, X)
        support = self.get_support(indices=True)
        problem = (
            f"no feature's weight exceeds support_z={self.support_z} standard deviations, so no "
            "features are left; lower support_z, or give more bags"
        )
        if not is_bagged(X):
            if not len(support):
                warnings.warn(problem, UserWarning, stacklevel=2)
            return bags.X[:, support]
        if not len(support):
            raise ValueError(problem)
        names = bags.feature_names
        kept = None if names is None else [names[j] for j in support]
        return bags.with_X(bags.X[:, support], feature_names=kept)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Not by TransformerMixin: its set_output would turn Bags into tables.
        tags.transformer_tags = TransformerTags()
        return tags

    def _solve(self, design: Design, rng: np.random.Generator, note: Note) -> Fit:
        raise NotImplementedError

    def _watched(self, work: Callable[[Note], Fit], callbacks: Sequence[Callback]) -> Fit:
        """A fit as one stage, of whose steps callbacks hear."""
        monitor = Monitor(callbacks)

        def note(step: int, objective: float) -> None:
            monitor.step(step, objective, dict)

        return monitor.run(self._stage, lambda _: {"fit": work(note)})["fit"]

    def _likelihood(self) -> BagLikelihood:
        return BagLikelihood(Logistic())

    def _fitted_names(self) -> tuple[str, ...]:
        return FITTED

    def _check_parameters(self) -> None:
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise TypeError(
                "kernel must be None or a bagwise kernel such as bagwise.kernels.RBF(), "
                f"got {self.kernel!r}"
            )
        check_integer("n_basis", self.n_basis, at_least=1)
        check_choice("standardize", self.standardize, ("auto", True, False))
        check_number("support_z", self.support_z, at_least=0)
        check_choice("bag_score", self.bag_score, BAG_SCORES)
        check_integer("max_iter", self.max_iter, at_least=1)
        check_number("tol", self.tol, at_least=0)
        if self.chunk_size is not None:
            check_integer("chunk_size", self.chunk_size, at_least=1)

    def _n_basis(self, bags: Bags) -> int:
        return bags.n_features if self.kernel is None else min(self.n_basis, bags.n_instances)

    def _feature_map(
        self, bags: Bags, T: NDArray[np.bool_], rng: np.random.Generator
    ) -> FeatureMap:
        """Scaling and, with a kernel, basis points: k-means centres per label."""
        shift, scale = scaling(bags.X, self.standardize)
        if self.kernel is None:
            return FeatureMap(shift, scale)
        self.kernel.check_features(bags.n_features)
        group = np.repeat(T, bags.sizes).astype(np.int64)
        basis = kmeans_points(
            ScaledRows(bags.X, shift, scale, np.float64), group, self.n_basis, rng
        )
        return FeatureMap(shift, scale, self.kernel, basis)

    def _design(
        self, bags: Bags, T: NDArray[np.bool_], known: Array | None, features: FeatureMap
    ) -> Design:
        return features.design(bags.X, bags.offsets, T, known, self.chunk_size)

    def _store(self, fit: Fit, n_weights: int) -> None:
        if not fit.trace.converged:
            self._warn_of(fit)
        self.alpha_ = np.full(n_weights, np.inf)
        self.alpha_[fit.columns] = fit.alpha
        self.log_evidence_history_ = np.array(fit.trace.history)
        self.log_evidence_ = fit.trace.history[-1]
        self.n_iter_ = fit.trace.n_iter
        self.converged_ = fit.trace.converged

    def _warn_of(self, fit: Fit) -> None:
        if fit.problem:
            warnings.warn(fit.problem, ConvergenceWarning, stacklevel=4)
        else:
            warn_not_converged(self.max_iter, self.tol, "nats")

    def _spread_out(self, values: Array) -> Array:
        """Values of the weights in use among zeros."""
        out = np.zeros(self.posterior_.n_weights)
        out[self.posterior_.columns] = values
        return out

    def _raw(self, weights: Array) -> Array:
        q = self.posterior_
        return weights / q.scale if q.kernel is None else weights

    def _require_features(self, what: str) -> None:
        if self.posterior_.kernel is not None:
            raise ValueError(
                f"{what} speaks of features, but with kernel=... weights belong to basis points; "
                "see relevance_vectors_, or fit without a kernel"
            )


class MIRVM(LinearMIL, alias="mirvm"):
    """Sparse linear MIL: finds the few features that matter, and says how sure it is [R08].

    Each instance is positive with probability sigmoid(intercept + x'w), a bag if at least one
    of its instances is. Each weight has a prior N(0, 1/alpha_i) whose alpha_i maximises the
    Laplace evidence; features whose alpha_i diverges are dropped for good.

    Parameters
    ----------
    alpha_init : prior precision of all weights at the start.
    alpha_limits : (low, high). Precisions stay above `low`; beyond `high` a feature is pruned.
        Weights are those of standardised features.
    update : "fixed-point" (MacKay's, tens of steps) or "printed" [R08, Eq. 17] (the same
        stationary points, thousands of steps).
    kernel : None for a linear rule on the features. With a bagwise kernel the features are
        k(x, basis point), as in the relevance vector machine; its parameters are used as given,
        in the units of the scaled features.
    n_basis : number of basis points of the kernel (k-means centres for each label); with fewer
        instances all of them.
    standardize : scale each feature to mean 0 and variance 1 first; "auto" does so where the
        features have different units.
    support_z : a feature is supported if its weight exceeds that many standard deviations.
    bag_score : how instances make a bag probability, "joint", "noisy-or" or "max".
    max_iter, tol : updates of alpha at most (and Newton steps of each mode, of which 100 are
        always allowed); change of the log evidence, in nats, at which to stop. `converged_` says
        that whole updates would change no alpha by more than a tenth. On some data, with strongly
        correlated features, updates go back and forth and the fit is brought to rest by ever
        smaller steps: then `converged_` is False, with a warning.
    chunk_size : rows per chunk, cut between bags; does not change the result.
    random_state : seeds k-means and the Sobol points of joint bag probabilities.
    verbose : 1 prints the evidence after each update of alpha.

    Examples
    --------
    >>> from bagwise.datasets import make_cad_bags
    >>> data = make_cad_bags(n_volumes=20, random_state=0)
    >>> model = MIRVM(random_state=0).fit(data.bags)
    >>> len(model.selected_features_) < data.bags.n_features
    True
    """

    def __init__(
        self,
        *,
        alpha_init: float = 1.0,
        alpha_limits: tuple[float, float] = (0.1, 1e3),
        update: str = "fixed-point",
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.alpha_init = alpha_init
        self.alpha_limits = alpha_limits
        self.update = update

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("alpha_init", self.alpha_init, above=0)
        check_limits("alpha_limits", self.alpha_limits)
        check_choice("update", self.update, ("fixed-point", "printed"))

    def _solve(self, design: Design, rng: np.random.Generator, note: Note) -> Fit:
        return self._maximise([design], note)

    def _maximise(self, designs: list[Design], note: Note) -> Fit:
        return maximise_evidence(
            designs,
            self._likelihood(),
            float(self.alpha_init),
            fixed_point if self.update == "fixed-point" else printed_update,
            limits=(float(self.alpha_limits[0]), float(self.alpha_limits[1])),
            max_iter=self.max_iter,
            tol=self.tol,
            verbose=self.verbose,
            note=note,
        )


class RVM(MIRVM, alias="rvm"):
    """`MIRVM` that takes every instance for a bag of its own, with its bag's label [R08, 9.2].

    The single-instance baseline: it believes that all instances of a positive bag are positive.
    Bag probabilities are made from instance probabilities as in `MIRVM`. Parameters are those of
    `MIRVM`.

    Examples
    --------
    >>> from bagwise.datasets import make_cad_bags
    >>> data = make_cad_bags(n_volumes=20, random_state=0)
    >>> RVM(random_state=0).fit(data.bags).predict_proba(data.bags).shape == (len(data.bags), 2)
    True
    """

    _remedies = "a model that knows bags (MIRVM, ProbitVGPMIL)"

    def _design(
        self, bags: Bags, T: NDArray[np.bool_], known: Array | None, features: FeatureMap
    ) -> Design:
        label = np.repeat(T, bags.sizes)
        if known is not None:
            label = np.where(np.isnan(known), label, known == 1)
        return features.design(bags.X, np.arange(len(label) + 1), label, None, self.chunk_size)


class MILogisticRegression(LinearMIL, alias="mi-logistic"):
    """Noisy-or logistic regression with one penalty for all weights: "MI" of [R08].

    Keeps all features. Use it where many features matter a little, or as a baseline of `MIRVM`.

    Parameters
    ----------
    alpha : precision of the prior of all weights. "evidence" maximises the Laplace evidence,
        "cv" the held-out log-likelihood in 5-fold cross-validation, as in the paper; a number is
        taken as given. 0 is maximum likelihood, which exists only if no linear rule separates
        the bags.
    max_iter, tol : for "evidence", steps of the search and how precisely log alpha is wanted; else
        Newton steps, and the relative gain at which they end (1e-9 at most).
    kernel, n_basis, standardize, support_z, bag_score, chunk_size, random_state, verbose : as in
        `MIRVM`.

    Examples
    --------
    >>> from bagwise.datasets import make_cad_bags
    >>> data = make_cad_bags(n_volumes=20, random_state=0)
    >>> model = MILogisticRegression(random_state=0).fit(data.bags)
    >>> bool(model.alpha_[0] > 0)
    True
    """

    def __init__(self, *, alpha: float | str = "evidence", **shared: Any) -> None:
        super().__init__(**shared)
        self.alpha = alpha

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.alpha, str):
            check_choice("alpha", self.alpha, ("evidence", "cv"))
        else:
            check_number("alpha ('evidence', 'cv' or a number)", self.alpha, at_least=0)

    @property
    def _stage(self) -> str:  # type: ignore[override]
        return "evidence" if self.alpha == "evidence" else "weights"

    def _solve(self, design: Design, rng: np.random.Generator, note: Note) -> Fit:
        settings: dict[str, Any] = {
            "max_iter": self.max_iter,
            "tol": self.tol,
            "verbose": self.verbose,
            "note": note,
        }
        likelihood = self._likelihood()
        if self.alpha == "evidence":
            return fit_evidence(design, likelihood, **settings)
        if self.alpha == "cv":
            return fit_by_folds(design, likelihood, rng, **settings)
        return fit_alpha(design, likelihood, float(self.alpha), **settings)
