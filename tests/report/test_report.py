"""The report page: what it holds, what it escapes, how large it gets."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagwise import Bags, ProbitVGPMIL
from bagwise.models._base import Predictions
from bagwise.report import build_report, write_report
from bagwise.report.content import fair_share, shown_rows

EVIL = "</script><script>window.hacked=1</script><img src=x onerror=alert(1)>&\u2028"


def make_bags(n_bags: int = 12, size: int = 5, **more: Any) -> Bags:
    rng = np.random.default_rng(0)
    y = np.arange(n_bags) % 2
    X = rng.normal(size=(n_bags, size, 4))
    X[y == 1, 0] += 4
    return Bags.from_list(list(X), y, **more)


@pytest.fixture(scope="module")
def model() -> ProbitVGPMIL:
    return ProbitVGPMIL(n_inducing=20, random_state=0).fit(make_bags())


def content(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


def test_page_holds_all_predictions(model: ProbitVGPMIL) -> None:
    bags = make_bags()
    data = content(build_report(model, bags))
    p, std = model.predict_proba(bags, return_std=True)
    np.testing.assert_allclose(np.array(data["bags"]["p"]) / data["scale"], p[:, 1], atol=5.1e-5)
    np.testing.assert_allclose(np.array(data["bags"]["std"]) / data["scale"], std, atol=5.1e-5)
    q = np.concatenate([i["p"] for i in data["instances"]]) / data["scale"]
    np.testing.assert_allclose(q, model.predict_instance_proba(bags)[:, 1], atol=5.1e-5)
    assert data["roc"]["auc"] == pytest.approx(1.0, abs=0.2)
    names = [name for name, _ in data["card"]]
    for name in ("Model", "Kernel", "ELBO", "Versions"):
        assert name in names


def test_page_needs_nothing_from_outside(model: ProbitVGPMIL) -> None:
    page = build_report(model, make_bags())
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_page_says_how_to_read_bars_and_colours(model: ProbitVGPMIL) -> None:
    page = build_report(model, make_bags())
    assert "lines span ± one standard deviation, cut off at 0 and 1" in page
    assert "Colours follow the square root" in page


def test_user_text_is_escaped_everywhere(model: ProbitVGPMIL) -> None:
    ids = [EVIL, *map(str, range(11))]
    bags = make_bags(ids=ids, instance_ids=np.array([EVIL] * 60))
    page = build_report(model, bags, title=EVIL, data_name=EVIL, command=EVIL)
    assert content(page)["bags"]["id"][0] == EVIL
    assert "<script>window" not in page
    assert "<img" not in page
    assert page.count("</script>") == 2


def test_unlabelled_bags_have_no_scores(model: ProbitVGPMIL) -> None:
    data = content(build_report(model, make_bags().with_labels(None)))
    assert data["roc"] is None
    assert data["reliability"] is None
    assert [f["name"] for f in data["headline"]] == ["Bags", "Called positive", "Undecided"]


def test_coordinates_and_images_are_kept(model: ProbitVGPMIL) -> None:
    coords = np.random.default_rng(0).random((60, 2)) * 1000
    data = content(build_report(model, make_bags(coords=coords), image_shape=(2, 2)))
    first = data["instances"][0]["coords"]
    back = np.array(first["axes"]).T / first["grid"] * np.ptp(coords[:5], axis=0) + first["low"]
    np.testing.assert_allclose(back, coords[:5], atol=0.2)
    assert len(data["instances"][0]["thumbnails"]["p"]) == 5
    with pytest.raises(ValueError, match="64 pixels"):
        build_report(model, make_bags(), image_shape=(8, 8))


def test_a_thousand_bags_stay_below_5_mb(
    model: ProbitVGPMIL, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    # Random digits take the most room; computing 150 000 predictions would only take time.
    p, bag_p = rng.random((150_000, 2)), rng.random((1000, 2))
    found = Predictions(bag_p / bag_p.sum(1, keepdims=True), bag_p[:, 0], p, p[:, 1])
    monkeypatch.setattr(ProbitVGPMIL, "predict_all", lambda *args, **more: found)
    X = [rng.normal(size=(150, 4)) for _ in range(1000)]
    bags = Bags.from_list(X, np.arange(1000) % 2, coords=[rng.random((150, 2)) for _ in X])
    page = build_report(model, bags)
    assert len(page.encode()) < 5e6
    data = content(page)
    assert data["instances"][0]["row"] is not None  # thinned, and the page says so
    assert len(data["instances"][0]["p"]) == 100


def test_thinning_keeps_the_most_probable_and_the_range() -> None:
    bags = Bags.from_list([np.zeros((1000, 1)), np.zeros((3, 1))])
    p = np.random.default_rng(0).random(1003)
    first, second = shown_rows(bags, p, limit=103)
    assert len(first) == 100
    np.testing.assert_array_equal(second, [1000, 1001, 1002])
    assert set(np.argsort(-p[:1000])[:50]) <= set(first)
    assert int(np.argmin(p[:1000])) in first
    assert fair_share(np.array([5, 5]), 100) == 5


def test_existing_page_is_kept(model: ProbitVGPMIL, tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    size = write_report(path, model, make_bags())
    assert path.stat().st_size == size
    with pytest.raises(FileExistsError):
        write_report(path, model, make_bags())
    write_report(path, model, make_bags(), overwrite=True, title="again")
    assert "<title>again</title>" in path.read_text(encoding="utf-8")


def test_missing_jinja2_names_the_extra(
    model: ProbitVGPMIL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[report\]"'):
        build_report(model, make_bags())
