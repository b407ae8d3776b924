"""A process of its own that refits the model while the page is used: Python runs one at a time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from bagwise.bags import Bags
from bagwise.models.quick_refits import QuickRefits

Array = NDArray[Any]

MOST_ROWS = 10_000  # that questions are chosen from, and bags drawn until they have as many
QUESTIONS = 50  # asked for at a time
NICE = 5  # the page comes first


@dataclass(frozen=True)
class Job:
    """What to fit to; one that is not `refit` asks the model as it is."""

    serial: int
    known: Array  # (N,) labels of instances, NaN where they are not known
    refit: bool
    first: bool = False  # whose left-out likelihood all others are compared with
    skipped: int = 0  # instances that nobody could tell, which will be suggested again


@dataclass(frozen=True)
class Answer:
    """A part of what a job found, sent as soon as it is there."""

    serial: int
    p: Array | None = None  # (N,) probability of the positive class
    seconds: float | None = None  # that the refit took
    rows: list[int] | None = None  # to ask about, best first
    gain: tuple[float | None, float] | None = None  # left-out likelihood, mean entropy in bits
    problem: str | None = None


class Worker:
    """The process, and the pipe to it."""

    def __init__(self, model: Any, bags: Bags, sample_weight: ArrayLike | None) -> None:
        context = get_context("spawn")  # a fork would copy threads and locks in any state
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, model, bags, sample_weight)
        self._process = context.Process(target=serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process is the end of the pipe

    def send(self, job: Job) -> None:
        """Hand a job over."""
        self._pipe.send(job)

    def receive(self) -> Answer | None:
        """Wait for the next answer; None when the process has ended."""
        try:
            found: Answer = self._pipe.recv()
        except (EOFError, OSError):
            return None
        return found

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join(5)


def serve(pipe: Connection, model: Any, bags: Bags, sample_weight: ArrayLike | None) -> None:
    """Do jobs until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this
    with suppress(OSError, AttributeError):
        os.nice(NICE)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        desk: Desk | None = None
        while True:
            job: Job = pipe.recv()
            try:
                desk = desk or Desk(model, bags, sample_weight)
                for answer in desk.answers(job, lambda: not pipe.poll()):
                    pipe.send(answer)
            except (EOFError, BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:  # whatever it is, people go on labelling
                pipe.send(Answer(job.serial, problem=" ".join(str(error).split())))


class Desk:
    """Where jobs are done, one after the other."""

    def __init__(self, model: Any, bags: Bags, sample_weight: ArrayLike | None) -> None:
        self._bags = bags
        self._model = model
        self._asked = bags_to_ask(model, bags)
        self._refits = None if bags.y is None else QuickRefits(model, bags, sample_weight)

    def answers(self, job: Job, go_on: Callable[[], bool]) -> Iterator[Answer]:
        """What is found, in the order in which people wait for it.

        The left-out likelihood comes last, and not where `go_on` says that there is more to do.
        """
        seconds = None
        if job.refit and self._refits is not None:
            start = time.perf_counter()
            self._model = self._refits(job.known)
            seconds = time.perf_counter() - start
        labelled = self._bags.with_instance_labels(job.known)
        yield Answer(job.serial, rows=self._questions(labelled, QUESTIONS + job.skipped))
        p = self._model.predict_instance_proba(labelled)[:, 1]
        yield Answer(job.serial, p=p, seconds=seconds)
        height = None
        if self._refits is not None:
            stop = (lambda: True) if job.first else go_on
            height = self._refits.left_out_likelihood(job.known, stop)
        yield Answer(job.serial, gain=(height, mean_entropy(p, job.known)))

    def _questions(self, labelled: Bags, k: int) -> list[int]:
        part = labelled[self._asked]
        rows = np.flatnonzero(np.isin(labelled.bag_index, self._asked))
        if not len(part):
            return []
        try:
            chosen = self._model.suggest_instances(part, k)
        except ValueError as error:
            if "no instance is left" in str(error):
                return []
            raise
        return [int(r) for r in rows[chosen]]


def bags_to_ask(model: Any, bags: Bags) -> NDArray[np.intp]:
    """Numbers of the bags whose instances may be asked about: all, or a sample of them.

    Where labels of bags are right, those of negative ones say all of their instances.
    """
    open_ = np.ones(len(bags), dtype=bool)
    if bags.y is not None and not model._bag_labels_may_be_wrong():
        open_ = np.asarray(bags.y) == model.classes_[1]
    some = np.flatnonzero(open_)
    order = np.random.default_rng(int(model.posterior_.seed)).permutation(some)
    before = np.cumsum(bags.sizes[order]) - bags.sizes[order]
    return np.sort(order[before < MOST_ROWS])


def mean_entropy(p: Array, known: Array) -> float:
    """How much is open of the labels of instances, in bits each; nothing of those that are known.

    >>> mean_entropy(np.array([0.5, 0.5]), np.array([1.0, np.nan]))
    0.5
    """
    bits = (special.entr(p) + special.entr(1 - p)) / np.log(2)
    return float(np.mean(np.where(np.isnan(known), bits, 0.0)))
