"""Models as plain values and back, checked: the parts of which all model files are made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.calibration.bags import BagCalibration
from bagwise.core.calibration.conformal import LeftOutBags, Reference
from bagwise.core.calibration.instance_ends import InstanceCalibration
from bagwise.core.calibration.judged import JudgedKernel
from bagwise.core.calibration.novelty import SeenInstances
from bagwise.core.calibration.thresholds import OperatingPoint
from bagwise.core.files.codec import describe
from bagwise.core.files.modelfile import ModelFileError
from bagwise.core.likelihoods.coupled.by_group import GroupCouplings
from bagwise.core.parameters import check_choice, check_integer, check_number
from bagwise.models._base import BagClassifierMIL
from bagwise.models.metadata import check_metadata
from bagwise.models.registry import MODELS

Array = NDArray[Any]

# What files of earlier versions do not hold, and what that means.
_ADDED = {
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
_PARTS = {
    "left_out_bags_": LeftOutBags,
    "left_out_positives_": Reference,
    "operating_point_": OperatingPoint,
    "seen_instances_": SeenInstances,
}


def model_from_state(kind: str, state: Any) -> BagClassifierMIL:
    """The fitted model whose `to_state` this is; everything in it is checked."""
    try:
        model = _unfitted(kind, state["parameters"])
        fitted = _with_added(state["fitted"], model._fitted_names())
        for name, value in fitted.items():
            setattr(model, check_choice("fitted", name, model._fitted_names()), value)
        set_feature_names(model, state["feature_names"])
        model.metadata_ = check_metadata(state.get("metadata") or {})
        _check_loaded(model, fitted)
        model._check_parameters()
    except Exception as error:  # arguments of any type reach every check
        raise ModelFileError(f"not a complete {kind!s:.80} model: {describe(error)}") from None
    return model


def fitted_states(models: Sequence[Any]) -> list[tuple[str, Any]]:
    """Kind and state of each of several fitted models."""
    for model in models:
        _check_ours(model)
    return [(type(model).__name__, model.to_state()) for model in models]


def fitted_models(states: Any, n: int) -> list[BagClassifierMIL]:
    """The n fitted models of `fitted_states`."""
    if len(states) != n:
        raise ModelFileError(f"{len(states)} models for {n} classes")
    return [model_from_state(kind, state) for kind, state in states]


def estimator_state(estimator: Any) -> tuple[str, Any] | None:
    """Kind and arguments of a model that need not be fitted; None for None."""
    if estimator is None:
        return None
    _check_ours(estimator)
    return type(estimator).__name__, estimator._storable_parameters()


def estimator_from_state(state: Any) -> BagClassifierMIL | None:
    """The model, not fitted, of `estimator_state`."""
    if state is None:
        return None
    model = _unfitted(*state)
    model._check_parameters()
    return model


def _unfitted(kind: Any, parameters: dict[str, Any]) -> BagClassifierMIL:
    """A model with the arguments that a file holds."""
    weights = parameters.get("class_weight")
    if isinstance(weights, list):  # pairs stand for a dict with keys of any type
        parameters = parameters | {"class_weight": dict(weights)}
    return _class_of(kind)(**parameters)


def plain_classes(classes: Array) -> Any:
    """Classes as model files take them: an array, or a list where they are Python objects."""
    return classes.tolist() if classes.dtype == object else classes


def classes_from(stored: Any) -> Array:
    """(K,) classes of `plain_classes`, in the type they had."""
    return np.array(stored, dtype=object) if isinstance(stored, list) else np.asarray(stored)


def set_feature_names(model: Any, names: Any) -> None:
    """Give a model the names of its features, where there are any."""
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)


def _class_of(kind: Any) -> type[BagClassifierMIL]:
    if kind not in MODELS:
        raise ModelFileError(f"{kind!r:.80} is not a model of this bagwise")
    return MODELS[kind]


def _check_ours(model: Any) -> None:
    if MODELS.get(type(model).__name__) is not type(model):
        raise ModelFileError(
            f"a {type(model).__name__} cannot be written to a model file; files hold the models of "
            f"bagwise: {', '.join(MODELS)}"
        )


# --- Models of files are whole, and their parts fit together --------------------------------------


def _with_added(fitted: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """What a file holds of a fitted model, and what was added to models since."""
    return {name: value for name, value in _ADDED.items() if name in names} | dict(fitted)


def _check_loaded(model: Any, fitted: Collection[str]) -> None:
    """Raise ValueError where a model, of which a file gave the names `fitted`, is not usable.

    The parts of a posterior check themselves; this is about what stands beside it.
    """
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
    for name in _PARTS.keys() & set(fitted):
        part = getattr(model, name)
        if not (part is None or isinstance(part, _PARTS[name])):
            raise ValueError(f"{name} must be a {_PARTS[name].__name__} or None, got {part!r:.80}")
    if "candidates_" in fitted:
        tried = model.candidates_
        if not (isinstance(tried, tuple) and all(isinstance(c, JudgedKernel) for c in tried)):
            raise ValueError(f"candidates_ must be a tuple of candidates, got {tried!r:.80}")
    pooled = getattr(getattr(model, "calibration_", None), "pooled", None)
    if pooled is not None:
        n = sum(len(q.m) for q in model.posterior_.members) if pooled.of_kernel else D
        if len(pooled.coef) != n:
            raise ValueError(f"its features are {n}, its calibration is of {len(pooled.coef)}")
    seen = getattr(model, "seen_instances_", None)
    if seen is not None and len(seen.centre) != D:
        raise ValueError(f"n_features_in_ is {D}, its seen instances have {len(seen.centre)}")
    check_integer("n_iter_", model.n_iter_, at_least=0)
    check_choice("converged_", model.converged_, (True, False))
    for name in set(fitted) & {"elbo_", "log_evidence_", "coupling_"}:
        if not (name == "coupling_" and isinstance(model.coupling_, GroupCouplings)):
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
