"""Bytes of a text table, checked while they are read: line length, encoding, binary content."""

from __future__ import annotations

import codecs
import gzip
import io
import math
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from bagwise.bags.messages import ROW, InputError
from bagwise.core.files.reading import UnreadableFileError

# A line of 100 000 features takes about 2 MB. Anything far above is not a table, and reading it
# to its end would fill the memory.
MAX_LINE_BYTES = 16 * 2**20
_BLOCK_BYTES = 2**20
_BOM = b"\xef\xbb\xbf"


class TableError(InputError, UnreadableFileError):
    """A table cannot be read as bags; the message says where and what to do."""


@dataclass(frozen=True)
class Places:
    """Rows of a table: by line where each row is one line of text, else counted from 0.

    >>> Places("t.csv", lines=True).of(0), Places("t.parquet", lines=False).of(0)
    ('line 2', 'data row 0 (0-based)')
    """

    name: str
    lines: bool

    def of(self, row: int) -> str:
        """The place of a row, counted from 0."""
        return f"line {row + 2}" if self.lines else f"data row {row} (0-based)"

    def error(self, error: Exception) -> TableError:
        """An error about arrays as one about the file that they come from."""
        if isinstance(error, TableError):
            return error
        if not isinstance(error, InputError):
            return TableError(f"{self.name}: {one_line(error)}")
        place = "" if error.row is None else self.of(error.row)
        return TableError(f"{self.name}: {error.text.replace(ROW, place)}", argument=error.argument)


def one_line(error: BaseException) -> str:
    """The message of an error on one line."""
    return " ".join(str(error).split())


@contextmanager
def open_source(path: str) -> Iterator[BinaryIO]:
    """The bytes of a file, unzipped if it is gzip; `-` is standard input."""
    if path == "-":
        yield _unzipped(io.BufferedReader(cast(io.RawIOBase, sys.stdin.buffer)))
        return
    with open(path, "rb") as file:
        yield _unzipped(file)


def _unzipped(file: io.BufferedReader) -> BinaryIO:
    if file.peek(2)[:2] == b"\x1f\x8b":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    return file


class CheckedText(io.RawIOBase):
    """The bytes of a source, which fail with the line number where they are no text table.

    They are at most `most` bytes, or else no honest table.

    >>> source = CheckedText(io.BytesIO(b"a,b\\n1,\\xff\\n"), "t.csv")
    >>> source.read()
    Traceback (most recent call last):
    ...
    bagwise.io.streams.TableError: t.csv, line 2: not UTF-8 text (byte 0xff); ...
    """

    def __init__(self, source: BinaryIO, name: str, most: float = math.inf) -> None:
        super().__init__()
        self._most = most
        self._size = 0
        self._source = source
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._line = 1
        self._run = 0  # bytes since the last line end
        self._started = False

    @property
    def n_lines(self) -> int:
        """Lines read so far, the last one also without its end."""
        return self._line - (self._run == 0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = min(len(buffer), _BLOCK_BYTES)
        block = self._read(size)
        if not self._started and block:
            self._started = True
            while len(block) < 3 and (more := self._read(size - len(block))):
                block += more
            if block.startswith(_BOM):
                block = block[3:] or self._read(size)
        self._check(block)
        buffer[: len(block)] = block
        return len(block)

    def _read(self, size: int) -> bytes:
        try:
            block = self._source.read(size) if size else b""
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TableError(
                f"{self._name}: the gzip data is damaged ({error}); copy the file again"
            ) from error
        self._size += len(block)
        if self._size > self._most:
            raise TableError(
                f"{self._name} unpacks to more than {self._most} bytes, which no table of "
                "measurements does; it is damaged or crafted"
            )
        return block

    def _check(self, block: bytes) -> None:
        if (nul := block.find(b"\x00")) >= 0:
            line = self._line + block.count(b"\n", 0, nul)
            raise TableError(
                f"{self._name}, line {line}: not a text table (it has NUL bytes); Parquet and "
                "Feather files need their endings .parquet and .feather, text must be UTF-8"
            )
        self._check_utf8(block)
        for i, piece in enumerate(_pieces(block)):
            self._run = len(piece) + (self._run if i == 0 else 0)
            if self._run > MAX_LINE_BYTES:
                line = self._line + block[: block.find(piece)].count(b"\n")
                raise TableError(
                    f"{self._name}, line {line}: longer than {MAX_LINE_BYTES / 2**20:g} MiB, "
                    "which is no table of one row per line; check line ends and quotes"
                )
        self._line += block.count(b"\n")

    def _check_utf8(self, block: bytes) -> None:
        try:
            self._decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            line = self._line + error.object.count(b"\n", 0, error.start)
            raise TableError(
                f"{self._name}, line {line}: not UTF-8 text (byte 0x{error.object[error.start]:02x}"
                "); save the table as UTF-8, e.g. with iconv -f LATIN1 -t UTF-8"
            ) from error


def _pieces(block: bytes) -> list[bytes]:
    """Parts between line ends; of a block shorter than the limit only the first and last count."""
    if len(block) > MAX_LINE_BYTES:
        return block.split(b"\n")
    first, last = block.find(b"\n"), block.rfind(b"\n")
    return [block] if first < 0 else [block[:first], block[last + 1 :]]


def check_distinct(header: Sequence[str], name: str) -> None:
    """Refuse a table in which a column stands twice."""
    if len(set(header)) < len(header):
        twice = next(name for name, count in Counter(header).items() if count > 1)
        if not twice.strip():
            raise TableError(
                f"{name} has several columns without a name in its first line, which must name all "
                "columns; delete empty columns, and lines above the names such as a title"
            )
        raise TableError(
            f"{name} has the column {twice!r:.80} twice; names must be distinct: rename one"
        )
