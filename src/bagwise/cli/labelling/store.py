"""Labels in an SQLite file: what was said is added, never changed, and is on disk when told so.

Each label, skip and undo is one event with an id that its sender made, so that sending it again
changes nothing. Events are committed one by one, in a write-ahead log that is flushed each time:
a process that is killed loses none that it has answered for.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from bagwise.core.files.reading import UnreadableFileError, check_regular

APPLICATION = 0x6261674C  # "bagL": how SQLite files of labels are known
VERSION = 1
LABELS = {"positive": 1.0, "negative": 0.0}
ACTIONS = (*LABELS, "skip", "undo")
PATIENCE = 10  # seconds in which another process must let go of the file

SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    event TEXT NOT NULL UNIQUE,
    annotator TEXT NOT NULL,
    time TEXT NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('positive', 'negative', 'skip', 'undo')),
    bag TEXT NOT NULL,
    position INTEGER NOT NULL,
    instance TEXT,
    features TEXT,
    undoes TEXT UNIQUE REFERENCES events (event)
);
"""
TABLES = {text.split()[2]: text.strip() for text in SCHEMA.split(";") if text.strip()}
# What SQLite says of the system and not of the bytes of a file.
OF_THE_SYSTEM = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
)


class LabelFileError(UnreadableFileError):
    """A file of labels is damaged, of another program, or about other data."""


class LabelStorageError(OSError):
    """The system does not let a file of labels be read or written at present."""


class RefusedEventError(ValueError):
    """An event contradicts those that are there."""


@dataclass(frozen=True)
class Event:
    """What somebody said of one instance, or took back."""

    event: str  # made by the sender
    annotator: str
    time: str  # UTC, ISO 8601
    action: str  # of ACTIONS
    bag: str
    position: int  # of the row in its bag, from 0
    instance: str | None = None  # its id, where the table has one
    features: str | None = None  # a digest of its features, where it has not
    undoes: str | None = None  # the event that is taken back
    number: int = 0  # in the order of arrival, given by the store

    def says_the_same(self, other: Event) -> bool:
        """Whether two events are one that was sent twice: the time is that of arrival."""
        return (self.event, self.annotator, self.action, self.bag, self.position, self.undoes) == (
            other.event, other.annotator, other.action, other.bag, other.position, other.undoes
        )  # fmt: skip


COLUMNS = tuple(f.name for f in fields(Event))


class LabelStore:
    """The events of one file, which several threads and processes may add to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with LabelStore(Path(folder) / "labels.sqlite", ["healthy", "tumour"]) as store:
    ...         sent = Event("e1", "ann", "2024-01-01T00:00:00Z", "positive", "s1", 0)
    ...         _ = store.add(sent), store.add(sent)  # once more: nothing happens
    ...         len(store.events())
    1
    """

    def __init__(self, path: str | os.PathLike[str], classes: Sequence[str] | None = None) -> None:
        """Open a file; with `classes`, negative and positive, one that is not there is made."""
        self.path = Path(path)
        if classes is None or os.path.lexists(path):
            check_regular(path, LabelFileError)
        for beside in ("-wal", "-journal", "-shm"):  # which SQLite opens too
            if os.path.exists(f"{self.path}{beside}"):
                check_regular(f"{self.path}{beside}", LabelFileError)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"no directory {self.path.parent}; make it first")
        self._lock = threading.Lock()
        with _one_error(self.path):
            self._base = sqlite3.connect(
                self.path.absolute(),  # SQLite keeps what is called :memory: in no file
                timeout=PATIENCE,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with _one_error(self.path):
                self._begin(classes)
        except BaseException:
            self._base.close()
            raise

    def _begin(self, classes: Sequence[str] | None) -> None:
        base = self._base
        base.execute("PRAGMA trusted_schema=OFF")
        found = (_pragma(base, "application_id"), _pragma(base, "user_version"))
        if found == (0, 0) and not base.execute("SELECT 1 FROM sqlite_master").fetchone():
            if classes is None:
                raise LabelFileError(f"{self.path} is empty: no labels were given there")
            self._create(classes)
        elif found[0] != APPLICATION:
            raise LabelFileError(f"{self.path} is a database of another program; name another file")
        elif found[1] != VERSION:
            raise LabelFileError(
                f"{self.path} is of a newer bagwise (format {found[1]}, this one reads {VERSION}); "
                "update bagwise"
            )
        self._check_schema()
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=FULL")
        self.classes = [self._about("negative"), self._about("positive")]
        if classes is not None and self.classes != list(classes):
            raise LabelFileError(
                f"the labels in {self.path} tell {self.classes[1]!r} from {self.classes[0]!r}, "
                f"here {classes[1]!r} is told from {classes[0]!r}; name another file with --labels"
            )

    def _create(self, classes: Sequence[str]) -> None:
        """All in one transaction: a file that was begun and killed is empty, not half made."""
        pairs = zip(("negative", "positive"), classes, strict=True)
        base = self._base
        base.execute("BEGIN IMMEDIATE")
        try:
            if not base.execute("SELECT 1 FROM sqlite_master").fetchone():  # nobody was faster
                for statement in TABLES.values():
                    base.execute(statement)
                base.executemany("INSERT INTO about VALUES (?, ?)", pairs)
                base.execute(f"PRAGMA application_id={APPLICATION}")
                base.execute(f"PRAGMA user_version={VERSION}")
            base.execute("COMMIT")
        except BaseException:
            base.execute("ROLLBACK")
            raise

    def _check_schema(self) -> None:
        """Raise unless the tables are ours: views and triggers of others would run here."""
        rows = self._base.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        kept_by_sqlite = ("sqlite_autoindex_", "sqlite_sequence", "sqlite_stat")
        found = [
            row
            for row in rows
            if row[0] not in ("table", "index") or not str(row[1]).startswith(kept_by_sqlite)
        ]
        if sorted(found) != sorted(("table", name, text) for name, text in TABLES.items()):
            raise LabelFileError(
                f"{self.path} has other tables than files of labels have; it is damaged, or was "
                "made by another program: give the file that `bagwise label` wrote"
            )

    def _about(self, name: str) -> str:
        row = self._base.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        if row is None or not isinstance(row[0], str):
            raise LabelFileError(
                f"{self.path} does not say what its {name} class is; it is damaged"
            )
        return row[0]

    def add(self, event: Event) -> Event:
        """Keep an event, which is on disk afterwards; one that is there already stays as it is."""
        if event.action not in ACTIONS or (event.action == "undo") != (event.undoes is not None):
            raise ValueError(f"an event does one of {ACTIONS}, and an undo names what it undoes")
        sent = dict(zip(COLUMNS, astuple(event), strict=True))
        del sent["number"]
        marks = ", ".join(f":{name}" for name in sent)
        with self._lock:
            try:
                self._write(
                    f"INSERT INTO events ({', '.join(sent)}) VALUES ({marks}) "
                    "ON CONFLICT (event) DO NOTHING",
                    sent,
                )
            except sqlite3.IntegrityError:
                raise RefusedEventError("that label was taken back already") from None
            found = self._select("WHERE event = ?", event.event)[0]
        if not found.says_the_same(event):
            raise RefusedEventError("another label has the same id; make a new one")
        return found

    def events(self, after: int = 0) -> list[Event]:
        """Events in the order in which they came, those `after` a number."""
        with self._lock:
            return self._select("WHERE number > ? ORDER BY number", after)

    def find(self, event: str) -> Event | None:
        """The event of an id."""
        with self._lock:
            found = self._select("WHERE event = ?", event)
        return found[0] if found else None

    def _write(self, statement: str, values: dict[str, Any]) -> None:
        with _one_error(self.path):
            self._base.execute(statement, values)

    def _select(self, condition: str, value: str | int) -> list[Event]:
        statement = f"SELECT {', '.join(COLUMNS)} FROM events {condition}"
        with _one_error(self.path):
            rows = self._base.execute(statement, (value,)).fetchall()
        for row in rows:
            if not _is_event(*row):
                raise LabelFileError(
                    f"{self.path} has a label that `bagwise label` does not write ({row!r:.200}); "
                    "it is damaged: go on from a copy of it, or with another file"
                )
        return [Event(*row) for row in rows]

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._base.close()

    def __enter__(self) -> LabelStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _one_error(path: Path) -> Iterator[None]:
    """Errors of SQLite as ours: about the file, or about the system that keeps it."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise  # of an event that contradicts others
    except sqlite3.DatabaseError as error:
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in OF_THE_SYSTEM:
            raise LabelStorageError(
                f"{path} cannot be read or written at present ({error}); labels need room on the "
                "disk, a file and a folder that may be written, and no other program that holds it"
            ) from error
        raise LabelFileError(
            f"{path} is no file of labels, or damaged ({error}); give the file that `bagwise "
            "label` wrote, or another name for a new one"
        ) from error


def _is_event(
    event: Any, annotator: Any, time: Any, action: Any, bag: Any, position: Any, *more: Any
) -> bool:
    """Whether values are of the types that SQLite promises only where it wrote them itself."""
    instance, features, undoes, _ = more
    return (
        all(isinstance(text, str) for text in (event, annotator, time, action, bag))
        and all(text is None or isinstance(text, str) for text in (instance, features, undoes))
        and isinstance(position, int)
        and position >= 0
        and action in ACTIONS
        and (action == "undo") == (undoes is not None)
    )


def _pragma(base: sqlite3.Connection, name: str) -> int:
    return int(base.execute(f"PRAGMA {name}").fetchone()[0])
