"""Fitted models in one file each: `save` and `load`; nothing in a file is ever executed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from bagwise.core.files.codec import describe
from bagwise.core.files.modelfile import ModelFileError, read_state, register_kernels, write_state
from bagwise.models._base import BagClassifierMIL
from bagwise.models.metadata import check_metadata
from bagwise.models.one_vs_rest import OneVsRestMIL
from bagwise.models.registry import MODELS
from bagwise.models.states import (
    classes_from,
    estimator_from_state,
    fitted_models,
    fitted_states,
    model_from_state,
    set_feature_names,
)
from bagwise.models.transformer import InstanceTransformer

# scikit-learn's transformers that files can hold, with what makes them fitted.
_ROW_TRANSFORMERS: dict[type, tuple[str, ...]] = {
    StandardScaler: ("mean_", "var_", "scale_", "n_samples_seen_", "n_features_in_"),
    MinMaxScaler: (
        *("min_", "scale_", "data_min_", "data_max_", "data_range_"),
        *("n_samples_seen_", "n_features_in_"),
    ),
    PCA: (
        *("components_", "mean_", "explained_variance_", "explained_variance_ratio_"),
        *("singular_values_", "noise_variance_", "n_components_", "n_samples_", "n_features_in_"),
    ),
    SimpleImputer: ("statistics_", "n_features_in_"),
}
_ROW_CLASSES = {cls.__name__: cls for cls in _ROW_TRANSFORMERS}


def save(model: Any, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Write a fitted model to one file that `load` reads without running code.

    `model` is one of bagwise, or a Pipeline of them: steps of `InstanceTransformer` with
    SimpleImputer, StandardScaler, MinMaxScaler or PCA, then a model. With `overwrite=False` an
    existing file is kept and FileExistsError raised.

    >>> import tempfile
    >>> from sklearn.pipeline import make_pipeline
    >>> from bagwise import MIRVM
    >>> bags = [np.array([row]) for row in ([0.0, 1], [9.0, 0], [1.0, 0], [8.0, 1])]
    >>> pipe = make_pipeline(InstanceTransformer(PCA(1)), MIRVM()).fit(bags, [0, 1, 0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(pipe, f"{folder}/pipe.bagwise")
    ...     same = load(f"{folder}/pipe.bagwise")
    >>> same.predict(bags).tolist()
    [0, 1, 0, 1]
    """
    if not isinstance(model, Pipeline):
        if not isinstance(model, BagClassifierMIL | OneVsRestMIL):
            fitted_states([model])  # raises and says what can be saved
        model.save(path, overwrite=overwrite)
        return
    register_kernels()
    write_state(path, _pipeline_state(model), kind="Pipeline", overwrite=overwrite)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that `save` wrote; nothing in the file is ever executed."""
    register_kernels()
    kind, state = read_state(path)
    try:
        return _restored(kind, state)
    except ModelFileError as error:
        raise ModelFileError(f"cannot read {os.fspath(path)}: {error}") from None


def load_two_class(path: str | os.PathLike[str]) -> BagClassifierMIL:
    """Read a model of two classes; other models are refused."""
    model = load(path)
    if isinstance(model, OneVsRestMIL):
        raise ModelFileError(
            f"{os.fspath(path)} holds a OneVsRestMIL of {len(model.classes_)} classes, and this "
            "command is for two; `bagwise predict`, `evaluate` and `inspect` take it, and for the "
            "rest fit one class against the others with a column of 0 and 1"
        )
    return _two_class(model, path)


def load_classes(path: str | os.PathLike[str]) -> Any:
    """Read a model of two classes, or a `OneVsRestMIL` with one class per bag."""
    model = load(path)
    if isinstance(model, OneVsRestMIL) and not model.multilabel_:
        return model
    return _two_class(model, path)


def _two_class(model: Any, path: str | os.PathLike[str]) -> BagClassifierMIL:
    if not isinstance(model, BagClassifierMIL):
        raise ModelFileError(
            f"{os.fspath(path)} holds a {type(model).__name__}, but commands take one model of two "
            "classes; use it from Python with bagwise.load"
        )
    return model


def _restored(kind: str, state: Any) -> Any:
    if kind == "OneVsRestMIL":
        return _one_vs_rest(state)
    if kind == "Pipeline":
        return _pipeline_from_state(state)
    if kind == "WeaklySupervisedDetector":
        raise ModelFileError("it holds a detector; use bagwise.detection.load_detector")
    if kind not in MODELS:
        raise ModelFileError(
            f"it holds a {kind!r:.80}, which is not a model of this bagwise; if it is your own, "
            "import its module first"
        )
    return model_from_state(kind, state)


def _one_vs_rest(state: Any) -> OneVsRestMIL:
    """The fitted models whose `OneVsRestMIL.to_state` this is."""
    try:
        model = OneVsRestMIL(
            estimator_from_state(state["estimator"]),
            class_names=state["class_names"],
            n_jobs=state["n_jobs"],
        )
        model.classes_ = classes_from(state["classes"])
        model.multilabel_ = bool(state["multilabel"])
        model.estimators_ = fitted_models(state["models"], len(model.classes_))
        model.n_features_in_ = int(state["n_features"])
        set_feature_names(model, state["feature_names"])
        model.metadata_ = check_metadata(state.get("metadata", {}))
    except Exception as error:  # values of any type reach every check
        raise ModelFileError(f"not a complete OneVsRestMIL: {describe(error)}") from None
    return model


# --- Pipelines -----------------------------------------------------------------------------------


def _pipeline_state(pipe: Pipeline) -> dict[str, Any]:
    *before, (last, model) = pipe.steps
    check_is_fitted(pipe)
    if isinstance(model, OneVsRestMIL):
        fitted = ("OneVsRestMIL", model.to_state())
    else:
        (fitted,) = fitted_states([model])
    return {
        "steps": [(name, _step_state(name, step)) for name, step in before],
        "model": (last, *fitted),
    }


def _step_state(name: str, step: Any) -> tuple[str, Any, Any]:
    if not isinstance(step, InstanceTransformer):
        raise ModelFileError(
            f"step {name!r} is a {type(step).__name__}; files hold InstanceTransformer steps and a "
            "model at the end: save pipe[-1] alone, and the other steps by their own means"
        )
    return rows_state(step.transformer_)


def _pipeline_from_state(state: Any) -> Pipeline:
    try:
        steps = [(str(name), _instance_transformer(step)) for name, step in state["steps"]]
        last, kind, fitted = state["model"]
        if kind == "Pipeline":
            raise ValueError("a pipeline inside a pipeline")
        return Pipeline([*steps, (str(last), _restored(kind, fitted))])
    except Exception as error:  # values of any type reach every check
        raise ModelFileError(f"not a complete Pipeline: {describe(error)}") from None


def _instance_transformer(state: Any) -> InstanceTransformer:
    rows = rows_from_state(state)
    step = InstanceTransformer(type(rows)(**rows.get_params()))
    step.transformer_, step.n_features_in_ = rows, rows.n_features_in_
    return step


def rows_state(transformer: Any) -> tuple[str, Any, Any]:
    """Name, arguments and fitted values of a transformer of rows."""
    cls = type(transformer)
    if cls not in _ROW_TRANSFORMERS:
        raise ModelFileError(
            f"a {cls.__name__} cannot be written to a model file; files hold "
            f"{', '.join(_ROW_CLASSES)}"
        )
    if getattr(transformer, "add_indicator", False):
        raise ModelFileError("a SimpleImputer with add_indicator=True cannot be written to a file")
    fitted = {name: getattr(transformer, name) for name in _ROW_TRANSFORMERS[cls]}
    if cls is SimpleImputer:  # of a constant they are objects
        fitted["statistics_"] = np.asarray(fitted["statistics_"], dtype=np.float64)
    parameters = transformer.get_params()
    if "random_state" in parameters:
        parameters["random_state"] = None  # transforming draws nothing
    return cls.__name__, parameters, fitted


def rows_from_state(state: Any) -> Any:
    """The fitted transformer of `rows_state`; it must transform a row."""
    name, parameters, fitted = state
    if name not in _ROW_CLASSES:
        raise ModelFileError(f"{name!r:.80} is not a transformer that files hold")
    transformer = _ROW_CLASSES[name](**parameters)
    if set(fitted) != set(_ROW_TRANSFORMERS[type(transformer)]):
        raise ModelFileError(f"its {name} lacks or has too much of {sorted(fitted)!s:.80}")
    if isinstance(transformer, SimpleImputer):  # what it keeps to itself differs with versions
        transformer.fit(np.asarray(fitted["statistics_"], dtype=np.float64)[None])
    for attribute, value in fitted.items():
        setattr(transformer, attribute, value)
    row = transformer.transform(np.zeros((1, int(fitted["n_features_in_"]))))
    if not np.all(np.isfinite(row)):
        raise ModelFileError(f"its {name} does not give finite numbers")
    return transformer
