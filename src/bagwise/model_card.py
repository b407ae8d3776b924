"""What a fitted model is, in plain values and words: for `bagwise inspect` and reports."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from bagwise.estimators import IsingVGPMIL, ProbitVGPMIL
from bagwise.rvm_estimators import LinearMIL
from bagwise.workflow import class_names

MAX_WEIGHTS = 20
# Fits of these kinds take Newton or evidence steps; all others sweep over the data.
_STEPPING = (IsingVGPMIL, ProbitVGPMIL, LinearMIL)
_HIDDEN = ("trained_bags",)  # of use to the program only


def selected(about: dict[str, Any]) -> str | None:
    """How many features a linear model kept.

    >>> selected({"n_selected": 2, "n_features": 10})
    '2 of 10'
    """
    kept = about["n_selected"]
    return None if kept is None else f"{kept} of {about['n_features']}"


def describe_model(model: Any) -> dict[str, Any]:
    """What a model is, as plain values: for `bagwise inspect` and the model card."""
    names = getattr(model, "feature_names_in_", None)
    classes = class_names(model)
    defaults = type(model)().get_params(deep=False)
    given = {
        k: repr(v) for k, v in model.get_params(deep=False).items() if repr(v) != repr(defaults[k])
    }
    kernel = getattr(model, "kernel_", None) or getattr(model, "kernel", None)
    fitted = getattr(model, "metadata_", {})
    return {
        "model": type(model).__name__,
        "classes": classes,
        "positive": classes[1],
        "n_features": int(model.n_features_in_),
        "features": None if names is None else [str(n) for n in names],
        "arguments": given,
        "bag_score": getattr(model, "bag_score", None),
        "inference": getattr(model, "inference", None),
        "kernel": None if kernel is None else rounded(repr(kernel)),
        "mean": _number(model, "mean_"),
        "n_inducing": len(model.inducing_points_) if hasattr(model, "inducing_points_") else None,
        **describe_weights(model),
        **describe_fit(model),
        "fitted": {k: v for k, v in fitted.items() if k not in _HIDDEN},
    }


def describe_fit(model: Any) -> dict[str, Any]:
    """How a fit went; a model has an ELBO or a log evidence, and null for the other."""
    return {
        "elbo": _number(model, "elbo_"),
        "log_evidence": _number(model, "log_evidence_"),
        "n_iter": int(model.n_iter_) if hasattr(model, "n_iter_") else None,
        "iterations": steps_or_sweeps(model),
        "converged": bool(model.converged_) if hasattr(model, "converged_") else None,
    }


def describe_weights(model: Any) -> dict[str, Any]:
    """Features that a linear model uses, those with the largest |weight| / std first.

    Null for models without weights of features: Gaussian processes, and linear ones on a kernel.
    """
    if getattr(model, "kernel", None) is not None or not hasattr(model, "selected_features_"):
        return {"n_selected": None, "weights": None}
    tasks = [t.item() if isinstance(t, np.generic) else t for t in getattr(model, "tasks_", ())]
    if tasks:
        found = [{"task": t, **w} for t in tasks for w in _weights(model.for_task(t))]
    else:
        found = _weights(model)
    return {"n_selected": len(model.selected_features_), "weights": found}


def _weights(model: Any) -> list[dict[str, Any]]:
    used = np.asarray(model.selected_features_)
    weight, std = model.coef_[used], model.coef_std_[used]
    names = getattr(model, "feature_names_in_", None)
    return [
        {
            "feature": f"x{used[i]}" if names is None else str(names[used[i]]),
            "weight": float(weight[i]),
            "std": float(std[i]),
        }
        for i in np.argsort(-np.abs(weight / std), kind="stable")
    ]


def weight_lines(about: dict[str, Any]) -> list[str]:
    """The first weights as text, and how many more there are.

    >>> weight_lines({"weights": [{"feature": "area", "weight": 1.5, "std": 0.25}]})
    ['area 1.5 ± 0.25']
    """
    weights = about["weights"] or []
    lines = [
        (f"task {w['task']}: " if "task" in w else "")
        + f"{w['feature']} {w['weight']:.3g} ± {w['std']:.2g}"
        for w in weights[:MAX_WEIGHTS]
    ]
    more = len(weights) - len(lines)
    return [*lines, f"... and {more} more"] if more else lines


def steps_or_sweeps(model: Any) -> str:
    """What `n_iter_` counts."""
    by_steps = isinstance(model, _STEPPING) or getattr(model, "inference", "") == "laplace"
    return "steps" if by_steps and getattr(model, "inference", "") != "gibbs" else "sweeps"


def counted(n: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "sweeps"), counted(12, "steps")
    ('1 sweep', '12 steps')
    """
    return f"{n} {noun[:-1] if n == 1 else noun}"


def rounded(text: str) -> str:
    """The same text with three significant digits in its decimals.

    >>> rounded("RBF(variance=1.2345678, lengthscale=(3.0, 1e-05))")
    'RBF(variance=1.23, lengthscale=(3, 1e-05))'
    """
    return re.sub(r"\d+\.\d+(e[-+]?\d+)?", lambda found: f"{float(found[0]):.3g}", text)


def _number(model: Any, name: str) -> float | None:
    return float(getattr(model, name)) if hasattr(model, name) else None
