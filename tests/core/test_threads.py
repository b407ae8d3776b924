"""Small problems run on one BLAS thread; what was set before is never raised and comes back."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import joblib
import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import bagwise as bw
from bagwise.core import threads
from bagwise.core.inference import passes
from bagwise.core.posteriors import points
from bagwise.core.threads import (
    at_once,
    helped_by,
    in_threads,
    overlapping,
    suitable_threads,
    to_waiter,
    under_way,
)
from toy_bags import separable_bags

SMALL, LARGE = (100, 5, 20), (100_000, 500, 1000)
FAST: dict[str, Any] = {"n_inducing": 5, "random_state": 0, "tol": 1e-4}
CONTROLLER = ThreadpoolController().select(user_api="blas")


def now() -> int:
    """The most threads that any BLAS may use."""
    return max(library["num_threads"] for library in CONTROLLER.info())


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    with CONTROLLER.limit(limits=3):
        if now() != 3:
            pytest.skip("this BLAS has one thread")
        yield


def test_small_problems_have_one_thread_and_large_ones_what_is_set() -> None:
    with suitable_threads(*SMALL):
        assert now() == 1
    assert now() == 3
    with suitable_threads(*LARGE):
        assert now() == 3


def test_a_small_problem_within_a_small_problem() -> None:
    with suitable_threads(*SMALL):
        with suitable_threads(*SMALL):
            assert now() == 1
        assert now() == 1
        with suitable_threads(*LARGE):
            assert now() == 1  # limits are never raised
    assert now() == 3


def test_limits_come_back_after_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), suitable_threads(*SMALL):
        raise KeyboardInterrupt
    assert now() == 3


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_threads_that_end_in_any_order_leave_what_was_set(first_ends_first: bool) -> None:
    begun, go_on, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        with suitable_threads(*SMALL):
            seen.append(now())
            begun.set()
            go_on.wait(60)

    thread = threading.Thread(target=other)
    with suitable_threads(*SMALL):
        thread.start()
        assert begun.wait(60) and seen == [1]
        if not first_ends_first:
            go_on.set()
            thread.join()
            assert now() == 1
    go_on.set()
    thread.join()
    assert now() == 3
    with suitable_threads(*SMALL):
        assert now() == 1


@pytest.mark.parametrize(
    "model",
    [
        bw.ProbitVGPMIL(**FAST),
        bw.VGPMIL(**FAST),
        bw.IsingVGPMIL(**FAST, neighbors="chain", coupling=0.02),
        bw.MIRVM(random_state=0),
        bw.MultiTaskMIRVM(random_state=0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_fits_and_predictions_of_small_problems(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags, seen = separable_bags(24, 2), []
    model.fit(bags, callbacks=[lambda *step: seen.append(now())])
    assert set(seen) == {1} and now() == 3
    model = model.for_task() if isinstance(model, bw.MultiTaskMIRVM) else model
    predicted = type(model.posterior_).predicted

    def spy(self: Any, *arguments: Any, **parts: Any) -> Any:
        seen.append(now())
        return predicted(self, *arguments, **parts)

    seen.clear()
    monkeypatch.setattr(type(model.posterior_), "predicted", spy)
    monkeypatch.setattr(type(model), "_predictor", lambda self, bags: self.posterior_)
    model.predict_instance_proba(bags)
    model.top_instances(bags)
    model.set_params(bag_score="max").predict_proba(bags)
    assert seen == [1, 1, 1] and now() == 3


@pytest.mark.parametrize(
    ("model", "of_blas"), [(bw.ProbitVGPMIL(**FAST), 1), (bw.MIRVM(random_state=0), 3)]
)
def test_large_fits_keep_their_threads(
    model: Any, of_blas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "SMALL_WORK", 100.0)
    seen: list[int] = []
    model.fit(separable_bags(24, 2), callbacks=[lambda *step: seen.append(now())])
    assert set(seen) == {of_blas}  # where one, chunks have the others


def test_chunks_of_large_work_are_shared_by_as_many_threads_as_blas_had() -> None:
    seen: set[int] = set()
    together = threading.Barrier(3)

    def work(i: int) -> int:
        seen.add(threading.get_ident())
        assert now() == 1  # of BLAS, in each
        together.wait(60)
        return list(in_threads(lambda j: i + j, 2))[1]  # which makes no further threads

    with suitable_threads(*LARGE, by_chunk=True):
        assert list(in_threads(work, 6)) == [1, 2, 3, 4, 5, 6]
        assert len(seen) == 3
        with suitable_threads(*SMALL, by_chunk=True):
            assert set(in_threads(lambda i: threading.get_ident(), 4)) == {threading.get_ident()}
        with suitable_threads(*LARGE, by_chunk=True):
            assert len(set(in_threads(lambda i: together.wait(60), 3))) == 3
    assert now() == 3
    assert set(in_threads(lambda i: threading.get_ident(), 4)) == {threading.get_ident()}


def test_results_do_not_run_far_ahead_of_those_who_take_them() -> None:
    begun = []
    with suitable_threads(*LARGE, by_chunk=True):
        results = in_threads(begun.append, 1000)
        next(results)
        results.close()  # type: ignore[attr-defined]
    assert len(begun) <= 1 + 3 * (threads.AHEAD + 1)


def test_an_error_in_a_chunk_is_that_of_the_pass() -> None:
    def work(i: int) -> int:
        return 1 // (i - 5)

    with pytest.raises(ZeroDivisionError), suitable_threads(*LARGE, by_chunk=True):
        list(in_threads(work, 100))
    assert now() == 3


def test_what_numpy_ignores_here_it_ignores_in_threads() -> None:
    zero = np.zeros(3)
    with suitable_threads(*LARGE, by_chunk=True), np.errstate(all="ignore"):
        list(in_threads(lambda i: zero / zero, 4))


@pytest.mark.parametrize("settings", [{}, {"memory_budget": 0}], ids=["kept", "made anew"])
@pytest.mark.parametrize("name", ["ProbitVGPMIL", "VGPMIL", "LargeMarginVGPMIL", "GammaVGPMIL"])
def test_threads_change_no_digit_of_fits_and_predictions(
    name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = separable_bags(20, 3)

    def fitted() -> tuple[Any, ...]:
        how = FAST | settings | {"chunk_size": 7, "bag_score": "joint"}
        model = getattr(bw, name)(**how).fit(bags)
        found = model.predict_proba(bags, return_std=True)
        return model.elbo_, model.posterior_.m, *found, model.predict_instance_proba(bags)

    monkeypatch.setattr(passes, "rows_per_chunk", lambda n_features: 5)
    alone = fitted()
    monkeypatch.setattr(threads, "SMALL_WORK", 0)
    used = []
    pool = threads.ThreadPoolExecutor
    monkeypatch.setattr(threads, "ThreadPoolExecutor", lambda n: used.append(n) or pool(n))
    shared = fitted()
    assert used and set(used) <= {2, 3}
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # that threads and forks do not mix
@pytest.mark.parametrize(("room", "lock"), [(threads, "_CHANGING"), (points, "_keeping")])
def test_a_child_does_not_wait_for_threads_that_it_has_not(room: Any, lock: str) -> None:
    with getattr(room, lock):
        child = os.fork()
        if child == 0:
            os._exit(0 if getattr(room, lock).acquire(timeout=20) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_calls_begin_with_the_first_that_is_asked_for() -> None:
    """Those before it are done already in a fit that goes on."""
    done = []

    def work(item: int, factor: int) -> int:
        done.append(item)
        return factor * item

    with joblib.parallel_config("threading", n_jobs=2):
        calls = at_once(work, range(5), (10,))
        assert done == []
        assert calls[2]() == 20 and sorted(done) == [2, 3, 4]
        assert [calls[4](), calls[3]()] == [40, 30] and sorted(done) == [2, 3, 4]


def test_a_helper_does_the_calls_of_its_context() -> None:
    asked = []

    def helper(work: Any, items: Any, common: Any) -> Any:
        asked.append(list(items))
        return [lambda item=item: work(item, *common) for item in items]

    def divide(a: float, b: float) -> float:
        return a / b

    with helped_by(helper):
        calls = at_once(divide, [1.0, 2.0], (0.0,), (ZeroDivisionError,))
        for call in calls:
            with pytest.raises(ZeroDivisionError):
                call()
        with helped_by(None):
            assert at_once(divide, [6.0], (2.0,))[0]() == 3
    assert asked == [[1.0, 2.0]] and at_once(divide, [6.0], (2.0,))[0]() == 3


def test_calls_with_the_most_effort_begin_first() -> None:
    begun = []

    def helper(work: Any, items: Any, common: Any) -> Any:
        begun.extend(items)
        return [lambda item=item: work(item, *common) for item in items]

    with helped_by(helper):
        calls = at_once(divmod, [1, 7, 3, 7, 5], (10,), effort=lambda item: item % 7)
        assert [call() for call in calls] == [(0, 1), (0, 7), (0, 3), (0, 7), (0, 5)]
    assert begun == [5, 3, 1, 7, 7]


# --- Calls that overlap -------------------------------------------------------------------------


def in_turn(work: Any, items: Any, common: Any) -> Any:
    """A helper that nobody asks."""
    raise AssertionError


def test_without_a_helper_calls_are_made_when_they_are_asked_for() -> None:
    done: list[int] = []
    works = [lambda: done.append(threading.get_ident())] * 3
    with overlapping(works) as calls:
        assert not done
        calls[1]()
        assert done == [threading.get_ident()]


def test_the_next_call_is_under_way_before_it_is_asked_for() -> None:
    together, begun = threading.Barrier(threads.OVERLAPPING), []

    def work(i: int) -> int:
        begun.append(i)
        together.wait(60)
        return i

    zero = np.zeros(1)
    works = [lambda i=i: work(i) + int(np.isnan(zero / zero)[0]) for i in range(7)]
    with helped_by(in_turn), np.errstate(all="ignore"), overlapping(works) as calls:
        assert not begun
        assert [calls[i]() for i in range(1, 7)] == [2, 3, 4, 5, 6, 7]
    assert sorted(begun) == [1, 2, 3, 4, 5, 6]


def test_calls_that_overlap_share_memory() -> None:
    assert under_way() == 1
    with helped_by(in_turn), overlapping([under_way] * 2) as calls:
        assert calls[0]() == threads.OVERLAPPING
    with overlapping([under_way]) as calls:
        assert calls[0]() == 1


def test_what_is_said_to_the_waiter_is_said_in_its_thread_and_turn() -> None:
    heard: list[tuple[int, int, int]] = []

    def work(i: int) -> None:
        for step in range(3):
            to_waiter(lambda step=step: heard.append((threading.get_ident(), i, step)))

    works = [lambda i=i: work(i) for i in range(4)]
    with helped_by(in_turn), overlapping(works) as calls:
        for call in calls:
            call()
    assert heard == [(threading.get_ident(), i, step) for i in range(4) for step in range(3)]
    heard.clear()
    work(7)  # nobody waits
    assert [i for _, i, _ in heard] == [7, 7, 7]


def test_a_call_may_be_asked_twice() -> None:
    with helped_by(in_turn), overlapping([lambda: 1, lambda: 2]) as calls:
        assert [calls[0](), calls[0](), calls[1]()] == [1, 1, 2]


def test_a_call_that_is_left_behind_changes_no_filters_of_warnings() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        with warnings.catch_warnings():
            begun.set()
            go_on.wait(60)

    def broken() -> None:
        begun.wait(60)
        raise ZeroDivisionError

    before = list(warnings.filters)
    with pytest.raises(ZeroDivisionError), helped_by(in_turn), overlapping([broken, slow]) as calls:
        threading.Timer(0.2, go_on.set).start()
        calls[0]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine = list(warnings.filters)
        time.sleep(0.5)
        assert warnings.filters == mine
    assert warnings.filters == before


def test_an_error_comes_from_the_call_that_had_it() -> None:
    works = [lambda x=x: 1 / x for x in (1, 0, 2)]
    with helped_by(in_turn), overlapping(works) as calls:
        assert calls[0]() == 1
        with pytest.raises(ZeroDivisionError):
            calls[1]()
        assert calls[2]() == 0.5


def test_calls_that_nobody_waits_for_any_more_end_at_their_next_word() -> None:
    left, ended, steps, begun = threading.Event(), threading.Event(), [], []

    def work(i: int) -> None:
        begun.append(i)
        to_waiter(lambda: stop(i))
        try:
            assert left.wait(60)
            to_waiter(lambda: steps.append(i))
            steps.append(-1)  # not reached
        finally:
            if i == 1:
                ended.set()

    def stop(i: int) -> None:
        while len(begun) < threads.OVERLAPPING:
            pass
        raise KeyboardInterrupt

    works = [lambda i=i: work(i) for i in range(5)]
    with pytest.raises(KeyboardInterrupt), helped_by(in_turn), overlapping(works) as calls:
        calls[0]()
    left.set()
    assert ended.wait(60) and steps == [] and sorted(begun) == list(range(threads.OVERLAPPING))
