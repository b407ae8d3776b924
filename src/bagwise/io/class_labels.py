"""Which of two labels is positive, and how a model's classes are called in the user's table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.labels import is_obvious
from bagwise.bags.messages import Note, show
from bagwise.io.streams import TableError

Array = NDArray[Any]


def choose_classes(y: Array, positive: str | None) -> tuple[list[Any], Note | None]:
    """The negative and the positive label, and a note where the positive one was not named.

    >>> choose_classes(np.array([0, 1, 1]), None)
    ([0, 1], 'positive class: 1 (the larger label; choose with positive=)')
    >>> choose_classes(np.array(["healthy", "cancer"]), "cancer")
    (['healthy', 'cancer'], None)
    """
    found = np.unique(y).tolist()
    if len(found) == 1:
        raise TableError(
            f"bags of both classes are needed, but all {len(y)} bags have the label "
            f"{show(found[0])}; add bags of the other class, or name another column",
            argument="label",
        )
    if len(found) > 2:
        raise TableError(
            f"bag labels must be of two classes; got {len(found)}: {found[:5]}; for more classes "
            "use bagwise.OneVsRestMIL in Python"
        )
    if positive is not None:
        match = [v for v in found if is_called(v, positive)]
        if not match:
            raise TableError(f"{positive!r} is none of the labels {found}", argument="positive")
        return [next(v for v in found if v != match[0]), match[0]], None
    if isinstance(found[1], str):
        if not is_obvious(found):
            raise TableError(
                f"the labels are text, {found[0]!r} and {found[1]!r}; say which one a bag has "
                f"when at least one instance is positive, e.g. {found[0]!r}",
                argument="positive",
            )
        return found, Note(f"positive class: {found[1]!r}", "plain from the labels", "positive")
    return found, Note(f"positive class: {show(found[1])}", "the larger label", "positive")


def is_called(label: Any, name: str) -> bool:
    """Whether a label is what a name says; TRUE is True.

    >>> is_called(True, "TRUE"), is_called("cancer", "Cancer")
    (True, False)
    """
    if isinstance(label, bool):
        return str(label).lower() == name.lower()
    return str(label) == name


def class_names(model: Any) -> list[Any]:
    """The negative and the positive class as the user's table calls them."""
    named = getattr(model, "metadata_", {}).get("classes")
    return list(named) if named else np.asarray(model.classes_).tolist()


def in_model_labels(model: Any, y: Array, *, of_table: bool = False) -> Array:
    """The labels of bags as the classes the model was fitted with.

    Bags made in Python may carry those classes themselves, those `of_table` cannot.
    """
    if getattr(model, "labels_are_shares", False):
        raise TableError(
            "the labels of this model are shares of positive instances, not classes, so that bags "
            "have no scores of classes; use predict_share(bags, return_std=True)"
        )
    names = class_names(model)
    given, own = set(y.tolist()), set(model.classes_.tolist())
    if not of_table and given <= own and not own & set(names):
        return y
    if not given <= set(names):
        raise TableError(
            f"labels must be the model's {show(names[0])} and {show(names[1])}; these bags have "
            f"{', '.join(map(show, sorted(given, key=str)[:5]))}; translate them, or name another "
            "column of labels",
            argument="label",
        )
    return np.asarray(model.classes_)[(y == names[1]).astype(np.int64)]
