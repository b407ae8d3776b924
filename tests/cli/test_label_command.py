"""`bagwise label` as a process: started, killed, started again; and `fit --labels`."""

import os
import random
import secrets
import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.cli.labelling.identity import RowNames
from bagwise.cli.labelling.store import Event, LabelStore
from bagwise.io.tables import Columns, read_table
from command_line import good, refused, run
from label_server import LabelServer, folder_with_model, labelled_frame

httpx = pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("uvicorn", reason="the extra label is not installed")

COLUMNS = ("--bag", "slide", "--label", "diagnosis", "--coords", "x", "y")
LONG = bool(os.environ.get("BAGWISE_LONG_TESTS"))
LABELS, KILLS = (1000, 20) if LONG else (30, 2)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_with_model(tmp_path_factory.mktemp("template"))


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    for name in ("cells.csv", "m.bagwise"):
        (tmp_path / name).write_bytes((template / name).read_bytes())
    return tmp_path


def bags_of(folder: Path) -> Any:
    columns = Columns(bag="slide", label="diagnosis", coords=("x", "y"))
    return read_table(folder / "cells.csv", columns).bags


def said(folder: Path, *labels: tuple[int, str, str]) -> Path:
    """A file with labels (row, annotator, action)."""
    path, names = folder / "cells.labels.sqlite", RowNames(bags_of(folder))
    with LabelStore(path, ["healthy", "tumour"]) as store:
        for k, (row, who, action) in enumerate(labels):
            store.add(Event(f"event{k:04d}", who, "2024-01-01T00:00:00Z", action, **names.of(row)))
    return path


class Sender(threading.Thread):
    """Labels one row after the other, and sends each again until it is answered for."""

    def __init__(self, server: LabelServer, n: int) -> None:
        super().__init__(daemon=True)
        self.server, self.n = server, n
        self.answered: list[tuple[str, int, str]] = []
        self.up = threading.Event()

    def run(self) -> None:
        rng = random.Random(0)
        for k in range(self.n):
            row, action = 9 + k % 90, rng.choice(["positive", "negative", "skip"])
            event = secrets.token_hex(16)
            sent = {"event": event, "annotator": f"p{k % 3}", "action": action, "row": row}
            while True:
                self.up.wait()
                try:
                    answer = httpx.post(f"{self.server.base}api/events", json=sent, timeout=120)
                except httpx.HTTPError:
                    continue  # it may have been kept or not: the same event is sent again
                assert answer.status_code == 200, answer.text
                self.answered.append((event, row, action))
                break


def test_labels_under_kills_are_neither_lost_nor_doubled(folder: Path) -> None:
    """BAGWISE_LONG_TESTS=1 tries 1,000 labels and 20 kills."""
    rng = random.Random(1)
    with LabelServer(folder, "--refit-every", "1000000") as server:
        sender = Sender(server, LABELS)
        sender.up.set()
        sender.start()
        for k in range(KILLS):
            wanted = (k + 1) * LABELS // (KILLS + 2) + rng.randrange(3)
            while sender.is_alive() and len(sender.answered) < wanted:
                sender.join(rng.uniform(0.001, 0.02))
            sender.up.clear()
            server.kill()
            server.start()
            sender.up.set()
        sender.join(600)
        assert not sender.is_alive()
    with LabelStore(folder / "cells.labels.sqlite") as store:
        kept = store.events()
    names = RowNames(bags_of(folder))
    found = [(e.event, names.row(e, "cells.csv"), e.action) for e in kept]
    assert found == sender.answered and len(found) == LABELS
    base = sqlite3.connect(folder / "cells.labels.sqlite")
    assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    base.close()


def test_ctrl_c_ends_cleanly_and_the_file_goes_on(folder: Path) -> None:
    with LabelServer(folder) as server:
        sent = {"event": "e0000001", "annotator": "ann", "action": "positive", "row": 13}
        assert httpx.post(f"{server.base}api/events", json=sent, timeout=120).status_code == 200
        first = server.address
        code, words = server.interrupt()
        assert code == 0 and "1 labels, skips and undos are in cells.labels.sqlite" in words
        assert "Traceback" not in words
        server.start()
        assert server.address != first  # another secret
        state = httpx.get(f"{server.base}api/state?annotator=ann", timeout=120).json()
        assert state["counts"] == {"positive": 1}
        outside = httpx.get(f"{server.origin}/api/state?annotator=ann", timeout=120)
        assert outside.status_code == 403


def test_fit_takes_labels_and_leaves_disputes_unknown(folder: Path) -> None:
    path = said(
        folder, (13, "ann", "positive"), (14, "ann", "negative"), (15, "ann", "positive"),
        (15, "bob", "negative"), (16, "bob", "skip"),
    )  # fmt: skip
    result = run(
        "fit", folder / "cells.csv", *COLUMNS, "--positive", "tumour", "--labels", path,
        "--set", "n_inducing=10", "-o", folder / "l.bagwise",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "1 positive, 1 negative; 1 that people disagree about are taken for unknown" in (
        " ".join(result.stderr.split())
    )
    bags = bags_of(folder)
    known = np.full(bags.n_instances, np.nan)
    known[[13, 14]] = 1, 0
    own = bags.with_labels((bags.y == "tumour").astype(int)).with_instance_labels(known)
    expected = bw.ProbitVGPMIL(n_inducing=10, random_state=0).fit(own)
    found = bw.load(folder / "l.bagwise")
    np.testing.assert_allclose(found.latent(own)[0], expected.latent(own)[0], atol=1e-8)


def test_labels_of_another_table_or_class_are_refused(folder: Path) -> None:
    path = said(folder, (13, "ann", "positive"))
    options = (*COLUMNS, "--labels", path)
    wrong = refused("fit", folder / "cells.csv", *options, "--positive", "healthy")
    assert "here 'healthy' is positive" in wrong
    labelled_frame(n_bags=4)[lambda f: f["slide"] != "s01"].to_csv(
        folder / "other.csv", index=False
    )
    missing = refused("fit", folder / "other.csv", *options, "--positive", "tumour")
    assert "bag 's01', which other.csv does not have" in missing
    scheduled = refused("fit", folder / "p.parquet", "--labels", path, "--scheduler", "tcp://h:1")
    assert "--labels is for one table" in scheduled


def test_a_session_on_other_data_is_refused(folder: Path) -> None:
    path = said(folder, (13, "ann", "positive"))
    frame = labelled_frame()
    frame["area"] += 1
    frame.to_csv(folder / "cells.csv", index=False)
    words = refused(
        "label", folder / "m.bagwise", folder / "cells.csv", "--labels", path, "--no-browser"
    )
    assert "has other features in cells.csv than when it was labelled" in words


def test_labels_are_exported(folder: Path) -> None:
    path = said(folder, (13, "ann", "positive"), (13, "bob", "negative"))
    asked = ("label", folder / "m.bagwise", folder / "cells.csv", "--labels", path, "--export")
    good(*asked, folder / "labels.csv")
    found = pd.read_csv(folder / "labels.csv")
    assert found[["bag", "position", "annotator", "label"]].values.tolist() == [
        ["s01", 5, "ann", 1], ["s01", 5, "bob", 0],
    ]  # fmt: skip
    assert found["disputed"].all() and found["agreed"].isna().all()
    good(*asked, folder / "labels.parquet")
    assert "exists and is not overwritten" in refused(*asked, folder / "labels.csv")
    assert "end the output" in refused(*asked, folder / "labels.geojson")
    empty = refused(*asked[:-2], folder / "none.sqlite", "--export", folder / "n.csv")
    assert "no file" in empty


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--image", "2", "2"), "images of 2 x 2 pixels have 4 features"),
        (("--tile-size", "3"), "--tile-size is for --pictures"),
        (("--pictures", "nowhere"), "no folder nowhere"),
        (("--image", "1", "3", "--pictures", "p"), "shown in one way"),
        (("--annotator", "a" * 99), "say who you are"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    folder: Path, options: tuple[str, ...], reason: str
) -> None:
    labels = ("--labels", folder / "l.sqlite", "--no-browser")
    words = refused("label", folder / "m.bagwise", folder / "cells.csv", *labels, *options)
    assert reason in words


def test_users_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run as numbers that no list of users has."""

    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", unknown)
    from bagwise.cli.label import _user

    assert _user() == "unknown"
