"""The server of `bagwise label`: who is refused, what is answered, what refits make of it."""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bagwise.cli.labelling.guard import HEADERS, LARGEST_BODY
from bagwise.cli.labelling.pictures import Pictures
from bagwise.cli.labelling.session import Session
from bagwise.cli.labelling.store import LabelStore
from bagwise.cli.labelling.worker import Answer, Desk, Job
from bagwise.io.tables import Columns, read_table
from label_server import fitted_model, labelled_frame

pytest.importorskip("fastapi", reason="the extra label is not installed")
testclient = pytest.importorskip("fastapi.testclient", reason="httpx is not installed")

TOKEN = "t" * 32
PORT = 8123


class Here:
    """A worker in this process: jobs wait until a test has them done."""

    def __init__(self, model: Any, bags: Any) -> None:
        self.desk, self.jobs, self.session = Desk(model, bags, None), [], None

    def send(self, job: Job) -> None:
        self.jobs.append(job)

    def receive(self) -> None:
        return None

    def close(self) -> None:
        pass

    def work(self) -> None:
        """Do all jobs that wait, and those that follow from them."""
        while self.jobs:
            for answer in self.desk.answers(self.jobs.pop(0), lambda: True):
                self.take(answer)

    def take(self, answer: Answer) -> None:
        with self.session._lock:
            self.session._take(answer)
            self.session._refit_if_due()


@pytest.fixture(scope="module")
def model_and_table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("table") / "cells.csv"
    frame = labelled_frame()
    frame.to_csv(path, index=False)
    table = read_table(path, Columns(bag="slide", label="diagnosis", coords=("x", "y")))
    bags = table.bags.with_labels((table.bags.y == "tumour").astype(int))
    return fitted_model(frame), bags


@pytest.fixture
def label(model_and_table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session with a client that has the right address."""
    from bagwise.cli.labelling.server import build_server

    model, bags = model_and_table
    monkeypatch.setattr(Session, "_ended", lambda self: None)  # the worker here has no process
    worker = Here(model, bags)
    store = LabelStore(tmp_path / "labels.sqlite", ["healthy", "tumour"])
    session = Session(
        bags, store, worker, name="cells.csv", refit_every=2, positive=1, noisy=False,
        pictures=Pictures(),
    )  # fmt: skip
    worker.session = session
    app = build_server(session, TOKEN, PORT)
    base = f"http://127.0.0.1:{PORT}"
    client = testclient.TestClient(app, base_url=f"{base}/{TOKEN}/")
    outside = testclient.TestClient(app, base_url=base)
    yield SimpleNamespace(session=session, worker=worker, client=client, outside=outside, bags=bags)
    store.close()


def send(
    label: Any, event: str, action: str = "positive", row: int | None = 13, **more: Any
) -> Any:
    sent = {"event": event, "annotator": "ann", "action": action, "row": row, **more}
    return label.client.post("api/events", json=sent)


def truth(row: int) -> str:
    """What is right of a row of a tumour."""
    return "positive" if row % 9 == 4 else "negative"


def state(label: Any, who: str = "ann", **more: Any) -> Any:
    found = label.client.get("api/state", params={"annotator": who, **more})
    assert found.status_code == 200, found.text
    return found.json()


# --- Who is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/api/session", "/wrong/", f"/{TOKEN[:-1]}", f"/{TOKEN[:-1]}/api/state"]
)
def test_without_the_secret_nothing_is_answered(label: Any, path: str) -> None:
    answer = label.outside.get(path)
    assert answer.status_code == 403 and "secret" in answer.text
    assert TOKEN not in answer.text


def test_the_address_without_its_last_slash_leads_to_the_page(label: Any) -> None:
    answer = label.outside.get(f"/{TOKEN}", follow_redirects=False)
    assert answer.status_code == 308 and answer.headers["location"] == f"/{TOKEN}/"
    assert label.outside.get(f"/{TOKEN}", follow_redirects=True).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1:1", f"127.0.0.1.evil:{PORT}", ""]
)
def test_another_name_for_this_machine_is_refused(label: Any, host: str) -> None:
    answer = label.client.get("api/session", headers={"host": host})
    assert answer.status_code == 421
    assert label.client.get("api/session", headers={"host": f"localhost:{PORT}"}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", f"http://127.0.0.1:{PORT + 1}", f"https://127.0.0.1:{PORT}"],
)
def test_another_origin_is_refused(label: Any, origin: str) -> None:
    sent = {"event": "e0000001", "annotator": "ann", "action": "positive", "row": 13}
    answer = label.client.post("api/events", json=sent, headers={"origin": origin})
    assert answer.status_code == 403 and not label.session.store.events()
    own = {"origin": f"http://127.0.0.1:{PORT}"}
    assert label.client.post("api/events", json=sent, headers=own).status_code == 200


def test_requests_of_other_sites_are_refused_but_the_page_may_be_opened(label: Any) -> None:
    across = {"sec-fetch-site": "cross-site"}
    assert label.client.get("api/session", headers=across).status_code == 403
    assert label.client.get("", headers=across).status_code == 200


def test_bodies_are_small_and_json(label: Any) -> None:
    plain = {"content-type": "text/plain"}
    assert label.client.post("api/events", content="{}", headers=plain).status_code == 415
    long = send(label, "e0000001", annotator="a" * LARGEST_BODY)
    assert long.status_code == 413


def test_every_answer_is_sealed(label: Any) -> None:
    for answer in (
        label.client.get(""), label.client.get("api/session"), label.client.get("nothing"),
        label.outside.get("/"), send(label, "bad"),
    ):  # fmt: skip
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_the_page_asks_no_other_machine(label: Any) -> None:
    for name in ("", "label.css", "label.js", "icon.svg"):
        answer = label.client.get(name)
        assert answer.status_code == 200
        found = set(re.findall(r"https?://[^\"'\s)]+", answer.text))
        assert found <= {"http://www.w3.org/2000/svg"}, found
        assert "innerHTML" not in answer.text
    assert (
        label.client.get("docs").status_code == label.client.get("openapi.json").status_code == 404
    )


# --- What is kept --------------------------------------------------------------------------------


def test_a_label_that_is_sent_twice_is_kept_once(label: Any) -> None:
    first = send(label, "e0000001")
    assert first.status_code == 200 and send(label, "e0000001").json() == first.json()
    assert send(label, "e0000001", "negative").status_code == 409
    assert state(label)["counts"] == {"positive": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"event": "short"}, {"event": "e 0000001"}, {"row": 9999}, {"row": -1}, {"row": None},
        {"action": "delete"}, {"annotator": " "}, {"annotator": "a\nb"}, {"annotator": "a" * 81},
        {"action": "undo"}, {"action": "undo", "undoes": "e0000009"},
    ],
)  # fmt: skip
def test_events_that_make_no_sense_are_refused(label: Any, wrong: dict[str, Any]) -> None:
    sent = {"event": "e0000001", "annotator": "ann", "action": "positive", "row": 13, **wrong}
    assert label.client.post("api/events", json=sent).status_code == 409
    assert label.client.post("api/events", json={**sent, "more": 1}).status_code == 422
    assert not label.session.store.events()


def test_people_take_back_their_own_labels_alone(label: Any) -> None:
    send(label, "e0000001")
    other = send(label, "e0000002", "undo", None, annotator="bob", undoes="e0000001")
    assert other.status_code == 409
    mine = send(label, "e0000003", "undo", None, undoes="e0000001")
    again = send(label, "e0000003", "undo", None, undoes="e0000001")
    assert mine.status_code == again.status_code == 200
    assert state(label)["counts"] == {} and len(label.session.store.events()) == 2
    assert send(label, "e0000004", "undo", None, undoes="e0000001").status_code == 409


def test_disagreement_is_shown_and_no_label(label: Any) -> None:
    label.worker.work()
    send(label, "e0000001")
    second = state(label, "bob", second="true")
    assert second["next"] == 13
    blind = label.client.get(
        "api/instance/13", params={"annotator": "bob", "second": "true"}
    ).json()
    assert blind["said"] == {} and blind["labels"][4] is None
    send(label, "e0000002", "negative", annotator="bob")
    found = state(label, "bob")
    assert [d["said"] for d in found["disputed"]] == [{"ann": "positive", "bob": "negative"}]
    assert found["people"] == {"ann": 1, "bob": 1} and found["refit"]["new"] == 0
    shown = label.client.get("api/instance/13", params={"annotator": "bob"}).json()
    assert shown["labels"][4] == "disputed"


def test_labels_that_contradict_their_bag_are_kept_and_shown_but_not_fitted(label: Any) -> None:
    label.worker.work()
    send(label, "e0000001", row=0)  # of a healthy bag
    found = state(label)
    assert [w["row"] for w in found["wrong"]] == [0] and found["refit"]["new"] == 0
    assert found["counts"] == {"positive": 1}


# --- Suggestions and refits ----------------------------------------------------------------------


def test_the_model_is_refitted_and_asks_for_something_else(label: Any) -> None:
    assert state(label)["refit"]["state"] == "starting"
    label.worker.work()
    before = state(label)
    first = before["next"]
    assert label.session._T[label.bags.bag_index[first]] == 1
    row = label.client.get(f"api/instance/{first}", params={"annotator": "ann"}).json()
    send(label, "e0000001", truth(first), first)
    after_one = state(label)
    assert after_one["next"] != first and not label.worker.jobs
    send(label, "e0000002", "skip", after_one["next"])
    third = state(label)["next"]
    assert third not in (first, after_one["next"])
    send(label, "e0000003", truth(third), third)
    assert state(label)["refit"]["state"] == "refitting"
    label.worker.work()
    found = state(label)
    assert found["refit"]["state"] == "idle" and found["version"] > before["version"]
    assert [g["labels"] for g in found["gains"]] == [0, 2]
    assert found["gains"][1]["entropy"] != found["gains"][0]["entropy"]
    again = label.client.get(f"api/instance/{first}", params={"annotator": "ann"}).json()
    k = row["number"] - 1
    assert (again["p"][k] > row["p"][k]) == (truth(first) == "positive")
    assert again["labels"][k] == truth(first)
    assert found["next"] not in (first, after_one["next"], third)


def test_where_all_questions_are_skipped_others_are_asked(label: Any) -> None:
    label.worker.work()
    label.session._questions = label.session._questions[:2]
    asked = []
    for k in range(2):
        asked.append(state(label)["next"])
        send(label, f"event-{k}-skip", "skip", asked[-1])
    assert [job.refit for job in label.worker.jobs] == [False]  # there is nothing new to fit
    label.worker.work()
    assert state(label)["next"] not in (None, *asked) and not label.worker.jobs


def test_a_failed_refit_is_told_and_labels_go_on(label: Any) -> None:
    label.worker.take(Answer(0, problem="the fit broke down"))
    assert state(label)["refit"]["problem"] == "the fit broke down"
    assert send(label, "e0000001").status_code == 200


def test_labels_of_another_process_are_heard(label: Any) -> None:
    with LabelStore(label.session.store.path) as other:
        about = label.session._opinions.of(13)
        from bagwise.cli.labelling.store import Event

        other.add(Event("e0000001", "bob", "2024-01-01T00:00:00Z", "positive", **about))
    assert state(label)["people"] == {"bob": 1}


def test_a_label_of_the_table_is_not_asked_for(model_and_table: Any, tmp_path: Path) -> None:
    _, bags = model_and_table
    known = np.full(bags.n_instances, np.nan)
    known[13] = 1
    worker = SimpleNamespace(send=lambda job: None, receive=lambda: None)
    with LabelStore(tmp_path / "labels.sqlite", ["healthy", "tumour"]) as store:
        session = Session(
            bags.with_instance_labels(known), store, worker, name="t", refit_every=2,
            positive=1, noisy=False, pictures=Pictures(),
        )  # fmt: skip
        with pytest.raises(ValueError, match="the table has the label"):
            session.record("e0000001", "ann", "negative", 13, None)


def test_exports_hold_what_stands(label: Any) -> None:
    send(label, "e0000001")
    send(label, "e0000002", "negative", 14, annotator="=1+1")
    text = label.client.get("api/export.csv")
    assert "attachment" in text.headers["content-disposition"]
    found = pd.read_csv(io.StringIO(text.text))
    assert found["label"].tolist() == [1, 0] and found["position"].tolist() == [5, 6]
    assert found["annotator"].tolist() == ["ann", "'=1+1"]
    table = pd.read_parquet(io.BytesIO(label.client.get("api/export.parquet").content))
    assert table["annotator"].tolist() == ["ann", "=1+1"]
    assert label.client.get("api/export.exe").status_code == 404


def test_answers_are_json_without_nan(label: Any) -> None:
    label.worker.take(Answer(0, gain=(float("nan"), 0.5)))
    found = json.loads(label.client.get("api/state", params={"annotator": "ann"}).text)
    assert found["gains"][0]["left_out"] is None
