"""Couplings of `IsingVGPMIL` that groups of bags have of their own."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.features import whitener
from bagwise.core.files.modelfile import register
from bagwise.core.inference.coupling import (
    agreement,
    chosen_coupling,
    group_gains,
    next_coupling,
)
from bagwise.core.inference.driver import Problem, Result
from bagwise.core.inference.monitor import State
from bagwise.core.inference.passes import Sweeper
from bagwise.core.likelihoods.coupled.by_group import GroupCouplings

if TYPE_CHECKING:
    from bagwise.models.ising import IsingVGPMIL

Array = NDArray[Any]

BY_GROUP = "learn by group"
CONTRADICTION = 0.0  # a rank correlation of f with and without the coupling below it is one

register(GroupCouplings)


def learn_by_group(model: IsingVGPMIL, problem: Problem, sweeper: Sweeper, alone: Result) -> Result:
    """Fit with the lambda that each group's neighbours ask for.

    Where the fit contradicts the one without coupling, all groups take the next smaller one.
    """
    groups, sizes = model._fitted_groups
    names, number = np.unique(np.asarray(groups).astype(str), return_inverse=True)

    def work(state: State | None) -> State:
        return {"gains": group_gains(sweeper, alone.q, np.repeat(number, sizes), len(names))}

    gains = np.asarray(problem.monitor.run("coupling", work)["gains"])
    lams = [chosen_coupling(part) for part in gains]
    model.coupling_gains_ = gains
    while True:
        model.coupling_ = GroupCouplings(tuple(names.tolist()), tuple(lams))
        if model.coupling_.none:
            return alone
        data = copy.copy(problem.data)
        data.graph = model.coupling_.weigh(problem.data.graph, groups, sizes)
        coupled = data.sweeper(whitener(alone.kernel, problem.Z, model.jitter))
        result = model._coupled(problem.monitor, coupled, alone, 1.0)
        if not agreement(coupled, result.q, alone.q) < CONTRADICTION:
            return result
        lams = [next_coupling(lam) if lam else 0.0 for lam in lams]


def groups_of(bags: Bags, given: GroupCouplings | None) -> Array:
    """(B,) groups of the bags of a fit, each of which has a coupling where they are given."""
    if bags.groups is None:
        raise ValueError(
            "a coupling for each group needs the groups of bags: Bags.from_arrays(..., "
            "groups=...); or give one number for all"
        )
    groups = np.asarray(bags.groups)
    missing = [g for g in groups.tolist() if given is not None and str(g) not in given.groups]
    if missing:
        raise ValueError(
            f"coupling must have a number for every group of the bags; group {missing[0]!r:.80} "
            "has none; add it, or 0 to leave its bags uncoupled"
        )
    return groups


def shown(coupling: Any) -> str:
    """A coupling in a message."""
    return str(coupling.as_dict()) if isinstance(coupling, GroupCouplings) else f"{coupling:g}"
