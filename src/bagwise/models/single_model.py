"""Pages and figures show one two-class model; wrappers of it are told what to pass instead."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline

from bagwise.bags.messages import show
from bagwise.models.multitask import MultiTaskMIRVM
from bagwise.models.one_vs_rest import OneVsRestMIL


def check_one_model(model: Any, *, instances: bool = True) -> None:
    """Refuse what is not one two-class model; with `instances=False` a Pipeline will do.

    >>> from sklearn.pipeline import make_pipeline
    >>> from bagwise import MIRVM
    >>> check_one_model(make_pipeline(MIRVM()))
    Traceback (most recent call last):
    ...
    TypeError: a Pipeline predicts bags only; pass pipe[-1] as the model and ...
    """
    if isinstance(model, Pipeline) and instances:
        raise TypeError(
            "a Pipeline predicts bags only; pass pipe[-1] as the model and "
            "pipe[:-1].transform(bags) as the bags"
        )
    if isinstance(model, OneVsRestMIL):
        raise TypeError(
            "OneVsRestMIL has one model per class; choose one, e.g. k = 0: pass "
            "model.estimators_[k] as the model and "
            "bags.with_labels((bags.y == model.classes_[k]).astype(int)) as the bags"
        )
    if isinstance(model, MultiTaskMIRVM):
        names = model.posterior_.tasks if hasattr(model, "posterior_") else ("name",)
        raise TypeError(
            "MultiTaskMIRVM has one model per task; choose one: pass "
            f"model.for_task({show(names[0])}) as the model and the bags of that task"
        )
