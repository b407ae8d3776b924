"""Small problems run on one BLAS thread; what was set before is never raised and comes back."""

from __future__ import annotations

import os
import threading
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
    suitable_threads,
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
