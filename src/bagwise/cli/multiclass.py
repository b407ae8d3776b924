"""Tables of more than two classes: `OneVsRestMIL` from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise import metrics
from bagwise.bags import Bags
from bagwise.bags.messages import some
from bagwise.bags.subsets import check_test_size
from bagwise.cli.decisions import NOVELTY
from bagwise.cli.errors import say
from bagwise.cli.missing import fill_to_fit, for_fit
from bagwise.cli.output import print_grid, print_json, show_model
from bagwise.cli.prediction_frames import check_free
from bagwise.cli.sources import naming
from bagwise.cli.workflow import Fitted, bag_values, build_model
from bagwise.core.calibration.novelty import Novelty
from bagwise.io.streams import TableError
from bagwise.io.write_tables import write_table
from bagwise.metrics.intervals import share_interval, units_of
from bagwise.models.metadata import id_hashes
from bagwise.models.one_vs_rest import OneVsRestMIL
from bagwise.report.model_card import HIDDEN, describe_model

if TYPE_CHECKING:
    import pandas as pd

    from bagwise.io.tables import Table

MOST_CLASSES = 50  # more are rather numbers or ids


def fit_classes(
    table: Table,
    *,
    model: str,
    positive: str | None,
    valid: float | None,
    seed: int,
    settings: dict[str, Any],
    command: str | None,
    threshold: dict[str, float] | None,
    missing: str | None,
) -> Fitted:
    """Fit one model per class, each against the rest; `missing` is as in `workflow.fit_table`."""
    with naming(table.places):
        table, gaps = for_fit(table, missing)
    bags = table.bags
    assert bags.y is not None
    classes = _check(np.unique(bags.y), bags, positive, threshold)
    estimator = OneVsRestMIL(build_model(model, seed, settings))
    if valid is not None:
        n_units = len(bags) if bags.groups is None else len(np.unique(bags.groups))
        check_test_size(valid, n_units, 2, "--valid")
    train, test = (bags, None) if valid is None else bags.split(valid, random_state=seed)
    with naming(table.places):
        train, test, kept, filling = fill_to_fit(train, test, missing)
        estimator.fit(train, sample_weight=bag_values(table, train, table.columns.weight))
    counts = {"bags": len(train), "instances": train.n_instances, "features": train.n_features}
    groups = train.groups
    estimator.metadata_ = {
        "columns": table.columns.to_dict(),
        "held_out": [] if test is None else test.ids.tolist(),
        "seed": seed,
        "command": command,
        "data": {"name": table.name, **counts},
        "trained_bags": id_hashes(train.ids),
        "trained_groups": None if groups is None else id_hashes(np.unique(groups)),
        "bagwise": metadata.version("bagwise"),
        **kept,
    }
    note = (
        f"{len(classes)} classes, each fitted against the rest: {some(classes)}; a class that only "
        "means none of the others, such as normal, has no instances of its own, which are then of "
        "no class"
    )
    scores = None if test is None else class_scores(estimator, test)
    return Fitted(estimator, scores, (note, *gaps, *filling))


def _check(
    classes: NDArray[Any], bags: Bags, positive: str | None, threshold: dict[str, float] | None
) -> list[Any]:
    found = classes.tolist()
    if len(found) > MOST_CLASSES or any(isinstance(c, float) and c != int(c) for c in found):
        numbers = all(isinstance(c, int | float) and 0 <= c <= 1 for c in found)
        shares = ", or fit shares of positive instances with --rule share" if numbers else ""
        raise TableError(
            f"bag labels must be classes; got {len(found)} different ones, {some(found)}; name "
            f"another column{shares}",
            argument="label",
        )
    if positive is not None or threshold:
        raise ValueError(
            f"--positive and thresholds are for two classes, and the bags have {len(found)}: "
            f"{some(found)}; leave them out, or make a column with two labels"
        )
    if bags.instance_labels is not None:
        raise ValueError(
            "labels of instances do not say which of several classes they are of; leave them out, "
            "or fit one class at a time with a column of 0 and 1"
        )
    return found


def class_scores(model: OneVsRestMIL, bags: Bags) -> dict[str, Any]:
    """Accuracy with its 95 % interval, log-likelihood, and the AUC of each class."""
    assert bags.y is not None
    classes = model.classes_
    strange = sorted(set(bags.y.tolist()) - set(classes.tolist()), key=str)
    if strange:
        raise TableError(
            f"labels must be among the model's classes {some(classes.tolist())}; these bags have "
            f"{some(strange)}; translate them, or name another column of labels",
            argument="label",
        )
    p = model.predict_proba(bags)
    at = np.searchsorted(classes, bags.y)
    right = np.argmax(p, axis=1) == at
    auc = {str(c): _auc(at == k, p[:, k]) for k, c in enumerate(classes.tolist())}
    return {
        "n": len(bags),
        "classes": [str(c) for c in classes.tolist()],
        "accuracy": float(np.mean(right)),
        "accuracy_interval": share_interval(right, units_of(bags.groups, len(bags)), 0.95),
        "log_likelihood": float(np.mean(np.log(p[np.arange(len(p)), at]))),
        "roc_auc": auc,
        "mean_roc_auc": float(np.nanmean(list(auc.values()))),
    }


def _auc(own: NDArray[np.bool_], p: NDArray[np.float64]) -> float:
    return float("nan") if own.all() or not own.any() else metrics.roc_auc(own, p)


def evaluate_classes(model: OneVsRestMIL, table: Table) -> dict[str, Any]:
    """Scores of a model of several classes on a labelled table."""
    if table.bags.y is None:
        raise TableError(
            f"{table.name} has no column that looks like bag labels; scores need labels",
            argument="label",
        )
    return class_scores(model, table.bags)


def show_class_scores(scores: dict[str, Any], heading: str = "Scores") -> None:
    """Print scores of bags of several classes."""
    low, high = scores["accuracy_interval"]
    rows = [
        ["accuracy", f"{scores['accuracy']:.3f}", f"{low:.3f} to {high:.3f}"],
        ["log-likelihood", f"{scores['log_likelihood']:.3f}", ""],
        ["mean ROC AUC", f"{scores['mean_roc_auc']:.3f}", ""],
        *([f"ROC AUC of {c}", f"{v:.3f}", ""] for c, v in scores["roc_auc"].items()),
    ]
    print_grid(f"{heading}: {scores['n']} bags", ["", "bags", "95 % interval"], rows)


def show_class_fit(fitted: Fitted, path: str, json: bool) -> None:
    """Say what was fitted and where it is."""
    model = fitted.model
    classes = [str(c) for c in model.classes_.tolist()]
    kind = type(model.estimator).__name__
    if json:
        done = {"output": path, "model": "OneVsRestMIL", "estimator": kind, "classes": classes}
        print_json(done | {"held_out": fitted.held_out})
        return
    if fitted.held_out is not None:
        show_class_scores(fitted.held_out, heading="Held-out bags")
    say(f"wrote {path}: OneVsRestMIL of {kind}, classes {', '.join(classes)}")


def describe_classes(model: OneVsRestMIL) -> dict[str, Any]:
    """What a model of several classes is, as plain values: a card for each class."""
    classes = [str(c) for c in model.classes_.tolist()]
    cards = [
        describe_model(one) | {"classes": ["the rest", name], "positive": name}
        for name, one in zip(classes, model.estimators_, strict=True)
    ]
    fitted = dict(getattr(model, "metadata_", {}))
    about = {"model": "OneVsRestMIL", "estimator": type(model.estimator).__name__}
    return about | {
        "classes": classes,
        "of_class": dict(zip(classes, cards, strict=True)),
        "fitted": {k: v for k, v in fitted.items() if k not in HIDDEN},
    }


def show_classes(found: dict[str, Any]) -> None:
    """Print the card of each class against the rest; the last says what they were fitted on."""
    last = found["classes"][-1]
    for name, card in found["of_class"].items():
        show_model({**card, "fitted": found["fitted"] if name == last else {}})
        say("" if name != last else f"{found['model']} of {len(found['of_class'])} classes")


# --- Predictions ---------------------------------------------------------------------------------


def write_classes(
    model: OneVsRestMIL, table: Table, path: str, *, instances: bool, force: bool
) -> dict[str, Any]:
    """Write the probability of every class, for bags or instances, as a table."""
    frame = (instance_classes if instances else bag_classes)(model, table)
    write_table(frame, path, overwrite=force)
    classes = [str(c) for c in model.classes_.tolist()]
    done = {"output": path, "bags": len(table.bags), "classes": classes}
    return done | {"rows": len(frame), "files": 1}


def bag_classes(model: OneVsRestMIL, table: Table) -> pd.DataFrame:
    """One row per bag, in the order in which the bags first appear in the table."""
    import pandas as pd

    bags = table.bags
    first = np.minimum.reduceat(bags.row_index, bags.offsets[:-1])
    order = np.argsort(first, kind="stable")
    kept = [table.columns.bag, table.columns.label, table.columns.group]
    own = table.rows.loc[:, [c for c in kept if c is not None]].iloc[first[order]]
    p = model.predict_proba(bags)[order]
    added = _columns(model, p) | {k: v.bags[order].tolist() for k, v in _novelty(model, bags)}
    check_free(own, ("n_instances", *added))
    frame = {c: own[c].to_numpy() for c in own.columns}
    return pd.DataFrame({**frame, "n_instances": bags.sizes[order], **added})


def instance_classes(model: OneVsRestMIL, table: Table) -> pd.DataFrame:
    """The user's own rows in their order, with the probability of each class.

    The predicted class is empty where none has a probability of a half. Columns std_... are the
    standard deviations of the probabilities.
    """
    import pandas as pd

    bags = table.bags
    back = np.argsort(bags.row_index)  # rows that were left out are not written
    p, std = (of_all[back] for of_all in model.predict_instance_proba(bags, return_std=True))
    added = _columns(model, p)
    # Classes have models of their own: an instance may well be of none.
    named = zip(added["predicted"], p.max(axis=1), strict=True)
    added["predicted"] = [name if best >= 0.5 else None for name, best in named]
    added |= {f"std_{c}": std[:, k].tolist() for k, c in enumerate(model.classes_.tolist())}
    for name, found in _novelty(model, bags):
        added |= {name: found.instances[back].tolist()}
        added |= {f"bag_{name}": found.bags[bags.bag_index[back]].tolist()}
    check_free(table.rows, tuple(added))
    own = {c: table.rows[c].to_numpy()[bags.row_index[back]] for c in table.rows.columns}
    return pd.DataFrame({**own, **added})


def _novelty(model: OneVsRestMIL, bags: Bags) -> list[tuple[str, Novelty]]:
    """How unlike the bags of the fit these are, which the models of all classes have seen."""
    first = model.estimators_[0]
    return [] if first.seen_instances_ is None else [(NOVELTY, first.novelty(bags))]


def _columns(model: OneVsRestMIL, p: NDArray[np.float64]) -> dict[str, Sequence[Any]]:
    names = np.asarray(model.classes_.tolist(), dtype=object)
    columns: dict[str, Any] = {f"p_{c}": p[:, k].tolist() for k, c in enumerate(names)}
    return columns | {"predicted": names[np.argmax(p, axis=1)].tolist()}
