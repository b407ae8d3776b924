"""Where parts are: which of them each thread of the workers has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

FRESH = 1.0  # seconds in which passes take it that parts are where they were: Dask looks anyway
KEPT = 0.1  # seconds for which results of passes are kept, to be let go of together

Slot = tuple[str, int]  # a worker and one of its threads; of parts that are nowhere yet, "", number
Groups = dict[Slot, list[int]]  # numbers of parts
Ask = Callable[..., list[Any]]  # questions to the scheduler


@dataclass(frozen=True)
class _Known:
    """Which parts each thread has, and when workers were asked what they have."""

    keys: list[str]
    groups: Groups
    seconds: float


class Placement:
    """What quick passes of one client know of earlier ones."""

    def __init__(self) -> None:
        self._known: _Known | None = None
        # When a pass began, and its futures. A client sends messages at most each 10 ms, and what
        # quick passes ask for must not wait behind the news that results of the last one may go.
        self._passes: list[tuple[float, list[Any]]] = []
        self._lock = threading.Lock()  # fits that go on side by side may ask from their threads

    def groups(self, ask: Ask, parts: Sequence[Any]) -> Groups:
        """Parts by the worker that has them, in as many groups as it has threads.

        So no pass leaves tasks in waiting, which Dask would take, with their data, to others. The
        task of a worker that is lost needs all its parts in one place until the pass is over.
        """
        keys, now, known = [part.key for part in parts], time.monotonic(), self._known
        if known is not None and known.keys == keys and now < known.seconds + FRESH:
            return known.groups
        where, threads = ask(("who_has", list(parts)), ("nthreads",))
        groups = shared_out(keys, where, threads)
        if all(where.get(key) for key in keys):  # the others are about to be somewhere
            self._known = _Known(keys, groups, now)
        return groups

    def keep(self, futures: list[Any]) -> None:
        """Keep what a pass has asked for until another one has been, a while later."""
        now = time.monotonic()
        with self._lock:
            if self._passes and now >= self._passes[0][0] + KEPT:
                self._passes.clear()
            self._passes.append((now, futures))


def shared_out(keys: Sequence[str], where: dict[str, Any], threads: dict[str, int]) -> Groups:
    """Numbers of the parts of each thread; parts that are nowhere yet by themselves.

    >>> shared_out(list("abc"), {"a": ["A"], "b": ["A"], "c": ()}, {"A": 1})
    {('A', 0): [0, 1], ('', 2): [2]}
    """
    of_workers: dict[str, list[int]] = {}
    groups: Groups = {}
    for i, key in enumerate(keys):
        if holders := where.get(key):
            of_workers.setdefault(holders[0], []).append(i)
        else:
            groups["", i] = [i]
    for worker, mine in of_workers.items():
        n = min(threads.get(worker, 1), len(mine))
        groups |= {(worker, k): mine[k::n] for k in range(n)}
    return dict(sorted(groups.items(), key=lambda item: item[1]))
