"""From rows to what people read: means, ranks, a Markdown page, figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from bagwise.benchmark.results import Row, write_tables, write_whole
from bagwise.metrics import expected_calibration_error, roc_auc
from bagwise.plots.benchmark import plot_ranking, plot_reliability_panels
from bagwise.plots.training import AucTimeDisplay

COLUMNS = (
    "set",
    "model",
    "bag accuracy",
    "bag AUC",
    "pooled AUC",
    "bag log-lik.",
    "bag ECE",
    "instance AUC",
    "instance log-lik.",
    "s per fit",
)
NOTE = (
    "Means over folds, ± the standard deviation of the mean of a repeat over repeats (over folds "
    "where there is one repeat). Pooled AUC ranks the bags of all folds of a repeat together; "
    "bag ECE, the expected calibration error in ten bins, is computed on them too. Bags were never "
    "trained on. A set with several targets is averaged over them. Seconds are of one processor."
)


def summary_table(rows: list[Row]) -> list[tuple[str, ...]]:
    """One line of text cells per set and model, as in `COLUMNS`; the best accuracy first."""
    lines = []
    for name in _ordered(row["set"] for row in rows):
        here = [row for row in rows if row["set"] == name]
        models = _ordered(row["model"] for row in here)
        groups = {m: [row for row in here if row["model"] == m] for m in models}
        models.sort(key=lambda m: -_mean(groups[m], "bag_accuracy"))
        lines += [_line(name, m, groups[m]) for m in models]
    return lines


def mean_ranks(rows: list[Row], score: str = "bag_accuracy") -> dict[str, float]:
    """Mean rank of each model over the sets on which all models were run; 1 is best.

    >>> rows = [{"set": "s", "model": m, "bag_accuracy": a} for m, a in (("A", 0.8), ("B", 0.9))]
    >>> mean_ranks(rows)
    {'B': 1.0, 'A': 2.0}
    """
    models = _ordered(row["model"] for row in rows)
    scores = [
        [_mean([r for r in rows if r["set"] == s and r["model"] == m], score) for m in models]
        for s in _ordered(row["set"] for row in rows)
    ]
    complete = np.array([line for line in scores if np.isfinite(line).all()])
    if complete.size == 0:
        return {}
    ranks = stats.rankdata(-complete, axis=1).mean(axis=0)
    return dict(sorted(zip(models, ranks.tolist(), strict=True), key=lambda pair: pair[1]))


def critical_difference(n_models: int, n_sets: int, alpha: float = 0.05) -> float:
    """Difference of mean ranks that Nemenyi's test calls significant (Demšar 2006).

    >>> round(critical_difference(5, 30), 2)
    1.11
    """
    q = stats.studentized_range.ppf(1 - alpha, n_models, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(n_models * (n_models + 1) / (6 * n_sets)))


def write_report(rows: list[Row], folder: Path) -> list[Path]:
    """Write results.csv, results.parquet, results.md and, with matplotlib, the figures."""
    files = write_tables(rows, folder)
    page = folder / "results.md"
    write_whole(page, markdown(rows))
    return [*files, page, *_figures(rows, folder)]


def markdown(rows: list[Row]) -> str:
    """The page with the table of scores and the ranks."""
    lines = [NOTE, "", *_markdown_table(COLUMNS, summary_table(rows))]
    ranks = {score: mean_ranks(rows, score) for score in ("bag_accuracy", "bag_roc_auc")}
    if ranks["bag_accuracy"]:
        models = list(ranks["bag_accuracy"])
        cells = [
            (m, *(f"{ranks[s][m]:.2f}" if m in ranks[s] else "—" for s in ranks)) for m in models
        ]
        heading = ("model", "mean rank of accuracy", "mean rank of AUC")
        lines += ["", *_markdown_table(heading, cells)]
    return "\n".join(lines) + "\n"


def _markdown_table(heading: Iterable[str], cells: Iterable[tuple[str, ...]]) -> list[str]:
    heading = tuple(heading)
    rule = "|" + " --- |" * len(heading)
    return [_markdown_line(heading), rule, *map(_markdown_line, cells)]


def _markdown_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


# --- Numbers -------------------------------------------------------------------------------------


def _line(name: str, model: str, rows: list[Row]) -> tuple[str, ...]:
    return (
        name,
        model,
        _with_spread(rows, "bag_accuracy"),
        _with_spread(rows, "bag_roc_auc"),
        _cell(_pooled(rows, roc_auc)),
        _cell(_mean(rows, "bag_log_likelihood")),
        _cell(_pooled(rows, expected_calibration_error)),
        _cell(_mean(rows, "instance_roc_auc")),
        _cell(_mean(rows, "instance_log_likelihood")),
        f"{_mean(rows, 'fit_seconds'):.2f}",
    )


def _with_spread(rows: list[Row], score: str) -> str:
    repeats = [[r for r in rows if r["repeat"] == k] for k in _ordered(r["repeat"] for r in rows)]
    if len(repeats) > 1:
        values = np.array([_mean(part, score) for part in repeats])
    else:
        values = _values(rows, score)
    mean = _mean(rows, score)
    if not np.isfinite(mean):
        return "—"
    return f"{mean:.3f} ± {np.std(values[np.isfinite(values)]):.3f}"


def _values(rows: list[Row], score: str) -> Any:
    return np.array([np.nan if (v := r.get(score)) is None else v for r in rows], dtype=float)


def _mean(rows: list[Row], score: str) -> float:
    """Mean over the folds on which the score is defined; NaN where it is on none."""
    values = _values(rows, score)
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else np.nan


def _pooled(rows: list[Row], score: Callable[..., float]) -> float:
    """Mean over repeats and targets of a score of the predictions of all folds together."""
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault((row["target"], row["repeat"]), []).append(row)
    return float(np.mean([score(*_predictions(part), pos_label=1) for part in parts.values()]))


def _predictions(rows: list[Row]) -> tuple[Any, Any]:
    y = np.concatenate([row["predictions"]["positive"] for row in rows])
    return y, np.concatenate([row["predictions"]["p"] for row in rows])


def _cell(value: float) -> str:
    return "—" if np.isnan(value) else f"{value:.3f}"


def _ordered(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


# --- Figures -------------------------------------------------------------------------------------


def _figures(rows: list[Row], folder: Path) -> list[Path]:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return []
    models = _ordered(row["model"] for row in rows)
    by_model = {m: [row for row in rows if row["model"] == m] for m in models}
    ranks = mean_ranks(rows)
    n_sets = len(_ordered(row["set"] for row in rows))
    figures = {
        "auc-against-time": _auc_against_time(by_model),
        "reliability": plot_reliability_panels({m: _predictions(r) for m, r in by_model.items()}),
    }
    if len(ranks) > 1:
        figures["ranking"] = plot_ranking(ranks, critical_difference(len(ranks), n_sets))
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png")
    return [folder / f"{name}.png" for name in figures]


def _auc_against_time(by_model: dict[str, list[Row]]) -> Any:
    """One mark per model: sets differ so much that their spread says nothing about a model."""
    from matplotlib.figure import Figure

    ax = Figure(figsize=(6.4, 4.0), dpi=130, layout="constrained").subplots()
    points = {
        m: ([_mean(r, "fit_seconds")], [_mean(r, "bag_roc_auc")]) for m, r in by_model.items()
    }
    name = "bag AUC, mean over folds and sets"
    return AucTimeDisplay.from_predictions(points, score_name=name, ax=ax).figure_
