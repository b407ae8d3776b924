"""Bags: construction, indexing, errors, and life inside scikit-learn."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline

from bagwise.bags import Bags, as_bags

SIZES = [2, 1, 3, 2, 4, 1, 2, 2]


@pytest.fixture
def bags() -> Bags:
    """Eight bags with every optional part; entry j of row n is 10 n + j."""
    n = sum(SIZES)
    return Bags.from_arrays(
        10.0 * np.arange(n)[:, None] + np.arange(3),
        np.repeat([f"s{i}" for i in range(8)], SIZES),
        y=[0, 1] * 4,
        instance_labels=np.where(np.arange(n) % 3, np.nan, 0),
        coords=np.arange(2 * n).reshape(n, 2),
        groups=np.repeat(["p", "q", "r", "t"], 2),
        instance_ids=np.arange(n) + 100,
        feature_names=["a", "b", "c"],
    )


def assert_consistent(bags: Bags) -> None:
    """Every row still carries its own id, coords and row index (see the fixture)."""
    np.testing.assert_array_equal(bags.X[:, 0], 10.0 * bags.row_index)
    np.testing.assert_array_equal(bags.coords[:, 0], 2 * bags.row_index)
    np.testing.assert_array_equal(bags.instance_ids, bags.row_index + 100)
    assert bags.offsets[0] == 0 and bags.offsets[-1] == len(bags.X)
    assert bags.sizes.tolist() == [SIZES[int(i[1:])] for i in bags.ids]
    assert bags.y.tolist() == [int(i[1:]) % 2 for i in bags.ids]
    assert bags.groups.tolist() == ["pqrt"[int(i[1:]) // 2] for i in bags.ids]
    assert bags.feature_names == ("a", "b", "c")


# --- building ---------------------------------------------------------------------------------


def test_from_arrays_sorts_bags_and_keeps_row_order() -> None:
    X = np.arange(10.0).reshape(5, 2)
    labels = [1, 0, -1, None, True]
    bags = Bags.from_arrays(X, ["b", "a", "b", "c", "a"], y=[7, 8, 9], instance_labels=labels)
    assert bags.ids.tolist() == ["a", "b", "c"]
    assert bags.row_index.tolist() == [1, 4, 0, 2, 3]
    np.testing.assert_array_equal(bags.X, X[[1, 4, 0, 2, 3]])
    assert bags.offsets.tolist() == [0, 2, 4, 5] and bags.offsets.dtype == np.int64
    assert bags.y.tolist() == [7, 8, 9]
    np.testing.assert_array_equal(bags.instance_labels, [0, 1, 1, np.nan, np.nan])
    assert bags.bag_index.tolist() == [0, 0, 1, 1, 2]
    assert (bags.shape, bags.ndim, bags.n_features, bags.n_instances) == ((3, 2), 2, 2, 5)


def test_sorted_rows_are_not_copied_and_are_read_only() -> None:
    X = np.arange(6.0).reshape(3, 2)
    bags = Bags.from_arrays(X, [0, 0, 1])
    assert np.shares_memory(bags.X, X)
    assert X.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        bags.X[0, 0] = 1
    with pytest.raises(AttributeError, match=r"immutable.*'y'.*with_labels"):
        bags.y = np.zeros(2)
    with pytest.raises(AttributeError, match="immutable"):
        del bags.X
    with pytest.raises(TypeError, match="from_arrays"):
        Bags(X)
    with pytest.raises(TypeError, match=r"bags\.X"):
        np.asarray(bags)


@pytest.mark.parametrize(
    ("given_dtype", "kept"),
    [("float32", "float32"), ("float64", "float64"), ("int8", "float64"), ("bool", "float64")],
)
def test_dtypes(given_dtype: str, kept: str) -> None:
    X = np.ones((2, 2), dtype=given_dtype)
    assert Bags.from_arrays(X, [0, 1]).dtype == kept
    assert Bags.from_list([X, X]).dtype == kept
    assert as_bags(X).dtype == kept
    assert as_bags(X.astype(object)).dtype == "float64"


def test_from_list_takes_row_values_as_lists_or_flat() -> None:
    arrays = [np.ones((2, 2)), np.zeros((1, 2))]
    nested = Bags.from_list(
        arrays,
        y=["no", "yes"],
        ids=["u", "v"],
        instance_labels=[[0, 1], None],
        coords=[[[0, 0], [0, 1]], [[5, 5]]],
        instance_ids=[["a", "b"], ["c"]],
        groups=[3, 3],
    )
    flat = Bags.from_list(arrays, instance_labels=[0, 1, np.nan], coords=nested.coords)
    np.testing.assert_array_equal(nested.instance_labels, flat.instance_labels)
    np.testing.assert_array_equal(flat.coords, [[0, 0], [0, 1], [5, 5]])
    assert nested.instance_ids.tolist() == ["a", "b", "c"]
    assert nested.y.tolist() == ["no", "yes"]
    assert flat.ids.tolist() == [0, 1]


def test_from_frame_reads_what_to_frame_writes(bags: Bags) -> None:
    frame = bags.to_frame()
    shuffled = frame.sample(frac=1, random_state=0)
    for table in (frame, shuffled):
        back = Bags.from_frame(
            table,
            instance_label="instance_label",
            coords=["coord_0", "coord_1"],
            group="group",
            instance_id="instance_id",
        )
        assert back.ids.tolist() == bags.ids.tolist() and back.y.tolist() == bags.y.tolist()
        assert back.groups.tolist() == bags.groups.tolist()
        assert back.feature_names == bags.feature_names
        np.testing.assert_array_equal(back.X[:, 0], 10.0 * (back.instance_ids - 100))
        np.testing.assert_array_equal(back.coords[:, 0], 2 * (back.instance_ids - 100))
        assert np.isnan(back.instance_labels).sum() == np.isnan(bags.instance_labels).sum()


def test_from_frame_takes_nullable_and_text_columns() -> None:
    df = pd.DataFrame({"bag_id": ["x", "x", "y"], "label": ["no", "no", "yes"], "f": [1, 2, 3]})
    df = df.convert_dtypes()
    bags = Bags.from_frame(df)
    assert (bags.ids.dtype.kind, bags.y.tolist(), bags.X.ravel().tolist()) == (
        "U",
        ["no", "yes"],
        [1.0, 2.0, 3.0],
    )
    assert Bags.from_frame(df.drop(columns="label"), label=None).y is None


def test_from_candidates_puts_marks_first() -> None:
    coords = [[9, 9], [0, 1], [5, 6], [5, 4], [1.5, 0], [20, 20]]
    with pytest.warns(UserWarning, match=r"1 of 3 marks .* no candidate .*raise radius"):
        bags = Bags.from_candidates(np.eye(6), coords, [[5, 5], [50, 50], [0, 0]], radius=1.5)
    assert bags.ids.tolist() == ["mark_0", "mark_2", "candidate_0", "candidate_5"]
    assert bags.y.tolist() == [1, 1, 0, 0]
    assert bags.row_index.tolist() == [2, 3, 1, 4, 0, 5]
    assert bags.sizes.tolist() == [2, 2, 1, 1]
    np.testing.assert_array_equal(bags.coords, np.array(coords)[bags.row_index])


def test_from_candidates_takes_the_nearest_mark_of_the_same_scan() -> None:
    coords, marks = [[0.0], [0.9], [0.9], [2.0]], [[0.0], [1.0], [0.0]]
    near = Bags.from_candidates(np.eye(4), coords, marks[:2], radius=1)
    assert near.bag_index[np.argsort(near.row_index)].tolist() == [0, 1, 1, 1]
    scans = ["A", "A", "B", "B"]
    by_scan = Bags.from_candidates(
        np.eye(4), coords, marks, 1, groups=scans, mark_groups=["A", "A", "B"]
    )
    assert by_scan.ids.tolist() == ["mark_0", "mark_1", "mark_2", "candidate_3"]
    assert by_scan.groups.tolist() == ["A", "A", "B", "B"]
    assert by_scan.row_index.tolist() == [0, 1, 2, 3]
    none = Bags.from_candidates(np.eye(4), coords, np.empty((0, 1)), radius=1)
    assert none.y.tolist() == [0, 0, 0, 0]


def test_as_bags() -> None:
    bags = Bags.from_list([np.ones((2, 2)), np.zeros((1, 2))], y=[0, 1])
    assert as_bags(bags) is bags
    assert as_bags([np.ones((2, 2)), np.zeros((1, 2))]).sizes.tolist() == [2, 1]
    assert as_bags(list(bags)).y.tolist() == [0, 1]
    frame = pd.DataFrame({"u": [1, 2], "v": [3, 4]})
    assert as_bags(frame).feature_names == ("u", "v")
    assert as_bags([frame, frame]).feature_names == ("u", "v")
    single = as_bags([[1, 2], [3, 4], [5, 6]])
    assert single.offsets.tolist() == [0, 1, 2, 3] and single.ids.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="0 bags while a minimum of 1 is required by VGPMIL"):
        as_bags(bags[:0], estimator_name="VGPMIL")


# --- deriving ---------------------------------------------------------------------------------


def test_with_methods_share_the_rest(bags: Bags) -> None:
    other = bags.with_labels([1, 0] * 4).with_instance_labels(None)
    assert other.y.tolist() == [1, 0] * 4 and bags.y.tolist() == [0, 1] * 4
    assert other.instance_labels is None and bags.instance_labels is not None
    assert np.shares_memory(other.X, bags.X)
    wide = bags.with_X(bags.X[:, [0, 0]])
    assert wide.feature_names is None and wide.shape == (8, 2)
    assert bags.with_X(bags.X[:, :1], feature_names=["u"]).feature_names == ("u",)
    with pytest.raises(ValueError, match="one row per instance: 17; got 3"):
        bags.with_X(np.ones((3, 1)))
    with pytest.raises(ValueError, match="bag 's1', row 0 of that bag"):
        bags.with_X(np.where(np.arange(17) == 2, np.inf, 0.0)[:, None])


def test_concat_inverts_slicing(bags: Bags) -> None:
    whole = Bags.concat([bags[:3], bags[3:]])
    assert_consistent(whole)
    with pytest.raises(ValueError, match="coords must be in all Bags or in none; Bags 1"):
        bare = Bags.from_list(list(b.X for b in bags), y=bags.y, feature_names=["a", "b", "c"])
        Bags.concat([bags.with_instance_labels(None), bare])
    with pytest.raises(ValueError, match=r"same n_features; got \[3, 1\]"):
        Bags.concat([bags, bags.with_X(bags.X[:, :1])])
    with pytest.raises(ValueError, match="y mixes text"):
        Bags.concat([bags, bags.with_labels(list("abababab"))])
    with pytest.raises(TypeError, match="list of Bags"):
        Bags.concat([np.ones((2, 2))])


def test_split_keeps_groups_whole_and_proportions(bags: Bags) -> None:
    for seed in range(5):
        train, test = bags.split(0.5, random_state=seed)
        assert not set(train.groups) & set(test.groups)
        assert len(train) == len(test) == 4
        assert_consistent(train)
        assert_consistent(test)
    y = np.array([1] * 10 + [0] * 30)
    plain = Bags.from_arrays(np.arange(40.0)[:, None], np.arange(40), y=y)
    train, test = plain.split(0.2, random_state=np.random.default_rng(0))
    assert (test.y.sum(), len(test), train.y.sum()) == (2, 8, 8)
    assert sorted([*train.ids, *test.ids]) == list(range(40))
    again = plain.split(0.2, random_state=3)[1].ids
    assert again.tolist() == plain.split(0.2, random_state=3)[1].ids.tolist()
    with pytest.raises(ValueError, match="label 1 has 1; add bags, or pass stratify=False"):
        plain[9:].split()
    assert len(plain[9:].split(stratify=False)[1]) == 8
    assert len(plain.with_labels(None).split()[1]) == 10


def test_split_with_mixed_groups_stratifies_by_share() -> None:
    groups = np.repeat(np.arange(20), 3)
    y = np.where(groups < 10, [0, 0, 1] * 20, [1, 1, 0] * 20)
    bags = Bags.from_arrays(np.arange(60.0)[:, None], np.arange(60), y=y, groups=groups)
    test = bags.split(0.5, random_state=0)[1]
    assert (len(np.unique(test.groups)), np.sum(np.unique(test.groups) < 10)) == (10, 5)


# --- indexing ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        np.int64(3),
        slice(2, 5),
        slice(None, None, -2),
        slice(5, 2),
        [4, 0, 0, -1],
        [],
        np.array([2, 3, 4]),
        np.arange(8) % 3 == 0,
        [True, False] * 4,
        (np.array([6, 1]), ...),
        (slice(1, 3), ...),
        (0, slice(None)),
        pd.Series([1, 5]),
    ],
    ids=str,
)
def test_indexing_keeps_everything_together(bags: Bags, key: object) -> None:
    chosen = bags[key]
    assert isinstance(chosen, Bags)
    assert_consistent(chosen)
    plain = key[0] if isinstance(key, tuple) else key
    if isinstance(plain, list) and not plain:
        plain = slice(0, 0)
    expected = np.arange(8)[plain]
    assert chosen.ids.tolist() == [f"s{i}" for i in np.atleast_1d(expected)]


@pytest.mark.parametrize("key", [3, slice(2, 6), np.array([2, 3, 4]), slice(None)])
def test_adjacent_bags_are_views(bags: Bags, key: object) -> None:
    assert np.shares_memory(bags[key].X, bags.X)
    assert np.shares_memory(bags[key].coords, bags.coords)


def test_iteration_matches_indexing(bags: Bags) -> None:
    parts = list(bags)
    assert len(parts) == 8
    for i, part in enumerate(parts):
        assert part.shape == (1, 3)
        np.testing.assert_array_equal(part.X, bags[i].X)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (8, r"-8\.\.7 for 8 bags; got 8"),
        ([0, -9], "got -9"),
        ([True], "one entry per bag: 8; got 1"),
        (True, "mask"),
        ([0.0, 1.0], "dtype float64"),
        ("s1", "np.isin"),
        ([[0], [1]], r"shape \(2, 1\)"),
        ((slice(None), 1), r"with_X\(bags\.X\[:, columns\]\)"),
    ],
)
def test_bad_keys(bags: Bags, key: object, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        bags[key]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_indexing_agrees_with_a_list_of_arrays(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=7))
    row_bags = data.draw(st.permutations(np.repeat(np.arange(len(sizes)), sizes).tolist()))
    X = np.arange(2.0 * len(row_bags)).reshape(-1, 2)
    naive = [X[np.array(row_bags) == b] for b in range(len(sizes))]
    bags = Bags.from_arrays(X, row_bags, y=np.arange(len(sizes)))
    position = st.integers(-len(sizes), len(sizes) - 1)
    bound = st.none() | st.integers(-9, 9)
    slices = st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, -1, -3]))
    masks = st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))
    key = data.draw(position | slices | masks | st.lists(position, max_size=9))
    mask = isinstance(key, list) and key and isinstance(key[0], bool)
    as_list = np.flatnonzero(key).tolist() if mask else key
    if isinstance(as_list, int):
        expected = [naive[as_list]]
    elif isinstance(as_list, slice):
        expected = naive[as_list]
    else:
        expected = [naive[i] for i in as_list]
    chosen = bags[key]
    assert [b.X.tolist() for b in chosen] == [e.tolist() for e in expected]
    np.testing.assert_array_equal(chosen.X, X[chosen.row_index])


# --- errors: rule, value, remedy --------------------------------------------------------------

ONE = np.ones((3, 2))
BAD_ARRAYS = {
    "y count": (ONE, [0, 0, 1], {"y": [1]}, "one entry per bag: 2; got 1"),
    "y per row": (ONE, [0, 0, 1], {"y": [0, 1, 1]}, r"one entry per row.*bag 0 has \[0, 1\]"),
    "y nan": (ONE, [0, 0, 1], {"y": [0, np.nan]}, "y must not have missing.*entry 1 is nan"),
    "y none": (ONE, [0, 0, 1], {"y": [None, "a"]}, "entry 0 is None"),
    "y 2-d": (ONE, [0, 0, 1], {"y": [[0], [1]]}, r"shape \(2, 1\).*ravel"),
    "groups": (ONE, [0, 0, 1], {"groups": ["p"]}, "groups must have one entry per bag: 2"),
    "ids count": (ONE, [0, 0], {}, "one entry per row of X: 3; got 2"),
    "ids nan": (ONE, [0, np.nan, 1], {}, "bag_ids must not have missing.*entry 1"),
    "ids none": (ONE, ["a", None, "b"], {}, "bag_ids must not have missing.*entry 1"),
    "labels count": (ONE, [0, 0, 1], {"instance_labels": [1]}, "one entry per row: 3"),
    "labels value": (ONE, [0, 0, 1], {"instance_labels": [0, 2, 1]}, "entry 1 is 2; map"),
    "labels text": (ONE, [0, 0, 1], {"instance_labels": list("011")}, "0, 1, or NaN or -1"),
    "coords count": (ONE, [0, 0, 1], {"coords": [[0, 0]]}, r"\(3, k\); got shape \(1, 2\)"),
    "coords nan": (ONE, [0, 0, 1], {"coords": [[0], [1], [np.nan]]}, "coords.*entry 2.*NaN"),
    "inst ids": (ONE, [0, 0, 1], {"instance_ids": [1]}, "instance_ids .* one entry per row: 3"),
    "names": (ONE, [0, 0, 1], {"feature_names": ["a", "a"]}, "2 distinct names"),
    "1-d": (np.ones(3), [0, 0, 1], {}, "Reshape your data"),
    "3-d": (np.ones((3, 2, 2)), [0, 0, 1], {}, "dim 3.*from_list"),
    "no rows": (np.ones((0, 2)), [], {}, "minimum of 1 is required"),
    "ragged": ([[1], [1, 2]], [0, 1], {}, "X must be a rectangular.*from_list"),
    "y ragged": (ONE, [0, 0, 1], {"y": [[0], [1, 2]]}, "y must be a rectangular"),
    "labels ragged": (ONE, [0, 0, 1], {"instance_labels": [[0], [1, 2]]}, "rectangular"),
    "coords text": (ONE, [0, 0, 1], {"coords": list("abc")}, "coords must be numbers"),
    "coords ragged": (ONE, [0, 0, 1], {"coords": [[0], [1, 2]]}, "coords must be a rectangular"),
    "strings": (ONE.astype(str), [0, 0, 1], {}, "bytes/strings"),
    "objects": (np.array([["1", 2]], dtype=object), [0], {}, "bytes/strings"),
    "text frame": (pd.DataFrame({"a": ["1", "2"]}), [0, 1], {}, "bytes/strings"),
    "complex": (ONE * 1j, [0, 0, 1], {}, "Complex data not supported"),
}


@pytest.mark.parametrize(("X", "ids", "more", "message"), BAD_ARRAYS.values(), ids=list(BAD_ARRAYS))
def test_from_arrays_errors(X: object, ids: object, more: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        Bags.from_arrays(X, ids, **more)


def test_from_arrays_type_errors() -> None:
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        as_bags(np.array([[{"a": 1}, 2]], dtype=object))
    with pytest.raises(TypeError, match=r"one type.*'int', 'str'.*str"):
        Bags.from_arrays(ONE, [0, "a", 1])
    with pytest.raises(TypeError, match="sequence of strings"):
        Bags.from_arrays(ONE, [0, 0, 1], feature_names=[1, 2])


def test_infinite_features_name_bag_row_and_feature() -> None:
    X = np.zeros((5, 3))
    X[1, 2] = -np.inf
    where = "bag 'b', row 0 of that bag (input row 1), feature 2 ('w')"
    words = f"^Input X contains infinity.*{re.escape(where)}.*SimpleImputer"
    with pytest.raises(ValueError, match=words):
        Bags.from_arrays(X, list("abacb"), feature_names=["u", "v", "w"])
    X[0, 0] = np.nan  # which does not hide it
    with pytest.raises(ValueError, match=words):
        Bags.from_arrays(X, list("abacb"), feature_names=["u", "v", "w"])


def test_non_finite_search_is_not_fooled_by_overflow_or_blocks() -> None:
    huge = np.full((10, 2), 1e308)
    assert len(as_bags(huge)) == 10
    X = np.zeros((9000, 1), dtype=np.float32)
    X[8500] = np.inf
    with pytest.raises(ValueError, match="bag 8500, row 0 of that bag"):
        as_bags(X)


BAD_LISTS = {
    "empty": ([], {}, "at least one bag"),
    "empty bag": ([ONE, np.ones((0, 2))], {"ids": ["u", "v"]}, "bag 'v' has 0 instances.*drop"),
    "empty list": ([ONE, []], {}, "bag 1 has 0 instances"),
    "1-d": ([ONE, np.ones(2)], {}, r"bag 1 must be 2-D.*shape \(2,\).*reshape\(1, -1\)"),
    "widths": ([ONE, np.ones((1, 3))], {}, "bag 0 has 2, bag 1 has 3"),
    "ragged": ([[[1, 2], [3]]], {}, "bag 0 .* differ in length"),
    "strings": ([ONE, ONE.astype(str)], {}, "bag 1: .*bytes/strings"),
    "ids": ([ONE], {"ids": [1, 2]}, "ids must have one entry per bag: 1; got 2"),
    "labels": ([ONE, ONE], {"instance_labels": [[0], None]}, "bag 0 .* per instance: 3"),
    "lists": ([ONE, ONE], {"instance_labels": [[0, 1, 0]]}, "one array per bag: 2; got 1"),
    "coords": ([ONE], {"coords": [[[1, 2]]]}, r"coords of bag 0 .*: 3; got shape \(1, 2\)"),
}


@pytest.mark.parametrize(("arrays", "more", "message"), BAD_LISTS.values(), ids=list(BAD_LISTS))
def test_from_list_errors(arrays: list, more: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        Bags.from_list(arrays, **more)


def test_from_list_type_errors() -> None:
    with pytest.raises(TypeError, match=r"takes a list .* got generator"):
        Bags.from_list(x for x in [ONE])


def test_from_frame_errors() -> None:
    df = pd.DataFrame({"bag_id": ["x", "x", "y"], "label": [0, 1, 1], "f": [1.0, 2.0, np.inf]})
    with pytest.raises(ValueError, match=r"'label' must be constant.*bag 'x' has \[0, 1\]"):
        Bags.from_frame(df)
    with pytest.raises(ValueError, match=r"no column 'scan'.*\['bag_id', 'label', 'f'\]"):
        Bags.from_frame(df, bag="scan")
    with pytest.raises(ValueError, match=r"bag 'y', row 0 .*feature 0 .'f'."):
        Bags.from_frame(df, label=None, features=["f"])
    named = df.assign(name=["p", "q", "r"])
    with pytest.raises(ValueError, match=r"'name' has dtype .*features=\[\.\.\.\]"):
        Bags.from_frame(named, label=None)
    with pytest.raises(ValueError, match=r"column 'label' must not have missing.*entry 0"):
        Bags.from_frame(df.assign(label=[None, 1, 1]))
    with pytest.raises(ValueError, match="no feature columns"):
        Bags.from_frame(df[["bag_id", "label"]])
    with pytest.raises(ValueError, match=r"entry 2 is .*infinity"):
        Bags.from_frame(df.assign(g=1.0), label=None, coords="f", features=["g"])
    with pytest.raises(TypeError, match="pandas, polars or pyarrow; got dict"):
        Bags.from_frame({"bag_id": [1]})


def test_from_candidates_and_to_frame_errors(bags: Bags) -> None:
    with pytest.raises(ValueError, match=r"radius must be a positive.*got 0"):
        Bags.from_candidates(ONE, ONE, ONE, 0)
    with pytest.raises(ValueError, match=r"marks .*\(M, 2\); got shape \(1, 3\)"):
        Bags.from_candidates(ONE, ONE, [[1, 2, 3]], 1.0)
    with pytest.raises(ValueError, match="go together; only groups was given"):
        Bags.from_candidates(ONE, ONE, ONE, 1.0, groups=[1, 1, 1])
    with pytest.raises(ValueError, match="distinct; got repeated ids"):
        bags[[0, 0]].to_frame()
    with pytest.raises(ValueError, match=r"must not be called \['label'\]"):
        bags.with_X(bags.X[:, :1], feature_names=["label"]).to_frame()


# --- repr, pickle, scikit-learn ---------------------------------------------------------------


def test_repr(bags: Bags) -> None:
    assert repr(bags) == (
        "Bags(8 bags: 4 positive, 4 negative; 17 instances x 3 features, 1-4 per bag; float64; "
        "with instance_labels, coords, instance_ids, groups, feature_names)"
    )
    plain = Bags.from_list([ONE, ONE, ONE])
    assert repr(plain).startswith("Bags(3 bags, unlabelled; 9 instances x 2 features, 3 per bag;")
    assert "3 bags: 2 'no', 1 'yes';" in repr(plain.with_labels(["no", "no", "yes"]))
    assert "3 bags: 1 1, 2 2;" in repr(plain.with_labels([2, 1, 2]))
    assert repr(plain[:0]).startswith("Bags(0 bags")


@pytest.mark.parametrize(
    "through",
    [lambda b: pickle.loads(pickle.dumps(b)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
def test_copies_stay_read_only(bags: Bags, through: object) -> None:
    twin = through(bags[2:6])
    assert_consistent(twin)
    assert not twin.X.flags.writeable and not twin.coords.flags.writeable


class MaxThreshold(ClassifierMixin, BaseEstimator):
    """Says 1 where the largest first feature of a bag exceeds a threshold; wants coords."""

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = threshold

    def fit(self, X: Bags, y: object = None) -> MaxThreshold:
        assert isinstance(X, Bags) and X.coords is not None and X.groups is not None
        assert len(y) == len(X)
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X: Bags) -> np.ndarray:
        assert isinstance(X, Bags) and X.coords is not None
        return (np.maximum.reduceat(X.X[:, 0], X.offsets[:-1]) > self.threshold).astype(int)


@pytest.fixture
def easy() -> Bags:
    """Thirty bags whose largest feature is above 0.5 exactly if the label is 1."""
    rng = np.random.default_rng(0)
    sizes, y = rng.integers(1, 5, 30), np.arange(30) % 2
    X = rng.uniform(0, 0.5, (sizes.sum(), 1))
    X[np.cumsum(sizes) - 1, 0] += 0.6 * y
    groups = np.arange(30) // 2
    return Bags.from_arrays(X, np.repeat(np.arange(30), sizes), y, coords=X, groups=groups)


def test_scikit_learn_model_selection(easy: Bags) -> None:
    search = GridSearchCV(MaxThreshold(), {"threshold": [0.0, 0.52, 2.0]}, cv=3)
    search.fit(easy, easy.y)
    assert search.best_params_ == {"threshold": 0.52} and search.best_score_ == 1.0
    pipe = make_pipeline(clone(MaxThreshold(threshold=0.52)))
    assert cross_val_score(pipe, easy, easy.y, cv=3).tolist() == [1.0] * 3
    predicted = cross_val_predict(MaxThreshold(0.52), easy, easy.y, cv=3)
    assert predicted.tolist() == easy.y.tolist()


def test_scikit_learn_splitters_return_bags(easy: Bags) -> None:
    train, test, y_train, y_test = train_test_split(easy, easy.y, stratify=easy.y, random_state=0)
    for part, y in ((train, y_train), (test, y_test)):
        assert isinstance(part, Bags) and part.y.tolist() == y.tolist()
        np.testing.assert_array_equal(part.coords, part.X)
    for rows, held_out in StratifiedKFold(3).split(easy, easy.y):
        assert len(easy[rows]) + len(easy[held_out]) == 30
        assert easy[held_out].y.sum() == 5


@pytest.mark.parametrize(
    "ids", [["a", "a\0"], [b"a", b"a\0"], np.array(["a", "a\0"], dtype=object)]
)
def test_ids_that_arrays_of_text_would_merge_are_refused(ids: Any) -> None:
    with pytest.raises(ValueError, match="NUL"):
        Bags.from_arrays(np.zeros((2, 1)), ids)


@pytest.mark.parametrize(
    "ids",
    [[2**63 + 1, 2**63 + 2, -1], [2**53 + 1, 2.0**53, 1], pd.Series([2**63 + 1, 2**63 + 2, -1])],
)
def test_whole_numbers_that_would_be_rounded_are_refused(ids: Any) -> None:
    with pytest.raises(ValueError, match=r"64 bits.*as text"):
        Bags.from_arrays(np.zeros((3, 1)), ids)


def test_large_whole_numbers_stay_apart() -> None:
    assert len(Bags.from_arrays(np.zeros((2, 1)), [2**63 + 1, 2**63 + 2])) == 2
