"""Checkpoints of long fits: written atomically every few minutes, checked before they are used."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.bags.rows import row_digest
from bagwise.core.files.atomic import check_target, remove_leftovers
from bagwise.core.files.codec import Encoder, describe
from bagwise.core.files.modelfile import (
    ModelFileError,
    read_kind,
    read_state,
    register_kernels,
    write_state,
)
from bagwise.core.inference.monitor import Callback, Monitor, State
from bagwise.core.parameters import check_number

KIND = "checkpoint"
# What numbers and texts that are not as a fit wrote them can lead to.
_FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError)
KEYS = {"marks", "prepared", "fit"}
# Arguments that may change between a fit and its continuation.
FREE = ("verbose", "max_iter", "chunk_size", "memory_budget", "random_state", "bag_score")


@dataclass(frozen=True)
class Saving:
    """Where a fit is asked to write its states, how often, and which one it goes on from."""

    path: str | os.PathLike[str] | None = None
    minutes: float = 5.0
    resume: str | os.PathLike[str] | None = None

    @property
    def asked(self) -> bool:
        return self.path is not None or self.resume is not None


NOT_SAVED = Saving()


@dataclass(frozen=True)
class Session:
    """One call of `fit`: where it writes its states, and the one it goes on from."""

    path: str | os.PathLike[str] | None
    minutes: float
    marks: dict[str, str]
    saved: State | None

    @classmethod
    def begin(
        cls,
        model: Any,
        bags: Bags,
        labels: dict[str, Any],
        saving: Saving,
    ) -> Session:
        """Read the checkpoint to resume from, if any, and check that it is of this fit.

        `labels` are what is told of the bags besides their features, by names that messages use.
        """
        if not saving.asked:
            return cls(None, saving.minutes, {}, None)
        register_kernels()
        data = {
            "the number of features": bags.n_features,
            "the sizes of bags": bags.offsets,
            **labels,
            "the coordinates": bags.coords,
            "the groups": bags.groups,
            "the features": str(row_digest(bags.X)),
        }
        marks = fingerprint(model, data)
        saved = None if saving.resume is None else read_checkpoint(saving.resume, marks)
        path = saving.resume if saving.path is None else saving.path
        return cls(path, saving.minutes, marks, saved)

    @property
    def prepared(self) -> State | None:
        """What the interrupted fit had chosen before it began."""
        return None if self.saved is None else self.saved["prepared"]

    def do(self, work: Callable[[], Any], monitor: Monitor) -> Any:
        """Do some work of the fit; Ctrl-C saves what has been reached before it goes on its way.

        The first part of a fit that goes on had no errors: they come from what is in the file.
        """
        try:
            return work()
        except KeyboardInterrupt:
            monitor.save()
            raise
        except _FAULTS as error:
            if self.saved is None or error is monitor.callback_error:
                raise
            raise ModelFileError(
                f"cannot go on from this checkpoint: what it holds does not fit together "
                f"({describe(error)}); resume from another one, or start anew without resume"
            ) from error

    def monitor(self, prepared: State, callbacks: Sequence[Callback]) -> Monitor:
        """What watches the fit."""
        saver = None
        if self.path is not None:
            header = {"marks": self.marks, "prepared": prepared}
            saver = CheckpointFile(self.path, self.minutes, header)
        return Monitor(callbacks, saver, None if self.saved is None else self.saved["fit"])


class CheckpointFile:
    """A file that is replaced by newer states; the last but one stays beside it.

    `header` is what a continuation needs besides the state, and what it is checked against. A
    state that cannot be written (the disk is full) is a warning: the fit and the states before
    it are not lost.
    """

    def __init__(self, path: str | os.PathLike[str], minutes: float, header: State) -> None:
        self.path = check_target(path)
        self.seconds = 60 * check_number("checkpoint_minutes", minutes, at_least=0)
        self.header = header
        self._last = time.monotonic()
        for beside in (self._next, previous(self.path)):
            check_target(beside)  # whose names are longer
        refuse_others(self.path)
        for target in (self.path, self._next):
            remove_leftovers(target)

    @property
    def _next(self) -> Path:
        return following(self.path)

    def due(self) -> bool:
        """Whether the last state is older than the interval."""
        return time.monotonic() - self._last >= self.seconds

    def save(self, state: State) -> None:
        """Write a state; at any moment this file or the previous one is whole."""
        self._last = time.monotonic()
        try:
            # Beside the others first: a full disk leaves both of them as they are.
            write_state(self._next, {**self.header, "fit": state}, kind=KIND)
            if self.path.exists():
                os.replace(self.path, previous(self.path))
            os.replace(self._next, self.path)
        except OSError as error:
            warnings.warn(
                f"cannot write the checkpoint {self.path} ({error}); the fit goes on, and the "
                "checkpoint before it, if any, is kept; make room or check the folder",
                UserWarning,
                stacklevel=2,
            )


def refuse_others(path: Path) -> None:
    """Raise where a checkpoint at `path` would move or replace what is none."""
    kept = [file for file in (path, previous(path)) if os.path.lexists(file)]
    # One that is whole vouches for the other, which a fault may have damaged.
    if not kept or any(_is_checkpoint(file) for file in kept):
        kept = [file for file in (following(path),) if os.path.lexists(file)]
    if kept and not any(_is_checkpoint(file) for file in kept):
        raise FileExistsError(
            f"{kept[0]} exists and is not a checkpoint of bagwise, so that none is written there; "
            "choose another name for the checkpoint, or move that file away"
        )


def _is_checkpoint(path: Path) -> bool:
    try:
        return read_kind(path) == KIND
    except (OSError, ModelFileError):
        return False


def following(path: str | os.PathLike[str]) -> Path:
    """Where the next state is written before it takes its place; whole, if it is there at all."""
    return Path(f"{os.fspath(path)}.next")


def previous(path: str | os.PathLike[str]) -> Path:
    """Where the last but one state is kept.

    >>> previous("run.ckpt").name
    'run.ckpt.previous'
    """
    return Path(f"{os.fspath(path)}.previous")


def read_checkpoint(path: str | os.PathLike[str], marks: dict[str, str]) -> State:
    """The newest whole state at `path`, of the same model on the same data."""
    if not Path(path).exists() and not previous(path).exists():
        raise FileNotFoundError(
            f"no checkpoint {os.fspath(path)} to resume from; start with "
            "fit(bags, checkpoint=...) and give that file"
        )
    try:
        state = _read(path)
    except (ModelFileError, FileNotFoundError) as error:
        if not previous(path).exists():
            raise
        warnings.warn(
            f"{error}; going on from the one before it, {previous(path)}", UserWarning, stacklevel=2
        )
        state = _read(previous(path))
    named = dict.fromkeys([*marks, *state["marks"]])
    different = [name for name in named if state["marks"].get(name) != marks.get(name)]
    if different:
        raise ValueError(
            f"the checkpoint {os.fspath(path)} is of another fit: {', '.join(different)} differ; "
            "resume with the same data and arguments, or start anew without resume"
        )
    return state


def _read(path: str | os.PathLike[str]) -> State:
    kind, state = read_state(path)
    if kind != KIND or not isinstance(state, dict) or not set(state) >= KEYS:
        raise ModelFileError(f"{os.fspath(path)} holds a {kind!r:.80}, not a checkpoint of a fit")
    for name, fits in _CONTENTS.items():
        if not (isinstance(state[name], dict) and fits(state[name])):
            raise ModelFileError(
                f"{os.fspath(path)} is no checkpoint as fits write them: its {name!r} is damaged"
            )
    return state


def _is_reached(fit: State) -> bool:
    """Whether stages that are done, and the one on its way, are what a `Monitor` writes."""
    if set(fit) != {"done", "stage", "state"} or not isinstance(fit["stage"], str):
        return False
    states = [*fit["done"].values(), fit["state"]] if isinstance(fit["done"], dict) else [0]
    return all(state is None or (isinstance(state, dict) and _has_folds(state)) for state in states)


def _has_folds(state: State) -> bool:
    """Whether the folds of bags, if a stage cut some, count from 0: fits go through all of them."""
    folds = state.get("folds", np.zeros(1, np.int64))
    whole = isinstance(folds, np.ndarray) and folds.dtype.kind == "i" and folds.ndim == 1
    return bool(whole and np.all((folds >= 0) & (folds < len(folds))))


def _is_prepared(prepared: State) -> bool:
    """Whether scales, points and the seed, or the random numbers of linear models, fit together."""
    parts: list[Any] = [prepared.get(name) for name in ("shift", "scale", "Z")]
    linear = isinstance(prepared.get("random"), dict) and isinstance(parts[1], np.ndarray)
    if linear:
        prepared = {"seed": 0, **prepared}
        parts[2] = np.zeros((1, parts[1].size)) if parts[2] is None else parts[2]
    shift, scale, Z = parts
    arrays = all(isinstance(a, np.ndarray) and a.dtype.kind == "f" for a in parts)
    if not arrays or type(prepared.get("seed")) is not int or Z.ndim != 2:
        return False
    shapes = shift.shape == scale.shape == Z.shape[1:] and len(Z) > 0
    sizes = all(np.all(np.abs(a) < 1e100) for a in parts)
    return bool(shapes and sizes and np.all(scale > 0) and 0 <= prepared["seed"] < 2**31)


_CONTENTS: dict[str, Callable[[State], bool]] = {
    "marks": lambda marks: all(isinstance(mark, str) for mark in marks.values()),
    "prepared": _is_prepared,
    "fit": _is_reached,
}


def fingerprint(model: Any, data: dict[str, Any]) -> dict[str, str]:
    """A mark for each argument of a model and each part of its data that must not change."""
    arguments = {k: v for k, v in model.get_params(deep=False).items() if k not in FREE}
    values = {"the model": type(model).__name__, **arguments, **data}
    return {name: _mark(value) for name, value in values.items()}


def _mark(value: Any) -> str:
    """A digest of a value as a model file would hold it; equal under any version of any library."""
    encoder = Encoder()
    try:
        text = json.dumps(encoder.encode(_plain(value), "argument", 0), sort_keys=True)
    except ModelFileError:
        return f"a {type(value).__name__}"  # functions, for one, cannot be compared
    digest = hashlib.sha256(text.encode())
    for array in encoder.arrays:
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """What stands for an argument that model files do not hold: graphs, tables, types."""
    if sparse.issparse(value):
        rows = value.tocsr()
        return [list(value.shape), rows.indptr, rows.indices, rows.data]
    if isinstance(value, type | np.dtype):
        return str(np.dtype(value))
    return np.asarray(value) if hasattr(value, "to_numpy") else value
