"""`make fuzz`: many hostile model files, of which none may do more than be refused.

Prints how many were refused and read, the slowest one and the growth of memory. A failure prints
the number of the file: `python tests/trust/fuzz_model_files.py --first N --inputs 1` repeats it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import bagwise as bw
from bagwise.io import ModelFileError, read_state
from fuzzing import Fuzzer, model_files, small_bags

SECONDS = 5  # for one file; the slowest good one takes milliseconds
MEBIBYTES = 512  # growth over the whole run


class HangError(BaseException):
    """One file took longer than allowed."""


def ring(*_: Any) -> None:
    raise HangError


def read(path: Path, kind: str, bags: bw.Bags) -> str:
    """What became of a file: refused, read, or read and then unable to predict."""
    try:
        if kind.endswith("checkpoint"):
            read_state(path)
            return "read"
        model = bw.load(path)
    except ModelFileError:
        return "refused"
    try:
        p = model.predict_proba(bags)
    except ValueError:
        return "read, predicts nothing"
    return "read" if np.all((p >= 0) & (p <= 1)) else "read, predicts no probabilities"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    signal.signal(signal.SIGPROF, ring)
    counts: collections.Counter[str] = collections.Counter()
    slowest, failures, begun = (0.0, -1), [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        fuzzer, bags = Fuzzer(model_files(Path(folder))), small_bags(1)
        path = Path(folder) / "m.bagwise"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(options.first, options.first + options.inputs):
            kind, data = fuzzer.one(number)
            path.write_bytes(data)
            start = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of processor time: machines may be busy
            try:
                counts[read(path, kind, bags)] += 1
            except (Exception, HangError):
                failures.append(number)
                print(f"file {number} ({kind}):\n{traceback.format_exc()}", flush=True)
            signal.setitimer(signal.ITIMER_PROF, 0)
            slowest = max(slowest, (time.process_time() - start, number))
            if (number + 1) % 10_000 == 0:
                print(f"{number + 1} {dict(counts)}, {len(failures)} failures", flush=True)
            if len(failures) >= 20:
                break
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{sum(counts.values())} files from number {options.first}: {dict(counts)}; "
        f"{len(failures)} failures; slowest {slowest[0]:.2f} s (number {slowest[1]}); "
        f"memory grew by {grown:.0f} MiB; {time.monotonic() - begun:.0f} s"
    )
    return int(bool(failures) or slowest[0] > SECONDS or grown > MEBIBYTES)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
