"""Time and memory of coupled fits on large grids, beside the model without coupling.

    python benchmarks/coupling.py [--bags 20] [--side 100] [--inducing 100]

Every other bag has a disc of positive patches; features are noisy.
"""

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from threadpoolctl import threadpool_limits

import bagwise as bw

CASES = ((0.0, "fitc"), (0.5, "vfe"), (0.5, "fitc"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bags", type=int, default=20)
    parser.add_argument("--side", type=int, default=100)
    parser.add_argument("--inducing", type=int, default=100)
    args = parser.parse_args()
    print(f"{args.bags} bags of {args.side**2} instances, {args.inducing} inducing points")
    print("| coupling | approximation | seconds | CPU seconds | steps | peak GB | instance AUC |")
    print("|---|---|---|---|---|---|---|")
    for coupling, approximation in CASES:
        # A process each: the peak of memory is that of this fit.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            row = pool.submit(
                measure, coupling, approximation, args.bags, args.side, args.inducing
            ).result()
        print(row, flush=True)


def measure(coupling: float, approximation: str, n_bags: int, side: int, inducing: int) -> str:
    bags, truth = grid_bags(n_bags, side)
    with threadpool_limits(1, user_api="blas"):
        start, cpu = time.perf_counter(), time.process_time()
        model = bw.IsingVGPMIL(
            coupling=coupling, approximation=approximation, n_inducing=inducing, random_state=0
        ).fit(bags)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        p = np.asarray(model.predict_instance_proba(bags))[:, 1]
    return (
        f"| {coupling} | {approximation} | {seconds:.0f} | {cpu:.0f} | {model.n_iter_} | "
        f"{peak:.2f} | {bw.metrics.roc_auc(truth, p):.3f} |"
    )


def grid_bags(n_bags: int, side: int) -> tuple[bw.Bags, np.ndarray]:
    rng = np.random.default_rng(0)
    xy = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
    centres = rng.uniform(0.2 * side, 0.8 * side, size=(n_bags, 2))
    inside = [np.hypot(*(xy - c).T) < 0.15 * side for c in centres]
    truth = np.concatenate([(b % 2) * disc for b, disc in enumerate(inside)]).astype(int)
    X = rng.normal(size=(len(truth), 8))
    X[:, :2] += 1.5 * truth[:, None]
    ids = np.repeat(np.arange(n_bags), side**2)
    coords = np.tile(xy, (n_bags, 1)).astype(float)
    y = np.arange(n_bags) % 2
    return bw.Bags.from_arrays(X, ids, y, coords=coords), truth


if __name__ == "__main__":
    main()
