"""What people say is kept once, in order, and found again by the rows of its table."""

import os
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bagwise.bags import Bags
from bagwise.cli.labelling.identity import RowNames
from bagwise.cli.labelling.opinions import Opinions, believable, joined, opinion_frame
from bagwise.cli.labelling.store import (
    Event,
    LabelFileError,
    LabelStorageError,
    LabelStore,
    RefusedEventError,
)

CLASSES = ["healthy", "tumour"]
NAN = np.nan


def event(name: str, who: str = "ann", action: str = "positive", row: int = 0, **more) -> Event:  # type: ignore[no-untyped-def]
    about = RowNames(bags()).of(row)
    return Event(name, who, "2024-05-01T10:00:00Z", action, **{**about, **more})


def bags(**more) -> Bags:  # type: ignore[no-untyped-def]
    X = [np.arange(6.0).reshape(3, 2), 10 + np.arange(4.0).reshape(2, 2)]
    return Bags.from_list(X, [1, 0], ids=["a", "b"], **more)


@pytest.fixture
def store(tmp_path: Path):  # type: ignore[no-untyped-def]
    with LabelStore(tmp_path / "labels.sqlite", CLASSES) as opened:
        yield opened


def test_the_file_is_flushed_at_each_event(store: LabelStore) -> None:
    assert store._base.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._base.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    store.add(event("e0000001"))
    other = sqlite3.connect(store.path)  # what another process sees at once
    assert other.execute("SELECT count(*) FROM events").fetchone() == (1,)
    other.close()


def test_an_event_sent_twice_counts_once(store: LabelStore) -> None:
    first = store.add(event("e0000001"))
    again = store.add(replace(event("e0000001"), time="2024-05-02T10:00:00Z"))
    assert again == first and len(store.events()) == 1
    with pytest.raises(RefusedEventError, match="same id"):
        store.add(event("e0000001", action="negative"))


def test_events_of_many_threads_are_all_kept(store: LabelStore) -> None:
    def add(who: int) -> None:
        for k in range(20):
            store.add(event(f"event-{who}-{k}", who=f"p{who}"))

    threads = [threading.Thread(target=add, args=(w,)) for w in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({e.event for e in store.events()}) == 80
    assert [e.number for e in store.events(after=70)] == list(range(71, 81))


def test_undo_is_an_event_and_the_word_before_it_stands_again(store: LabelStore) -> None:
    opinions = Opinions(bags(), "t.csv")
    for sent in (
        event("e0000001"),
        event("e0000002", action="negative"),
        event("e0000003", action="undo", undoes="e0000002"),
    ):
        store.add(sent)
    opinions.hear(store.events())
    assert opinions.labels()[0].tolist()[0] == 1
    assert len(store.events()) == 3
    last = opinions.last_of("ann")
    assert last is not None and last[1].event == "e0000001" and opinions.last_of("bob") is None
    with pytest.raises(RefusedEventError, match="taken back already"):
        store.add(event("e0000004", action="undo", undoes="e0000002"))
    store.add(event("e0000005", action="undo", undoes="e0000001"))
    opinions.hear(store.events(after=opinions.last))
    assert np.isnan(opinions.labels()[0]).all() and opinions.last_of("ann") is None


def test_two_people_keep_both_labels_and_a_dispute_is_unknown(store: LabelStore) -> None:
    for sent in (
        event("e0000001", "ann"),
        event("e0000002", "bob", "negative"),
        event("e0000003", "ann", "negative", row=1),
        event("e0000004", "bob", "negative", row=1),
        event("e0000005", "ann", "skip", row=2),
        event("e0000006", "bob", "positive", row=2),
    ):
        store.add(sent)
    opinions = Opinions(bags(), "t.csv")
    opinions.hear(store.events())
    known, disputed = opinions.labels()
    np.testing.assert_array_equal(known, [NAN, 0, 1, NAN, NAN])
    assert disputed == [0]
    frame = opinion_frame(store, bags(), "t.csv")
    assert frame["label"].tolist()[:2] == [1, 0] and frame["disputed"].tolist()[:2] == [True, True]
    assert frame["annotator"].tolist() == ["ann", "bob"] * 3 and frame["label"].isna().sum() == 1


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (bags()[[1]], "bag 'a', which t.csv does not have"),
        (Bags.from_list([[[1.0, 1.0]]], ids=["a"]), "which has 1 in t.csv"),
        (bags().with_X(bags().X + 1), "has other features in t.csv"),
    ],
)
def test_labels_of_other_data_are_refused_with_the_reason(other: Bags, reason: str) -> None:
    sent = event("e0000001", row=2)
    with pytest.raises(LabelFileError, match=reason):
        Opinions(other, "t.csv").hear([sent])


def test_rows_with_ids_are_found_in_any_order() -> None:
    named = bags(instance_ids=[["i", "j", "k"], ["i", "j"]])
    sent = Event("e0000001", "ann", "t", "positive", **RowNames(named).of(2))
    turned = Bags.from_list(
        [named.X[3:5], named.X[:3][::-1]],
        ids=["b", "a"],
        instance_ids=[["i", "j"], ["k", "j", "i"]],
    )
    assert RowNames(turned).row(sent, "t.csv") == 2
    assert turned.X[2].tolist() == named.X[2].tolist()
    with pytest.raises(LabelFileError, match="no column of them"):
        RowNames(bags()).row(sent, "t.csv")
    with pytest.raises(LabelFileError, match="instance 'k' of bag 'a'"):
        RowNames(bags(instance_ids=[["i", "j", "l"], ["i", "j"]])).row(sent, "t.csv")


def test_features_of_either_precision_are_the_same_row() -> None:
    sent = event("e0000001", row=1)
    single = bags().with_X(bags().X.astype(np.float32))
    assert RowNames(single).row(sent, "t.csv") == 1


def test_labels_that_contradict_their_bag_are_set_aside() -> None:
    known = np.array([0.0, 0.0, 0.0, 1.0, NAN])
    own = np.array([NAN, 0.0, NAN, NAN, NAN])
    offsets, T = np.array([0, 3, 5]), np.array([1.0, 0.0])
    taken, wrong = believable(known, own, offsets, T, noisy=False)
    np.testing.assert_array_equal(taken, [NAN, 0, NAN, NAN, NAN])
    assert wrong == [0, 2, 3]
    assert believable(known, own, offsets, T, noisy=True)[1] == []
    unlabelled = np.array([NAN, NAN])
    assert believable(known, own, offsets, unlabelled, noisy=False)[1] == []


def test_labels_of_table_and_people_must_agree() -> None:
    own = bags(instance_labels=[[1, NAN, NAN], [0, 0]])
    np.testing.assert_array_equal(joined(own, np.array([NAN, 0, NAN, NAN, NAN])), [1, 0, NAN, 0, 0])
    with pytest.raises(ValueError, match="row 1 of bag a"):
        joined(own, np.array([0, 0, NAN, NAN, NAN]))


def test_files_of_others_are_refused(tmp_path: Path, store: LabelStore) -> None:
    with pytest.raises(LabelFileError, match="'tumour' from 'healthy'"):
        LabelStore(store.path, ["no", "yes"])
    text = tmp_path / "text.sqlite"
    text.write_text("these are no labels\n" * 99)
    with pytest.raises(LabelFileError, match="no file of labels"):
        LabelStore(text, CLASSES)
    assert text.read_text().startswith("these")
    other = tmp_path / "other.sqlite"
    base = sqlite3.connect(other)
    base.execute("CREATE TABLE events (event TEXT)")
    base.commit()
    base.close()
    with pytest.raises(LabelFileError, match="another program"):
        LabelStore(other, CLASSES)
    with pytest.raises(FileNotFoundError, match="no file"):
        LabelStore(tmp_path / "none.sqlite")
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(LabelFileError, match="empty"):
        LabelStore(tmp_path / "empty.sqlite")


def test_damaged_files_are_refused(tmp_path: Path, store: LabelStore) -> None:
    store.add(event("e0000001"))
    store.close()
    whole = store.path.read_bytes()
    for cut in (100, 700, len(whole) // 2):
        path = tmp_path / f"cut{cut}.sqlite"
        path.write_bytes(whole[:cut])
        with pytest.raises(LabelFileError), LabelStore(path, CLASSES) as opened:
            opened.events()


def test_ids_that_stand_twice_in_a_bag_are_refused() -> None:
    """A label of one of them would be found again at the other."""
    bags = Bags.from_list([np.zeros((3, 1))], ids=["s1"], instance_ids=[["a", "a", "b"]])
    with pytest.raises(ValueError, match=r"bag 's1' has 'a' twice; make them distinct"):
        RowNames(bags)


def crafted(store: LabelStore, statement: str, *values: object) -> Path:
    """A file of labels after something that `bagwise label` does not do to it."""
    store.add(event("e0000001"))
    store.close()
    base = sqlite3.connect(store.path)
    base.execute("PRAGMA ignore_check_constraints=1")
    base.execute(statement, values)
    base.commit()
    base.close()
    return store.path


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("event", b"e0000001"),
        ("annotator", b"\xff"),
        ("time", b"now"),
        ("action", "perhaps"),
        ("action", "undo"),
        ("bag", b"a"),
        ("position", "first"),
        ("position", 0.5),
        ("position", -1),
        ("instance", b"i"),
        ("features", b"f"),
        ("undoes", "e0000001"),
    ],
)
def test_labels_that_nobody_can_have_given_are_refused(
    store: LabelStore, column: str, value: object
) -> None:
    """SQLite keeps any type in any column."""
    path = crafted(store, f"UPDATE events SET {column} = ?", value)
    with LabelStore(path) as opened, pytest.raises(LabelFileError, match="does not write"):
        opened.events()


def test_text_that_is_none_is_refused(store: LabelStore) -> None:
    path = crafted(store, "UPDATE events SET annotator = CAST(x'ff' AS TEXT)")
    with LabelStore(path) as opened, pytest.raises(LabelFileError, match="damaged"):
        opened.events()


ENDLESS = """CREATE VIEW events AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
SELECT i AS number, 'e' || i AS event, 'ann' AS annotator, 'now' AS time, 'skip' AS action,
'a' AS bag, 0 AS position, NULL AS instance, NULL AS features, NULL AS undoes FROM n"""


@pytest.mark.parametrize(
    "statement",
    [
        ENDLESS,
        "CREATE TABLE events (number, event)",
        "CREATE TABLE another (a)",
        "CREATE INDEX i ON about (value)",
        "CREATE TRIGGER t AFTER INSERT ON about BEGIN DELETE FROM about; END",
        "DROP TABLE about",
    ],
)
def test_tables_of_others_are_not_asked(store: LabelStore, statement: str) -> None:
    """Views and triggers run when they are read or written to, for ever if they like."""
    if " events " in statement:
        crafted(store, "ALTER TABLE events RENAME TO former")
        base = sqlite3.connect(store.path)
        base.execute("DROP TABLE former")
        base.execute(statement)
        base.close()
    else:
        crafted(store, statement)
    with pytest.raises(LabelFileError, match="other tables"):
        LabelStore(store.path)


def test_a_file_that_another_program_holds_is_said(
    store: LabelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bagwise.cli.labelling.store.PATIENCE", 0.05)
    store.close()
    base = sqlite3.connect(store.path, isolation_level=None)
    base.execute("PRAGMA journal_mode=DELETE")
    base.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LabelStorageError, match=r"at present \(database is locked\)"):
        LabelStore(store.path)
    base.close()


def test_a_file_that_gets_locked_on_the_way_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bagwise.cli.labelling.store.PATIENCE", 0.05)
    with LabelStore(tmp_path / "labels.sqlite", CLASSES) as store:
        base = sqlite3.connect(store.path, isolation_level=None)
        base.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LabelStorageError, match="at present"):
            store.add(event("e0000001"))
        base.execute("ROLLBACK")
        base.close()
        store.add(event("e0000001"))
        assert len(store.events()) == 1


def test_names_that_mean_no_file_to_sqlite_are_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with LabelStore(":memory:", CLASSES) as store:
        store.add(event("e0000001"))
    with LabelStore(":memory:") as store:
        assert len(store.events()) == 1


@pytest.mark.parametrize("end", ["", "-wal", "-journal", "-shm"])
def test_pipes_are_not_waited_for(tmp_path: Path, store: LabelStore, end: str) -> None:
    store.close()
    Path(f"{store.path}{end}").unlink(missing_ok=True)
    os.mkfifo(f"{store.path}{end}")
    with pytest.raises(LabelFileError, match="pipe"):
        LabelStore(store.path, CLASSES)
