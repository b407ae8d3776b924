"""`make soak MINUTES=120`: fits, predictions, pages and Dask passes in one process, with faults.

Memory, open files and threads must be flat: what the last quarter of the rounds has at most is
compared with what the second quarter had.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import bagwise as bw
from bagwise.distributed import DaskBags, PartError
from bagwise.io import UnreadableFileError, read_table, write_table
from bagwise.report import build_report
from fuzzing import damaged, small_bags

SETTINGS: dict[str, Any] = {"n_inducing": 6, "max_iter": 20, "random_state": 0}
MODELS: list[Callable[[], Any]] = [
    lambda: bw.ProbitVGPMIL(**SETTINGS),
    lambda: bw.VGPMIL(**SETTINGS),
    lambda: bw.LargeMarginVGPMIL(**SETTINGS),
    lambda: bw.IsingVGPMIL(coupling=0.2, **SETTINGS),
    lambda: bw.MIRVM(random_state=0),
    lambda: bw.OneVsRestMIL(bw.MIRVM(random_state=0)),
]
GROWTH = 1.1  # of memory; the first rounds make caches, which then stay
SPARE = 2  # files and threads that may be open for a moment


class DeliberateError(Exception):
    """Thrown into a fit to see that nothing of it stays."""


def fit_and_predict(rng: np.random.Generator, folder: Path) -> None:
    bags = small_bags(int(rng.integers(1000)))
    model = MODELS[int(rng.integers(len(MODELS)))]().fit(bags, bags.y)
    bw.save(model, folder / "m.bagwise")
    same = bw.load(folder / "m.bagwise")
    np.testing.assert_array_equal(same.predict_proba(bags), model.predict_proba(bags))


def write_a_page(rng: np.random.Generator, folder: Path) -> None:
    bags = small_bags(int(rng.integers(1000)))
    assert "<html" in build_report(bw.MIRVM(random_state=0).fit(bags), bags)


def read_damaged_files(rng: np.random.Generator, folder: Path) -> None:
    bags = small_bags()
    bw.MIRVM(random_state=0).fit(bags).save(folder / "m.bagwise")
    write_table(bags.to_frame(), folder / "t.parquet")
    for path, read in ((folder / "m.bagwise", bw.load), (folder / "t.parquet", read_table)):
        good = path.read_bytes()
        for _ in range(20):
            path.write_bytes(damaged(good, rng))
            with contextlib.suppress(UnreadableFileError):
                read(path)


def stop_a_fit(rng: np.random.Generator, folder: Path) -> None:
    """An error of the user's, or Ctrl-C, at some step; then the fit goes on from its checkpoint."""
    kind = (DeliberateError, KeyboardInterrupt)[int(rng.integers(2))]
    last, path = int(rng.integers(1, 9)), folder / "fit.ckpt"

    def stop(stage: str, step: int, objective: float, seconds: float) -> None:
        if step == last:
            raise kind

    how: dict[str, Any] = {"checkpoint": path, "checkpoint_minutes": 0}
    with contextlib.suppress(DeliberateError, KeyboardInterrupt):
        bw.VGPMIL(**SETTINGS).fit(small_bags(), callbacks=[stop], **how)
    if path.exists():
        bw.VGPMIL(**SETTINGS).fit(small_bags(), resume=path)


@contextmanager
def cluster() -> Iterator[Any]:
    """A client of a cluster in other processes: schedulers keep a history of all their tasks."""
    from distributed import Client

    with tempfile.TemporaryDirectory() as folder, ExitStack() as started:
        file = f"{folder}/scheduler.json"
        for name in ("dask_scheduler", "dask_worker"):
            line = [sys.executable, "-m", f"distributed.cli.{name}", "--scheduler-file", file]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen([*line, "--no-dashboard"], **quiet)
            started.callback(process.wait)
            started.callback(process.terminate)
        with Client(scheduler_file=file) as client:
            yield client


def fit_with_dask(client: Any) -> Callable[[np.random.Generator, Path], None]:
    def work(rng: np.random.Generator, folder: Path) -> None:
        bags = DaskBags.from_bags(small_bags(int(rng.integers(1000))), 3)
        bw.VGPMIL(learn_hyperparameters=False, **SETTINGS).fit(bags, client=client)
        broken = DaskBags.from_files(["no such file"], _fail)
        with contextlib.suppress(PartError):
            bw.MIRVM().fit(broken, client=client)

    return work


def _fail(path: str) -> bw.Bags:
    raise ValueError(f"{path} cannot be read")


def state() -> tuple[float, int, int]:
    """Resident MiB, open descriptors and threads."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return pages / 256, len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def soak(minutes: float, client: Any) -> list[tuple[float, int, int]]:
    """What was held after each round of all kinds of work."""
    rng, end, found = np.random.default_rng(0), time.monotonic() + 60 * minutes, []
    works = (fit_and_predict, write_a_page, read_damaged_files, stop_a_fit, fit_with_dask(client))
    while time.monotonic() < end:
        for work in works:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                work(rng, Path(folder))
        found.append(state())
        if len(found) % 20 == 1:
            print("round {}: {:.0f} MiB, {} files, {} threads".format(len(found), *found[-1]))
            sys.stdout.flush()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    options = parser.parse_args()
    logging.disable(logging.ERROR)  # Dask would tell of the faults thrown in
    with cluster() as client:
        found = np.array(soak(options.minutes, client))
    quarter = len(found) // 4
    if quarter < 2:
        print(f"{len(found)} rounds are too few to compare; give more minutes")
        return 1
    before, after = found[quarter : 2 * quarter].max(axis=0), found[-quarter:].max(axis=0)
    print(
        f"{len(found)} rounds; second quarter, last quarter: memory {before[0]:.0f}, "
        f"{after[0]:.0f} MiB; files {before[1]:.0f}, {after[1]:.0f}; threads {before[2]:.0f}, "
        f"{after[2]:.0f}"
    )
    return int(bool(after[0] > GROWTH * before[0] or np.any(after[1:] > before[1:] + SPARE)))


if __name__ == "__main__":
    sys.exit(main())
