"""What commands say of data that go wrong: where it is, and what to type instead."""

import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.bags.number_text import has_decimal_commas
from bagwise.cli import main, sources
from bagwise.cli.errors import describe
from bagwise.cli.options import refuse_beside_scheduler
from bagwise.cli.output import print_grid
from bagwise.cli.workflow import suspects
from bagwise.core.files.atomic import refuse_existing
from bagwise.io.columns import Columns
from bagwise.io.streams import TableError
from bagwise.io.tables import read_table
from command_line import good, refused, run, small_frame

COMMON = ("--label", "diagnosis", "--positive", "cancer")


def saved(frame: pd.DataFrame, folder: Path, name: str = "t.csv") -> Path:
    path = folder / name
    frame.to_csv(path, index=False)
    return path


def refusal(frame: pd.DataFrame, folder: Path, *options: Any) -> str:
    common = () if "--label" in options else COMMON
    line = refused("fit", saved(frame, folder), *common, *options, "-o", folder / "m.bagwise")
    assert not (folder / "m.bagwise").exists()
    return line


def negative_row(frame: pd.DataFrame) -> int:
    """A row of a negative bag that sorting by bag moves."""
    return next(
        int(i)
        for i in np.flatnonzero(frame["diagnosis"] == "healthy")
        if (frame["slide"] < frame["slide"][i]).sum() not in (i, i - 1, i - 2)
    )


def test_contradicting_labels_are_named_by_their_row() -> None:
    frame = small_frame()
    row = negative_row(frame)
    known = np.where(np.arange(len(frame)) == row, 1.0, np.nan)
    table = frame[["slide", "area"]].assign(label=frame["diagnosis"] == "cancer", known=known)
    bags = bw.Bags.from_frame(table, bag="slide", instance_label="known")
    with pytest.raises(ValueError, match=rf"input row {row}, of bag '{frame['slide'][row]}'"):
        bw.MIRVM().fit(bags)


@pytest.mark.parametrize("valid", [(), ("--valid", "0.25")])
def test_contradicting_labels_are_named_by_their_line(
    tmp_path: Path, valid: tuple[str, ...]
) -> None:
    frame = small_frame()
    rows = frame["diagnosis"] == "healthy"
    frame["known"] = np.where(rows, 1, np.nan)
    line = refusal(frame, tmp_path, "--instance-label", "known", *valid)
    lines = [f"line {i + 2}, of bag '{s}'" for i, s in frame.loc[rows, "slide"].items()]
    assert any(text in line for text in lines), line


def test_rows_are_counted_where_lines_differ(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('bag,label,a,note\ns1,1,2,"two\nlines"\ns2,0,inf,x\n')
    with pytest.raises(TableError, match=r"data row 1 \(0-based\)"):
        read_table(path)
    path.write_text("bag,label,a,note\ns1,1,2,x\ns2,0,inf,x")
    with pytest.raises(TableError, match="line 3"):
        read_table(path)


def test_one_bad_cell_does_not_drop_a_feature(tmp_path: Path) -> None:
    frame = small_frame().astype({"area": object})
    frame.loc[[9, 20], "area"] = ["", "1O.5"]
    line = refusal(frame, tmp_path)
    assert "line 22: column 'area' is numeric but for a few cells such as '1O.5'" in line
    assert "--features" in line
    good("fit", tmp_path / "t.csv", *COMMON, "--features", "shade", "-o", tmp_path / "m.bagwise")


@pytest.mark.parametrize("options", [(), ("--features", "area")])
def test_decimal_commas_are_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    path, model = tmp_path / "t.csv", tmp_path / "m.bagwise"
    small_frame().to_csv(path, index=False, sep=";", decimal=",")
    line = refused("fit", path, *COMMON, *options, "--delimiter", ";", "-o", model)
    assert "t.csv has decimal commas in " in line and "'area'" in line
    assert "decimal point" in line and "','" in line and line.endswith("(--decimal)")
    good("fit", saved(small_frame(), tmp_path), *COMMON, "-o", model)
    small_frame().to_csv(path, index=False, sep=";", decimal=",")
    line = refused("predict", model, path, "--delimiter", ";", "-o", tmp_path / "p.csv")
    assert "t.csv has decimal commas in " in line


def test_what_decimal_commas_are() -> None:
    assert not has_decimal_commas(["a,b", "1,2", "x"])
    assert not has_decimal_commas(["1", "2.5", "3"])
    assert not has_decimal_commas(["2024-01-01", "1,2,3"])
    assert not has_decimal_commas([])
    assert has_decimal_commas(["1.234,5", "+3,25", "-,5", "1,5e-3", "7", ""])


def test_spreadsheets_are_to_be_saved_as_csv(tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    line = refused("fit", tmp_path / "t.xlsx", *COMMON)
    assert "t.xlsx is a spreadsheet; save it as CSV" in line


def test_columns_of_text_are_left_out_as_before(tmp_path: Path) -> None:
    frame = small_frame()
    frame["grade"] = np.where(np.arange(len(frame)) % 5 == 0, "high", "2")
    table = read_table(saved(frame, tmp_path), Columns(bag="slide", label="diagnosis"))
    assert table.bags.feature_names == ("area", "shade")


def test_features_that_look_like_instance_labels(tmp_path: Path) -> None:
    frame = small_frame()
    frame["truth"] = ((frame["area"] > 2.5) & (frame["diagnosis"] == "cancer")).astype(int)
    path = saved(frame, tmp_path)
    said = run("fit", path, *COMMON, "-o", tmp_path / "m.bagwise").stderr
    assert "warning: the feature 'truth' looks like instance labels" in said
    assert "--instance-label truth" in said
    said = run(
        "fit", path, *COMMON, "--instance-label", "truth", "-o", tmp_path / "n.bagwise"
    ).stderr
    assert "looks like" not in said


def test_other_features_do_not_look_like_instance_labels() -> None:
    # In turn: never 1, 1 in a negative bag, 1 in one positive bag of four, not binary, labels.
    X = np.zeros((8, 5))
    X[:, 1] = 1
    X[4, 2] = 1
    X[4:, 3] = 0.5
    X[4:, 4] = 1
    bags = bw.Bags.from_arrays(X, range(8), y=np.arange(8) // 4)
    (said,) = suspects(bags)
    assert "'x4'" in said


def test_objects_cannot_be_set_by_text(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("bag,label,f\n" + "".join(f"b{i},{i % 2},{i}\n" for i in range(6)))
    said = refused("fit", table, "--set", "kernel=rbf", "-o", tmp_path / "m.bagwise")
    assert "kernel is an object of Python; fit there, ProbitVGPMIL(kernel=...)" in said


def test_one_class_and_bad_shares(tmp_path: Path) -> None:
    frame = small_frame()
    one = refusal(frame[frame["diagnosis"] == "cancer"], tmp_path)
    assert "both classes are needed, but all 8 bags have the label 'cancer'" in one
    assert "OneVsRest" not in one
    for share in ("0.01", "0", "1", "0.99"):
        line = refusal(frame, tmp_path, "--valid", share)
        assert "--valid" in line and "test_size" not in line
    bags = bw.Bags.from_arrays(np.eye(20), range(20), y=np.arange(20) % 2)
    with pytest.raises(ValueError, match=r"test_size=0.01 of 20 bags .* from 0.1 to 0.9"):
        bags.split(0.01)
    assert len(bags.split(2, random_state=0)[1]) == 2


def test_labels_that_are_missing_or_differ(tmp_path: Path) -> None:
    frame = small_frame()
    model = tmp_path / "m.bagwise"
    good("fit", saved(frame, tmp_path), *COMMON, "-o", model)
    bare = saved(frame.drop(columns="diagnosis"), tmp_path, "bare.csv")
    line = refused("evaluate", model, bare)
    assert "none called 'diagnosis'" in line and "--label COLUMN" in line
    differing = frame.assign(one="a", cell=[f"c{i}" for i in range(len(frame))])
    line = refusal_of_long_list(differing, tmp_path)
    assert "--instance-label" in line and "instance_label=" not in line
    assert "(48 in all)" in line and "'c4', ...]" in line
    assert "is a feature of the model" in refused(
        "predict", model, tmp_path / "t.csv", "--bag", "area"
    )


def refusal_of_long_list(frame: pd.DataFrame, folder: Path) -> str:
    path = saved(frame, folder, "long.csv")
    return refused("fit", path, "--bag", "one", "--label", "cell", "-o", folder / "n.bagwise")


def test_true_and_false_are_the_same_in_all_kinds_of_tables(tmp_path: Path) -> None:
    frame = small_frame()[["slide", "area", "shade"]]
    frame["ill"] = small_frame()["diagnosis"] == "cancer"
    frame.to_parquet(tmp_path / "t.parquet")
    upper = frame.assign(ill=frame["ill"].map({True: "TRUE", False: "FALSE"}))
    files = [saved(frame, tmp_path), saved(upper, tmp_path, "u.csv"), tmp_path / "t.parquet"]
    model, out = tmp_path / "m.bagwise", tmp_path / "p.csv"
    for fitted in files:
        good("fit", fitted, "--label", "ill", "--positive", "TRUE", "--force", "-o", model)
        scores = [good("evaluate", model, f, "--label", "ill", "--json") for f in files]
        assert len(set(scores)) == 1
    good("predict", model, files[1], "--given-labels", "--label", "ill", "-o", out)
    assert pd.read_csv(out, dtype=str)["ill"].tolist() == upper["ill"].tolist()


def test_an_interrupted_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bagwise.cli.workflow.fit_table", interrupt)
    done = run("fit", saved(small_frame(), tmp_path), *COMMON, "-o", tmp_path / "m.bagwise")
    assert done.exit_code == 130
    assert done.stderr.splitlines()[-1] == "interrupted" and "Traceback" not in done.stderr
    assert not (tmp_path / "m.bagwise").exists()


def test_a_command_interrupted_as_it_starts_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bagwise.cli.app.build_app", interrupt)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_force_is_named_only_where_it_helps(tmp_path: Path) -> None:
    path = saved(small_frame(), tmp_path)
    with pytest.raises(FileExistsError) as caught:
        refuse_existing(path)
    assert describe(caught.value).endswith("pass overwrite=True (here: --force)")
    assert "--force" not in describe(FileExistsError("parts must not be mixed; empty the folder"))


def test_options_for_one_table_are_refused_beside_a_scheduler() -> None:
    refuse_beside_scheduler(slides=None, force=False)
    for value in (0.0, 0, True, "x"):
        with pytest.raises(ValueError, match="--tile-size is for one table"):
            refuse_beside_scheduler(tile_size=value)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n" * 9, b"\xff" * 99])
def test_what_listens_but_is_no_scheduler_is_said(
    answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(sources, "PATIENCE", 0.5)
    small_frame().to_parquet(tmp_path / "t.parquet")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)  # of a command that gave up before it came here

        def greet() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(answer)
                    while connection.recv(4096):  # open until the other side gives up
                        pass

        threading.Thread(target=greet, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        line = refused("fit", tmp_path / "t.parquet", "--scheduler", address, "-o", tmp_path / "m")
    assert "no Dask scheduler answered" in line


def test_a_slide_file_in_place_of_a_table_is_explained(tmp_path: Path) -> None:
    (tmp_path / "slide.h5").write_bytes(b"")
    with pytest.raises(TableError, match="features of one slide; pass the folder that holds it"):
        read_table(tmp_path / "slide.h5")


def test_decimal_commas_in_a_table_to_predict_have_a_remedy_that_predict_takes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new.csv"
    path.write_text("slide;area\ns1;1,5\ns2;2,5\n")
    with pytest.raises(TableError) as told:
        read_table(path, delimiter=";", feature_names=["area"])
    assert "decimal point" in str(told.value) and "features" not in describe(told.value)
    with pytest.raises(TableError) as told:
        read_table(path, delimiter=";")
    assert "(--decimal)" in describe(told.value)


def test_rows_with_too_many_fields_may_have_decimal_commas(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("slide,area\ns1,1,5\ns2,2,5\n")
    with pytest.raises(TableError, match="write numbers with a decimal point"):
        read_table(path)


def test_tables_are_not_cut_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    headings = [f"a long heading of column {j}" for j in range(8)]
    print_grid("Scores", headings, [[str(j) * 30 for j in range(8)]])
    said = capsys.readouterr().out
    assert all(h in said for h in headings) and "7" * 30 in said and "\u2026" not in said
