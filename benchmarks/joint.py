"""What joint bag probabilities cost and how exact they are, beside the fit in the same run.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/joint.py [bags] [instances]

Seconds are processor time. Errors are those of the first 100 bags against 2^14 points.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import bagwise as bw

N_FEATURES, N_INDUCING = 16, 200
REFERENCE = (64, 2**14)


def main() -> None:
    n_bags, size = (int(x) for x in (sys.argv[1:3] or (1000, 100)))
    bags = make_bags(n_bags, size)
    for model in (bw.ProbitVGPMIL, bw.VGPMIL):
        settings: dict[str, Any] = {"kernel": bw.kernels.RBF(4.0, 4.0), "bag_score": "joint"}
        settings |= {"n_inducing": N_INDUCING, "learn_hyperparameters": False}
        fitted, fit = timed(lambda m=model, s=settings: m(**s, random_state=0).fit(bags))
        _, joint = timed(lambda f=fitted: f.predict_proba(bags, return_std=True))
        print(
            f"{model.__name__}: {n_bags} bags of {size}, D = {N_FEATURES}, M = {N_INDUCING}: "
            f"fit {fit:.2f} s, joint with deviations {joint:.2f} s, {joint / fit:.2f} x the fit"
        )
        absolute, relative = errors(fitted, bags[:100])
        print(f"  error of P(bag) at most {absolute:.1e}, of P0 at most {100 * relative:.1f} %")


def make_bags(n_bags: int, size: int) -> bw.Bags:
    """Half of the bags have a few instances that lie apart."""
    rng = np.random.default_rng(0)
    y = np.arange(n_bags) % 2
    X = rng.normal(size=(n_bags * size, N_FEATURES))
    witness = np.repeat(y == 1, size) & (rng.random(len(X)) < 0.05)
    X[witness, :3] += 2
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n_bags), size), y=y)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def errors(model: Any, bags: bw.Bags) -> tuple[float, float]:
    """Largest absolute error of P(bag) and relative error of P0."""
    posterior, asked = model.posterior_, {"joint": True, "instances": False}
    found = np.exp(posterior.predicted(bags.X, bags.offsets, **asked).joint.log_negative)
    reference = posterior.predicted(bags.X, bags.offsets, **asked, stages=REFERENCE).joint
    true = np.exp(reference.log_negative)
    return float(np.max(np.abs(found - true))), float(np.max(np.abs(found / true - 1)))


if __name__ == "__main__":
    main()
