"""The probit model with neighbours in a bag that tend to share their label [M24]."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.bags.graphs import check_graph, check_neighbors, neighbor_graph
from bagwise.core.features import whitener
from bagwise.core.inference.coupling import (
    agreement,
    chosen_coupling,
    coupled_mean,
    coupling_gains,
    next_coupling,
)
from bagwise.core.inference.driver import Problem, Result
from bagwise.core.inference.loop import warn_if_constant
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.solvers import optimise
from bagwise.core.inference.stats import (
    Chunk,
    ClimbableSites,
    Derivatives,
    FoldedLikelihood,
    Precision,
    Q,
    Sites,
    Stats,
    latent,
    latent_mean,
    project,
    trace_bound,
)
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.coupled.blocks import CoupledPrior, Coupling
from bagwise.core.likelihoods.coupled.by_group import GroupCouplings, check_coupling
from bagwise.core.likelihoods.coupled.moments import (
    BagMoments,
    bag_moments,
    neg_hessian,
    orthant_diagonal,
)
from bagwise.core.links import Probit
from bagwise.core.parameters import check_choice
from bagwise.core.posteriors.coupled import CoupledPredictor
from bagwise.core.posteriors.predictor import Predictor
from bagwise.core.warnings import warn_user
from bagwise.models._gaussian_process import GaussianProcessMIL
from bagwise.models._group_couplings import (
    BY_GROUP,
    CONTRADICTION,
    groups_of,
    learn_by_group,
    shown,
)
from bagwise.models._parts import Init, Parts

Array = NDArray[Any]

GIVEN_GRAPH = "neighbors is a graph of these bags, which no part of them has"
EP_TOLERANCE = 1e-5  # the bound's error is its square


class CoupledSites(Sites):
    """m_b ~ N(Sigma f_b, Sigma), Sigma = (I + lam R_b)^-1, a bag negative if all its m are.

    Lambda = Sigma, eta = E[m] ("vfe", [M24, Eq. 16-18]) or, with residuals integrated out
    ("fitc"), Lambda = (Q + Kt)^-1, eta = Lambda Q E[m]. Subclasses say where E[m] comes from.
    """

    bound_learns_mean = True

    def __init__(self, lam: float, *, integrate_residual: bool = True) -> None:
        self.lam = lam
        self.integrate_residual = integrate_residual
        self._priors: dict[int, CoupledPrior] = {}
        self._precisions: dict[int, Precision] = {}

    @abstractmethod
    def moments(self, chunk: Chunk, mu: Array) -> BagMoments:
        """E[m | T] and log P(T) at E f = mu."""

    def local_step(self, chunk: Chunk, q: Q) -> Stats:
        found = self.moments(chunk, latent_mean(chunk, q))
        eta = chunk.targets.counted_rows(self.prior(chunk).eta(found.Em))
        bound = chunk.targets.total_of_bags(found.log_prob) + self.constant_bound(chunk)
        return Stats(project(chunk.A, eta), float(eta.sum()), bound, self.precision(chunk))

    def precision(self, chunk: Chunk) -> Precision:
        """Statistics of a Lambda that couples the instances of a bag."""
        if chunk.start not in self._precisions:
            self._precisions[chunk.start] = coupled_precision(self.prior(chunk), chunk)
        return self._precisions[chunk.start]

    def constant_bound(self, chunk: Chunk) -> float:
        """-1/2 tr(Lambda Kt), where the residual is part of the bound."""
        if self.integrate_residual:
            return 0.0
        return -0.5 * chunk.targets.total_of_rows(chunk.kt * self.prior(chunk).coupling.diag())

    def global_bound(self, q: Q, precision: Precision) -> float:
        return trace_bound(q, precision)

    def prior(self, chunk: Chunk) -> CoupledPrior:
        """m of the chunk's bags before their labels are known, kept from pass to pass."""
        if chunk.start not in self._priors:
            kt = np.asarray(chunk.kt, dtype=np.float64)
            coupling = Coupling(chunk.graph, self.lam)
            self._priors[chunk.start] = coupling.prior(kt if self.integrate_residual else None)
        return self._priors[chunk.start]


class IsingSites(CoupledSites, ClimbableSites):
    """Coupled sites with moments from expectation propagation."""

    def __init__(self, lam: float, *, integrate_residual: bool = True) -> None:
        super().__init__(lam, integrate_residual=integrate_residual)
        self.uncoupled = FoldedLikelihood(BagLikelihood(Probit()), float(integrate_residual))
        self._moments: dict[int, BagMoments] = {}  # where EP starts from the next time

    def moments(self, chunk: Chunk, mu: Array) -> BagMoments:
        warm = self._moments.get(chunk.start)
        found = bag_moments(self.prior(chunk), mu, chunk.targets, warm, tol=EP_TOLERANCE)
        self._moments[chunk.start] = found
        return found

    def log_prob(self, chunk: Chunk, m: Array, c0: float) -> float:
        if self.prior(chunk).independent:
            return self.uncoupled.log_prob(chunk, m, c0)
        return chunk.targets.total_of_bags(self.moments(chunk, latent(chunk, m, c0)).log_prob)

    def derivatives(self, chunk: Chunk, m: Array, c0: float) -> Derivatives:
        prior = self.prior(chunk)
        if prior.independent:
            return self.uncoupled.derivatives(chunk, m, c0)
        mu = latent(chunk, m, c0)
        found = self.moments(chunk, mu)
        A1 = np.column_stack([chunk.A, np.ones(len(mu))]).astype(np.float64)
        g = chunk.targets.counted_rows(prior.eta(found.Em) - prior.weigh(mu))
        P = neg_hessian(prior, A1, mu, found, chunk.targets)
        return Derivatives(chunk.targets.total_of_bags(found.log_prob), A1.T @ g, P)


class DiagonalIsingSites(CoupledSites):
    """The published moments: E[m] truncates with the diagonal of Sigma [M24, Eq. 19-20].

    They are the moments of no distribution, so that there is no bound to climb.
    """

    def moments(self, chunk: Chunk, mu: Array) -> BagMoments:
        prior = self.prior(chunk)
        return orthant_diagonal(prior.mean(mu), prior.variance, chunk.targets)


def coupled_precision(prior: CoupledPrior, chunk: Chunk) -> Precision:
    """Statistics of a Lambda that couples the instances of a bag."""
    A = np.asarray(chunk.A, dtype=np.float64)
    LA = chunk.targets.counted_rows(prior.weigh(A))
    oneL1 = chunk.targets.total_of_rows(prior.weigh(np.ones(len(A))))
    return Precision(A.T @ LA, LA.sum(axis=0), oneL1)


class IsingVGPMIL(GaussianProcessMIL, alias="ising"):
    """VGPMIL-PR-I: the probit model with neighbours that tend to share their label [M24].

    Parameters are those of `VGPMIL` without `H`, and

    coupling : strength lambda >= 0 of the coupling, or "learn": between 0 and 1, by how much
        more than strangers the neighbours in positive bags share their label, as far as the
        model without coupling can tell; 0 where that may be chance. `coupling_gains_` has what was
        tried. At 0 the model is `ProbitVGPMIL`. {group: lambda} gives each of the `groups` of bags
        its own, "learn by group" learns one for each; bags of other groups, or of none, are
        predicted with the mean of these.
    neighbors : "auto" (from `coords`: adjacent cells of a grid, else the 4 nearest), "chain"
        (consecutive rows, e.g. slices), ("radius", r), ("knn", k), a function that returns the
        sparse (N, N) graph of any Bags, or such a graph, which then serves for these bags only.
        Model files hold a function that is an object of a class given to `bagwise.io.register`.
    moments : how the labels of a bag are averaged over,
        "ep" (expectation propagation), or "diagonal" as published.

    The kernel and the mean are learned without the coupling; the mean is then put in units of the
    latent values' deviation, which a coupling makes smaller. A fit that ranks the instances of
    positive bags against the one without coupling warns. Predictions use the graph of the bags
    that are asked about. The bound with EP is an approximation of one.

    After a fit `coupling_` is lambda, or has those of groups (`coupling_.as_dict()`). Where it was
    learned, `coupling_gains_` has rows of lambda, its gain in nats and the gain's standard error, a
    table for each group: chosen is the smallest lambda within one error of the largest gain, or the
    next smaller one whose fit does not contradict the one without coupling. It is not kept in model
    files.

    Examples
    --------
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> model = IsingVGPMIL(neighbors="chain", coupling=0.1, random_state=0).fit(bags[:30])
    >>> model.predict_proba(bags[30:]).shape
    (10, 2)
    """

    def __init__(
        self,
        *,
        coupling: Any = 0.5,
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
        check_neighbors(self.neighbors)
        if isinstance(self.coupling, str):
            check_choice("coupling", self.coupling, ("learn", BY_GROUP))
        elif self._given_by_group is None:
            check_coupling(self.coupling)

    def _parts(self, init: Init = None) -> Parts:
        """The first fit is without the coupling."""
        likelihood = BagLikelihood(Probit())
        given = not (isinstance(self.neighbors, str | tuple | list) or callable(self.neighbors))
        return Parts(
            likelihood,
            IsingSites(0.0, integrate_residual=self.approximation == "fitc"),
            variance=4.0,
            inferences=("vi",),
            learned=("coupling",),
            graph=self._graph_to_fit,
            refine=self._couple,
            whole=GIVEN_GRAPH if given else None,
        )

    @property
    def _given_by_group(self) -> GroupCouplings | None:
        if isinstance(self.coupling, Mapping):
            return GroupCouplings.of(self.coupling)
        return self.coupling if isinstance(self.coupling, GroupCouplings) else None

    def _graph_to_fit(self, bags: Bags) -> Any:
        """The graph of the bags of a fit, as their groups are coupled."""
        given, graph = self._given_by_group, self._neighbor_graph(bags)
        by_group = given is not None or self.coupling == BY_GROUP
        groups = groups_of(bags, given) if by_group else None
        self._fitted_groups = (groups, bags.sizes)
        return graph if given is None else given.weigh(graph, groups, bags.sizes)

    def _neighbor_graph(self, bags: Bags) -> Any:
        if callable(self.neighbors):
            return check_graph(self.neighbors(bags), bags.offsets)
        alone = len(bags) == bags.n_instances and isinstance(self.neighbors, str)
        # Bags of one have no neighbours, whatever the rule, and need no coordinates.
        rule = "chain" if alone else self.neighbors
        return neighbor_graph(bags.coords, bags.offsets, rule)

    def _couple(self, problem: Problem, alone: Result, refit: bool) -> Result:
        """The fit with the coupling; a `refit` is part of one whose agreement was looked at."""
        sweeper = problem.data.sweeper(whitener(alone.kernel, problem.Z, self.jitter))
        self.coupling_gains_: Array | None = None
        given = self._given_by_group
        if self.coupling == "learn":
            return self._learn_coupling(problem.monitor, sweeper, alone)
        if self.coupling == BY_GROUP:
            return learn_by_group(self, problem, sweeper, alone)
        self.coupling_ = given or float(self.coupling)
        if self.coupling_ == 0 or (given is not None and given.none):
            return alone
        lam = float(self.coupling) if given is None else 1.0  # its graph is weighed by group
        result = self._coupled(problem.monitor, sweeper, alone, lam)
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
            f"{shown(self.coupling_)}), where it should be above {CONTRADICTION:g}; instances "
            f"may be ranked backwards. Try{learn} a smaller coupling or coupling='learn', more "
            "inducing points, a kernel with a longer lengthscale, or ProbitVGPMIL"
        )

    def _predictor(self, bags: Bags) -> Any:
        lam = self.coupling_
        if lam == 0 or (isinstance(lam, GroupCouplings) and lam.none):
            return super()._predictor(bags)
        graph = self._neighbor_graph(bags)
        if isinstance(lam, GroupCouplings):
            graph, lam = lam.weigh(graph, bags.groups, bags.sizes), 1.0
        coupled = CoupledPredictor(self.posterior_, lam, graph, bags.offsets)
        return Predictor(coupled, self._fitted_likelihood())

    def _storable_parameters(self) -> dict[str, Any]:
        parameters = super()._storable_parameters()
        given = self._given_by_group  # a dict may have keys that no file holds
        return parameters if given is None else parameters | {"coupling": given}
