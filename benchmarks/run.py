"""Run the benchmarks: `make bench`; with --all also the longer ones."""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--all",
        action="store_true",
        help="also run acceptance.py, mirvm.py and dask_speedup.py (minutes)",
    )
    more = ["acceptance.py", "mirvm.py", "dask_speedup.py"] if parser.parse_args().all else []
    scripts = ["sweep.py", "scale.py", *more]
    # A process each: no script inherits the memory or the thread pools of another.
    codes = [
        subprocess.run([sys.executable, str(HERE / s)], check=False).returncode for s in scripts
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
