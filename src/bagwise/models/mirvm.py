"""`MIRVM`, a sparse linear model with a prior precision for each weight, and `RVM` [R08]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.inference.monitor import Note
from bagwise.core.linear.design import Columns, Design
from bagwise.core.linear.evidence import Fit, fixed_point, maximise_evidence, printed_update
from bagwise.core.parameters import check_choice, check_limits, check_number
from bagwise.models._linear import LinearMIL

Array = NDArray[Any]


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
    bag_score, instance_score, witness_rate : how bag and instance probabilities are made, as in
        `VGPMIL`; "auto" (default) calibrates both where there are 3 bags of each class and a
        penalty that is learned. A refit learns its own alpha.
    class_weight : None, "balanced" (both classes have the same total weight) or {class: weight}:
        what multiplies the log-likelihood of each bag of a class; see `sample_weight` of `fit`.
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
    _whole = "RVM is the baseline that knows no bags"

    def _design(
        self,
        bags: Bags,
        T: NDArray[np.bool_],
        known: Array | None,
        counts: Array | None,
        columns: Columns,
    ) -> Design:
        label = np.repeat(T, bags.sizes)
        if known is not None:
            label = np.where(np.isnan(known), label, known == 1)
        counts = None if counts is None else np.repeat(counts, bags.sizes)
        return self._varying(columns, counts, bags.X, np.arange(len(label) + 1), label, None)
