"""How much faster fits and predictions are on two Dask workers than on one.

    python benchmarks/dask_speedup.py [--instances 200000] [--features 16] [--inducing 400]

Each cluster has single-threaded worker processes with one BLAS thread each, and holds the same
parts. The first fit of a cluster warms its workers up and is not timed; the best of the others
is. Three things are timed: a fit with a given kernel, which must end at the bound of a serial fit
to 1e-8; the default fit, which has candidates for the kernel judged on a sample of the rows, and
calibrates by refits; and predictions of all bags, which workers write. Run it where at least two
cores are idle: the ratio is printed with the load of the machine before the run. Beside it is how
the work is divided, in processor time, which tells what idle cores would give where these are busy:
that of the client, whose process also runs both schedulers, and of the busiest worker, in the
fastest run of each cluster, and the ratio of their sums. Dask's sampling profiler is off, which
takes several hundredths of every worker's time; `--profiler` leaves it on.
"""

import os

THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}
os.environ.update(THREADS)  # before numpy is loaded; workers inherit it

import argparse  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from typing import Any  # noqa: E402

import dask  # noqa: E402
import numpy as np  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402

import bagwise as bw  # noqa: E402
from bagwise.distributed import DaskBags  # noqa: E402

BAG_SIZE = 20
WORKS = ["kernel given", "default fit", "predictions"]
PARTS, PART_BYTES = 4, 8e6  # at least, and at most: Dask would warn of 10 MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--instances", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--inducing", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--profiler", action="store_true", help="leave Dask's own profiler on")
    arguments = parser.parse_args()
    dask.config.set({"distributed.worker.profile.enabled": arguments.profiler})
    bags = synthetic_bags(arguments.instances, arguments.features)
    Z = np.random.default_rng(1).standard_normal((arguments.inducing, arguments.features))
    print(f"load average before the run: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    model = fitted(Z, bags)
    print(f"{bags.n_instances} x {bags.n_features}, M = {len(Z)}, {model.n_iter_} Newton steps")
    print("| | one worker (s) | two (s) | times | one: client + worker (cpu s) | two | times |")
    print("|---|---|---|---|---|---|---|")
    with cluster(1) as one, cluster(2) as two:
        clients = {1: one, 2: two}
        n_parts = max(PARTS, 2 * round(bags.X.nbytes / PART_BYTES / 2 + 0.5))
        whole = DaskBags.from_bags(bags, n_chunks=n_parts)
        parts = {n: whole.connect(client) for n, client in clients.items()}
        works: dict[str, Callable[[int], Any]] = {
            "kernel given": lambda n: fitted(Z, parts[n]),
            "default fit": lambda n: bw.ProbitVGPMIL(
                n_inducing=arguments.inducing, random_state=0
            ).fit(parts[n]),
            "predictions": lambda n: predicted(model, whole, clients[n]),
        }
        for name in arguments.only:
            runs, found = best_runs(works[name], clients, arguments.repeats)
            print(f"| {name} | {' | '.join(compared(runs[1], runs[2]))} |", flush=True)
            if name == "kernel given":
                check_bounds(model.elbo_, found)


def predicted(model: Any, parts: DaskBags, client: Any) -> None:
    """Probabilities of all bags, in files of each part."""
    with tempfile.TemporaryDirectory() as folder:
        parts.predict(model, client, folder)


def check_bounds(serial: float, found: dict[int, Any]) -> None:
    """Fits on workers end where a serial one does."""
    for workers, model in found.items():
        if abs(model.elbo_ - serial) > 1e-8 * abs(serial):
            raise SystemExit(f"the serial fit has {serial:.10g}, {workers} workers {model.elbo_}")


def synthetic_bags(N: int, D: int) -> bw.Bags:
    """Gaussian instances; half of the bags hold one shifted instance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    B = N // BAG_SIZE
    y = np.arange(B) % 2
    X[np.flatnonzero(y == 1) * BAG_SIZE, 0] += 3.0
    return bw.Bags.from_arrays(X[: B * BAG_SIZE], np.repeat(np.arange(B), BAG_SIZE), y=y)


def fitted(Z: np.ndarray, bags: Any, client: Any = None) -> Any:
    kernel = bw.kernels.RBF(variance=2.0, lengthscale=float(np.sqrt(Z.shape[1])))
    model = bw.ProbitVGPMIL(
        kernel=kernel,
        inducing=Z,
        learn_hyperparameters=False,
        mean=-2.0,
        standardize=False,
        random_state=0,
    )
    return model.fit(bags, client=client)


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """A client of single-threaded worker processes, each with one BLAS thread."""
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": THREADS}),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as local,
        Client(local) as client,
    ):
        yield client


@dataclass(frozen=True)
class Run:
    """What one fit, or the predictions of all bags, took."""

    seconds: float
    client: float  # of processor time
    worker: float  # the busiest one


def compared(one: Run, two: Run) -> Iterator[str]:
    """Cells of the table."""
    yield from (f"{one.seconds:.2f}", f"{two.seconds:.2f}", f"{one.seconds / two.seconds:.2f}")
    yield from (f"{run.client:.2f} + {run.worker:.2f}" for run in (one, two))
    yield f"{(one.client + one.worker) / (two.client + two.worker):.2f}"


def best_runs(
    work: Callable[[int], Any], clients: dict[int, Any], repeats: int
) -> tuple[dict[int, Run], dict[int, Any]]:
    """The fastest run of each cluster after its first, and what the last found.

    The bags are with the workers before the clock starts. The clusters take turns, so that a
    machine whose speed drifts is as fast for both.
    """
    runs: dict[int, list[Run]] = {1: [], 2: []}
    found = {}
    for _ in range(repeats + 1):
        for n, own in runs.items():
            before = clients[n].run(time.process_time)
            here, start = time.process_time(), time.perf_counter()
            found[n] = work(n)
            seconds, here = time.perf_counter() - start, time.process_time() - here
            after = clients[n].run(time.process_time)
            own.append(Run(seconds, here, max(after[w] - before[w] for w in after)))
    return {n: min(own[1:], key=lambda run: run.seconds) for n, own in runs.items()}, found


if __name__ == "__main__":
    main()
