"""From tables to fitted models and back: what the command line does, without its printing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import metadata
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise import metrics
from bagwise.bags import Bags
from bagwise.bags.inputs import frame_per_bag
from bagwise.bags.label_like import COPY, Signs, copies, describe, look
from bagwise.bags.subsets import check_test_size
from bagwise.cli.missing import fill_to_fit, for_fit
from bagwise.cli.sources import naming, remembered
from bagwise.core.inference.monitor import Callback
from bagwise.distributed import DistributedData, training_data
from bagwise.distributed.passes import Part
from bagwise.distributed.rows import rows_at
from bagwise.io.class_labels import choose_classes, class_names, in_model_labels
from bagwise.io.streams import TableError
from bagwise.io.tables import Table
from bagwise.metrics.models import Given
from bagwise.models import ALIASES, MODELS
from bagwise.models.metadata import id_hashes
from bagwise.models.registry import class_name

if TYPE_CHECKING:
    pass

Array = NDArray[Any]

OBJECTS = ("kernel", "psi", "init")  # arguments that no text can stand for


# --- Fitting -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """A fitted model and, if bags were held out, its scores on them."""

    model: Any
    held_out: dict[str, Any] | None
    notes: tuple[str, ...]


def model_class(name: str) -> Any:
    """A model by its short name (probit) or its class name (ProbitVGPMIL), in any case."""
    kind = class_name(name)
    if kind == "MultiTaskMIRVM":
        raise ValueError(
            "MultiTaskMIRVM needs the task of every bag, which a table fitted here does not give; "
            "use it from Python: MultiTaskMIRVM().fit(bags, tasks=...)"
        )
    if kind not in MODELS:
        raise ValueError(f"there is no model {name!r}; choose one of {', '.join(ALIASES)}")
    return MODELS[kind]


def has_classes(table: Table) -> bool:
    """Whether the bags of a table are of more than two classes."""
    return table.bags.y is not None and len(np.unique(table.bags.y)) > 2


def fit_table(
    table: Table,
    *,
    model: str = "probit",
    positive: str | None = None,
    valid: float | None = None,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    command: str | None = None,
    callbacks: Sequence[Callback] = (),
    threshold: dict[str, float] | None = None,
    missing: str | None = None,
) -> Fitted:
    """Fit a model to a table; `valid` is the share of bags held out and scored.

    The model that is returned is the one that was scored: it has not seen the held-out bags,
    whose ids are in `metadata_["held_out"]`. `missing` is what is done with missing values.
    """
    with naming(table.places):
        table, gaps = for_fit(table, missing)
    assert table.bags.y is not None
    shares = getattr((settings or {}).get("rule"), "shares", False)
    if shares:
        refuse_beside_shares(valid=valid, positive=positive, threshold=threshold)
        classes, note, bags = [0, 1], None, table.bags
    else:
        classes, note = choose_classes(table.bags.y, positive)
        bags = table.bags.with_labels((table.bags.y == classes[1]).astype(np.int64))
    estimator = build_model(model, seed, _with_class_numbers(settings or {}, classes))
    if valid is not None:
        n_units = len(bags) if bags.groups is None else len(np.unique(bags.groups))
        check_test_size(valid, n_units, 2, "--valid")
    train, test = (bags, None) if valid is None else bags.split(valid, random_state=seed)
    with naming(table.places):
        train, test, kept, filling = fill_to_fit(train, test, missing)
        told = bag_values(table, train, table.columns.reliability)
        estimator.fit(
            train,
            sample_weight=bag_values(table, train, table.columns.weight),
            callbacks=callbacks,
            **({} if told is None else {"reliability": told}),
        )
        leaks = [] if shares else suspects(bags)
    estimator.metadata_ = {
        "columns": table.columns.to_dict(),
        "classes": classes,
        "held_out": [] if test is None else test.ids.tolist(),
        "seed": seed,
        "command": command,
        **origin(table.name, train),
        **kept,
    }
    notes = [
        *([] if note is None else [note]),
        *gaps,
        *filling,
        *leaks,
        *chosen(estimator, threshold),
    ]
    scores = None if test is None else scored(estimator, test, seed)
    return Fitted(estimator, scores, tuple(notes))


def chosen(model: Any, threshold: dict[str, float] | None) -> list[str]:
    """Choose the threshold that is asked for; where that cannot be, the fit is not lost."""
    if not threshold:
        return []
    try:
        model.choose_threshold(**threshold)
    except ValueError as error:
        return [f"warning: no threshold was chosen, the more probable class is called: {error}"]
    return []


def refuse_beside_shares(**options: Any) -> None:
    """Raise where an option is about classes of bags, but their labels are shares."""
    for name, value in options.items():
        if value:
            what = "a threshold" if name == "threshold" else f"--{name}"
            raise ValueError(f"{what} is about classes of bags, but --rule share has none; drop it")


def bag_values(table: Table, train: Bags, column: str | None) -> NDArray[Any] | None:
    """A number for each bag of the fit, where a column says so: its weight, its reliability."""
    columns = table.columns
    if column is None:
        return None
    per_bag = frame_per_bag(table.rows, column, table.rows[columns.bag].to_numpy())
    of_bag = dict(zip(table.bags.ids.tolist(), per_bag, strict=True))
    return np.array([of_bag[i] for i in train.ids.tolist()])


def _with_class_numbers(settings: dict[str, Any], classes: list[Any]) -> dict[str, Any]:
    """Settings whose class_weight is of 0 and 1, which a fit of a table has for classes."""
    weights = settings.get("class_weight")
    if not isinstance(weights, dict):
        return settings
    names = [str(c) for c in classes]
    if unknown := [name for name in weights if name not in names]:
        raise ValueError(
            f"class_weight has the class {unknown[0]!r}; the classes of the table are "
            f"{' and '.join(map(repr, names))}"
        )
    return settings | {"class_weight": {names.index(name): w for name, w in weights.items()}}


def build_model(model: str, seed: int, settings: dict[str, Any]) -> Any:
    """A model by name, with its arguments checked."""
    kind = model_class(model)
    known = kind._get_param_names()
    for name in settings:
        if name == "rule" and name not in known:
            raise ValueError(
                f"--rule is for the models probit and mi-logistic; {kind.__name__} knows one rule"
            )
        if name not in known:
            raise ValueError(f"{kind.__name__} has no argument {name!r}; it has {', '.join(known)}")
        plain = settings[name] is None or (name == "kernel" and settings[name] == "auto")
        if name in OBJECTS and not plain:
            raise ValueError(
                f"--set takes numbers, words and lists, but {name} is an object of Python; fit "
                f"there, {kind.__name__}({name}=...).fit(bags).save('m.bagwise'), and use the file"
            )
    return kind(**{"random_state": seed, **settings})


def origin(name: str, train: Bags) -> dict[str, Any]:
    """Where a model comes from, as its file keeps it."""
    assert train.y is not None
    return {
        "data": {
            "name": name,
            "bags": len(train),
            "positive_bags": int(np.sum(train.y)),
            "instances": train.n_instances,
            "features": train.n_features,
        },
        "trained_bags": id_hashes(train.ids),
        "trained_groups": None if train.groups is None else id_hashes(np.unique(train.groups)),
        "bagwise": metadata.version("bagwise"),
    }


def suspects(bags: Bags) -> list[str]:
    """Warnings about features that look like labels, see `bagwise.bags.label_like`.

    Labels of bags are 0 and 1.
    """
    T = np.asarray(bags.y) == 1
    names = bags.feature_names or [f"x{j}" for j in range(bags.n_features)]
    seen = _signs(bags, T)
    reasons = describe(seen, T, names)
    return [
        f"warning: the feature {name!r} looks like instance labels: {reason}; if it is, fit again "
        f"with --instance-label {name}"
        for name, reason in reasons.items()
    ] + [
        f"warning: the feature {name!r} {COPY}; if it is one, fit again and choose other columns "
        "with --features"
        for name in copies(seen, T, names)
        if name not in reasons
    ]


def _signs(bags: Bags, T: NDArray[np.bool_]) -> Signs:
    data = training_data(bags.X, bags.offsets, T)
    if not isinstance(data, DistributedData):
        return look(bags.X, bags.offsets, T)
    cluster = data.rows.cluster
    parts = zip(data.rows.futures, data.parts(), strict=True)
    found = [cluster.submit(_of_part, X, part) for X, part in parts]
    return reduce(add, cluster.gather(found))


def _of_part(X: Any, part: Part) -> Signs:
    return look(np.asarray(rows_at(X, part.place)), part.offsets, part.T)


# --- Predicting and scoring ----------------------------------------------------------------------


def labels_of(model: Any, table: Table, purpose: str) -> Array:
    """The bag labels of a table as classes of the model; an error where there are none."""
    if table.bags.y is None:
        known = remembered(model)["remembered"].label
        fitted_on = "" if known is None else f" and none called {known!r}, as the model's table had"
        raise TableError(
            f"{table.name} has no column that looks like bag labels{fitted_on}; {purpose} "
            "labels: name their column with --label COLUMN"
        )
    if getattr(model, "labels_are_shares", False):
        return np.asarray(table.bags.y)
    return in_model_labels(model, table.bags.y, of_table=True)


def refuse_shares(model: Any, file: str, table: str) -> None:
    """Raise where bags are to be scored by classes, but the model predicts shares."""
    if getattr(model, "labels_are_shares", False):
        raise ValueError(
            f"{file} was fitted with --rule share: its bags have expected shares of positive "
            "instances and no classes, so there are no scores of classes and no report; "
            f"`bagwise predict {file} {table}` writes share_mean and share_std"
        )


def evaluate_table(model: Any, table: Table, seed: int = 0) -> dict[str, Any]:
    """Scores of a model on a labelled table, with 95 % intervals over bags, or patients."""
    return scored(model, table.bags.with_labels(labels_of(model, table, "scores need")), seed)


def scored(model: Any, bags: Bags, seed: int = 0) -> dict[str, Any]:
    """Scores of bags, their intervals, and scores of instances where their labels are known."""
    assert bags.y is not None
    known = bags.instance_labels
    has_truth = known is not None and bool(np.isfinite(known).any())
    if has_truth:
        both = model.predict_all(bags)
        found = Given(model.classes_, both.bag_p, both.p, model.called_positive)
    else:
        found = Given(model.classes_, model.predict_proba(bags), None, model.called_positive)
    return {
        "positive": class_names(model)[1],
        "bags": metrics.bag_scores(found, bags),
        "intervals": metrics.headline_intervals(
            bags.y == model.classes_[1],
            found.bag_p,
            bags.groups,
            seed,
            model.called_positive(found.bag_p),
        ),
        "instances": metrics.instance_scores(found, bags) if has_truth else None,
    }
