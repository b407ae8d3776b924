"""Where the features of a fit are kept: in memory, in a scratch file, or nowhere.

Every pass reads all N x M features once. They stay in memory if they fit the budget. If not,
they go to a scratch file that is mapped into memory: the system keeps in its cache what fits,
and reads the rest. Features that take less time to compute than to read are computed anew in
each pass, and so are those for which the scratch folder has no room.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.stats import Chunk
from bagwise.core.threads import in_threads

Array = NDArray[Any]

SMALL_BUDGET = 2**28  # 256 MiB: for data that are not in memory themselves
UNKNOWN_FREE = 2**32  # where the system does not say what is free
RECOMPUTE_BELOW = 64  # effort up to which features are computed faster than a disk reads them
ROOM_TO_SPARE = 1.05  # a scratch file must not fill its disk to the last block
_CGROUP = "/sys/fs/cgroup"


class ChunkSource(Protocol):
    """Computes chunks of features, in order or one by one."""

    effort: int  # columns read and made for one row
    feature_bytes: int  # of all N x M features

    def __len__(self) -> int: ...

    def chunk(self, i: int) -> Chunk:
        """Compute the i-th chunk."""


def store(source: ChunkSource, budget: int, *, recompute: bool) -> Sequence[Chunk]:
    """The chunks of a source, kept in the way that suits the budget.

    With `recompute=False` they are kept somewhere in any case.
    """
    how = plan(source, budget, recompute=recompute)
    if how == "memory":
        return list(in_threads(source.chunk, len(source)))
    return scratch_chunks(source) if how == "scratch" else RecomputedChunks(source)


def plan(source: ChunkSource, budget: int, *, recompute: bool = True) -> str:
    """ "memory", "scratch" or "recompute"."""
    if source.feature_bytes <= budget:
        return "memory"
    room = shutil.disk_usage(tempfile.gettempdir()).free > ROOM_TO_SPARE * source.feature_bytes
    if recompute and (source.effort <= RECOMPUTE_BELOW or not room):
        return "recompute"
    if not room:
        raise OSError(
            f"the features take {source.feature_bytes / 1e9:.1f} GB, more than memory_budget and "
            f"more than {tempfile.gettempdir()} has room for; raise memory_budget, lower "
            "n_inducing, or set TMPDIR to a folder with more room"
        )
    return "scratch"


class RecomputedChunks(Sequence[Chunk]):
    """Chunks that are computed when they are asked for."""

    def __init__(self, source: ChunkSource) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    @overload
    def __getitem__(self, i: int) -> Chunk: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Chunk]: ...
    def __getitem__(self, i: int | slice) -> Chunk | Sequence[Chunk]:
        n = len(self)
        if isinstance(i, slice):
            return [self._source.chunk(k) for k in range(*i.indices(n))]
        if not -n <= i < n:
            raise IndexError(f"chunk {i} of {n}")
        return self._source.chunk(i % n)

    def __iter__(self) -> Iterator[Chunk]:
        return (self._source.chunk(i) for i in range(len(self)))


def scratch_chunks(source: ChunkSource) -> list[Chunk]:
    """Chunks whose A is a view of a file that vanishes with the last of them."""
    # Written, not mapped: a full disk is then an error, where a mapped write would be fatal.
    handle, path = tempfile.mkstemp(prefix="bagwise-", suffix=".features")
    with os.fdopen(handle, "w+b") as file:
        # Open files and mappings outlive the name, and nothing is left if the process is killed.
        with suppress(OSError):  # some systems do not unlink open files
            os.unlink(path)
        chunks = list(_written(in_threads(source.chunk, len(source)), file))
        file.flush()
        mapped = np.memmap(file, dtype=chunks[0].A.dtype, mode="r")
    ends = np.cumsum([c.A.size for c in chunks])
    return [
        replace(c, A=np.asarray(mapped[end - c.A.size : end]).reshape(c.A.shape))
        for c, end in zip(chunks, ends.tolist(), strict=True)
    ]


def _written(chunks: Iterable[Chunk], file: Any) -> Iterator[Chunk]:
    """Write each A, and go on with a stand-in of its shape that takes no memory."""
    for chunk in chunks:
        np.ascontiguousarray(chunk.A).tofile(file)
        hollow = np.broadcast_to(np.zeros((), chunk.A.dtype), chunk.A.shape)
        yield replace(chunk, A=hollow)


def default_budget(elsewhere: bool) -> int:
    """Half of the free memory, or 256 MiB if the data themselves are not in memory."""
    return SMALL_BUDGET if elsewhere else free_memory() // 2


def free_memory() -> int:
    """Bytes that programs may still take, within the limits of a container."""
    free = _available()
    limit, used = (_number(f"{_CGROUP}/memory.{name}") for name in ("max", "current"))
    if limit is not None and used is not None:
        free = min(free, max(limit - used + _reclaimable(), 0))
    return free


def _available() -> int:
    with suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return UNKNOWN_FREE


def _reclaimable() -> int:
    """Cached file contents count as used memory and are dropped when it is needed."""
    with suppress(OSError, ValueError), open(f"{_CGROUP}/memory.stat", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("inactive_file "))
    return 0


def _number(path: str) -> int | None:
    with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        return int(file.read())
    return None
