"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

LONGEST_START = 233  # bytes, so that no temporary name has more than 255


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block succeeds, and vanishes if not.

    With `overwrite=False` an existing file stays as it is and FileExistsError is raised, also if
    it appeared while the block ran. A file that is replaced keeps its permissions.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder) / "a.txt"
    ...     with atomic_file(target) as file:
    ...         _ = file.write(b"whole")
    ...     target.read_bytes(), os.listdir(folder)
    (b'whole', ['a.txt'])
    """
    target = check_target(path, overwrite=overwrite)
    temporary = target.with_name(f"{_temporary_start(target)}{secrets.token_hex(8)}.tmp")
    # Not tempfile: its files are readable by the owner alone, whatever the umask says.
    file = open(temporary, "xb")  # noqa: SIM115
    try:
        with file:
            yield file
            file.flush()
            _keep_mode(temporary, target)
            os.fsync(file.fileno())
        _put_in_place(temporary, target, overwrite)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(target.parent)


def check_target(path: str | os.PathLike[str], *, overwrite: bool = True) -> Path:
    """The file that `path` stands for, links followed; an error where none can be written there.

    Call it before long work whose result goes there.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"no directory {target.parent}; make it before saving {target.name}"
        )
    with suppress(FileNotFoundError):
        os.lstat(target)  # raises what the system has against the name
    if not overwrite:
        refuse_existing(target)
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)} is a folder; name a file to write")
    if os.path.lexists(target) and not target.is_file():
        raise FileExistsError(
            f"{os.fspath(path)} is a device, a pipe or a socket, which a file would take the place "
            "of; name a regular file"
        )
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(
            f"{target.parent} may not be written; choose another folder for {target.name}"
        )
    return target


def check_result(
    path: str | os.PathLike[str],
    sources: Sequence[str | os.PathLike[str] | None],
    *,
    overwrite: bool,
) -> None:
    """`check_target` for a result of files, if any, that it must not take the place of."""
    target = check_target(path, overwrite=overwrite)
    for source in sources:
        if (
            source is not None
            and os.path.exists(source)
            and os.path.realpath(source) == os.fspath(target)
        ):
            raise FileExistsError(
                f"{os.fspath(path)} is what is read here, and writing there would destroy it; "
                "choose another name for the result"
            )


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Delete what a killed process left behind of a file that it was writing to `path`.

    Call it only where no other process writes the same file.
    """
    target = Path(os.path.realpath(path))
    name = re.compile(re.escape(_temporary_start(target)) + r"[0-9a-f]{16}\.tmp")
    with suppress(OSError):
        for entry in os.scandir(target.parent):
            if name.fullmatch(entry.name):
                os.unlink(entry.path)


def _temporary_start(target: Path) -> str:
    """How names of what is being written begin; a long name is cut, since names have limits."""
    return f".{os.fsencode(target.name)[:LONGEST_START].decode('utf-8', 'ignore')}."


class KeptFileError(FileExistsError):
    """A file is there already and is kept, since nobody said that it may be overwritten."""


def refuse_existing(path: str | os.PathLike[str]) -> None:
    """Raise FileExistsError where there is something already."""
    if os.path.lexists(path):
        raise KeptFileError(
            f"{os.fspath(path)} exists and is not overwritten; choose another name, or pass "
            "overwrite=True"
        )


def _keep_mode(temporary: Path, target: Path) -> None:
    """A private file stays private when it is written again."""
    with suppress(OSError):
        os.chmod(temporary, target.stat().st_mode & 0o777)  # not who it runs as


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
