"""The live line of a fit: what it says, when it is silent, and how good its estimate is."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.models.progress import Progress, steps_left


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def make_bags(n: int = 20) -> bw.Bags:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n * 3, 2))
    X[np.arange(1, n, 2) * 3, 0] += 4
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n), 3), y=np.arange(n) % 2)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", text)


def test_a_terminal_shows_stage_step_objective_and_time(terminal: Terminal) -> None:
    bars = Progress(terminal)
    model = bw.VGPMIL(n_inducing=8, random_state=0, learn_hyperparameters=False)
    model.fit(make_bags(), callbacks=[bars])
    shown = plain(terminal.getvalue())
    assert re.search(rf"VGPMIL: vi.*, step \d+, ELBO {model.elbo_:.6g}, 0:0", shown)
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is taken away
    assert "\x1b[?25h" in terminal.getvalue()  # and the cursor is back


def test_linear_models_are_followed_too(terminal: Terminal) -> None:
    for model in (
        bw.MIRVM(random_state=0, bag_score="joint"),
        bw.RVM(random_state=0),
        bw.MILogisticRegression(random_state=0, bag_score="joint"),
        bw.MILogisticRegression(alpha=1.0),
        bw.MILogisticRegression(alpha="cv", random_state=0, bag_score="joint"),
        bw.MultiTaskMIRVM(random_state=0),
    ):
        steps: list[tuple[Any, ...]] = []
        model.fit(make_bags(), callbacks=[Progress(terminal), lambda *a: steps.append(a)])  # noqa: B023
        assert [s[1] for s in steps][-1] == model.n_iter_
        what = "log joint" if steps[0][0] == "weights" else "log evidence"
        line = f"{type(model).__name__}: {steps[-1][0]}, step {model.n_iter_}, {what}"
        assert line in plain(terminal.getvalue())
    assert "left in this stage" not in plain(terminal.getvalue())


@pytest.mark.parametrize("after", [5, 9, 20])
@pytest.mark.parametrize("rate", [0.5, 0.9])
def test_the_estimate_of_geometric_gains(rate: float, after: int) -> None:
    history = [-1000 - 10 * rate**k for k in range(400)]
    end = int(np.argmax(np.diff(history) <= 1e-9 * 1000))
    found = steps_left(history[: after + 1], 1e-9)
    assert found is not None
    assert abs(after - 1 + found - end) <= 1


@pytest.mark.parametrize(
    "history", [[], [-3.0], [-3.0, -2.0, -1.5], [-9.0, -8.0, -6.0, -3.0], [-1.0, -2.0, -3.0, -4.0]]
)
def test_no_estimate_where_gains_do_not_shrink(history: list[float]) -> None:
    assert steps_left(history, 1e-8) is None


def test_time_left_is_steps_times_seconds(terminal: Terminal) -> None:
    bars = Progress(terminal)
    bars.begin(bw.VGPMIL(tol=1e-6))
    for k in range(9):
        bars("vi", k, -100 - 0.9**k, 10.0 * k)
    left = re.search(r"about (\d+):(\d+) left in this stage", bars.line())
    assert left is not None
    expected = 10 * np.log(1e-6 * 100.4 / (0.1 * 0.9**7)) / np.log(0.9)
    assert abs(60 * int(left[1]) + int(left[2]) - expected) <= 2
    bars("hyperparameters", 1, -5.0, 90.0)
    assert bars.line().startswith("VGPMIL: hyperparameters, step 1, log evidence -5, 0:0")
    assert "left" not in bars.line()
    bars.end()
    bars.end()


def test_nothing_is_shown_where_there_is_no_terminal() -> None:
    file = io.StringIO()
    bw.ProbitVGPMIL(n_inducing=5, random_state=0).fit(make_bags(), callbacks=[Progress(file)])
    assert file.getvalue() == ""


def test_the_line_goes_when_a_fit_fails(terminal: Terminal) -> None:
    def fail(*step: Any) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        bw.VGPMIL(n_inducing=5).fit(make_bags(), callbacks=[Progress(terminal), fail])
    assert "\x1b[?25h" in terminal.getvalue()


def test_the_command_line_shows_it_on_terminals_only(
    terminal: Terminal, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bagwise.cli.tables import fit

    make_bags().to_frame().to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    fit([str(tmp_path / "t.csv")], output=str(tmp_path / "a.bagwise"))
    assert re.search(r"ProbitVGPMIL: [^\n]*, step \d", plain(terminal.getvalue()))
    terminal.truncate(0)
    fit([str(tmp_path / "t.csv")], output=str(tmp_path / "b.bagwise"), json=True)
    assert "ProbitVGPMIL" not in terminal.getvalue()


def test_rich_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[cli\]"'):
        Progress()


def test_callbacks_must_be_functions() -> None:
    for model in (bw.VGPMIL(), bw.MIRVM()):
        with pytest.raises(TypeError, match="callbacks are functions of"):
            model.fit(make_bags(), callbacks=["tqdm"])
