"""`IsingVGPMIL`: the probit model with coupled neighbours [M24]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.base import GaussianProcessMIL
from bagwise.classifier import RANKED_ROWS
from bagwise.coupled_posterior import CoupledPredictor
from bagwise.features import whitener
from bagwise.graphs import neighbor_graph
from bagwise.infer.collapsed import NewtonAscent
from bagwise.infer.coupling import START, learn_coupling
from bagwise.infer.fit import Problem, Result, watched
from bagwise.infer.monitor import State
from bagwise.ising import DiagonalIsingSites, IsingSites
from bagwise.labels import BagLikelihood
from bagwise.links import Probit
from bagwise.parameters import check_choice, check_number
from bagwise.sites import Sites

Array = NDArray[Any]


class IsingVGPMIL(GaussianProcessMIL):
    """VGPMIL-PR-I: the probit model with neighbours that tend to share their label [M24].

    Parameters are those of `VGPMIL` without `H`, and

    coupling : strength lambda >= 0 of the coupling, or "learn": from the bound, under a
        log-normal prior around 0.5 (bag labels alone always favour bags of one mind). At 0
        the model is `ProbitVGPMIL`.
    neighbors : "auto" (from `coords`: adjacent cells of a grid, else the 4 nearest), "chain"
        (consecutive rows, e.g. slices), ("radius", r), ("knn", k), or a sparse (N, N) graph,
        which then serves for these bags only.
    moments : how the labels of a bag are averaged over,
        "ep" (expectation propagation), or "diagonal" as published.

    The kernel and the mean are learned without the coupling. Predictions use the graph of the
    bags that are asked about. The bound with EP is an approximation of one.

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
        elif self.moments == "diagonal":
            raise ValueError(
                "coupling='learn' needs moments='ep': the published diagonal moments have no bound"
            )

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
        start = START if self.coupling == "learn" else float(self.coupling)
        if self.moments == "ep":
            return self._coupled_sites(start)
        return DiagonalIsingSites(start, integrate_residual=self.approximation == "fitc")

    def _coupled_sites(self, lam: float) -> IsingSites:
        return IsingSites(lam, integrate_residual=self.approximation == "fitc")

    def _run(self, problem: Problem) -> Result:
        self.coupling_ = START if self.coupling == "learn" else float(self.coupling)
        result = super()._run(problem)
        if self.coupling != "learn":
            return result
        features = whitener(result.kernel, problem.Z, self.jitter)
        limits: dict[str, Any] = {"max_iter": self.max_iter, "tol": self.tol}

        def work(state: State | None) -> State:
            lam = learn_coupling(
                problem.data,
                features,
                result.q,
                self._coupled_sites,
                monitor=problem.monitor,
                state=state,
                **limits,
            )
            return {"coupling": lam}

        self.coupling_ = problem.monitor.run("coupling", work)["coupling"]
        sites, sweeper = self._coupled_sites(self.coupling_), problem.data.sweeper(features)
        ascent = NewtonAscent(sites, sweeper, learn_mean=False)
        q, trace = watched(problem.monitor, "coupled vi", ascent, result.q, **limits)
        return Result(q, result.kernel, trace)

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
