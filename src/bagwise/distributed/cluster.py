"""A Dask client that names the part that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

RETRIES = 3  # of a part that fails, on any worker
POLL = 20.0  # seconds between looks at whether there are workers at all
PATIENCE = 300.0  # seconds without any worker after which a fit gives up


class PartError(RuntimeError):
    """A part of distributed bags failed on its workers, again and again."""


class LonelyError(PartError):
    """A cluster has had no workers for long."""


def check_client(client: Any) -> Any:
    """A Dask client."""
    if not (hasattr(client, "submit") and hasattr(client, "gather")):
        raise TypeError(
            "DaskBags need a Dask client: client=Client(...) from dask.distributed, "
            f"got client={client!r}"
        )
    return client


@dataclass(frozen=True)
class Cluster:
    """A client, with the names of parts for errors."""

    client: Any
    names: tuple[str, ...]

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The future of a call, which is tried again where it fails."""
        return self.client.submit(function, *arguments, pure=False, retries=RETRIES)

    def deal(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Futures of one call for each part, the same number for each thread of the workers.

        What is computed from a result is computed where the result is, so that this balances
        all later work. Dask by itself places calls that look short as they come.
        """
        slots = [w for w, threads in self.client.nthreads().items() for _ in range(threads)]
        return [
            self.client.submit(
                call,
                workers=[slots[i % len(slots)]] if slots else None,
                allow_other_workers=bool(slots),  # if the worker is lost
                pure=False,
                retries=RETRIES,
            )
            for i, call in enumerate(calls)
        ]

    def gather(self, futures: Sequence[Any], parts: Sequence[int] | None = None) -> list[Any]:
        """Results in order; a part that keeps failing is named."""
        results = []
        for k, future in enumerate(futures):
            try:
                results.append(self._wait_for(future))
            except LonelyError:
                raise
            except Exception as error:
                i = k if parts is None else parts[k]
                if type(error).__name__ in ("CancelledError", "FutureCancelledError"):
                    raise PartError(
                        f"what the workers kept of part {i} ({self.names[i]}) is gone: the "
                        "scheduler was lost or restarted, or the client closed; connect again and "
                        "fit anew, or with resume= from a checkpoint"
                    ) from error
                raise PartError(
                    f"part {i} ({self.names[i]}) failed on its workers {RETRIES + 1} times, the "
                    f"last time with {type(error).__name__}: {error}"
                ) from error
        return results

    def _wait_for(self, future: Any) -> Any:
        """A result; tasks wait as long as there are workers, but not for ever without any."""
        alone = 0.0
        while True:
            try:
                return future.result(timeout=POLL)
            except TimeoutError:
                if future.done():
                    raise  # the task's own
            alone = 0.0 if self._has_workers() else alone + POLL
            if alone >= PATIENCE:
                raise LonelyError(
                    f"there has been no Dask worker for {alone:.0f} seconds; start workers and "
                    "fit anew, or with resume= from a checkpoint"
                )

    def _has_workers(self) -> bool:
        try:
            return bool(self.client.nthreads())
        except Exception:  # nobody answers
            return False

    def total(self, futures: Sequence[Any]) -> Any:
        """The sum of all parts' results, in order."""
        return reduce(add, self.gather(futures))
