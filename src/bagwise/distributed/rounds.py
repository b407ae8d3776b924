"""Passes over parts that workers have: a thread of theirs does all that is asked of it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

from bagwise.core.rounds import in_round
from bagwise.distributed.cluster import Cluster
from bagwise.distributed.faults import LonelyError, faults_of

Numbers = list[int]  # of parts
Found = dict[tuple[int, ...], Any]  # of the parts that each thread has


@dataclass(frozen=True)
class Pass:
    """function(numbers, parts), asked about some parts of a cluster at a time."""

    cluster: Cluster
    function: Callable[[Numbers, list[Any]], Any]
    parts: Sequence[Any]

    def made(self) -> Found:
        """What is found out about the parts of each thread, or an error that names some."""
        work: list[tuple[Any, Numbers]] = [(part, [i]) for i, part in enumerate(self.parts)]
        with self.cluster.naming(work):
            return made_at_once([self], work)[0]


def total(cluster: Cluster, function: Callable[[Any], Any], parts: Sequence[Any]) -> Any:
    """The sum of `function(part)` over all parts but those of which it finds None.

    Workers add up theirs, only sums travel.
    """
    asked = Pass(cluster, partial(_sum_over, function), parts)
    return _sum(in_round(made_in_one_round, asked).values())


def _sum(found: Iterable[Any]) -> Any:
    return reduce(add, (one for one in found if one is not None))


def each(
    cluster: Cluster,
    function: Callable[[Any, Any], Any],
    parts: Sequence[Any],
    told: Sequence[Any],
) -> list[Any]:
    """What `function(part, told)` finds out about each part."""
    asked = Pass(cluster, partial(_list_over, function, told), parts)
    of_groups = in_round(made_in_one_round, asked).items()
    found = {i: x for group, own in of_groups for i, x in zip(group, own, strict=True)}
    return [found[i] for i in range(len(parts))]


def made_in_one_round(asked: Sequence[Pass]) -> list[Callable[[], Found]]:
    """Calls that hand out what is found in passes of one client.

    If one of several fails, or a worker is lost, each is made by itself, which says whose part it
    was.
    """
    if len(asked) == 1:
        return [asked[0].made]
    try:
        return [partial(dict, found) for found in made_at_once(asked, [])]
    except LonelyError:
        raise
    except (Exception, asyncio.CancelledError):
        return [one.made for one in asked]


def made_at_once(asked: Sequence[Pass], work: list[tuple[Any, Numbers]]) -> list[Found]:
    """What passes find, whose parts each thread sees in one task; futures are added to `work`."""
    tasks: dict[Any, list[tuple[int, Numbers]]] = {}
    for k, one in enumerate(asked):
        for (worker, i), numbers in one.cluster.groups(one.parts).items():
            slot = (worker, i) if worker else (k, i)
            tasks.setdefault(slot, []).append((k, numbers))
    functions = [[asked[k].function for k, _ in task] for task in tasks.values()]
    groups = [[numbers for _, numbers in task] for task in tasks.values()]
    parts = [
        [[asked[k].parts[i] for i in numbers] for k, numbers in task] for task in tasks.values()
    ]
    cluster = asked[0].cluster
    futures = cluster.map(_several, functions, groups, parts)
    work += [(future, numbers) for future, (numbers, *_) in zip(futures, groups, strict=True)]
    found: list[Found] = [{} for _ in asked]
    for task, results in zip(tasks.values(), cluster.results(futures), strict=True):
        for (k, numbers), result in zip(task, results, strict=True):
            found[k][tuple(numbers)] = result
    return found


# --- What runs on workers -----------------------------------------------------------------------


def _several(functions: list[Any], numbers: list[Numbers], parts: list[list[Any]]) -> list[Any]:
    return [f(own, mine) for f, own, mine in zip(functions, numbers, parts, strict=True)]


def _sum_over(function: Callable[[Any], Any], numbers: Numbers, parts: list[Any]) -> Any:
    found = None
    for i, part in zip(numbers, parts, strict=True):
        with faults_of(i):
            own = function(part)
        found = own if found is None else found if own is None else found + own
    return found


def _list_over(
    function: Callable[[Any, Any], Any], told: Sequence[Any], numbers: Numbers, parts: list[Any]
) -> list[Any]:
    found = []
    for i, part in zip(numbers, parts, strict=True):
        with faults_of(i):
            found.append(function(part, told[i]))
    return found
