"""What the linear models share [R08]: columns, weights in raw units, feature selection."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags, TransformerTags
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags, is_bagged
from bagwise.bags.rows import ScaledRows
from bagwise.bags.sparse_rows import SparseRows
from bagwise.core.files.modelfile import register
from bagwise.core.inference.checkpoints import NOT_SAVED, Saving, Session
from bagwise.core.inference.feature_store import SMALL_BUDGET, free_memory
from bagwise.core.inference.monitor import Callback, Note
from bagwise.core.inference.passes import rows_per_chunk
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.targets import halves
from bagwise.core.linear.design import Columns, Design
from bagwise.core.linear.evidence import Fit
from bagwise.core.links import Logistic
from bagwise.core.parameters import check_integer, check_number
from bagwise.core.posteriors.linear import LinearPosterior, WideLinearPosterior
from bagwise.distributed import training_data
from bagwise.kernels import Kernel
from bagwise.models import _linear_stage as stage
from bagwise.models._calibrated import CALIBRATED, CalibratedMIL
from bagwise.models._preparation import kmeans_points, scaling
from bagwise.models._refits import LinearRefits
from bagwise.models.inputs import bags_to_predict

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
    *CALIBRATED,
)

register(LinearPosterior)
register(WideLinearPosterior)


class LinearMIL(CalibratedMIL, abstract=True):
    """What all linear models share; subclasses say how weights and penalties are found."""

    posterior_: LinearPosterior | WideLinearPosterior
    _posterior_type: ClassVar[Any] = LinearPosterior | WideLinearPosterior
    _stage: str = "evidence"  # what callbacks are told
    _whole: ClassVar[str | None] = None  # why nothing is calibrated, whatever the bags

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        n_basis: int = 300,
        standardize: str | bool = True,
        support_z: float = 2.5,
        bag_score: str = "auto",
        instance_score: str = "auto",
        witness_rate: float | None = None,
        class_weight: Any = None,
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
        self.instance_score = instance_score
        self.witness_rate = witness_rate
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.chunk_size = chunk_size
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _remedies(self) -> str:
        """What may help where bags are ranked near chance."""
        curved = "kernel=bagwise.kernels.RBF() where no straight line parts the instances"
        counts = (
            () if self.standardize is False else ("standardize=False of counts or frequencies",)
        )
        return ", ".join([curved, *counts, "another model (ProbitVGPMIL)"])

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
        reliability: Array | None = None,
    ) -> None:
        reasons = self._reasons_against(bags, T, counts, self._whole, self._costly())
        self._check_width(bags.n_instances, self._n_basis(bags))
        labels = {"the labels": T, "the instance labels": known, "the weights of bags": counts}
        labels |= {} if reliability is None else {"the reliabilities of labels": reliability}
        session = Session.begin(self, bags, labels, saving)
        prepared = session.prepared or stage.prepared_columns(self._columns(bags, T, rng), rng)
        monitor = session.monitor(prepared, callbacks)

        def work() -> None:
            columns = stage.restored_columns(prepared, self.kernel, rng)
            design = self._design(bags, T, known, counts, columns)
            design.data.reliability = reliability
            found = stage.watched(monitor, self._stage, partial(self._solve, design, rng), rng)
            stage.store(self, found, found["posterior"])
            told = (counts, self.posterior_.seed, monitor, reliability)
            self._calibrate(known, reasons, LinearRefits(self, bags, T, *told))

        session.do(work, monitor)

    def _check_width(self, n: int, d: int) -> None:
        """Raise where fits of d weights to n instances exceed the memory."""
        # Instances, their directions and one product; or P, its root, its inverse and what is kept.
        numbers = 3 * n * d if n < d else 4 * d**2
        free = free_memory()
        if 8 * numbers > free:
            raise ValueError(
                f"a fit of {d} weights to {n} instances takes {8 * numbers / 1e9:.1f} GB of memory "
                f"and {free / 1e9:.1f} GB are free; use ProbitVGPMIL, whose fits do not grow with "
                "the product of both, or fewer features, e.g. sklearn.decomposition.TruncatedSVD"
            )

    def _costly(self) -> str | None:
        """Why "auto" does not pay for five more fits, or None."""
        return None

    def _learned(self) -> dict[str, Any]:
        """Arguments of a refit that a fit has learned."""
        return {}

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
        return self._spread_out(self.posterior_.weights)

    @property
    def scaled_coef_std_(self) -> Array:
        """Posterior standard deviations of `scaled_coef_`."""
        return self._spread_out(self.posterior_.deviations)

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
            found = bags.X[:, support]
            return found.matrix if isinstance(found, SparseRows) else found
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

    def _likelihood(self) -> BagLikelihood:
        return BagLikelihood(Logistic())

    def _fitted_names(self) -> tuple[str, ...]:
        return FITTED

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise TypeError(
                "kernel must be None or a bagwise kernel such as bagwise.kernels.RBF(), "
                f"got {self.kernel!r}"
            )
        check_integer("n_basis", self.n_basis, at_least=1)
        check_number("support_z", self.support_z, at_least=0)

    def _n_basis(self, bags: Bags) -> int:
        return bags.n_features if self.kernel is None else min(self.n_basis, bags.n_instances)

    def _columns(self, bags: Bags, T: NDArray[np.bool_], rng: np.random.Generator) -> Columns:
        """Scaling and, with a kernel, basis points: k-means centres per label."""
        shift, scale = scaling(bags.X, self.standardize)
        if self.kernel is None:
            return Columns.all(shift, scale)
        self.kernel.check_features(bags.n_features)
        group = np.repeat(halves(T), bags.sizes).astype(np.int64)
        basis = kmeans_points(
            ScaledRows(bags.X, shift, scale, np.float64), group, self.n_basis, rng
        )
        return Columns.all(shift, scale, self.kernel, basis)

    def _design(
        self,
        bags: Bags,
        T: NDArray[np.bool_],
        known: Array | None,
        counts: Array | None,
        columns: Columns,
    ) -> Design:
        return self._varying(columns, counts, bags.X, bags.offsets, T, known)

    def _varying(self, columns: Columns, counts: Array | None, X: Any, *labels: Any) -> Design:
        """Rows with offsets, T and known labels, and those of the columns that vary."""
        chunk_size = self.chunk_size or rows_per_chunk(len(columns))
        data = training_data(X, *labels, chunk_size, None, SMALL_BUDGET, counts=counts)
        return Design(data, columns).varying()

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
