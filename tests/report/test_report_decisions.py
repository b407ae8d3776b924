"""What reports say about decisions, in tables and in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.report import build_report, write_report
from bagwise.report.content import page_content
from bagwise.report.decisions import decide
from command_line import good, refused, small_frame
from toy_bags import overlapping_bags

EVIL = "</script><script>window.hacked=1</script><img src=x onerror=alert(1)>"
BAGS, _ = overlapping_bags(60)
NEW, _ = overlapping_bags(40, seed=1)


def with_groups(bags: bw.Bags, names: Any) -> bw.Bags:
    groups = np.asarray(names)[bags.bag_index]
    return bw.Bags.from_arrays(bags.X, bags.bag_index, y=bags.y, groups=groups)


@pytest.fixture(scope="module")
def model() -> bw.ProbitVGPMIL:
    fitted = bw.ProbitVGPMIL(n_inducing=10, random_state=0).fit(BAGS)
    fitted.choose_threshold(sensitivity=0.9)
    return fitted


def page_of(model: Any, bags: bw.Bags, **more: Any) -> dict[str, Any]:
    return page_content(model, bags, title="t", data_name="d", **more)


def test_calls_are_those_of_predict(model: bw.ProbitVGPMIL) -> None:
    page, T = page_of(model, NEW), np.asarray(NEW.y) == 1
    called = model.predict(NEW) == 1
    assert page["bags"]["called"] == called.astype(int).tolist()
    assert page["confusion"]["false_negatives"] == np.sum(~called & T)
    assert page["confusion"]["true_negatives"] == np.sum(~called & ~T)
    assert page["roc"]["point"] == pytest.approx([called[~T].mean(), called[T].mean()], abs=1e-4)
    accuracy = next(f for f in page["headline"] if f["name"] == "Accuracy")
    assert accuracy["text"] == f"{np.mean(called == T):.3f}"
    low, high = map(float, accuracy["interval"].split(" to "))
    assert low < np.mean(called == T) < high
    assert f"from a probability of {model.threshold_:.3g} on" in page["summary"][0]


def test_sets_and_novelty_are_those_of_the_model(model: bw.ProbitVGPMIL) -> None:
    page, sets = page_of(model, NEW), model.predict_set(NEW, 0.1)
    assert page["bags"]["possible"] == (sets[:, 0] + 2 * sets[:, 1]).tolist()
    np.testing.assert_allclose(
        np.array(page["bags"]["novelty"]) / 1e4, model.novelty(NEW).bags, atol=5.1e-5
    )
    looks = int(np.sum(sets[:, 0] == sets[:, 1]))
    assert any(f"{looks} bag" in line and "for an expert" in line for line in page["summary"])
    assert {"name": "For an expert", "text": str(looks), "help": "Either class, or neither."} in (
        page["headline"]
    )


def test_models_that_cannot_tell_show_less() -> None:
    joint = bw.ProbitVGPMIL(n_inducing=10, random_state=0, bag_score="joint").fit(BAGS)
    page = page_of(joint, NEW)
    assert page["bags"]["possible"] is None and page["bags"]["novelty"] is not None
    few = bw.ProbitVGPMIL(n_inducing=10, random_state=0).fit(BAGS[:12])
    assert page_of(few, NEW)["bags"]["possible"] is None  # six bags cannot leave out a tenth
    older = bw.load(Path(__file__).parents[1] / "models" / "files" / "probit.bagwise")
    bags, _ = bw.datasets.make_bags(30, random_state=0)
    assert page_of(older, bags)["bags"]["novelty"] is None
    assert '<option value="expert">' not in build_report(older, bags)


def test_it_says_when_not_to_rely_on_it(model: bw.ProbitVGPMIL) -> None:
    away = NEW.with_X(NEW.X + 9)
    assert any("look unlike those of the fit" in line for line in page_of(model, away)["cautions"])
    assert not any("unlike" in line for line in page_of(model, NEW)["cautions"])
    assert any("may be as low as" in line for line in page_of(model, away)["cautions"])
    small = page_of(model, NEW[:10])
    assert any("rest on 5 positive and 5 negative bags" in line for line in small["cautions"])
    few = bw.ProbitVGPMIL(n_inducing=10, random_state=0).fit(BAGS[:4])
    assert any("not calibrated" in line for line in page_of(few, NEW)["cautions"])
    model.metadata_ = {"trained_bags": bw.models.metadata.id_hashes(NEW.ids[:3])}
    assert any("flatter the model" in line for line in page_of(model, NEW)["cautions"])
    model.metadata_ = {}
    assert page_of(model, NEW.with_labels(None))["cautions"] == []


def test_groups_have_their_table(model: bw.ProbitVGPMIL) -> None:
    bags = with_groups(NEW, [f"p{b // 4}" for b in range(40)])
    rows = page_of(model, bags)["groups"]
    assert len(rows) == 10 and sum(row["bags"] for row in rows) == 40
    called = model.predict(bags) == 1
    assert sum(row["called"] for row in rows) == called.sum()
    assert sum(row["positive"] for row in rows) == 20
    first = next(row for row in rows if row["name"] == "p0")
    assert first["called"] == called[:4].sum()
    assert [float(r["highest"]) for r in rows] == sorted(
        [float(r["highest"]) for r in rows], reverse=True
    )
    assert '<h2 id="groups-title">Groups</h2>' in build_report(model, bags)
    assert page_of(model, NEW)["groups"] is None


def test_two_models_side_by_side(model: bw.ProbitVGPMIL) -> None:
    other = bw.MIRVM(random_state=0).fit(BAGS)
    found = page_of(model, NEW, compare=other, compare_name="old")["comparison"]
    expected = bw.metrics.paired_differences(
        NEW.y, model.predict_proba(NEW), other.predict_proba(NEW)
    )
    assert found["scores"][0]["difference"] == f"{expected['roc_auc'].difference:+.3f}"
    assert found["different"] == np.sum(model.predict(NEW) != other.predict(NEW))
    assert len(found["bags"]) == found["different"]
    page = build_report(model, NEW, compare=other, compare_name=EVIL)
    assert "<script>window" not in page and "Beside &lt;/script&gt;" in page
    same = page_of(model, NEW, compare=model, compare_name="itself")["comparison"]
    assert same["different"] == 0 and same["correlation"] == 1
    assert same["scores"][0]["verdict"] == "not surely different"
    strange = bw.MIRVM(random_state=0).fit(BAGS, np.where(np.asarray(BAGS.y) == 1, 7, 3))
    with pytest.raises(ValueError, match="both models must tell the same classes apart"):
        build_report(model, NEW, compare=strange)
    assert page_of(model, NEW.with_labels(None), compare=other)["comparison"]["scores"] == []


def test_names_of_tables_need_not_be_utf_8(model: bw.ProbitVGPMIL, tmp_path: Path) -> None:
    write_report(
        tmp_path / "r.html", model, NEW, title="caf\udce9.csv"
    )  # as the system spells \xe9
    assert b"<title>caf?.csv" in (tmp_path / "r.html").read_bytes()


def test_hostile_groups_are_text(model: bw.ProbitVGPMIL) -> None:
    page = build_report(model, with_groups(NEW, [EVIL] * 40))
    assert "<script>window" not in page and "<img" not in page
    assert page.count("</script>") == 2


def test_expert_looks_are_both_classes_or_neither(model: bw.ProbitVGPMIL) -> None:
    found = decide(model, NEW, model.predict_all(NEW))
    assert found.sets is not None and found.for_expert is not None
    sizes = found.sets.sum(axis=1)
    np.testing.assert_array_equal(found.for_expert, (sizes == 0) | (sizes == 2))


def test_the_command_compares_two_files(tmp_path: Path) -> None:
    small_frame(24).to_csv(tmp_path / "t.csv", index=False)
    columns = ("--bag", "slide", "--label", "diagnosis", "--positive", "cancer")
    for name, kind in (("a", "probit"), ("b", "mirvm")):
        good(
            "fit", tmp_path / "t.csv", *columns, "--model", kind, "-o", tmp_path / f"{name}.bagwise"
        )
    good(
        "report", tmp_path / "a.bagwise", tmp_path / "t.csv", "--compare", tmp_path / "b.bagwise",
        "--specificity", "0.8", "-o", tmp_path / "r.html",
    )  # fmt: skip
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"Beside {tmp_path / 'b.bagwise'}" in page and "chosen for specificity=0.8" in page
    assert "no.bagwise" in refused(
        "report", tmp_path / "a.bagwise", tmp_path / "t.csv", "--compare", tmp_path / "no.bagwise",
        "-o", tmp_path / "s.html",
    )  # fmt: skip
