"""`Bags.from_frame` takes columns for what their names say, and says so."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.cli.workflow import suspects
from bagwise.io.columns import Columns, guess, pick_features


def full_bags(n_coords: int = 2) -> bw.Bags:
    """Bags with everything that a table can hold."""
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(8), 3)
    return bw.Bags.from_arrays(
        rng.normal(size=(24, 2)),
        bag,
        y=np.arange(8) % 2,
        groups=np.array(["p", "q"])[np.arange(8) // 4],
        instance_ids=[f"t{i}" for i in range(24)],
        instance_labels=np.where(np.arange(24) % 5 == 0, np.nan, (bag % 2) * 1.0),
        coords=rng.normal(size=(24, n_coords)),
        feature_names=["area", "shade"],
    )


def same(a: bw.Bags, b: bw.Bags) -> None:
    assert a.feature_names == b.feature_names
    for name in ("X", "offsets", "y", "ids", "groups", "instance_ids", "instance_labels", "coords"):
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None), name
        if x is not None:
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("n_coords", [1, 2, 3, 5])
def test_what_to_frame_writes_is_read_back(n_coords: int) -> None:
    bags = full_bags(n_coords)
    with pytest.warns(UserWarning, match="from_frame: instance_label='instance_label'.*recognised"):
        same(bw.Bags.from_frame(bags.to_frame()), bags)


def test_the_warning_names_all_that_was_guessed() -> None:
    with pytest.warns(UserWarning) as caught:
        bw.Bags.from_frame(full_bags().to_frame())
    (one,) = caught
    for said in ("coords=['coord_0', 'coord_1']", "group='group'", "instance_id='instance_id'"):
        assert said in str(one.message)
    assert one.filename == __file__


def test_columns_that_are_named_are_not_warned_of() -> None:
    bags = full_bags()
    named: dict[str, Any] = {"instance_label": "instance_label", "coords": ["coord_0", "coord_1"]}
    named |= {"group": "group", "instance_id": "instance_id"}
    same(bw.Bags.from_frame(bags.to_frame(), **named), bags)


def test_none_says_that_there_is_no_such_column() -> None:
    frame = full_bags().to_frame()
    absent = dict.fromkeys(("instance_label", "coords", "group", "instance_id", "label"))
    with pytest.warns(UserWarning, match="left out, row numbers, ids or labels by name"):
        bags = bw.Bags.from_frame(frame, **absent)
    assert bags.feature_names == ("area", "shade")  # the label least of all
    assert all(getattr(bags, n) is None for n in ("y", "coords", "groups", "instance_labels"))


def test_features_that_are_listed_are_features() -> None:
    frame = full_bags().to_frame()[["bag_id", "label", "coord_0", "area"]]
    bags = bw.Bags.from_frame(frame, features=["coord_0", "area"])
    assert bags.feature_names == ("coord_0", "area") and bags.coords is None


ID_NAMES = ["index", "id", "Unnamed: 0", "", "ID", "patient_id", "level_0"]
ID_NAMES += ["PatientID", "patientId", "donorid", "patient_no", "ImageNumber", "ObjectNumber"]
ID_NAMES += ["Image_Number", "barcode", "rownames", "row", "Slide.ID", "id_case", "cell index"]


@pytest.mark.parametrize("name", ID_NAMES)
def test_row_numbers_and_ids_are_no_features(name: str) -> None:
    frame = full_bags().to_frame()[["bag_id", "label", "area"]]
    frame.insert(0, name, np.arange(24) + 5)
    with pytest.warns(UserWarning, match=r"\['.*'\] left out, row numbers"):
        assert bw.Bags.from_frame(frame).feature_names == ("area",)
    assert bw.Bags.from_frame(frame, features=["area", name]).n_features == 2
    columns = Columns(bag="bag_id", label="label")
    chosen, notes = pick_features(frame, columns)
    assert chosen == ["area"]
    assert notes[1].startswith(f"left out, row numbers or ids by name: {name!r}")
    assert not any("not numeric" in note for note in notes)


MEASURED = ["centroid", "acid", "EulerNumber", "copy_number", "mitotic_index", "valid", "n_cells"]


@pytest.mark.parametrize("name", [*MEASURED, "number_of_rows", "nuclei", "idle", "grid", "number"])
def test_whole_numbers_that_are_measured_are_features(name: str) -> None:
    frame = full_bags().to_frame()[["bag_id", "label"]]
    frame[name] = np.random.default_rng(0).integers(0, 30, size=24)
    assert bw.Bags.from_frame(frame).feature_names == (name,)
    assert pick_features(frame, Columns(bag="bag_id", label="label"))[0] == [name]


def test_answers_of_no_are_features() -> None:
    frame = full_bags().to_frame()[["bag_id", "label"]].assign(smoker_no=np.arange(24) % 2)
    assert bw.Bags.from_frame(frame).feature_names == ("smoker_no",)


def test_numbers_with_gaps_are_looked_at_too() -> None:
    frame = full_bags().to_frame()[["bag_id", "label", "area"]]
    frame["lab_no"] = pd.array([None, *range(23)], dtype="Int64")
    with pytest.warns(UserWarning, match=r"\['lab_no'\] left out, row numbers"):
        assert bw.Bags.from_frame(frame).feature_names == ("area",)


COUNTS = {
    "of the table": np.arange(24),
    "from 1": np.arange(24) + 1,
    "of a shuffled table": np.random.default_rng(0).permutation(24),
    "of each bag": np.arange(24) % 3,
    "of each bag, from 1, shuffled": (7 - np.arange(24)) % 3 + 1,
}


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_counts_of_rows_are_no_features(counts: Any) -> None:
    frame = full_bags().to_frame()[["bag_id", "label", "area"]].assign(conf=counts)
    with pytest.warns(UserWarning, match=r"\['conf'\] left out, counting the rows.*features="):
        assert bw.Bags.from_frame(frame).feature_names == ("area",)
    assert bw.Bags.from_frame(frame, features=["area", "conf"]).n_features == 2
    chosen, notes = pick_features(frame, Columns(bag="bag_id", label="label"))
    assert chosen == ["area"]
    assert notes[1].startswith("left out, counting rows, of all or of a bag: 'conf'")
    measured = frame.assign(conf=counts * 0.5)
    assert bw.Bags.from_frame(measured).feature_names == ("area", "conf")
    measured = frame.assign(conf=np.where(np.arange(24) == 7, 0, counts + 1))  # a gap, two alike
    assert bw.Bags.from_frame(measured).feature_names == ("area", "conf")


def test_an_index_that_is_measured_is_a_feature() -> None:
    frame = full_bags().to_frame()[["bag_id", "label", "area"]].rename(columns={"area": "index"})
    assert bw.Bags.from_frame(frame).feature_names == ("index",)
    assert pick_features(frame, Columns(bag="bag_id", label="label"))[0] == ["index"]


def test_the_command_line_reads_more_than_three_coordinates() -> None:
    found, _ = guess([*full_bags(5).to_frame().columns], Columns())
    assert found.coords == tuple(f"coord_{j}" for j in range(5))


def test_tables_that_could_not_be_read_back_are_not_written() -> None:
    bags = full_bags().with_instance_labels(None)
    for name in ("instance_label", "coord_7", "Label"):
        with pytest.raises(ValueError, match="features must not be called"):
            bags.with_X(bags.X, feature_names=["area", name]).to_frame()
    numbers = bags.with_X(np.arange(48.0).reshape(24, 2), feature_names=["area", "id"])
    with pytest.raises(ValueError, match=r"features must not be called \['id'\]"):
        numbers.to_frame()


@pytest.mark.parametrize("positive", [None, "cancer"])
@pytest.mark.parametrize("known", [True, False], ids=["label", "instance label"])
def test_features_that_are_labels_are_warned_of(known: bool, positive: str | None) -> None:
    bags = full_bags()
    truth = bags.y[bags.bag_index]
    frame = pd.DataFrame({"bag_id": bags.bag_index, "area": bags.X[:, 0], "tumour": truth})
    if not known:
        frame.loc[np.arange(24) % 3 > 0, "tumour"] = 0
    frame["label"] = np.array(["healthy", "cancer"])[truth] if positive else truth
    with pytest.warns(UserWarning, match="'tumour' looks like labels.*instance_label='tumour'"):
        bw.Bags.from_frame(frame, positive=positive)
    if positive:
        with pytest.warns(UserWarning, match="'tumour' looks like labels"):
            bw.Bags.from_frame(frame)


def test_names_of_labels_are_warned_of() -> None:
    frame = full_bags().to_frame()[["bag_id", "area"]]
    frame["tile_label"] = np.arange(24) % 2
    with pytest.warns(UserWarning, match="'tile_label' looks like labels.*its name"):
        bw.Bags.from_frame(frame, label=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bw.Bags.from_frame(frame, label=None, instance_label="tile_label")
        bw.Bags.from_frame(frame.rename(columns={"tile_label": "round"}), label=None)


@pytest.mark.parametrize("values", [(1, 2), (2, 1), (-0.5, 3.25)])
def test_copies_of_bag_labels_are_warned_of(values: tuple[float, float]) -> None:
    bags = full_bags()
    frame = bags.to_frame()[["bag_id", "label", "area"]]
    frame["stage"] = np.array(values)[frame["label"]]
    with pytest.warns(UserWarning, match="'stage' is the same in all instances.*a copy of the lab"):
        bw.Bags.from_frame(frame)
    named = frame.assign(label=np.array(["well", "ill"])[frame["label"]])
    with pytest.warns(UserWarning, match="'stage' is the same in all instances"):
        bw.Bags.from_frame(named, positive="ill")
    (said,) = suspects(bags.with_X(frame[["area", "stage"]], ["area", "stage"]))
    assert "'stage' is the same in all instances" in said and "--features" in said


def test_what_bags_share_is_no_copy_of_their_labels() -> None:
    bags = full_bags()
    frame = bags.to_frame()[["bag_id", "label", "area"]]
    apart = frame["label"] * 10.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bw.Bags.from_frame(frame.assign(age=apart + frame["bag_id"]))  # 4 of 8 bags: by chance
        bw.Bags.from_frame(frame.assign(age=frame["bag_id"] % 4))
        bw.Bags.from_frame(frame.assign(shift=apart + frame["area"]))  # varies inside bags
        bw.Bags.from_frame(frame.assign(bag_id=range(24), shift=apart + 1))  # one instance each


def test_decimal_commas_and_ids_in_the_index_are_told() -> None:
    frame = full_bags().to_frame()[["bag_id", "label", "area"]]
    text = frame.assign(area=frame["area"].map("{:.3f}".format).str.replace(".", ","))
    with pytest.raises(ValueError, match=r"'area'.*it has decimal commas: .*decimal=','"):
        bw.Bags.from_frame(text)
    with pytest.raises(ValueError, match=r"no column 'bag_id'.*it is in the index.*reset_index"):
        bw.Bags.from_frame(frame.set_index("bag_id"))


def test_a_group_that_differs_inside_bags_is_no_group() -> None:
    frame = pd.DataFrame({"bag_id": [1, 1, 2, 2], "label": [0, 0, 1, 1], "a": [0.1, 0.4, 0.2, 0.9]})
    frame["group"] = [3.5, 4.5, 5.5, 6.5]
    with pytest.warns(UserWarning, match=r"\['group'\] left out"):
        bags = bw.Bags.from_frame(frame)
    assert bags.groups is None and list(bags.feature_names) == ["a"]
    assert bw.Bags.from_frame(frame, features=["a", "group"]).n_features == 2
