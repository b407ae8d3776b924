"""A fit that is killed, interrupted or resumed ends where an uninterrupted one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import bagwise as bw
from bagwise.bags.graphs import neighbor_graph
from bagwise.core.files.modelfile import register_kernels
from bagwise.core.inference.checkpoints import fingerprint, following, previous
from bagwise.core.inference.monitor import Monitor

B, SIZE = 40, 5
MODELS: dict[str, Callable[..., Any]] = {
    "logistic": bw.VGPMIL,
    "factorised": lambda **k: bw.VGPMIL(label_posterior="factorised", H=100.0, **k),
    "gamma": bw.GammaVGPMIL,
    "large margin": bw.LargeMarginVGPMIL,
    "probit": bw.ProbitVGPMIL,
    "laplace": lambda **k: bw.ProbitVGPMIL(inference="laplace", **k),
    "ising": lambda **k: bw.IsingVGPMIL(neighbors="chain", **k),
    "diagonal": lambda **k: bw.IsingVGPMIL(neighbors="chain", moments="diagonal", **k),
    "learned coupling": lambda **k: bw.IsingVGPMIL(neighbors="chain", coupling="learn", **k),
}
SETTINGS: dict[str, Any] = {"n_inducing": 8, "random_state": 0, "max_iter": 60}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def make_bags(shift: float = 3.0) -> bw.Bags:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(B * SIZE, 2))
    X[np.arange(1, B, 2) * SIZE, 0] += shift
    return bw.Bags.from_arrays(X, np.repeat(np.arange(B), SIZE), y=np.arange(B) % 2)


class Stop(Exception):
    """Ends a fit from within."""


def stop_at(n: int, error: type[BaseException] = Stop) -> Callable[..., None]:
    """A callback that raises at the n-th step of the whole fit."""
    calls = []

    def callback(*args: Any) -> None:
        calls.append(args)
        if len(calls) == n:
            raise error

    return callback


def count_steps(model: Any, bags: bw.Bags) -> int:
    calls: list[Any] = []
    model.fit(bags, callbacks=[lambda *a: calls.append(a)])
    return len(calls)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_resumed_fits_end_where_others_end(name: str, share: float, tmp_path: Path) -> None:
    bags, path = make_bags(), tmp_path / "fit.ckpt"
    whole = MODELS[name](**SETTINGS)
    steps = count_steps(whole, bags)
    part = MODELS[name](**SETTINGS | {"random_state": None})  # no seed: the file knows
    with pytest.raises(Stop):
        MODELS[name](**SETTINGS).fit(
            bags,
            checkpoint=path,
            checkpoint_minutes=0,
            callbacks=[stop_at(max(2, round(share * steps)))],
        )
    part.fit(bags, resume=path)
    assert part.elbo_ == pytest.approx(whole.elbo_, rel=1e-8)
    np.testing.assert_allclose(part.posterior_.m, whole.posterior_.m, rtol=1e-6, atol=1e-7)
    assert part.n_iter_ == whole.n_iter_


def test_other_chunks_may_resume(tmp_path: Path) -> None:
    bags, path = make_bags(), tmp_path / "fit.ckpt"
    whole = bw.LargeMarginVGPMIL(**SETTINGS).fit(bags)
    with pytest.raises(Stop):
        bw.LargeMarginVGPMIL(**SETTINGS).fit(
            bags, checkpoint=path, checkpoint_minutes=0, callbacks=[stop_at(30)]
        )
    found = bw.LargeMarginVGPMIL(**SETTINGS, chunk_size=17, memory_budget=0).fit(bags, resume=path)
    assert found.elbo_ == pytest.approx(whole.elbo_, rel=1e-8)


def test_a_finished_fit_resumes_at_once(tmp_path: Path) -> None:
    bags, path = make_bags(), tmp_path / "fit.ckpt"
    first = bw.ProbitVGPMIL(**SETTINGS).fit(bags, checkpoint=path)
    calls: list[Any] = []
    again = bw.ProbitVGPMIL(**SETTINGS).fit(
        bags, resume=path, callbacks=[lambda *a: calls.append(a)]
    )
    assert not calls
    np.testing.assert_array_equal(again.posterior_.m, first.posterior_.m)
    np.testing.assert_array_equal(again.elbo_history_, first.elbo_history_)


KILLED = """
import os, signal, sys
from test_checkpoints import MODELS, SETTINGS, make_bags
steps = []
def callback(*args):
    steps.append(args)
    if len(steps) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
model = MODELS[sys.argv[1]](**SETTINGS)
model.fit(make_bags(), checkpoint=sys.argv[2], checkpoint_minutes=0, callbacks=[callback])
"""


@pytest.mark.parametrize("name", ["logistic", "probit", "large margin"])
def test_killed_fits_resume(name: str, tmp_path: Path) -> None:
    bags, path = make_bags(), tmp_path / "fit.ckpt"
    whole = MODELS[name](**SETTINGS)
    steps = count_steps(whole, bags)
    here = str(Path(__file__).parent)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, here])}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, name, str(path), str(round(0.7 * steps))],
        env=env,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    found = MODELS[name](**SETTINGS).fit(bags, resume=path)
    assert found.elbo_ == pytest.approx(whole.elbo_, rel=1e-8)


def test_ctrl_c_leaves_a_checkpoint(tmp_path: Path) -> None:
    bags, path = make_bags(), tmp_path / "fit.ckpt"
    whole = bw.LargeMarginVGPMIL(**SETTINGS)
    steps = count_steps(whole, bags)
    interrupted = bw.LargeMarginVGPMIL(**SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(
            bags,
            checkpoint=path,
            checkpoint_minutes=60,
            callbacks=[stop_at(steps // 2, KeyboardInterrupt)],
        )
    calls: list[Any] = []
    found = bw.LargeMarginVGPMIL(**SETTINGS)
    found.fit(bags, resume=path, callbacks=[lambda *a: calls.append(a)])
    assert len(calls) == steps - steps // 2
    assert found.elbo_ == pytest.approx(whole.elbo_, rel=1e-8)


def checkpointed(path: Path, **changes: Any) -> Any:
    model = bw.ProbitVGPMIL(**SETTINGS | changes)
    return model.fit(make_bags(), checkpoint=path, checkpoint_minutes=0)


@pytest.mark.parametrize("damage", ["cut", "noise", "gone"])
def test_a_damaged_checkpoint_falls_back_to_the_previous_one(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "fit.ckpt"
    whole = checkpointed(path)
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-200] if damage == "cut" else b"x" * 5000)
    with pytest.warns(UserWarning, match="going on from the one before it"):
        found = bw.ProbitVGPMIL(**SETTINGS).fit(make_bags(), resume=path)
    assert found.elbo_ == pytest.approx(whole.elbo_, rel=1e-8)
    assert path.exists(), "the fit that goes on writes to the file it resumed"


def test_two_damaged_checkpoints_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "fit.ckpt"
    checkpointed(path)
    for file in (path, previous(path)):
        file.write_bytes(b"nothing")
    with (
        pytest.warns(UserWarning, match="the one before it"),
        pytest.raises(ValueError, match="cannot read"),
    ):
        bw.ProbitVGPMIL(**SETTINGS).fit(make_bags(), resume=path)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    model = bw.ProbitVGPMIL(**SETTINGS).fit(make_bags())
    model.save(tmp_path / "m.bagwise")
    with pytest.raises(ValueError, match="holds a 'ProbitVGPMIL', not a checkpoint"):
        bw.ProbitVGPMIL(**SETTINGS).fit(make_bags(), resume=tmp_path / "m.bagwise")
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*none.ckpt to resume from"):
        bw.ProbitVGPMIL().fit(make_bags(), resume=tmp_path / "none.ckpt")
    with pytest.raises(FileNotFoundError, match="make it before saving"):
        bw.ProbitVGPMIL().fit(make_bags(), checkpoint=tmp_path / "nowhere" / "fit.ckpt")


@pytest.mark.parametrize("kind", ["table", "folder", "model"])
def test_a_checkpoint_replaces_nothing_but_checkpoints(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data"
    if kind == "folder":
        path.mkdir()
    elif kind == "model":
        bw.ProbitVGPMIL(**SETTINGS).fit(make_bags()).save(path)
    else:
        path.write_text("bag,label")
    before = None if kind == "folder" else path.read_bytes()
    with pytest.raises(OSError, match=r"is a folder|is not a checkpoint"):
        bw.ProbitVGPMIL(**SETTINGS).fit(make_bags(), checkpoint=path, checkpoint_minutes=0)
    assert list(tmp_path.iterdir()) == [path]
    assert kind == "folder" or path.read_bytes() == before


@pytest.mark.parametrize("beside", [previous, following])
def test_no_state_is_moved_onto_a_stranger(beside: Any, tmp_path: Path) -> None:
    stranger = beside(tmp_path / "fit.ckpt")
    stranger.write_text("mine")
    with pytest.raises(FileExistsError, match="is not a checkpoint"):
        bw.ProbitVGPMIL(**SETTINGS).fit(make_bags(), checkpoint=tmp_path / "fit.ckpt")
    assert stranger.read_text() == "mine"


def test_names_that_leave_no_room_for_the_previous_state_are_refused(tmp_path: Path) -> None:
    """Every state of the fit would end in a warning, and none would be kept."""
    with pytest.raises(OSError, match="File name too long"):
        bw.ProbitVGPMIL(**SETTINGS).fit(make_bags(), checkpoint=tmp_path / ("c" * 247))
    assert not list(tmp_path.iterdir())


def test_a_link_to_a_checkpoint_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    link, path = tmp_path / "fit.ckpt", tmp_path / "scratch" / "fit.ckpt"
    checkpointed(path)
    link.symlink_to(path)
    bw.ProbitVGPMIL(**SETTINGS).fit(make_bags(), checkpoint=link, checkpoint_minutes=0)
    assert link.is_symlink() and path.is_file()


def test_every_row_is_checked(tmp_path: Path) -> None:
    """One value of one of many rows: a sample of rows would not show it."""
    X = np.random.default_rng(0).normal(size=(600, 2))
    y = np.arange(100) % 2
    bags = bw.Bags.from_arrays(X, np.repeat(np.arange(100), 6), y=y)
    path = tmp_path / "fit.ckpt"
    settings = SETTINGS | {"learn_hyperparameters": False, "bag_score": "max"}
    bw.ProbitVGPMIL(**settings).fit(bags, checkpoint=path, checkpoint_minutes=0)
    X[301, 1] += 1e-9
    other = bw.Bags.from_arrays(X, np.repeat(np.arange(100), 6), y=y)
    with pytest.raises(ValueError, match="another fit: the features differ"):
        bw.ProbitVGPMIL(**settings).fit(other, resume=path)


def test_a_checkpoint_of_another_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fit.ckpt"
    checkpointed(path)
    with pytest.raises(ValueError, match="another fit: n_inducing differ"):
        bw.ProbitVGPMIL(**SETTINGS | {"n_inducing": 9}).fit(make_bags(), resume=path)
    with pytest.raises(ValueError, match="another fit: the features differ"):
        bw.ProbitVGPMIL(**SETTINGS).fit(make_bags(2.0), resume=path)
    with pytest.raises(ValueError, match="another fit: the model"):
        bw.VGPMIL(**SETTINGS).fit(make_bags(), resume=path)
    with pytest.raises(ValueError, match="another fit: the labels differ"):
        y = 1 - np.asarray(make_bags().y)
        bw.ProbitVGPMIL(**SETTINGS).fit(make_bags(), y, resume=path)


def test_marks_tell_arguments_apart() -> None:
    bags = make_bags()
    chain = neighbor_graph(None, bags.offsets, "chain")

    def marks(model: Any) -> dict[str, str]:
        register_kernels()
        return fingerprint(model, {})

    def differ(one: Any, other: Any) -> set[str]:
        left, right = marks(one), marks(other)
        return {name for name in left if left[name] != right[name]}

    ising, probit = bw.IsingVGPMIL, bw.ProbitVGPMIL
    assert not differ(ising(neighbors=chain), ising(neighbors=chain.tocoo()))
    assert differ(ising(neighbors=chain), ising(neighbors=2 * chain)) == {"neighbors"}
    assert not differ(probit(dtype="float32"), probit(dtype="float32"))
    assert differ(probit(dtype=np.float32), probit(dtype=np.float64)) == {"dtype"}
    kernels = bw.kernels.RBF(1.0, 2.0), bw.kernels.RBF(1.0, 3.0)
    assert differ(probit(kernel=kernels[0]), probit(kernel=kernels[1])) == {"kernel"}
    points = bags.X[:5]
    assert not differ(probit(inducing=points), probit(inducing=pd.DataFrame(points)))
    assert differ(probit(inducing=points), probit(inducing=points + 1)) == {"inducing"}
    psi = bw.PsiVGPMIL(psi=(np.sin, np.cos)), bw.PsiVGPMIL(psi=(np.cos, np.sin))
    assert not differ(*psi), "functions cannot be compared"


LINEAR: dict[str, Callable[..., Any]] = {
    "sparse": bw.MIRVM,
    "sparse, kernel": lambda **k: bw.MIRVM(kernel=bw.kernels.RBF(1.0, 2.0), n_basis=6, **k),
    "evidence": bw.MILogisticRegression,
    "folds": lambda **k: bw.MILogisticRegression(alpha="cv", **k),
}


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("where", ["calibration 1 of 5", "calibration 4 of 5"])
def test_linear_models_go_on_with_the_fits_that_are_left(
    name: str, where: str, tmp_path: Path
) -> None:
    bags, path, heard = make_bags(1.5), tmp_path / "fit.ckpt", set()

    def stop(stage: str, *rest: Any) -> None:
        heard.add(stage)
        if stage == where:
            raise KeyboardInterrupt

    whole = LINEAR[name](random_state=0).fit(bags)
    with pytest.raises(KeyboardInterrupt):
        LINEAR[name](random_state=0).fit(bags, checkpoint=path, callbacks=[stop])
    before, heard_again = heard - {where}, set()
    again = LINEAR[name](random_state=None).fit(
        bags, resume=path, callbacks=[lambda stage, *rest: heard_again.add(stage)]
    )
    assert before and not before & heard_again
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    np.testing.assert_array_equal(again.alpha_, whole.alpha_)
    np.testing.assert_array_equal(again.predict_proba(bags), whole.predict_proba(bags))


def test_a_linear_checkpoint_is_of_one_fit(tmp_path: Path) -> None:
    path, bags = tmp_path / "fit.ckpt", make_bags()
    bw.MIRVM(random_state=0).fit(bags, checkpoint=path)
    with pytest.raises(ValueError, match="alpha_init differ"):
        bw.MIRVM(alpha_init=2.0).fit(bags, resume=path)


@pytest.mark.parametrize("after", [2, 20, 49])
def test_chains_that_go_on_draw_what_others_draw(after: int, tmp_path: Path) -> None:
    bags, path = make_bags(), tmp_path / "fit.ckpt"
    settings = SETTINGS | {"inference": "gibbs", "n_samples": 60, "burn_in": 11, "n_chains": 2}
    settings |= {"mean": -2.0, "learn_hyperparameters": False}
    whole = bw.ProbitVGPMIL(**settings).fit(bags)
    with pytest.raises(Stop):
        bw.ProbitVGPMIL(**settings).fit(
            bags, checkpoint=path, checkpoint_minutes=0, callbacks=[stop_at(after)]
        )
    found = bw.ProbitVGPMIL(**settings).fit(bags, resume=path)
    for name in ("means", "v", "log_joint", "S"):
        np.testing.assert_array_equal(getattr(found.gibbs_, name), getattr(whole.gibbs_, name))


def test_callbacks_hear_of_every_step() -> None:
    calls: list[Any] = []
    model = bw.VGPMIL(**SETTINGS).fit(make_bags(), callbacks=[lambda *a: calls.append(a)])
    starts = [
        [c for c in calls if c[0] in (s, f"{s}, Newton")] for s in ("vi", "vi, from the mode")
    ]
    sweeps = max(starts, key=lambda found: found[-1][2])
    assert [c[1] for c in sweeps] == list(range(1, model.n_iter_ + 1))
    assert [c[2] for c in sweeps] == model.elbo_history_[1:].tolist()
    seconds = [c[3] for c in calls]
    assert seconds == sorted(seconds) and seconds[0] >= 0
    assert calls[0][0] == "hyperparameters"
    with pytest.raises(TypeError, match="callbacks are functions of"):
        bw.VGPMIL().fit(make_bags(), callbacks=["print"])


def test_an_interrupt_without_steps_keeps_the_state_that_was_loaded() -> None:
    class Kept:
        def due(self) -> bool:
            return False

        def save(self, state: Any) -> None:
            self.state = state

    saved = {"done": {}, "stage": "vi", "state": {"n": 3}}
    kept = Kept()
    monitor = Monitor((), kept, saved)
    monitor.save()  # before any stage
    assert kept.state == saved

    def interrupted(state: Any) -> Any:
        monitor.save()  # Ctrl-C before the first step
        assert kept.state == saved
        return {"n": state["n"]}

    assert monitor.run("vi", interrupted) == {"n": 3}
    assert kept.state == {"done": {"vi": {"n": 3}}, "stage": "", "state": None}


def test_a_larger_max_iter_goes_on(tmp_path: Path) -> None:
    path, bags = tmp_path / "fit.ckpt", make_bags()
    short, long = (SETTINGS | {"max_iter": n} for n in (10, 500))
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        bw.LargeMarginVGPMIL(**short).fit(bags, checkpoint=path)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        bw.LargeMarginVGPMIL(**short).fit(bags, resume=path)
    whole = bw.LargeMarginVGPMIL(**long).fit(bags)
    again = bw.LargeMarginVGPMIL(**long).fit(bags, resume=path)
    assert again.converged_ and again.n_iter_ == whole.n_iter_ > 10
    assert again.elbo_ == pytest.approx(whole.elbo_, rel=1e-8)


def test_calibration_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    path, bags, heard = tmp_path / "fit.ckpt", make_bags(), set()
    settings = SETTINGS | {"bag_score": "calibrated", "kernel": None}
    whole = bw.ProbitVGPMIL(**settings).fit(bags)

    def stop(stage: str, *rest: Any) -> None:
        heard.add(stage)
        if stage == "calibration 4 of 5":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bw.ProbitVGPMIL(**settings).fit(bags, checkpoint=path, callbacks=[stop])
    assert "calibration 3 of 5" in heard
    heard.clear()
    again = bw.ProbitVGPMIL(**settings).fit(
        bags, resume=path, callbacks=[lambda stage, *rest: heard.add(stage)]
    )
    assert heard == {"calibration 4 of 5", "calibration 5 of 5"}
    np.testing.assert_array_equal(again.calibration_.weights, whole.calibration_.weights)


def test_other_coordinates_and_inner_rows_are_another_fit(tmp_path: Path) -> None:
    path, bags = tmp_path / "fit.ckpt", make_bags()
    coords = np.random.default_rng(0).random((B * SIZE, 2))
    placed = bw.Bags.from_arrays(bags.X, bags.bag_index, y=bags.y, coords=coords)
    moved = bw.Bags.from_arrays(bags.X, bags.bag_index, y=bags.y, coords=coords[::-1])
    bw.IsingVGPMIL(**SETTINGS).fit(placed, checkpoint=path)
    with pytest.raises(ValueError, match="another fit: the coordinates differ"):
        bw.IsingVGPMIL(**SETTINGS).fit(moved, resume=path)
    X = np.array(bags.X)
    X[90:110] += 1
    other = bw.Bags.from_arrays(X, bags.bag_index, y=bags.y, coords=coords)
    with pytest.raises(ValueError, match="another fit: the features differ"):
        bw.IsingVGPMIL(**SETTINGS).fit(other, resume=path)
