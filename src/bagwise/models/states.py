"""Models as plain values and back: the parts of which all model files are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.files.codec import describe
from bagwise.core.files.modelfile import ModelFileError
from bagwise.core.parameters import check_choice
from bagwise.models._base import BagClassifierMIL
from bagwise.models.loaded import check_loaded, with_added
from bagwise.models.metadata import check_metadata
from bagwise.models.registry import MODELS

Array = NDArray[Any]


def model_from_state(kind: str, state: Any) -> BagClassifierMIL:
    """The fitted model whose `to_state` this is; everything in it is checked."""
    try:
        model = _unfitted(kind, state["parameters"])
        fitted = with_added(state["fitted"], model._fitted_names())
        for name, value in fitted.items():
            setattr(model, check_choice("fitted", name, model._fitted_names()), value)
        set_feature_names(model, state["feature_names"])
        model.metadata_ = check_metadata(state.get("metadata") or {})
        check_loaded(model, fitted)
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
