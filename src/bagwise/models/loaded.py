"""Models that come from files are whole, and their parts fit together."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from bagwise.core.calibration.bags import BagCalibration
from bagwise.core.parameters import check_choice, check_integer, check_number

_ROLES = ("bag", "label", "instance_label", "instance_id", "group")


def check_metadata(found: Any) -> dict[str, Any]:
    """What a file says of where a model comes from, each known entry of its own kind.

    Entries that bagwise does not write are the user's own, and stay as they are.
    """
    if not isinstance(found, dict):
        raise ValueError(f"metadata must be a dictionary, got {found!r:.80}")
    for name, (fits, kind) in _METADATA.items():
        if name in found and not fits(found[name]):
            raise ValueError(f"metadata: {name} must be {kind}, got {found[name]!r:.80}")
    return dict(found)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | np.generic)


def _are_scalars(values: Any) -> bool:
    array = isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind != "V"
    return array or (isinstance(values, list | tuple) and all(map(_is_scalar, values)))


def _are_classes(values: Any) -> bool:
    two = isinstance(values, list | tuple) and len(values) == 2 and all(map(_is_scalar, values))
    return bool(two and values[0] != values[1] and str(values[0]) != str(values[1]))


def _are_columns(found: Any) -> bool:
    if not (isinstance(found, dict) and isinstance(found.get("coords", []), list | tuple)):
        return False
    roles = [found.get(role) for role in _ROLES]
    return all(isinstance(v, str | None) for v in roles) and all(
        isinstance(v, str) for v in found.get("coords", [])
    )


def _is_origin(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("name", ""), str):
        return False
    return all(isinstance(v, int) for k, v in found.items() if k != "name")


def _are_hashes(found: Any) -> bool:
    return found is None or (
        isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype == np.uint64
    )


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


_METADATA: dict[str, tuple[Callable[[Any], bool], str]] = {
    "columns": (_are_columns, "names of columns"),
    "classes": (_are_classes, "two different labels"),
    "held_out": (_are_scalars, "a list of bag ids"),
    "seed": (lambda v: v is None or isinstance(v, int), "a whole number"),
    "command": (_is_text, "a text"),
    "bagwise": (_is_text, "a text"),
    "data": (_is_origin, "a name and counts"),
    "trained_bags": (_are_hashes, "hashes of ids"),
    "trained_groups": (_are_hashes, "hashes of ids"),
}


def check_loaded(model: Any, fitted: Collection[str]) -> None:
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
    if "calibration_" in fitted:
        calibration, reason = model.calibration_, model.why_not_calibrated_
        if not (calibration is None or isinstance(calibration, BagCalibration)):
            raise ValueError(f"calibration_ must be a calibration or None, got {calibration!r:.80}")
        if not (reason is None or isinstance(reason, str)):
            raise ValueError(f"why_not_calibrated_ must be a text or None, got {reason!r:.80}")
    check_integer("n_iter_", model.n_iter_, at_least=0)
    check_choice("converged_", model.converged_, (True, False))
    for name in set(fitted) & {"elbo_", "log_evidence_", "coupling_"}:
        check_number(name, getattr(model, name))
    if "H_" in fitted:
        check_number("H_", model.H_, above=1)
