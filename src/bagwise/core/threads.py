"""One BLAS thread for small problems, where several cost more than they give.

Libraries such as OpenBLAS cut every product of matrices into parts for all cores. For the small
matrices of most fits, waking threads takes longer than the product, and they keep cores busy while
they wait: a fit of 60 bags took three times as long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from typing import Any, TypeVar

from joblib import effective_n_jobs
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController

T = TypeVar("T")

# Multiplications of one pass over the data from which on threads are left alone. Below, a fit takes
# seconds on one core; several gain half of that at best, where nothing else runs, and cost several
# times as much where something does (benchmarks/threads.py).
SMALL_WORK = 1e9


_CHANGING = threading.Lock()


@contextmanager
def suitable_threads(n_rows: int, n_features: int, n_basis: int) -> Iterator[None]:
    """One BLAS thread for the work inside where it is small; else whatever is set.

    `n_rows` instances of `n_features` are mapped to `n_basis` features of a model. Limits that were
    set before are never raised, and are in force again afterwards.
    """
    if n_rows * n_basis * (n_basis + n_features) >= SMALL_WORK:
        yield
        return
    with _at_most(1):
        yield


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


def at_once(
    calls: Sequence[Callable[[], T]], errors: tuple[type[Exception], ...] = ()
) -> Sequence[Callable[[], T]]:
    """Independent calls, or ones that hand out what these found, or which of `errors` ended them.

    They are done at once where joblib was told to, as by ``joblib.parallel_config(n_jobs=2)``. Its
    processes have no more BLAS threads than this one.

    >>> [call() for call in at_once([lambda: 1, lambda: 2])]
    [1, 2]
    """
    if effective_n_jobs(None) == 1:
        return calls
    n_threads = min((library["num_threads"] for library in _blas().info()), default=1)
    done = Parallel()(delayed(_outcome)(call, errors, n_threads) for call in calls)
    return [partial(_hand_out, *outcome) for outcome in done]


def _outcome(
    call: Callable[[], T], errors: tuple[type[Exception], ...], n_threads: int
) -> tuple[T | None, Exception | None]:
    try:
        with _at_most(n_threads):
            return call(), None
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
