"""Calls side by side find what they find by themselves, in fewer rounds, and end when left."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from bagwise.core.rounds import in_round, in_turn, side_by_side

Rounds = list[list[Any]]


def doubled(rounds: Rounds, asked: Sequence[int]) -> list[Callable[[], int]]:
    """Twice each number, by whoever asked for it; 13 is nobody's."""
    rounds.append(sorted(asked))
    return [partial(double, n) for n in asked]


def double(n: int) -> int:
    if n == 13:
        raise ArithmeticError("13")
    return 2 * n


def chain(answer: Any, start: int, length: int) -> int:
    for _ in range(length):
        start = in_round(answer, start)
    return start


def chains(lengths: Sequence[int]) -> tuple[list[Callable[[], int]], Rounds]:
    rounds: Rounds = []
    answer = partial(doubled, rounds)
    return [partial(chain, answer, 1, length) for length in lengths], rounds


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_calls_find_what_they_find_by_themselves(most: int) -> None:
    works, _ = chains([3, 1, 0, 5, 2])
    with side_by_side(works, most) as calls:
        assert [call() for call in calls] == [8, 2, 1, 32, 4]


def test_all_that_wait_are_answered_in_one_round() -> None:
    works, rounds = chains([3, 1, 2])
    with side_by_side(works, 3) as calls:
        assert calls[0]() == 8
    assert rounds == [[1, 1, 1], [2, 2], [4]]


def test_no_more_go_on_than_asked_for() -> None:
    works, rounds = chains([2, 2, 2])
    with side_by_side(works, 2) as calls:
        assert [call() for call in calls] == [4, 4, 4]
    assert [len(asked) for asked in rounds] == [2, 2, 1, 1]


def test_calls_before_the_first_that_is_made_are_not_begun() -> None:
    works, rounds = chains([1, 1, 1])
    with side_by_side(works, 3) as calls:
        assert [calls[1](), calls[2]()] == [2, 2]
    assert rounds == [[1, 1]]


def test_questions_are_answered_where_calls_are_waited_for() -> None:
    where = []

    def answer(asked: Sequence[int]) -> list[Callable[[], int]]:
        where.append(threading.get_ident())
        return [partial(int, n) for n in asked]

    with side_by_side([partial(in_round, answer, n) for n in range(4)], 4) as calls:
        assert [call() for call in calls] == [0, 1, 2, 3]
    assert where == [threading.get_ident()]


def test_different_questions_have_answers_of_their_own() -> None:
    def halved(asked: Sequence[int]) -> list[Callable[[], float]]:
        return [partial(lambda n: n / 2, n) for n in asked]

    answer = partial(doubled, [])
    with side_by_side([partial(in_round, a, 6) for a in (answer, halved, answer)], 3) as calls:
        assert [call() for call in calls] == [12, 3.0, 12]


def test_an_error_is_that_of_the_call_that_had_it() -> None:
    rounds: Rounds = []
    answer = partial(doubled, rounds)
    works = [partial(chain, answer, start, 2) for start in (1, 13, 3)]
    with side_by_side(works, 3) as calls:
        assert calls[0]() == 4
        with pytest.raises(ArithmeticError, match="13"):
            calls[1]()
        assert calls[2]() == 12
    assert rounds == [[1, 3, 13], [2, 6]]


def test_an_error_of_an_answer_ends_all_calls() -> None:
    def answer(asked: Sequence[int]) -> list[Callable[[], int]]:
        raise KeyError("nobody is there")

    with (
        pytest.raises(KeyError, match="nobody"),
        side_by_side([partial(in_round, answer, n) for n in range(3)], 3) as calls,
    ):
        calls[0]()
    assert_threads_end()
    with side_by_side([partial(in_round, answer, n) for n in range(3)], 3) as calls:
        for call in calls:
            with pytest.raises(KeyError, match="nobody"):
                call()


def test_what_is_to_be_done_is_done_in_turn_by_the_one_that_waits() -> None:
    done: list[tuple[int, int, int]] = []
    answer = partial(doubled, [])

    def work(i: int) -> int:
        for step in range(3):
            in_turn(lambda step=step: done.append((threading.get_ident(), i, step)))
            in_round(answer, i)
        return i

    here = threading.get_ident()
    with side_by_side([partial(work, i) for i in range(3)], 3) as calls:
        for i, call in enumerate(calls):
            assert call() == i
            assert done == [(here, j, step) for j in range(i + 1) for step in range(3)]
    assert work(7) == 7 and done[-3:] == [(here, 7, step) for step in range(3)]  # alone: at once


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_calls_that_are_left_end(error: type[BaseException]) -> None:
    answer, reached = partial(doubled, []), []

    def work(i: int) -> None:
        in_round(answer, i)
        in_turn(stop)
        in_round(answer, i)
        reached.append(i)

    def stop() -> None:
        raise error

    with pytest.raises(error), side_by_side([partial(work, i) for i in range(3)], 3) as calls:
        calls[0]()
    assert_threads_end()
    assert reached == []


def assert_threads_end() -> None:
    mine = [t for t in threading.enumerate() if t.name.startswith("ThreadPoolExecutor")]
    for thread in mine:
        thread.join(60)
        assert not thread.is_alive()


def test_calls_leave_the_filters_of_warnings_as_they_were() -> None:
    answer = partial(doubled, [])

    def work(i: int) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return int(in_round(answer, i))

    before = list(warnings.filters)
    with side_by_side([partial(work, i) for i in range(4)], 4) as calls:
        assert [call() for call in calls] == [0, 2, 4, 6]
    assert warnings.filters == before


def test_what_numpy_ignores_here_it_ignores_there() -> None:
    zero = np.zeros(2)
    with np.errstate(all="ignore"), side_by_side([lambda: zero / zero] * 2, 2) as calls:
        assert all(np.isnan(call()).all() for call in calls)


def test_a_call_may_be_made_twice() -> None:
    works, _ = chains([2, 1])
    with side_by_side(works, 2) as calls:
        assert [calls[0](), calls[0](), calls[1]()] == [4, 4, 2]
