"""Rows of several tables that are not in the same order, and masks, are never lost in silence."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bagwise import Bags
from bagwise.bags import as_bags
from bagwise.metrics import instance_scores
from bagwise.metrics.models import Given


@pytest.fixture
def table() -> pd.DataFrame:
    """Rows of four bags in no order, with an index that tells them apart."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": np.arange(12.0), "b": rng.normal(size=12)})
    table["bag_id"], table["truth"] = np.repeat(list("cadb"), 3), np.arange(12) % 2
    return table.sample(frac=1, random_state=1)


def test_values_of_rows_are_compared_with_bag_ids_where_features_are_an_array(
    table: pd.DataFrame,
) -> None:
    X, ids = table[["a", "b"]].to_numpy(), table.bag_id
    bags = Bags.from_arrays(X, ids, instance_labels=table.truth)
    np.testing.assert_array_equal(bags.instance_labels, bags.X[:, 0] % 2)
    for more in ({"instance_labels": table.truth}, {"coords": table[["b"]]}):
        other = {name: values.sort_index() for name, values in more.items()}
        with pytest.raises(ValueError, match="has the rows of bag_ids in another order"):
            Bags.from_arrays(X, ids, **other)


def test_tables_that_share_some_rows_are_refused(table: pd.DataFrame) -> None:
    some, others = table[:8], table[2:10]
    with pytest.raises(ValueError, match=r"bag_ids has other rows than X.*6 of 8 are in both"):
        Bags.from_arrays(some[["a"]], others.bag_id)
    counted = some.reset_index(drop=True)  # pandas' own numbers say nothing of rows
    assert len(Bags.from_arrays(counted[["a"]], some.bag_id)) == some.bag_id.nunique()


def test_a_table_of_rows_in_the_order_of_the_input_is_refused(table: pd.DataFrame) -> None:
    bags = Bags.from_frame(table, label=None, instance_label=None, features=["a", "b"])
    for change, values in (
        (bags.with_instance_labels, table.truth),
        (bags.with_instance_labels, table.truth.reset_index(drop=True)),
        (bags.with_X, table[["a", "b"]]),
        (partial(instance_scores, Given([0, 1]), bags), table.truth),
    ):
        with pytest.raises(ValueError, match=r"order of bags.X.*to_numpy\(\)\[bags.row_index\]"):
            change(values)
    labels = table.truth.to_numpy()[bags.row_index]
    np.testing.assert_array_equal(labels, bags.X[:, 0] % 2)
    known = bags.with_instance_labels(labels)
    np.testing.assert_array_equal(known.instance_labels, labels)
    in_order = Bags.from_frame(table.sort_values("bag_id"), label=None, features=["a"])
    assert in_order.with_X(table.sort_values("bag_id")[["b"]]).n_features == 1


def test_tables_in_a_list_have_the_same_columns_and_rows(table: pd.DataFrame) -> None:
    numbered = table[["a", "b"]].set_axis([0, 1], axis=1)
    with pytest.raises(ValueError, match=r"bag 0 has None, bag 1 has \[1, 0\]"):
        Bags.from_list([numbered[:3], numbered[3:][[1, 0]]])
    assert len(Bags.from_list([numbered[:3], numbered[3:].to_numpy()])) == 2
    coords = [table[["b"]][:3], table[["b"]][3:].iloc[::-1]]
    with pytest.raises(ValueError, match=r"coords\[1\] has the rows of arrays\[1\] in another"):
        Bags.from_list([table[["a"]][:3], table[["a"]][3:]], coords=coords)


@pytest.mark.parametrize("unit", ["ns", "us", "D"])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_dates_and_times_are_found_by_an_index(kind: str, unit: str) -> None:
    days = np.array([18263, 18265, 18264]).astype(f"{kind}[D]")
    ids = days.astype(f"{kind}[{unit}]")
    y = pd.Series([0, 1, 1], index=pd.Index(days[[2, 0, 1]]))
    for labels in (y, y.to_dict()):
        bags = Bags.from_arrays(np.eye(3), ids, y=labels)
        np.testing.assert_array_equal(bags.y, [1, 0, 1])
    finer = ids.astype(f"{kind}[ns]") + np.timedelta64(1, "ns")
    with pytest.raises(ValueError, match="the index of y must hold the bag ids"):
        Bags.from_arrays(np.eye(3), finer, y=y)


@pytest.mark.parametrize("name", ["X", "y", "coords", "instance_labels"])
def test_masks_inside_lists_are_not_lost(name: str) -> None:
    rows: dict[str, Any] = {"X": np.eye(3), "coords": np.eye(3)}
    rows |= {"y": [0, 1, 1], "instance_labels": [0, 1, 1]}
    whole = np.asarray(rows[name], dtype=float).reshape(3, -1)
    rows[name] = [np.ma.masked_array(row, mask=[k == 1] + [False] * (len(row) - 1))
                  for k, row in enumerate(whole)]  # fmt: skip
    with pytest.raises(ValueError, match=rf"{name}\[1\] must not be masked; 1 entries are"):
        Bags.from_arrays(rows.pop("X"), list("abc"), **rows)


@pytest.mark.parametrize(
    "more", [{"when": pd.Timestamp("2020-01-01")}, {"took": pd.Timedelta("1h")}], ids=str
)
def test_dates_beside_numbers_are_refused_in_our_words(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="X must be numbers, not bytes/strings or dates"):
        Bags.from_arrays(pd.DataFrame({"a": [1.0, 2.0]}).assign(**more), [0, 1])


@pytest.mark.parametrize("y", [{0, 1}, (i for i in range(2)), 3], ids=["set", "generator", "one"])
def test_labels_that_are_no_sequence(y: Any) -> None:
    with pytest.raises(ValueError, match="y must be one-dimensional"):
        Bags.from_arrays(np.eye(2), [0, 1], y=y)


def test_a_mask_is_found_by_its_index(table: pd.DataFrame) -> None:
    bags = Bags.from_frame(table, label=None, features=["a"])
    ages = pd.Series([70, 30, 65, 20], index=list("bdac"))
    np.testing.assert_array_equal(bags[ages > 60].ids, ["a", "b"])
    np.testing.assert_array_equal(bags[(ages > 60).astype("boolean")].ids, ["a", "b"])
    np.testing.assert_array_equal(bags[(ages > 60).reset_index(drop=True)].ids, ["a", "c"])
    with pytest.raises(ValueError, match="index of the mask must hold the bag ids"):
        bags[pd.Series([True, False, True, False], index=list("abce"))]
    with pytest.raises(ValueError, match="the choice of bags must not be masked"):
        bags[np.ma.masked_array([True] * 4, mask=[True, False, False, False])]


def test_numpy_text_beside_text_is_text() -> None:
    y = np.array([np.str_("no"), "yes"], dtype=object)
    assert Bags.from_arrays(np.eye(2), [0, 1], y=y).y.dtype.kind == "U"
    flags = np.array([np.bool_(True), False], dtype=object)
    assert Bags.from_arrays(np.eye(2), [0, 1], y=flags).y.dtype.kind == "b"


def test_bags_by_id_and_repeated_columns_are_refused_in_our_words() -> None:
    by_id = {"a": np.eye(2), "b": np.eye(2)}
    for build in (Bags.from_list, as_bags, lambda X: Bags.from_arrays(X, [0, 1])):
        with pytest.raises(TypeError, match=r"got dict; .*list\(bags.values\(\)\), ids="):
            build(by_id)
    with pytest.raises(ValueError, match=r"column names must be distinct; got \['a', 'a'\]"):
        Bags.from_arrays(pd.DataFrame(np.eye(2), columns=["a", "a"]), [0, 1])
