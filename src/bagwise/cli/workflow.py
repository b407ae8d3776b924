"""From tables to fitted models and back: what the command line does, without its printing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise import metrics
from bagwise.bags import Bags
from bagwise.bags.checks import check_test_size
from bagwise.cli.label_leaks import suspects
from bagwise.core.inference.monitor import Callback
from bagwise.io.class_labels import choose_classes, class_names, in_model_labels
from bagwise.io.columns import ROLES, Columns
from bagwise.io.frames import require_io
from bagwise.io.row_places import Places
from bagwise.io.slide_features import slides_to_bags
from bagwise.io.slide_tables import list_folder, list_slides, read_slide, slide_columns
from bagwise.io.streams import TableError
from bagwise.io.tables import Table, read_table
from bagwise.models import ALIASES, MODELS
from bagwise.models._base import Predictions
from bagwise.models.registry import class_name
from bagwise.models.training_bags import id_hashes

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]

OBJECTS = ("kernel", "psi", "init")  # arguments that no text can stand for
PREDICTED = ("p_mean", "p_std", "predicted")


# --- Reading -------------------------------------------------------------------------------------


def read_to_fit(
    path: str, columns: Columns, *, slides: str | None = None, delimiter: str | None = None
) -> Table:
    """Bags to fit, from a table or from a folder of slide features with its CSV."""
    if slides is not None:
        return _slides_table(path, slides, columns)
    table = read_table(path, columns, delimiter=delimiter)
    if table.bags.y is None:
        raise TableError(
            f"{table.name} has no column that looks like bag labels; name it with --label COLUMN"
        )
    return table


def read_for_model(
    model: Any,
    path: str,
    columns: Columns,
    *,
    slides: str | None = None,
    delimiter: str | None = None,
    skip: Sequence[str] = (),
) -> Table:
    """Bags with the features a model was fitted on, found by the names it keeps.

    Columns that are not named are those of the table it was fitted on, where they are there.
    """
    if slides is not None or os.path.isdir(path):
        return _slides_table(path, slides, columns)
    names = getattr(model, "feature_names_in_", None)
    table = read_table(
        path,
        columns,
        feature_names=None if names is None else [str(n) for n in names],
        delimiter=delimiter,
        skip=skip,
        remembered=remembered(model),
        keep_text=True,
    )
    # A model without names would warn about those of the table.
    return table if names is not None else replace(table, bags=table.bags.with_X(table.bags.X))


def _slides_table(folder: str, slides: str | None, columns: Columns) -> Table:
    """A folder of features as a table: pixels in its rows, cells of each slide's grid in bags."""
    require_io()
    import pandas as pd

    slide, label = columns.bag or "slide_id", columns.label or "label"
    case = columns.group
    if slides is None:
        listed = list_folder(folder)
    else:
        if case is None and "case_id" in slide_columns(slides):
            case = "case_id"
        listed = list_slides(slides, folder, case=case, slide=slide, label=label)
    read = [read_slide(path) for path in listed.paths]
    bags = slides_to_bags(read, listed.y, ids=listed.ids, groups=listed.groups)
    tile = np.arange(bags.n_instances) - np.repeat(bags.offsets[:-1], bags.sizes)
    rows: dict[str, Any] = {slide: bags.ids[bags.bag_index], "instance_id": tile}
    if bags.y is not None:
        rows[label] = bags.y[bags.bag_index]
    if bags.groups is not None and case is not None:
        rows[case] = bags.groups[bags.bag_index]
    pixels = None
    if bags.coords is not None:
        pixels = np.concatenate([np.asarray(s.coords) for s in read])
        rows |= {"x": pixels[:, 0], "y": pixels[:, 1]}
    found = Columns(
        bag=slide,
        label=None if bags.y is None else label,
        group=None if bags.groups is None else case,
        instance_id="instance_id",
        coords=() if bags.coords is None else ("x", "y"),
    )
    places = Places(os.path.basename(os.path.normpath(folder)), lines=False)
    return Table(bags, pd.DataFrame(rows), found, (), places, pixels)


def remembered(model: Any) -> Columns:
    """The columns of the table that a model was fitted on."""
    known = getattr(model, "metadata_", {}).get("columns", {})
    plain = {role: known.get(role) for role in ROLES}
    return Columns(**plain, coords=tuple(known.get("coords", ())))


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
) -> Fitted:
    """Fit a model to a table; `valid` is the share of bags held out and scored.

    The model that is returned is the one that was scored: it has not seen the held-out bags,
    whose ids are in `metadata_["held_out"]`.
    """
    assert table.bags.y is not None
    classes, note = choose_classes(table.bags.y, positive)
    bags = table.bags.with_labels((table.bags.y == classes[1]).astype(np.int64))
    estimator = build_model(model, seed, settings or {})
    if valid is not None:
        n_units = len(bags) if bags.groups is None else len(np.unique(bags.groups))
        check_test_size(valid, n_units, 2, "--valid")
    train, test = (bags, None) if valid is None else bags.split(valid, random_state=seed)
    with by_place(table.places):
        estimator.fit(train, callbacks=callbacks)
    estimator.metadata_ = fit_metadata(
        table.columns, table.name, train, test, classes, seed, command
    )
    scores = None if test is None else scored(estimator, test, seed)
    notes = (*(() if note is None else (note,)), *suspects(bags))
    return Fitted(estimator, scores, notes)


@contextmanager
def by_place(places: Places) -> Iterator[None]:
    """Name rows that are at fault by their place in the file."""
    try:
        yield
    except ValueError as error:
        message = places.told(str(error))
        if message == str(error):
            raise
        raise TableError(f"{places.name}: {message}") from error


def build_model(model: str, seed: int, settings: dict[str, Any]) -> Any:
    """A model by name, with its arguments checked."""
    kind = model_class(model)
    known = kind._get_param_names()
    for name in settings:
        if name not in known:
            raise ValueError(f"{kind.__name__} has no argument {name!r}; it has {', '.join(known)}")
        plain = settings[name] is None or (name == "kernel" and settings[name] == "auto")
        if name in OBJECTS and not plain:
            raise ValueError(
                f"--set takes numbers, words and lists, but {name} is an object of Python; fit "
                f"there, {kind.__name__}({name}=...).fit(bags).save('m.bagwise'), and use the file"
            )
    return kind(**{"random_state": seed, **settings})


def fit_metadata(
    columns: Columns,
    name: str,
    train: Bags,
    test: Bags | None,
    classes: list[Any],
    seed: int,
    command: str | None,
) -> dict[str, Any]:
    """Where a model comes from, as its file keeps it."""
    assert train.y is not None
    return {
        "columns": columns.to_dict(),
        "classes": classes,
        "data": {
            "name": name,
            "bags": len(train),
            "positive_bags": int(np.sum(train.y)),
            "instances": train.n_instances,
            "features": train.n_features,
        },
        "held_out": [] if test is None else test.ids.tolist(),
        "trained_bags": id_hashes(train.ids),
        "trained_groups": None if train.groups is None else id_hashes(np.unique(train.groups)),
        "seed": seed,
        "command": command,
        "bagwise": metadata.version("bagwise"),
    }


# --- Predicting and scoring ----------------------------------------------------------------------


def labels_of(model: Any, table: Table, purpose: str) -> Array:
    """The bag labels of a table as classes of the model; an error where there are none."""
    if table.bags.y is None:
        known = remembered(model).label
        fitted_on = "" if known is None else f" and none called {known!r}, as the model's table had"
        raise TableError(
            f"{table.name} has no column that looks like bag labels{fitted_on}; {purpose} "
            "labels: name their column with --label COLUMN"
        )
    return in_model_labels(model, table.bags.y)


def bag_frame(model: Any, table: Table, found: Predictions) -> pd.DataFrame:
    """One row per bag, in the order in which the bags first appear in the table."""
    import pandas as pd

    bags = table.bags
    first = np.minimum.reduceat(bags.row_index, bags.offsets[:-1])
    order = np.argsort(first, kind="stable")
    kept = [table.columns.bag, table.columns.label, table.columns.group]
    frame = table.rows.loc[:, [c for c in kept if c is not None]].iloc[first[order]]
    _check_free(frame, ("n_instances", *PREDICTED))
    names = np.asarray(class_names(model), dtype=object)
    return pd.DataFrame(
        {
            **{c: frame[c].to_numpy() for c in frame.columns},
            "n_instances": bags.sizes[order],
            "p_mean": found.bag_p[order, 1],
            "p_std": found.bag_std[order],
            "predicted": names[np.argmax(found.bag_p[order], axis=1)].tolist(),
        }
    )


def instance_frame(model: Any, table: Table, found: Predictions) -> pd.DataFrame:
    """The user's own rows in their order, with the predictions beside them."""
    import pandas as pd

    bags = table.bags
    names = np.asarray(class_names(model), dtype=object)
    values: dict[str, Array] = {
        "p_mean": found.p[:, 1],
        "p_std": found.std,
        "predicted": names[np.argmax(found.p, axis=1)],
        "bag_p_mean": found.bag_p[bags.bag_index, 1],
        "bag_p_std": found.bag_std[bags.bag_index],
    }
    if found.given is not None and found.given_std is not None:
        values |= {"p_given_labels": found.given[:, 1], "p_given_labels_std": found.given_std}
    _check_free(table.rows, tuple(values))
    back = np.empty(bags.n_instances, dtype=np.int64)
    back[bags.row_index] = np.arange(bags.n_instances)
    own = {c: table.rows[c].to_numpy() for c in table.rows.columns}
    return pd.DataFrame({**own, **{name: v[back].tolist() for name, v in values.items()}})


def _check_free(frame: pd.DataFrame, added: Sequence[str]) -> None:
    if clash := [c for c in added if c in frame.columns]:
        raise TableError(
            f"the table already has the column {clash[0]!r}, which predictions are written to; "
            "rename or drop it"
        )


def evaluate_table(model: Any, table: Table, seed: int = 0) -> dict[str, Any]:
    """Scores of a model on a labelled table, with 95 % intervals over bags, or patients."""
    return scored(model, table.bags.with_labels(labels_of(model, table, "scores need")), seed)


@dataclass
class Found:
    """Probabilities that are there already, in the form in which metrics take a model."""

    classes_: Any
    bag_p: Array  # (B, 2)
    p: Array | None  # (N, 2)

    def predict_proba(self, bags: Any) -> Array:
        """Those of the bags."""
        return self.bag_p

    def predict_instance_proba(self, bags: Any) -> Array:
        """Those of the instances."""
        assert self.p is not None
        return self.p


def scored(model: Any, bags: Bags, seed: int = 0) -> dict[str, Any]:
    """Scores of bags, their intervals, and scores of instances where their labels are known."""
    assert bags.y is not None
    known = bags.instance_labels
    has_truth = known is not None and bool(np.isfinite(known).any())
    if has_truth:
        both = model.predict_all(bags)
        found = Found(model.classes_, both.bag_p, both.p)
    else:
        found = Found(model.classes_, model.predict_proba(bags), None)
    return {
        "positive": class_names(model)[1],
        "bags": metrics.bag_scores(found, bags),
        "intervals": metrics.headline_intervals(
            bags.y == model.classes_[1], found.bag_p, bags.groups, seed
        ),
        "instances": metrics.instance_scores(found, bags) if has_truth else None,
    }
