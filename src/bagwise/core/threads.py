"""One BLAS thread for small problems, where several cost more than they give.

Libraries such as OpenBLAS cut every product of matrices into parts for all cores. For the small
matrices of most fits, waking threads takes longer than the product, and they keep cores busy while
they wait: a fit of 60 bags took three times as long.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController

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
    limit = ExitStack()
    with _CHANGING:
        blas = _blas()
        # Most limits hold for the whole process: what another thread has limited, it will lift,
        # and this one must not take its limit for what was set before and leave it behind.
        if any(library["num_threads"] > 1 for library in blas.info()):
            limit.enter_context(blas.limit(limits=1))
    try:
        yield
    finally:
        with _CHANGING:
            limit.close()


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    """Made once: looking through all loaded libraries takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")
