"""Tables in and out: formats, guessed columns, ids and order kept, and every kind of bad table."""

import io
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bad_tables import BAD, GOOD
from bagwise.bags import Bags
from bagwise.bags.messages import InputError
from bagwise.io import streams
from bagwise.io.columns import Columns, guess
from bagwise.io.streams import CheckedText, TableError
from bagwise.io.tables import read_table
from bagwise.io.write_tables import safe_cell, write_table


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.read_csv(io.StringIO(GOOD))


def written(folder: Path, name: str, frame: pd.DataFrame) -> Path:
    path = folder / name
    write_table(frame, path)
    return path


@pytest.mark.parametrize(
    "name", ["t.csv", "t.tsv", "t.csv.gz", "t.tsv.gz", "t.parquet", "t.feather", "T.CSV"]
)
def test_every_format_gives_the_same_bags(tmp_path: Path, name: str, frame: pd.DataFrame) -> None:
    table = read_table(written(tmp_path, name, frame))
    assert table.bags.ids.tolist() == ["s1", "s2"]
    np.testing.assert_array_equal(table.bags.y, [1, 0])
    np.testing.assert_array_equal(table.bags.X, [[4.5], [3.5], [5.5]])
    np.testing.assert_array_equal(table.bags.coords, [[1, 2], [1, 2], [3, 4]])
    assert table.rows["slide"].tolist() == ["s2", "s1", "s2"]
    assert table.rows["note"].tolist() == ["a", "b", "c"]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(GOOD.replace(",", "\t").encode())

    monkeypatch.setattr("sys.stdin", Stdin)
    assert len(read_table("-").bags) == 2


def test_guesses_are_said(tmp_path: Path, frame: pd.DataFrame) -> None:
    notes = read_table(written(tmp_path, "t.csv", frame)).notes
    said = "\n".join(notes)
    for word in ("bag column: 'slide'", "label column: 'label'", "'x', 'y'", "'area'", "'note'"):
        assert word in said


def test_named_columns_are_not_guessed(tmp_path: Path, frame: pd.DataFrame) -> None:
    path = written(tmp_path, "t.csv", frame)
    table = read_table(path, Columns(bag="note", label="slide", features=("a*", "x")))
    assert table.bags.ids.tolist() == ["a", "b", "c"]
    assert table.bags.feature_names == ("area", "x")


@pytest.mark.parametrize("cell", ["1_0", "\u0661\u0662", "\uff11", "1\u00a0"])
def test_numbers_of_python_that_tables_do_not_have_are_named(cell: str, tmp_path: Path) -> None:
    """One such cell made a column of numbers one of text, and no feature."""
    rows = "".join(f"b{i // 2},{i // 2 % 2},{i}.5,0.{i}\n" for i in range(30))
    path = tmp_path / "t.csv"
    path.write_text(f"bag,label,f,g\n{rows}b14,0,{cell},0.5\n", encoding="utf-8")
    with pytest.raises(TableError, match=r"line 32: column 'f' is numeric but for a few cells"):
        read_table(path)


@pytest.mark.parametrize("labels", [("1_0", "2_0"), ("\u0661", "1"), ("1_0", "10")])
def test_labels_that_python_takes_for_numbers_stay_text(
    labels: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"b{i},{labels[i % 2]},{i}\n" for i in range(4))
    path.write_text(f"bag,label,f\n{rows}", encoding="utf-8")
    found = read_table(path).bags.y
    assert found is not None and found.tolist() == [*labels, *labels]


def test_y_is_a_label_only_without_x() -> None:
    assert guess(["bag", "x", "y"], Columns())[0].coords == ("x", "y")
    assert guess(["bag", "y", "f"], Columns())[0].label == "y"


def test_remembered_columns_come_before_guesses() -> None:
    header = ["bag_id", "scan", "outcome", "f"]
    old = Columns(bag="scan", label="outcome", group="gone")
    found, notes = guess(header, Columns(), remembered=old)
    assert (found.bag, found.label, found.group, notes) == ("scan", "outcome", None, [])


def test_ids_stay_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("bag,label,a\n007,1,2\n7,0,3\n1e3,0,4\n2020-01-02,1,5\n")
    assert set(read_table(path).bags.ids) == {"007", "7", "1e3", "2020-01-02"}
    path.write_text("bag,label,a\n10,1,2\n9,0,3\n")
    np.testing.assert_array_equal(read_table(path).bags.ids, [9, 10])


def test_a_model_finds_its_features_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("b,extra,bag,a\n1,x,s,2\n3,y,s,4\n")
    table = read_table(path, feature_names=["a", "b"])
    np.testing.assert_array_equal(table.bags.X, [[2, 1], [4, 3]])
    with pytest.raises(TableError, match=r"lacks 1 of the 2 features.*'c'"):
        read_table(path, feature_names=["a", "c"])


NULLABLE = pd.DataFrame(
    {
        "bag": ["a", "a", "b"],
        "label": pd.array([1, 1, 0], dtype="Int64"),
        "count": pd.array([1, None, 3], dtype="Int64"),
        "seen": pd.array([True, False, None], dtype="boolean"),
        "width": pd.array([0.5, None, 2.5], dtype="Float32"),
        "height": pd.array([4, 5, 6], dtype="Int32"),
    }
)


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.csv"])
def test_missing_numbers_and_truth_values_are_nan(tmp_path: Path, name: str) -> None:
    bags = read_table(written(tmp_path, name, NULLABLE)).bags
    nan = np.nan
    np.testing.assert_array_equal(bags.X, [[1, 1, 0.5, 4], [nan, 0, nan, 5], [3, nan, 2.5, 6]])
    assert bags.y is not None and bags.y.dtype.kind == "i"


def test_lists_are_features_in_parquet_and_in_text(tmp_path: Path) -> None:
    X = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    frame = pd.DataFrame({"bag": ["a", "b"], "label": [0, 1], "embedding": list(X)})
    for name in ("t.parquet", "t.csv"):
        data = (
            frame
            if name.endswith("parquet")
            else frame.assign(embedding=[str(row.tolist()) for row in X])
        )
        table = read_table(written(tmp_path, name, data))
        np.testing.assert_array_equal(table.bags.X, X)
        assert table.bags.feature_names == ("embedding[0]", "embedding[1]")
        again = read_table(tmp_path / name, feature_names=table.bags.feature_names)
        np.testing.assert_array_equal(again.bags.X, X)
    assert read_table(tmp_path / "t.parquet").bags.dtype == np.float32


@pytest.mark.parametrize("kind", BAD)
def test_bad_tables_are_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    text, columns, message = BAD[kind]
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TableError, match=message) as caught:
        read_table(path, Columns(**columns))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".xlsx"])
def test_other_content_than_the_ending_says(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t{ending}"
    path.write_text(GOOD)
    with pytest.raises(TableError, match=ending[1:]):
        read_table(path)


def test_endless_lines_are_refused_with_bounded_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 3 * 2**20)

    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            assert size > 0, "the source must never be read to its end"
            self.given += size
            return b"1" * size

    source = Endless()
    stream = io.BufferedReader(CheckedText(source, "t.csv"), 2**20)
    with pytest.raises(TableError, match=r"t\.csv, line 1: longer than 3 MiB"):
        stream.readline()
    assert source.given <= 5 * 2**20


def test_a_long_line_in_the_middle_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "t.csv"
    path.write_text("bag,label,a\ns,1,2\n" + "s" * 2000 + ",1,2\n")
    with pytest.raises(TableError, match="line 3: longer than"):
        read_table(path)


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_checks_do_not_depend_on_how_bytes_are_cut(size: int) -> None:
    class Drip(io.BytesIO):
        def read(self, n: int | None = -1) -> bytes:
            return super().read(min(size, n or size))

    text = "bag,é\nä,1\n".encode("utf-8-sig")
    assert CheckedText(Drip(text), "t").readall() == text[3:]
    with pytest.raises(TableError, match="line 2: not UTF-8"):
        CheckedText(Drip(text[:7] + b"\n\xc3"), "t").readall()


@pytest.mark.parametrize("hidden", ["\ufeff", "\ufeff\ufeff", "\u200b\ufeff", "\x00"])
def test_formulas_behind_invisible_characters_do_not_run(hidden: str) -> None:
    assert safe_cell(f"{hidden}=SUM(A1)") == f"'{hidden}=SUM(A1)"
    assert safe_cell(f"{hidden}text") == f"{hidden}text"


def test_formulas_are_defused_in_text_only(tmp_path: Path) -> None:
    frame = pd.DataFrame({"bag": ["=SUM(A1)", "-x", "@y", "ok"], "p_mean": [-1.0, 0.5, 0.2, 0.1]})
    text = written(tmp_path, "t.csv", frame).read_text()
    assert text.splitlines()[1:] == ["'=SUM(A1),-1.0", "'-x,0.5", "'@y,0.2", "ok,0.1"]
    kept = pd.read_parquet(written(tmp_path, "t.parquet", frame))
    assert kept["bag"].tolist() == frame["bag"].tolist()


def test_existing_files_are_kept(tmp_path: Path, frame: pd.DataFrame) -> None:
    path = tmp_path / "t.csv"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_table(frame, path)
    assert path.read_text() == "mine"
    write_table(frame, path, overwrite=True)
    assert path.read_text().startswith("slide,")
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_unknown_endings_are_not_written(tmp_path: Path, frame: pd.DataFrame) -> None:
    with pytest.raises(TableError, match=r"use \.csv"):
        write_table(frame, tmp_path / "t.xlsx")


def test_errors_carry_the_row_and_the_argument_that_they_are_about(tmp_path: Path) -> None:
    frame = pd.DataFrame({"bag_id": ["a", "a", "b"], "label": [0, 1, 1], "f": [1.0, 2.0, np.inf]})
    with pytest.raises(InputError, match=r"constant inside a bag.*instance_label=") as caught:
        Bags.from_frame(frame)
    assert caught.value.argument == "instance_label" and caught.value.row is None
    with pytest.raises(InputError, match=r"constant inside a bag.*instance_labels="):
        Bags.from_arrays(frame[["f"]].replace(np.inf, 0), frame["bag_id"], frame["label"])
    with pytest.raises(InputError, match="input row 2") as caught:
        Bags.from_frame(frame.assign(label=[0, 0, 1]))
    assert caught.value.row == 2
    sent = pickle.loads(pickle.dumps(caught.value))  # as workers send it
    assert (str(sent), sent.row) == (str(caught.value), 2)
    (tmp_path / "t.csv").write_text("bag,label,f\na,0,1\nb,1,2\n")
    notes = read_table(tmp_path / "t.csv").notes
    assert notes and not any("--" in note for note in notes)
    assert pickle.loads(pickle.dumps(notes)) == notes
