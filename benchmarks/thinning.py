"""Kernel and mean learned from all rows of large bags, from a sample of them, and from few bags.

    python benchmarks/thinning.py [--bags 100] [--size 5000] [--features 4] [--inducing 30]
        [--rows 10000]

Bags are drawn from the probit model itself: half of them positive, with few positive rows. What
is lost is measured by the objective of all rows, in nats: a search ends where a step gains less
than 0.1. Seconds are of the processor.
"""

import argparse
import time

import numpy as np

from bagwise.core.features import whitener
from bagwise.core.inference.driver import LEARNING_ROWS, START_MEAN
from bagwise.core.inference.hyper import EvidenceObjective, Hyperparameters, learn
from bagwise.core.inference.passes import TrainingData
from bagwise.core.inference.thinning import thin
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Probit
from bagwise.kernels import RBF
from bagwise.models._preparation import kmeans_points

TRUE = RBF(9.0, 1.5)
JITTER, PRIOR_SCALE = 1e-6, 0.5
LIKELIHOOD = BagLikelihood(Probit())
N_FOURIER, REGIONS, WIDTH = 1000, 3, 0.3


def drawn(n_bags: int, size: int, D: int, rng: np.random.Generator) -> tuple[TrainingData, str]:
    """Bags whose rows lie in a few regions each, and a line about them."""
    centres = rng.normal(size=(n_bags, REGIONS, D))
    X = centres[np.arange(n_bags)[:, None], rng.integers(0, REGIONS, (n_bags, size))]
    X = (X + WIDTH * rng.normal(size=X.shape)).reshape(-1, D)
    omega = rng.normal(size=(D, N_FOURIER)) / TRUE.lengthscale
    phase, w = rng.uniform(0, 2 * np.pi, N_FOURIER), rng.normal(size=N_FOURIER)
    f = np.concatenate([np.cos(x @ omega + phase) @ w for x in np.array_split(X, n_bags)])
    m = np.sqrt(2 * TRUE.variance / N_FOURIER) * f + rng.normal(size=len(X))
    top = m.reshape(n_bags, size).max(axis=1)
    c0 = -float(np.median(top))
    share = np.mean(m.reshape(n_bags, size)[top + c0 > 0] + c0 > 0)
    about = f"{TRUE}, mean {c0:.2f}, {100 * share:.2f} % of the rows of positive bags positive"
    return TrainingData(X, np.arange(0, n_bags * size + 1, size), top + c0 > 0), about


def whole_bags(data: TrainingData, rows: int, rng: np.random.Generator) -> TrainingData:
    """The same share of the bags of both labels, whole, with about as many rows as a sample."""
    share = rows / len(data.X)
    by_label = [rng.permutation(np.flatnonzero(t == data.T)) for t in (True, False)]
    return data.of_bags(np.sort(np.concatenate([b[: round(share * len(b))] for b in by_label])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sizes = {"bags": 100, "size": 5000, "features": 4, "inducing": 30, "rows": LEARNING_ROWS}
    for name, value in (sizes | {"seed": 0}).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    data, about = drawn(options.bags, options.size, options.features, rng)
    print(f"drawn from {about}", flush=True)
    Z = kmeans_points(data.X, np.repeat(data.T, options.size).astype(int), options.inducing, rng)
    anchor = RBF(4.0, 0.5 * float(np.sqrt(data.X.var(axis=0).sum())))
    start = Hyperparameters(anchor, START_MEAN)

    def objective(part: TrainingData) -> EvidenceObjective:
        return EvidenceObjective(part, LIKELIHOOD, Z, JITTER, start, start, True, True, PRIOR_SCALE)

    def sampled() -> TrainingData:
        features = whitener(anchor, Z, JITTER)
        sample = thin(data, LIKELIHOOD, features, None, options.rows, rng)
        return data.of_rows(sample.rows, sample.weights)

    ways = {
        "whole bags": lambda: whole_bags(data, options.rows, rng),
        "sample": sampled,
        "another sample": sampled,
        "all rows": lambda: data,
    }
    found = []
    print("| learned from | bags | rows | variance | lengthscale | mean | seconds | nats lost |")
    print("|---|---|---|---|---|---|---|---|")
    for name, make in ways.items():
        begun = time.process_time()
        part = make()
        h = learn(objective(part))
        seconds = time.process_time() - begun
        kernel = f"{h.kernel.variance:.2f} | {h.kernel.lengthscale:.2f}"  # type: ignore[attr-defined]
        line = f"| {name} | {len(part.T)} | {len(part.X)} | {kernel} | {h.c0:.2f} | {seconds:.0f}"
        print(line, flush=True)
        found.append((line, h))
    whole = objective(data)
    best = whole(whole.pack(found[-1][1]))[0]
    for line, h in found:
        whole.v = np.zeros(len(Z))
        print(f"{line} | {whole(whole.pack(h))[0] - best:.1f} |", flush=True)


if __name__ == "__main__":
    main()
