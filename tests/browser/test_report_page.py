"""The report in a browser: sorting, filters, bags, keyboard, themes, widths, no errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagwise import Bags, ProbitVGPMIL
from bagwise.report import write_report

EVIL = "<script>window.hacked = 1</script>"
SIZES = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def bags() -> Bags:
    """Forty bags on a plane, with images of 4 x 4 pixels, one of them with a hostile name."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    sizes = rng.integers(5, 30, 40)
    sizes[7] = 300
    X = [rng.normal(size=(n, 16)) for n in sizes]
    for Xb, label in zip(X, y, strict=True):
        Xb[: 1 + len(Xb) // 5] += 1.5 * label
    ids = [f"slide_{b:02d}" for b in range(40)]
    ids[3] = EVIL
    truth = np.concatenate([(np.arange(n) < 1 + n // 5) * t for n, t in zip(sizes, y, strict=True)])
    truth = truth.astype(float)
    truth[np.cumsum(sizes)[4] + 1 : np.cumsum(sizes)[5] : 2] = np.nan  # half of slide_05
    coords = [rng.random((n, 2)) * [800, 500] for n in sizes]
    return Bags.from_list(X, y, ids=ids, coords=coords, instance_labels=truth)


@pytest.fixture(scope="module")
def model(bags: Bags) -> ProbitVGPMIL:
    train = bags[np.arange(40) != 7].with_instance_labels(None)
    return ProbitVGPMIL(n_inducing=50, random_state=0).fit(train)


@pytest.fixture(scope="module")
def report(bags: Bags, model: ProbitVGPMIL, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(path, model, bags, title="Forty slides", image_shape=(4, 4))
    return path


@pytest.fixture(params=list(SIZES))
def page(request: pytest.FixtureRequest, browser: Any, report: Path) -> Iterator[Any]:
    """The open report in each look; its console must stay silent and nothing may be fetched."""
    width, height = SIZES[request.param]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if request.param == "dark" else "light",
    )
    opened = context.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    fetched: list[str] = []
    opened.on("request", lambda asked: fetched.append(asked.url))
    opened.goto(report.as_uri())
    opened.look = request.param
    yield opened
    context.close()
    assert said == []
    assert fetched == [report.as_uri()]


def listed(page: Any, column: int = 1) -> list[str]:
    texts = page.locator(f"#rows tr td:nth-child({column})").all_inner_texts()
    return [text.strip() for text in texts]


def test_bags_are_sorted_by_every_column(page: Any, model: ProbitVGPMIL, bags: Bags) -> None:
    p = model.predict_proba(bags)[:, 1]
    order = np.argsort(-np.rint(p * 1e4), kind="stable")
    assert listed(page) == bags.ids[order].tolist()
    head = page.locator("th[data-key=p]")
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    shown = dict(zip(bags.ids.tolist(), np.rint(p * 1e4), strict=True))
    assert shown[listed(page)[0]] == min(shown.values())  # several may round to it
    page.locator("th[data-key=id] button").click()
    assert listed(page)[-1] == "slide_39"
    page.locator("th[data-key=std] button").click()
    spread = [float(v) for v in listed(page, 4)]
    assert spread == sorted(spread, reverse=True)


def test_filters_narrow_the_list(page: Any, model: ProbitVGPMIL, bags: Bags) -> None:
    page.fill("#find", "slide_1")
    assert sorted(listed(page)) == [f"slide_{b}" for b in range(10, 20)]
    assert page.inner_text("#count") == "10 of 40 bags"
    page.fill("#find", "")
    called = model.predict_proba(bags)[:, 1] > 0.5
    for value, kept in {
        "called": called,
        "not-called": ~called,
        "positive": bags.y == 1,
        "negative": bags.y == 0,
        "wrong": called != (bags.y == 1),
    }.items():
        page.select_option("#which", value)
        assert sorted(listed(page)) == sorted(bags.ids[kept].tolist()), value


def test_decisions_can_be_filtered_and_are_told(page: Any, model: ProbitVGPMIL, bags: Bags) -> None:
    sets, novelty = model.predict_set(bags, 0.1), model.novelty(bags).bags
    page.select_option("#which", "expert")
    assert sorted(listed(page)) == sorted(bags.ids[sets[:, 0] == sets[:, 1]].tolist())
    page.select_option("#which", "novel")
    assert sorted(listed(page)) == sorted(bags.ids[novelty <= 0.05].tolist())
    page.select_option("#which", "all")
    page.locator("#rows tr", has_text="slide_05").click()
    words = {(True, False): "0", (False, True): "1", (True, True): "0 or 1"}
    assert f"it may be {words.get(tuple(sets[5]), 'neither')}" in page.inner_text(".verdict")
    assert page.locator("#roc circle.point").count() == 1
    assert page.inner_text("#summary").startswith("Of 40 bags the model calls")
    assert page.locator("#confusion tbody td").count() == 4


def test_a_bag_opens_with_bars_maps_and_images(page: Any, bags: Bags) -> None:
    page.locator("#rows tr", has_text="slide_05").click()
    assert page.inner_text("#detail h3") == "slide_05"
    assert page.locator("#bars g.bar").count() == bags.sizes[5]
    assert page.locator("#bars g.bar line.range").count() == bags.sizes[5]  # both ends of each
    assert page.locator("#bars g.bar line:not(.range)").count() == bags.sizes[5]  # its deviation
    assert page.locator("canvas.map").count() == 3
    for kind in ("probability", "uncertainty", "truth"):
        assert colours_of(page, f"canvas.map[data-kind={kind}]") > 3
    assert page.locator(".thumbs canvas").count() == bags.sizes[5]
    label = page.locator("#bars g.bar").first.get_attribute("aria-label")
    assert "±" in label
    page.click("#order")
    assert "in their order" in page.text_content("#bars")
    page.click("#stretch")
    assert page.inner_text("#stretch") == "same colours for all bags"


def test_unlabelled_instances_have_their_own_look(page: Any, bags: Bags, screenshots: Path) -> None:
    page.locator("#rows tr", has_text="slide_05").click()
    fills: dict[str, set[str]] = {"truly positive": set(), "truly negative": set()}
    fills["not labelled"] = set()
    for bar in page.locator("#bars g.bar").all():
        name = next(n for n in fills if n in str(bar.get_attribute("aria-label")))
        fills[name].add(str(bar.locator("rect").nth(1).get_attribute("fill")))
    assert all(len(found) == 1 for found in fills.values()), fills
    assert len(set.union(*fills.values())) == 3
    for name in fills:
        assert page.locator(".note .key", has_text=name).count() == 1, name
        assert page.locator("figure .scale", has_text=name).count() == 1, name
    page.locator("#detail").screenshot(path=screenshots / f"bag-{page.look}.png")
    page.locator("#rows tr", has_text="slide_09").click()  # all known: nothing to explain
    assert page.locator(".note .key", has_text="not labelled").count() == 0


def test_the_label_of_a_bag_is_used_where_it_is_known(
    page: Any, model: ProbitVGPMIL, bags: Bags
) -> None:
    page.locator("#rows tr", has_text="slide_05").click()
    assert page.locator("#bars path.given").count() == bags.sizes[5]
    assert page.locator(".note .key", has_text="given the label of the bag").count() == 1
    bag = bags[5].with_instance_labels(None)
    given = model.instance_posterior(bag)[:, 1]
    best = int(np.argmax(model.predict_instance_proba(bag)[:, 1]))
    label = page.locator("#bars g.bar").first.get_attribute("aria-label")
    assert f"{given[best]:.3f} given the label of the bag" in label
    page.locator("#rows tr", has_text="slide_04").click()  # negative: all would be 0
    assert page.locator("#bars path.given").count() == 0


def test_the_pane_follows_the_filter(page: Any) -> None:
    page.locator("#rows tr", has_text="slide_05").click()
    page.fill("#find", "slide_1")
    shown = page.inner_text("#detail h3")
    assert shown == listed(page)[0]
    assert page.locator("#rows tr[aria-selected=true]").inner_text().startswith(shown)
    page.fill("#find", "slide_12")
    page.locator("#rows tr").first.click()
    page.fill("#find", "slide_1")  # still in the list: it stays
    assert page.inner_text("#detail h3") == "slide_12"
    page.fill("#find", "no such bag")
    assert page.inner_text("#detail") == "No bag matches the filter."
    page.locator("#theme").click()
    page.locator("#uncertain button").first.click()  # a bag that is asked for is shown
    name = page.inner_text("#detail h3")
    assert page.locator("#uncertain button").first.inner_text().startswith(name)
    assert name in listed(page)


def test_a_chart_that_goes_on_shows_it(page: Any) -> None:
    page.locator("#rows tr", has_text="slide_05").click()
    box = page.locator(".bars")
    hidden = box.evaluate("b => b.scrollWidth - b.clientWidth")
    assert (hidden > 0) == (page.look == "phone")
    assert page.locator(".sideways").is_visible() == (page.look == "phone")
    fades = "s => [getComputedStyle(s, '::before').opacity, getComputedStyle(s, '::after').opacity]"
    settled = page.locator(".scroller")
    page.wait_for_timeout(300)
    assert settled.evaluate(fades) == (["0", "1"] if page.look == "phone" else ["0", "0"])
    box.evaluate("b => { b.scrollLeft = b.scrollWidth; }")
    page.wait_for_timeout(300)
    assert settled.evaluate(fades) == (["1", "0"] if page.look == "phone" else ["0", "0"])


def test_large_bags_are_a_band(page: Any) -> None:
    page.locator("#rows tr", has_text="slide_07").click()
    assert page.locator("#bars g.bar").count() == 0
    assert page.locator("#bars path.band").count() == 1


def colours_of(page: Any, selector: str) -> int:
    """How many different colours are drawn on a canvas."""
    return int(
        page.locator(selector).evaluate(
            "c => new Set(new Uint32Array(c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data.buffer)).size"
        )
    )


def test_everything_works_from_the_keyboard(page: Any) -> None:
    page.locator("#rows .open").first.focus()
    page.keyboard.press("ArrowDown")
    second = page.evaluate("document.activeElement.textContent")
    assert second == listed(page)[1]
    page.keyboard.press("Enter")
    assert page.inner_text("#detail h3") == second
    assert page.evaluate("document.activeElement.id") == "detail"
    page.locator("#theme").focus()
    before = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("Space")
    assert page.evaluate("document.documentElement.dataset.theme") != before


def test_uncertain_bags_lead_to_their_bag(page: Any) -> None:
    assert page.locator("#uncertain button").count() == 8
    page.locator("#uncertain button").nth(2).click()
    assert (
        page.locator("#uncertain button")
        .nth(2)
        .inner_text()
        .startswith(page.inner_text("#detail h3"))
    )


def test_hostile_ids_are_text(page: Any) -> None:
    assert EVIL in listed(page)
    assert page.evaluate("window.hacked") is None
    page.locator("#rows tr", has_text="window.hacked").click()
    assert page.inner_text("#detail h3") == EVIL


def test_curves_are_drawn(page: Any) -> None:
    assert page.locator("#reliability circle").count() == 8
    assert page.locator("#roc path").count() == 2
    assert "AUC" in page.inner_text("#roc")


def test_page_fits_its_width_and_theme(page: Any, screenshots: Path) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[page.look][0]
    theme = page.evaluate("document.documentElement.dataset.theme")
    assert theme == ("dark" if page.look == "dark" else "light")
    picture = screenshots / f"report-{page.look}.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 50_000
