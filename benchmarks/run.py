"""Run the benchmarks of speed: `make bench`; with --all also those of what the models reach."""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPEED = (
    "small.py",
    "threads.py",
    "sweep.py",
    "joint.py",
    "whole_job.py",
    "labelling.py",
    "scale.py",
    "large.py",
)
REACHED = (
    "acceptance.py",
    "models.py",
    "mirvm.py",
    "coupling.py",
    "images.py",
    "assumption.py",
    "dask_speedup.py",
    "defaults.py",
    "study.py",
    "instances.py",
    "thinning.py",
    "decide.py",
    "house.py",
    "deep_kernel.py",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--all", action="store_true", help=f"also run {', '.join(REACHED)} (an hour or more)"
    )
    scripts = (*SPEED, *REACHED) if parser.parse_args().all else SPEED
    # A process each: no script inherits the memory or the thread pools of another.
    codes = [
        subprocess.run([sys.executable, str(HERE / s)], check=False).returncode for s in scripts
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
