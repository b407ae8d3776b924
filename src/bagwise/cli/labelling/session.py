"""One session of labelling: what the page asks for, and when the model is fitted again."""

from __future__ import annotations

import re
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.cli.labelling.features import against_bag
from bagwise.cli.labelling.opinions import Opinions, believable
from bagwise.cli.labelling.pictures import Pictures
from bagwise.cli.labelling.store import ACTIONS, LABELS, Event, LabelStore, RefusedEventError
from bagwise.cli.labelling.worker import Answer, Job, Worker

Array = NDArray[Any]

EVENT_ID = re.compile(r"[0-9A-Za-z-]{8,64}")
LONGEST_NAME = 80
MOST_SHOWN = 100  # of rows in dispute, and of labels that cannot be believed
RECENT = 8
STARTING, REFITTING, IDLE, ENDED = "starting", "refitting", "idle", "ended"


class Session:
    """Bags with their labels, the suggestions of a model, and the worker that makes them.

    Every method may be called from any thread.
    """

    def __init__(
        self,
        bags: Bags,
        store: LabelStore,
        worker: Worker,
        *,
        name: str,
        refit_every: int,
        positive: Any,
        noisy: bool,
        pictures: Pictures,
    ) -> None:
        """`positive` is the class of positive bags, `noisy` whether bag labels may be wrong."""
        self.bags, self.store, self.pictures, self.name = bags, store, pictures, name
        self._worker, self._every, self._noisy = worker, refit_every, noisy
        unknown = np.full(bags.n_instances, np.nan)
        self._own = unknown if bags.instance_labels is None else np.asarray(bags.instance_labels)
        self._T = np.full(len(bags), np.nan)
        if bags.y is not None:
            self._T = (np.asarray(bags.y) == positive).astype(float)
        self._opinions = Opinions(bags, name)
        self._opinions.hear(store.events())  # a file about other data is refused here
        self._resumed = self._opinions.last > 0  # labels are there that no fit has seen
        self._lock = threading.RLock()
        self._version = 0
        self._state, self._problem = STARTING, ""
        self._seconds: float | None = None
        self._p: Array | None = None
        self._questions: list[int] = []
        self._gains: list[dict[str, Any]] = []
        self._jobs: dict[int, int] = {}  # labels that each was given
        self._sent, self._heard = self._own, 0  # labels of the last job, and events before it
        self._send(self._own, refit=False, first=True)
        threading.Thread(target=self._listen, daemon=True).start()

    # --- The worker ------------------------------------------------------------------------------

    def _send(self, known: Array, *, refit: bool, first: bool = False) -> None:
        serial = len(self._jobs)
        skipped = sum(
            e.action == "skip" for w in self._opinions.words().values() for e in w.values()
        )
        self._jobs[serial] = int(np.sum(~np.isnan(known) & np.isnan(self._own)))
        self._sent, self._heard = known, self._opinions.last
        self._state = STARTING if first else REFITTING
        try:
            self._worker.send(Job(serial, known, refit, first, skipped))
        except OSError:
            self._ended()

    def _ended(self) -> None:
        self._state = ENDED
        self._problem = "the process that refits has ended; labels are kept, start again for refits"
        self._version += 1

    def _listen(self) -> None:
        while (answer := self._worker.receive()) is not None:
            with self._lock:
                self._take(answer)
                self._refit_if_due()
        with self._lock:
            self._ended()

    def _take(self, answer: Answer) -> None:
        self._version += 1
        if answer.problem is not None:
            self._problem, self._state = answer.problem, IDLE
        if answer.rows is not None:
            self._questions = answer.rows
        if answer.p is not None:
            self._p, self._seconds, self._problem = answer.p, answer.seconds, ""
            self._state = IDLE
        if answer.gain is not None:
            left_out, entropy = answer.gain
            labels = self._jobs[answer.serial]
            self._gains.append({"labels": labels, "left_out": left_out, "entropy": entropy})

    def _refit_if_due(self) -> None:
        """Fit where enough labels are new; where all questions are answered, ask for others."""
        if self._state != IDLE:
            return
        changed, words = self._changed(), self._opinions.words()
        answered = bool(self._questions) and not any(r not in words for r in self._questions)
        asked_before = self._opinions.last == self._heard
        if changed >= self._every or (changed and self._resumed):
            self._send(self._labels()[0], refit=self._refits())
        elif answered and not asked_before:
            self._send(self._labels()[0], refit=self._refits() and changed > 0)
        else:
            return
        self._resumed = False

    def _refits(self) -> bool:
        """Without labels of bags a model cannot be fitted, only asked."""
        return self.bags.y is not None

    def _labels(self) -> tuple[Array, list[int], list[int]]:
        """Labels that a refit takes, rows in dispute, and rows whose label contradicts its bag."""
        given, disputed = self._opinions.labels()
        known = np.where(np.isnan(self._own), given, self._own)
        known, wrong = believable(known, self._own, self.bags.offsets, self._T, noisy=self._noisy)
        return known, disputed, wrong

    def _changed(self) -> int:
        """Labels that came, changed or went since those of the last job."""
        known = self._labels()[0]
        same = (known == self._sent) | (np.isnan(known) & np.isnan(self._sent))
        return int(np.sum(~same))

    def refit(self) -> None:
        """Fit now, if there is anything new and nothing is being fitted."""
        with self._lock:
            if self._state == IDLE and self._changed():
                self._send(self._labels()[0], refit=self._refits())
                self._version += 1

    # --- What people say -------------------------------------------------------------------------

    def record(
        self, event: str, annotator: str, action: str, row: int | None, undoes: str | None
    ) -> Event:
        """Keep a label, a skip or an undo; it is on disk when this returns."""
        annotator = checked_name(annotator)
        if not EVENT_ID.fullmatch(event):
            raise RefusedEventError("an event has an id of 8 to 64 letters, digits and hyphens")
        if action not in ACTIONS:
            raise RefusedEventError(f"an event does one of {', '.join(ACTIONS)}")
        with self._lock:
            about = self._undone(annotator, undoes) if action == "undo" else self._about(row)
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            kept = self.store.add(Event(event, annotator, now, action, **about))
            self._catch_up()
            return kept

    def _about(self, row: int | None) -> dict[str, Any]:
        if row is None or not 0 <= row < self.bags.n_instances:
            raise RefusedEventError(f"rows are numbered from 0 to {self.bags.n_instances - 1}")
        if not np.isnan(self._own[row]):
            raise RefusedEventError("the table has the label of this instance; correct it there")
        return self._opinions.of(row)

    def _undone(self, annotator: str, undoes: str | None) -> dict[str, Any]:
        event = None if undoes is None else self.store.find(undoes)
        if event is None or event.annotator != annotator or event.action == "undo":
            raise RefusedEventError("people take back labels and skips of their own")
        about = {k: getattr(event, k) for k in ("bag", "position", "instance", "features")}
        return {**about, "undoes": undoes}

    def _catch_up(self) -> None:
        """Hear what is new in the file, also from other processes."""
        news = self.store.events(self._opinions.last)
        if news:
            self._opinions.hear(news)
            self._version += 1
            self._refit_if_due()

    # --- What the page shows ---------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """What does not change."""
        negative, positive = self.store.classes
        return {
            "name": self.name,
            "bags": len(self.bags),
            "instances": self.bags.n_instances,
            "positive": positive,
            "negative": negative,
            "file": str(self.store.path),
            "every": self._every,
            "refits": self._refits(),
            "map": self.bags.coords is not None and self.bags.coords.shape[1] >= 2,
            "pictures": self.pictures.kinds,
        }

    def state(self, annotator: str, *, second: bool = False) -> dict[str, Any]:
        """Counts, the next question of somebody, and what became of the labels."""
        annotator = checked_name(annotator)
        with self._lock:
            self._catch_up()
            words = self._opinions.words()
            _, disputed, wrong = self._labels()
            following = self._next(annotator, words, second=second)
            last = self._opinions.last_of(annotator)
            return {
                "version": self._version,
                "counts": dict(Counter(e.action for w in words.values() for e in w.values())),
                "people": dict(Counter(name for w in words.values() for name in w)),
                "next": following,
                "undo": None if last is None else {"event": last[1].event, "row": last[0]},
                "refit": {
                    "state": self._state,
                    "problem": self._problem,
                    "seconds": self._seconds,
                    "new": self._changed(),
                },
                "gains": self._gains,
                "disputed": [self._told(r, words) for r in disputed[:MOST_SHOWN]],
                "wrong": [self._told(r, words) for r in wrong[:MOST_SHOWN]],
                "recent": self._recent(words),
            }

    def _next(
        self, annotator: str, words: dict[int, dict[str, Event]], *, second: bool
    ) -> int | None:
        """The first suggestion that nobody has answered; with `second`, what others labelled."""
        if second:
            others = [r for r, w in words.items() if annotator not in w and _labelled(w)]
            return min(others, default=None)
        unanswered = (r for r in self._questions if not self._answered(words.get(r, {}), annotator))
        return next(unanswered, None)

    @staticmethod
    def _answered(words: dict[str, Event], annotator: str) -> bool:
        return annotator in words or _labelled(words)

    def _told(self, row: int, words: dict[int, dict[str, Event]]) -> dict[str, Any]:
        b = int(np.searchsorted(self.bags.offsets, row, side="right")) - 1
        said = {name: e.action for name, e in sorted(words.get(row, {}).items())}
        return {"row": row, "bag": str(self.bags.ids[b]), "instance": self._name(row), "said": said}

    def _recent(self, words: dict[int, dict[str, Event]]) -> list[dict[str, Any]]:
        every = [(e.number, row, e) for row, w in words.items() for e in w.values()]
        last = sorted(every, key=lambda word: -word[0])[:RECENT]
        return [
            {"row": row, "bag": e.bag, "instance": self._name(row), "who": e.annotator,
             "what": e.action, "when": e.time}
            for _, row, e in last
        ]  # fmt: skip

    def _name(self, row: int) -> str:
        if self.bags.instance_ids is not None:
            return str(self.bags.instance_ids[row])
        b = int(np.searchsorted(self.bags.offsets, row, side="right")) - 1
        return f"row {row - int(self.bags.offsets[b]) + 1}"

    def instance(self, row: int, annotator: str, *, second: bool = False) -> dict[str, Any]:
        """An instance in its bag; with `second`, labels of others are not told."""
        annotator = checked_name(annotator)
        if not 0 <= row < self.bags.n_instances:
            raise RefusedEventError(f"rows are numbered from 0 to {self.bags.n_instances - 1}")
        b = int(np.searchsorted(self.bags.offsets, row, side="right")) - 1
        start, stop = int(self.bags.offsets[b]), int(self.bags.offsets[b + 1])
        with self._lock:
            words, p = self._opinions.words(), self._p
        rows = range(start, stop)
        coords = self.bags.coords
        flat = None if coords is None else np.asarray(coords[start:stop], dtype=float)
        return {
            "row": row,
            "bag": str(self.bags.ids[b]),
            "name": self._name(row),
            "number": row - start + 1,
            "of": stop - start,
            "start": start,
            "bag_label": None if np.isnan(self._T[b]) else int(self._T[b]),
            "p": None if p is None else [round(float(v), 4) for v in p[start:stop]],
            "coords": None if flat is None else flat[:, :2].tolist(),
            "labels": [self._mark(r, words.get(r, {}), annotator, second) for r in rows],
            "own": None if np.isnan(self._own[row]) else int(self._own[row]),
            "said": self._said(words.get(row, {}), annotator, second),
            "features": against_bag(self.bags, row),
            "picture": self.pictures.has(row),
        }

    @staticmethod
    def _said(words: dict[str, Event], annotator: str, second: bool) -> dict[str, str]:
        blind = second and annotator not in words
        return {} if blind else {name: e.action for name, e in sorted(words.items())}

    def _mark(self, row: int, words: dict[str, Event], annotator: str, second: bool) -> str | None:
        """What is known of a row, in one word."""
        if not np.isnan(self._own[row]):
            return "positive" if self._own[row] == 1 else "negative"
        said = set(self._said(words, annotator, second).values()) & set(LABELS)
        if len(said) == 2:
            return "disputed"
        return said.pop() if said else None

    def close(self) -> None:
        """End the worker and let go of the file."""
        self._worker.close()
        self.store.close()


def _labelled(words: dict[str, Event]) -> bool:
    return any(e.action in LABELS for e in words.values())


def checked_name(annotator: str) -> str:
    """Who speaks, as it is kept.

    >>> checked_name("  Ann ")
    'Ann'
    """
    name = annotator.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise RefusedEventError(f"say who you are in 1 to {LONGEST_NAME} printable characters")
    return name
