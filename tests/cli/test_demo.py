"""The demo's work without its command: trials, scores, figure, report."""

import sys
from pathlib import Path

import numpy as np
import pytest

from bagwise import Bags, ProbitVGPMIL
from bagwise.cli import demo


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> demo.Outcome:
    """One run on few bags, of one model."""
    return demo.run_demo(
        tmp_path_factory.mktemp("demo") / "new" / "folder",
        digit_bags=24,
        musk_bags=30,
        models=[ProbitVGPMIL],
    )


def test_rows_hold_scores_of_each_data_set(outcome: demo.Outcome) -> None:
    assert [(r.data, r.model) for r in outcome.rows] == [
        ("digits", "ProbitVGPMIL"),
        ("MUSK1", "ProbitVGPMIL"),
    ]
    digits, musk = outcome.rows
    assert digits.instance_auc is not None
    assert musk.instance_auc is None
    for row in outcome.rows:
        assert 0 <= row.bag_auc <= 1
        assert 0 <= row.calibration_error <= 1
        assert row.bag_log_likelihood <= 0
        assert row.seconds > 0


def test_cells_match_the_headings(outcome: demo.Outcome) -> None:
    for row in outcome.rows:
        assert len(row.cells()) == len(demo.HEADINGS)
    assert "—" in outcome.rows[1].cells()


def test_files_are_written(outcome: demo.Outcome) -> None:
    figure, report = outcome.files
    assert figure.name == "digits.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert figure.stat().st_size > 20_000
    page = report.read_text(encoding="utf-8")
    assert "ProbitVGPMIL" in page
    assert '"thumbnails"' in page
    assert 'src="http' not in page


def test_every_step_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = demo.Row("digits", "M", 1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
    monkeypatch.setattr(demo, "fit_and_score", lambda *args: (row, None))
    monkeypatch.setattr(demo, "draw_digits", lambda model, trial, path: path.write_bytes(b""))
    monkeypatch.setattr(demo, "write_digit_report", lambda *args: None)
    said: list[str] = []
    demo.run_demo(tmp_path, digit_bags=20, announce=said.append)
    assert len(said) == 5
    assert any("MUSK1" in line for line in said)


def test_digit_trial_keeps_labels_beside_their_bags() -> None:
    trial = demo.digit_trial(20, seed=1)
    assert trial.truth is not None
    assert len(trial.truth) == trial.test.n_instances
    found = np.maximum.reduceat(trial.truth, trial.test.offsets[:-1])
    np.testing.assert_array_equal(found, trial.test.y)


def test_musk_trial_is_stratified() -> None:
    trial = demo.musk_trial()
    assert len(trial.train) + len(trial.test) == 92
    assert abs(float(np.mean(trial.test.y)) - 47 / 92) < 0.05
    assert not set(trial.train.ids) & set(trial.test.ids)


def test_example_bags_mix_labels() -> None:
    bags = Bags.from_arrays(np.eye(8), range(8), y=[1, 1, 1, 1, 0, 1, 0, 0])
    np.testing.assert_array_equal(demo.example_bags(bags, 5), [0, 1, 2, 4, 6])


@pytest.mark.parametrize(
    ("missing", "extra"), [("matplotlib.figure", "plot"), ("jinja2", "report")]
)
def test_without_its_packages_nothing_is_trained(
    missing: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(demo, "fit_and_score", lambda *args: pytest.fail("trained"))
    with pytest.raises(ImportError, match=rf"\.\[{extra}\]"):
        demo.run_demo(tmp_path / "out")
    assert not (tmp_path / "out").exists()
