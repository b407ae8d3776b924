"""Bags against a naive model: a list of dicts, one per bag, over random shapes and orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise import Bags

FLOATS = {
    np.float64: st.floats(-1e300, 1e300, allow_subnormal=True),
    np.float32: st.floats(-(2.0**90), 2.0**90, width=32),
}
IDS = [
    st.integers(-(10**12), 10**12),
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5),
]
LABELS = [st.integers(0, 1), st.booleans(), st.sampled_from(["benign", "tumour", ""])]

Naive = list[dict[str, Any]]


@st.composite
def naive_bags(draw: st.DrawFn) -> tuple[Naive, type]:
    """Some bags as plain lists; every optional part is there or not."""
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    n_features, with_coords = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    known, with_groups, with_names = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    label = draw(st.sampled_from(LABELS))
    ids = draw(st.lists(draw(st.sampled_from(IDS)), min_size=1, max_size=6, unique=True))
    numbers = FLOATS[dtype]
    bags: Naive = []
    for i in sorted(ids):
        n = draw(st.integers(1, 4))
        row = st.lists(numbers, min_size=n_features, max_size=n_features)
        place = st.lists(st.floats(-1e6, 1e6), min_size=with_coords, max_size=with_coords)
        bag: dict[str, Any] = {"id": i, "y": draw(label)}
        bag["X"] = draw(st.lists(row, min_size=n, max_size=n))
        if with_coords:
            bag["coords"] = draw(st.lists(place, min_size=n, max_size=n))
        if known:
            states = st.sampled_from([0.0, 1.0, np.nan])
            bag["instance_labels"] = draw(st.lists(states, min_size=n, max_size=n))
        if with_groups:
            bag["groups"] = draw(st.integers(0, 3))
        if with_names:
            bag["instance_ids"] = [f"{i}/{k}" for k in range(n)]
        bags.append(bag)
    return bags, dtype


def rows_of(bags: Naive, name: str) -> list[Any]:
    return [row for bag in bags for row in bag[name]]


def build(bags: Naive, dtype: type, order: np.ndarray | None = None) -> Bags:
    """`from_arrays` of the rows in any order."""
    ids = [bag["id"] for bag in bags for _ in bag["X"]]
    order = np.arange(len(ids)) if order is None else order
    per_row = {n: rows_of(bags, n) for n in ("coords", "instance_labels") if n in bags[0]}
    more: dict[str, Any] = {n: np.array(v, dtype=float)[order] for n, v in per_row.items()}
    if "instance_ids" in bags[0]:
        more["instance_ids"] = np.array(rows_of(bags, "instance_ids"))[order]
    if "groups" in bags[0]:
        more["groups"] = [bag["groups"] for bag in bags]
    X = np.array(rows_of(bags, "X"), dtype=dtype)
    return Bags.from_arrays(X[order], np.array(ids)[order], y=[b["y"] for b in bags], **more)


def assert_same(found: Bags, bags: Naive, dtype: type) -> None:
    """Every part of Bags is what the lists say."""
    assert len(found) == len(bags)
    assert found.sizes.tolist() == [len(bag["X"]) for bag in bags]
    assert found.offsets[0] == 0 and np.all(np.diff(found.offsets) == found.sizes)
    assert found.ids.tolist() == [bag["id"] for bag in bags]
    assert found.y is not None and found.y.tolist() == [bag["y"] for bag in bags]
    if not bags:
        return
    assert found.X.dtype == dtype
    np.testing.assert_array_equal(found.X, np.array(rows_of(bags, "X"), dtype=dtype))
    for name in ("coords", "instance_labels"):
        have = getattr(found, name)
        if name in bags[0]:
            np.testing.assert_array_equal(have, np.array(rows_of(bags, name), dtype=float))
        else:
            assert have is None
    if "instance_ids" in bags[0]:
        assert found.instance_ids.tolist() == rows_of(bags, "instance_ids")
    if "groups" in bags[0]:
        assert found.groups.tolist() == [bag["groups"] for bag in bags]


@given(naive_bags(), st.randoms(use_true_random=False))
def test_rows_may_come_in_any_order(drawn: tuple[Naive, type], random: Any) -> None:
    bags, dtype = drawn
    order = list(range(sum(len(b["X"]) for b in bags)))
    random.shuffle(order)
    found = build(bags, dtype, np.array(order))
    # Rows of a bag keep the order in which they came.
    position = {row: k for k, row in enumerate(order)}
    starts = np.cumsum([0, *(len(b["X"]) for b in bags)])
    names = ("X", "coords", "instance_labels", "instance_ids")
    expected = []
    for b, bag in enumerate(bags):
        ranked = sorted(range(len(bag["X"])), key=lambda k, s=starts[b]: position[s + k])
        moved = {n: [bag[n][k] for k in ranked] for n in names if n in bag}
        expected.append({**bag, **moved})
    assert_same(found, expected, dtype)
    input_X = np.array(rows_of(bags, "X"), dtype=dtype)[order]
    np.testing.assert_array_equal(found.X, input_X[found.row_index])


def any_key(n: int) -> st.SearchStrategy[Any]:
    position = st.integers(-n, n - 1)
    edge = st.none() | st.integers(-n - 2, n + 2)
    slices = st.builds(slice, edge, edge, st.none() | st.integers(-3, 3).filter(bool))
    return st.one_of(
        position,
        slices,
        st.lists(position, max_size=8).map(lambda v: np.array(v, dtype=int)),
        st.lists(st.booleans(), min_size=n, max_size=n).map(np.array),
        st.just(Ellipsis),
        slices.map(lambda s: (s, Ellipsis)),
    )


@given(naive_bags(), st.data())
def test_indexing_is_that_of_a_list(drawn: tuple[Naive, type], data: st.DataObject) -> None:
    bags, dtype = drawn
    found = build(bags, dtype)
    for _ in range(3):
        key = data.draw(any_key(len(bags)))
        plain = key[0] if isinstance(key, tuple) else key
        chosen = np.arange(len(bags))[plain]
        picked = [bags[i] for i in np.atleast_1d(chosen)]
        assert_same(found[key], picked, dtype)
        if not picked:
            return
        found, bags = found[key], picked


@given(naive_bags(), st.data())
def test_wrong_positions_are_refused(drawn: tuple[Naive, type], data: st.DataObject) -> None:
    bags, dtype = drawn
    n = len(bags)
    bad = data.draw(st.integers(n, n + 5) | st.integers(-n - 5, -n - 1))
    for key in (bad, [0, bad], np.zeros(n + 1, dtype=bool)):
        with pytest.raises(IndexError):
            build(bags, dtype)[key]


@given(naive_bags(), st.integers(0, 6))
def test_parts_joined_are_the_whole(drawn: tuple[Naive, type], cut: int) -> None:
    bags, dtype = drawn
    whole = build(bags, dtype)
    parts = [part for part in (whole[:cut], whole[cut:]) if len(part)]
    assert_same(Bags.concat(parts), bags, dtype)
    assert_same(Bags.concat([whole, whole]), bags + bags, dtype)
    assert_same(Bags.concat(list(whole)), bags, dtype)


@given(naive_bags())
def test_lists_of_arrays_are_the_same_bags(drawn: tuple[Naive, type]) -> None:
    bags, dtype = drawn
    names = ("coords", "instance_labels", "instance_ids")
    more: dict[str, Any] = {n: [np.array(b[n]) for b in bags] for n in names if n in bags[0]}
    if "groups" in bags[0]:
        more["groups"] = [b["groups"] for b in bags]
    arrays = [np.array(b["X"], dtype=dtype) for b in bags]
    ids = np.array([b["id"] for b in bags])
    found = Bags.from_list(arrays, [b["y"] for b in bags], ids=ids, **more)
    assert_same(found, bags, dtype)


@given(naive_bags())
def test_tables_give_the_bags_back(drawn: tuple[Naive, type]) -> None:
    bags, dtype = drawn
    frame = build(bags, dtype).to_frame()
    columns = {
        "instance_label": "instance_label" if "instance_labels" in bags[0] else None,
        "coords": [c for c in frame.columns if c.startswith("coord_")] or None,
        "group": "group" if "groups" in bags[0] else None,
        "instance_id": "instance_id" if "instance_ids" in bags[0] else None,
    }
    assert_same(Bags.from_frame(frame, **columns), bags, dtype)


@given(naive_bags())
def test_nothing_can_be_changed(drawn: tuple[Naive, type]) -> None:
    found = build(*drawn)
    for name in ("X", "offsets", "ids", "y", "row_index"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(found, name)[...] = 0
        with pytest.raises(AttributeError, match="immutable"):
            setattr(found, name, None)
