"""Calls that go on side by side, whose questions are answered in common rounds.

Fits on workers are chains of passes, and a pass over few rows waits longer for its messages than it
takes. Of fits that go on side by side all that wait for a pass have it in one message. All of them
run in threads, but nothing is asked, and no user's function called, in any of these.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar
from warnings import catch_warnings

import numpy as np

R = TypeVar("R")

Found = Callable[[], Any]  # hands out what was found, or raises
Answer = Callable[[Sequence[Any]], Sequence[Found]]  # of questions that were asked in one round


class _Unwanted(Exception):
    """Nobody waits for a call any more."""


@dataclass
class _Call:
    """A call in a thread, as the thread and the one that waits for it see it."""

    news: SimpleQueue[tuple[_Call, str, Any]]  # of all calls: what it asks, is to be done, its end
    left: threading.Event  # nobody waits any more
    found: SimpleQueue[Found] = field(default_factory=SimpleQueue)
    actions: deque[Callable[[], object]] = field(default_factory=deque)  # until it is its turn
    ended: bool = False

    def ask(self, answer: Answer, question: Any) -> Any:
        self.tell("asks", (answer, question))
        return self.found.get()()

    def tell(self, kind: str, what: Any) -> None:
        if self.left.is_set():
            raise _Unwanted
        self.news.put((self, kind, what))


_OWN: ContextVar[_Call | None] = ContextVar("_OWN", default=None)


def in_round(answer: Answer, question: Any) -> Any:
    """What `answer([question])` finds; of calls side by side, along with the questions of others.

    >>> in_round(lambda numbers: [lambda: sum(numbers)], 3)
    3
    """
    own = _OWN.get()
    return answer([question])[0]() if own is None else own.ask(answer, question)


def in_turn(action: Callable[[], object]) -> None:
    """Do something where a call is waited for, in its turn: at once, unless it is in a thread."""
    own = _OWN.get()
    if own is None:
        action()
    else:
        own.tell("does", action)


@contextmanager
def side_by_side(
    calls: Sequence[Callable[[], R]], most: int
) -> Iterator[Sequence[Callable[[], R]]]:
    """The calls; the first that is made begins those after it too, `most` of them at a time.

    What they ask by `in_round` is answered once all that are under way ask something, all that ask
    the same at once. Where the context is left early, those under way end when they next say
    something.

    >>> def remainders(numbers):
    ...     return [partial(divmod, sum(numbers), n) for n in numbers]
    >>> works = [partial(in_round, remainders, n) for n in (2, 3, 5)]
    >>> with side_by_side(works, most=2) as calls:
    ...     [call() for call in calls]
    [(2, 1), (1, 2), (1, 0)]
    """
    if min(most, len(calls)) < 2:
        yield calls
        return
    with catch_warnings():  # what threads set aside by turns they may put back wrongly
        calls_under_way = _Calls(calls, most)
        try:
            yield [partial(calls_under_way.result, i) for i in range(len(calls))]
        except Exception:  # after which a fit may go on
            calls_under_way.leave(wait=True)
            raise
        finally:  # Ctrl-C does not wait for what nobody wants
            calls_under_way.leave(wait=False)


class _Calls:
    """What waits for calls in threads, and has their questions answered."""

    def __init__(self, works: Sequence[Callable[[], Any]], most: int) -> None:
        self._works = works
        self._most = most
        self._pool = ThreadPoolExecutor(most)
        self._news: SimpleQueue[tuple[_Call, str, Any]] = SimpleQueue()
        self._left = threading.Event()
        self._begun: dict[int, tuple[_Call, Future[Any]]] = {}
        self._asking: list[tuple[_Call, Answer, Any]] = []

    def result(self, i: int) -> Any:
        """What call i has found, once what it wants to have done is done."""
        if i not in self._begun:
            self._begun.update((j, self._begin(j)) for j in range(i, len(self._works)))
        call, future = self._begun[i]
        while not (call.ended and not call.actions):
            if call.actions:
                call.actions.popleft()()
            elif len(self._asking) == min(self._most, self._unfinished()):
                self._answer_all()
            else:
                self._hear()
        return future.result()

    def _unfinished(self) -> int:
        return sum(not call.ended for call, _ in self._begun.values())

    def _begin(self, i: int) -> tuple[_Call, Future[Any]]:
        call = _Call(self._news, self._left)
        return call, self._pool.submit(copy_context().run, _run, call, self._works[i], np.geterr())

    def _hear(self) -> None:
        call, kind, what = self._news.get()
        if kind == "asks":
            self._asking.append((call, *what))
        elif kind == "does":
            call.actions.append(what)
        else:
            call.ended = True

    def _answer_all(self) -> None:
        asking, self._asking = self._asking, []
        for answer in dict.fromkeys(answer for _, answer, _ in asking):
            own = [(call, question) for call, its, question in asking if its == answer]
            for (call, _), one in zip(own, _answered(answer, own), strict=True):
                call.found.put(one)

    def leave(self, wait: bool) -> None:
        """Let calls that are under way end."""
        self._left.set()
        for call, _ in self._begun.values():
            call.found.put(_unwanted)
        self._pool.shutdown(wait=wait, cancel_futures=True)


def _answered(answer: Answer, own: Sequence[tuple[_Call, Any]]) -> Sequence[Found]:
    """What is found, or the error that ended the answer for each who asked."""
    try:
        return answer([question for _, question in own])
    except Exception as error:
        return [partial(_raise, error)] * len(own)


def _raise(error: Exception) -> None:
    raise error


def _unwanted() -> None:
    raise _Unwanted


def _run(call: _Call, work: Callable[[], R], ignored: Any) -> R:
    _OWN.set(call)
    try:
        with np.errstate(**ignored):
            return work()
    finally:
        call.news.put((call, "ends", None))
