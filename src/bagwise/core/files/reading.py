"""What all readers of files have in common: one family of errors, and regular files alone."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

LARGE = 2**28  # bytes, beyond which no measurements pack better than
MAX_EXPANSION = 100


class UnreadableFileError(ValueError):
    """A file is damaged, crafted or not what it is taken for; the message says what to do.

    Every reader of bagwise raises an error of this family, whatever its bytes are.
    """


def check_regular(path: str | os.PathLike[str], error: type[UnreadableFileError]) -> None:
    """Raise unless `path` is a regular file: to open a pipe is to wait for a writer."""
    name = os.fspath(path)
    if os.path.isdir(name):
        raise IsADirectoryError(f"{name} is a folder; give a file")
    if not os.path.exists(name):
        raise FileNotFoundError(f"no file {name}; check the path")
    if not os.path.isfile(name):
        raise error(f"{name} is a pipe, a device or a socket; give a regular file")


def most_unpacked(stored: int) -> int:
    """Bytes that `stored` bytes of packed measurements may unpack to; crafted ones are more.

    >>> most_unpacked(10), most_unpacked(2**30) // 2**30
    (268435456, 100)
    """
    return max(LARGE, MAX_EXPANSION * stored)


@contextmanager
def one_error(
    path: str | os.PathLike[str], error: type[UnreadableFileError], what: str
) -> Iterator[None]:
    """Errors of other libraries about the bytes of a file as one of ours.

    Libraries raise a dozen kinds of them on damaged bytes; for the caller they mean the same.
    What the system says of the file (it may not be read, the disk fails) stays as it is.

    >>> with one_error("a.png", UnreadableFileError, "it is no picture"):
    ...     raise KeyError("strips")
    Traceback (most recent call last):
    ...
    bagwise.core.files.reading.UnreadableFileError: cannot read a.png: it is no picture (KeyError: 'strips')
    """  # noqa: E501
    try:
        yield
    except UnreadableFileError:
        raise
    except Exception as fault:
        # Places before the beginning of a file, which damaged ones name, are EINVAL.
        if isinstance(fault, OSError) and fault.errno not in (None, errno.EINVAL):
            raise
        why = " ".join(f"{type(fault).__name__}: {fault}".split())
        raise error(f"cannot read {os.fspath(path)}: {what} ({why:.200})") from fault
