"""kernel="auto": what is tried, and the setting in which the chosen kernel is fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.bags.rows import column_moments
from bagwise.core.calibration.bags import too_few
from bagwise.core.calibration.candidates import (
    HANDICAP,
    Candidate,
    Fitting,
    height_and_area,
    judge,
)
from bagwise.core.calibration.judged import JudgedBags, JudgedKernel, bags_to_judge
from bagwise.core.calibration.left_out import LeftOut
from bagwise.core.inference.monitor import Monitor, State
from bagwise.core.likelihoods.count_rule import CountRule
from bagwise.core.warnings import warn_user
from bagwise.kernels import RBF, Kernel, Linear
from bagwise.models._parts import Parts, asked
from bagwise.models._preparation import principal_points, same_unit

if TYPE_CHECKING:
    from bagwise.models._gaussian_process import GaussianProcessMIL

Array = NDArray[Any]
Flags = NDArray[np.bool_]

LENGTHSCALE = 0.5  # of the candidates, in spreads of the features


@dataclass(frozen=True)
class Setting:
    """The features, points and kernel that a model is fitted with."""

    shift: Array  # (D,)
    scale: Array  # (D,)
    Z: Array  # (M, D), scaled
    kernel: Kernel | None = None  # that was chosen; None: as the arguments say
    table: tuple[JudgedKernel, ...] = ()  # what was tried
    left_out: LeftOut | None = None  # scores of all bags that count by what was chosen
    others: tuple[Candidate, ...] = ()  # whose predictions are averaged with those of this one
    weights: tuple[float, ...] = (1.0,)  # of this one and of the others

    def without(self, broken: Sequence[bool]) -> Setting:
        """The setting without those of the others that broke down, whose scores do not count."""
        if not any(broken):
            return self
        names = {other.name for other, gone in zip(self.others, broken, strict=True) if gone}
        kept = [w for w, gone in zip(self.weights, [False, *broken], strict=True) if not gone]
        total = sum(kept)
        table = [
            replace(row, weight=0.0 if row.name in names else row.weight / total)
            for row in self.table
        ]
        return replace(
            self,
            table=tuple(table),
            left_out=None,
            others=tuple(other for other in self.others if other.name not in names),
            weights=tuple(w / total for w in kept),
        )


def is_auto(kernel: Any) -> bool:
    """Whether a kernel is to be chosen."""
    return isinstance(kernel, str) and kernel == "auto"


def given_kernel(kernel: Any) -> Kernel | None:
    """The kernel that was passed, if any."""
    return kernel if isinstance(kernel, Kernel) else None


def chosen_setting(
    model: GaussianProcessMIL,
    parts: Parts,
    bags: Bags,
    T: Flags,
    known: Array | None,
    counts: Array | None,
    prepared: dict[str, Any],
    monitor: Monitor,
    reliability: Array | None = None,
) -> Setting:
    """The setting of a fit; with kernel="auto" those of the candidates that left-out bags choose.

    Each candidate is a stage of the watched fit. Models whose predictions are not made by their
    posterior alone, samplers, and fits to so many instances that only some were judged by, whose
    refits would cost as many times more, take the best one.
    """
    as_prepared = Setting(prepared["shift"], prepared["scale"], prepared["Z"])
    mean, learn = asked(model, parts)
    if not (is_auto(model.kernel) and learn) or too_few(bags, T, counts) is not None:
        return as_prepared
    judged = bags_to_judge(
        bags, T, known, prepared["seed"], counts, reliability, parts.likelihood.takes_weights
    )
    fitting = Fitting(
        parts.likelihood, None if mean == "learn" else float(mean), model.jitter, prepared["seed"]
    )
    some = np.asarray(judged.bags.X) if _own(model) else None
    tried = candidates(
        bags.X, model.standardize, parts.variance, as_prepared, some, prepared["seed"]
    )
    ruled = isinstance(parts.likelihood, CountRule) or parts.graph is not None
    sampled = not judged.whole or model.inference == "gibbs"
    alone = ruled or sampled or parts.refine is not None
    table, found = judge(tried, judged, fitting, _keeping(monitor, judged), alone=alone)
    used = [(c, row.weight) for c, row in zip(tried, table, strict=True) if row.weight > 0]
    if not used:
        warn_user(
            "kernel='auto' could not judge its candidates: all fits without a fifth of the bags "
            "broke down; the kernel is learned from the evidence instead, as with kernel=None; "
            "check the features' scale (standardize=True)"
        )
        return as_prepared
    whole = judged.whole and parts.refine is None and model.inference == "vi"
    scores = found if whole and model.approximation == "fitc" else None
    (best, *others), weights = zip(*sorted(used, key=lambda pair: -pair[1]), strict=True)
    setting = Setting(best.shift, best.scale, best.Z, best.kernel, tuple(table), scores)
    return replace(setting, others=tuple(others), weights=weights)


def _own(model: GaussianProcessMIL) -> bool:
    """Whether inducing points are the model's to place."""
    return isinstance(model.inducing, str) and model.inducing == "kmeans"


def _keeping(
    monitor: Monitor, judged: JudgedBags
) -> Callable[[str, Callable[[], LeftOut]], LeftOut]:
    """Work of which a checkpoint keeps the result."""

    def keep(stage: str, work: Callable[[], LeftOut]) -> LeftOut:
        def run(state: State | None) -> State:
            found = work()
            monitor.step(1, height_and_area(found, judged)[0], dict)
            return vars(found)

        return LeftOut(**monitor.run(stage, run))

    return keep


def candidates(
    X: Any,
    standardize: str | bool,
    variance: float,
    at: Setting,
    some: Array | None = None,
    seed: int = 0,
) -> list[Candidate]:
    """An RBF kernel, a linear one and their sum, on raw and on standardised features.

    With standardize="auto" both are tried, the one that the features' units speak against under a
    handicap. All have the same inducing points. Where these are the model's to place, which
    `some` rows of X say, linear kernels have theirs along the directions in which those vary most:
    with fewer features than points that leaves nothing out.
    """
    mean, moments = column_moments(X)
    spread = np.sqrt(moments)
    constant = spread <= 1e-12 * np.abs(mean)
    scale = np.where(constant, 1.0, spread)
    alike = same_unit(spread[~constant])
    views = []
    if standardize is not True:
        views.append(("raw", np.ones_like(scale), 0.0 if alike else HANDICAP))
    if standardize is not False:
        views.append(("standardised", scale, HANDICAP if alike else 0.0))
    raw_points = at.Z * at.scale + at.shift
    found = []
    for view, unit, handicap in views:
        width = float(np.sqrt(np.sum((spread / unit) ** 2))) or 1.0
        Z = (raw_points - mean) / unit
        basis = Z if some is None else principal_points((some - mean) / unit, len(Z), seed)
        length, unit_variance = LENGTHSCALE * width, variance / width**2
        both = RBF(variance / 2, length) + Linear(unit_variance / 2)
        kernels: dict[str, tuple[Kernel, Array]] = {
            f"RBF, {LENGTHSCALE:g} spread": (RBF(variance, length), Z),
            "linear": (Linear(unit_variance), basis),
            f"RBF, {LENGTHSCALE:g} spread, + linear": (both, Z),
        }
        found += [
            Candidate(f"{name}, {view} features", kernel, mean, unit, points, handicap)
            for name, (kernel, points) in kernels.items()
        ]
    return found
