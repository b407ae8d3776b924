"""What people say of instances at present, and where they agree: from events to labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.cli.labelling.identity import RowNames
from bagwise.cli.labelling.store import LABELS, Event, LabelStore

Array = NDArray[Any]


class Opinions:
    """The last word of each annotator on each instance.

    A later word replaces an earlier one of the same person; what was taken back does not count, so
    that the word before it does again. Different people keep their own.
    """

    def __init__(self, bags: Bags, table: str) -> None:
        self._bags = bags
        self._names = RowNames(bags)
        self._table = table
        self._said: dict[tuple[int, str], list[Event]] = {}  # that stands, in order
        self._rows: dict[str, int] = {}  # of events that stand
        self.last = 0  # number of the last event that was heard

    def of(self, row: int) -> dict[str, Any]:
        """What an event says of its row."""
        return self._names.of(row)

    def hear(self, events: Iterable[Event]) -> None:
        """Take further events in."""
        for event in events:
            row = self._names.row(event, self._table)
            said = self._said.setdefault((row, event.annotator), [])
            if event.undoes is None:
                said.append(event)
                self._rows[event.event] = row
            else:
                said[:] = [e for e in said if e.event != event.undoes]
                self._rows.pop(event.undoes, None)
            if not said:
                del self._said[row, event.annotator]
            self.last = event.number

    def words(self) -> dict[int, dict[str, Event]]:
        """By row, the last word of each annotator."""
        found: dict[int, dict[str, Event]] = {}
        for (row, annotator), said in self._said.items():
            found.setdefault(row, {})[annotator] = said[-1]
        return found

    def last_of(self, annotator: str) -> tuple[int, Event] | None:
        """Row and event that an undo of theirs would take back."""
        theirs = [
            (said[-1].number, row, said[-1])
            for (row, a), said in self._said.items()
            if a == annotator
        ]
        return max(theirs)[1:] if theirs else None

    def row_of(self, event: str) -> int | None:
        """The row of an event that stands."""
        return self._rows.get(event)

    def labels(self) -> tuple[Array, list[int]]:
        """(N,) labels on which all agree who gave one, NaN elsewhere, and the rows in dispute."""
        known, disputed = np.full(self._bags.n_instances, np.nan), []
        for row, words in sorted(self.words().items()):
            given = {LABELS[e.action] for e in words.values() if e.action in LABELS}
            if len(given) == 1:
                known[row] = given.pop()
            elif given:
                disputed.append(row)
        return known, disputed


def agreed_labels(store: LabelStore, bags: Bags, table: str) -> tuple[Array, list[int]]:
    """Labels of a file for the rows of bags, and the rows in dispute, which have none."""
    opinions = Opinions(bags, table)
    opinions.hear(store.events())
    return opinions.labels()


def joined(bags: Bags, known: Array) -> Array:
    """Labels of the table and those that were given; an error where they contradict each other."""
    if bags.instance_labels is None:
        return known
    own = bags.instance_labels
    if np.any(clash := (own == 1 - known)):
        row = int(np.argmax(clash))
        b = int(bags.bag_index[row])
        raise ValueError(
            f"row {row - int(bags.offsets[b]) + 1} of bag {bags.ids[b]!s:.80} has the instance "
            f"label {own[row]:g} in the table and was labelled {known[row]:g}; correct one of them"
        )
    return np.where(np.isnan(own), known, own)


def believable(
    known: Array, own: Array, offsets: Array, T: Array, *, noisy: bool
) -> tuple[Array, list[int]]:
    """Labels that agree with those of their bags, and the rows whose label does not.

    In a negative bag nothing is positive; in a positive one not everything is negative: where all
    of it was labelled so, none of those labels is taken. `own` are those of the table, which stay.

    >>> nan = np.nan
    >>> known, own = np.array([1.0, nan, 0.0, 0.0]), np.full(4, nan)
    >>> believable(known, own, np.array([0, 2, 4]), np.array([0, 1]), noisy=False)
    (array([nan, nan, nan, nan]), [0, 2, 3])
    """
    if noisy:
        return known, []
    of_bag = np.repeat(T, np.diff(offsets))
    all_negative = np.repeat(np.minimum.reduceat(known == 0, offsets[:-1]), np.diff(offsets))
    wrong = ((known == 1) & (of_bag == 0)) | ((of_bag == 1) & all_negative)
    wrong &= np.isnan(own)
    return np.where(wrong, np.nan, known), np.flatnonzero(wrong).tolist()


def opinion_frame(store: LabelStore, bags: Bags, table: str) -> Any:
    """One row for each label or skip that stands, in the order in which they were given."""
    import pandas as pd

    opinions = Opinions(bags, table)
    opinions.hear(store.events())
    known, disputed = opinions.labels()
    words = [
        (e.number, row, e) for row, theirs in opinions.words().items() for e in theirs.values()
    ]
    rows = [
        {
            "bag": e.bag,
            "position": e.position + 1,
            "instance": e.instance,
            "annotator": e.annotator,
            "time": e.time,
            "label": LABELS.get(e.action, np.nan),
            "agreed": known[row],
            "disputed": row in set(disputed),
        }
        for _, row, e in sorted(words, key=lambda word: word[0])
    ]
    columns = ["bag", "position", "instance", "annotator", "time", "label", "agreed", "disputed"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"label": "Int64", "agreed": "Int64", "disputed": bool})
