"""`Progress`: one live line on the terminal that says where a fit is and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np

from bagwise.io.requirements import require
from bagwise.models._gaussian_process import GaussianProcessMIL

WINDOW = 8  # gains from which the decay is read
# What each stage climbs; all others climb the ELBO.
OBJECTIVES = {
    "hyperparameters": "log evidence",
    "hyperparameters, exact rule": "log evidence",
    "evidence": "log evidence",
    "weights": "log joint",
    "laplace": "log joint",
}
SEARCHES = (
    "hyperparameters",
    "hyperparameters, exact rule",
)  # end by rules of their own, not by `tol`


class Progress:
    """Shows one live line while a model is fitted: `fit(bags, callbacks=[Progress()])`.

    The line has the stage, the step, the objective, the time so far, and about how long the
    stage will still take: gains of the bound shrink geometrically, and the fit ends when they
    are within the model's `tol`. Newton's method is faster than that in its last steps. Linear
    models show no time left. The line is gone when the fit ends. Nothing is shown where `file`
    (standard error) is no terminal. Needs the extra `cli`.

    >>> from bagwise import Bags, ProbitVGPMIL
    >>> bags = Bags.from_list([[[0.0]], [[1.0], [4.0]]] * 5, y=[0, 1] * 5)
    >>> ProbitVGPMIL(random_state=0).fit(bags, callbacks=[Progress()]).converged_
    True
    """

    def __init__(self, file: TextIO | None = None) -> None:
        require("rich", what="showing progress", extra="cli")
        self.file = file
        self._live: Any = None
        self._reset("fit", None)

    def _reset(self, title: str, tol: float | None) -> None:
        self._title, self._tol = title, tol
        self._begun = time.monotonic()
        self._stage, self._step = "", 0
        self._values: list[float] = []
        self._times: list[float] = []

    def begin(self, model: Any) -> None:
        """Show the line of a new fit."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self.end()
        gaussian_process = isinstance(model, GaussianProcessMIL)
        self._reset(type(model).__name__, model.tol if gaussian_process else None)
        console = Console(file=self.file, stderr=self.file is None)
        if console.is_terminal:
            self._live = Live(
                console=console,
                get_renderable=lambda: Text(self.line(), no_wrap=True, overflow="ellipsis"),
                transient=True,
            )
            self._live.start()

    def __call__(self, stage: str, step: int, objective: float, seconds: float) -> None:
        """Note one step of the fit."""
        if stage != self._stage:
            self._values, self._times = [], []
        self._stage, self._step = stage, step
        self._values = [*self._values, objective][-WINDOW - 1 :]
        self._times = [*self._times, seconds][-WINDOW - 1 :]
        self._heard = time.monotonic()

    def end(self) -> None:
        """Take the line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def line(self) -> str:
        """What is shown now."""
        elapsed = clock(time.monotonic() - self._begun)
        if not self._values:
            return f"{self._title}: preparing, {elapsed}"
        judging = self._stage.startswith("candidate")
        name = "left-out log-likelihood" if judging else OBJECTIVES.get(self._stage, "ELBO")
        shown = f"{self._stage}, step {self._step}, {name} {self._values[-1]:.6g}, {elapsed}"
        left = self._seconds_left()
        about = "" if left is None else f", about {clock(left)} left in this stage"
        return f"{self._title}: {shown}{about}"

    def _seconds_left(self) -> float | None:
        if self._tol is None or self._stage in SEARCHES:
            return None
        steps = steps_left(self._values, self._tol)
        if steps is None:
            return None
        a_step = (self._times[-1] - self._times[0]) / (len(self._times) - 1)
        since = time.monotonic() - self._heard
        return max(0.0, steps * a_step - max(0.0, since))


def steps_left(history: Sequence[float], tol: float) -> float | None:
    """Steps until geometrically shrinking gains are within `tol` of the objective's size.

    None while gains do not shrink, or are too few to tell.

    >>> round(steps_left([-100 - 0.5**k for k in range(6)], tol=1e-5), 2)  # 2^-5 to 2^-9.97
    4.97
    """
    gains = np.diff(history)
    at = np.flatnonzero(gains > 0)
    if len(at) < 3:
        return None
    logs = np.log(gains[at])
    rate = float(np.polyfit(at, logs, 1)[0])
    goal = np.log(max(tol, np.finfo(float).eps) * max(abs(history[-1]), 1.0))
    return max(0.0, float(goal - logs[-1]) / rate) if rate < 0 else None


def clock(seconds: float) -> str:
    """Time as a clock shows it.

    >>> clock(75), clock(3 * 3600 + 62)
    ('1:15', '3:01:02')
    """
    minutes, s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{s:02d}" if hours else f"{minutes}:{s:02d}"
