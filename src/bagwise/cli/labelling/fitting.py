"""`bagwise fit --labels`: a table with the labels that people gave to its instances."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from bagwise.cli.labelling.opinions import agreed_labels, joined
from bagwise.cli.labelling.store import LabelFileError, LabelStore
from bagwise.io.class_labels import choose_classes
from bagwise.io.tables import Table


def labelled_table(table: Table, path: str | os.PathLike[str], positive: str | None) -> Table:
    """A table with labels of a file; instances that people disagree about stay unknown."""
    assert table.bags.y is not None
    classes, _ = choose_classes(table.bags.y, positive)
    with LabelStore(path) as store:
        if store.classes != [str(c) for c in classes]:
            raise LabelFileError(
                f"the labels in {path} tell {store.classes[1]!r} from {store.classes[0]!r}, but "
                f"here {str(classes[1])!r} is positive and {str(classes[0])!r} negative; pass "
                f"--positive {store.classes[1]}, or the labels of this table"
            )
        known, disputed = agreed_labels(store, table.bags, table.name)
    positives, negatives = int(np.sum(known == 1)), int(np.sum(known == 0))
    note = f"labels in {path}: {positives} positive, {negatives} negative"
    if disputed:
        note += f"; {len(disputed)} that people disagree about are taken for unknown"
    bags = table.bags.with_instance_labels(joined(table.bags, known))
    return replace(table, bags=bags, notes=(*table.notes, note))
