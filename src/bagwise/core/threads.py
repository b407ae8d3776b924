"""One BLAS thread for small problems, and one for each chunk of the data of large ones.

Libraries such as OpenBLAS cut every product of matrices into parts for all cores. For the small
matrices of most fits, waking threads takes longer than the product, and they keep cores busy while
they wait: a fit of 60 bags took three times as long. In large fits it is the data that are cut:
what is done with a chunk between its products is then done on all cores too.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController

# Multiplications of one pass over the data from which on there are several threads. Below, a fit
# takes seconds on one core; several gain half of that at best, where nothing else runs, and cost
# several times as much where something does (benchmarks/threads.py).
SMALL_WORK = 1e9
AHEAD = 2  # results for each thread that may wait for those before them

R = TypeVar("R")


_CHANGING = threading.Lock()


def _new_lock() -> None:
    """A child process has no thread that would let go of the lock it was forked with."""
    global _CHANGING
    _CHANGING = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


# How many threads may work on chunks: BLAS itself has one where this is more than one.
_CHUNKS_AT_ONCE: ContextVar[int] = ContextVar("_CHUNKS_AT_ONCE", default=0)


@contextmanager
def suitable_threads(
    n_rows: int, n_features: int, n_basis: int, *, by_chunk: bool = False
) -> Iterator[None]:
    """One BLAS thread for the work inside where it is small; else whatever is set.

    `n_rows` instances of `n_features` are mapped to `n_basis` features of a model. Limits that were
    set before are never raised, and are in force again afterwards. Work `by_chunk` is done by
    `in_threads`, on as many threads as BLAS would have.
    """
    small = n_rows * n_basis * (n_basis + n_features) < SMALL_WORK
    if not small and not by_chunk:
        yield
        return
    token = _CHUNKS_AT_ONCE.set(1 if small else _CHUNKS_AT_ONCE.get() or _set_now())
    try:
        with _at_most(1):
            yield
    finally:
        _CHUNKS_AT_ONCE.reset(token)


def in_threads(work: Callable[[int], R], n: int) -> Iterator[R]:
    """work(0), ..., work(n - 1), in order, on the threads that `suitable_threads` has set aside.

    >>> list(in_threads(lambda i: i**2, 4))
    [0, 1, 4, 9]
    """
    threads = min(n, _CHUNKS_AT_ONCE.get())
    if threads < 2:
        yield from map(work, range(n))
        return

    ignored = np.geterr()  # here is ignored there too

    def alone(i: int) -> R:
        _CHUNKS_AT_ONCE.set(1)
        with np.errstate(**ignored):
            return work(i)

    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for i in range(n):
                waiting.append(pool.submit(alone, i))
                if len(waiting) > AHEAD * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # an error, or Ctrl-C
            for future in waiting:
                future.cancel()


def _set_now() -> int:
    """The most threads that any BLAS may have."""
    with _CHANGING:
        return max((library["num_threads"] for library in _blas().info()), default=1)


@contextmanager
def _at_most(n_threads: int) -> Iterator[None]:
    """No more BLAS threads than these."""
    limit = ExitStack()
    with _CHANGING:
        blas = _blas()
        # Most limits hold for the whole process: what another thread has limited, it will lift,
        # and this one must not take its limit for what was set before and leave it behind.
        if any(library["num_threads"] > n_threads for library in blas.info()):
            limit.enter_context(blas.limit(limits=n_threads))
    try:
        yield
    finally:
        with _CHANGING:
            limit.close()


Helper = Callable[[Callable[..., Any], Sequence[Any], tuple[Any, ...]], Sequence[Callable[[], Any]]]

# Who does independent calls instead of this process, such as the workers that hold its data.
_HELPER: ContextVar[Helper | None] = ContextVar("_HELPER", default=None)


@contextmanager
def helped_by(helper: Helper | None) -> Iterator[None]:
    """Calls of `at_once` in this context are done by `helper(work, items, common)`, if any.

    It begins work(item, *common) for all items, and returns functions that wait for each.
    """
    before = _HELPER.set(helper)
    try:
        yield
    finally:
        _HELPER.reset(before)


def at_once(
    work: Callable[..., R],
    items: Sequence[Any],
    common: tuple[Any, ...] = (),
    errors: tuple[type[Exception], ...] = (),
    effort: Callable[[Any], float] = lambda item: 0.0,
) -> Sequence[Callable[[], R]]:
    """Calls of work(item, *common) for all items, or ones that hand out what these found.

    They are done at once by a helper (`helped_by`), or where joblib was told to, as by
    ``joblib.parallel_config(n_jobs=2)``: all from the first on that is asked for. Those before it
    may have been done in a fit that goes on. Those with the most `effort` are begun first, so that
    nobody is left with a long one at the end. One of `errors` that ended a call is raised when that
    is asked for. Other processes have no more BLAS threads than this one.

    >>> [call() for call in at_once(divmod, [7, 8], (3,))]
    [(2, 1), (2, 2)]
    """
    begin = _HELPER.get() or (None if effective_n_jobs(None) == 1 else _by_joblib)
    if begin is None:
        return [partial(work, item, *common) for item in items]
    n_threads = min((library["num_threads"] for library in _blas().info()), default=1)
    watched = partial(_outcome, work, errors, n_threads)
    begun: dict[int, Callable[[], Any]] = {}

    def found(i: int) -> R:
        if i not in begun:
            order = sorted(range(i, len(items)), key=lambda j: -effort(items[j]))
            calls = begin(watched, [items[j] for j in order], common)
            begun.update(zip(order, calls, strict=True))
        return _hand_out(*begun[i]())

    return [partial(found, i) for i in range(len(items))]


def _by_joblib(
    work: Callable[..., R], items: Sequence[Any], common: tuple[Any, ...]
) -> Sequence[Callable[[], R]]:
    done = Parallel()(delayed(work)(item, *common) for item in items)
    return [partial(_hand_out, result, None) for result in done]


def _outcome(
    work: Callable[..., R], errors: tuple[type[Exception], ...], n_threads: int, *told: Any
) -> tuple[R | None, Exception | None]:
    try:
        with _at_most(n_threads):
            return work(*told), None
    except errors as error:
        return None, error


def _hand_out(result: Any, error: Exception | None) -> Any:
    if error is not None:
        raise error
    return result


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    """Made once: looking through all loaded libraries takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")
