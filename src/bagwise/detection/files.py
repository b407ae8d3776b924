"""Detectors in the files of models: plain values and arrays, of which nothing is run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from bagwise.core.files.codec import describe
from bagwise.core.files.modelfile import (
    ModelFileError,
    read_state,
    register,
    register_kernels,
    write_state,
)
from bagwise.detection.encoders import GradientHistograms, Pixels
from bagwise.detection.proposals import SelectiveSearch, SlidingWindows
from bagwise.models.persistence import rows_from_state, rows_state
from bagwise.models.states import (
    classes_from,
    estimator_from_state,
    estimator_state,
    fitted_models,
    fitted_states,
    plain_classes,
)

if TYPE_CHECKING:
    from bagwise.detection.detector import WeaklySupervisedDetector

OWN = tuple(map(register, (SlidingWindows, SelectiveSearch, GradientHistograms, Pixels)))
YOURS = "yours"  # stands for a callable whose code is not in the file


def save_detector(
    detector: WeaklySupervisedDetector, path: str | os.PathLike[str], *, overwrite: bool = True
) -> None:
    """Write a fitted detector to one file, completely or not at all."""
    parameters = detector.get_params(deep=False)
    for part in ("proposals", "encoder"):
        if parameters[part] is not None and not isinstance(parameters[part], OWN):
            parameters[part] = YOURS
    names = parameters["class_names"]
    state = {
        **parameters,
        "estimator": estimator_state(parameters["estimator"]),
        "class_names": None if names is None else list(names),
        "classes": plain_classes(detector.classes_),
        "models": fitted_states(detector.estimators_),
        "pca": None if detector.pca_ is None else rows_state(detector.pca_),
        "n_features": detector.n_features_in_,
    }
    register_kernels()
    write_state(path, state, kind=type(detector).__name__, overwrite=overwrite)


def read_detector(
    kind: type[WeaklySupervisedDetector], path: str | os.PathLike[str], given: dict[str, Any]
) -> WeaklySupervisedDetector:
    """The detector of a file, whose proposals and encoder are given where they were the user's."""
    register_kernels()
    held, state = read_state(path)
    try:
        if held != kind.__name__:
            raise ModelFileError(f"it holds a {held!r:.80}, not a detector; use bagwise.load")
        return _restored(kind, state, given)
    except Exception as error:  # values of any type reach every check
        raise ModelFileError(f"cannot read {os.fspath(path)}: {describe(error)}") from None


def _restored(
    kind: type[WeaklySupervisedDetector], state: Any, given: dict[str, Any]
) -> WeaklySupervisedDetector:
    parameters = {name: state[name] for name in kind._get_param_names()}
    parameters["estimator"] = estimator_from_state(state["estimator"])
    for part, value in given.items():
        parameters[part] = _callable(part, state[part], value)
    detector = kind(**parameters)
    detector._check_parameters()
    detector.classes_ = classes_from(state["classes"])
    detector.estimators_ = fitted_models(state["models"], len(detector.classes_))
    detector.pca_ = None if state["pca"] is None else rows_from_state(state["pca"])
    detector.n_features_in_ = int(state["n_features"])
    return detector


def _callable(part: str, stored: Any, given: Any) -> Any:
    """The proposals or encoder: that of the file, or the one given where it was the user's."""
    if stored == YOURS:
        if given is None:
            raise ModelFileError(
                f"its {part} was code of your own, which is not in the file; pass it as {part}="
            )
        return given
    if given is not None:
        raise ModelFileError(f"it has its own {part}, {stored!r:.80}; leave {part}= out")
    if stored is not None and not isinstance(stored, OWN):
        raise ModelFileError(f"its {part} cannot be {stored!r:.80}")
    return stored
