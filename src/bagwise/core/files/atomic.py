"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block succeeds, and vanishes if not.

    With `overwrite=False` an existing file stays as it is and FileExistsError is raised, also if
    it appeared while the block ran.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder) / "a.txt"
    ...     with atomic_file(target) as file:
    ...         _ = file.write(b"whole")
    ...     target.read_bytes(), os.listdir(folder)
    (b'whole', ['a.txt'])
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"no directory {target.parent}; make it before saving {target.name}"
        )
    if not overwrite:
        refuse_existing(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    # Not tempfile: its files are readable by the owner alone, whatever the umask says.
    file = open(temporary, "xb")  # noqa: SIM115
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _put_in_place(temporary, target, overwrite)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(target.parent)


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Delete what a killed process left behind of a file that it was writing to `path`.

    Call it only where no other process writes the same file.
    """
    target = Path(os.path.realpath(path))
    name = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{16}\.tmp")
    with suppress(OSError):
        for entry in os.scandir(target.parent):
            if name.fullmatch(entry.name):
                os.unlink(entry.path)


class KeptFileError(FileExistsError):
    """A file is there already and is kept, since nobody said that it may be overwritten."""


def refuse_existing(path: str | os.PathLike[str]) -> None:
    """Raise FileExistsError where there is something already."""
    if os.path.lexists(path):
        raise KeptFileError(
            f"{os.fspath(path)} exists and is not overwritten; choose another name, or pass "
            "overwrite=True"
        )


def _put_in_place(temporary: Path, target: Path, overwrite: bool) -> None:
    if overwrite:
        os.replace(temporary, target)
        return
    try:
        os.link(temporary, target)  # fails if the target is there, in one step
    except FileExistsError:
        refuse_existing(target)
        raise
    except OSError:  # a file system without hard links: check, then rename
        refuse_existing(target)
        os.replace(temporary, target)
    else:
        temporary.unlink()


def _sync_directory(path: Path) -> None:
    # Makes the rename last through a power cut; some systems cannot open directories.
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
