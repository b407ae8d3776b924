"""How fits grow with instances N, inducing points M, features D and bags B.

    python benchmarks/scale.py [--quick] [--cpu] [--csv scale.csv] [--plot scale.png]

Times stand beside those of the machine's own matrix product (N x M)(M x M) and of one pass over
N x M numbers, taken in the same run, and beside one sweep of an implementation that loops over
bags with masks, as published programs do. `--cpu` counts processor time, which a busy machine
disturbs less.
"""

import argparse
import csv
import itertools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special
from sklearn.exceptions import ConvergenceWarning

import bagwise as bw
from bagwise.core.inference.passes import FLOAT64_FEATURES

SIZES, INDUCING, FEATURES = (10_000, 100_000, 1_000_000), (50, 200, 500), (8, 128)
BAG_SIZE = 100
BAG_COUNTS = (100, 1000, 10_000, 50_000)
NAIVE_UP_TO = 100_000  # its time grows with B N
LOGISTIC_UP_TO = 20_000_000  # N M; larger fits of VGPMIL are those of benchmarks/large.py
COLUMNS = (
    "N", "M", "D", "B", "product", "pass", "features", "sweep", "sweep_products", "naive_sweep",
    "newton_fit", "newton_steps", "newton_products", "logistic_fit", "logistic_sweeps",
    "peak_beyond_X_MB",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="sizes that take a minute")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of wall time")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--inducing", nargs="+", type=int, default=INDUCING)
    parser.add_argument("--features", nargs="+", type=int, default=FEATURES)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.inducing, options.features = (5000, 20_000), (20, 50), (8,)
    clock = time.process_time if options.cpu else time.perf_counter
    rows = []
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for D, M, N in itertools.product(options.features, options.inducing, options.sizes):
        rows.append(measure(N, M, D, max(2, N // BAG_SIZE), options.dtype, clock))
        show(rows[-1])
    N, M, D = sorted(options.sizes)[len(options.sizes) // 2], options.inducing[0], 8
    by_bags = [measure(N, M, D, B, options.dtype, clock) for B in BAG_COUNTS if B <= N // 2]
    for row in by_bags:
        show(row)
    print(*exponents(rows, by_bags), sep="\n")
    if options.csv:
        write(options.csv, rows + by_bags)
    if options.plot:
        draw(options.plot, rows)


def measure(
    N: int, M: int, D: int, B: int, dtype: str, clock: Callable[[], float]
) -> dict[str, Any]:
    """One row of the table."""
    X, offsets, y = synthetic(N, D, B, dtype)
    Z = X[np.linspace(0, N - 1, M).astype(int)].astype(np.float64)
    # Few features are kept in float64 whatever the data.
    product, read = machine(N, M, "float64" if N * M <= FLOAT64_FEATURES else dtype, clock)
    before = memory("VmRSS")
    reset_peak()
    bags = bw.Bags.from_arrays(X, np.repeat(np.arange(B), np.diff(offsets)), y=y)
    features, sweep = sweep_times(bags, Z, clock)
    newton = timed_fit(bw.ProbitVGPMIL, bags, Z, clock)
    peak = memory("VmHWM") - before
    small = N * M <= LOGISTIC_UP_TO
    logistic = timed_fit(bw.VGPMIL, bags, Z, clock) if small else (np.nan, np.nan)
    naive = naive_time(X, offsets, y, M, clock) if N <= NAIVE_UP_TO else np.nan
    values = (
        N, M, D, B, product, read, features, sweep, sweep / product, naive,
        *newton, newton[0] / product, *logistic, peak,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def synthetic(N: int, D: int, B: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gaussian instances in B bags; every second bag holds one shifted instance."""
    X = np.random.default_rng(0).standard_normal((N, D), dtype=np.dtype(dtype))
    offsets = np.linspace(0, N, B + 1).astype(np.int64)
    y = np.arange(B) % 2
    X[offsets[:-1][y == 1], 0] += 4.0
    return X, offsets, y


def settings(Z: np.ndarray) -> dict[str, Any]:
    kernel = bw.kernels.RBF(1.0, float(np.sqrt(Z.shape[1])))
    return {
        "inducing": Z, "kernel": kernel, "learn_hyperparameters": False, "mean": -2.0,
        "standardize": False, "random_state": 0,
    }  # fmt: skip


def machine(N: int, M: int, dtype: str, clock: Callable[[], float]) -> tuple[float, float]:
    """Seconds of a product (N x M)(M x M) in blocks, and of one pass over N x M."""
    A, S = np.random.default_rng(1).standard_normal((4096, M)).astype(dtype), np.eye(M, dtype=dtype)
    out = np.empty_like(A)
    product = best(lambda: np.matmul(A, S, out=out), clock) * N / len(A)
    whole = np.ones((N, M), dtype=dtype)
    return product, best(lambda: float(whole.sum()), clock, 3)


def best(work: Callable[[], object], clock: Callable[[], float], repeats: int = 9) -> float:
    """The best of several runs: the others were disturbed."""
    seconds = []
    for _ in range(repeats):
        start = clock()
        work()
        seconds.append(clock() - start)
    return max(min(seconds), 1e-9)


def timed_fit(
    model: Any, bags: bw.Bags, Z: np.ndarray, clock: Callable[[], float]
) -> tuple[float, int]:
    """Seconds and steps of a fit to the default tolerance."""
    fitted = model(**settings(Z))
    start = clock()
    fitted.fit(bags)
    return clock() - start, fitted.n_iter_


def sweep_times(bags: bw.Bags, Z: np.ndarray, clock: Callable[[], float]) -> tuple[float, float]:
    """Seconds before the first sweep (features above all), and per sweep, of VGPMIL."""
    times: list[float] = []
    model = bw.VGPMIL(**settings(Z), H=100.0, max_iter=5, tol=0.0)
    start = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # stopping early is the point
        model.fit(bags, callbacks=[lambda *step: times.append(clock())])
    sweep = float(np.min(np.diff(times)))
    return times[0] - start - 2 * sweep, sweep  # the starting statistics cost a sweep as well


def naive_time(
    X: np.ndarray, offsets: np.ndarray, y: np.ndarray, M: int, clock: Callable[[], float]
) -> float:
    """One sweep of [V17] with a loop over bags and a mask for each, in float64."""
    rng = np.random.default_rng(2)
    A = rng.standard_normal((len(X), M)) / np.sqrt(M)
    bag = np.repeat(np.arange(len(y)), np.diff(offsets))
    m, S, pi = rng.standard_normal(M), np.eye(M), np.full(len(X), 0.5)
    start = clock()
    mu = A @ m
    xi = np.sqrt(mu**2 + np.sum((A @ S) * A, axis=1))
    for b in np.unique(bag):
        rows = bag == b
        own = pi[rows]
        others = np.array([np.max(np.delete(own, i), initial=0.0) for i in range(len(own))])
        sign = 2 * y[b] - 1
        pi[rows] = special.expit(mu[rows] + np.log(100.0) * sign * (1 - others))
    theta = np.tanh(xi / 2) / (2 * xi)
    np.linalg.inv(np.eye(M) + (A * theta[:, None]).T @ A) @ (A.T @ (pi - 0.5))
    return clock() - start


def exponents(rows: list[dict[str, Any]], by_bags: list[dict[str, Any]]) -> list[str]:
    """Slopes of log sweep time, each at the largest values of the others."""
    lines = []
    top = {name: max(r[name] for r in rows) for name in ("N", "M", "D")}
    for name, others in (("N", ("M", "D")), ("M", ("N", "D"))):
        picked = [r for r in rows if all(r[o] == top[o] for o in others)]
        lines.append(f"sweep time grows with {name} to the power {slope(picked, name):.2f}")
    lines.append(f"sweep time grows with B to the power {slope(by_bags, 'B'):.2f}")
    return lines


def slope(rows: list[dict[str, Any]], name: str) -> float:
    if len(rows) < 2:
        return np.nan
    x, t = (np.log([r[key] for r in rows]) for key in (name, "sweep"))
    return float(np.polyfit(x, t, 1)[0])


def show(row: dict[str, Any]) -> None:
    print("| " + " | ".join(f"{row[c]:.4g}" for c in COLUMNS) + " |", flush=True)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({k: f"{v:.5g}" for k, v in r.items()} for r in rows)


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """Seconds per sweep against N, with the machine's product and the loop over bags."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    D = max(r["D"] for r in rows)
    for i, M in enumerate(sorted({r["M"] for r in rows})):
        picked = sorted((r for r in rows if (r["M"], r["D"]) == (M, D)), key=lambda r: r["N"])
        N = [r["N"] for r in picked]
        lines = (("sweep", "-o"), ("product", ":"), ("naive_sweep", "--x"))
        for name, style in lines:
            label = {"sweep": f"bagwise, M = {M}", "product": None, "naive_sweep": None}[name]
            axes.loglog(N, [r[name] for r in picked], style, color=f"C{i}", label=label)
    axes.plot([], [], ":k", label="one product (N x M)(M x M)")
    axes.plot([], [], "--xk", label="a loop over bags")
    axes.set(xlabel="instances N", ylabel="seconds per sweep", title=f"VGPMIL, D = {D}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def memory(name: str) -> float:
    """Megabytes of this process: VmRSS now, VmHWM at most; NaN where /proc is missing."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(x.split()[1]) / 1000 for x in file if x.startswith(name + ":"))
    except OSError:
        return np.nan


def reset_peak() -> None:
    """Let VmHWM begin anew, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


if __name__ == "__main__":
    main()
