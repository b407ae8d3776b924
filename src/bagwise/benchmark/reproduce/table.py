"""What a table of a paper is made of: settings, data to run them on, and what was published."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sklearn.base import BaseEstimator, clone

from bagwise.benchmark.registry import Problem
from bagwise.benchmark.reproduce.data import Source
from bagwise.benchmark.reproduce.figures import Picture
from bagwise.benchmark.results import Key, Row

T = TypeVar("T")
Figures = dict[str, float]
Measure = Callable[[Any, Any, int], Figures]  # of data, a fresh model and a seed
EFFORTS = ("full", "quick", "smoke")


@dataclass(frozen=True)
class Plan:
    """How much is run, and where data are looked for.

    "full" is as much as the paper did, "quick" some minutes, "smoke" seconds: whether it works.

    >>> Plan("quick", Source()).pick(100, 5, 1)
    5
    """

    effort: str
    source: Source

    def pick(self, full: T, quick: T, smoke: T) -> T:
        """The value for this effort."""
        return {"full": full, "quick": quick, "smoke": smoke}[self.effort]


@dataclass(frozen=True)
class Trial:
    """One row of results: a setting on data, measured once with a seed of its own."""

    table: str
    problem: Problem
    setting: str
    model: BaseEstimator | None
    measure: Measure
    repeat: int = 0

    @property
    def key(self) -> Key:
        """What the result is filed under."""
        where = f"{self.problem.name} {self.problem.target}".strip()
        return self.table, where, self.setting, self.repeat, 0

    def run(self) -> Row:
        """Measure: a row of the tidy table."""
        model = None if self.model is None else clone(self.model)
        if model is not None and "random_state" in model.get_params():
            model.set_params(random_state=self.repeat)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start = time.process_time()
            figures = self.measure(self.problem, model, self.repeat)
            seconds = time.process_time() - start
        row: Row = dict(zip(("set", "target", "model", "repeat", "fold"), self.key, strict=True))
        return row | figures | {"seconds": seconds, "warnings": len(caught)}

    def describe(self) -> dict[str, str]:
        """What the row depends on besides the data."""
        arguments = {} if self.model is None else self.model.get_params(deep=False)
        name = getattr(self.measure, "func", self.measure).__name__
        options = getattr(self.measure, "keywords", {})
        shown = {k: repr(v) for k, v in sorted({**arguments, **options}.items())}
        return {"class": type(self.model).__name__, "measure": name, **shown}


@dataclass(frozen=True)
class Published:
    """Figures that a paper prints for a method on a set, by the names of the measures."""

    data: str
    method: str
    figures: Mapping[str, float | str]


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper: what it shows, what is run for it, what is known about it.

    `measures` are the columns, `digits` the decimals of those that need others than 3. Where
    `mean` is given it names further lines: the means over all data. `pictures` are drawn from the
    same rows.
    """

    name: str
    title: str
    measures: Sequence[str]
    trials: Sequence[Trial] = ()
    published: Sequence[Published] = ()
    notes: Sequence[str] = ()
    digits: Mapping[str, int] = field(default_factory=dict)
    missing: str = ""  # why nothing was run
    mean: str = ""
    pictures: Sequence[Picture] = ()


def trials(
    table: str,
    problems: Sequence[Problem],
    settings: Mapping[str, BaseEstimator | None],
    measure: Measure,
    repeats: int = 1,
) -> Iterator[Trial]:
    """Every setting on every problem, repeat by repeat, so that a run cut short compares them."""
    for repeat in range(repeats):
        for problem in problems:
            for setting, model in settings.items():
                yield Trial(table, problem, setting, model, measure, repeat)


def mean_published(rows: Sequence[Published], name: str) -> list[Published]:
    """The mean of each method over the sets that all methods have figures for.

    >>> rows = [Published("a", "m", {"AUC": 0.8}), Published("b", "m", {"AUC": 0.9})]
    >>> round(mean_published(rows, "mean")[0].figures["AUC"], 3)
    0.85
    """
    found = []
    for method in dict.fromkeys(row.method for row in rows):
        here = [row.figures for row in rows if row.method == method]
        means = {m: round(sum(float(f[m]) for f in here) / len(here), 3) for m in here[0]}
        found.append(Published(name, method, means))
    return found
