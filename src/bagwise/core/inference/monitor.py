"""What watches a fit: callbacks after every step, and states from which to go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

State = dict[str, Any]  # of what a model file can hold
Callback = Callable[[str, int, float, float], object]
Note = Callable[[int, float], None]  # of a step and its objective


@contextmanager
def listening(callbacks: Sequence[Callback], model: Any) -> Iterator[None]:
    """Tell callbacks that have `begin` and `end` when the fit of a model begins and ends."""
    for callback in callbacks:
        if not callable(callback):
            raise TypeError(
                f"callbacks are functions of (stage, step, objective, seconds), got {callback!r}"
            )
    try:
        for callback in callbacks:
            if hasattr(callback, "begin"):
                callback.begin(model)
        yield
    finally:
        for callback in callbacks:
            if hasattr(callback, "end"):
                callback.end()


class Saver(Protocol):
    """Where states are kept."""

    def due(self) -> bool:
        """Whether it is time to save."""

    def save(self, state: State) -> None:
        """Keep a state in place of the last one."""


class Monitor:
    """Runs the stages of a fit, tells callbacks about their steps, and saves on the way.

    A stage is a function of the state to go on from (None at its beginning) that returns its
    result. Stages that are in the `saved` state are not run again; one whose result says
    `"finished": False` (it was cut short by max_iter) goes on from its last step instead.

    >>> monitor = Monitor([lambda stage, step, objective, seconds: print(stage, step, objective)])
    >>> def count(state):
    ...     monitor.step(1, -2.0, lambda: {"n": 1})
    ...     return {"n": 2}
    >>> monitor.run("counting", count)
    counting 1 -2.0
    {'n': 2}
    """

    def __init__(
        self,
        callbacks: Sequence[Callback] = (),
        saver: Saver | None = None,
        saved: State | None = None,
    ) -> None:
        self._callbacks = callbacks
        self._saver = saver
        self._begun = time.monotonic()
        saved = saved or {"done": {}, "stage": "", "state": None}
        self._done: dict[str, State] = dict(saved["done"])
        self._reached: tuple[str, State | None] = (saved["stage"], saved["state"])
        self._stage = ""
        self._unfinished = False
        self.callback_error: Exception | None = None
        self._state: Callable[[], State] | None = None
        self.view: Callable[[State], Any] | None = None  # the model so far, of the state of a step

    @property
    def saves(self) -> bool:
        """Whether states are kept."""
        return self._saver is not None

    def run(self, stage: str, work: Callable[[State | None], State]) -> State:
        """The result of a stage: saved, or worked out from where it stopped."""
        if stage in self._done:
            return self._done[stage]
        name, state = self._reached
        self._stage, self._state = stage, None
        result = work(state if name == stage else None)
        if self._unfinished:  # stages that follow one cut short would not outlive its continuation
            return result
        if result.get("finished", True):
            self._done[stage] = result
            if name in ("", stage):  # a version that had no such stage may have been further
                self._reached = ("", None)
        else:
            self._unfinished = True
            if self._saver is not None:  # where nothing is kept, states need not exist
                self._reached = self._where()
        self._stage, self._state = "", None
        self.save()
        return result

    def _where(self) -> tuple[str, State | None]:
        """The stage and the state to go on from: as loaded until a step has been made."""
        return self._reached if self._state is None else (self._stage, self._state())

    def step(self, step: int, objective: float, state: Callable[[], State]) -> None:
        """Note one step; `state` makes what is needed to go on after it."""
        if not self._unfinished:
            self._state = state
        for callback in self._callbacks:
            self._tell(callback, step, float(objective))
        self._show(step, state)
        if self._saver is not None and self._saver.due():
            self.save()

    def _tell(self, callback: Callback, step: int, objective: float) -> None:
        try:
            callback(self._stage, step, objective, time.monotonic() - self._begun)
        except Exception as error:
            self.callback_error = error  # the user's own: whoever watches leaves it alone
            raise

    def _show(self, step: int, state: Callable[[], State]) -> None:
        """Let callbacks that have `look` see the model so far, where a step has one."""
        lookers = [callback for callback in self._callbacks if hasattr(callback, "look")]
        reached = state() if lookers and self.view is not None else {}
        if self.view is None or "q" not in reached:
            return
        for callback in lookers:
            try:
                callback.look(self.view(reached), self._stage, step)
            except Exception as error:
                self.callback_error = error
                raise

    def save(self) -> None:
        """Write what has been reached, if states are kept at all."""
        if self._saver is not None:
            stage, state = self._where()
            self._saver.save({"done": self._done, "stage": stage, "state": state})
