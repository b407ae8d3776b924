"""`make fuzz`: many damaged and crafted files for every reader, which may only refuse them.

Each reader works in processes of its own, with a limit of memory (RLIMIT_AS) and of processor time
for each file, so that crashes and hangs of libraries written in C are found too. A failure prints
the number of its file: `python tests/trust/fuzz.py --only "hdf5 slides" --first N --inputs 1`
repeats it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from readers import make_reader, outcome, reader_names

SECONDS = 5  # of processor time for one file; the slowest good one takes milliseconds
WAIT = 120  # seconds in which some file must be done, though the machine be busy or the file a pipe
MEBIBYTES = 1024  # that reading may add to what the process has when it begins
BLOCK = 1000  # files for one process
MOST_FAILURES = 20  # of one reader


class HangError(BaseException):
    """One file took longer than allowed."""


def ring(*_: Any) -> None:
    raise HangError


def limit_memory() -> None:
    """Let this process have some more memory than it has now, and not more."""
    with open("/proc/self/statm", encoding="ascii") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    most = held + MEBIBYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def read_block(name: str, first: int, inputs: int) -> None:
    """Read some files, with a line of JSON for each: number, outcome, seconds."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    signal.signal(signal.SIGPROF, ring)
    with tempfile.TemporaryDirectory() as folder:
        reader = make_reader(name, Path(folder) / "seeds")
        place = Path(folder) / "in"
        place.mkdir()
        limit_memory()
        for number in range(first, first + inputs):
            file, data = reader.one(number)
            path = place / file
            path.write_bytes(data)
            print(json.dumps([number, "begun", 0]), flush=True)
            start = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.setitimer(signal.ITIMER_VIRTUAL, 2 * SECONDS)  # ends what hears no signals
            try:
                found = outcome(reader, path)
            except (Exception, HangError):
                found = "failed"
                print(f"{name}, file {number} ({file}):\n{traceback.format_exc()}", file=sys.stderr)
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            print(json.dumps([number, found, time.process_time() - start]), flush=True)
            for left in place.iterdir():
                left.unlink()


def watch(name: str, first: int, inputs: int) -> tuple[collections.Counter[str], float, int]:
    """Outcomes, the slowest file and where to go on after one process has read a block."""
    command = [sys.executable, __file__, "--child", "--only", name, "--first", str(first)]
    counts: collections.Counter[str] = collections.Counter()
    slowest, at = 0.0, first - 1
    with subprocess.Popen(
        [*command, "--inputs", str(inputs)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        signal.signal(signal.SIGALRM, lambda *_: child.kill())
        signal.alarm(WAIT)
        for line in child.stdout:
            signal.alarm(WAIT)
            at, found, seconds = json.loads(line)
            if found != "begun":
                counts[found] += 1
                slowest = max(slowest, seconds)
        signal.alarm(0)
    if child.returncode:
        print(f"{name}, file {at}: the process ended with {child.returncode}", flush=True)
        counts["failed"] += 1
    return counts, slowest, at + 1


def try_reader(name: str, first: int, inputs: int) -> bool:
    """Read all files of one reader; whether none failed."""
    counts: collections.Counter[str] = collections.Counter()
    slowest, at, begun = 0.0, first, time.monotonic()
    while at < first + inputs and counts["failed"] < MOST_FAILURES:
        found, seconds, after = watch(name, at, min(BLOCK, first + inputs - at))
        counts += found
        slowest = max(slowest, seconds)
        if after == at:
            raise RuntimeError(f"{name}: no file could be read at all")
        at = after
    outcomes = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    print(
        f"{name}: {outcomes}; slowest {slowest:.2f} s; {time.monotonic() - begun:.0f} s in all",
        flush=True,
    )
    return counts["failed"] == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="files for each reader")
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--only", action="append", help="a reader; all without it")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        read_block(options.only[0], options.first, options.inputs)
        return 0
    os.environ["PYTHONWARNINGS"] = "ignore"
    names = options.only or reader_names()
    return int(not all([try_reader(name, options.first, options.inputs) for name in names]))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
