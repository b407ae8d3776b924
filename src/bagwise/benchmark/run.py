"""Running a benchmark: which folds are still to do, in parallel, then tables and figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from bagwise.bags import Bags
from bagwise.benchmark.protocol import Job, splits
from bagwise.benchmark.registry import (
    DEFAULT_MODELS,
    DEFAULT_SETS,
    Problem,
    make_model,
    problems,
)
from bagwise.benchmark.report import write_report
from bagwise.benchmark.results import Key, Row, Store
from bagwise.core.parameters import check_integer
from bagwise.datasets.fetch import Home

Announce = Callable[[int, int, Key], None]


def run(
    sets: Sequence[str] | Mapping[str, Any] = DEFAULT_SETS,
    models: Sequence[Any] | Mapping[str, Any] = DEFAULT_MODELS,
    *,
    repeats: int = 5,
    folds: int = 10,
    jobs: int = 1,
    seed: int = 0,
    output: str | os.PathLike[str] = "bagwise-benchmark",
    data_home: Home = None,
    download: bool = True,
    announce: Announce | None = None,
) -> list[Row]:
    """Compare models by repeated cross-validation; returns one row per fold.

    Parameters
    ----------
    sets : names of data sets (see `bagwise datasets`), or {name: Bags} or {name: (Bags, truth)}
        with the true labels of the instances.
    models : names and estimators, which are called by their class, or {name: estimator}; each is
        used with its own arguments and the seed.
    repeats, folds : repeat r splits with the seed `seed + r`, for all models alike. Sets with a
        given test part have one fold, and repeats differ in the model's seed only.
    jobs : processes, each with one BLAS thread.
    output : folder for results.csv (and .parquet), results.md, figures and one file per fold.
        Folds that are there already are not run again.
    data_home, download : where data sets are, see `bagwise.datasets.fetch_musk2`.
    announce : called as announce(done, total, (set, target, model, repeat, fold)) after each fold.

    >>> import tempfile
    >>> from bagwise.datasets import make_bags
    >>> bags, truth = make_bags(40, overlap=0.02, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = run({"toy": (bags, truth)}, ["MILR"], repeats=1, folds=2, output=folder)
    >>> [(row["set"], row["model"], row["fold"]) for row in rows]
    [('toy', 'MILR', 0), ('toy', 'MILR', 1)]
    """
    check_integer("repeats", repeats, at_least=1)
    check_integer("folds", folds, at_least=2)
    check_integer("jobs", jobs, at_least=1)
    check_integer("seed", seed, at_least=0)
    todo = _problems(sets, data_home, download)
    chosen = named(models)
    store = Store(output, configuration(todo, chosen, folds, seed))
    everything = list(_jobs(todo, chosen, repeats, folds, seed))
    run_missing(everything, store, jobs, announce)
    rows = store.rows()
    write_report(rows, Path(output))
    return rows


def named(models: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Models by their names; estimators without one have that of their class.

    >>> from bagwise import MIRVM
    >>> named(["MILR", MIRVM()])
    {'MILR': 'MILR', 'MIRVM': MIRVM()}
    """
    if isinstance(models, str):
        raise TypeError(f"models must be a list, got the text {models!r}; pass [{models!r}]")
    pairs = list(models.items()) if isinstance(models, Mapping) else [(None, m) for m in models]
    found: dict[str, Any] = {}
    for given, model in pairs:
        if isinstance(model, type) or not (isinstance(model, str) or hasattr(model, "fit")):
            raise TypeError(
                f"a model must be a name or an estimator with fit, got {model!r:.80}; pass an "
                "object of the class, such as MIRVM()"
            )
        name = given or (model if isinstance(model, str) else type(model).__name__)
        if name in found:
            raise ValueError(f"two models are called {name!r}; name them: {{'first': ..., ...}}")
        found[name] = model
    return found


def configuration(
    todo: Sequence[Problem], models: Mapping[str, Any], folds: int, seed: int
) -> dict[str, Any]:
    """What results depend on, in a form that can be compared with what is in a folder."""
    names = [f"{p.name} {p.target}".strip() for p in todo]
    return {
        "version": version("bagwise"),
        "seed": seed,
        "folds": folds,
        "sets": {name: p.fingerprint() for name, p in zip(names, todo, strict=True)},
        "models": {name: _arguments(model, todo[0].bags, seed) for name, model in models.items()},
    }


def _arguments(model: Any, bags: Bags, seed: int) -> dict[str, str]:
    made = make_model(model, bags, seed)
    arguments = {k: repr(v) for k, v in sorted(made.get_params().items()) if k != "kernel"}
    if not isinstance(model, str):  # by name, a kernel follows from the features of each set
        arguments["kernel"] = repr(made.get_params().get("kernel"))
    return {"class": type(made).__name__, **arguments}


def _problems(sets: Any, data_home: Home, download: bool) -> list[Problem]:
    if isinstance(sets, Mapping):
        pairs = {n: v if isinstance(v, tuple) else (v, None) for n, v in sets.items()}
        found = [Problem(name, *pair) for name, pair in pairs.items()]
    else:
        found = [problem for name in sets for problem in problems(name, data_home, download)]
    for problem in found:
        if problem.bags.y is None:
            raise ValueError(f"the bags of {problem.name} have no labels; build them with y")
    if not found:
        raise ValueError("a benchmark needs at least one data set")
    return found


def _jobs(
    todo: Sequence[Problem], models: Mapping[str, Any], repeats: int, folds: int, seed: int
) -> Iterator[Job]:
    """All jobs, fold by fold for all models, so that a run that is cut short compares them."""
    for repeat in range(repeats):
        for problem in todo:
            for fold in range(len(splits(problem, folds, seed + repeat))):
                for name, model in models.items():
                    yield Job(problem, name, model, repeat, fold, folds, seed)


class Runnable(Protocol):
    """What is run and kept: a fold of a benchmark, or a row of a paper's table."""

    @property
    def key(self) -> Key: ...

    def run(self) -> Row: ...


def run_missing(
    everything: Sequence[Runnable], store: Store, jobs: int, announce: Announce | None
) -> None:
    """Run what the store does not have yet, in so many processes, and keep each result at once."""
    waiting = [job for job in everything if not store.has(job.key)]
    done = len(everything) - len(waiting)
    for key in _run_all(waiting, store, jobs):
        done += 1
        if announce is not None:
            announce(done, len(everything), key)


def _run_all(waiting: Sequence[Runnable], store: Store, jobs: int) -> Iterator[Key]:
    if jobs == 1:
        yield from (_run_one(job, store) for job in waiting)
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="loky", n_jobs=jobs, inner_max_num_threads=1):
        parallel = Parallel(return_as="generator_unordered")
        yield from parallel(delayed(_run_one)(job, store) for job in waiting)


def _run_one(job: Runnable, store: Store) -> Key:
    """Run a fold and keep its result, in whichever process this is."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        try:
            row = job.run()
        except Exception as error:
            error.add_note(f"in the benchmark: {' '.join(map(str, job.key))}")
            raise
    store.add(job.key, row)
    return job.key
