"""Detectors from the files of models; nothing in a file is run."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from bagwise.core.files.modelfile import ModelFileError, read_state, register_kernels
from bagwise.detection.detector import WeaklySupervisedDetector
from bagwise.detection.files import KIND, OWN, YOURS
from bagwise.models.persistence import rows_from_state
from bagwise.models.states import classes_from, estimator_from_state, fitted_models


def load_detector(
    path: str | os.PathLike[str],
    *,
    proposals: Callable[[Any], Any] | None = None,
    encoder: Callable[[Any, Any], Any] | None = None,
) -> WeaklySupervisedDetector:
    """Read a detector that `WeaklySupervisedDetector.save` wrote; nothing in the file is run.

    `proposals` and `encoder` are needed where the detector was trained with callables of yours,
    whose code is not in the file: pass the same ones.
    """
    register_kernels()
    kind, state = read_state(path)
    try:
        if kind != KIND:
            raise ModelFileError(f"it holds a {kind!r:.80}, not a detector; use bagwise.load")
        return _restored(state, {"proposals": proposals, "encoder": encoder})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"cannot read {os.fspath(path)}: {error}") from None


def _restored(state: Any, given: dict[str, Any]) -> WeaklySupervisedDetector:
    parameters = {name: state[name] for name in WeaklySupervisedDetector._get_param_names()}
    parameters["estimator"] = estimator_from_state(state["estimator"])
    for part, value in given.items():
        parameters[part] = _callable(part, state[part], value)
    detector = WeaklySupervisedDetector(**parameters)
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
