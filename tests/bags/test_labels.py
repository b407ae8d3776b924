"""Labels go to the bags they belong to, and it is known which of them is positive."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

import bagwise as bw
from bagwise.baselines import MILR
from bagwise.metrics import bag_scores
from toy_bags import separable_bags

NAMES = np.array(["healthy", "cancer"])


def quick(**more: Any) -> Any:
    return bw.ProbitVGPMIL(n_inducing=10, max_iter=50, bag_score="joint", random_state=0, **more)


def quick_linear() -> Any:
    return bw.MILogisticRegression(alpha=1.0, random_state=0)


@pytest.fixture
def bags() -> bw.Bags:
    plain = separable_bags(24, 3)
    ids = np.array([f"s{i:02}" for i in range(len(plain))])
    return bw.Bags.from_list([b.X for b in plain], plain.y, ids=ids)


def shuffled(values: Any, ids: Any, seed: int = 0) -> pd.Series:
    order = np.random.default_rng(seed).permutation(len(ids))
    return pd.Series(np.asarray(values)[order], index=np.asarray(ids)[order])


# --- Series are found by their index -------------------------------------------------------------


def test_constructors_put_a_series_in_the_order_of_the_bags(bags: bw.Bags) -> None:
    y, groups = shuffled(bags.y, bags.ids), shuffled(bags.ids, bags.ids, seed=1)
    assert not np.array_equal(y.to_numpy(), bags.y)
    row_ids = bags.ids[bags.bag_index]
    for back in (
        bw.Bags.from_arrays(bags.X, row_ids, y=y, groups=groups),
        bw.Bags.from_list([b.X for b in bags], y, ids=bags.ids, groups=groups),
    ):
        np.testing.assert_array_equal(back.y, bags.y)
        np.testing.assert_array_equal(back.groups, bags.ids)
    np.testing.assert_array_equal(bags.with_labels(y).y, bags.y)


@pytest.mark.parametrize(
    "model",
    [quick_linear(), MILR(), bw.OneVsRestMIL(quick_linear())],
    ids=lambda m: type(m).__name__,
)
def test_fit_and_score_put_a_series_in_the_order_of_the_bags(model: Any, bags: bw.Bags) -> None:
    y = shuffled(bags.y, bags.ids)
    p = model.fit(bags, bags.y).predict_proba(bags)
    np.testing.assert_array_equal(model.fit(bags, y).predict_proba(bags), p)
    assert model.score(bags, y) == model.score(bags, bags.y) >= 0.9


def test_tables_of_labels_tasks_and_scores_too(bags: bw.Bags) -> None:
    matrix = pd.DataFrame({"a": bags.y, "b": 1 - bags.y}, index=bags.ids)
    model = bw.OneVsRestMIL(quick_linear()).fit(bags, matrix.sample(frac=1, random_state=0))
    expected = bw.OneVsRestMIL(quick_linear()).fit(bags, matrix.to_numpy())
    np.testing.assert_array_equal(model.predict_proba(bags), expected.predict_proba(bags))
    tasks = np.arange(len(bags)) // 12
    several = bw.MultiTaskMIRVM(random_state=0)
    p = several.fit(bags, tasks=tasks).predict_proba(bags, task=0)
    q = several.fit(bags, tasks=shuffled(tasks, bags.ids)).predict_proba(bags, task=0)
    np.testing.assert_array_equal(p, q)
    fitted = quick_linear().fit(bags)
    assert bag_scores(fitted, bags, shuffled(bags.y, bags.ids)) == bag_scores(fitted, bags)


def test_integer_ids_are_found_too() -> None:
    ids = [30, 10, 20]
    y = pd.Series([3, 1, 2], index=ids)
    assert bw.Bags.from_arrays(np.eye(3), [10, 20, 30], y=y).y.tolist() == [1, 2, 3]


def test_row_numbers_are_taken_in_their_order(bags: bw.Bags) -> None:
    y = pd.Series(bags.y)
    np.testing.assert_array_equal(bags.with_labels(y).y, bags.y)
    folds = np.array([5, 2, 19])  # as scikit-learn's splitters choose from both
    np.testing.assert_array_equal(bags[folds].with_labels(y.iloc[folds]).y, bags.y[folds])
    numbered = bw.Bags.from_list([b.X for b in bags], ids=np.arange(len(bags)) + 1000)
    np.testing.assert_array_equal(numbered.with_labels(y).y, bags.y)
    np.testing.assert_array_equal(numbered[folds].with_labels(y.iloc[folds]).y, bags.y[folds])


def test_bags_drawn_twice_keep_their_labels(bags: bw.Bags) -> None:
    y = pd.Series(bags.y, index=bags.ids)
    drawn = [3, 3, 1]
    np.testing.assert_array_equal(bags[drawn].with_labels(y.iloc[drawn]).y, bags.y[drawn])


THREE = bw.Bags.from_list([[[1.0]], [[2.0]], [[3.0]]], ids=["a", "b", "c"])
REFUSED = {
    "other ids": (["a", "b", "z"], r"must hold the bag ids; it lacks \['c'\] and has \['z'\]"),
    "no ids at all": (["x", "y", "z"], "it lacks"),
    "ids twice": (["a", "b", "b"], r"has \['b'\] more than once"),
    "numbers that have a name": (pd.Index([4, 5, 6], name="slide"), "must hold the bag ids"),
    "two levels": (pd.MultiIndex.from_tuples([("a", 1), ("b", 1), ("c", 1)]), "must hold"),
}


@pytest.mark.parametrize("index, message", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_found_is_refused(index: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}.*to_numpy"):
        THREE.with_labels(pd.Series([0, 1, 0], index=index))


def test_ids_that_look_like_row_numbers_in_another_order_are_refused() -> None:
    X = [[[1.0]], [[2.0]], [[3.0]]]
    y = pd.Series([0, 1, 0])
    with pytest.raises(ValueError, match=r"these numbers in another order.*say which is meant"):
        bw.Bags.from_list(X, y, ids=[2, 0, 1])
    ids = [str(i) for i in range(12)]  # as text they sort as 0, 1, 10, 11, 2
    with pytest.raises(ValueError, match="these numbers in another order"):
        bw.Bags.from_arrays(np.eye(12), ids, y=pd.Series(np.arange(12) % 2))
    assert bw.Bags.from_list(X, y, ids=[0, 1, 2]).y.tolist() == [0, 1, 0]
    found = bw.Bags.from_list(X, y.set_axis([1, 2, 0]), ids=[2, 0, 1])
    assert found.y.tolist() == [1, 0, 0]


def test_rows_in_another_order_than_x_are_refused() -> None:
    X = pd.DataFrame({"f": [1.0, 2.0, 3.0]}, index=[7, 8, 9])
    ids = pd.Series(["a", "b", "b"], index=[9, 8, 7])
    with pytest.raises(ValueError, match=r"bag_ids has the rows of X in another order.*loc\[X"):
        bw.Bags.from_arrays(X, ids)
    assert bw.Bags.from_arrays(X, ids.loc[X.index]).ids.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="instance_labels has the rows of X in another order"):
        bw.Bags.from_arrays(X, [1, 1, 2], instance_labels=ids == "a")


# --- Labels of rows, dicts and tables of one column ----------------------------------------------


def shuffled_rows() -> pd.DataFrame:
    """40 donors with ten rows each, whose order and index are shuffled."""
    donors = np.repeat([f"d{i:02d}" for i in range(40)], 10)
    frame = pd.DataFrame({"donor": donors, "y": np.repeat(np.arange(40) % 2, 10), "a": 0.5})
    return frame.sample(frac=1, random_state=0)


def test_labels_of_rows_become_labels_of_bags() -> None:
    df, truth = shuffled_rows(), np.arange(40) % 2
    for y in (df.y, df.y.to_numpy(), df.y.tolist(), df[["y"]], df.set_index("donor").y):
        made = bw.Bags.from_arrays(df[["a"]], df.donor, y, groups=df.donor)
        np.testing.assert_array_equal(made.y, truth)
        np.testing.assert_array_equal(made.groups, made.ids)
    names = pd.Categorical(NAMES[df.y], categories=NAMES, ordered=True)
    for y in (names, pd.Series(names, index=df.index)):
        np.testing.assert_array_equal(bw.Bags.from_arrays(df[["a"]], df.donor, y).y, truth)


def test_labels_of_rows_that_differ_inside_a_bag_are_refused() -> None:
    df = shuffled_rows()
    for y in (df.y.sort_index().to_numpy(), np.arange(400) % 2):
        with pytest.raises(ValueError, match=r"y, with one entry per row, must be constant inside"):
            bw.Bags.from_arrays(df[["a"]], df.donor, y)
    with pytest.raises(ValueError, match=r"y has the rows of X in another order.*y.loc\[X.index\]"):
        bw.Bags.from_arrays(df[["a"]], df.donor, df.y.sort_index())
    with pytest.raises(ValueError, match=r"rows of bag_ids in another.*y.loc\[bag_ids.index\]"):
        bw.Bags.from_arrays(df[["a"]].to_numpy(), df.donor, df.y.sort_index())
    by_id = df.sort_values("donor").set_index("donor").y
    with pytest.raises(ValueError, match="its index has the bag ids in another order"):
        bw.Bags.from_arrays(df[["a"]], df.donor, by_id)
    assert bw.Bags.from_arrays(df[["a"]], df.donor, by_id.groupby(level=0).first()).y.sum() == 20


def test_rows_chosen_from_a_table_say_nothing_about_bags() -> None:
    df = shuffled_rows()
    first = np.unique(df.donor, return_index=True)[1]
    for chosen in (df.y[first], df.drop_duplicates("donor").y):  # by label, and by appearance
        with pytest.raises(ValueError, match=r"neither the bag ids nor 0, 1, 2.*to_numpy\(\)"):
            bw.Bags.from_arrays(df[["a"]], df.donor, chosen)
        with pytest.raises(ValueError, match="groups has an index of whole numbers"):
            bw.Bags.from_arrays(df[["a"]], df.donor, groups=chosen)
    made = bw.Bags.from_arrays(df[["a"]], df.donor)
    with pytest.raises(ValueError, match=r"one per row: take np.asarray\(y\)\[np.unique"):
        made.with_labels(df.y)
    np.testing.assert_array_equal(made.with_labels(np.asarray(df.y)[first]).y, np.arange(40) % 2)


def test_one_row_per_bag_in_another_order_is_refused() -> None:
    df = pd.DataFrame({"donor": ["c", "a", "b"], "y": [1, 0, 0], "a": [3.0, 1.0, 2.0]})
    with pytest.raises(ValueError, match=r"one row, and y has the index of the rows.*set_axis"):
        bw.Bags.from_arrays(df[["a"]], df.donor, df.y)
    made = bw.Bags.from_arrays(df[["a"]], df.donor, df.y.set_axis(df.donor))
    assert made.y.tolist() == [0, 0, 1]
    assert bw.Bags.from_arrays(df[["a"]], df.donor, [0, 0, 1]).y.tolist() == [0, 0, 1]


def test_dicts_and_tables_of_one_column_are_found_by_their_ids(bags: bw.Bags) -> None:
    y = shuffled(bags.y, bags.ids)
    row_ids = bags.ids[bags.bag_index]
    for labels in (y.to_dict(), y.to_frame("label")):
        np.testing.assert_array_equal(bw.Bags.from_arrays(bags.X, row_ids, labels).y, bags.y)
        np.testing.assert_array_equal(bags.with_labels(labels).y, bags.y)
        model = quick_linear().fit(bags, labels)
        assert model.score(bags, labels) == model.score(bags, bags.y)
    more = {**y.to_dict(), "other": 1}
    with pytest.raises(
        ValueError, match=r"keys of y must hold.*has \['other'\] besides; .*for i in"
    ):
        bags.with_labels(more)
    with pytest.raises(ValueError, match=r"keys of y must hold the bag ids.*it lacks \['s00'\]"):
        bags.with_labels({i: 1 for i in bags.ids[1:]})


def test_tables_of_several_columns_are_refused(bags: bw.Bags) -> None:
    table = pd.DataFrame({"label": bags.y, "site": bags.y}, index=bags.ids)
    with pytest.raises(ValueError, match=r"one-dimensional.*pass y\['label'\]"):
        bags.with_labels(table)


def test_missing_and_other_ids_are_named(bags: bw.Bags) -> None:
    y = pd.Series(bags.y, index=bags.ids)
    row_ids = bags.ids[bags.bag_index]
    last = bags.ids[-1]
    with pytest.raises(ValueError, match=rf"index of y must hold.*lacks \['{last}'\]; give these"):
        bw.Bags.from_arrays(bags.X, row_ids, y.iloc[:-1])
    some_rows = row_ids != last
    with pytest.raises(ValueError, match=rf"it has \['{last}'\] besides; .*y\.loc\["):
        bw.Bags.from_arrays(bags.X[some_rows], row_ids[some_rows], y)


@pytest.mark.parametrize(
    "model",
    [quick_linear(), MILR(), bw.OneVsRestMIL(quick_linear())],
    ids=lambda m: type(m).__name__,
)
def test_splitters_choose_series_along_with_lists_and_arrays(model: Any, bags: bw.Bags) -> None:
    y = pd.Series(bags.y)
    arrays = [b.X for b in bags]
    single = np.array([b.X.max(axis=0) for b in bags])
    for X in (bags, arrays, single, pd.DataFrame(single, columns=list("abc"))):
        with_index = cross_val_score(model, X, y, cv=3, error_score="raise")
        np.testing.assert_array_equal(with_index, cross_val_score(model, X, bags.y, cv=3))


# --- Which label is positive ---------------------------------------------------------------------


def test_positive_makes_labels_zero_and_one(bags: bw.Bags) -> None:
    text, arrays = NAMES[bags.y], [b.X for b in bags]
    row_ids = bags.ids[bags.bag_index]
    frame = bags.to_frame().assign(label=text[bags.bag_index])
    for made in (
        bw.Bags.from_arrays(bags.X, row_ids, y=text, positive="cancer"),
        bw.Bags.from_list(arrays, text, positive="cancer"),
        bw.Bags.from_frame(frame, positive="cancer"),
        bags.with_labels(text, positive="cancer"),
    ):
        np.testing.assert_array_equal(made.y, bags.y)


@pytest.mark.parametrize("model", [quick(), quick_linear(), MILR()], ids=lambda m: type(m).__name__)
def test_fit_takes_the_positive_label(model: Any, bags: bw.Bags, tmp_path: Any) -> None:
    text = NAMES[bags.y]  # sorted, "cancer" would be negative
    expected = model.fit(bags, bags.y).predict_proba(bags)
    model.fit(bags, text, positive="cancer")
    assert model.classes_.tolist() == ["healthy", "cancer"]
    np.testing.assert_array_equal(model.predict_proba(bags), expected)
    assert model.score(bags, text) >= 0.9
    if hasattr(model, "save"):
        model.save(tmp_path / "m.bagwise")
        assert bw.load(tmp_path / "m.bagwise").classes_.tolist() == ["healthy", "cancer"]


@pytest.mark.parametrize("model", [quick(), quick_linear(), MILR()], ids=lambda m: type(m).__name__)
def test_text_without_positive_is_refused(model: Any, bags: bw.Bags) -> None:
    for args in ((bags, NAMES[bags.y]), (bags.with_labels(NAMES[bags.y]),)):
        with pytest.raises(ValueError, match=r"labels are text, 'cancer' and 'healthy'.*positive="):
            model.fit(*args)
    objects = NAMES[bags.y].astype(object)
    with pytest.raises(ValueError, match="the labels are text"):
        model.fit(bags, objects)


def test_pairs_that_say_it_and_single_instances_need_no_positive(bags: bw.Bags) -> None:
    model = quick_linear().fit(bags, np.array(["no", "yes"])[bags.y])
    assert model.classes_.tolist() == ["no", "yes"]
    single = np.array([b.X.max(axis=0) for b in bags])
    # Bags of one instance: neither class is "at least one", as in any classifier.
    assert quick_linear().fit(single, NAMES[bags.y]).classes_.tolist() == ["cancer", "healthy"]


def test_classes_of_one_against_the_rest_need_no_positive(bags: bw.Bags) -> None:
    model = bw.OneVsRestMIL(quick_linear()).fit(bags, NAMES[bags.y])
    assert model.classes_.tolist() == ["cancer", "healthy"]
    assert model.score(bags, NAMES[bags.y]) >= 0.9


@pytest.mark.parametrize("categories", [["healthy", "cancer"], ["healthy", "cancer", "unsure"]])
def test_ordered_categories_are_honoured(categories: list[str], bags: bw.Bags) -> None:
    y = pd.Series(pd.Categorical(NAMES[bags.y], categories=categories, ordered=True))
    model = quick_linear().fit(bags, y)
    assert model.classes_.tolist() == ["healthy", "cancer"]
    assert quick_linear().fit(bags, y.array).classes_.tolist() == ["healthy", "cancer"]
    np.testing.assert_array_equal(bags.with_labels(y).y, bags.y)
    by_id = y.set_axis(bags.ids).sample(frac=1, random_state=0)
    np.testing.assert_array_equal(bags.with_labels(by_id).y, bags.y)
    frame = bags.to_frame().assign(label=y.to_numpy()[bags.bag_index])
    frame["label"] = pd.Categorical(frame["label"], categories=categories, ordered=True)
    np.testing.assert_array_equal(bw.Bags.from_frame(frame).y, bags.y)


def test_unordered_categories_and_three_ordered_ones_stay_names(bags: bw.Bags) -> None:
    names = NAMES[bags.y]
    assert bags.with_labels(pd.Categorical(names)).y.tolist() == names.tolist()
    grades = pd.Categorical(["low", "high", "mid"], ["low", "mid", "high"], ordered=True)
    assert THREE.with_labels(grades).y.tolist() == ["low", "high", "mid"]


def test_a_positive_label_that_does_not_fit(bags: bw.Bags) -> None:
    names = NAMES[bags.y]
    with pytest.raises(ValueError, match=r"positive='Cancer' is none of the labels \['cancer'"):
        bags.with_labels(names, positive="Cancer")
    with pytest.raises(ValueError, match="positive='Cancer' is none of the labels"):
        quick_linear().fit(bags, names, positive="Cancer")
    with pytest.raises(ValueError, match=r"two classes.*OneVsRestMIL"):
        THREE.with_labels(["x", "y", "z"], positive="x")
    with pytest.warns(UserWarning, match="no bag has the label positive='cancer'"):
        assert THREE.with_labels(["healthy"] * 3, positive="cancer").y.tolist() == [0, 0, 0]


def test_numbers_and_booleans_are_as_before(bags: bw.Bags) -> None:
    for values in ((0, 1), (False, True), (-1, 1), (3.0, 7.0)):
        model = quick_linear().fit(bags, np.array(values)[bags.y])
        assert model.classes_.tolist() == list(values)
    model = quick_linear().fit(bags, np.array([7, 3])[bags.y], positive=3)
    assert model.classes_.tolist() == [7, 3]


# --- Masked arrays -------------------------------------------------------------------------------

MASKED = np.ma.masked_greater(np.array([1.0, 2.0, 9.0]), 5)
MASKED_INPUT = {
    "X": lambda: bw.Bags.from_arrays(MASKED[:, None], [1, 2, 3]),
    "bag_ids": lambda: bw.Bags.from_arrays(np.eye(3), MASKED),
    "y": lambda: bw.Bags.from_arrays(np.eye(3), [1, 2, 3], y=MASKED),
    "groups": lambda: bw.Bags.from_arrays(np.eye(3), [1, 2, 3], groups=MASKED),
    "instance_ids": lambda: bw.Bags.from_arrays(np.eye(3), [1, 2, 3], instance_ids=MASKED),
    "instance_labels": lambda: THREE.with_instance_labels(np.ma.masked_equal([0, 1, 1], 0)),
    "coords": lambda: bw.Bags.from_arrays(np.eye(3), [1, 2, 3], coords=MASKED),
    "marks": lambda: bw.Bags.from_candidates([[1.0]], [[0.0]], MASKED[:, None], radius=1),
    "bag 1": lambda: bw.Bags.from_list([np.eye(3), np.ma.masked_equal(np.eye(3), 1)]),
    "coords of bag 0": lambda: bw.Bags.from_list([np.eye(3)], coords=[MASKED[:, None]]),
}


@pytest.mark.parametrize("name, build", MASKED_INPUT.items(), ids=MASKED_INPUT)
def test_masked_entries_are_refused(name: str, build: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must not be masked; .* the first at"):
        build()


def test_masked_input_of_fits_is_refused(bags: bw.Bags) -> None:
    y = np.ma.masked_array(bags.y, mask=bags.y == 1)
    for model in (quick_linear(), MILR(), bw.OneVsRestMIL(quick_linear())):
        with pytest.raises(ValueError, match="y must not be masked; 12 entries are"):
            model.fit(bags, y)
    fitted = quick_linear().fit(bags)
    with pytest.raises(ValueError, match="X must not be masked"):
        fitted.predict(np.ma.masked_greater(bags.X, 3))


def test_arrays_of_which_nothing_is_masked_pass() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bags = bw.Bags.from_arrays(np.ma.array(np.eye(3)), [1, 2, 3], y=np.ma.array([0, 1, 0]))
    assert bags.y.tolist() == [0, 1, 0] and type(bags.X) is np.ndarray
