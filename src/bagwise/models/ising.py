"""`IsingVGPMIL`: the probit model with coupled neighbours [M24]."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.bags.graphs import neighbor_graph
from bagwise.core.features import whitener
from bagwise.core.inference.coupling import (
    agreement,
    chosen_coupling,
    coupled_mean,
    coupling_gains,
    next_coupling,
)
from bagwise.core.inference.driver import Problem, Result, optimise, warn_if_constant
from bagwise.core.inference.ising_sites import DiagonalIsingSites, IsingSites
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.sites import Sites
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Probit
from bagwise.core.parameters import check_choice, check_number
from bagwise.core.posteriors.coupled import CoupledPredictor
from bagwise.core.warnings import warn_user
from bagwise.models._base import RANKED_ROWS
from bagwise.models._gaussian_process import GaussianProcessMIL

Array = NDArray[Any]

CONTRADICTION = 0.0  # a rank correlation of f with and without the coupling below it is one


class IsingVGPMIL(GaussianProcessMIL):
    """VGPMIL-PR-I: the probit model with neighbours that tend to share their label [M24].

    Parameters are those of `VGPMIL` without `H`, and

    coupling : strength lambda >= 0 of the coupling, or "learn": between 0 and 1, by how much
        more than strangers the neighbours in positive bags share their label, as far as the
        model without coupling can tell; 0 where that may be chance. `coupling_gains_` has what was
        tried. At 0 the model is `ProbitVGPMIL`.
    neighbors : "auto" (from `coords`: adjacent cells of a grid, else the 4 nearest), "chain"
        (consecutive rows, e.g. slices), ("radius", r), ("knn", k), or a sparse (N, N) graph,
        which then serves for these bags only.
    moments : how the labels of a bag are averaged over,
        "ep" (expectation propagation), or "diagonal" as published.

    The kernel and the mean are learned without the coupling; the mean is then put in units of the
    latent values' deviation, which a coupling makes smaller. A fit that ranks the instances of
    positive bags against the one without coupling warns. Predictions use the graph of the bags
    that are asked about. The bound with EP is an approximation of one.

    After a fit `coupling_` is lambda. Where it was learned, `coupling_gains_` has rows of lambda,
    its gain in nats and the gain's standard error: chosen is the smallest lambda within one
    error of the largest gain, or the next smaller one whose fit does not contradict the one without
    coupling. It is not kept in model files.

    Examples
    --------
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> model = IsingVGPMIL(neighbors="chain", coupling=0.1, random_state=0).fit(bags[:30])
    >>> model.predict_proba(bags[30:]).shape
    (10, 2)
    """

    _link = "probit"
    _start_variance = 4.0
    _inferences = ("vi",)

    def __init__(
        self,
        *,
        coupling: str | float = 0.5,
        neighbors: Any = "auto",
        moments: str = "ep",
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.coupling = coupling
        self.neighbors = neighbors
        self.moments = moments

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("moments", self.moments, ("ep", "diagonal"))
        if not (isinstance(self.coupling, str) and self.coupling == "learn"):
            check_number("coupling ('learn' or lambda)", self.coupling, at_least=0)

    def _frozen(self, rows: NDArray[np.bool_]) -> dict[str, Any]:
        return super()._frozen(rows) | {"coupling": self.coupling_}

    def _cannot_calibrate(self, bags: Bags, T: NDArray[np.bool_]) -> str | None:
        if isinstance(self.neighbors, str | tuple | list):
            return super()._cannot_calibrate(bags, T)
        return "neighbors is a graph of these bags, which no part of them has"

    def _check_ranking(self, bags: Bags, T: NDArray[np.bool_]) -> None:
        if isinstance(self.neighbors, str | tuple | list) or bags.n_instances <= RANKED_ROWS:
            super()._check_ranking(bags, T)  # a given graph is of all bags

    def _fitted_names(self) -> tuple[str, ...]:
        return (*super()._fitted_names(), "coupling_")

    def _neighbor_graph(self, bags: Bags) -> Any:
        alone = len(bags) == bags.n_instances and isinstance(self.neighbors, str)
        # Bags of one have no neighbours, whatever the rule, and need no coordinates.
        rule = "chain" if alone else self.neighbors
        return neighbor_graph(bags.coords, bags.offsets, rule)

    def _likelihood(self) -> BagLikelihood:
        return BagLikelihood(Probit())

    def _sites(self, init: dict[str, Array] | None) -> Sites:
        """The first fit is without the coupling."""
        return IsingSites(0.0, integrate_residual=self.approximation == "fitc")

    def _run(self, problem: Problem, *, refit: bool) -> Result:
        alone = super()._run(problem, refit=refit)
        sweeper = problem.data.sweeper(whitener(alone.kernel, problem.Z, self.jitter))
        self.coupling_gains_: Array | None = None
        if self.coupling == "learn":
            return self._learn_coupling(problem.monitor, sweeper, alone)
        self.coupling_ = float(self.coupling)
        if self.coupling_ == 0:
            return alone
        result = self._coupled(problem.monitor, sweeper, alone, self.coupling_)
        if not refit:
            self._check_agreement(agreement(sweeper, result.q, alone.q))
        return result

    def _learn_coupling(self, monitor: Monitor, sweeper: Sweeper, alone: Result) -> Result:
        """Fit with the best lambda whose fit does not contradict the one without coupling."""

        def work(state: State | None) -> State:
            return {"gains": coupling_gains(sweeper, alone.q)}

        gains = np.asarray(monitor.run("coupling", work)["gains"])
        self.coupling_gains_, self.coupling_ = gains, chosen_coupling(gains)
        while self.coupling_ > 0:
            result = self._coupled(monitor, sweeper, alone, self.coupling_)
            if not agreement(sweeper, result.q, alone.q) < CONTRADICTION:
                return result
            self.coupling_ = next_coupling(self.coupling_)
        return alone

    def _coupled(self, monitor: Monitor, sweeper: Sweeper, alone: Result, lam: float) -> Result:
        """The fit with a coupling, from the one without it."""
        kind = IsingSites if self.moments == "ep" else DiagonalIsingSites
        sites = kind(lam, integrate_residual=self.approximation == "fitc")
        learned = self.mean == "learn"
        q = replace(alone.q, c0=coupled_mean(sweeper, alone.q.c0, lam)) if learned else alone.q
        q, trace = optimise(
            monitor,
            f"coupled vi, {lam:g}",
            sites,
            sweeper,
            q,
            # A mean learned from the evidence stays, as without a coupling.
            learn_mean=learned and not self.learn_hyperparameters,
            max_iter=self.max_iter,
            tol=self.tol,
            verbose=self.verbose,
        )
        warn_if_constant(sweeper, q, self._likelihood())
        return Result(q, alone.kernel, trace)

    def _check_agreement(self, correlation: float) -> None:
        """Warn where the coupling has turned the ranking of instances round."""
        if not correlation < CONTRADICTION:
            return
        learn = "" if self.mean == "learn" else " mean='learn',"
        warn_user(
            "with the coupling, f ranks the instances of the positive training bags against what "
            f"it says without: their rank correlation is {correlation:.2f} (coupling="
            f"{self.coupling_:g}), where it should be above {CONTRADICTION:g}; instances may be "
            f"ranked backwards. Try{learn} a smaller coupling or coupling='learn', more inducing "
            "points, a kernel with a longer lengthscale, or ProbitVGPMIL"
        )

    def _predictor(self, bags: Bags) -> Any:
        if self.coupling_ == 0:
            return self.posterior_
        return CoupledPredictor(
            self.posterior_,
            self.coupling_,
            self._neighbor_graph(bags),
            bags.offsets,
            full_residual=self.approximation == "vfe",
        )
