"""A Dask client that names the part that fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from bagwise.core.linalg import BREAKDOWNS
from bagwise.distributed.faults import (
    RETRIES,
    BrokenPartError,
    LonelyError,
    PartError,
    PartFault,
    failure,
    last_attempt,
)
from bagwise.distributed.placement import Groups, Placement

POLL = 5.0  # seconds between looks at whether there are workers at all, and at stuck tasks
PATIENCE = 300.0  # seconds without a worker, or an answer of the scheduler, after which a fit ends

_CONFIGURING = threading.Lock()


def check_client(client: Any) -> Any:
    """A Dask client."""
    if not (hasattr(client, "submit") and hasattr(client, "gather")):
        raise TypeError(
            "DaskBags need a Dask client: client=Client(...) from dask.distributed, "
            f"got client={client!r}"
        )
    if is_closed(client):
        raise ValueError("the Dask client is closed; connect again: client=Client(...)")
    return client


def is_closed(client: Any) -> bool:
    """Whether a client was closed: its methods fail in many ways then."""
    return getattr(client, "status", "") in ("closing", "closed")


@dataclass(frozen=True)
class Cluster:
    """A client, with the names of parts for errors."""

    client: Any
    names: tuple[str, ...]
    kind: str = "part"  # of what is named
    _placement: Placement = field(default_factory=Placement, init=False, repr=False, compare=False)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The future of a call, which is tried again where it fails."""
        self._check_open()
        return self.client.submit(function, *arguments, pure=False, retries=RETRIES)

    def deal(self, calls: Sequence[Callable[..., Any]], *arguments: Any) -> list[Any]:
        """Futures of one call for each part, the same number for each thread of the workers.

        What is computed from a result is computed where the result is, so that this balances
        all later work. Dask by itself places calls that look short as they come.
        """
        return self._dealt(self._slots(), calls, *arguments)

    def _slots(self) -> list[str]:
        """The worker of each thread."""
        return [w for w, threads in self.threads().items() for _ in range(threads)]

    def _dealt(
        self, slots: list[str], calls: Sequence[Callable[..., Any]], *told: Any
    ) -> list[Any]:
        return [
            self.client.submit(
                call,
                *told,
                workers=[slots[i % len(slots)]] if slots else None,
                allow_other_workers=bool(slots),  # if the worker is lost
                pure=False,
                retries=RETRIES,
            )
            for i, call in enumerate(calls)
        ]

    def threads(self) -> dict[str, int]:
        """The workers there are, each with its number of threads."""
        found: dict[str, int] = self._ask(("nthreads",))[0]
        return found

    def gather(self, futures: Sequence[Any], parts: Sequence[int] | None = None) -> list[Any]:
        """Results in order, of all parts or of the given ones; a part that fails is named."""
        numbers = range(len(futures)) if parts is None else parts
        with self.naming([(f, [i]) for f, i in zip(futures, numbers, strict=True)]):
            return self.results(futures)

    def at_once(
        self, work: Callable[..., Any], items: Sequence[Any], common: tuple[Any, ...]
    ) -> list[Callable[[], Any]]:
        """Begin work(item, *common) for all items; functions that wait for each.

        What they have in common is sent once, as a task: if its worker is lost, another has it.
        """
        function = work.args[0] if isinstance(work, partial) else work
        own = replace(self, names=(function.__name__,) * len(items), kind="call")
        calls, slots = [partial(_with_common, work, item) for item in items], own._slots()
        with _large_messages():
            shared = own.submit(same, common)
            futures = own._dealt(slots, calls, shared)
        return [partial(own._one, future, i) for i, future in enumerate(futures)]

    def _one(self, future: Any, i: int) -> Any:
        return self.gather([future], [i])[0]

    def map(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        """Futures of calls of a pass, each with its own of all arguments."""
        with _large_messages():
            futures: list[Any] = self.client.map(function, *arguments, pure=False, retries=RETRIES)
        self._placement.keep(futures)
        return futures

    def groups(self, parts: Sequence[Any]) -> Groups:
        """Numbers of the parts that each thread has."""
        return self._placement.groups(self._ask, parts)

    @contextmanager
    def naming(self, work: Sequence[tuple[Any, list[int]]]) -> Iterator[None]:
        """Errors name the parts of the first of some futures that failed."""
        try:
            yield
        except PartError:
            raise
        except PartFault as fault:
            i, last, broke_down = fault.args
            if broke_down:
                raise BrokenPartError(last_attempt(self._named([i]), last)) from fault
            raise PartError(last_attempt(self._named([i]), last)) from fault
        except (Exception, asyncio.CancelledError) as error:
            if failed := [parts for future, parts in work if future.status == "error"]:
                if isinstance(error, BREAKDOWNS):
                    raise BrokenPartError(failure(self._named(failed[0]), error)) from error
                raise PartError(failure(self._named(failed[0]), error)) from error
            gone = [parts for future, parts in work if future.status in ("cancelled", "lost")]
            lost = isinstance(error, OSError | asyncio.CancelledError) or is_closed(self.client)
            if not gone and not lost:
                raise
            parts = gone[0] if gone else work[0][1]
            raise PartError(
                f"what the workers kept of {self._named(parts)} is gone: the scheduler was lost or "
                "restarted, or the client closed; connect again and fit anew, or with resume= from "
                "a checkpoint"
            ) from error

    def _named(self, parts: list[int]) -> str:
        names = [f"{self.kind} {i} ({self.names[i]})" for i in parts]
        return names[0] if len(names) == 1 else f"one of {', '.join(names)}"

    def _ask(self, *questions: tuple[Any, ...]) -> list[Any]:
        """What the scheduler answers to methods of the client; it may be stopped, or gone."""
        self._check_open()
        try:
            found: list[Any] = self.client.sync(self._answers, questions)
            return found
        except TimeoutError as error:
            raise LonelyError(
                f"the Dask scheduler has not answered for {PATIENCE:.0f} seconds; see whether it "
                "runs, and fit anew, or with resume= from a checkpoint"
            ) from error

    def _check_open(self) -> None:
        if is_closed(self.client):
            raise PartError(
                "the Dask client was closed; connect again and fit anew, or with resume= from a "
                "checkpoint"
            )

    async def _answers(self, questions: Sequence[tuple[Any, ...]]) -> list[Any]:
        return await asyncio.gather(*(self._answer(PATIENCE, *q) for q in questions))

    async def _answer(self, seconds: float, method: str, *arguments: Any) -> Any:
        return await asyncio.wait_for(getattr(self.client, method)(*arguments), seconds)

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """What futures find, in order."""
        found: list[Any] = self.client.sync(self._collect, list(futures))
        return found

    async def _collect(self, futures: list[Any]) -> list[Any]:
        """Results; tasks wait as long as there are workers, but not for ever without any."""
        results = asyncio.ensure_future(self.client.gather(futures))
        alone = 0.0
        try:
            while not (await asyncio.wait([results], timeout=POLL))[0]:
                more = await self._seconds_alone()
                alone = alone + more if more else 0.0
                if alone == 0:
                    await self._free_stuck_tasks()
                if alone >= PATIENCE:
                    raise LonelyError(
                        f"there has been no Dask worker for {alone:.0f} seconds, or no scheduler "
                        "that answers; start them and fit anew, or with resume= from a checkpoint"
                    )
            return list(results.result())
        finally:
            results.cancel()  # after Ctrl-C nobody waits for them

    async def _free_stuck_tasks(self) -> None:
        """Let tasks of workers that are gone run elsewhere.

        Dask looks once whether a task may run on others than the worker that it was dealt to. If
        there is no worker at all at that moment, since they are just being started again, the task
        waits for that address for ever.
        """
        with suppress(OSError, RuntimeError, ValueError):  # a scheduler that runs nothing of ours
            await self._answer(POLL, "run_on_scheduler", _free_stuck)

    async def _seconds_alone(self) -> float:
        """How long there was no worker since the last look; 0 if there is one."""
        try:
            return 0.0 if await self._answer(POLL, "nthreads") else POLL
        except TimeoutError:
            return 2 * POLL  # until the last look, and waiting for this one
        except Exception:  # nobody is there to answer
            return POLL


def _free_stuck(dask_scheduler: Any) -> None:
    stuck = [task for task in dask_scheduler.unrunnable if task.loose_restrictions]
    for task in stuck:
        task.worker_restrictions = None
    runnable = {task.key: "processing" for task in stuck}
    dask_scheduler.transitions(runnable, stimulus_id="bagwise-free-stuck")


@contextmanager
def _large_messages() -> Iterator[None]:
    """Dask warns of messages above 10 MB, which posteriors and samples of bags may be."""
    import dask

    # Threads that put back what another had changed would leave it changed.
    with _CONFIGURING, dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
        yield


def same(values: Any) -> Any:
    """What is sent to a worker, as a result there."""
    return values


def _with_common(work: Callable[..., Any], item: Any, common: tuple[Any, ...]) -> Any:
    return work(item, *common)
