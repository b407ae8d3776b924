"""What a fitted model is, in plain values and words: for `bagwise inspect` and reports."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from bagwise.core.calibration.judged import choice_line
from bagwise.io.class_labels import class_names
from bagwise.kernels import Kernel

MAX_WEIGHTS = 20
HIDDEN = ("trained_bags", "trained_groups")  # of use to the program only


def selected(about: dict[str, Any]) -> str | None:
    """How many features a linear model kept, and how many of these it is sure of.

    >>> kept = [{"feature": "area", "supported": True}, {"feature": "shade", "supported": False}]
    >>> selected({"selected": kept, "n_features": 10})
    '2 of 10, 1 surely not 0'
    """
    used = about["selected"]
    if used is None:
        return None
    names = {f["feature"] for f in used}  # a feature is there once for each task
    sure = {f["feature"] for f in used if f["supported"]}
    return f"{len(names)} of {about['n_features']}, {len(sure)} surely not 0"


def describe_model(model: Any) -> dict[str, Any]:
    """What a model is, as plain values: for `bagwise inspect` and the model card."""
    names = getattr(model, "feature_names_in_", None)
    classes = class_names(model)
    defaults = type(model)().get_params(deep=False)
    given = {
        k: _argument(v)
        for k, v in model.get_params(deep=False).items()
        if _argument(v) != _argument(defaults[k])
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
        "bag_score": getattr(model, "bag_score_", getattr(model, "bag_score", None)),
        "instance_score": getattr(model, "instance_score_", None),
        "why_not_calibrated": why_not_calibrated(model),
        "inference": getattr(model, "inference", None),
        "kernel": None if not isinstance(kernel, Kernel) else rounded(repr(kernel)),
        "kernel_choice": choice_line(getattr(model, "candidates_", ())),
        "mean": _number(model, "mean_"),
        "n_inducing": len(model.inducing_points_) if hasattr(model, "inducing_points_") else None,
        "threshold": describe_threshold(model),
        **describe_fit(model),
        "selected": selected_features(model),
        "fitted": {k: v for k, v in fitted.items() if k not in HIDDEN},
    }


def _argument(value: Any) -> str:
    """An argument as text; of an array its shape.

    >>> _argument(np.zeros((200, 3))), _argument("kmeans")
    ('array of shape (200, 3)', "'kmeans'")
    """
    return f"array of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)


def describe_threshold(model: Any) -> dict[str, Any] | None:
    """The threshold that was chosen, with what left-out bags say of it; None where none was."""
    point = getattr(model, "operating_point_", None)
    if point is None:
        return None
    plain = ("threshold", "interval", "asked", "sensitivity", "sensitivity_interval")
    more = ("specificity", "specificity_interval", "n_positive", "n_negative")
    return {name: getattr(point, name) for name in (*plain, *more)} | {"words": point.words()}


def card_lines(about: dict[str, Any], between: str) -> list[tuple[str, Any]]:
    """Names and values that every card shows of `describe_model`; some values are empty.

    Several weights stand in one value, with `between` between them.
    """
    converged = "converged" if about["converged"] else "NOT converged: raise max_iter"
    return [
        ("bag score", _bag_score_line(about)),
        ("instance score", about["instance_score"]),
        ("called positive", about["threshold"] and f"from {about['threshold']['words']}"),
        ("inference", about["inference"]),
        ("kernel", about["kernel"]),
        ("kernel chosen", about["kernel_choice"]),
        ("prior mean", about["mean"] is not None and f"{about['mean']:.3g}"),
        ("inducing points", about["n_inducing"]),
        ("ELBO", about["elbo"] is not None and f"{about['elbo']:.4f}"),
        ("log evidence", about["log_evidence"] is not None and f"{about['log_evidence']:.4f}"),
        ("fit", about["n_iter"] and f"{iterations(about['n_iter'])}, {converged}"),
        ("selected features", selected(about)),
        ("scaled weights ± std", between.join(weight_lines(about))),
        ("arguments", ", ".join(f"{k}={v}" for k, v in about["arguments"].items())),
    ]


def filled(lines: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Lines of a card that have a value, as text."""
    return [(name, str(value)) for name, value in lines if value not in (None, "", False, {}, [])]


def why_not_calibrated(model: Any) -> str | None:
    """Why bag_score="auto" did not calibrate, or None."""
    return model.why_not_calibrated_ if getattr(model, "bag_score", None) == "auto" else None


def _bag_score_line(about: dict[str, Any]) -> str:
    """The bag score of `describe_model`, with the reason where it might surprise."""
    reason = about["why_not_calibrated"]
    return about["bag_score"] + ("" if reason is None else f" (not calibrated: {reason})")


def describe_fit(model: Any) -> dict[str, Any]:
    """How a fit went; a model has an ELBO or a log evidence, and null for the other."""
    return {
        "elbo": _number(model, "elbo_"),
        "log_evidence": _number(model, "log_evidence_"),
        "n_iter": int(model.n_iter_) if hasattr(model, "n_iter_") else None,
        "converged": bool(model.converged_) if hasattr(model, "converged_") else None,
    }


def selected_features(model: Any) -> list[dict[str, Any]] | None:
    """Features that a linear model uses, largest weight first, for each task where it has several.

    Weights are those of the scaled features, so that they can be compared. None for models without
    weights of features: Gaussian processes, and linear ones on a kernel.
    """
    if getattr(model, "kernel", None) is not None or not hasattr(model, "selected_features_"):
        return None
    if not hasattr(model, "for_task"):
        return _weights(model)
    tasks = [t.item() if isinstance(t, np.generic) else t for t in model.tasks_]
    return [{"task": t, **w} for t in tasks for w in _weights(model.for_task(t))]


def _weights(model: Any) -> list[dict[str, Any]]:
    names = getattr(model, "feature_names_in_", None)
    weight, std, supported = model.scaled_coef_, model.scaled_coef_std_, model.get_support()
    used = [
        {
            "feature": f"x{j}" if names is None else str(names[j]),
            "weight": float(weight[j]),
            "std": float(std[j]),
            "supported": bool(supported[j]),
        }
        for j in model.selected_features_
    ]
    return sorted(used, key=lambda f: -abs(f["weight"]))


def weight_lines(about: dict[str, Any]) -> list[str]:
    """The first weights as text, and how many more there are.

    >>> weight_lines({"selected": [{"feature": "area", "weight": 1.5, "std": 0.25}]})
    ['area +1.50 ± 0.25']
    """
    weights = about["selected"] or []
    lines = [
        (f"task {w['task']}: " if "task" in w else "")
        + f"{w['feature']} {w['weight']:+.2f} ± {w['std']:.2f}"
        for w in weights[:MAX_WEIGHTS]
    ]
    more = len(weights) - len(lines)
    return [*lines, f"... and {more} more"] if more else lines


def iterations(n: int) -> str:
    """A number of iterations in words.

    >>> iterations(1), iterations(12)
    ('1 iteration', '12 iterations')
    """
    return f"{n} iteration{'' if n == 1 else 's'}"


def rounded(text: str) -> str:
    """The same text with three significant digits in its decimals.

    >>> rounded("RBF(variance=1.2345678, lengthscale=(3.0, 1e-05))")
    'RBF(variance=1.23, lengthscale=(3, 1e-05))'
    """
    return re.sub(r"\d+\.\d+(e[-+]?\d+)?", lambda found: f"{float(found[0]):.3g}", text)


def _number(model: Any, name: str) -> float | None:
    return float(getattr(model, name)) if hasattr(model, name) else None
