"""What a report shows, as plain values that become JSON."""

from __future__ import annotations

import base64
import math
import platform
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise import metrics
from bagwise.bags import Bags
from bagwise.io.class_labels import class_names, in_model_labels
from bagwise.models._base import Predictions
from bagwise.models.metadata import seen_in_fit
from bagwise.report.decisions import (
    ALPHA,
    NOVEL,
    Decisions,
    comparison,
    confusion,
    decide,
    group_rows,
    operating_point,
)
from bagwise.report.headline import headline, score_limits
from bagwise.report.model_card import card_lines, describe_model, filled
from bagwise.report.summary import summary, warnings_of

Array = NDArray[Any]
SCALE = 10_000  # probabilities are written as whole numbers of this
# A file that opens at once has no more than these.
MAX_INSTANCES = 100_000
MAX_THUMBNAIL_BYTES = 1_500_000
GRID = 4095  # coordinates are written as whole numbers of the bag's extent


def page_content(
    model: Any,
    bags: Bags,
    *,
    title: str,
    data_name: str,
    image_shape: tuple[int, int] | None = None,
    command: str | None = None,
    seed: int = 0,
    compare: Any = None,
    compare_name: str = "the other model",
) -> dict[str, Any]:
    """Everything a page shows, with the predictions of `model` for `bags`."""
    labels = None if bags.y is None else in_model_labels(model, bags.y)
    # Instance labels are shown for comparison, so that nothing here may come from them.
    found = model.predict_all(bags.with_instance_labels(None), y=labels)
    truth = None if labels is None else labels == model.classes_[1]
    classes = class_names(model)
    decisions = decide(model, bags, found)
    limits = {} if truth is None else score_limits(truth, found, decisions, bags.groups, seed)
    other = None
    if compare is not None:
        other = comparison(model, compare, compare_name, bags, found, truth)
    return {
        "title": title,
        "negative": str(classes[0]),
        "positive": str(classes[1]),
        "scale": SCALE,
        "summary": summary(model, bags, found, decisions, truth, limits, classes),
        "cautions": warnings_of(model, bags, decisions, truth, limits),
        "headline": headline(truth, found, decisions, limits),
        "bags": bag_columns(bags, truth, found, decisions),
        "alpha": ALPHA,
        "novel": NOVEL,
        "confusion": confusion(decisions, truth),
        "groups": group_rows(bags, found, decisions, truth),
        "comparison": other,
        "instances": instance_columns(bags, found, image_shape),
        "image": None if image_shape is None else list(image_shape),
        "reliability": None if truth is None else reliability(truth, found.bag_p[:, 1]),
        "roc": roc(truth, found.bag_p[:, 1], bags.groups, seed, decisions),
        "card": card(model, bags, data_name, command),
        "notes": notes(model, bags, data_name),
    }


def whole(values: Array) -> list[int]:
    """Probabilities as whole numbers of 1 / SCALE, which take few characters."""
    return np.rint(np.asarray(values, dtype=np.float64) * SCALE).astype(np.int64).tolist()


def bag_columns(
    bags: Bags, truth: Array | None, found: Predictions, decisions: Decisions
) -> dict[str, Any]:
    """One entry per bag: id, label, probability, standard deviation, size, what is decided.

    `possible` is 1 where it may be negative, plus 2 where it may be positive.
    """
    sets, novelty = decisions.sets, decisions.novelty
    return {
        "id": [str(i) for i in bags.ids.tolist()],
        "label": None if truth is None else truth.astype(int).tolist(),
        "p": whole(found.bag_p[:, 1]),
        "std": whole(found.bag_std),
        "size": bags.sizes.tolist(),
        "called": decisions.called.astype(int).tolist(),
        "possible": None if sets is None else (sets @ np.array([1, 2])).tolist(),
        "novelty": None if novelty is None else whole(novelty),
    }


def instance_columns(
    bags: Bags, found: Predictions, image_shape: tuple[int, int] | None
) -> list[dict[str, Any]]:
    """One entry per bag with its instances, thinned where there are very many."""
    p = found.p[:, 1]
    labelled = bags.instance_labels is not None and bool(np.isfinite(bags.instance_labels).any())
    thumbnails = _thumbnail_count(bags, image_shape)
    # Of all bags, so that one grey means one value on the whole page.
    span = (float(bags.X.min()), float(bags.X.max())) if thumbnails else (0.0, 1.0)
    result = []
    for b, rows in enumerate(shown_rows(bags, p)):
        entry: dict[str, Any] = {
            "row": (rows - bags.offsets[b]).tolist() if len(rows) < bags.sizes[b] else None,
            "p": whole(p[rows]),
            "std": whole(found.std[rows]),
        }
        if found.low is not None and found.high is not None:
            entry |= {"low": whole(found.low[rows]), "high": whole(found.high[rows])}
        if bags.instance_ids is not None:
            entry["id"] = [str(i) for i in bags.instance_ids[rows].tolist()]
        if found.given is not None and np.any(found.given[rows, 1]):
            entry["given"] = whole(found.given[rows, 1])
        if labelled:
            known = np.asarray(bags.instance_labels)[rows]
            entry["truth"] = np.where(np.isnan(known), -1, known).astype(int).tolist()
        if bags.coords is not None:
            entry["coords"] = quantised(bags.coords[rows])
        if thumbnails:
            best = rows[np.argsort(-p[rows], kind="stable")[:thumbnails]]
            entry["thumbnails"] = _thumbnails(bags.X, best, p, found.std, span)
        result.append(entry)
    return result


def shown_rows(bags: Bags, p: NDArray[np.float64], limit: int = MAX_INSTANCES) -> list[Array]:
    """For each bag the rows of `bags.X` to show, in their order; all of them where they fit.

    A bag above its share of the limit keeps its most probable instances (half of the share) and
    others evenly spaced over the ranking, so that the least probable are seen too.

    >>> bags = Bags.from_list([np.zeros((2, 1)), np.zeros((8, 1))])
    >>> [r.tolist() for r in shown_rows(bags, np.arange(10) / 10, limit=6)]
    [[0, 1], [2, 7, 8, 9]]
    """
    share = fair_share(bags.sizes, limit)
    rows = []
    for start, stop in zip(bags.offsets[:-1], bags.offsets[1:], strict=True):
        if stop - start <= share:
            rows.append(np.arange(start, stop))
            continue
        ranked = start + np.argsort(-p[start:stop], kind="stable")
        top = ranked[: share - share // 2]
        rest = ranked[len(top) :]
        spaced = rest[np.linspace(0, len(rest) - 1, share // 2).round().astype(np.int64)]
        rows.append(np.sort(np.concatenate([top, spaced])))
    return rows


def fair_share(sizes: NDArray[np.int64], limit: int) -> int:
    """The largest number per bag such that bags cut to it hold at most `limit` in all.

    >>> fair_share(np.array([2, 8]), 6)
    4
    """
    low, high = 1, int(sizes.max())
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(sizes, middle).sum()) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def quantised(coords: Array) -> dict[str, Any]:
    """Coordinates as whole numbers over the extent of the bag, one list per axis.

    >>> quantised(np.array([[0.0, 5.0], [10.0, 5.0]]))
    {'low': [0.0, 5.0], 'high': [10.0, 5.0], 'axes': [[0, 4095], [0, 0]], 'grid': 4095}
    """
    low, high = coords.min(axis=0), coords.max(axis=0)
    extent = np.where(high > low, high - low, 1.0)
    steps = np.rint((coords - low) / extent * GRID).astype(np.int64)
    return {
        "low": low.astype(float).tolist(),
        "high": high.astype(float).tolist(),
        "axes": steps.T.tolist(),
        "grid": GRID,
    }


def _thumbnail_count(bags: Bags, image_shape: tuple[int, int] | None) -> int:
    """Images per bag that fit the page."""
    if image_shape is None:
        return 0
    if math.prod(image_shape) != bags.n_features:
        raise ValueError(
            f"images of {image_shape[0]} x {image_shape[1]} have {math.prod(image_shape)} pixels, "
            f"but an instance has {bags.n_features} features; give the height and width"
        )
    per_bag = MAX_THUMBNAIL_BYTES // (len(bags) * bags.n_features)
    return int(min(30, max(1, per_bag)))


def _thumbnails(
    X: Array, rows: Array, p: Array, std: Array, span: tuple[float, float]
) -> dict[str, Any]:
    low, high = span
    grey = np.rint((X[rows] - low) / ((high - low) or 1.0) * 255).astype(np.uint8)
    return {
        "pixels": base64.b64encode(grey.tobytes()).decode("ascii"),
        "p": whole(p[rows]),
        "std": whole(std[rows]),
    }


def reliability(truth: Array, p: Array, n_bins: int = 8) -> list[dict[str, float]]:
    """Points of the reliability diagram, of at least five bags each where there are as many."""
    curve = metrics.reliability_curve(truth, p, min(n_bins, max(1, len(p) // 5)), pos_label=True)
    names = ("p", "share", "low", "high", "n")
    return [
        dict(zip(names, np.round(point, 4).tolist(), strict=True))
        for point in zip(*curve, strict=True)
    ]


def roc(
    truth: Array | None, p: Array, groups: Array | None, seed: int, decisions: Decisions
) -> dict[str, Any] | None:
    """The ROC curve with its band and the calls on it, or None where there are not both classes."""
    if truth is None or truth.all() or not truth.any():
        return None
    band = metrics.roc_band(truth, p, groups=groups, random_state=seed)
    curves = {name: np.round(getattr(band, name), 4).tolist() for name in ("x", "y", "low", "high")}
    auc = round(metrics.roc_auc(truth, p), 4)
    return {**curves, "auc": auc, "point": operating_point(decisions, truth)}


def card(model: Any, bags: Bags, data_name: str, command: str | None) -> list[list[str]]:
    """Name and value of everything needed to know and repeat the fit."""
    about = describe_model(model)
    fitted = about["fitted"]
    trained = fitted.get("data", {})
    lines: list[tuple[str, Any]] = [
        ("Data shown", f"{data_name}: {len(bags):,} bags, {bags.n_instances:,} instances"),
        ("Fitted on", trained and _training(trained)),
        ("Held out", fitted.get("held_out") and f"{len(fitted['held_out'])} bags"),
        ("Model", about["model"]),
        ("Positive class", about["positive"]),
        ("Features", about["n_features"]),
        *((name[0].upper() + name[1:], value) for name, value in card_lines(about, "; ")),
        ("Versions", _versions()),
        ("Command of the fit", fitted.get("command")),
        ("Command of this page", command),
    ]
    return [list(line) for line in filled(lines)]


def _training(data: dict[str, Any]) -> str:
    return (
        f"{data.get('name')}: {data.get('bags')} bags ({data.get('positive_bags')} positive), "
        f"{data.get('instances')} instances"
    )


def _versions() -> str:
    names = ("bagwise", "numpy", "scipy", "scikit-learn")
    found = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    return f"{found}, Python {platform.python_version()}"


def notes(model: Any, bags: Bags, data_name: str) -> list[str]:
    """What a reader must know to read the page rightly."""
    lines = [
        "± is the standard deviation of a probability under the model's posterior: how far it "
        "could still move if the model knew more. It is not an error rate.",
    ]
    if getattr(model, "instance_score_", None) == "calibrated":
        lines.append(
            "Bag labels do not tell how many instances of a positive bag are positive: each "
            "instance has a range from as few as they require to as many as look unlike the "
            "instances of negative bags. Its ± counts that in."
        )
    if bags.y is None:
        return lines
    if bags.groups is not None:
        count = len(np.unique(bags.groups))
        lines.append(f"Bags of one group count together: ranges are over {count} groups.")
    return [*lines, *seen_in_fit(model, bags, data_name)]
