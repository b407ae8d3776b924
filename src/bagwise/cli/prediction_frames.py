"""Tables of predictions: one row per bag, or the user's own rows with columns beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.cli.decisions import Decided
from bagwise.io.class_labels import class_names
from bagwise.io.streams import TableError
from bagwise.io.tables import Table
from bagwise.models._base import Predictions

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]

PREDICTED = ("p_mean", "p_std", "predicted")


def bag_frame(model: Any, table: Table, found: Predictions, more: Decided) -> pd.DataFrame:
    """One row per bag, in the order in which the bags first appear in the table."""
    import pandas as pd

    bags = table.bags
    first = np.minimum.reduceat(bags.row_index, bags.offsets[:-1])
    order = np.argsort(first, kind="stable")
    kept = [table.columns.bag, table.columns.label, table.columns.group]
    frame = table.rows.loc[:, [c for c in kept if c is not None]].iloc[first[order]]
    check_free(frame, ("n_instances", *PREDICTED, *more.of_bags))
    names = np.asarray(class_names(model), dtype=object)
    return pd.DataFrame(
        {
            **{c: frame[c].to_numpy() for c in frame.columns},
            "n_instances": bags.sizes[order],
            **_of_bags(model, found, names, order),
            **{name: values[order].tolist() for name, values in more.of_bags.items()},
        }
    )


def _of_bags(model: Any, found: Predictions, names: Array, order: Array) -> dict[str, Any]:
    p, std = found.bag_p[order], found.bag_std[order]
    if getattr(model, "labels_are_shares", False):
        return {"share_mean": p[:, 1], "share_std": std}
    predicted = names[model.called_positive(p).astype(int)].tolist()
    return {"p_mean": p[:, 1], "p_std": std, "predicted": predicted}


def instance_frame(model: Any, table: Table, found: Predictions, more: Decided) -> pd.DataFrame:
    """The user's own rows in their order, with the predictions beside them."""
    import pandas as pd

    bags = table.bags
    names = np.asarray(class_names(model), dtype=object)
    values: dict[str, Array] = {
        "p_mean": found.p[:, 1],
        "p_std": found.std,
        "predicted": names[np.argmax(found.p, axis=1)],
    }
    of_bag = "share" if getattr(model, "labels_are_shares", False) else "p"
    values[f"bag_{of_bag}_mean"] = found.bag_p[bags.bag_index, 1]
    values[f"bag_{of_bag}_std"] = found.bag_std[bags.bag_index]
    if found.low is not None and found.high is not None:
        values |= {"p_low": found.low, "p_high": found.high}
    if found.given is not None and found.given_std is not None:
        values |= {"p_given_labels": found.given[:, 1], "p_given_labels_std": found.given_std}
    values |= {f"bag_{name}": of_bag[bags.bag_index] for name, of_bag in more.of_bags.items()}
    values |= more.of_instances
    check_free(table.rows, tuple(values))
    back = np.argsort(bags.row_index)  # rows that were left out are not written
    own = {c: table.rows[c].to_numpy()[bags.row_index[back]] for c in table.rows.columns}
    return pd.DataFrame({**own, **{name: v[back].tolist() for name, v in values.items()}})


def check_free(frame: pd.DataFrame, added: Sequence[str]) -> None:
    """Raise where a table has a column already that predictions are written to."""
    if clash := [c for c in added if c in frame.columns]:
        raise TableError(
            f"the table already has the column {clash[0]!r}, which predictions are written to; "
            "rename or drop it"
        )
