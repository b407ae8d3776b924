"""Which row of a table a label is of: by the ids of bag and instance, or by place and features."""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.cli.labelling.store import Event, LabelFileError


class RowNames:
    """Names of the rows of bags, by which labels find them again.

    Bags are known by their ids, instances by theirs; where they have none, by their place in the
    bag, and a digest of the features says whether that place still has the same row.

    >>> names = RowNames(Bags.from_list([[[1.0], [2.0]]], ids=["s1"]))
    >>> sorted(names.of(1).items())
    [('bag', 's1'), ('features', '...'), ('instance', None), ('position', 1)]
    """

    def __init__(self, bags: Bags) -> None:
        self._bags = bags
        self._ids = [str(i) for i in bags.ids.tolist()]
        self._number = {name: b for b, name in enumerate(self._ids)}
        if len(self._number) < len(bags):
            twice = next(i for b, i in enumerate(self._ids) if self._number[i] != b)
            raise ValueError(f"bags are told apart by their ids, but two are called {twice!r:.80}")
        if bags.instance_ids is not None and len(self._by_ids) < bags.n_instances:
            name = next(self.of(r) for r in range(bags.n_instances) if self._row_of_id(r) != r)
            raise ValueError(
                f"instances of a bag are told apart by their ids, but bag {name['bag']!r:.80} has "
                f"{name['instance']!r:.80} twice; make them distinct, or leave that column out: "
                "rows are then known by their place"
            )

    def of(self, row: int) -> dict[str, Any]:
        """What an event says of its row."""
        b = int(np.searchsorted(self._bags.offsets, row, side="right")) - 1
        ids = self._bags.instance_ids
        return {
            "bag": self._ids[b],
            "position": row - int(self._bags.offsets[b]),
            "instance": None if ids is None else str(ids[row]),
            "features": self._digest(row) if ids is None else None,
        }

    def row(self, event: Event, table: str) -> int:
        """The row of an event; an error that says what does not match where there is none."""
        b = self._number.get(event.bag)
        if b is None:
            raise LabelFileError(
                f"there is a label of bag {event.bag!r:.80}, which {table} does not have; give the "
                "table that was labelled, with the same column of bags"
            )
        if event.instance is not None:
            return self._by_id(event, table)
        if self._bags.sizes[b] <= event.position:
            raise LabelFileError(
                f"there is a label of row {event.position + 1} of bag {event.bag!r:.80}, which has "
                f"{self._bags.sizes[b]} in {table}; give the table that was labelled"
            )
        row = int(self._bags.offsets[b]) + event.position
        if self._digest(row) != event.features:
            raise LabelFileError(
                f"row {event.position + 1} of bag {event.bag!r:.80} has other features in {table} "
                "than when it was labelled: rows without ids are known by place and features; give "
                "the table that was labelled, read with the same --features"
            )
        return row

    def _by_id(self, event: Event, table: str) -> int:
        if self._bags.instance_ids is None:
            raise LabelFileError(
                f"labels are of instances with ids, such as {event.instance!r:.80}, but {table} "
                "has no column of them; give the table that was labelled"
            )
        row = self._by_ids.get((event.bag, str(event.instance)))
        if row is None:
            raise LabelFileError(
                f"there is a label of instance {event.instance!r:.80} of bag {event.bag!r:.80}, "
                f"which {table} does not have; give the table that was labelled"
            )
        return row

    def _row_of_id(self, row: int) -> int:
        """The row that is found by the ids of a row."""
        found = self.of(row)
        return self._by_ids[found["bag"], found["instance"]]

    @cached_property
    def _by_ids(self) -> dict[tuple[str, str], int]:
        ids, bag = np.asarray(self._bags.instance_ids).tolist(), self._bags.bag_index.tolist()
        return {
            (self._ids[b], str(i)): row for row, (b, i) in enumerate(zip(bag, ids, strict=True))
        }

    def _digest(self, row: int) -> str:
        """Of single precision, in which tables of either precision agree."""
        values = np.asarray(self._bags.X[row : row + 1], dtype="<f4") + np.float32(0)
        return blake2b(values.tobytes(), digest_size=12).hexdigest()
