"""Detectors to the files of models: plain values and arrays; no pickle."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bagwise.core.files.modelfile import register, register_kernels, write_state
from bagwise.detection.encoders import GradientHistograms, Pixels
from bagwise.detection.proposals import SelectiveSearch, SlidingWindows
from bagwise.models.persistence import rows_state
from bagwise.models.states import (
    estimator_state,
    fitted_states,
    plain_classes,
)

if TYPE_CHECKING:
    from bagwise.detection.detector import WeaklySupervisedDetector

KIND = "WeaklySupervisedDetector"
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
    write_state(path, state, kind=KIND, overwrite=overwrite)
