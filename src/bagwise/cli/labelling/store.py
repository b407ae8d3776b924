"""Labels in an SQLite file: what was said is added, never changed, and is on disk when told so.

Each label, skip and undo is one event with an id that its sender made, so that sending it again
changes nothing. Events are committed one by one, in a write-ahead log that is flushed each time:
a process that is killed loses none that it has answered for.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

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


class LabelFileError(UnreadableFileError):
    """A file of labels is damaged, of another program, or about other data."""


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
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"no directory {self.path.parent}; make it first")
        self._lock = threading.Lock()
        self._base = sqlite3.connect(
            self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
        )
        try:
            self._begin(classes)
        except sqlite3.DatabaseError as error:
            self._base.close()
            raise LabelFileError(
                f"{path} is no file of labels, or damaged ({error}); give the file that `bagwise "
                "label` wrote, or another name for a new one"
            ) from error
        except LabelFileError:
            self._base.close()
            raise

    def _begin(self, classes: Sequence[str] | None) -> None:
        base = self._base
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
                for statement in SCHEMA.split(";"):
                    base.execute(statement)
                base.executemany("INSERT INTO about VALUES (?, ?)", pairs)
                base.execute(f"PRAGMA application_id={APPLICATION}")
                base.execute(f"PRAGMA user_version={VERSION}")
            base.execute("COMMIT")
        except BaseException:
            base.execute("ROLLBACK")
            raise

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
                self._base.execute(
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

    def _select(self, condition: str, value: str | int) -> list[Event]:
        rows = self._base.execute(
            f"SELECT {', '.join(COLUMNS)} FROM events {condition}", (value,)
        ).fetchall()
        return [Event(*row) for row in rows]

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._base.close()

    def __enter__(self) -> LabelStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pragma(base: sqlite3.Connection, name: str) -> int:
    return int(base.execute(f"PRAGMA {name}").fetchone()[0])
