"""Models that come from files are whole, and their parts fit together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from bagwise.core.calibration.bags import BagCalibration
from bagwise.core.calibration.candidates import JudgedKernel
from bagwise.core.calibration.conformal import LeftOutBags, Reference
from bagwise.core.calibration.instance_ends import InstanceCalibration
from bagwise.core.calibration.novelty import SeenInstances
from bagwise.core.calibration.thresholds import OperatingPoint
from bagwise.core.parameters import check_choice, check_integer, check_number

# What files of earlier versions do not hold, and what that means.
ADDED = {
    "calibration_": None,
    "candidates_": (),
    "why_not_calibrated_": "the model is of a version that did not calibrate it",
    "instance_calibration_": None,
    "why_instances_not_calibrated_": "the model is of a version that did not calibrate instances",
    "left_out_bags_": None,
    "left_out_positives_": None,
    "operating_point_": None,
    "seen_instances_": None,
}

# Parts that a model has or not, each of its own kind.
PARTS = {
    "left_out_bags_": LeftOutBags,
    "left_out_positives_": Reference,
    "operating_point_": OperatingPoint,
    "seen_instances_": SeenInstances,
}


def with_added(fitted: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """What a file holds of a fitted model, and what was added to models since."""
    return {name: value for name, value in ADDED.items() if name in names} | dict(fitted)


def check_loaded(model: Any, fitted: Collection[str]) -> None:
    """Raise ValueError where a model, of which a file gave the names `fitted`, is not usable.

    The parts of a posterior check themselves; this is about what stands beside it.
    """
    if "candidates_" not in fitted and "candidates_" in model._fitted_names():
        model.candidates_ = ()  # files of before kernels were chosen
        fitted = {*fitted, "candidates_"}
    missing = [name for name in model._fitted_names() if name not in fitted]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    if not isinstance(model.posterior_, model._posterior_type):
        raise ValueError("it has no posterior")
    classes = model.classes_
    two = isinstance(classes, np.ndarray) and classes.shape == (2,)
    if not two or classes.dtype.kind not in "biufUSM" or not classes[0] != classes[1]:
        raise ValueError(f"classes_ must be two different values, got {classes!r:.80}")
    D = check_integer("n_features_in_", model.n_features_in_, at_least=1)
    for posterior in getattr(model.posterior_, "posteriors", (model.posterior_,)):
        if len(posterior.shift) != D:
            raise ValueError(f"n_features_in_ is {D}, its posterior is of {len(posterior.shift)}")
    names = getattr(model, "feature_names_in_", None)
    if names is not None and not (names.shape == (D,) and all(type(n) is str for n in names)):
        raise ValueError(f"feature_names must be {D} texts, got {names!r:.80}")
    _check_calibration(model, fitted, "calibration_", "why_not_calibrated_", BagCalibration)
    names = ("instance_calibration_", "why_instances_not_calibrated_")
    _check_calibration(model, fitted, *names, InstanceCalibration)
    for name in PARTS.keys() & set(fitted):
        part = getattr(model, name)
        if not (part is None or isinstance(part, PARTS[name])):
            raise ValueError(f"{name} must be a {PARTS[name].__name__} or None, got {part!r:.80}")
    if "candidates_" in fitted:
        tried = model.candidates_
        if not (isinstance(tried, tuple) and all(isinstance(c, JudgedKernel) for c in tried)):
            raise ValueError(f"candidates_ must be a tuple of candidates, got {tried!r:.80}")
    pooled = getattr(getattr(model, "calibration_", None), "pooled", None)
    if pooled is not None and len(pooled.coef) != D:
        raise ValueError(f"n_features_in_ is {D}, its calibration is of {len(pooled.coef)}")
    seen = getattr(model, "seen_instances_", None)
    if seen is not None and len(seen.centre) != D:
        raise ValueError(f"n_features_in_ is {D}, its seen instances have {len(seen.centre)}")
    check_integer("n_iter_", model.n_iter_, at_least=0)
    check_choice("converged_", model.converged_, (True, False))
    for name in set(fitted) & {"elbo_", "log_evidence_", "coupling_"}:
        check_number(name, getattr(model, name))
    if "H_" in fitted:
        check_number("H_", model.H_, above=1)


def _check_calibration(
    model: Any, fitted: Collection[str], name: str, why_not: str, kind: type
) -> None:
    """Raise where a calibration, or the reason that there is none, is something else."""
    if name not in fitted:
        return
    calibration, reason = getattr(model, name), getattr(model, why_not)
    if not (calibration is None or isinstance(calibration, kind)):
        raise ValueError(f"{name} must be a calibration or None, got {calibration!r:.80}")
    if not (reason is None or isinstance(reason, str)):
        raise ValueError(f"{why_not} must be a text or None, got {reason!r:.80}")
