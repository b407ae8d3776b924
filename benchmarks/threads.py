"""What several BLAS threads cost or gain at problems of different sizes.

    python benchmarks/threads.py [--repeats 5]

The ratio of the times with all threads and with one, of fits and of instance predictions, in one
run: below 1 several threads gain. Times are the shortest of several turns, which alternate, so that
other programs disturb both alike. The limit on the multiplications of one pass (work) that bagwise
sets by itself, `bagwise.core.threads.SMALL_WORK`, is 0 here, so that nothing is limited but by this
program.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import bagwise as bw
from bagwise.core import threads
from bagwise.kernels import RBF

SIZES = (  # bags, rows in each, features, inducing points
    (60, 5, 10, 50),
    (60, 5, 10, 200),
    (60, 10, 166, 200),
    (100, 40, 10, 50),
    (100, 40, 10, 200),
    (100, 250, 10, 200),
    (100, 1000, 10, 200),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    threads.SMALL_WORK = 0.0
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", bw.NearChanceWarning)
    print(f"{os.cpu_count()} cores")
    print("bags  rows   D    M     work  fit, one  ratio  predict, one  ratio")
    for n_bags, size, D, M in SIZES:
        bags = make_bags(n_bags, size, D)
        model = make_model(bags, M).fit(bags)
        fit = compare(lambda m=M, b=bags: make_model(b, m).fit(b), repeats)
        predict = compare(lambda m=model, b=bags: m.predict_instance_proba(b), repeats)
        work = n_bags * size * M * (M + D)
        print(
            f"{n_bags:4d} {size:5d} {D:3d} {M:4d}  {work:8.1e}  "
            f"{fit[0]:6.2f} s  {fit[1]:5.2f}     {predict[0]:7.3f} s  {predict[1]:5.2f}",
            flush=True,
        )


def make_bags(n_bags: int, size: int, n_features: int) -> bw.Bags:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n_bags * size, n_features)), np.arange(n_bags) % 2
    X[np.flatnonzero(y) * size, 0] += 6
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n_bags), size), y=y)


def make_model(bags: bw.Bags, n_inducing: int) -> Any:
    """A few sweeps, which are what a longer fit repeats, without the search for a kernel."""
    return bw.VGPMIL(
        kernel=RBF(1.0, float(np.sqrt(bags.n_features))),
        inducing=np.array(bags.X[np.linspace(0, bags.n_instances - 1, n_inducing).astype(int)]),
        mean=-2.0,
        learn_hyperparameters=False,
        standardize=False,
        max_iter=5,
        random_state=0,
    )


def compare(work: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Seconds with one thread, and how many times as long it takes with all."""
    taken: dict[int | None, list[float]] = {1: [], None: []}
    for _ in range(repeats):
        for limit, times in taken.items():
            with threadpool_limits(limit, user_api="blas"):
                start = time.perf_counter()
                work()
                times.append(time.perf_counter() - start)
    return min(taken[1]), min(taken[None]) / min(taken[1])


if __name__ == "__main__":
    main()
