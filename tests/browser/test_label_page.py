"""The page of `bagwise label` in a browser: labels by keyboard, through reloads and kills."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bagwise.cli.labelling.store import Event, LabelStore
from label_server import HOSTILE_BAG, HOSTILE_INSTANCE, LabelServer, folder_with_model

pytest.importorskip("uvicorn", reason="the extra label is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

LONG = 180_000  # ms: nothing here is timed, a machine may be busy

FOREIGN = """async (base) => {
  const sent = {event: "e".repeat(32), annotator: "eve", action: "positive", row: 13};
  const headers = {"Content-Type": "application/json"};
  try {
    await fetch(base + "api/events", {method: "POST", body: JSON.stringify(sent), headers});
    return false;
  } catch { return true; }
}"""


@pytest.fixture(scope="module")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelServer]:
    """A server of bags whose ids are hostile."""
    folder = folder_with_model(tmp_path_factory.mktemp("label"), hostile=True)
    with LabelServer(folder, "--refit-every", "2") as started:
        yield started


@pytest.fixture
def page(browser: Any, server: LabelServer) -> Iterator[Any]:
    context = browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(LONG)
    opened.set_default_navigation_timeout(LONG)
    opened.faults = []
    opened.on("pageerror", lambda error: opened.faults.append(str(error)))
    opened.on(
        "console", lambda line: opened.faults.append(line.text) if line.type == "error" else 0
    )
    open_page(opened, server)
    yield opened
    context.close()


def open_page(page: Any, server: LabelServer) -> None:
    page.goto(server.address)
    page.wait_for_selector("#positive:not([disabled])")


def events(server: LabelServer) -> list[Event]:
    with LabelStore(server.folder / "cells.labels.sqlite") as store:
        return store.events()


def press(page: Any, server: LabelServer, key: str) -> Event:
    """Press a key and wait until what it says is kept and the page has moved on."""
    before = len(events(server))
    number = page.evaluate("page.state.undo ? page.state.undo.event : ''")
    page.keyboard.press(key)
    page.wait_for_function(
        "was => !page.sending && (page.state.undo ? page.state.undo.event : '') !== was "
        "&& page.shown && !byId('skip').disabled",
        arg=number,
    )
    found = events(server)
    assert len(found) == before + 1
    return found[-1]


def test_labels_by_keyboard_outlive_reload_and_kill(page: Any, server: LabelServer) -> None:
    seen = []
    for key, action in (("p", "positive"), ("n", "negative"), ("s", "skip"), ("1", "positive")):
        seen.append(page.evaluate("page.shown.row"))
        kept = press(page, server, key)
        assert (kept.action, kept.annotator) == (action, "ann")
    assert len(set(seen)) == 4
    taken = press(page, server, "u")
    assert taken.action == "undo" and taken.undoes == events(server)[-2].event
    page.wait_for_function(
        "row => page.shown && page.shown.row === row", arg=seen[-1]
    )  # to be answered again
    press(page, server, "0")
    counts = "tumour: 1, healthy: 2, skipped: 1"
    page.wait_for_function("text => byId('counts').textContent.includes(text)", arg=counts)
    page.reload()
    page.wait_for_function("text => byId('counts').textContent.includes(text)", arg=counts)
    server.kill()
    page.wait_for_function("() => !byId('trouble').hidden")
    server.start()
    page.goto("about:blank")
    page.faults.clear()  # of requests that nobody answered
    open_page(page, server)
    page.wait_for_function("text => byId('counts').textContent.includes(text)", arg=counts)
    assert page.evaluate("page.shown.row") not in seen
    page.wait_for_function("() => page.state.gains.length > 1")  # refitted with the labels it had
    assert "With 3 labels: " in page.inner_text("#bought")
    assert page.faults == []


def test_hostile_ids_are_text(page: Any, server: LabelServer) -> None:
    assert HOSTILE_BAG in page.inner_text("#bag-title")
    assert HOSTILE_INSTANCE in page.inner_text("#instance")
    press(page, server, "s")
    page.wait_for_function("() => byId('recent').children.length > 0")
    assert HOSTILE_BAG in page.inner_text("#recent")
    assert page.title() == "Labelling cells.csv"
    assert page.locator("main img[src='x'], main script").count() == 0
    assert page.faults == []


def test_keys_in_the_name_are_no_labels(page: Any, server: LabelServer) -> None:
    before = len(events(server))
    page.fill("#who", "")
    page.click("#who")
    page.keyboard.type("pnsu")
    page.keyboard.press("Tab")
    page.wait_for_function("() => page.drawn.includes('annotator=pnsu')")
    assert len(events(server)) == before
    page.reload()
    page.wait_for_selector("#positive:not([disabled])")
    assert page.input_value("#who") == "pnsu"  # a tab keeps its name


def test_a_question_stays_until_it_is_answered(page: Any, server: LabelServer) -> None:
    """New suggestions must not slip under somebody's fingers."""
    row = page.evaluate("page.shown.row")
    sent = {"event": "answered-by-eve", "annotator": "eve", "action": "positive", "row": row}
    assert page.request.post(f"{server.base}api/events", data=sent).ok
    page.wait_for_function("row => page.state.next !== row && page.shown !== null", arg=row)
    page.wait_for_function("() => byId('said').textContent.includes('eve')")
    assert page.evaluate("page.shown.row") == row
    assert press(page, server, "s").annotator == "ann"
    assert page.evaluate("page.shown.row") != row


def test_two_people_disagree(page: Any, server: LabelServer) -> None:
    row = page.evaluate("page.shown.row")
    press(page, server, "n")
    page.fill("#who", "bob")
    page.keyboard.press("Tab")
    page.wait_for_function("() => page.drawn.includes('annotator=bob')")
    page.evaluate("row => choose(row)", row)
    page.wait_for_function("row => page.shown && page.shown.row === row", arg=row)
    assert "ann: healthy" in page.inner_text("#said")
    kept = press(page, server, "p")
    assert kept.annotator == "bob"
    page.wait_for_function("() => byId('quarrels').textContent.includes('People disagree')")
    assert "bob: tumour" in page.inner_text("#quarrels")


def test_another_site_and_another_secret_are_refused(page: Any, server: LabelServer) -> None:
    before = len(events(server))
    wrong = page.request.get(f"{server.origin}/wrong/api/session")
    assert wrong.status == 403
    other = page.context.new_page()
    other.goto("about:blank")  # whose origin is not the page's
    refused = other.evaluate(FOREIGN, server.base)
    assert refused and len(events(server)) == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits(
    browser: Any, server: LabelServer, screenshots: Path, scheme: str, width: int
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    page.set_default_timeout(LONG)
    open_page(page, server)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=screenshots / f"label-{scheme}-{width}.png", full_page=True)
    context.close()
