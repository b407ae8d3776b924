"""Time per sweep of each model against one matrix product of the machine, in the same run.

    python benchmarks/sweep.py [--sizes 10000 100000] [--inducing 50 200]

A sweep of the logistic model needs two passes of the cost of (N x M)(M x M), one for the sites
and one for E f^2; the probit model's precision is constant, so its sweeps are cheaper. The ratio
to the product is what to compare between machines.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import bagwise as bw
from bagwise.models._gaussian_process import GaussianProcessMIL

MODELS: tuple[type[GaussianProcessMIL], ...] = (bw.VGPMIL, bw.ProbitVGPMIL)
N_FEATURES = 16
BAG_SIZE = 10
SHORT, LONG = 3, 13  # sweeps of the two fits whose difference is timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--inducing", nargs="+", type=int, default=[50, 200])
    arguments = parser.parse_args()
    print("| N | M | product (ms) | model | sweep (ms) | sweep / product |")
    print("|---|---|---|---|---|---|")
    for N in arguments.sizes:
        bags = synthetic_bags(N)
        for M in arguments.inducing:
            product = best_time(gemm(N, M))
            for model_class in MODELS:
                sweep = sweep_time(model_class, bags, M)
                print(
                    f"| {N} | {M} | {1e3 * product:.2f} | {model_class.__name__} "
                    f"| {1e3 * sweep:.2f} | {sweep / product:.1f} |",
                    flush=True,
                )


def synthetic_bags(N: int) -> bw.Bags:
    """Gaussian instances in bags of ten; half of the bags hold one shifted instance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, N_FEATURES))
    B = N // BAG_SIZE
    y = np.arange(B) % 2
    X[np.flatnonzero(y == 1) * BAG_SIZE, 0] += 3.0
    return bw.Bags.from_arrays(X, np.repeat(np.arange(B), BAG_SIZE), y=y)


def gemm(N: int, M: int) -> Callable[[], object]:
    rng = np.random.default_rng(1)
    A, S = rng.standard_normal((N, M)), rng.standard_normal((M, M))
    out = np.empty((N, M))
    return lambda: np.matmul(A, S, out=out)


def best_time(work: Callable[[], object], repeats: int = 7) -> float:
    """The best of several runs: the others were disturbed."""
    return min(timed(work) for _ in range(repeats))


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def sweep_time(model_class: type[GaussianProcessMIL], bags: bw.Bags, M: int) -> float:
    """Seconds per sweep, from fits that differ in nothing but the number of sweeps."""
    Z = bags.X[np.random.default_rng(2).choice(len(bags.X), M, replace=False)]
    seconds, sweeps = {}, {}
    for limit in (SHORT, LONG):
        model = model_class(
            inducing=Z,
            kernel=bw.kernels.RBF(1.0, np.sqrt(N_FEATURES)),
            learn_hyperparameters=False,
            mean=-2.0,
            standardize=False,
            max_iter=limit,
            tol=0.0,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # stopping early is the point
            seconds[limit] = best_time(partial(model.fit, bags), repeats=3)
        sweeps[limit] = model.n_iter_
    return (seconds[LONG] - seconds[SHORT]) / (sweeps[LONG] - sweeps[SHORT])


if __name__ == "__main__":
    main()
